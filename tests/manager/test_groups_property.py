"""Random histories of a manager's groups: whatever happens, some things always hold."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Health
from appsdk_operator.manager import LeadershipLost, RunnableGroup
from appsdk_operator.manager._core.groups import STOP_ENGAGED
from appsdk_operator.manager._core.lifecycle import Lifecycle
from appsdk_operator.runtime import RealClock, StopSignal
from tests.hypothesis_profiles import scaled

TIMEOUT = 5.0
GROUPS: list[RunnableGroup] = [
    group for group in RunnableGroup if group is not RunnableGroup.WARM_UP
]
WAY_DOWN = [
    RunnableGroup.OTHERS,
    RunnableGroup.LEADER_ELECTION,
    RunnableGroup.CACHES,
    RunnableGroup.WEBHOOKS,
    RunnableGroup.HTTP_SERVERS,
]


@attrs.frozen
class Plan:
    """What one runnable is like."""

    group: RunnableGroup
    adder: int | None
    """Which thread adds it; None: it is there before the start."""
    fails: str
    """"start", "ready", "warm-up", "stop" or ""."""
    has_check: bool
    warms_up: bool
    is_slow: bool
    """Whether it takes a moment to get ready, to warm up and to end."""


@attrs.define
class History:
    """What happened, in an order that all threads agree on."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    events: list[tuple[str, Part]] = attrs.field(factory=list)

    def note(self, event: str, part: Part) -> None:
        with self.lock:
            self.events.append((event, part))

    def at(self, event: str, part: Part) -> int | None:
        return next((n for n, e in enumerate(self.events) if e == (event, part)), None)


@attrs.define(eq=False, slots=False)
class Part:
    """A runnable that writes down what happens to it."""

    plan: Plan
    history: History
    runnable_group: RunnableGroup = attrs.field(init=False)
    is_accepted: bool = False
    is_running: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        self.runnable_group = self.plan.group
        if self.plan.has_check:
            self.wait_until_ready = self._wait_until_ready
        if self.plan.warms_up:
            self.warm_up = self._warm_up

    def run(self, stop: StopSignal) -> None:
        self.history.note("start", self)
        self.is_running.set()
        try:
            self._fail_if("start")
            stop.wait()
            self.history.note("told", self)
            self._linger()
            self._fail_if("stop")
        finally:
            self.history.note("end", self)

    def _wait_until_ready(self, stop: StopSignal, timeout: float | None = None) -> bool:
        while not self.is_running.wait(0.01):
            if stop.is_set():
                return False
        self._linger()
        self._fail_if("ready")
        self.history.note("ready", self)
        return True

    def _fail_if(self, when: str) -> None:
        if self.plan.fails == when:
            self.history.note("fail", self)
            raise ValueError(when)

    def _linger(self) -> None:
        StopSignal().wait(0.003 if self.plan.is_slow else 0.0)

    def _warm_up(self, stop: StopSignal) -> None:
        self._linger()
        self._fail_if("warm-up")
        self.history.note("warm", self)


@attrs.define(eq=False)
class Election:
    """One that is won, and lost, when a thread says so."""

    win: StopSignal = attrs.field(factory=StopSignal)
    lose: StopSignal = attrs.field(factory=StopSignal)
    has_ended: bool = False
    identity: str = "me"
    leader: str = ""
    is_leader: bool = False
    on_end: Callable[[], None] = lambda: None

    def check_write(self) -> None: ...

    def keep_lease(self) -> None: ...

    def health(self) -> Health:
        return Health(True, "")

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        forget = [stop.on_set(self.win.set), stop.on_set(self.lose.set)]
        self.win.wait()
        if not stop.is_set():
            on_started()
            self.lose.wait()
        for one in forget:
            one()
        self.on_end()
        if not stop.is_set():
            raise LeadershipLost("leader election lost")


plans = st.builds(
    Plan,
    group=st.sampled_from(GROUPS),
    adder=st.sampled_from([None, None, 0, 1]),
    fails=st.sampled_from(["", "", "", "", "", "", "", "start", "ready", "warm-up", "stop"]),
    has_check=st.booleans(),
    warms_up=st.booleans(),
    is_slow=st.booleans(),
)


