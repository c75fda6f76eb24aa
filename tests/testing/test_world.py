"""Hours of resyncs, backoffs and leases in milliseconds, the same for one seed each time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import queue
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import (
    Live,
    Manager,
    MutableObject,
    SimpleWatcher,
    controller_for,
    kinds,
)
from appsdk_operator.app import App
from appsdk_operator.cache import ResourceAction
from appsdk_operator.client import AlreadyExists, Conflict, MergePatch, NotFound
from appsdk_operator.controllers import (
    ControllerOptions,
    Request,
    Result,
    create_or_update,
    set_controller_reference,
)
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import ManualClock, StopSignal, system_clock
from appsdk_operator.testing import BrokenPromise, Replica, World, check_operator
from appsdk_operator.testing._world.histories import Step, play
from appsdk_operator.watchers import (
    OpinionatedReconciler,
    OpinionatedWatcher,
    ReconcileRequest,
    SimpleReconciler,
)
from tests.hypothesis_profiles import scaled
from tests.testing.broken import operators
from tests.testing.broken.operators import secret_of_its_name

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = kinds.core.v1.ConfigMap


def resizing(replica: Replica) -> Any:
    def reconcile(request: Request) -> Result | None:
        try:
            obj = replica.client.get(WIDGET, request.name, namespace=request.namespace)
        except NotFound:
            return None
        if obj.spec["size"] > 5:
            raise ValueError("too big for now")
        patch = MergePatch({"status": {"size": obj.spec["size"]}})
        replica.client.status.patch(WIDGET, obj.name, patch, namespace=obj.namespace)
        return Result(requeue_after=600.0)

    return reconcile


def day_of_a_widget(seed: int = 0, *, pace: float = 3600.0, **options: Any) -> str:
    with World(WIDGET, resizing, seed=seed, **options) as world:
        world.create("a", {"size": 1})
        world.create("b", {"size": 9})
        world.run(pace)
        world.write_faults = ["409", "lost", "crash after"]
        world.replace("a", {"size": 2})
        world.run(pace)
        world.cut()
        world.compact()
        world.lag(60.0)
        world.replace("b", {"size": 3})
        world.run(pace)
        world.restart()
        world.delete("a")
        world.run(pace)
        return "\n".join(map(str, world.journal.entries))


def test_four_hours_of_an_operator_take_less_than_a_second_and_tell_one_timeline_for_one_seed() -> (
    None
):
    began = system_clock.monotonic()
    first = day_of_a_widget()
    assert system_clock.monotonic() - began < 20.0, "on a busy machine, too"
    assert day_of_a_widget() == first
    assert "operator crashes" in first
    assert "fails with ValueError" in first


def test_another_seed_is_another_run_and_the_same_each_time() -> None:
    timelines = [replicas_of_a_widget(seed) for seed in (1, 1, 2)]
    assert timelines[0] == timelines[1] != timelines[2]


def replicas_of_a_widget(seed: int) -> str:
    return day_of_a_widget(seed, pace=40.0, replicas=2, leader_election=True)


def test_the_hashes_of_text_change_nothing() -> None:
    code = textwrap.dedent(
        """
        import hashlib
        from tests.testing.test_world import replicas_of_a_widget
        print(hashlib.sha256(replicas_of_a_widget(3).encode()).hexdigest())
        """
    )
    here = replicas_of_a_widget(3)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


def owner_of_a_config_map(replica: Replica) -> Manager:
    """A controller with two sources."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)

    def reconcile(request: Request) -> None:
        try:
            widget = replica.client.get(WIDGET, request.name, namespace=request.namespace)
        except NotFound:
            return
        draft = MutableObject.new(CONFIG_MAP, widget.name, namespace=widget.namespace)

        def shape(made: MutableObject) -> None:
            set_controller_reference(widget, made)
            made["data"] = {"size": str(widget.spec["size"])}

        create_or_update(replica.client, draft, shape)

    builder = controller_for(manager).named("owner").for_(WIDGET).owns(CONFIG_MAP)
    builder.complete(replica.recorded(reconcile))
    return manager


