"""The uncached client behind a client."""

from __future__ import annotations

from typing import Any, Protocol

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
    wrappers: list[Any] = []
    while layer is not None:
        found: Getter | None = getattr(layer, "live", None)
        if found is not None:
            live = found
            for each in reversed(wrappers):
                live = each._around_live(live)  # noqa: SLF001
            return live
        if hasattr(layer, "_around_live"):
            wrappers.append(layer)
        layer = getattr(layer, "inner", None)
    return client
