"""The uncached client behind a client."""

from __future__ import annotations

from typing import Any, Protocol

from appsdk_operator.client._wrappers.namespaced import NamespacedClient
from appsdk_operator.resource import Kind, Object


class Getter(Protocol):
    """Reads one object."""

    def get(self, kind: Kind, name: str, *, namespace: str = ...) -> Object:
        """The object, or :class:`~appsdk_operator.client.NotFound`."""
        ...


def live_reader(client: Getter) -> Getter:
    """The uncached client behind ``client``; ``client`` itself if it has no cache.

    A cached client has it as ``live``; wrappers have the client that they wrap as ``inner``. The
    namespace of a :class:`~appsdk_operator.client.NamespacedClient` around it still applies.
    """
    layer: Any = client
    namespace = ""
    while layer is not None:
        live: Any = getattr(layer, "live", None)
        if live is not None:
            return NamespacedClient(live, namespace) if namespace else live
        if isinstance(layer, NamespacedClient):
            namespace = namespace or layer.namespace
        layer = getattr(layer, "inner", None)
    return client