def app_with_a_config_map() -> App:
    app = App("widget-operator")

    @app.on_add(WIDGET)
    @app.on_sync(WIDGET)
    def make(widget: Object) -> None:
        with contextlib.suppress(AlreadyExists):
            app.client.create(
                MutableObject.new(CONFIG_MAP, widget.name, namespace=widget.namespace, data={})
            )

    app.on_update(WIDGET)(lambda old, new: None)
    app.every(2, WIDGET)(lambda widget: None)
    return app


def app_with_background_functions() -> App:
    """Two for each object, which write its status: a coroutine, and a thread with a pool."""
    app = App("widget-operator")

    def show(widget: Object, field: str) -> None:
        with contextlib.suppress(NotFound, Conflict), app.edit(widget) as draft:
            status = draft.setdefault("status", {})
            status[field] = status.get(field, 0) + 1

    @app.background(WIDGET)
    def follow(live: Live, stop: StopSignal) -> None:
        with ThreadPoolExecutor(2) as pool:
            while not stop.wait(1.0):
                list(pool.map(lambda field: show(live.object, field), "xy"))
                if live.object.status and live.object.status.get("x", 1) % 3 == 0:
                    raise ValueError("starts again")

    @app.background(WIDGET)
    async def follow_async(live: Live, stop: StopSignal) -> None:
        while not await stop.wait_async(1.5):
            await asyncio.sleep(0.1)
            show(live.object, "z")

    @app.task
    def look(stop: StopSignal) -> None:
        while not stop.wait(0.5):
            list(app.live_client.list(WIDGET))

    return app


def waiting_coroutine(replica: Replica) -> Any:
    async def reconcile(request: Request) -> Result:
        await asyncio.sleep(replica.clock.rng.random())
        return Result(requeue_after=2.0)

    return reconcile


@pytest.mark.parametrize(
    "make",
    [
        owner_of_a_config_map,
        waiting_coroutine,
        operators.size_in_status,
        operators.size_in_status_by_watcher,
        operators.bucket,
        operators.bucket_by_name,
        operators.bucket_by_name_in_a_controller,
        operators.works_in_threads_of_its_own,
        operators.secret_of_its_name,
        app_with_a_config_map(),
        app_with_background_functions(),
    ],
    ids=lambda make: getattr(make, "__name__", "app"),
)
def test_one_seed_is_one_journal_for_each_form_of_operator(
    make: Callable[[Replica], Any] | App,
) -> None:
    def journal(seed: int) -> list[str]:
        with World(WIDGET, make, seed=seed) as world:
            for name in "abcd":
                world.create(name, {"size": 1})
            world.run(2.0)
            world.cut()
            world.restart()
            world.delete("b")
            world.run(3.0)
            for step in ("change 0", "wait 1", "read 500", "function fails", 'spec c {"size": 2}'):
                play(world, Step.parse(step))
            for step in ("wait 1", "remove 1", "crash", "down 60", "delete d", "wait 70"):
                play(world, Step.parse(step))
            return list(map(str, world.journal.entries))

    for seed in range(scaled(4)):
        first = journal(seed)
        for _ in range(3):
            assert journal(seed) == first


def test_backoff_and_requeue_come_when_they_are_due() -> None:
    with World(WIDGET, resizing) as world:
        world.create("a", {"size": 1})
        world.create("b", {"size": 9})
        world.run(1800.0)
        calls = world.journal.of("call", "default/a")
        # The second is for the operator's own write, and its request later replaces the first's.
        assert [round(call.at) for call in calls] == [0, 0, 600, 1200, 1800]
        fails = [call.at for call in world.journal.of("call", "default/b")]
        assert fails[1] < 0.1 < fails[-1]
        assert len(fails) < 25, "the waits double"


