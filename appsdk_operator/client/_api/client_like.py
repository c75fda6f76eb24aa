"""The methods of a client that controllers use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from appsdk_operator.client._api.protocols import Verbs

if TYPE_CHECKING:
    from appsdk_operator.client._api.aio import AsyncClient


class ClientLike(Verbs, Protocol):
    """The methods of a client that controllers use: :class:`Client`, its wrappers, your fakes."""

    @property
    def aio(self) -> AsyncClient:
        """The verbs as coroutines."""
        ...
