"""Holds the controllers and background functions of a manager while its operator is paused."""

from __future__ import annotations

import datetime as dt
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final, runtime_checkable

from appsdk_operator._lazy import if_loaded
from appsdk_operator.manager._election.pause import Pause, PauseState
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    Family,
    Sample,
    get_logger,
    guarded_call,
)

_log: Final = get_logger("appsdk_operator.manager")
_PAUSED: Final = Family(
    "operator_paused",
    "gauge",
    "Whether the operator is paused, by the name of its Lease: 1, else 0.",
    ("name",),
)


@runtime_checkable
class _Holdable(Protocol):
    """What can be kept from beginning calls."""

    def hold(self) -> None: ...

    def let_go(self) -> None: ...


def _operators() -> tuple[type[Any], ...]:
    return if_loaded("appsdk_operator.manager", "Operator")


@final
class Pauses:
    """Whether the operator is paused, and its controllers, which begin no call meanwhile."""

    def __init__(
        self,
        operator: str,
        lease: str,
        clock: Clock,
        *,
        on_change: Callable[[Object, str, str], None],
    ) -> None:
        """An operator that is not paused.

        Args:
            operator: its name, for the log.
            lease: the name of its Lease, for the metrics.
            clock: the time of day, to which the end of a pause is compared.
            on_change: called with the Lease, ``"Pause"`` or ``"Resume"``, and a text.
        """
        self._operator = operator or "the operator"
        self._lease = lease
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._state = PauseState()
        # Weak: a manager may run many short-lived parts.
        self._parts: list[weakref.ref[Any]] = []
        self._failures = FailureLog(_log, clock)

    @property
    def present(self) -> Pause | None:
        """The pause that holds now."""
        return self._state.present

    def join(self, part: Any) -> None:
        """Have a part of the manager held while there is a pause."""
        if not isinstance(part, (_Holdable, *_operators())):
            return
        with self._lock:
            self._parts = [ref for ref in self._parts if ref() is not None]
            self._parts.append(weakref.ref(part))
            if self._state.present is not None:
                self._hold()
        if isinstance(part, _operators()):
            part.announce_to(self.join)

    def observe(self, lease: Object) -> None:
        """Do what the annotations of the Lease say now; called often, as time passes, too."""
        with self._lock:
            before = self._state.present
            now = dt.datetime.fromtimestamp(self._clock.time(), dt.UTC)
            has_changed = self._state.observe(lease.annotations, now)
            present, problem = self._state.present, self._state.problem
            # Each time: an Operator may have got further controllers.
            if present is not None:
                self._hold()
            elif before is not None:
                self._call_all(lambda part: part.let_go())
        if not has_changed:
            return
        if problem:
            _log.warning("%s: %s", self._operator, problem)
        if present is not None:
            text = f"{self._operator} is {present}"
            _log.info("%s: running calls end, and no new ones begin", text)
            self._on_change(lease, "Pause", text)
        elif before is not None:
            text = f"{self._operator} goes on: it was {before}"
            _log.info("%s", text)
            self._on_change(lease, "Resume", text)

    def samples(self) -> Iterable[Sample]:
        """Its series."""
        yield Sample(_PAUSED, (self._lease,), float(self._state.present is not None))

    def _hold(self) -> None:
        self._call_all(lambda part: part.hold())

    def _call_all(self, call: Callable[[_Holdable], None]) -> None:
        parts: dict[int, object] = {}
        for part in filter(None, [ref() for ref in self._parts]):
            found = part.controllers if isinstance(part, _operators()) else (part,)
            parts |= {id(each): each for each in found}
        for each in parts.values():
            if isinstance(each, _Holdable):
                self._call(each, call)

    def _call(self, part: _Holdable, call: Callable[[_Holdable], None]) -> None:
        guarded_call(
            "hold() or let_go()",
            call,
            part,
            failed=lambda error: self._failures.failed(
                error,
                type(part).__name__,
                "%s: hold() or let_go() of %r failed",
                self._operator,
                part,
            ),
        )
