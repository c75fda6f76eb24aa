"""The state machine of background functions against a plain model, with its defects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from hypothesis import Phase as HypothesisPhase
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.app import _background_state as machine
from appsdk_operator.app._background_state import LONG_RUN, Act, BackgroundState, Phase
from tests.hypothesis_profiles import scaled

DELAY = 5.0


@attrs.frozen
class Thing:
    """An object of one name: its uid, and a spec."""

    uid: str
    spec: int = 0


def relents(old: Any, new: Any) -> bool:
    return bool(old.spec != new.spec)


@attrs.define
class Model:
    """What is promised, word for word."""

    obj: Thing | None = None
    """The object of this name that exists."""
    is_wanted: bool = False
    is_open: bool = True
    now: float = 0.0
    run: str = ""
    """The uid of the run that has not ended."""
    seen: Thing = Thing("")
    """The state that this run has seen last."""
    is_asked_to_end: bool = False
    returned: set[str] = attrs.field(factory=set)
    """The uids of objects for which it has returned by itself."""
    refused: Thing | None = None
    due: float = 0.0
    attempt: int = 0
    began: float = 0.0

    @property
    def may_start(self) -> bool:
        return self.is_open and self.should_run and not self.run and self.now >= self.due

    @property
    def should_run(self) -> bool:
        """Whether it runs, at rest, or would after its delay."""
        return (
            self.is_wanted
            and self.obj is not None
            and self.obj.uid not in self.returned
            and self.refused is None
        )

    @property
    def must_stop(self) -> bool:
        is_right = self.is_wanted and self.obj is not None and self.obj.uid == self.run
        return bool(self.run) and not (self.is_open and is_right)


class Player:
    """Plays inputs to the machine and to the model, and compares."""

    def __init__(self) -> None:
        self.state: Any = BackgroundState(relents)
        self.model = Model()
        self.made = 0

    def look(self) -> None:
        """Let the machine act until it has nothing to do."""
        model = self.model
        for _ in range(3):
            act = self.state.next(model.now, is_open=model.is_open)
            if act is None:
                break
            if act is Act.START:
                assert not model.run, "at most one run exists"
                assert model.is_open, "nothing starts while it is closed"
                assert model.obj is not None, "no run outlives its object"
                assert self.state.running.uid == model.obj.uid, "it runs for the present object"
                assert model.may_start, "it starts when it is due, and not once it is over"
                model.run, model.seen = model.obj.uid, model.obj
                model.is_asked_to_end = False
                model.began, model.due = model.now, 0.0
            else:
                assert model.must_stop, "it is stopped for a reason"
                assert not model.is_asked_to_end, "it is asked to end once"
                model.is_asked_to_end = True
        else:
            raise AssertionError("it acts without an end")
        assert not model.must_stop or model.is_asked_to_end, "what must end is asked to"
        assert not model.may_start, "what is due starts"
        assert (self.state.running is not None) == bool(model.run)
        assert self.state.phase is self.phase()
        assert not self.state.is_forgettable or not (model.run or model.obj)

    def phase(self) -> Phase:
        model = self.model
        if model.run:
            return Phase.STOPPING if model.is_asked_to_end else Phase.RUNNING
        if not model.is_wanted:
            return Phase.IDLE
        if not model.should_run:
            return Phase.OVER
        return Phase.WAITING if model.due else Phase.STARTING

    def begin_anew(self) -> None:
        self.model.refused, self.model.due, self.model.attempt = None, 0.0, 0

    def relent(self) -> None:
        """What it has refused is not the present state."""
        if self.model.refused not in (None, self.model.obj):
            self.model.refused, self.model.attempt = None, 0

    # Inputs.

    def read(self, _: bool) -> None:
        """The run reads the state of its object."""
        model = self.model
        if model.obj is not None and model.obj.uid == model.run:
            model.seen = model.obj

    def make(self, is_wanted: bool) -> None:
        """Another object of the name; the deletion of the former one may be delivered or not."""
        self.made += 1
        self.model.obj, self.model.is_wanted = Thing(f"uid-{self.made}"), is_wanted
        self.begin_anew()
        self.state.see(self.model.obj, is_wanted=is_wanted)

    def change(self, is_wanted: bool) -> None:
        model = self.model
        if model.obj is None:
            return
        model.obj, model.is_wanted = attrs.evolve(model.obj, spec=model.obj.spec + 1), is_wanted
        if model.refused is not None:
            model.refused, model.attempt = None, 0
        self.state.see(model.obj, is_wanted=is_wanted)

    def resync(self, is_wanted: bool) -> None:
        """The same state again; what is wanted may depend on more, such as a pause."""
        if self.model.obj is not None:
            self.relent()
            self.model.is_wanted = is_wanted
            self.state.see(self.model.obj, is_wanted=is_wanted)

    def go(self, _: bool) -> None:
        if self.model.obj is not None:
            uid = self.model.obj.uid
            self.model.obj, self.model.is_wanted = None, False
            self.begin_anew()
            self.state.gone(uid)

    def go_late(self, _: bool) -> None:
        """The deletion of a former object is delivered after the next one."""
        self.state.gone(f"uid-{self.made - 1}")

    def end(self, fails: bool) -> None:
        model = self.model
        if not model.run:
            return
        is_present = model.obj is not None and model.obj.uid == model.run
        if not fails:
            if not model.is_asked_to_end and is_present:
                model.returned.add(model.run)
            model.due = model.due if not is_present else 0.0
            self.state.returned()
        else:
            number = self.state.count_failure(model.now)
            first = model.now - model.began >= LONG_RUN
            if is_present and not model.is_asked_to_end:
                assert number == (0 if first else model.attempt), "failures in a row are counted"
                model.attempt, model.due = number + 1, model.now + DELAY
            self.state.failed(model.seen, DELAY, number + 1, model.now)
        model.run, model.is_asked_to_end = "", False

    def give_up(self, _: bool) -> None:
        model = self.model
        if not model.run:
            return
        is_present = model.obj is not None and model.obj.uid == model.run
        if is_present and not model.is_asked_to_end:
            model.due, model.attempt, model.refused = 0.0, 1, model.seen
            if model.is_wanted:
                self.relent()
        self.state.failed(model.seen, None, 1, model.now)
        model.run, model.is_asked_to_end = "", False

    def close(self, is_open: bool) -> None:
        self.model.is_open = is_open

    def wait(self, is_long: bool) -> None:
        self.model.now += LONG_RUN if is_long else 2.0


INPUTS = ("make", "change", "resync", "go", "go_late", "read", "end", "give_up", "close", "wait")
NOT_LOOKED_AT = ("not looked at", True)
"""The next input is not looked at before another one comes."""
SINGLE = st.tuples(st.sampled_from(INPUTS), st.booleans()).map(lambda one: [one])
THEMES = st.sampled_from(
    [
        [("end", True), ("wait", True), ("wait", True)],
        [("wait", True), ("end", True)],
        [NOT_LOOKED_AT, ("make", True), ("end", False)],
        [("resync", False), ("resync", True)],
        [("give_up", True), ("resync", True)],
        [("change", True), ("read", True), ("give_up", True)],
        [NOT_LOOKED_AT],
    ]
)
HISTORIES = st.lists(st.one_of(SINGLE, THEMES), max_size=12).map(
    lambda parts: [one for part in parts for one in part]
)


def play(history: list[tuple[str, bool]]) -> None:
    player = Player()
    player.look()
    is_seen = True
    for name, flag in history:
        if (name, flag) == NOT_LOOKED_AT:
            is_seen = False
            continue
        getattr(player, name)(flag)
        if is_seen:
            player.look()
        is_seen = True


@settings(max_examples=scaled(400))
@given(HISTORIES)
def test_it_runs_for_the_present_object_while_it_is_wanted_and_once_at_a_time(
    history: list[tuple[str, bool]],
) -> None:
    play(history)


# Defects, each of which the property has to find.


@contextmanager
def defect(name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    original = machine.BackgroundState.__dict__[name]
    setattr(machine.BackgroundState, name, replacement)
    try:
        yield
    finally:
        setattr(machine.BackgroundState, name, original)


_next = BackgroundState.next
_see = BackgroundState.see
_failed = BackgroundState.failed
_returned = BackgroundState.returned
_gone = BackgroundState.gone


def starts_before_the_end(self: Any, now: float, *, is_open: bool) -> Act | None:
    if self.is_stopping:
        self.running = None
    return _next(self, now, is_open=is_open)


def goes_on_for_a_namesake(self: Any, now: float, *, is_open: bool) -> Act | None:
    if self.running is not None and self.wanted is not None and is_open:
        return None
    return _next(self, now, is_open=is_open)


def ignores_the_stop(self: Any, now: float, *, is_open: bool) -> Act | None:
    return _next(self, now, is_open=True)


def starts_early(self: Any, now: float, *, is_open: bool) -> Act | None:
    self.due = None
    return _next(self, now, is_open=is_open)


def asks_again(self: Any, now: float, *, is_open: bool) -> Act | None:
    self.is_stopping = False
    return _next(self, now, is_open=is_open)


def starts_after_its_return(self: Any) -> None:
    self._end()


def is_over_after_a_stop(self: Any) -> None:
    self._end()
    self._has_returned = True


def takes_the_end_of_the_former_for_its_own(self: Any) -> None:
    is_last = not self.is_stopping
    self._end()
    self._has_returned = is_last


def gives_up_after_a_stop(self: Any, obj: Any, delay: Any, attempt: int, now: float) -> None:
    self.is_stopping = False
    _failed(self, obj, delay, attempt, now)


def refuses_what_it_has_not_seen(self: Any, obj: Any, delay: Any, attempt: int, now: float) -> None:
    _failed(self, self.wanted or obj, delay, attempt, now)


def never_relents(self: Any, obj: Any, *, is_wanted: bool) -> None:
    refused = self._refused
    _see(self, obj, is_wanted=is_wanted)
    self._refused = self._refused or refused


def forgets_a_refusal(self: Any, obj: Any, *, is_wanted: bool) -> None:
    _see(self, obj, is_wanted=is_wanted)
    self._refused = None


def delays_a_namesake(self: Any, obj: Any, *, is_wanted: bool) -> None:
    due = self.due
    _see(self, obj, is_wanted=is_wanted)
    self.due = due


def goes_with_a_former_object(self: Any, uid: str) -> None:
    _gone(self, self.uid)


def outlives_its_object(self: Any, uid: str) -> None:
    self._begin_anew("")


def never_fails_anew(self: Any, now: float) -> int:
    return int(self.attempt)


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("next", starts_before_the_end),
        ("next", goes_on_for_a_namesake),
        ("next", ignores_the_stop),
        ("next", starts_early),
        ("next", asks_again),
        ("returned", starts_after_its_return),
        ("returned", is_over_after_a_stop),
        ("returned", takes_the_end_of_the_former_for_its_own),
        ("failed", gives_up_after_a_stop),
        ("failed", refuses_what_it_has_not_seen),
        ("see", never_relents),
        ("see", forgets_a_refusal),
        ("see", delays_a_namesake),
        ("gone", goes_with_a_former_object),
        ("gone", outlives_its_object),
        ("count_failure", never_fails_anew),
    ],
)
def test_a_defect_is_found(name: str, replacement: Callable[..., Any]) -> None:
    @settings(
        max_examples=3000,
        phases=[HypothesisPhase.generate],
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
    )
    @given(HISTORIES)
    def find(history: list[tuple[str, bool]]) -> None:
        play(history)

    with defect(name, replacement), pytest.raises(AssertionError):
        find()