@pytest.mark.stress
# Not shrunk: an example that hangs would hang again and again.
@settings(
    max_examples=scaled(150), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
@given(
    plans=st.lists(plans, max_size=14),
    election=st.sampled_from(["none", "standby", "won", "lost"]),
    stop_after=st.sampled_from(["nothing", "start", "adds"]),
    seed=st.integers(0, 2**32),
)
def test_whatever_happens_the_groups_keep_their_promises(
    plans: list[Plan], election: str, stop_after: str, seed: int
) -> None:
    history = History()
    elector = None if election == "none" else Election()
    lifecycle = Lifecycle(elector=elector, graceful_shutdown_timeout=None)
    parts = [Part(plan, history) for plan in plans]
    ended_at: list[int] = []
    if elector is not None:
        elector.on_end = lambda: ended_at.append(len(history.events))
        if election != "standby":
            elector.win.set()
    for part in parts:
        if part.plan.adder is None:
            lifecycle.groups.add(part)
            part.is_accepted = True
    elected_at: list[int] = []
    lifecycle.elected.on_set(lambda: elected_at.append(len(history.events)))
    stop = StopSignal()
    raised: list[BaseException] = []
    returned_at: list[int] = []
    refusals: list[str] = []

    def run() -> None:
        try:
            lifecycle.run(stop)
        except BaseException as error:
            raised.append(error)
        returned_at.append(len(history.events))

    def add(number: int) -> None:
        mine = [part for part in parts if part.plan.adder == number]
        random.Random(seed + number).shuffle(mine)
        for part in mine:
            try:
                lifecycle.groups.add(part)
            except RuntimeError as error:
                refusals.append(str(error))
            else:
                part.is_accepted = True

    threads = [threading.Thread(target=add, args=(number,)) for number in range(2)]
    runner = threading.Thread(target=run)
    order = [*threads, runner]
    random.Random(seed).shuffle(order)
    try:
        for thread in order:
            thread.start()
        if stop_after == "start":
            lifecycle.elected.wait(0.02)
        elif stop_after == "adds":
            for thread in threads:
                thread.join(TIMEOUT)
        if election == "lost" and elector is not None:
            elector.lose.set()
        else:
            stop.set()
        for thread in order:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), history.events
        is_lost = any(isinstance(error, LeadershipLost) for error in _all_errors(raised))
        # Whatever failed first: once the lease is lost too, nobody is waited for.
        if election == "lost":
            # Nobody was waited for: let those that were told end.
            for name in RunnableGroup:
                assert not lifecycle.groups[name].wait_ended(RealClock().monotonic() + TIMEOUT)
    finally:
        _end(lifecycle, elector, stop, order)

    assert all(STOP_ENGAGED in text for text in refusals)
    _check(history, parts, election, ended_at, is_lost=election == "lost")
    if election != "lost":
        assert [len(history.events)] == returned_at, "nothing goes on after the run"
        failed = sum(event == "fail" for event, _ in history.events)
        assert len(_all_errors(raised)) == failed, "each failure is told, once"
        assert not is_lost
    elif not any(event == "fail" for event, _ in history.events):
        assert is_lost, "a lost lease is raised"
    if lifecycle.elected.is_set():
        assert election != "standby"
        for part in parts:
            ready = history.at("ready", part)
            if part.plan.adder is None and part.plan.has_check:
                assert ready is not None
                assert ready < elected_at[0], "elected when all are ready"
        for part in parts:
            assert not part.is_accepted or history.at("start", part) is not None, "forgotten"


def _end(
    lifecycle: Lifecycle,
    elector: Election | None,
    stop: StopSignal,
    threads: list[threading.Thread],
) -> None:
    """End what a broken lifecycle would leave running, so that the test fails instead of hangs."""
    stop.set()
    lifecycle.close()
    for name in RunnableGroup:
        lifecycle.groups[name].stop()
        lifecycle.groups[name]._stop.set()
    lifecycle._halt.set()
    for thread in threads:
        if elector is not None and thread.is_alive():
            elector.win.set()  # as long as it may take part
            thread.join(0.5)
            lifecycle._elector_stop.set()
            elector.lose.set()
        if thread.ident is not None:
            thread.join(TIMEOUT)


def _all_errors(raised: list[BaseException]) -> list[str | BaseException]:
    """What was raised, and what the notes say failed later."""
    told: list[str | BaseException] = list(raised)
    for error in raised:
        notes = getattr(error, "__notes__", ())
        told += [note for note in notes if note.startswith("after that, runnable")]
        told += [LeadershipLost(note) for note in notes if "LeadershipLost" in note]
    return told


def _check(
    history: History, parts: list[Part], election: str, ended_at: list[int], *, is_lost: bool
) -> None:
    events = history.events
    for part in parts:
        starts = events.count(("start", part))
        assert starts <= 1, "run once"
        assert events.count(("end", part)) == starts, "what started has ended"
        assert part.is_accepted or not starts, "what was refused never runs"
        if part.plan.group is RunnableGroup.LEADER_ELECTION and election == "standby":
            assert not starts, "a standby starts nothing that is for the leader"
    for part in parts:
        warm = events.count(("warm", part))
        assert warm <= 1, "warmed up once"
        assert (
            part.plan.adder is not None
            or not history.at("start", part)
            or (warm == part.plan.warms_up or part.plan.group is not RunnableGroup.LEADER_ELECTION)
        ), "who leads is warm"
    if is_lost:
        return
    # Up: whoever was there before the start is ready before the next group begins.
    for earlier in (p for p in parts if p.plan.adder is None and p.plan.has_check):
        for later in (p for p in parts if _place(p) > _place(earlier)):
            began, ready = history.at("start", later), history.at("ready", earlier)
            assert began is None or (ready is not None and ready < began)
    # Down: nobody is told before all of the groups whose turn comes first have ended.
    for first in parts:
        for then in parts:
            told, ended = history.at("told", then), history.at("end", first)
            if told is not None and ended is not None and _turn(first) < _turn(then):
                assert ended < told
    leaders = [p for p in parts if p.plan.group is RunnableGroup.LEADER_ELECTION]
    ends = [at for p in leaders if (at := history.at("end", p)) is not None]
    assert all(end < at for end in ends for at in ended_at), "the lease outlives what it protects"


def _place(part: Part) -> int:
    return GROUPS.index(part.plan.group)


def _turn(part: Part) -> int:
    return WAY_DOWN.index(part.plan.group)
