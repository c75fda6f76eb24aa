"""A client that writes nothing once its process has lost the lead. SKELETON."""

from __future__ import annotations

from typing import Protocol

from appsdk_operator.client import ClientLike, ClientWrapper

__all__ = ["Fence", "FencedClient"]


class Fence(Protocol):
    """Knows whether a write may begin; an :class:`Elector` is one."""

    def check_write(self) -> None:
        """Return if a write may begin now.

        Raises:
            LeadershipLost: it would come too late.
        """
        ...


class FencedClient(ClientWrapper):
    """Refuses writes that come too late."""

    def __init__(self, inner: ClientLike, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence
