"""Background functions that write their status and refuse, end, raise or ignore their stop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from appsdk_operator import App, Kind, Live, Object, StopSignal, labels
from appsdk_operator.app import _background
from appsdk_operator.app._background import BackgroundRunner
from appsdk_operator.app._background_state import Act, BackgroundState
from appsdk_operator.client import ApiError, ConnectionLost
from appsdk_operator.controllers import TerminalError
from appsdk_operator.testing import World
from appsdk_operator.testing._world import scheduler
from appsdk_operator.watchers import ConstantBackoff
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
ON: Any = labels("off!=yes")
DELAY = 3.0
IGNORES = 15.0


@attrs.define
class Run:
    """One run of the function."""

    process: Any
    uid: str
    size: int
    """Of the object at its start; each change of a spec has a new one."""
    began: float
    ended: float | None = None
    outcome: str = ""
    seen: int = 0
    """The size that it has seen last."""
    was_asked: bool = False


@attrs.define
class Operator:
    """An App whose function does what its plan says, one entry for each run; then it follows."""

    plan: list[tuple[str, int]]
    slow: float
    """The seconds that ``on_update`` takes: the engine is as late as that."""
    runs: list[Run] = attrs.field(factory=list)
    world: Any = None

    def app(self) -> App:
        app = App("thing-operator", retry_policy=ConstantBackoff(DELAY))
        app.on_add(THING)(lambda thing: None)

        @app.on_update(THING)
        def changed(old: Object, new: Object) -> None:
            if self.slow:
                StopSignal().wait(self.slow)

        @app.background(THING, where=ON)
        def follow(live: Live, stop: StopSignal) -> None:
            obj = live.object
            run = Run(scheduler._here.fiber.owner, obj.uid, obj.spec["size"], self.now())
            self.begin(run)
            what, writes = self.plan.pop(0) if self.plan else ("follow", 0)
            try:
                for number in range(writes):
                    with contextlib.suppress(ApiError, ConnectionLost), app.edit(obj) as draft:
                        draft["status"] = {"used": 10 * len(self.runs) + number}
                    stop.wait(0.1 * number)
                if what in ("follow", "ignore"):
                    stop.wait()
                if what == "ignore":
                    StopSignal().wait(IGNORES)
            finally:
                run.seen = live.object.spec["size"]
                run.was_asked = stop.is_set()
                run.outcome, run.ended = what, self.now()
            if what == "refuse":
                raise TerminalError("a wrong size")
            if what == "raise":
                raise ValueError("for now")

        return app

    def now(self) -> float:
        return float(self.world.clock.monotonic())

    def living(self) -> list[Run]:
        crashed = self.world._crashed
        return [run for run in self.runs if run.ended is None and run.process not in crashed]

    def begin(self, run: Run) -> None:
        problem = ""
        if self.living():
            problem = "two run at once"
        before = [one for one in self.runs if (one.process, one.uid) == (run.process, run.uid)]
        if before and before[-1].ended is not None and not before[-1].was_asked:
            last = before[-1]
            if last.outcome == "end":
                problem = "it has returned for this object"
            elif last.outcome == "refuse" and run.size <= last.seen:
                problem = "it has refused this state"
            elif last.outcome == "raise" and run.began < last.ended + DELAY:
                problem = "it starts again before its delay is over"
        self.runs.append(run)
        if problem:
            self.world.break_promise(problem)

    def check(self) -> None:
        self.world.raise_broken()
        present = {obj.uid for obj in self.world.objects()}
        assert all(run.uid in present for run in self.living()), "one outlives its object"

    def check_rest(self) -> None:
        """Each that is wanted runs, and no other one."""
        [obj] = self.world.objects()
        process = self.world.replicas[0]
        runs = [one for one in self.runs if (one.process, one.uid) == (process, obj.uid)]
        if obj.labels.get("off") == "yes":
            assert not self.living(), "one runs that is not wanted"
            return
        assert runs, "none has begun"
        last = runs[-1]
        has_refused = last.outcome == "refuse" and last.seen == obj.spec["size"]
        assert last.ended is None or last.outcome == "end" or has_refused, "none runs"


def lived(operator: Operator, moves: list[tuple[str, float]], seed: int) -> None:
    sizes = iter(range(1, 100))
    with World(THING, operator.app(), seed=seed) as world:
        operator.world = world
        world.create("a", {"size": next(sizes)})
        for what, value in moves:
            match what:
                case "wait":
                    world.run(value)
                case "size":
                    world.replace("a", {"size": next(sizes)})
                case "off":
                    off = {"off": "yes" if value else None}
                    patch = {"metadata": {"labels": off}, "spec": {"size": next(sizes)}}
                    world.patch("a", patch)
                case "used":
                    world.patch("a", {"status": {"by": value}}, subresource="status")
                case "lag":
                    world.lag(value)
                case "restart":
                    world.restart()
                case "crash":
                    world.crash()
                case "make anew":
                    world.delete("a")
                    for _ in range(100):
                        if not world.objects():
                            break
                        world.run(1.0)
                    world.create("a", {"size": next(sizes)})
            operator.check()
        world.end_faults()
        world.run(200.0)
        operator.check()
        operator.check_rest()
        world.delete("a")
        world.run(60.0)
        assert not world.objects()
        operator.check()
        assert not operator.living()


PLANS = st.lists(
    st.tuples(
        st.sampled_from(["refuse", "refuse", "end", "raise", "ignore", "follow"]),
        st.integers(0, 3),
    ),
    max_size=5,
)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.2, 2.0, 40.0])),
        st.tuples(st.sampled_from(["size", "size", "used", "restart", "crash"]), st.just(0.0)),
        st.tuples(st.just("make anew"), st.just(0.0)),
        st.tuples(st.just("off"), st.sampled_from([0.0, 1.0])),
        st.tuples(st.just("lag"), st.sampled_from([1.0, 40.0])),
    ),
    max_size=8,
)


def check(
    plan: list[tuple[str, int]], slow: float, moves: list[tuple[str, float]], seed: int
) -> None:
    lived(Operator(list(plan), slow), moves, seed)


SOON: list[tuple[str, float]] = [("wait", 2.0)]


HISTORIES = st.tuples(PLANS, st.sampled_from([0.0, 5.0]), MOVES, st.integers(0, 3))
KNOWN: list[tuple[list[tuple[str, int]], float, list[tuple[str, float]], int]] = [
    ([("refuse", 3)], 5.0, [*SOON, ("size", 0.0), ("wait", 0.2), ("used", 0.0)], 0),
    ([("refuse", 3), ("refuse", 2)], 0.0, [("lag", 40.0), *SOON, ("size", 0.0), *SOON], 0),
    ([("ignore", 1)], 0.0, [*SOON, ("make anew", 0.0)], 0),
    ([("ignore", 1)], 0.0, [*SOON, ("off", 1.0), *SOON, ("off", 0.0), *SOON], 0),
    ([("refuse", 0)], 0.0, [*SOON, ("used", 1.0), ("wait", 40.0)], 0),
]


@pytest.mark.parametrize("history", KNOWN)
def test_one_runs_also_where_its_writes_are_late(history: Any) -> None:
    check(*history)


@settings(max_examples=scaled(25), deadline=None)
@given(HISTORIES)
def test_one_runs_where_it_is_wanted_and_none_in_a_hot_loop(history: Any) -> None:
    check(*history)


# Defects, which the property has to find.

_next = BackgroundState.next
_see = BackgroundState.see
_failed = BackgroundState.failed
_init = BackgroundRunner.__init__


def starts_before_the_end(self: Any, now: float, *, is_open: bool) -> Act | None:
    if self.is_stopping:
        self.running = None
    return _next(self, now, is_open=is_open)


def forgets_a_refusal(self: Any, obj: Any, *, is_wanted: bool) -> None:
    _see(self, obj, is_wanted=is_wanted)
    self._refused = None


def never_relents(self: Any, obj: Any, *, is_wanted: bool) -> None:
    refused = self._refused
    _see(self, obj, is_wanted=is_wanted)
    self._refused = self._refused or refused


def starts_after_its_return(self: Any) -> None:
    self._end()


def starts_at_once(self: Any, obj: Any, delay: Any, attempt: int, now: float) -> None:
    _failed(self, obj, delay and 0.0, attempt, now)


def relents_for_a_status(self: Any, *args: Any, **options: Any) -> None:
    options["relents"] = lambda old, new: old.resource_version != new.resource_version
    _init(self, *args, **options)


def is_never_older(one: str, other: str) -> bool:
    return False


def outlives_its_object(self: Any, obj: Any) -> bool:
    return False


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        (BackgroundState, "next", starts_before_the_end),
        (BackgroundState, "see", forgets_a_refusal),
        (BackgroundState, "see", never_relents),
        (BackgroundState, "returned", starts_after_its_return),
        (BackgroundState, "failed", starts_at_once),
        (BackgroundRunner, "__init__", relents_for_a_status),
        (BackgroundRunner, "is_running_for", outlives_its_object),
        (_background, "is_older_version", is_never_older),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, defect: Callable[..., Any]
) -> None:
    find = settings(
        max_examples=100,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    monkeypatch.setattr(owner, name, defect)

    def search() -> None:
        for each in KNOWN:
            check(*each)
        find(given(HISTORIES)(lambda history: check(*history)))()

    with pytest.raises(AssertionError):
        search()