@settings(max_examples=scaled(10), deadline=None)
@given(
    what=st.sampled_from(["lag", "freeze"]),
    faults=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), min_size=1, max_size=4),
)
def test_a_fault_is_over_when_the_last_of_its_sort_is(
    what: str, faults: list[tuple[int, int]]
) -> None:
    seen: list[float] = []
    over = 0.0
    with World(
        WIDGET,
        lambda replica: SimpleWatcher(add=lambda _: seen.append(replica.clock.monotonic())),
    ) as world:
        world.run(1.0)
        for wait, seconds in faults:
            if world.clock.monotonic() + wait < over or not over:
                world.run(wait)
            getattr(world, what)(float(seconds))
            over = max(over, world.clock.monotonic() + seconds)
        world.create("a", {"size": 1})
        world.run(100.0)
    assert seen == [pytest.approx(over, abs=0.1)]


@pytest.mark.parametrize(
    "group", ["gateway.networking.k8s.io", "x.k8s.io", "example.com", "apps", "storage.k8s.io"]
)
def test_the_kind_of_a_world_is_served_whatever_its_group(group: str) -> None:
    kind = Kind(group=group, version="v1", kind="Gateway")
    if group == "apps":
        kind = kinds.apps.v1.Deployment
    if group == "storage.k8s.io":
        kind = kinds.storage.v1.StorageClass
    with World(kind, lambda _: lambda request: None) as world:
        assert world.objects() == []


def test_a_replica_that_stands_still_loses_the_lease_and_writes_nothing_any_more() -> None:
    with World(WIDGET, resizing, replicas=2, leader_election=True) as world:
        world.run(10.0)
        world.freeze(60.0)
        world.create("a", {"size": 1})
        world.run(120.0)
        assert world.settle()
        assert "operator-2 reconciles a: patches status of widgets a" in world.timeline("a")
        assert "operator-1 reconciles" not in world.timeline("a")
        assert "operator-1 ends by itself with LeadershipLost" in world.timeline()


def test_leases_run_out_and_are_taken_over_for_an_hour_of_crashes() -> None:
    with World(WIDGET, resizing, replicas=2, leader_election=True) as world:
        for hour in range(3):
            world.crash(hour % 2)
            world.run(300.0)
            world.create(f"w{hour}", {"size": 1})
            world.run(60.0)
        assert all(obj.status["size"] == 1 for obj in world.objects())


def test_coroutines_wait_on_the_same_clock() -> None:
    import asyncio

    def make(replica: Replica) -> Any:
        async def reconcile(request: Request) -> None:
            await asyncio.sleep(30.0)
            replica.world.note("the test", "life", f"woke for {request.name}")

        return reconcile

    with World(CONFIG_MAP, make) as world:
        world.create("a", {"data": {"x": "1"}})
        world.run(29.0)
        assert "woke" not in world.timeline()
        world.run(2.0)
        assert "31.0" not in world.timeline()
        assert "the test woke for a" in world.timeline()


def test_coroutines_of_a_controller_share_one_event_loop() -> None:
    def make(replica: Replica) -> Manager:
        one_at_a_time = asyncio.Semaphore(1)

        async def reconcile(request: Request) -> None:
            async with one_at_a_time:
                obj = await asyncio.to_thread(
                    replica.client.get, CONFIG_MAP, request.name, namespace=request.namespace
                )
                await asyncio.sleep(5.0)
                replica.world.note("the test", "life", f"is done with {obj.name}")

        manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
        builder = controller_for(manager).named("own").for_(CONFIG_MAP)
        options = ControllerOptions(max_concurrent_reconciles=3)
        builder.with_options(options).complete(replica.recorded(reconcile))
        return manager

    with World(CONFIG_MAP, make) as world:
        for name in "abc":
            world.create(name)
        world.run(60.0)
        assert [e.at for e in world.journal.of("life")] == [5.0, 10.0, 15.0]
        assert not [call for call in world.journal.of("call") if call.error]


