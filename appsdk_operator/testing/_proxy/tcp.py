"""The connections of a proxy: pairs of sockets, and what slows or cuts them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, final

import attrs

__all__ = ["Address", "ConnectionPair", "NetworkFaults", "cancel_all"]

Address: TypeAlias = tuple[int, int, int, str, Any]  # as getaddrinfo gives it
# With this option a close resets the connection instead of ending it in good order.
_RESET: Final = struct.pack("ii", 1, 0)


@attrs.frozen(kw_only=True)
class NetworkFaults:
    """What befalls bytes, whatever they mean."""

    delay: float = 0.0
    rate: float | None = None
    cut_after: int = 0
    cuts_left: int = 0


@final
class ConnectionPair:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, target: Address) -> None:
        """A client that was accepted, and no connection to the target yet."""
        self.client = client
        self.answered = 0
        family, kind, protocol, _, self._address = target
        self.server = socket.socket(family, kind, protocol)

    async def connect(self) -> None:
        """Connect to the server."""
        for end in self._ends():
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(self.server, self._address)

    def close(self, *, reset: bool) -> None:
        """Close both ends, by a reset or in good order."""
        for end in self._ends():
            if reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()

    def _ends(self) -> Iterator[socket.socket]:
        yield self.client
        yield self.server


async def cancel_all(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
