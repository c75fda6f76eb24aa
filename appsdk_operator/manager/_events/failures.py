"""Failures that persist as Events on their object, so that ``kubectl describe`` shows them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import msgspec

from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    CallRecord,
    Clock,
    FailureCause,
    RequestRecord,
    counted,
    duration_text,
    get_logger,
)
from appsdk_operator.runtime.validation import checked_seconds

if TYPE_CHECKING:
    from appsdk_operator.manager._events.recorder import EventRecorder

_log: Final = get_logger("appsdk_operator.manager")

_FAILING: Final = "Failing"
_RECOVERED: Final = "Recovered"
_MOST_FAILING: Final = 10_000
"""Failing objects that are remembered, for each controller."""
_ASKED_FOR: Final = frozenset({"RetryAfter", "NotSyncedError"})
"""Errors that say "later", and are not failures."""
_LONGEST_WORD: Final = 100
_LONGEST_NOTE: Final = 800


def _check_after(_: object, __: object, value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"after={value!r}: use a whole number of failures, at least 1, or None")


def _checked_lasting(value: float) -> float:
    return checked_seconds("lasting", value)


@attrs.frozen(kw_only=True)
class FailureEvents:
    """The choice of failures of reconcilers and watchers that become Events on their object.

    >>> FailureEvents().after
    3
    """

    after: int | None = attrs.field(default=3, validator=_check_after)
    """How often a callback has to fail in a row for one object before there is an Event; default 3.
    A failure that is not retried becomes an Event at once. Repeated failures are one Event with a
    count for each cause. None: only failures that are not retried become Events, and no Event shows
    a later success."""
    lasting: float = attrs.field(default=5.0, converter=_checked_lasting)
    """Seconds for which it must have failed by then; default 5, because the first retries of a
    reconciler come within milliseconds."""
    error_text: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))
    """Whether the Event has the error's text; default: yes. Everybody who may read Events in the
    namespace can read it: turn it off if errors may contain secrets. The Event always has the type
    of the error."""


def failure_events_of(value: FailureEvents | bool | None) -> FailureEvents | None:
    """The options for what was given: True for the defaults, False or None for none.

    Raises:
        TypeError: it is not one of these.
    """
    if value is None or value is False:
        return None
    if value is True:
        return FailureEvents()
    if not isinstance(value, FailureEvents):
        raise TypeError(f"failure_events={value!r}: give True, or FailureEvents(after=…)")
    return value


class _Failing(msgspec.Struct):
    """The failures in a row of one callback for one object."""

    since: float
    count: int = 0
    is_reported: bool = False


@final
class FailureEventObserver:
    """Records an Event about an object whose calls keep failing, and one when they succeed again.

    An observer of one controller's activity. Thread-safe.
    """

    def __init__(
        self,
        options: FailureEvents,
        *,
        find: Callable[[CallRecord], Object | None],
        recorder: Callable[[], EventRecorder],
        clock: Clock,
    ) -> None:
        """An observer.

        Args:
            options: which failures are reported.
            find: returns the object of a call, from a local copy; None if it is gone.
            recorder: returns the recorder.
            clock: tells how long failures have lasted.
        """
        self._options = options
        self.failures_only: bool = options.after is None
        """Whether it need not see calls that succeed."""
        self._find = find
        self._recorder = recorder
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: OrderedDict[Hashable, _Failing] = OrderedDict()

    def call_began(self, call: CallRecord) -> None:
        """Nothing: what counts is how it ends."""

    def request_began(self, request: RequestRecord) -> None:
        """Nothing."""

    def request_ended(self, request: RequestRecord) -> None:
        """Nothing."""

    def call_ended(self, call: CallRecord) -> None:
        """Count a failure, or end those before."""
        cause = call.cause
        if cause is None:
            if self._failing:
                self._succeeded(call)
            return
        if cause.type in _ASKED_FOR:
            return
        now = self._clock.monotonic()
        is_final = call.outcome in ("given up", "terminal", "fatal")
        after = self._options.after
        if after is None:
            if is_final:
                what = self._text(call, cause, None)
                self._record(call, "Warning", _FAILING, f"{call.callback}/{cause.type}", what)
            return
        with self._lock:
            failing = self._failing.pop(_key(call), None) or _Failing(now)
            self._failing[_key(call)] = failing
            if len(self._failing) > _MOST_FAILING:
                self._failing.popitem(last=False)
            failing.count += 1
            has_lasted = now - failing.since >= self._options.lasting
            if not is_final and not (has_lasted and failing.count >= after):
                return
            failing.is_reported = True
        what = self._text(call, cause, failing.count)
        self._record(call, "Warning", _FAILING, f"{call.callback}/{cause.type}", what)

    def _succeeded(self, call: CallRecord) -> None:
        with self._lock:
            failing = self._failing.pop(_key(call), None)
        if failing is None or not failing.is_reported:
            return
        lasted = duration_text(self._clock.monotonic() - failing.since)
        times = counted(failing.count, "failure")
        text = f"{call.callback} works again, after {times} in {lasted}"
        self._record(call, "Normal", _RECOVERED, call.callback, text)

    def _text(self, call: CallRecord, cause: FailureCause, count: int | None) -> str:
        error = f"{cause.type}: {cause.text}" if self._options.error_text else cause.type
        if len(error) > _LONGEST_NOTE:
            error = f"{error[:_LONGEST_NOTE]}…"
        times = "" if count is None else " once" if count == 1 else f" {count} times in a row"
        then = {
            "given up": "given up",
            "terminal": "not tried again before the object changes",
            "fatal": "the operator stops",
        }.get(call.outcome, "tried again with growing delays")
        return f"{call.callback} failed{times}: {error}; {then}"

    def _record(self, call: CallRecord, type_: Any, reason: str, action: str, note: str) -> None:
        try:
            obj = self._find(call)
            if obj is not None:
                word = "".join(action.split())[-_LONGEST_WORD:]
                self._recorder().event(obj, type_, reason, word, note)
        except Exception as error:
            _log.warning("could not write an Event about %s: %s", note, error)


def _key(call: CallRecord) -> Hashable:
    return call.target, call.kind, call.namespace, call.name
