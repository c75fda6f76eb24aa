"""What an operator's callbacks do: their calls, the outcomes, and the requests made within them.

Each controller has an :class:`ActivityLog`. It is always on: a call costs a few attribute writes.
Of calls that end well, at most :data:`RECORDED_PER_SECOND` in a second are recorded; failures and
calls that sent writes always are. The bounds of all rings are in this module.

Observers see the same places as they happen: tracing and narration are observers.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._history import CallHistory
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.texts import safe_text
from appsdk_operator.runtime._logs.tracebacks import (
    callback_name,
    failed_function,
    place_of,
)
from appsdk_operator.runtime._threading.call_monitor import HELD_FOR, CallMonitor, RunningCall
from appsdk_operator.runtime._threading.limited_calls import LimitedCall
from appsdk_operator.runtime._threading.stop import StopSignal
from appsdk_operator.runtime._threading.threads import callback_place, settle
from appsdk_operator.runtime._threading.workers import is_cancelled
from appsdk_operator.runtime._user_code import guarded_call
from appsdk_operator.runtime.validation import check_plain

T = TypeVar("T")

_log = get_logger("appsdk_operator.runtime")

RECORDED_PER_SECOND: Final = 200
"""Calls without an error or a write that a log records in a second; others are only counted."""
_CALLS: Final = 200
_FAILURES: Final = 200
_OBJECTS: Final = 500
_CALLS_OF_OBJECT: Final = 10
_REQUESTS_OF_CALL: Final = 20
_LONGEST_TEXT: Final = 1000
_FAILING: Final = 2000

ACTION_WORDS: Final[Mapping[str, str]] = {
    "CREATE": "creation",
    "UPDATE": "change",
    "DELETE": "clean-up",
    "RESYNC": "resync",
    "SYNC": "sync after a start",
    "TIMER": "timer",
}
"""The purpose of a call, in words."""

CallOutcome: TypeAlias = Literal[
    "running", "done", "requeued", "retrying", "given up", "terminal", "fatal"
]
"""The outcome of a call.

``running``: it has not ended. ``done``: it succeeded. ``requeued``: it succeeded, and is repeated
after ``next_in`` seconds. ``retrying``: it failed, and is repeated after ``next_in`` seconds.
``given up``: it failed, and only a resync or an event repeats it. ``terminal``: it failed, and only
a change of the object repeats it. ``fatal``: it failed and ended its controller.
"""


class FailureCause:
    """The place and the error of a failed call; failures with equal ``key`` have one cause."""

    __slots__ = ("function", "place", "text", "type")

    def __init__(self, error: BaseException) -> None:
        self.type: str = type(error).__name__
        """The error's class."""
        self.text: str = _short(error)
        """The error's text, at most 1000 characters."""
        self.function: str = failed_function(error)
        """The innermost function of the user in the traceback; ``""`` if unknown."""
        self.place: str = place_of(error)
        """File and line in that function."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Type, function and place."""
        return self.type, self.function, self.place


class RequestRecord:
    """One attempt of a request to an API server. Observers may use it as a dict key."""

    __slots__ = (
        "call",
        "error",
        "headers",
        "host",
        "method",
        "name",
        "namespace",
        "resource",
        "seconds",
        "status",
        "tries",
        "verb",
    )

    def __init__(
        self,
        *,
        method: str,
        verb: str,
        resource: str,
        namespace: str = "",
        name: str = "",
        host: str = "",
        tries: int = 0,
        call: CallRecord | None = None,
    ) -> None:
        self.method: str = method
        """The HTTP method."""
        self.verb: str = verb
        """The verb in RBAC rules; ``""`` for paths without a resource."""
        self.resource: str = resource
        """The resource in RBAC rules, for example ``deployments.apps/scale``."""
        self.namespace: str = namespace
        """The namespace, or ``""``."""
        self.name: str = name
        """The object's name, or ``""``."""
        self.host: str = host
        """Host and port of the server."""
        self.tries: int = tries
        """How often the request was sent before: 0 for the first time."""
        self.call: CallRecord | None = call
        """The call that it belongs to, if this call is observed; None outside of calls."""
        self.headers: dict[str, str] = {}
        """Headers that observers add to the request, for example ``traceparent``."""
        self.seconds: float | None = None
        """How many seconds it took; None while it runs."""
        self.status: int = 0
        """The HTTP status; 0 without an answer."""
        self.error: str = ""
        """The error as text, if there was no answer or a refusal; else ``""``."""

    @property
    def is_write(self) -> bool:
        """Whether the request writes."""
        return self.method not in {"GET", "HEAD"}

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "verb": self.verb or self.method,
            "resource": self.resource,
            "namespace": self.namespace,
            "name": self.name,
            "status": self.status,
            "seconds": self.seconds,
            "error": self.error,
        }


class CallRecord:
    """One call of a reconciler, watcher or webhook. Observers may use it as a dict key.

    It holds only names of objects, not their content.
    """

    __slots__ = (
        "action",
        "attempt",
        "callback",
        "cause",
        "controller",
        "headers",
        "is_awaiting",
        "kind",
        "name",
        "namespace",
        "next_in",
        "omitted_requests",
        "outcome",
        "place",
        "reasons",
        "requests",
        "role",
        "seconds",
        "started",
        "target",
    )

    def __init__(
        self,
        *,
        controller: str,
        callback: str,
        role: str,
        kind: str,
        namespace: str,
        name: str,
        action: str = "",
        reasons: Sequence[Any] = (),
        attempt: int = 0,
        started: float = 0.0,
        target: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.controller: str = controller
        """The controller's name."""
        self.callback: str = callback
        """The name of the called function; ``""`` if the kit looked at an object and there was
        nothing to call."""
        self.role: str = role
        """``reconciler``, ``watcher`` or ``webhook``."""
        self.kind: str = kind
        """The kind of the object, or ``""``."""
        self.namespace: str = namespace
        """The object's namespace, or ``""``."""
        self.name: str = name
        """The object's name; for a request of another type, its text."""
        self.action: str = action
        """The event's action, for example ``update``; ``""`` for reconciles of a request."""
        self.reasons: Sequence[Any] = reasons
        """The reasons of the call, oldest first, as values with a short text."""
        self.attempt: int = attempt
        """0 for the first try, 1 for the first retry, …"""
        self.started: float = started
        """The monotonic time of its start, by the controller's clock."""
        self.target: int = target
        """A number that is equal for all calls of one watcher of the controller, of whichever
        callback. For an App, it is equal for all calls of one function."""
        self.headers: Mapping[str, str] | None = headers
        """The headers of the review, for webhooks; None for others."""
        self.seconds: float | None = None
        """How many seconds it took; None while it runs."""
        self.outcome: CallOutcome = "running"
        """What came of it."""
        self.next_in: float | None = None
        """Seconds from its end to the next call; None if none is planned."""
        self.place: str = ""
        """The place in the user's code at which the call is, once it has run for half a minute;
        else ``""``."""
        self.is_awaiting: bool = False
        """Whether it waited for a coroutine, and held no worker, at the last look."""
        self.cause: FailureCause | None = None
        """Why it failed; None unless it did."""
        self.requests: list[RequestRecord] = []
        """The writes that it sent, the first 20."""
        self.omitted_requests: int = 0
        """The number of further writes."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name of the object."""
        return self.kind, self.namespace, self.name

    def _why(self) -> str:
        if not self.action:
            return "; ".join(_short(reason) for reason in self.reasons)
        what = ACTION_WORDS.get(self.action, self.action)
        return f"retry {self.attempt} of {what}" if self.attempt else what

    def to_json(self, now: float, time: float) -> dict[str, Any]:
        """JSON values, where ``now`` (monotonic) and ``time`` (since 1970) are the same moment."""
        cause = self.cause
        seconds = now - self.started if self.seconds is None else self.seconds
        is_idle = not self.callback and self.outcome == "done" and not self.requests
        return {
            "controller": self.controller,
            "callback": self.callback,
            "role": self.role,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "action": self.action,
            "reasons": [_short(reason) for reason in self.reasons],
            "why": self._why(),
            "attempt": self.attempt,
            "started": time - (now - self.started),
            "seconds": seconds,
            "held_at": self.place if self.seconds is None else "",
            "awaiting": self.is_awaiting and self.seconds is None,
            "outcome": "nothing to do" if is_idle else self.outcome,
            "next_in": (
                None if self.next_in is None else self.started + seconds + self.next_in - now
            ),
            "error": None
            if cause is None
            else {
                "type": cause.type,
                "text": cause.text,
                "function": cause.function,
                "place": cause.place,
            },
            "writes": [request.to_json() for request in list(self.requests)],
            "omitted_writes": self.omitted_requests,
        }


@final
class FailingCalls:
    """The failures in a row of one callback for one object."""

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since: float = since
        """The monotonic time of the first one."""
        self.count: int = 0
        """How many there were."""
        self.last: CallRecord
        """The last one."""


class ActivityObserver(Protocol):
    """Observes calls and requests as they happen, in the thread that makes them.

    Give it to ``Manager.observe_activity``. Its errors are logged and have no other effect. A
    method that waits delays the operator. The two methods of one call, or of one request, are
    called in one thread.
    """

    def call_began(self, call: CallRecord) -> None:
        """A reconciler, watcher or webhook is about to run; context variables set here reach it."""
        ...

    def call_ended(self, call: CallRecord) -> None:
        """The call has returned or failed; ``call.outcome`` says what follows."""
        ...

    def request_began(self, request: RequestRecord) -> None:
        """A request is about to be sent; the observer may add to ``request.headers``."""
        ...

    def request_ended(self, request: RequestRecord) -> None:
        """The request was answered or has failed."""
        ...


def check_observer(observer: object) -> None:
    """Refuse what is not an observer.

    Raises:
        TypeError: ``observer`` lacks a method, or a method is ``async def``.
    """
    for method in ("call_began", "call_ended", "request_began", "request_ended"):
        function = getattr(observer, method, None)
        if isinstance(observer, type) or not callable(function):
            raise TypeError(
                f"{observer!r} among the observers has no method {method}: give an "
                "ActivityObserver, for example tracing.Tracing()"
            )
        check_plain(f"{method} of the observer, a {type(observer).__name__},", function)


@final
class Observers:
    """Observers of one part, which may be added and removed at any time. Thread-safe."""

    __slots__ = ("_lock", "of_failures", "present")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.present: tuple[ActivityObserver, ...] = ()
        """Those of all calls; empty for most programs."""
        self.of_failures: tuple[ActivityObserver, ...] = ()
        """Those with ``failures_only``, which see the ends of failed calls alone."""

    def add(self, observer: ActivityObserver) -> Callable[[], None]:
        """Add an observer, unless it is there; returns the function that removes it.

        Raises:
            TypeError: it is not an observer.
        """
        check_observer(observer)
        with self._lock:
            if not any(one is observer for one in (*self.present, *self.of_failures)):
                if getattr(observer, "failures_only", False):
                    self.of_failures = (*self.of_failures, observer)
                else:
                    self.present = (*self.present, observer)

        def remove() -> None:
            with self._lock:
                self.present = tuple(one for one in self.present if one is not observer)
                self.of_failures = tuple(one for one in self.of_failures if one is not observer)

        return remove


@final
class ObservedParts:
    """The parts of a manager or operator that have ``observe_activity``. Thread-safe.

    An observer sees those parts that are there, and those that come later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak: a manager may run many short-lived parts. Each with what ends its observers.
        self._parts: list[tuple[weakref.ref[Any], dict[object, Callable[[], None]]]] = []
        self._observers: dict[object, ActivityObserver] = {}

    def join(self, part: object) -> None:
        """Show all observers the activity of ``part`` too, if it can be observed."""
        if not callable(getattr(type(part), "observe_activity", None)):
            return
        found: Any = part
        with self._lock:
            self._parts = [pair for pair in self._parts if pair[0]() is not None]
            removals = {key: found.observe_activity(one) for key, one in self._observers.items()}
            self._parts.append((weakref.ref(found), removals))

    def observe(self, observer: ActivityObserver) -> Callable[[], None]:
        """Show ``observer`` all parts; returns the function that ends that.

        Raises:
            TypeError: it is not an observer.
        """
        check_observer(observer)
        key = object()
        with self._lock:
            for ref, removals in self._parts:
                if (part := ref()) is not None:
                    removals[key] = part.observe_activity(observer)
            self._observers[key] = observer

        def end() -> None:
            with self._lock:
                self._observers.pop(key, None)
                ended = [removals.pop(key) for _, removals in self._parts if key in removals]
            for remove in ended:
                remove()

        return end


NO_MEMORY: Final = object()
"""The value of ``CallSlot.memory`` for calls that keep nothing."""


@final
class CallSlot:
    """What one worker thread does at present. Only that thread, and its call, write to it."""

    __slots__ = (
        "called",
        "is_noted",
        "is_retry",
        "limit",
        "limited",
        "log",
        "looks",
        "memory",
        "omitted_requests",
        "record",
        "requests",
        "started",
        "target",
        "trigger",
    )

    def __init__(self, log: ActivityLog) -> None:
        self.log: ActivityLog = log
        self.looks: int = 0
        """How many calls have found nothing to do, of those that look for what is due."""
        self.started: float = 0.0
        """The monotonic time of the call's start."""
        self.target: Any = None
        """Who is called; for the log's ``describe``."""
        self.trigger: Any = None
        """What it is called for; None: no call runs."""
        self.called: tuple[Callable[..., Any] | None, str] | None = None
        """The function of ``target`` that is or was called, None for none at all, and the cause;
        None: not known yet, or ``target`` is not more than one function."""
        self.is_retry: bool = False
        """Whether the call repeats an earlier one."""
        self.limited: LimitedCall | None = None
        """The part of the call that runs now and may have a time limit; None without."""
        self.limit: list[Any] | None = None
        """The start of the call and the seconds that it may take, where it is one function's; then
        what :meth:`ActivityLog.limited_call` has made of them, or None at its end."""
        self.memory: Any = NO_MEMORY
        """What :func:`call_memory` returns; None before it is asked for."""
        self.record: CallRecord | None = None
        """The record of the call, made at its start for observers, else at its end."""
        self.requests: list[RequestRecord] | None = None
        """The first writes of the call; None before the first."""
        self.omitted_requests: int = 0
        self.is_noted: bool = False
        """Whether the call is to be recorded in any case."""


_slot: contextvars.ContextVar[CallSlot | None] = contextvars.ContextVar(
    "appsdk_operator.call", default=None
)


def present_call() -> CallRecord | None:
    """The call of a reconciler or watcher that the calling thread or task makes; None outside.

    Threads that a callback starts have no call.

    >>> present_call() is None
    True
    """
    slot = _slot.get()
    if slot is None or slot.trigger is None:
        return None
    return slot.record or slot.log.describe(slot)


def current_stop() -> StopSignal:
    """The stop signal of the call that the calling thread or task makes.

    It is set when the call's time limit has passed, when its controller stops, and when the call
    has ended. Pass it to everything that waits, or check it in loops. Outside of calls, as in a
    test that calls the function directly, nothing sets it.

    >>> current_stop().is_set()
    False
    """
    slot = _slot.get()
    if slot is None:
        return StopSignal()
    limited = slot.log.limited_call(slot)
    return slot.log.stop if limited is None else limited.stop


def call_memory(make: Callable[[], T]) -> T | None:
    """What the present call keeps until its end, made by ``make`` for who asks first.

    None outside of the calls that keep something. Not thread-safe.
    """
    slot = _slot.get()
    if slot is None or slot.memory is NO_MEMORY:
        return None
    if slot.memory is None:
        slot.memory = make()
    found: T = slot.memory
    return found


def call_limited(
    function: Callable[..., Any],
    *args: Any,
    seconds: float | None,
    name: str = "",
    cause: str = "",
    memory: Any = NO_MEMORY,
) -> Any:
    """Call a function within a call of a watcher or reconciler, with a time limit of its own.

    At its limit the function's stop signal (:func:`current_stop`) is set, and an ``async def`` is
    cancelled. If it still does not return, this is logged, counted and shown, and another worker
    replaces the one that runs it. Outside of a controller's call there is no limit.

    Args:
        function: the function.
        args: its arguments.
        seconds: the limit; None: none.
        name: its name for errors and logs; default: its own.
        cause: the purpose of the call, if records should name this function as the called one.
        memory: what :func:`call_memory` returns within it; default: None.

    Returns:
        What it has returned, awaited.

    Raises:
        TimeLimitExceeded: it took longer, or was cancelled at the limit.
        Exception: the error of the function.
    """
    slot = _slot.get()
    if slot is not None and cause:
        slot.called = function, cause
    if slot is None:
        return settle(function(*args))
    outer_memory, slot.memory = slot.memory, memory
    try:
        if seconds is None:
            return settle(function(*args))
        with slot.log.limited(slot, seconds, lambda: name or callback_name(function)):
            return settle(function(*args))
    finally:
        slot.memory = outer_memory


@final
class ActivityLog:
    """The recent calls of one controller. Thread-safe.

    Args:
        name: the controller's name.
        clock: the clock of the controller.
        describe: makes the record of the call in a slot.
    """

    def __init__(
        self, name: str, *, clock: Clock, describe: Callable[[CallSlot], CallRecord]
    ) -> None:
        self.name: str = name
        self.describe: Callable[[CallSlot], CallRecord] = describe
        self.clock: Clock = clock
        self.slots: dict[int, CallSlot] = {}
        """The slots of the workers, by thread id."""
        self.monitor: CallMonitor = CallMonitor(name, self.running_calls, clock=clock)
        """Watches the calls that run."""
        self.stop: StopSignal = StopSignal(clock=clock)
        """Set when the controller stops; replaced at its start."""
        self.observers: Observers = Observers()
        self.skip_until: float = -sys.float_info.max
        """Calls that began before this time and ended well are not recorded."""
        self.read_counts: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns the number of calls that have ended and of those that wait; set by the engine."""
        self.last_trouble: float = -sys.float_info.max
        """When a call failed last, or succeeded after failures."""
        self._history = CallHistory()
        self._looks = 0
        """Those of workers that have ended."""
        self._failed = 0
        # The one that failed last comes last.
        self._failing: OrderedDict[tuple[str, str, str, str], FailingCalls] = OrderedDict()
        self._second = -sys.float_info.max
        self._recorded = 0
        self._lock = threading.Lock()
        self._calls: deque[CallRecord] = deque(maxlen=_CALLS)
        self._failures: deque[CallRecord] = deque(maxlen=_FAILURES)
        # The object that was called for last comes last.
        self._by_object: OrderedDict[tuple[str, str, str], deque[CallRecord]] = OrderedDict()

    # For the engine.

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Within the block, calls of this thread are found by the client: for workers."""
        thread = threading.get_ident()
        token = _slot.set(self.slot(thread))
        try:
            yield
        finally:
            _slot.reset(token)
            slot = self.slots.pop(thread, None)
            with self._lock:
                self._looks += 0 if slot is None else slot.looks

    def slot(self, thread: int) -> CallSlot:
        """The slot of a thread."""
        slot = self.slots.get(thread)
        if slot is None:
            slot = self.slots[thread] = CallSlot(self)
        return slot

    def limited_call(self, slot: CallSlot) -> LimitedCall | None:
        """The part of the call in ``slot`` that runs now and may have a time limit.

        Most calls begin and end without anybody who asks for their stop signal, or looks at them.
        So one with a ``slot.limit`` is made for those who do. Thread-safe.
        """
        limit = slot.limit  # once: another call may begin meanwhile
        if limit is None or slot.limited is not None:
            return slot.limited
        if len(limit) == 2:
            # What several append at once, is one after the other there: the first counts, which is
            # None if the call has ended.
            limit.append(LimitedCall(limit[0], limit[1], self.stop, self.clock))
        made: LimitedCall | None = limit[2]
        return made

    @contextlib.contextmanager
    def not_counted(self) -> Iterator[None]:
        """Within the block, the time does not count for the limits of the call of this thread."""
        slot, began = _slot.get(), self.clock.monotonic()
        calls = set() if slot is None else {self.limited_call(slot), *(slot.limit or ())[2:]}
        deadlines = [(call, call.suspend()) for call in calls if call is not None]
        try:
            yield
        finally:
            waited = self.clock.monotonic() - began
            for call, deadline in deadlines:
                call.resume(None if deadline is None else deadline + waited)

    def end_call(
        self,
        made: LimitedCall | None,
        started: float,
        limit: float,
        now: float,
        error: BaseException | None,
        function: Callable[..., Any],
    ) -> BaseException | None:
        """The error of a call with a ``slot.limit`` that was made, or has reached its limit."""
        call = made or LimitedCall(started, limit, self.stop, self.clock)
        has_exceeded = call.has_reached(now) and self.monitor.has_exceeded(call, now)
        call.end()
        if has_exceeded and (error is None or is_cancelled(error)):
            return call.exceeded(callback_name(function), now)
        return error

    def limited(self, slot: CallSlot, seconds: float, name: Callable[[], str]) -> _Limited:
        """A block with a time limit, within the call in ``slot``; ``name`` is for its error."""
        return _Limited(self, slot, seconds, name)

    def begin_limited(self, slot: CallSlot, seconds: float) -> LimitedCall:
        """A part of the call in ``slot`` begins, with a time limit."""
        if seconds < self.monitor.shortest:
            self.monitor.name_limit(seconds)  # not what is left of the outer one, which was named
        outer, parent = self.limited_call(slot), self.stop
        if outer is not None:
            parent = outer.stop
            seconds = min(seconds, left) if (left := outer.remaining()) is not None else seconds
        clock = self.clock
        call = slot.limited = LimitedCall(clock.monotonic(), seconds, parent, clock)
        return call

    def end_limited(
        self,
        slot: CallSlot,
        call: LimitedCall,
        outer: LimitedCall | None,
        error: BaseException | None,
        name: Callable[[], str],
    ) -> None:
        """That part has ended.

        Args:
            slot: of the call.
            call: the part.
            outer: the part of which it is a part.
            error: what it has raised.
            name: for its error.

        Raises:
            TimeLimitExceeded: it took longer, or was cancelled at the limit.
        """
        now = self.clock.monotonic()
        has_exceeded = call.has_reached(now) and self.monitor.has_exceeded(call, now)
        slot.limited = outer
        call.end()
        if has_exceeded and (error is None or is_cancelled(error)):
            raise call.exceeded(name(), now) from None

    def begin(self, slot: CallSlot) -> None:
        """Show observers the call in ``slot``; only needed where there are any."""
        record = slot.record = self.describe(slot)
        slot.is_noted = True
        for observer in self.observers.present:
            _shown(observer.call_began, record)

    def end(
        self,
        slot: CallSlot,
        trigger: Any,
        seconds: float,
        outcome: CallOutcome = "done",
        next_in: float | None = None,
        cause: FailureCause | None = None,
    ) -> None:
        """Record a call that has ended."""
        record, requests = slot.record, slot.requests
        slot.record = slot.requests = None
        slot.is_noted = False
        is_observed = record is not None
        if record is None or slot.called is not None:
            slot.trigger = trigger
            described = self.describe(slot)
            slot.trigger = None
            if record is None:
                record = described
            else:  # made before it was known which function would be called
                record.callback, record.action = described.callback, described.action
                record.target = described.target
        record.seconds = seconds
        record.outcome = outcome
        record.next_in = next_in
        record.cause = cause
        if requests is not None:
            record.requests = requests
            record.omitted_requests, slot.omitted_requests = slot.omitted_requests, 0
        self._keep(record)
        if is_observed:
            for observer in self.observers.present:
                _shown(observer.call_ended, record)
        if cause is not None:
            for observer in self.observers.of_failures:
                _shown(observer.call_ended, record)

    def _keep(self, record: CallRecord) -> None:
        started = record.started
        if started >= self._history.next:
            self._note_counts(started, ended_now=1 if record.callback else 0)
        with self._lock:
            if record.cause is not None:
                self._note_failure(record)
            elif self._failing:
                self._note_success(record)
            if started >= self._second + 1.0:
                self._second, self._recorded = started, 0
            self._recorded += 1
            if self._recorded >= RECORDED_PER_SECOND:
                self.skip_until = self._second + 1.0
            is_look = not record.callback and not record.requests and record.cause is None
            if is_look and record.action != "CREATE":
                return  # nothing was due, which only a start has to say
            self._calls.append(record)
            if record.cause is not None:
                self._failures.append(record)
            key = record.key
            calls = self._by_object.get(key)
            if calls is None:
                calls = self._by_object[key] = deque(maxlen=_CALLS_OF_OBJECT)
                if len(self._by_object) > _OBJECTS:
                    self._by_object.popitem(last=False)
            else:
                self._by_object.move_to_end(key)
            calls.append(record)

    def _note_counts(self, now: float, *, ended_now: int = 0) -> None:
        calls, queued = self._counts()
        with self._lock:
            failures = self._failed
            self._history.note(now, calls=calls - ended_now, failures=failures, queued=queued)

    def _counts(self) -> tuple[int, int]:
        """The number of calls that have called something, and of those that wait."""
        ended, queued = self.read_counts()
        with self._lock:
            looks = self._looks + sum(slot.looks for slot in self.slots.copy().values())
        return ended - looks, queued

    def _note_failure(self, record: CallRecord) -> None:
        self._failed += 1
        self.last_trouble = record.started + (record.seconds or 0.0)
        key = (*record.key, record.callback)
        failing = self._failing.pop(key, None)
        # With so many calls, a success in between may not be recorded.
        if failing is None or (not record.attempt and failing.last.started < self.skip_until):
            failing = FailingCalls(record.started)
        failing.count += 1
        failing.last = record
        self._failing[key] = failing
        if len(self._failing) > _FAILING:
            self._failing.popitem(last=False)

    def _note_success(self, record: CallRecord) -> None:
        if self._failing.pop((*record.key, record.callback), None) is not None:
            self.last_trouble = record.started + (record.seconds or 0.0)

    # For those who look.

    def failing(self) -> list[FailingCalls]:
        """The callbacks whose last recorded call for an object failed, at most 2000.

        They include objects that are gone, and failures after which another function succeeded: the
        calls that wait for a retry show what still fails.
        """
        with self._lock:
            return list(self._failing.values())

    def history(self) -> dict[str, Any]:
        """Calls, failures and queue length of the last ten minutes, as JSON values."""
        now = self.clock.monotonic()
        if now >= self._history.next:
            self._note_counts(now)
        calls, queued = self._counts()
        with self._lock:
            return self._history.series(now, calls=calls, failures=self._failed, queued=queued)

    def running(self) -> list[CallRecord]:
        """The calls that run, longest first."""
        found = []
        now = self.clock.monotonic()
        for thread, slot in self.slots.copy().items():
            # The worker may end its call, and begin another, meanwhile.
            record = slot.record
            if record is None and slot.trigger is not None:
                with contextlib.suppress(AttributeError):
                    record = self.describe(slot)
            if record is not None and record.seconds is None:
                record.is_awaiting = self.monitor.is_lent(thread)
                if now - record.started >= HELD_FOR:
                    record.place = callback_place(thread) or record.callback
                found.append(record)
        return sorted(found, key=lambda record: record.started)

    def running_calls(self) -> list[RunningCall]:
        """The threads of the calls that run, with the start and the object of each."""
        found = []
        # The monitor looks now and then: the queue behind a call that does not end is seen to grow.
        if (now := self.clock.monotonic()) >= self._history.next:
            self._note_counts(now)
        for thread, slot in self.slots.copy().items():
            trigger = slot.trigger
            started, limited = slot.started, self.limited_call(slot)
            # If another call has begun meanwhile, it is seen the next time.
            if trigger is not None and slot.trigger is trigger and slot.started == started:
                about = functools.partial(self._about, slot, started)
                found.append(RunningCall(thread, started, about, limited))
        return found

    def _about(self, slot: CallSlot, started: float) -> str:
        # The worker may end its call meanwhile, and begin another one.
        with contextlib.suppress(AttributeError):
            call = slot.record or self.describe(slot)
            if slot.started == started:
                place = f"{call.namespace}/{call.name}" if call.namespace else call.name
                return f"{call.kind.partition('.')[0]} {place}".strip()
        return "an object"

    def calls(self) -> list[CallRecord]:
        """The newest recorded calls, at most 200, newest first."""
        with self._lock:
            return list(reversed(self._calls))

    def failures(self) -> list[CallRecord]:
        """The newest failed calls, at most 200, newest first."""
        with self._lock:
            return list(reversed(self._failures))

    def objects(self) -> list[tuple[str, str, str]]:
        """The objects with recorded calls, as kind, namespace, name, newest first; the last 500."""
        with self._lock:
            return list(reversed(self._by_object))

    def latest(self) -> list[CallRecord]:
        """The last recorded call of each of them, newest first."""
        with self._lock:
            return [calls[-1] for calls in reversed(self._by_object.values())]

    def timeline(self, namespace: str, name: str, *, kind: str | None = None) -> list[CallRecord]:
        """The recorded calls for an object, at most 10 for each kind, newest first."""
        with self._lock:
            found = [
                list(calls)
                for key, calls in self._by_object.items()
                if key[1:] == (namespace, name) and kind in (None, key[0])
            ]
        calls = [call for each in found for call in reversed(each)]
        return sorted(calls, key=lambda call: call.started, reverse=True)

    @property
    def is_limited(self) -> bool:
        """Whether there were so many calls within the last minute that some are not recorded."""
        return self.clock.monotonic() < self.skip_until + 60.0


@final
class _Limited:
    """What :meth:`ActivityLog.limited` returns."""

    __slots__ = ("_call", "_log", "_name", "_outer", "_seconds", "_slot")

    def __init__(
        self, log: ActivityLog, slot: CallSlot, seconds: float, name: Callable[[], str]
    ) -> None:
        self._log = log
        self._slot = slot
        self._seconds = seconds
        self._name = name

    def __enter__(self) -> None:
        self._outer = self._slot.limited
        self._call = self._log.begin_limited(self._slot, self._seconds)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._log.end_limited(self._slot, self._call, self._outer, error, self._name)


@contextlib.contextmanager
def observed_call(observers: Observers, clock: Clock, call: CallRecord) -> Iterator[None]:
    """Show observers the call that the block makes and that no log records.

    The block may set ``call.outcome`` and ``call.cause``; without an error it is ``done``.
    """
    seen = observers.present
    for observer in seen:
        _shown(observer.call_began, call)
    call.started = clock.monotonic()
    try:
        yield
    except BaseException as error:
        call.outcome, call.cause = "given up", FailureCause(error)
        raise
    finally:
        call.seconds = clock.monotonic() - call.started
        if call.outcome == "running":
            call.outcome = "done"
        # As `with` statements end: what the first one set up is taken down last.
        for observer in reversed(seen):
            _shown(observer.call_ended, call)


class _Observed:
    """What :func:`observed_request` yields."""

    __slots__ = ("record",)

    def __init__(self, record: RequestRecord | None) -> None:
        self.record: RequestRecord | None = record

    @property
    def headers(self) -> dict[str, str]:
        """Headers that observers add."""
        return {} if self.record is None else self.record.headers

    def answered(self, status: int) -> None:
        """The head of the answer is there."""
        if self.record is not None:
            self.record.status = status


_UNOBSERVED = _Observed(None)


@contextlib.contextmanager
def observed_request(
    observers: Observers,
    clock: Clock,
    *,
    method: str,
    verb: str,
    resource: str,
    namespace: str,
    name: str,
    host: str = "",
    tries: int = 0,
) -> Iterator[_Observed]:
    """Record the attempt of a request that the block makes, and show it to observers.

    Writes within a call become part of its record. ``observers`` are the client's; the observers of
    the present call see the request, too.
    """
    slot = _slot.get()
    if slot is not None and slot.trigger is None:
        slot = None
    seen: Sequence[ActivityObserver] = observers.present
    if slot is not None and slot.log.observers.present:
        seen = [*seen, *(one for one in slot.log.observers.present if one not in seen)]
    is_write = method not in {"GET", "HEAD"}
    if not seen and (slot is None or not is_write):
        yield _UNOBSERVED
        return
    record = RequestRecord(
        method=method,
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        host=host,
        tries=tries,
        call=None if slot is None else slot.record,
    )
    if slot is not None and is_write:
        slot.is_noted = True
        if slot.requests is None:
            slot.requests = []
        if len(slot.requests) < _REQUESTS_OF_CALL:
            slot.requests.append(record)
        else:
            slot.omitted_requests += 1
    for observer in seen:
        _shown(observer.request_began, record)
    started = clock.monotonic()
    try:
        yield _Observed(record)
    except BaseException as error:
        record.error = f"{type(error).__name__}: {_short(error)}"[:_LONGEST_TEXT]
        raise
    finally:
        record.seconds = clock.monotonic() - started
        for observer in seen:
            _shown(observer.request_ended, record)


def _shown(method: Callable[[Any], None], record: object) -> None:
    guarded_call(
        "an observer",
        method,
        record,
        failed=lambda _: _log.exception("an observer failed: %s", callback_name(method)),
    )


def _short(value: object) -> str:
    text = safe_text(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
