"""The state machine of due calls against a plain model of the table in the App's documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from appsdk_operator.app._due import DueCause, Function, ObjectState, Step, always
from appsdk_operator.app._schedules import Schedule
from appsdk_operator.watchers import RETRY_ANNOTATION
from tests.hypothesis_profiles import scaled

INTERVAL, FIRST_AFTER, IDLE, MINUTE = 30.0, 7.0, 11.0, 60.0
SCHEDULES = [
    Schedule(interval=INTERVAL, first_after=FIRST_AFTER),
    Schedule(interval=INTERVAL, first_after=FIRST_AFTER, idle=IDLE),
    Schedule(cron="* * * * *"),
    Schedule(cron="* * * * *", idle=IDLE),
]
"""Those of timers; others have the first one, which means nothing for them."""


@attrs.frozen(kw_only=True)
class Thing:
    """An object: a size, whether a filter matches it, whether it is being deleted, and how often
    somebody has asked for another try."""

    version: int = 1
    size: int = 0
    is_red: bool = True
    is_deleting: bool = False
    asked: int = 0

    @property
    def annotations(self) -> dict[str, str]:
        return {RETRY_ANNOTATION: str(self.asked)} if self.asked else {}

    @property
    def resource_version(self) -> str:
        return str(self.version)


def is_red(obj: Any) -> bool:
    return bool(obj.is_red)


def resized(old: Any, new: Any) -> bool:
    return bool(old.size != new.size)


def relents(old: Any, new: Any) -> bool:
    return bool((old.size, old.is_red, old.is_deleting) != (new.size, new.is_red, new.is_deleting))


def function(
    cause: DueCause, where: Callable[[Any], bool], schedule: Schedule | None = None
) -> Function:
    if schedule is None or cause != "every":
        schedule = SCHEDULES[0]
    return Function(cause=cause, where=where, when=resized, schedule=schedule)


FUNCTIONS = st.lists(
    st.builds(
        function,
        st.sampled_from(["add", "add", "sync", "update", "update", "delete", "every", "every"]),
        st.sampled_from([always, always, is_red]),
        st.sampled_from(SCHEDULES),
    ),
    min_size=1,
    max_size=5,
)


@attrs.define
class One:
    """What the model knows of one function."""

    function: Function
    is_done: bool = False
    handled: Thing | None = None
    failed: Thing | None = None
    again: float | None = None
    """When a failed call is repeated; None: not for this state."""
    attempt: int = 0
    due: float = 0.0
    """For a timer: when its interval is over, or the minute for which it is called."""
    was_mine: bool = False


class Model:
    """The table, word for word."""

    def __init__(
        self,
        functions: list[Function],
        others: list[Callable[[Any], bool]],
        obj: Thing,
        now: float,
        *,
        is_known: bool,
    ) -> None:
        self.all = [One(each) for each in functions]
        for one in self.all:
            one.due = self.next_minute(now) if one.function.schedule.cron else now + FIRST_AFTER
        self.changed_at = now
        self.obj = self.first = obj
        self.has_begun = False
        self.is_known = is_known
        self.others = others
        causes = {each.where for each in functions if each.cause in ("add", "sync", "delete")}
        # Whether the finalizer says that the object was one of the function's.
        is_one = len(causes.union(others)) == 1
        for one in self.all:
            match one.function.cause:
                case "add" if is_known and (is_one or one.function.where is always):
                    one.is_done = one.function.where(obj)  # type: ignore[arg-type]
                case "sync":
                    one.is_done = not is_known
                case "delete":
                    one.was_mine = is_known and is_one
        self.see(obj)

    @staticmethod
    def next_minute(time: float) -> float:
        return (time // MINUTE + 1) * MINUTE

    def see(self, obj: Thing, now: float | None = None) -> None:
        if now is not None and obj.size != self.obj.size:
            self.changed_at = now
        self.obj = obj
        for one in self.all:
            one.was_mine |= self.matches(one)
        self.begin()

    def matches(self, one: One) -> bool:
        return one.function.where(self.obj)  # type: ignore[arg-type]

    def is_nobodys(self) -> bool:
        """The object has left the filter for which an earlier process has put the finalizer."""
        mine = [e for e in self.all if e.function.cause in ("add", "sync", "delete")]
        was = [e.was_mine if e.function.cause == "delete" else e.is_done for e in mine]
        is_of_others = any(where(self.obj) for where in self.others)
        return self.is_known and not any([*was, *map(self.matches, mine), is_of_others])

    def lack(self, *causes: str) -> bool:
        return any(
            e.function.cause in causes and not e.is_done and self.matches(e) for e in self.all
        )

    def begin(self) -> None:
        """Updates begin with the oldest state that an ``add`` or ``sync`` has handled."""
        if self.has_begun or self.lack("add", "sync"):
            return
        begun = [e.handled for e in self.all if e.function.cause in ("add", "sync") and e.handled]
        for one in self.all:
            if one.function.cause == "update":
                one.handled = min(begun, key=lambda each: each.version, default=self.first)
        self.has_begun = True

    def wants(self, one: One) -> bool:
        cause = one.function.cause
        if self.obj.is_deleting:
            return cause == "delete" and not one.is_done and (one.was_mine or self.is_nobodys())
        if cause == "delete" or one.is_done or not self.matches(one):
            return False
        if cause == "every":
            return not self.lack("add")
        if cause == "update":
            is_changed = one.handled is not None and one.handled.size != self.obj.size
            return self.has_begun and (is_changed or one.failed is not None)
        return True

    def is_due(self, one: One, now: float) -> bool:
        if one.failed is not None and one.failed.asked != self.obj.asked:
            return self.wants(one)
        if one.function.cause == "every":
            return self.wants(one) and now >= self.time_of(one)
        if one.failed is None:
            return self.wants(one)
        is_other = one.failed.size != self.obj.size
        if one.again is None:
            is_other = is_other or relents(one.failed, self.obj)
            return self.wants(one) and is_other
        return self.wants(one) and (is_other or now >= one.again)

    def time_of(self, one: One) -> float:
        """When a timer is due."""
        idle = one.function.schedule.idle
        return max(one.due, self.changed_at + idle) if idle else one.due

    def pause(self, one: One, now: float) -> float:
        """Seconds to the call after this one."""
        if one.function.schedule.cron:
            return self.next_minute(now) - now
        return INTERVAL

    def next(self, now: float) -> int | None:
        return next((n for n, one in enumerate(self.all) if self.is_due(one, now)), None)

    def succeeded(self, number: int, now: float) -> None:
        one = self.all[number]
        one.failed, one.attempt = None, 0
        if one.function.cause == "every":
            one.due = now + self.pause(one, now)
        else:
            one.handled = self.obj
            one.is_done = one.function.cause != "update"
        self.begin()

    def failed(self, number: int, delay: float | None, now: float) -> None:
        one = self.all[number]
        one.failed, one.attempt = self.obj, one.attempt + 1
        one.again = None if delay is None else now + delay
        one.due = now + (self.pause(one, now) if delay is None else delay)


OUTCOMES = st.one_of(st.just("ok"), st.floats(0.5, 90), st.just("refused"))
MOVES = st.one_of(
    st.tuples(st.just("size"), st.integers(0, 2)),
    st.tuples(st.just("red"), st.booleans()),
    st.tuples(st.just("status"), st.just(0)),
    st.tuples(st.just("ask"), st.just(0)),
    st.tuples(st.just("wait"), st.floats(0.5, 90)),
    st.tuples(st.just("wait"), st.sampled_from([IDLE / 2, INTERVAL - IDLE / 2])),
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("delete"), st.just(0)),
    st.tuples(st.just("outcomes"), st.lists(OUTCOMES, max_size=4)),
)


class Run:
    """One history: the machine and the model side by side, and what the machine has called."""

    def __init__(
        self, functions: list[Function], others: list[Callable[[Any], bool]] | None = None
    ) -> None:
        self.others = others or []
        self.functions = [
            msgspec.structs.replace(each, time=lambda: self.now) for each in functions
        ]
        self.now, self.outcomes = 0.0, list[Any]()
        self.obj = Thing()
        self.is_marked = False
        self.start()

    def start(self) -> None:
        known = self.is_marked
        obj: Any = self.obj
        self.model = Model(self.functions, self.others, self.obj, self.now, is_known=known)
        self.machine = ObjectState(
            self.functions, obj, self.now, is_known=known, relents=relents, others=self.others
        )
        self.last: dict[int, Thing] = {}

    def change(self, **changes: Any) -> None:
        self.obj = attrs.evolve(self.obj, version=self.obj.version + 1, **changes)
        obj: Any = self.obj
        self.machine.note_time(obj, self.now)
        foreseen = self.machine.next(self.now, obj)
        self.machine.see(obj)
        self.model.see(self.obj, self.now)
        # An event that is not looked at makes nothing due: so the machine says beforehand.
        assert (foreseen is None) == (self.machine.next(self.now) is None)

    def settle(self) -> None:
        """Make all calls that are due."""
        while True:
            step = self.machine.next(self.now)
            assert (None if step is None else step.number) == self.model.next(self.now)
            if step is None:
                break
            self.call(step)
        if not self.obj.is_deleting and not self.model.lack("add"):
            self.is_marked = True
        look_at = self.machine.look_at()
        for one in self.model.all:
            at = self.model.time_of(one) if one.function.cause == "every" else one.again
            is_timed = one.function.cause == "every" or one.failed is not None
            if self.model.wants(one) and at is not None and is_timed:
                assert look_at is not None
                assert look_at <= max(at, self.now)

    def call(self, step: Step) -> None:
        present: Any = self.obj
        old: Any = step.old
        self.machine.start(step)
        outcome = self.outcomes.pop(0) if self.outcomes else "ok"
        if self.functions[step.number].cause == "update":
            one = self.model.all[step.number]
            assert old is one.handled
            assert self.last.setdefault(step.number, old) is old, "the chain is broken"
        if outcome == "ok":
            self.machine.succeeded(step, present, self.now)
            self.model.succeeded(step.number, self.now)
            self.last[step.number] = self.obj
            return
        delay = None if outcome == "refused" else float(outcome)
        is_timer = self.functions[step.number].cause == "every"
        allowed = delay
        if is_timer:
            pause = self.model.pause(self.model.all[step.number], self.now)
            assert self.machine.longest_retry(step.number) == pytest.approx(pause)
            allowed = pause if delay is None else min(delay, pause)
        attempt = self.machine.progress[step.number].attempt + 1
        self.machine.failed(step, present, allowed, attempt, self.now)
        self.model.failed(step.number, allowed, self.now)

    def move(self, what: str, value: Any) -> None:
        match what:
            case "size" if not self.obj.is_deleting:
                self.change(size=value)
            case "red":
                self.change(is_red=value)
            case "status":
                self.change()
            case "ask":
                self.change(asked=self.obj.asked + 1)
            case "wait":
                self.now += value
            case "restart":
                self.start()
            case "delete" if not self.obj.is_deleting:
                self.change(is_deleting=True)
            case "outcomes":
                self.outcomes = list(value)
        self.settle()

    def end(self) -> None:
        """Nothing fails any more: with time alone everything comes to rest, and stays so."""
        self.outcomes.clear()
        for _ in range(60):
            self.now += INTERVAL
            self.settle()
        for one in self.model.all:
            is_given_up = one.failed is not None and one.again is None
            if one.function.cause == "update" and self.model.wants(one):
                assert is_given_up


TWO_BEGIN: tuple[list[Function], list[tuple[str, Any]]] = (
    [function("add", always), function("add", always), function("update", always)],
    [("outcomes", ["ok", 5.0]), ("size", 1), ("wait", 9.0), ("size", 2)],
)
"""The second of two functions succeeds with a later state than the first."""
JUST_BEFORE: tuple[list[Function], list[tuple[str, Any]]] = (
    [function("every", always, SCHEDULES[2])],
    [("wait", 89.99999999999999), ("outcomes", ["refused"]), ("wait", 89.99999999999999)],
)
"""A call ends less than a microsecond before the next minute."""
ASKED: tuple[list[Function], list[tuple[str, Any]]] = (
    [function("every", always, SCHEDULES[2])],
    [("wait", 48.0), ("outcomes", ["refused", "refused"]), ("wait", 24.5), ("ask", 0)],
)
"""Somebody asks for another try of a call that is to be made again at the next minute."""
TAKEN_BACK: tuple[list[Function], list[tuple[str, Any]]] = (
    [function("update", always)],
    [("outcomes", [60.0]), ("size", 1), ("size", 0)],
)
"""A change whose call has failed is taken back before the retry."""
BUSY: tuple[list[Function], list[tuple[str, Any]]] = (
    [function("every", always, SCHEDULES[1])],
    [
        *[("wait", 20.0), ("wait", INTERVAL - IDLE / 2), ("size", 1), ("wait", IDLE / 2)],
        *[("wait", IDLE / 2), ("wait", INTERVAL - IDLE / 2), ("status", 0), ("wait", IDLE / 2)],
    ],
)
"""Shortly before a timer that waits for quiet objects is due one changes, and then its status."""


@settings(max_examples=scaled(300))
@given(
    FUNCTIONS, st.lists(MOVES, max_size=25), st.lists(st.sampled_from([always, is_red]), max_size=1)
)
@example(*TWO_BEGIN, [])
@example(*BUSY, [])
@example(*JUST_BEFORE, [])
@example(*ASKED, [])
@example(*TAKEN_BACK, [])
def test_what_is_due_is_what_the_table_says(
    functions: list[Function],
    moves: list[tuple[str, Any]],
    others: list[Callable[[Any], bool]],
) -> None:
    run = Run(functions, others)
    for what, value in moves:
        run.move(what, value)
    run.end()


# Its defects.


def no_handled_state(self: Any, step: Any, obj: Any, now: float) -> None:
    progress = self.progress[step.number]
    handled = progress.handled
    _succeeded(self, step, obj, now)
    if handled is not None:
        progress.handled = handled


def fails_as_a_whole(self: Any, step: Any, obj: Any, *more: Any) -> None:
    _failed(self, step, obj, *more)
    for number, each in enumerate(self._functions):
        if each.cause == self._functions[step.number].cause:
            _failed(self, Step(number), obj, *more)


def failure_is_success(
    self: Any, step: Any, obj: Any, delay: Any, attempt: int, now: float
) -> None:
    _succeeded(self, step, obj, now)


def relents_always(self: Any, number: int, function: Any, obj: Any, now: float) -> bool:
    waits = _waits(self, number, function, obj, now)
    return waits and self.progress[number].next_time is not None


def nobody_asks(self: Any, number: int, function: Any, obj: Any, now: float) -> bool:
    failed_at = self.progress[number].failed_at
    return _waits(
        self, number, function, attrs.evolve(obj, asked=getattr(failed_at, "asked", 0)), now
    )


def an_event_ends_the_wait(self: Any, obj: Any, **more: Any) -> Any:
    for each, progress in zip(self._functions, self.progress, strict=True):
        if progress.failed_at is not None and each.cause == "update":
            progress.failed_at, progress.handled = None, obj
    return _see(self, obj, **more)


def timers_stop(self: Any, obj: Any = None) -> Any:
    return None


def any_order(self: Any, now: float, obj: Any = None) -> Any:
    found = _next(self, now, obj)
    if found is None:
        return None
    present = self.present if obj is None else obj
    for number in reversed(range(len(self._functions))):
        step = self._step(number, self._functions[number], present)
        if step and not self._waits(number, self._functions[number], present, now):
            return step
    return found


def not_idle(self: Any, number: int) -> Any:
    return self.progress[number].next_time


def every_event_is_a_change(self: Any, obj: Any, now: float) -> None:
    self._unchanged_since = obj, now


def only_the_interval_counts(self: Any, obj: Any, now: float) -> None:
    """No change is noted."""


def newest_beginning(self: Any) -> Any:
    return self.present


def released_at_once(self: Any, number: int, function: Any, obj: Any) -> Any:
    return None if function.cause == "delete" else _step(self, number, function, obj)


PHASES = [Phase.explicit, Phase.generate]
_succeeded, _failed, _see = ObjectState.succeeded, ObjectState.failed, ObjectState.see
_waits, _next, _step = ObjectState._waits, ObjectState.next, ObjectState._step


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("succeeded", no_handled_state),
        ("failed", fails_as_a_whole),
        ("failed", failure_is_success),
        ("_waits", relents_always),
        ("_waits", nobody_asks),
        ("see", an_event_ends_the_wait),
        ("look_at", timers_stop),
        ("next", any_order),
        ("due_at", not_idle),
        ("note_time", every_event_is_a_change),
        ("note_time", only_the_interval_counts),
        ("_beginning", property(newest_beginning)),
        ("_step", released_at_once),
    ],
)
def test_a_defect_of_the_machine_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: Any
) -> None:
    monkeypatch.setattr(ObjectState, name, broken)

    @settings(max_examples=1000, database=None, derandomize=True, phases=PHASES)
    @given(FUNCTIONS, st.lists(MOVES, max_size=25))
    @example(*TWO_BEGIN)
    @example(*TAKEN_BACK)
    @example(*BUSY)
    def check(functions: list[Function], moves: list[tuple[str, Any]]) -> None:
        run = Run(functions)
        for what, value in moves:
            run.move(what, value)
        run.end()

    with pytest.raises(AssertionError):
        check()
