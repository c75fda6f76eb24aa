"""At most one background function runs for an object, whichever replica leads; none outlives it."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator import App, Kind, Live, Object, StopSignal, labels
from appsdk_operator.manager import LeaderElection, pause_operator, resume_operator
from appsdk_operator.testing import FaultRule, World
from appsdk_operator.testing._world import scheduler
from appsdk_operator.watchers import ConstantBackoff
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
RED: Any = labels("color=red")
ELECTION = LeaderElection(id="thing-operator", namespace="default")
BETWEEN = ELECTION.lease_duration - ELECTION.renew_deadline - ELECTION.retry_period
"""Seconds from the stop in a replica that has lost its lease to the start in the next leader."""


class Runs:
    """The runs of a background function in all processes of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now: dict[int, tuple[Any, Object]] = {}
        """Those that have not ended: the process, and the object at their start."""
        self.count = 0
        self.overlaps: list[str] = []
        self.outlived: list[str] = []

    def begin(self, obj: Object) -> int:
        process = scheduler._here.fiber.owner
        for other, before in self.living():
            if before.name == obj.name:
                self.overlaps.append(f"{process} begins one for {obj.uid}, {other} has one")
        self.count += 1
        self.now[self.count] = (process, obj)
        return self.count

    def end(self, number: int) -> None:
        del self.now[number]

    def living(self) -> list[tuple[Any, Object]]:
        """What runs in a process that has not crashed; threads may outlive one that has ended."""
        return [each for each in self.now.values() if each[0] not in self.world._crashed]

    def check(self) -> None:
        """None is for an object that does not exist any more."""
        present = {obj.uid for obj in self.world.objects()}
        self.outlived += [
            f"{obj.uid} of {process}" for process, obj in self.living() if obj.uid not in present
        ]


RUNS: list[Runs] = []


def operator(*, is_async: bool, slow: float) -> App:
    """An App with a background function that ends ``slow`` seconds after its stop.

    It also ends by itself after a minute, and begins again.
    """
    app = App("thing-operator", leader_election=ELECTION, retry_policy=ConstantBackoff(3.0))
    app.on_add(THING)(lambda thing: None)

    if is_async:

        @app.background(THING, where=RED)
        async def follow_async(live: Live, stop: StopSignal) -> None:
            number = RUNS[-1].begin(live.object)
            try:
                if not await stop.wait_async(60.0):
                    raise ConnectionError(live.object.name)
                await StopSignal().wait_async(slow)
            finally:
                RUNS[-1].end(number)

    else:

        @app.background(THING, where=RED)
        def follow(live: Live, stop: StopSignal) -> None:
            number = RUNS[-1].begin(live.object)
            try:
                if not stop.wait(60.0):
                    raise ConnectionError(live.object.name)
                StopSignal().wait(slow)
            finally:
                RUNS[-1].end(number)

    return app


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 4.0, 30.0])),
        st.tuples(st.sampled_from(["restart", "crash", "cut off"]), st.integers(0, 1)),
        st.tuples(st.just("down"), st.just(20.0)),
        st.tuples(st.just("paint"), st.sampled_from(["red", "blue"])),
        st.tuples(st.just("make anew"), st.just(0)),
        st.tuples(st.just("pause"), st.sampled_from([1.0, 30.0])),
    ),
    max_size=6,
)


def move(world: World, what: str, value: Any) -> None:
    match what:
        case "wait":
            world.run(value)
        case "restart":
            world.restart(value)
        case "crash":
            world.crash(value)
        case "cut off":
            # It cannot renew its Lease until the other one has had the time to take it.
            name = world.replicas[value].name
            world.server.api.inject([FaultRule.answer(503, kind="Lease", user_agent=name)])
            world.run(40.0)
            world.server.api.clear_faults()
        case "down":
            world.down(value)
        case "paint":
            world.patch("a", {"metadata": {"labels": {"color": value}}})
        case "make anew":
            world.delete("a")
            for _ in range(60):
                if not world.objects():
                    break
                world.run(1.0)
            world.create("a", labels={"color": "red"})
        case "pause":
            pause_operator(
                world.client, ELECTION.id, namespace="default", seconds=600.0, reason="a", by="b"
            )
            world.run(value)
            # Replicas see a pause within 4 s, and the slowest function ends after 20 s.
            assert value < 30.0 or not RUNS[-1].living()
            resume_operator(world.client, ELECTION.id, namespace="default")
    RUNS[-1].check()


def lived(app: App, moves: list[tuple[str, Any]], seed: int = 0) -> Runs:
    """The runs of a world with two replicas and these moves."""
    with World(THING, app, replicas=2, seed=seed) as world:
        RUNS[:] = [runs] = [Runs(world)]
        world.create("a", labels={"color": "red"})
        world.run(20.0)
        for what, value in moves:
            move(world, what, value)
        world.run(120.0)
        runs.check()
        [thing] = world.objects()
        is_wanted = thing.labels.get("color") == "red"
        begun = runs.count
        world.run(70.0)
        assert (runs.count > begun) is is_wanted, "one begins again where it is wanted, only there"
        world.delete("a")
        world.run(60.0)
        assert not world.objects()
        assert not runs.living()
        assert runs.count
    return runs


@settings(max_examples=scaled(8), deadline=None)
@given(
    is_async=st.booleans(),
    slow=st.sampled_from([0.0, 2.0, 20.0]),
    moves=MOVES,
    seed=st.integers(0, 3),
)
@example(is_async=False, slow=2.0, moves=[("cut off", 0), ("cut off", 1)], seed=0)
@example(is_async=True, slow=20.0, moves=[("cut off", 0), ("cut off", 1)], seed=0)
@example(is_async=False, slow=20.0, moves=[("restart", 0), ("restart", 1)], seed=0)
@example(is_async=False, slow=2.0, moves=[("make anew", 0), ("crash", 0)], seed=0)
@example(is_async=True, slow=2.0, moves=[("pause", 30.0), ("paint", "blue")], seed=0)
def test_at_most_one_runs_for_an_object_in_all_replicas(
    is_async: bool, slow: float, moves: list[tuple[str, Any]], seed: int
) -> None:
    if slow > BETWEEN and not is_async:
        # A thread cannot be ended, and the lease is lost before it ends.
        moves = [each for each in moves if each[0] != "cut off"]
    runs = lived(operator(is_async=is_async, slow=slow), moves, seed)
    assert not runs.overlaps
    assert not runs.outlived
