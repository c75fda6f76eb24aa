"""Awaited calls of an App's functions: they hold their object, and no worker."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import Client, ClientConfig, current_stop, kinds
from appsdk_operator.app import App, Live, each
from appsdk_operator.client import MergePatch
from appsdk_operator.controllers import Request, TerminalError
from appsdk_operator.resource import Kind, MutableObject, Object, field
from appsdk_operator.runtime import StopSignal, present_call
from appsdk_operator.testing import APIServer, World, check_operator, install_crds
from appsdk_operator.watchers import ConstantBackoff
from tests.app.test_managers import Calls, running
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually


@attrs.frozen
class ThingSpec:
    """One field."""

    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
OTHER = kinds.core.v1.ConfigMap
SPECS = st.fixed_dictionaries({"a": st.integers(1, 3)})


class Log:
    """What functions did, with the time, and how many were at work at once."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.entries: list[tuple[float, str]] = []
        self.at_once: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def note(self, what: str) -> None:
        assert self.world is not None
        self.entries.append((self.world.clock.monotonic(), what))

    def at(self, what: str) -> list[float]:
        return [when for when, noted in self.entries if noted == what]

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        self.at_once[what] += 1
        self.most[what] = max(self.most[what], self.at_once[what])
        try:
            yield
        finally:
            self.at_once[what] -= 1

    @contextmanager
    def running(self, app: App, *names: str, **options: Any) -> Iterator[World]:
        with World(THING, app, **options) as world:
            self.world = world
            for name in names:
                world.create(name, {"a": 1})
            yield world


@pytest.mark.parametrize("workers", [1, 3])
def test_calls_that_await_go_on_at_once_whatever_the_number_of_workers(workers: int) -> None:
    log, app = Log(), App("thing-operator", workers=workers)

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        with log.within("make"):
            await asyncio.sleep(10.0)
        log.note(thing.name)

    names = [f"t{number}" for number in range(20)]
    with log.running(app, *names) as world:
        world.run(60.0)
    assert log.most["make"] == 20
    assert len({round(when) for when, _ in log.entries}) == 1
    assert sorted(name for _, name in log.entries) == sorted(names)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_still_limit_plain_functions_also_after_what_was_awaited(workers: int) -> None:
    log, app = Log(), App("thing-operator", workers=workers)

    @app.on_add(THING)
    async def first(thing: Object) -> None:
        await asyncio.sleep(10.0)

    @app.on_add(THING)
    def then(thing: Object) -> None:
        with log.within("then"):
            current_stop().wait(1.0)

    @app.on_update(THING)
    def update(old: Object, new: Object) -> None:
        with log.within("then"):
            current_stop().wait(1.0)

    with log.running(app, *"abcdef") as world:
        world.run(60.0)
        for name in "abcdef":
            world.replace(name, {"a": 2})
        world.run(60.0)
    assert log.most["then"] == workers


@pytest.mark.parametrize(("bound", "expected"), [(0, 2), (1, 3), (3, 5), (1000, 9)])
def test_no_more_calls_await_than_the_app_says_over_all_its_kinds(
    bound: int, expected: int
) -> None:
    log = Log()
    app = App("thing-operator", workers=1, max_awaiting=bound)

    async def wait(thing: Object) -> None:
        with log.within("wait"):
            await asyncio.sleep(10.0)
        log.note(thing.name)

    app.on_add(THING)(wait)
    app.on_add(OTHER)(wait)
    with log.running(app, *"abcdef") as world:
        for name in "xyz":
            world.client.create(MutableObject.new(OTHER, name, namespace="default"))
        world.run(300.0)
        assert log.most["wait"] == expected
        assert sorted(name for _, name in log.entries) == sorted("abcdefxyz"), "none is lost"
        log.most.clear()
        for name in "ghijklmno":
            world.create(name, {"a": 1})
        world.run(300.0)
    assert log.most["wait"] == min(bound + 1, 9), "and each place is given back"


def test_one_that_awaits_for_ever_delays_its_own_object_until_its_limit_cancels_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    app = App("thing-operator", workers=1, time_limit=100.0, retry_policy=ConstantBackoff(1000.0))

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        log.note(thing.name)
        if thing.name == "hangs":
            await asyncio.Event().wait()

    @app.every(50.0, THING)
    def look(thing: Object) -> None:
        log.note(f"looks at {thing.name}")

    with caplog.at_level(logging.WARNING), log.running(app, "hangs", "b", "c") as world:
        world.run(90.0)
        (call,) = [c for c in world.journal.of("call") if c.key.endswith("hangs")]
        assert not call.outcome
        assert log.at("hangs") == log.at("b") == log.at("c")
        assert log.at("looks at b")
        world.run(30.0)
        assert not log.at("looks at hangs"), "its add has failed"
        world.run(1010.0)
        first, second = log.at("hangs")
        assert second - first == pytest.approx(1100.0, abs=1.0)
    (warning,) = [r.getMessage() for r in caplog.records if "has awaited" in r.getMessage()]
    assert "test_awaiting.py" in warning
    assert "for things default/hangs" in warning
    assert "The call holds no worker" in warning
    assert not [r for r in caplog.records if "spare worker" in r.getMessage()]