def test_a_stop_cancels_the_coroutines_that_wait_in_the_order_of_their_calls() -> None:
    def make(replica: Replica) -> Any:
        async def reconcile(request: Request) -> None:
            try:
                await asyncio.sleep(3600.0)
            except asyncio.CancelledError:
                replica.world.note("the test", "life", f"cancels {request.name}")
                raise

        manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
        builder = controller_for(manager).named("own").for_(CONFIG_MAP)
        options = ControllerOptions(max_concurrent_reconciles=8)
        builder.with_options(options).complete(replica.recorded(reconcile))
        return manager

    with World(CONFIG_MAP, make) as world:
        for name in "abcdefgh":
            world.create(name)
        world.run(10.0)
        world.restart()
        notes = [entry for entry in world.journal.of("life") if entry.who == "the test"]
        assert [entry.text for entry in notes] == [f"cancels {name}" for name in "abcdefgh"]
        assert {entry.at for entry in notes} == {10.0}


def test_what_a_coroutine_writes_is_part_of_its_call() -> None:
    def make(replica: Replica) -> Any:
        async def reconcile(request: Request) -> None:
            patch = MergePatch({"status": {"of": request.name}})
            replica.client.status.patch(WIDGET, request.name, patch, namespace=request.namespace)

        return reconcile

    with World(WIDGET, make) as world:
        for name in "ab":
            world.create(name, {"size": 1})
        world.run(1.0)
        writes = world.journal.of("write")
        assert writes
        assert all(write.within and write.within.key == write.key for write in writes)


@pytest.mark.parametrize("name", ["Lock", "RLock"])
def test_a_lock_may_be_held_during_a_request(name: str) -> None:
    def make(replica: Replica) -> Manager:
        lock = getattr(threading, name)()

        def reconcile(request: Request) -> None:
            with lock:
                patch = MergePatch({"status": {"size": 1}})
                replica.client.status.patch(
                    WIDGET, request.name, patch, namespace=request.namespace
                )

        manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
        builder = controller_for(manager).named("own").for_(WIDGET)
        options = ControllerOptions(max_concurrent_reconciles=3)
        builder.with_options(options).complete(replica.recorded(reconcile))
        return manager

    # Another thread goes on during a request.
    with World(WIDGET, make, seed=1) as world:
        for name in "abcdef":
            world.create(name, {"size": 1})
        world.run(10.0)
        assert all(obj.status["size"] == 1 for obj in world.objects())
        assert not [call for call in world.journal.of("call") if call.error]


def test_pools_of_threads_are_simulated() -> None:
    def make(replica: Replica) -> Any:
        def reconcile(_request: Request) -> None:
            with ThreadPoolExecutor(2) as pool:
                waits = [pool.submit(threading.Event().wait, 30.0) for _ in range(4)]
                for wait in waits:
                    wait.result()
            replica.world.note("the test", "life", "has waited")

        return reconcile

    with World(CONFIG_MAP, make) as world:
        world.create("a")
        world.run(100.0)
        assert [e.at for e in world.journal.of("life")] == [60.0]


def test_a_queue_waits_on_the_same_clock() -> None:
    waited: list[float] = []

    def make(replica: Replica) -> Any:
        def reconcile(_request: Request) -> None:
            with pytest.raises(queue.Empty):
                queue.Queue().get(timeout=30.0)
            waited.append(replica.clock.monotonic())

        return reconcile

    with World(CONFIG_MAP, make) as world:
        world.create("a")
        world.run(31.0)
    assert waited == [30.0]


class _NeverEnds:
    def __init__(self, _replica: Replica) -> None:
        pass

    def run(self, _stop: object) -> None:
        changed = threading.Condition()
        with changed:
            while True:
                changed.wait(60.0)


def test_a_thread_that_ignores_its_stop_is_ended_with_the_world() -> None:
    before = set(threading.enumerate())
    world = World(CONFIG_MAP, _NeverEnds)
    with world:
        world.run(1.0)
        with pytest.raises(RuntimeError, match="still running 900 s after their stop: operator-1"):
            world.close()
    assert set(threading.enumerate()) == before


def test_the_error_of_the_block_is_not_replaced_by_that_of_a_thread_that_ignores_its_stop() -> None:
    error = AssertionError("of the test")
    with contextlib.suppress(AssertionError), World(CONFIG_MAP, _NeverEnds) as world:
        world.run(1.0)
        raise error
    assert "operator-1" in error.__notes__[0]


