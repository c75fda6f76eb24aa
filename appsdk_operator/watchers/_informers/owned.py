"""The informers that a controller runs, of this package or another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, final, runtime_checkable

from appsdk_operator.cache import (
    CacheRegistration,
    EventSource,
    Followed,
    Health,
    Informer,
    Registration,
)
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    StopSignal,
    as_exception,
    error_text,
    get_logger,
    present_clock,
    safe_repr,
)

_log = get_logger("appsdk_operator.watchers")

_POLL = 0.1
"""Seconds between looks at an informer that can tell whether it has synced, but not when."""


@runtime_checkable
class RunnableInformer(Protocol):
    """The methods of an informer that an InformerController needs; implement them to use your own.

    The controller also uses these members of :class:`~appsdk_operator.cache.Informer` if the
    informer has them: ``has_synced`` (an attribute, or a method as in Go) or else
    ``wait_for_sync(stop, timeout)``, which it calls with a time-out of 0, and ``health()``. The
    objects that the informer adds before it has synced are its initial list. An informer without
    these members counts as synced and healthy once it runs.

    An update to the same resourceVersion is delivered as a resync, and an update to another uid as
    a deletion and an addition.
    """

    def add_event_handler(self, handler: EventSource, /) -> Any:
        """Call ``on_add``, ``on_update`` and ``on_delete`` of ``handler`` for every change."""
        ...

    def run(self, stop: StopSignal, /) -> None:
        """Run until ``stop`` is set."""
        ...


def check_informer(informer: object) -> None:
    if not isinstance(informer, RunnableInformer):
        raise TypeError(
            f"informer={informer!r} is not an informer: it needs add_event_handler and run"
        )
    if isinstance(informer, type):
        raise TypeError(
            f"informer={informer!r} is a class: add an instance, {informer.__name__}(…)"
        )


@final
class OwnedInformer(Followed):
    """The attachment to an informer that the controller runs, of this package or another."""

    def __init__(
        self,
        informer: RunnableInformer,
        source: EventSource,
        *,
        resync: float | None = None,
        clock: Clock,
    ) -> None:
        # One of another package may have no kind, or another form of it.
        origin: Any = informer
        kind: Any = getattr(informer, "kind", None)
        super().__init__(origin, kind, source, resync=resync, clock=clock)
        self.informer = informer
        self.stop: StopSignal | None = None
        self._failures = FailureLog(_log, present_clock())
        # This package's informers signal the end of the list to their source.
        self._reports_when_listed = not isinstance(informer, Informer) and (
            hasattr(informer, "has_synced") or hasattr(informer, "wait_for_sync")
        )

    def _register(self) -> CacheRegistration | Registration | None:
        if isinstance(self.informer, Informer):
            return super()._register()
        registration = self.informer.add_event_handler(self.source)
        return registration if isinstance(registration, Registration) else None

    @property
    def informers(self) -> Sequence[Informer]:
        """The informer; none for one of another package."""
        return (self.informer,) if isinstance(self.informer, Informer) else ()

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
        return (Health(False, f"the informer of {self.source.kind}: {problem}"),)

    @property
    def has_synced(self) -> bool:
        """Whether every object of the initial list was handled."""
        return self._has_listed() and self.source.has_synced

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
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
            whose = f"the informer of {self.source.kind}"
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
                f"the informer of {self.source.kind}", error, for_main_thread=False
            ) from error
        if not stop.is_set():
            raise RuntimeError(
                f"the informer of {self.source.kind} ended although nobody stopped it"
            )

    def detach(self) -> None:
        """Stop the delivery of events, and the informer."""
        super().detach()
        if self.stop is not None:
            self.stop.set()
