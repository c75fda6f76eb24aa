"""Where a controller's events come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, final, runtime_checkable

from appsdk_operator.cache import (
    Cache,
    CacheRegistration,
    EventSource,
    Health,
    Informer,
    Lister,
    NotCachedError,
    Registration,
)
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import StopSignal

__all__ = ["Informed", "OwnInformer", "RunnableInformer", "SharedInformers"]

_POLL = 0.1
"""Seconds between looks at an informer that can tell whether it has synced, but not when."""


@runtime_checkable
class RunnableInformer(Protocol):
    """What an InformerController needs of an informer; bring your own if you like.

    It may have more, under the names of :class:`~appsdk_operator.cache.Informer`, and is believed:
    ``has_synced`` (an attribute, or a method as Go has it), ``wait_for_sync(stop, timeout)`` and
    ``health()``. One that has none of them counts as synced and healthy once it runs.

    What it calls an update is a resync when the version is the same, and a deletion and an addition
    when the uid is another.
    """

    def add_event_handler(self, handler: EventSource, /) -> Any:
        """Tell ``handler`` (``on_add``, ``on_update``, ``on_delete``) what happens."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Run until ``stop`` is set."""
        ...


class Informed:
    """A way of events into the controller."""

    def __init__(self, kind: str, source: EventSource) -> None:
        self.kind = kind
        self.source = source

    def stores(self) -> Sequence[Lister]:
        """The local copies whose objects somebody may have been told of."""
        return ()

    def healths(self) -> Sequence[Health]:
        """How the informers stand."""
        return ()

    @property
    def has_synced(self) -> bool:
        """Whether everything that was there was handled."""
        return self.source.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed or after ``timeout`` seconds."""
        return self.source.wait_for_sync(stop, timeout)

    def leave(self) -> None:
        """Let no more events come this way."""


@final
class OwnInformer(Informed):
    """The way of an informer that the controller runs."""

    def __init__(self, informer: RunnableInformer, kind: str, source: EventSource) -> None:
        super().__init__(kind, source)
        self.informer = informer
        self.registration: Registration | None = None
        self.stop: StopSignal | None = None

    def stores(self) -> Sequence[Lister]:
        """As for every way; other packages' informers have none that is known."""
        return (self.informer.store,) if isinstance(self.informer, Informer) else ()

    def healths(self) -> Sequence[Health]:
        """As for every way."""
        health: Any = getattr(self.informer, "health", None)
        if not callable(health):
            return ()
        found: Any = health()
        return (found,)

    @property
    def has_synced(self) -> bool:
        """As for every way; another package's informer is asked as well, if it can tell."""
        return self._informer_has_synced() and self.source.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """As for every way; another package's informer is waited for as well."""
        if isinstance(self.informer, Informer):
            return self.source.wait_for_sync(stop, timeout)
        wait = getattr(self.informer, "wait_for_sync", None)
        if callable(wait):
            return bool(wait(stop, timeout)) and self.source.wait_for_sync(stop, timeout)
        left = math.inf if timeout is None else timeout
        while not self._informer_has_synced():
            if left <= 0 or stop.wait(min(_POLL, left)):
                return False
            left -= _POLL
        return self.source.wait_for_sync(stop, None if timeout is None else max(0.0, left))

    def _informer_has_synced(self) -> bool:
        if isinstance(self.informer, Informer):
            return True  # its source is told of the list's end
        synced = getattr(self.informer, "has_synced", True)
        return bool(synced() if callable(synced) else synced)

    def run(self, stop: StopSignal) -> None:
        """Run the informer until ``stop`` is set.

        Raises:
            RuntimeError: it ended although nobody stopped it, or with more than an exception.
            Exception: what it raised.
        """
        try:
            if not isinstance(self.informer, Informer):
                # Nobody else would say that there is no initial list to wait for.
                self.source.on_initial_list_end()
            self.informer.run(stop)
        except Exception:
            raise
        except BaseException as error:
            # SystemExit and its like would end the thread without a word.
            raise RuntimeError(f"the informer of {self.kind} raised {error!r}") from error
        if not stop.is_set():
            raise RuntimeError(f"the informer of {self.kind} ended although nobody stopped it")

    def leave(self) -> None:
        """As for every way; the informer ends."""
        if self.registration is not None:
            self.registration.remove()
        if self.stop is not None:
            self.stop.set()


@final
class SharedInformers(Informed):
    """The way of a cache's informers of a kind, which somebody else runs."""

    def __init__(self, cache: Cache, cached_kind: Kind, source: EventSource) -> None:
        super().__init__(str(cached_kind), source)
        self.cache = cache
        self._cached_kind = cached_kind
        self._registration: CacheRegistration | None = None

    def begin(self, resync: float | None) -> None:
        """Let events come, and first what is there."""
        self.cache.add(self._cached_kind)
        self._registration = self.cache.add_event_handler(
            self._cached_kind, self.source, resync=resync
        )

    def stores(self) -> Sequence[Lister]:
        """As for every way."""
        return [informer.store for informer in self._informers()]

    def healths(self) -> Sequence[Health]:
        """As for every way."""
        if self._cached_kind not in self.cache.kinds:
            text = f"{self.kind}: the cache does not keep it any more: add it to the cache again"
            return (Health(False, f"{text}, and the cache to the controller"),)
        return [informer.health() for informer in self._informers()]

    @property
    def has_synced(self) -> bool:
        """As for every way, and for every namespace that is followed."""
        return self._registration is not None and self._registration.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """As for every way, and for every namespace that is followed."""
        return self._registration is not None and self._registration.wait_for_sync(stop, timeout)

    def leave(self) -> None:
        """As for every way; the informers go on."""
        if self._registration is not None:
            self._registration.remove()

    def _informers(self) -> Sequence[Informer]:
        try:
            return self.cache.informers(self._cached_kind)
        except NotCachedError:
            return ()
