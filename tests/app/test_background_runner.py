"""What runs background functions: threads and coroutines."""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appsdk_operator.app._background import GRACE, BackgroundRunner, Live
from appsdk_operator.client import NotFound
from appsdk_operator.controllers import RetryAfter, TerminalError
from appsdk_operator.resource import Object, kinds
from appsdk_operator.runtime import (
    Clock,
    LoopThread,
    ManualClock,
    RealClock,
    StopSignal,
    ThreadGroup,
)
from tests.app.test_managers import Calls
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap


def thing(name: str = "a", uid: str = "1", version: int = 1) -> Object[Any, Any]:
    meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return Object.from_dict(CONFIG_MAP, {"metadata": meta, "data": {"version": str(version)}})


class Objects:
    """A client that has what a test puts into it."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], Object[Any, Any]] = {}

    def put(self, obj: Object[Any, Any]) -> Object[Any, Any]:
        self.all[obj.namespace, obj.name] = obj
        return obj

    def get(self, kind: Any, name: str, *, namespace: str) -> Object[Any, Any]:
        try:
            return self.all[namespace, name]
        except KeyError:
            raise NotFound(f"{name} is gone") from None


def relents(old: Object[Any, Any], new: Object[Any, Any]) -> bool:
    return bool(old["data"] != new["data"])


class Case:
    """A runner of one function."""

    def __init__(self, function: Callable[..., Any], clock: Clock | None = None) -> None:
        self.client = Objects()
        self.loop = LoopThread("bucket-operator/app")
        self.delays: list[float | None] = [5.0]
        self.runner = BackgroundRunner(
            function,
            name="bucket-operator/background/poll",
            loop=self.loop,
            client=self.client,  # type: ignore[arg-type]  # what it uses of one
            clock=clock or RealClock(),
            retry=lambda error, attempt: self.delays[min(attempt, len(self.delays) - 1)],
            relents=relents,
        )

    def see(self, obj: Object[Any, Any], is_wanted: bool = True) -> Object[Any, Any]:
        self.runner.see(self.client.put(obj), is_wanted=is_wanted)
        return obj

    def phase(self, name: str = "a") -> str | None:
        phase: str | None = self.runner.debug_snapshot()["objects"].get(f"default/{name}")
        return phase

    def wait_for_phase(self, phase: str | None, name: str = "a") -> None:
        eventually(lambda: self.phase(name) == phase)


@contextmanager
def running(case: Case) -> Iterator[StopSignal]:
    stop, raised = StopSignal(), []

    def run() -> None:
        try:
            case.runner.run(stop)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()
        case.loop.close()
    assert not raised
    assert not [t.name for t in threading.enumerate() if "background/poll" in t.name]


def waits(calls: Calls, live: Live[Any, Any], stop: StopSignal) -> None:
    calls.add(("begins", live.object.name))
    stop.wait()
    calls.add(("ends", live.object.name))


async def waits_async(calls: Calls, live: Live[Any, Any], stop: StopSignal) -> None:
    calls.add(("begins", live.object.name))
    while not await stop.wait_async(60.0):
        pass
    calls.add(("ends", live.object.name))


FLAVOURS = pytest.mark.parametrize("function", [waits, waits_async])


@FLAVOURS
def test_it_runs_while_it_is_wanted(function: Any) -> None:
    calls = Calls()
    case = Case(functools.partial(function, calls))
    case.see(thing("early"))
    with running(case):
        one = case.see(thing("a"))
        case.see(thing("b"), is_wanted=False)
        calls.wait_for(("begins", "early"))
        calls.wait_for(("begins", "a"))
        case.wait_for_phase("running")
        assert case.runner.is_running_for(one)
        case.see(thing("a", version=2), is_wanted=False)
        calls.wait_for(("ends", "a"))
        eventually(lambda: not case.runner.is_running_for(one))
        assert not case.runner.is_running_for(one)
        case.wait_for_phase("idle")
        case.see(thing("a", version=3))
        calls.wait_for(("begins", "a"), 2)
    assert calls.all.count(("ends", "early")) == 1
    assert calls.all.count(("ends", "a")) == 2
    assert ("begins", "b") not in calls.all


@FLAVOURS
def test_a_namesake_waits_for_the_end_of_the_run_for_the_former_object(function: Any) -> None:
    calls, may_end = Calls(), StopSignal()

    def slow(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(("begins", live.object.uid))
        stop.wait()
        may_end.wait()
        calls.add(("ends", live.object.uid))

    async def slow_async(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(("begins", live.object.uid))
        await stop.wait_async()
        await may_end.wait_async()
        calls.add(("ends", live.object.uid))

    case = Case(slow if function is waits else slow_async)
    with running(case):
        one = case.see(thing(uid="1"))
        calls.wait_for(("begins", "1"))
        case.runner.gone(one)
        case.see(thing(uid="2"))
        case.wait_for_phase("stopping")
        assert case.runner.is_running_for(one)
        may_end.set()
        calls.wait_for(("begins", "2"))
    assert calls.all == [("begins", "1"), ("ends", "1"), ("begins", "2"), ("ends", "2")]


def test_live_is_the_newest_state_and_the_last_one_of_an_object_that_is_gone() -> None:
    client = Objects()
    live = Live(client, client.put(thing(version=1)))  # type: ignore[arg-type]
    client.put(thing(version=2))
    assert live.object.resource_version == "2"
    client.put(thing(uid="2", version=3))
    assert live.object.resource_version == "2"
    client.all.clear()
    assert live.object.resource_version == "2"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_fails_starts_again_as_its_policy_says(is_async: bool) -> None:
    clock, calls = ManualClock(), Calls()

    def fails(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(clock.monotonic())
        if len(calls.all) < 4:
            raise ConnectionError("reset")
        stop.wait()

    async def fails_async(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(clock.monotonic())
        if len(calls.all) < 4:
            raise ConnectionError("reset")
        await stop.wait_async()

    case = Case(fails_async if is_async else fails, clock)
    case.delays = [5.0, 10.0, 20.0]
    with running(case):
        case.see(thing())
        for count, delay in enumerate(case.delays, 1):
            eventually(lambda count=count: len(calls.all) == count)
            case.wait_for_phase("waiting")
            clock.advance(delay or 0.0)
        calls.wait_for(35.0)
        case.wait_for_phase("running")
    assert calls.all == [0.0, 5.0, 15.0, 35.0]


def test_what_returns_is_over_for_the_life_of_its_object() -> None:
    calls = Calls()
    case = Case(lambda live, stop: calls.add(live.object.uid))
    with running(case):
        one = case.see(thing())
        case.wait_for_phase("over")
        case.see(thing(version=2), is_wanted=False)
        case.see(thing(version=3))
        assert case.phase() == "over"
        case.runner.gone(one)
        case.wait_for_phase(None)
        case.see(thing(uid="2"))
        calls.wait_for("2")
    assert calls.all == ["1", "2"]


def test_what_is_given_up_starts_again_when_the_object_changes_and_shows_till_then() -> None:
    calls = Calls()

    def refuses(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(live.object.resource_version)
        raise TerminalError("a wrong size")

    case = Case(refuses)
    with running(case):
        case.see(thing())
        case.wait_for_phase("over")
        assert case.runner.health().is_ready
        assert "given up for 1 object: default/a" in case.runner.health().note
        case.see(thing(version=1))
        case.see(thing(version=2))
        calls.wait_for("2")
        case.wait_for_phase("over")
    assert calls.all == ["1", "2"]


@FLAVOURS
def test_a_refusal_of_a_former_state_is_none_of_the_present_one(function: Any) -> None:
    calls, changed = Calls(), StopSignal()

    def refuses(live: Live[Any, Any], stop: StopSignal) -> None:
        version = live.object.resource_version
        calls.add(version)
        if version == "1":
            changed.wait()
            raise TerminalError("a wrong size")
        stop.wait()

    async def refuses_async(live: Live[Any, Any], stop: StopSignal) -> None:
        version = live.object.resource_version
        calls.add(version)
        if version == "1":
            await changed.wait_async()
            raise TerminalError("a wrong size")
        await stop.wait_async()

    case = Case(refuses if function is waits else refuses_async)
    with running(case):
        case.see(thing())
        calls.wait_for("1")
        case.see(thing(version=2))
        changed.set()
        calls.wait_for("2")
    assert calls.all == ["1", "2"]


def test_a_policy_that_gives_up_or_fails_ends_it_and_an_error_may_name_its_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls = ManualClock(), Calls()

    def later(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(clock.monotonic())
        raise RetryAfter(3.0) if len(calls.all) == 1 else ConnectionError("reset")

    case = Case(later, clock)
    case.delays = [None]
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")
        clock.advance(3.0)
        case.wait_for_phase("over")
    assert calls.all == [0.0, 3.0]
    assert "does not start again before the object changes: ConnectionError: reset" in caplog.text


def test_a_policy_that_fails_starts_it_again_after_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls = ManualClock(), Calls()

    def fails(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(clock.monotonic())
        raise ConnectionError("reset")

    case = Case(fails, clock)
    case.delays = []
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")
        clock.advance(10.0)
        eventually(lambda: len(calls.all) == 2)
    assert calls.all == [0.0, 10.0]
    assert "failed: the kit starts it again in 10 s" in caplog.text


@FLAVOURS
@pytest.mark.parametrize("answer", ["soon", SystemExit(1)], ids=["a text", "an exit"])
def test_a_policy_that_answers_what_is_no_time_starts_it_again(function: Any, answer: Any) -> None:
    async def fails_async(live: Live[Any, Any], stop: StopSignal) -> None:
        raise ConnectionError("reset")

    def fails(live: Live[Any, Any], stop: StopSignal) -> None:
        raise ConnectionError("reset")

    def policy(error: Exception, attempt: int) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    case = Case(fails if function is waits else fails_async)
    case.runner._retry = policy
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")


def test_a_returned_value_is_an_error_that_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def returns(live: Live[Any, Any], stop: StopSignal) -> int:
        return 3

    async def returns_async(live: Live[Any, Any], stop: StopSignal) -> int:
        return 3

    for function in (returns, returns_async):
        case = Case(function)
        with running(case):
            case.see(thing())
            case.wait_for_phase("waiting")
    assert caplog.text.count("returned int, which an App drops") >= 2


def test_what_leaves_the_program_is_an_error_like_any_other() -> None:
    def leaves(live: Live[Any, Any], stop: StopSignal) -> None:
        raise SystemExit(3)

    case = Case(leaves)
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")


def test_a_thread_that_ignores_its_stop_is_named_with_its_place_and_nothing_replaces_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls, may_end = ManualClock(), Calls(), StopSignal()

    def hangs(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(live.object.uid)
        may_end.wait()

    case = Case(hangs, clock)
    with running(case):
        one = case.see(thing())
        calls.wait_for("1")
        case.runner.gone(one)
        case.see(thing(uid="2"))
        case.wait_for_phase("stopping")
        clock.advance(GRACE)
        eventually(lambda: "has not ended 10 s after its stop for default/a" in caplog.text)
        assert "hangs (test_background_runner.py:" in caplog.text
        assert calls.all == ["1"]
        assert case.runner.is_running_for(one)
        assert "hangs (test_background_runner.py:" in case.runner.place_for(one)
        may_end.set()
        calls.wait_for("2")
    assert caplog.text.count("has not ended") == 1


def test_a_coroutine_that_ignores_its_stop_is_cancelled_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, calls, may_end = ManualClock(), Calls(), StopSignal()

    async def hangs(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(("begins", live.object.uid))
        try:
            await asyncio.Event().wait()
        finally:
            calls.add("cancelled")
            await may_end.wait_async()
            calls.add("ends")

    case = Case(hangs, clock)
    with running(case):
        one = case.see(thing())
        calls.wait_for(("begins", "1"))
        case.see(thing(version=2), is_wanted=False)
        case.wait_for_phase("stopping")
        clock.advance(GRACE)
        calls.wait_for("cancelled")
        assert case.runner.is_running_for(one)
        assert "has not ended 10 s after its stop for default/a: the kit cancels it" in caplog.text
        clock.advance(GRACE)
        eventually(lambda: "the next step waits for it" in caplog.text)
        clock.advance(GRACE)
        may_end.set()
        case.wait_for_phase("idle")
    assert calls.all == [("begins", "1"), "cancelled", "ends"]
    assert caplog.text.count("has not ended") == 2


def test_a_coroutine_that_is_cancelled_by_somebody_else_starts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cancelled(live: Live[Any, Any], stop: StopSignal) -> None:
        raise asyncio.CancelledError

    case = Case(cancelled)
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")
    assert "the kit had not asked it to end" in caplog.text


def test_a_thread_that_cannot_be_started_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = ThreadGroup.start, [1]

    def start(self: ThreadGroup, name: str, target: Callable[[], None]) -> threading.Thread:
        if name == "default/a" and left:
            left.pop()
            raise RuntimeError("can't start new thread")
        return real(self, name, target)

    monkeypatch.setattr(ThreadGroup, "start", start)
    clock, calls = ManualClock(), Calls()
    case = Case(functools.partial(waits, calls), clock)
    with running(case):
        case.see(thing())
        case.wait_for_phase("waiting")
        clock.advance(5.0)
        calls.wait_for(("begins", "a"))


@FLAVOURS
def test_none_runs_while_it_is_held_and_afterwards_each_that_is_wanted(function: Any) -> None:
    calls = Calls()
    case = Case(functools.partial(function, calls))
    case.runner.hold()
    case.see(thing("early"))
    with running(case):
        case.wait_for_phase("starting", "early")
        eventually(lambda: not case.runner._dirty)
        case.runner.let_go()
        calls.wait_for(("begins", "early"))
        case.runner.hold()
        case.runner.hold()
        calls.wait_for(("ends", "early"))
        gone = case.see(thing("gone"))
        late = case.see(thing("late"))
        eventually(lambda: not case.runner._dirty)
        case.runner.gone(gone)
        assert calls.all == [("begins", "early"), ("ends", "early")]
        case.runner.let_go()
        calls.wait_for(("begins", "late"))
        calls.wait_for(("begins", "early"), 2)
        assert case.runner.is_running_for(late)
    assert ("begins", "gone") not in calls.all


def test_what_waits_after_a_failure_starts_when_it_is_let_go_and_due() -> None:
    clock, calls = ManualClock(), Calls()

    def fail(live: Live[Any, Any], stop: StopSignal) -> None:
        calls.add(("begins", live.object.name))
        raise ConnectionError("planned")

    case = Case(fail, clock)
    with running(case):
        case.see(thing("a"))
        case.see(thing("b"))
        case.wait_for_phase("waiting", "a")
        case.wait_for_phase("waiting", "b")
        case.runner.hold()
        clock.advance(5.0)
        eventually(lambda: not case.runner._dirty)
        assert len(calls.all) == 2
        case.runner.let_go()
        calls.wait_for(("begins", "a"), 2)
        calls.wait_for(("begins", "b"), 2)


@pytest.mark.parametrize("is_async", [False, True])
def test_many_objects_in_any_order_never_have_two_runs_at_once_and_leave_none(
    is_async: bool,
) -> None:
    """Threads see, lose and make anew objects of 40 names, and functions end in all ways.

    Another one holds the runner now and then.
    """
    lock = threading.Lock()
    present: dict[str, int] = {}
    wrong: list[str] = []
    lives: dict[str, int] = {}
    is_held = threading.Event()

    def enter(name: str, uid: str) -> int:
        with lock:
            present[name] = present.get(name, 0) + 1
            if present[name] > 1:
                wrong.append(f"two runs for {name}")
            if is_held.is_set():
                wrong.append(f"a run for {name} while it is held")
            lives[uid] = lives.get(uid, 0) + 1
            return lives[uid]

    def leave(name: str) -> None:
        with lock:
            present[name] -= 1

    def works(live: Live[Any, Any], stop: StopSignal) -> None:
        obj = live.object
        number = enter(obj.name, obj.uid)
        try:
            if number % 3 == 1 and obj.uid.endswith("5"):
                raise RetryAfter(0.0)
            if obj.uid.endswith("7"):
                return
            stop.wait()
        finally:
            leave(obj.name)

    async def works_async(live: Live[Any, Any], stop: StopSignal) -> None:
        obj = live.object
        number = enter(obj.name, obj.uid)
        try:
            await asyncio.sleep(0)
            if number % 3 == 1 and obj.uid.endswith("5"):
                raise RetryAfter(0.0)
            if obj.uid.endswith("7"):
                return
            await stop.wait_async()
        finally:
            leave(obj.name)

    case = Case(works_async if is_async else works)

    def play(seed: int) -> None:
        rng = random.Random(seed)
        names = [f"{seed}-{number}" for number in range(10)]  # events of one object are in order
        uids = dict.fromkeys(names, "")
        for step in range(300):
            name = rng.choice(names)
            obj = thing(name, uids[name] or f"{name}-{step}", step + 1)
            match rng.randrange(4):
                case 0 if uids[name]:
                    uids[name] = ""
                    case.runner.gone(obj)
                case 1 if uids[name]:
                    case.see(obj, is_wanted=False)
                case _:
                    uids[name] = obj.uid
                    case.see(obj)
            if step % 4 == 0:
                eventually(lambda: not case.runner._dirty)

    def counts() -> dict[str, int]:
        phases: dict[str, int] = case.runner.debug_snapshot()["phases"]
        return phases

    with running(case):
        players = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
        for player in players:
            player.start()
        while any(player.is_alive() for player in players):
            case.runner.hold()
            eventually(lambda: counts()["running"] == counts()["stopping"] == 0)
            is_held.set()
            threading.Event().wait(0.002)
            is_held.clear()
            case.runner.let_go()
            threading.Event().wait(0.002)
        for player in players:
            player.join()
        eventually(lambda: counts()["starting"] == counts()["stopping"] == 0)
    assert not wrong
    assert not any(present.values())
    assert case.runner.debug_snapshot()["phases"]["running"] == 0
    assert len(lives) > 40
