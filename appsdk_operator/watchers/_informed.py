"""Where a controller's events come from."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from appsdk_operator.cache import EventSource, Registration
from appsdk_operator.runtime import StopSignal

__all__ = ["Informed", "RunnableInformer"]


@runtime_checkable
class RunnableInformer(Protocol):
    """What an InformerController needs of an informer; bring your own if you like."""

    def add_event_handler(self, handler: EventSource, /) -> Any:
        """Tell ``handler`` (``on_add``, ``on_update``, ``on_delete``) what happens."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Run until ``stop`` is set."""
        ...


class Informed:
    """An informer and its way into the controller."""

    def __init__(self, informer: RunnableInformer, kind: str, source: EventSource) -> None:
        self.informer = informer
        self.kind = kind
        self.source = source
        self.registration: Registration | None = None
        self.stop: StopSignal | None = None