def test_what_threads_use_to_wait_is_simulated_for_them_and_real_for_others() -> None:
    told: list[float] = []
    real = threading.Event()

    def make(replica: Replica) -> Any:
        def reconcile(_request: Request) -> None:
            done = threading.Event()
            helper = threading.Thread(target=lambda: done.wait(3600.0) or done.set())
            helper.start()
            helper.join()
            told.append(replica.clock.monotonic())

        return reconcile

    outside = threading.Thread(target=real.wait, args=(20.0,))
    outside.start()
    with World(CONFIG_MAP, make) as world:
        world.create("a", {})
        world.run(7200.0)
    real.set()
    outside.join(10.0)
    assert told[0] == 3600.0
    assert not outside.is_alive()


def test_a_manager_of_ones_own_runs_on_what_the_replica_gives() -> None:
    def make(replica: Replica) -> Manager:
        manager = Manager(
            replica.config,
            clock=replica.clock,
            metrics=replica.metrics,
            leader_election=LeaderElection(id="own", namespace="default", identity=replica.name),
        )
        reconcile = replica.recorded(lambda request: None)
        controller_for(manager).named("own").for_(CONFIG_MAP).complete(reconcile)
        return manager

    with World(CONFIG_MAP, make) as world:
        world.create("a", {"data": {"x": "1"}})
        world.run(1.0)
        assert "operator reconciles a" in world.timeline("a")


def test_watchers_are_run_by_a_controller_that_is_made_for_them() -> None:
    with World(CONFIG_MAP, lambda replica: [SimpleWatcher(), SimpleWatcher()]) as world:
        world.create("a", {"data": {"x": "1"}})
        world.run(1.0)
        world.replace("a", {"data": {"x": "2"}})
        world.run(1.0)
        world.delete("a")
        world.run(1.0)
        assert [(call.watcher, call.action) for call in world.journal.of("call")] == [
            (number, action) for action in ("CREATE", "UPDATE", "DELETE") for number in (0, 1)
        ]


def test_watchers_of_two_replicas_are_called_on_the_one_that_leads() -> None:
    def make(replica: Replica) -> Any:
        return [SimpleWatcher(), SimpleWatcher()]

    with World(CONFIG_MAP, make, replicas=2, leader_election=True) as world:
        world.create("a", {"data": {"x": "1"}})
        world.run(30.0)
        assert [call.who for call in world.journal.of("call")] == ["operator-1", "operator-1"]
        world.freeze(60.0)
        world.run(60.0)
        assert {call.who for call in world.journal.of("call")} == {"operator-1", "operator-2"}


@pytest.mark.parametrize("seed", [0, 7])
def test_who_never_had_the_lease_may_write(seed: int) -> None:
    class Beat:
        needs_leader_election = False

        def __init__(self, replica: Replica, manager: Manager) -> None:
            self.name, self.client = replica.name, manager.live_client

        def run(self, stop: StopSignal) -> None:
            while not stop.wait(5.0):
                with contextlib.suppress(AlreadyExists):
                    self.client.create(
                        MutableObject.new(CONFIG_MAP, self.name, namespace="default", data={})
                    )

    def make(replica: Replica) -> Manager:
        election = LeaderElection(id="own", namespace="default", identity=replica.name)
        manager = Manager(replica.config, leader_election=election)
        manager.add(Beat(replica, manager))
        return manager

    # Both create the Lease, and one is refused.
    with World(WIDGET, make, replicas=2, seed=seed) as world:
        world.run(60.0)
        assert {obj.name for obj in world.objects(CONFIG_MAP)} == {"operator-1", "operator-2"}


@pytest.mark.parametrize("seed", range(5))
def test_a_call_that_a_pause_interrupts_writes_nothing_once_the_lead_is_lost(seed: int) -> None:
    def make(replica: Replica) -> Any:
        def add(_: Object) -> None:
            threading.Event().wait(1.0)

        return OpinionatedWatcher(WIDGET, replica.client, add=add, delete=lambda _: None)

    with World(WIDGET, make, replicas=2, leader_election=True, seed=seed) as world:
        world.run(0.0)
        for number in range(2):
            world.freeze(40.0, number)
            world.create(f"w{number}", {"size": 1})
            world.run(600.0)


