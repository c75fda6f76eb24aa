"""The proxy's connections as pairs of sockets, and the network faults that apply to them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, final

import attrs

Address: TypeAlias = tuple[int, int, int, str, Any]  # as getaddrinfo gives it
# With this option a close resets the connection.
_RESET: Final = struct.pack("ii", 1, 0)


@attrs.frozen(kw_only=True)
class NetworkFaults:
    """The network faults in force, which apply to bytes and know no requests."""

    delay: float = 0.0
    rate: float | None = None
    cut_after: int = 0
    cuts_left: int = 0


@final
class ConnectionPair:
    """A client's connection and its counterpart to the server."""

    def __init__(self, client: socket.socket, target: Address) -> None:
        """An accepted client; the connection to the target is not made yet."""
        self.client = client
        self.answer_bytes = 0
        family, kind, protocol, _, self._address = target
        self.server = socket.socket(family, kind, protocol)

    async def connect(self) -> None:
        """Connect to the server."""
        for end in self._ends():
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(self.server, self._address)

    def close(self, *, reset: bool) -> None:
        """Close both ends, with a reset or gracefully."""
        for end in self._ends():
            if reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()

    def _ends(self) -> Iterator[socket.socket]:
        yield self.client
        yield self.server


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
