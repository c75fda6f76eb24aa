"""Bindings between a controller and the informers that feed it."""

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
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    StopSignal,
    Waiters,
    as_exception,
    error_text,
    get_logger,
    present_clock,
    safe_repr,
)

__all__ = ["InformerBinding", "OwnedInformer", "RunnableInformer", "SharedInformers"]

_log = get_logger("appsdk_operator.watchers")

_POLL = 0.1
"""Seconds between looks at an informer that can tell whether it has synced, but not when."""


@runtime_checkable
class RunnableInformer(Protocol):
    """What an InformerController needs of an informer; implement it to use your own.

    These members of :class:`~appsdk_operator.cache.Informer` are used if it has them:
    ``has_synced`` (an attribute, or a method as in Go) or else ``wait_for_sync(stop, timeout)``,
    which is asked with a time-out of 0, and ``health()``. What it adds before it has synced is its
    initial list. An informer without these counts as synced and healthy once it runs.

    An update to the same resourceVersion is delivered as a resync, and an update to another uid as
    a deletion and an addition.
    """

    def add_event_handler(self, handler: EventSource, /) -> Any:
        """Call ``on_add``, ``on_update`` and ``on_delete`` of ``handler`` for every change."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Run until ``stop`` is set."""
        ...


class InformerBinding:
    """The connection of an informer, or of a cache's informers of one kind, to a controller."""

    def __init__(self, kind: str, source: EventSource) -> None:
        self.kind = kind
        self.source = source

    def stores(self) -> Sequence[Lister]:
        """The local copies whose objects watchers may have got already; none if unknown."""
        return ()

    def healths(self) -> Sequence[Health]:
        """The health of each informer, as far as it is known."""
        return ()

    @property
    def has_synced(self) -> bool:
        """Whether every object of the initial list was handled."""
        return self.source.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed or after ``timeout`` seconds."""
        return self.source.wait_for_sync(stop, timeout)

    def detach(self) -> None:
        """Stop the delivery of events."""


@final
class OwnedInformer(InformerBinding):
    """The binding of an informer that the controller runs."""

    def __init__(self, informer: RunnableInformer, kind: str, source: EventSource) -> None:
        super().__init__(kind, source)
        self.informer = informer
        self.registration: Registration | None = None
        self.stop: StopSignal | None = None
        self._failures = FailureLog(_log, present_clock())
        # This package's informers signal the end of the list to their source.
        self._reports_when_listed = not isinstance(informer, Informer) and (
            hasattr(informer, "has_synced") or hasattr(informer, "wait_for_sync")
        )

    def stores(self) -> Sequence[Lister]:
        """The informer's store; none for an informer of another package."""
        return (self.informer.store,) if isinstance(self.informer, Informer) else ()

    def healths(self) -> Sequence[Health]:
        """The informer's health; none if it does not report any."""
        health: Any = getattr(self.informer, "health", None)
        if not callable(health):
            return ()
        try:
            found: Any = health()
            if isinstance(found, Health):
                return (found,)
            problem = f"its health() returned {safe_repr(found)}"
        except Exception as error:
            problem = f"its health() failed: {error_text(error)}"
        return (Health(False, f"the informer of {self.kind}: {problem}"),)

    @property
    def has_synced(self) -> bool:
        """Whether every object of the initial list was handled."""
        return self._has_listed() and self.source.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed or after ``timeout`` seconds."""
        left = math.inf if timeout is None else timeout
        while not self._has_listed():
            if left <= 0 or self.source.is_removed or stop.wait(min(_POLL, left)):
                return False
            left -= _POLL
        return self.source.wait_for_sync(stop, None if timeout is None else max(0.0, left))

    def _has_listed(self) -> bool:
        """Whether the informer has handed over its initial list, as far as it says anything."""
        if not self._reports_when_listed:
            return True
        informer: Any = self.informer
        try:
            if hasattr(informer, "has_synced"):
                synced = informer.has_synced
                has_listed = bool(synced() if callable(synced) else synced)
            else:
                has_listed = bool(informer.wait_for_sync(StopSignal(), 0.0))
        except Exception as error:
            whose = f"the informer of {self.kind}"
            self._failures.failed(error, whose, "%s cannot tell whether it has synced", whose)
            return False
        if has_listed and not self.source.is_initial_ended:
            self.source.on_initial_list_end()
        return has_listed

    def run(self, stop: StopSignal) -> None:
        """Run the informer until ``stop`` is set.

        Raises:
            RuntimeError: it ended although nobody stopped it, or with more than an exception.
            Exception: what it raised.
        """
        try:
            if not self._reports_when_listed and not isinstance(self.informer, Informer):
                self.source.on_initial_list_end()
            self.informer.run(stop)
        except Exception:
            raise
        except BaseException as error:
            raise as_exception(
                f"the informer of {self.kind}", error, for_main_thread=False
            ) from error
        if not stop.is_set():
            raise RuntimeError(f"the informer of {self.kind} ended although nobody stopped it")

    def detach(self) -> None:
        """Stop the delivery of events, and the informer."""
        if self.registration is not None:
            self.registration.remove()
        if self.stop is not None:
            self.stop.set()


@final
class SharedInformers(InformerBinding):
    """The binding of a cache's informers of one kind, which are run elsewhere."""

    def __init__(
        self, cache: Cache, cached_kind: Kind, source: EventSource, *, clock: Clock
    ) -> None:
        super().__init__(str(cached_kind), source)
        self._clock = clock
        self._attached = Waiters(clock)
        self.cache = cache
        self._cached_kind = cached_kind
        self._registration: CacheRegistration | None = None

    def attach(self, resync: float | None) -> None:
        """Start the delivery of events, beginning with the present objects."""
        self.cache.add(self._cached_kind)
        self._registration = self.cache.add_event_handler(
            self._cached_kind, self.source, resync=resync
        )
        self._attached.wake()

    def stores(self) -> Sequence[Lister]:
        """The stores of the informers, one for each followed namespace."""
        return [informer.store for informer in self._informers()]

    def healths(self) -> Sequence[Health]:
        """The health of each informer; not ready when the cache no longer keeps the kind."""
        if self._cached_kind not in self.cache.kinds:
            text = f"{self.kind}: the cache does not keep it any more: add it to the cache again"
            return (Health(False, f"{text}, and the cache to the controller"),)
        return [informer.health() for informer in self._informers()]

    @property
    def has_synced(self) -> bool:
        """Whether every object of the initial lists of all followed namespaces was handled."""
        return self._registration is not None and self._registration.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None) -> bool:
        """Wait for :attr:`has_synced`; False when stopped, removed or after ``timeout`` seconds."""
        clock = self._clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        # It may just be attached by another thread.
        self._attached.wait(self._is_attached_or_removed, stop, timeout)
        registration = self._registration
        left = None if deadline is None else max(0.0, deadline - clock.monotonic())
        return registration is not None and registration.wait_for_sync(stop, left)

    def _is_attached_or_removed(self) -> bool:
        return self._registration is not None or self.source.is_removed

    def detach(self) -> None:
        """Stop the delivery of events; the informers keep running."""
        self._attached.wake()
        if self._registration is not None:
            self._registration.remove()

    def _informers(self) -> Sequence[Informer]:
        try:
            return self.cache.informers(self._cached_kind)
        except NotCachedError:
            return ()