def test_leader_election_is_refused_for_what_has_its_own() -> None:
    def make(replica: Replica) -> Any:
        return [Manager(replica.config, clock=replica.clock, metrics=replica.metrics)]

    with pytest.raises(ValueError, match=r"leader_election=True is for watchers and reconcilers"):
        World(WIDGET, make, replicas=2, leader_election=True).__enter__()


def test_calls_and_writes_say_of_which_kind_they_are() -> None:
    with World(WIDGET, secret_of_its_name) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
        told = {(entry.what, entry.kind) for entry in world.journal.entries}
        assert told == {
            ("step", "widgets.example.com"),
            ("call", "widgets.example.com"),
            ("write", "secrets"),
            ("call", "secrets"),
        }
        assert "operator is called for a: creates secrets a" in world.timeline("a")
        assert "operator is called for secrets a" in world.timeline("a")


def test_what_is_recorded_for_no_kind_is_refused() -> None:
    def make(replica: Replica) -> Any:
        return replica.recorded(lambda request: None, kind="secrets")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="kind='secrets' is not a Kind"):
        World(WIDGET, make).__enter__()


def test_an_operator_that_ends_again_and_again_is_told() -> None:
    class Broken:
        def run(self, _stop: object) -> None:
            raise OSError("no disk")

    with (
        World(WIDGET, lambda replica: Broken()) as world,
        pytest.raises(BrokenPromise, match="operator ends again and again: OSError"),
    ):
        world.run(1.0)


def test_what_cannot_be_run_is_refused() -> None:
    for made in (3, []):
        with pytest.raises(TypeError, match="make must return watchers, a reconciler"):
            World(WIDGET, lambda replica, made=made: made).__enter__()


def test_the_clock_is_a_manual_one_like_any_other() -> None:
    with World(WIDGET, resizing) as world:
        assert isinstance(world.clock, ManualClock)
        before = world.clock.monotonic()
        world.run(5.0)
        assert world.clock.monotonic() == before + 5.0


def test_watchers_and_reconcilers_run_together_in_the_order_they_were_given() -> None:
    calls: list[str] = []

    def note(name: str) -> Callable[[Any], None]:
        return lambda *_: calls.append(name)

    class Quiet:
        def concerns(self, old: Object, new: Object) -> bool:
            return False

        def reconcile(self, request: ReconcileRequest) -> None:
            calls.append(f"quiet {request.action.name}")

    def make(replica: Replica) -> list[Any]:
        def by_key(request: Request) -> Result:
            calls.append(f"key {request.name}")
            return Result(requeue_after=20.0)

        return [
            SimpleWatcher(add=note("add"), update=lambda old, new: calls.append("update")),
            SimpleReconciler(note("reconcile")),
            by_key,
            Quiet(),
        ]

    with World(CONFIG_MAP, make) as world:
        world.create("a")
        world.run(5.0)
        assert calls == ["add", "reconcile", "key a", "quiet CREATE"]
        calls.clear()
        world.patch("a", {"data": {"k": "v"}})
        world.run(5.0)
        assert calls == ["update", "reconcile", "key a"]
        calls.clear()
        world.run(20.0)
        assert calls == ["key a"]
        assert len({entry.watcher for entry in world.journal.of("call")}) == 4


@pytest.mark.parametrize("leader_election", [False, True])
def test_an_opinionated_reconciler_is_called_with_its_objects(leader_election: bool) -> None:
    cleaned: list[str] = []

    def reconcile(request: ReconcileRequest) -> None:
        if request.action is ResourceAction.DELETE:
            cleaned.append(request.object.name)

    def make(replica: Replica) -> OpinionatedReconciler:
        return OpinionatedReconciler(
            SimpleReconciler(reconcile),
            CONFIG_MAP,
            replica.client,
            finalizer=lambda _: "example.com/f",
        )

    with World(CONFIG_MAP, make, leader_election=leader_election) as world:
        world.create("a")
        world.run(60.0)
        found = world.find("a")
        assert found is not None
        assert found.finalizers == ("example.com/f",)
        world.delete("a")
        world.run(60.0)
        assert cleaned == ["a"]
        assert world.find("a") is None