def test_one_that_ignores_its_cancellation_holds_no_worker_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    gate: list[int] = []
    app = App("thing-operator", workers=1, time_limit=50.0)

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        log.note(thing.name)
        while thing.name == "hangs" and not gate:
            try:
                await asyncio.sleep(400.0)
            except asyncio.CancelledError:
                log.note("ignores it")

    with caplog.at_level(logging.WARNING), log.running(app, "hangs") as world:
        world.run(60.0)
        assert log.at("ignores it")
        for name in "bcd":
            world.create(name, {"a": 1})
        world.run(10.0)
        assert all(log.at(name) for name in "bcd")
        gate.append(1)
        world.run(600.0)
    (error,) = [r.getMessage() for r in caplog.records if "ignores the" in r.getMessage()]
    assert "it is awaited, and holds no worker" in error


@pytest.mark.parametrize("ending", ["stop", "hand-over"])
def test_a_stop_cancels_what_is_awaited_and_the_next_process_calls_again(ending: str) -> None:
    log, app = Log(), App("thing-operator", workers=1)

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        log.note(f"begins {thing.name}")
        try:
            await asyncio.sleep(3600.0)
        except asyncio.CancelledError:
            log.note(f"cancels {thing.name}")
            raise

    @app.on_add(THING)
    def then(thing: Object) -> None:
        log.note("then")

    before = threading.active_count()
    with log.running(app, *"abcdefgh", leader_election=ending == "hand-over") as world:
        world.run(60.0)
        world.restart()
        assert len(log.at("cancels a")) == 1
        assert [e for _, e in log.entries if e.startswith("cancels")] == [
            f"cancels {name}" for name in "abcdefgh"
        ]
        world.run(60.0)
        assert all(len(log.at(f"begins {name}")) == 2 for name in "abcdefgh")
        assert not log.at("then"), "after the stop nothing begins"
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        TerminalError("never"),
        ExceptionGroup("both", [ValueError("a"), TimeoutError("b")]),
        TimeoutError("its own"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("after", [0.0, 5.0])
def test_whatever_is_raised_ends_the_call_alone(error: BaseException, after: float) -> None:
    log = Log()
    app = App("thing-operator", workers=1, retry_policy=ConstantBackoff(20.0))

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        log.note(thing.name)
        if after:
            await asyncio.sleep(after)
        if thing.name == "fails" and len(log.at("fails")) == 1:
            raise error

    @app.on_add(THING)
    def then(thing: Object) -> None:
        log.note(f"then {thing.name}")

    with log.running(app, "fails", "b") as world:
        world.run(90.0)
    assert len(log.at("fails")) == (1 if isinstance(error, TerminalError) else 2)
    assert len(log.at("b")) == 1
    assert len(log.at("then fails")) == len(log.at("then b")) == 1


def test_results_parts_and_the_call_itself_are_those_of_the_awaited_one() -> None:
    log, app = Log(), App("thing-operator", workers=1, retry_policy=ConstantBackoff(20.0))
    calls: list[str] = []

    @app.on_add(THING, result="status.name")
    async def make(thing: Object) -> str:
        async def part(item: str) -> None:
            log.note(f"{thing.name} {item}")
            await asyncio.sleep(1.0)
            if item == "y" and len(log.at(f"{thing.name} y")) == 1:
                raise ValueError("once")

        await each(["x", "y", "z"], part)
        call = present_call()
        assert call is not None
        calls.append(call.name)
        assert not current_stop().is_set()
        return f"name of {thing.name}"

    with log.running(app, *"abc") as world:
        world.run(60.0)
        for thing in world.objects():
            assert thing.status["name"] == f"name of {thing.name}"
            writes = [e for e in world.journal.of("write") if e.key.endswith(thing.name)]
            assert all(w.within is None or w.within.key == w.key for w in writes)
        for name in "abc":
            counts = {item: len(log.at(f"{name} {item}")) for item in "xyz"}
            assert counts == {"x": 1, "y": 2, "z": 1}
    assert sorted(calls) == ["a", "b", "c"]


def test_a_call_whose_limit_passes_while_it_waits_for_its_turn_gives_the_turn_back() -> None:
    log, app = Log(), App("thing-operator", workers=1)

    @app.on_add(THING, time_limit=10.0)
    async def make(thing: Object[ThingSpec]) -> None:
        if thing.name == "slow":
            await asyncio.Event().wait()  # its limit cancels it
        log.note(thing.name)

    @app.on_update(THING)
    def hold(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        current_stop().wait(60.0)

    with log.running(app, "held") as world:
        world.run(1.0)
        world.create("slow", {"a": 1})
        world.run(4.0)
        world.replace("held", {"a": 2})  # takes the one turn until long after the limit
        world.run(100.0)
        for name in "xyz":
            world.create(name, {"a": 1})
        world.run(10.0)
    assert [name for _, name in log.entries] == ["held", *"xyz"]


def test_the_wait_for_a_turn_does_not_count_for_a_time_limit() -> None:
    log, app = Log(), App("thing-operator", workers=1)

    @app.on_add(THING, time_limit=10.0)
    async def make(thing: Object[ThingSpec]) -> None:
        await asyncio.sleep(2.0 if thing.name == "slow" else 0.0)
        log.note(thing.name)

    @app.on_update(THING)
    def hold(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        current_stop().wait(30.0)

    with log.running(app, "held") as world:
        world.run(1.0)
        world.create("slow", {"a": 1})
        world.run(1.0)
        world.replace("held", {"a": 2})
        world.run(100.0)
    assert [name for _, name in log.entries] == ["held", "slow"]


# Promises.


def sleepy(app: App, elsewhere: Callable[[], dict[str, Any]], pause: float) -> App:
    """Async functions that await for a while, between plain ones."""

    @app.on_add(THING)
    @app.on_sync(THING)
    async def make(thing: Object[ThingSpec]) -> None:
        await asyncio.sleep(pause)
        elsewhere()[thing.uid] = thing.spec.a
        await asyncio.sleep(pause)

    @app.on_update(THING, when=field("spec.a").changed)
    async def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        await asyncio.sleep(pause)
        elsewhere()[new.uid] = new.spec.a

    @app.on_update(THING)
    def note(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        pass

    @app.on_delete(THING)
    async def remove(thing: Object[ThingSpec]) -> None:
        await asyncio.sleep(pause)
        elsewhere().pop(thing.uid, None)

    @app.every(20.0, THING)
    async def look(thing: Object[ThingSpec]) -> None:
        await asyncio.sleep(pause)

    return app


@pytest.mark.parametrize("pause", [0.0, 3.0])
@pytest.mark.parametrize("workers", [1, 4])
def test_awaited_calls_keep_every_promise_of_an_app(workers: int, pause: float) -> None:
    made: dict[str, Any] = {}
    worlds: list[World] = []

    def begin(world: World) -> None:
        if [world] != worlds:
            worlds[:] = [world]
            made.clear()

    def check(world: World) -> None:
        begin(world)
        for thing in world.objects():
            assert thing.is_deleting or made.get(thing.uid) == thing.spec.a

    check_operator(
        sleepy(App("thing-operator", workers=workers), lambda: made, pause),
        specs=SPECS,
        always=begin,
        at_rest=check,
        cleaned_up=lambda _, thing: thing.uid not in made,
        max_examples=scaled(10),
    )


def test_the_interval_of_a_timer_begins_at_the_end_of_its_call() -> None:
    made: dict[str, Any] = {}
    check_operator(
        sleepy(App("thing-operator", workers=4), lambda: made, 3.0),
        replay=["write 503", 'create a {"a": 1}', "wait 0"],
    )


@given(
    seed=st.integers(1, 1000),
    workers=st.integers(1, 3),
    bound=st.sampled_from([0, 1, 2, 1000]),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=3, max_size=3),
)
@settings(max_examples=scaled(15), deadline=None)
def test_calls_of_one_object_do_not_overlap_and_one_seed_is_one_history(
    seed: int, workers: int, bound: int, pauses: list[float]
) -> None:
    def history() -> list[tuple[float, str]]:
        log, objects = Log(), Log()
        app = App("thing-operator", workers=workers, max_awaiting=bound)

        def make(number: int, cause: str) -> Callable[..., Any]:
            async def wait(thing: Object) -> None:
                log.note(f"begins {cause} {number} of {thing.name}")
                with objects.within(thing.name):
                    await asyncio.sleep(pauses[number])
                log.note(f"ends {cause} {number} of {thing.name}")

            def plain(thing: Object) -> None:
                with objects.within(thing.name), objects.within("plain"):
                    log.note(f"{cause} {number} of {thing.name}")

            return plain if number == 1 else wait

        for number in range(3):
            app.on_add(THING)(make(number, "add"))
            one = make(number, "update")
            app.on_update(THING)(_of_new(one))
        with log.running(app, *"abc", seed=seed) as world:
            world.run(30.0)
            for name, value in itertools.product("abc", (2, 3)):
                world.replace(name, {"a": value})
                world.run(1.0)
            world.run(60.0)
        assert set(objects.most.values()) == {1} | {objects.most["plain"]}
        assert objects.most["plain"] <= workers
        for name in "abc":
            adds = [
                what for _, what in log.entries if what.endswith(f"of {name}") and "add" in what
            ]
            assert [what.split()[-3] for what in adds] == ["0", "0", "1", "2", "2"]
        return log.entries

    assert history() == history()


def _of_new(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(old: Object, new: Object) -> Any:
        return function(new)

    return call


# One loop.


def test_all_that_is_async_in_an_app_runs_on_one_loop() -> None:
    app, calls = App("thing-operator", workers=2), Calls()
    app.own(THING)

    def note(what: str) -> None:
        calls.add((what, id(asyncio.get_running_loop()), threading.current_thread().name))

    @app.lifespan
    async def life() -> AsyncIterator[None]:
        note("lifespan")
        yield

    @app.on_add(THING)
    async def make(thing: Object) -> None:
        found = await app.client.aio.get(THING, thing.name, namespace=thing.namespace)
        assert found.uid == thing.uid
        note("add")

    @app.on_add(OTHER)
    async def make_other(thing: Object) -> None:
        note("add of another kind")

    @app.every(3600.0, THING)
    async def look(thing: Object) -> None:
        note("timer")

    @app.every(3600.0)
    async def tick() -> None:
        note("timer without a kind")

    @app.background(THING)
    async def poll(live: Live, stop: StopSignal) -> None:
        note("background")
        await stop.wait_async()

    @app.task
    async def work(stop: StopSignal) -> None:
        note("task")
        await stop.wait_async()

    @app.reconciler(OTHER)
    async def reconcile(request: Request) -> None:
        note("reconciler")

    before = threading.active_count()
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        with running(app.manager(ClientConfig(server=server.url))):
            client.create(_thing("a"))
            client.create(MutableObject.new(OTHER, "a", namespace="default"))
            whats = {
                "lifespan",
                "add",
                "add of another kind",
                "timer",
                "timer without a kind",
                "background",
                "reconciler",
                "task",
            }
            eventually(lambda: {call[0] for call in calls.all} == whats)
    assert len({call[1:] for call in calls.all}) == 1
    assert {call[2] for call in calls.all} == {"thing-operator/app/loop"}
    eventually(lambda: threading.active_count() == before)


def _thing(name: str) -> MutableObject[ThingSpec]:
    return MutableObject.new(THING, name, namespace="default", spec=ThingSpec(a=1))


def test_hundreds_of_objects_await_at_once_and_are_shown_so() -> None:
    app, calls = App("thing-operator", workers=2), Calls()
    app.own(THING)
    opened: list[Callable[[], object]] = []

    @app.on_update(THING)
    async def change(old: Object, new: Object) -> None:
        gate, loop = asyncio.Event(), asyncio.get_running_loop()
        opened.append(lambda: loop.call_soon_threadsafe(gate.set))
        await gate.wait()
        calls.add("done")

    def workers() -> int:
        return sum("/worker-" in each.name for each in threading.enumerate())

    before = threading.active_count()
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        with running(app.manager(ClientConfig(server=server.url))) as manager:

            def shown() -> Any:
                (found,) = manager.debug_state()["controllers"]
                return found

            for number in range(200):
                client.create(_thing(f"t{number}"))
            for round_ in range(2):
                for number in range(200):
                    patch = MergePatch({"spec": {"a": 2 + round_}})
                    client.patch(THING, f"t{number}", patch, namespace="default")
                eventually(lambda: len(opened) == 200)
                eventually(lambda: shown()["awaiting_total"] == 200)
                assert shown()["running_total"] == 200
                assert all(call["awaiting"] for call in shown()["running"])
                assert workers() <= 200 + 2 + 32
                while opened:
                    opened.pop()()
                calls.wait_for("done", 200 * (round_ + 1))
                eventually(lambda: workers() <= 2 + 32)
    eventually(lambda: threading.active_count() == before)


@pytest.mark.parametrize("bound", [-1, 1.5, "8", None, True])
def test_what_is_no_bound_is_refused_where_it_is_given(bound: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_awaiting"):
        App("thing-operator", max_awaiting=bound)