def locking(replica: Replica) -> Any:
    locks = replica.world.elsewhere

    def reconcile(request: Request) -> None:
        locks.setdefault(request.name, replica.process)
        try:
            operators.size_in_status(replica)(request)
        finally:
            if locks[request.name] == replica.process:
                del locks[request.name]

    return reconcile


@pytest.mark.parametrize("write_fault", ["crash before", "crash after"])
def test_a_crashed_process_runs_no_finally(write_fault: str) -> None:
    with World(WIDGET, locking) as world:
        world.write_faults = ["", write_fault]
        world.create("a", {"size": 1})
        world.create("b", {"size": 1})
        world.run(600.0)
        assert world.elsewhere == {"b": 1}
        assert [widget.status for widget in world.objects()] == [{"size": 1}] * 2


def test_an_operator_that_is_down_does_nothing_until_it_starts_again() -> None:
    with World(WIDGET, operators.size_in_status, replicas=2) as world:
        world.down(60.0)
        world.create("a", {"size": 1})
        for number in range(2):  # of what is down
            world.freeze(10.0, number)
            world.crash(number)
            world.restart(number)
        world.run(59.0)
        assert not world.journal.of("write")
        world.run(2.0)
        assert [widget.status for widget in world.objects()] == [{"size": 1}]
        assert [replica.process for replica in world.replicas] == [2, 2]
        world.crash()
        world.restart()
        world.run(1.0)
        assert [replica.process for replica in world.replicas] == [3, 2]


def test_a_process_that_cannot_begin_again_is_told_with_its_timeline() -> None:
    def make(replica: Replica) -> Any:
        if replica.process > 1:
            raise OSError("created already")
        return lambda request: None

    with World(WIDGET, make) as world:
        world.crash()
        with pytest.raises(BrokenPromise, match="ends again and again: OSError"):
            world.run(1.0)


class Failing:
    """Fails as a watcher and as a reconciler."""

    def add(self, obj: Object) -> None:
        raise ValueError("no")

    def update(self, old: Object, new: Object) -> None: ...

    def delete(self, obj: Object) -> None: ...


class FailingReconciler:
    def reconcile(self, request: Any) -> None:
        raise ValueError("no")


def fail(request: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (fail, "fail"),
        (functools.partial(fail), "fail"),
        (FailingReconciler(), "FailingReconciler.reconcile"),
        (FailingReconciler().reconcile, "FailingReconciler.reconcile"),
        (Failing(), "Failing.add"),
        ([Failing(), fail], "fail"),
        (SimpleReconciler(fail), "fail"),
    ],
    ids=["function", "partial", "object", "method", "watcher", "beside a watcher", "simple"],
)
def test_logs_name_the_users_function(
    target: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with World(WIDGET, lambda replica: target) as world:
        world.create("a", {"size": 1})
        world.run(1.0)
    failures = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any(text.startswith(f"{name} failed") for text in failures), failures
    assert not any("Recorded" in text for text in failures)


def test_check_operator_names_the_line_of_a_thread_that_ignores_its_stop() -> None:
    app = App("widget-operator")

    @app.background(WIDGET)
    def follow(live: Live, stop: StopSignal) -> None:
        while live.object.name:
            threading.Event().wait(60.0)

    with pytest.raises(BrokenPromise, match="still running 900 s after") as raised:
        check_operator(app, replay=["create a {}"])
    headline, *timeline = str(raised.value).splitlines()
    assert re.search(
        r"background-follow/default/a, at \w+\.follow \(test_world\.py:\d+\)", headline
    )
    assert "somebody creates a {}" in timeline[0]
