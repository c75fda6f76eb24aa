"""The sixth promise: whatever crash comes at whatever point, no deletion and no add is missed.

Nor by what others do: somebody takes our finalizers off, and writes of ours fail when the callback
before them has succeeded; nor by another name of the operator, nor by a release that spells its
finalizers otherwise. What went while it carried no finalizer of ours and no process knew of it is
all that may go without its clean-up.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from appsdk_operator.cache import ResourceAction
from appsdk_operator.client import ConnectionLost, Forbidden
from appsdk_operator.controllers import Result
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import Entry, Process, Simulation
from appsdk_operator.testing.strategies import faults
from appsdk_operator.watchers import (
    ConstantBackoff,
    OpinionatedReconciler,
    OpinionatedWatcher,
    RetryDequeuePolicy,
    SimpleReconciler,
    keep_all_retries,
    opinionated_retry_dequeue_policy,
)
from tests.hypothesis_profiles import scaled
from tests.simulations import change, die

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
NAMES = ("a", "b")
FOREIGN = ("first.example.org/x", "second.example.org/y", "third.example.org/z")

names = st.sampled_from(NAMES)


@attrs.frozen
class Step:
    """Something that happens in a history."""

    what: str
    name: str = ""
    value: Any = None


steps = st.lists(
    st.one_of(
        st.builds(Step, st.sampled_from(["spec", "status", "label", "delete"]), names),
        st.builds(Step, st.sampled_from(["foreign on", "foreign off"]), names, st.integers(0, 2)),
        st.builds(Step, st.just("strip"), names),
        st.builds(Step, st.just("lag"), names, st.booleans()),
        st.builds(Step, st.sampled_from(["strip", "delete", "catch up", "catch up"]), names),
        st.builds(Step, st.just("poll"), st.just(""), faults()),
        st.builds(Step, st.just("poll"), st.just(""), st.just([])),
        st.builds(Step, st.sampled_from(["handle", "catch up"])),
        st.builds(Step, st.just("advance"), st.just(""), st.sampled_from([1.0, 40.0])),
        st.builds(Step, st.sampled_from(["restart", "compact", "rename"])),
    ),
    min_size=4,
    max_size=40,
)
# Mostly there is something already, of which the operator knows; else the half of what befalls
# objects would befall none.
beginnings = st.sampled_from(
    [
        [],
        [Step("spec", "a")],
        [Step("spec", "a"), Step("catch up")],
        [Step("spec", "a"), Step("spec", "b"), Step("catch up")],
        # A release under another name finds what the one before left, deletions among it.
        [Step("spec", "a"), Step("spec", "b"), Step("catch up"), Step("rename")],
        [Step("spec", "a"), Step("catch up"), Step("rename"), Step("delete", "a")],
    ]
)
histories = st.builds(lambda beginning, rest: [*beginning, *rest], beginnings, steps)

# What befalls each write of the operator, in turn.
OK, DIE_BEFORE, DIE_AFTER, RACE, REFUSED, LOST, STRIPPED, LAGGED = range(8)
write_fates = st.lists(
    st.sampled_from([OK, OK, DIE_BEFORE, DIE_AFTER, RACE, REFUSED, LOST, STRIPPED, LAGGED]),
    max_size=25,
)
# What befalls each callback, in turn.
FAIL, DIE_WITHIN, AGAIN, STRIP_WITHIN, CHANGE_WITHIN, DELETE_WITHIN = range(10, 16)
callback_fates = st.lists(
    st.sampled_from(
        [OK, OK, AGAIN, FAIL, FAIL, DIE_WITHIN, STRIP_WITHIN, CHANGE_WITHIN, DELETE_WITHIN]
    ),
    max_size=25,
)
policies = st.sampled_from([None, keep_all_retries, opinionated_retry_dequeue_policy])

WATCHER, RECONCILER = "watcher", "reconciler"


@attrs.frozen
class Release:
    """A release of the operator."""

    name: str
    """What stands in its finalizers."""
    previous: tuple[str, ...] = ("operator",)
    is_older: bool = False
    """It spells its finalizers as grafana-app-sdk does."""

    @property
    def options(self) -> dict[str, Any]:
        given = {} if self.name == "operator" else {"name": self.name}
        return {**given, "previous_names": self.previous}

    @property
    def finalizer(self) -> str:
        return self.older if self.is_older else f"example.com/{self.name}.v1.Widget"

    @property
    def older(self) -> str:
        return f"{self.name}.v1.Widget.example.com"


UNNAMED, SHOP, STORE = Release("operator"), Release("shop"), Release("store", ("shop", "operator"))
OLDER_UNNAMED, OLDER_SHOP = Release("operator", is_older=True), Release("shop", is_older=True)
UPGRADES = [
    (UNNAMED, SHOP, STORE),
    (OLDER_UNNAMED, UNNAMED, SHOP),
    (OLDER_UNNAMED, SHOP, STORE),
    (OLDER_SHOP, SHOP, STORE),
    (OLDER_SHOP, STORE),
]


class World:
    """Objects, other controllers' finalizers, and an operator that may die at any point."""

    def __init__(
        self,
        write_fates: list[int],
        callback_fates: list[int],
        kind: Kind,
        form: str = WATCHER,
        releases: tuple[Release, ...] = (UNNAMED,),
        policy: RetryDequeuePolicy | None = None,
    ) -> None:
        self._releases = releases
        self.has_stripped = False
        self._form = form
        self.added: set[str] = set()
        self.begun: set[str] = set()
        self.deleted: set[str] = set()
        self.told: list[str] = []
        self.foreign: dict[str, list[str]] = {}
        # Who was stripped and carries nothing of ours since; and of these, who no process that
        # lives has been told of: their clean-up may be missed.
        self.stripped: set[str] = set()
        self.excused: set[str] = set()
        # Whom the process that runs was told of, and what succeeded in it and is not to be done
        # again.
        self.known: set[str] = set()
        self.done: set[tuple[str, str]] = set()
        self._write_fates = iter(write_fates)
        self._callback_fates = iter(callback_fates)
        self.is_calm = False
        self._at = 0
        # What a process of the older release has written on since this one has begun.
        self.lagged: set[str] = set()
        self._race = 0
        self.simulation = Simulation(
            kind,
            self._watchers,
            retry_policy=ConstantBackoff(2.0),
            retry_dequeue_policy=policy,
            resync=30.0,
            **self.release.options,
        )
        self.simulation.on_write = lambda _: self._before_write(self.simulation.process)
        self.simulation.on_answer = self._after_write

    @property
    def release(self) -> Release:
        return self._releases[self._at]

    def _watchers(self, process: Process) -> list[OpinionatedWatcher | OpinionatedReconciler]:
        self._write_fault = OK
        self.known.clear()
        self.done.clear()
        self.lagged.clear()
        self.excused |= self.stripped
        name = self.release.finalizer
        # It writes as one whose finalizer somebody chose; what it writes in progress goes with it.
        options: dict[str, Any] = {"finalizer": lambda _: name} if self.release.is_older else {}

        def callback(what: str) -> Any:
            def call(*objects: Object) -> Result | None:
                obj = objects[-1]
                self.known.add(obj.uid)
                self.told.append(f"{what} {obj.uid}")
                assert (what, obj.uid) not in self.done, f"{what} of {obj.uid} is done again"
                if self._form == WATCHER and what == "sync":
                    assert ("add", obj.uid) not in self.done, f"sync of {obj.uid} after its add"
                if what in ("sync", "update"):
                    assert not obj.is_deleting, f"{what} of {obj.uid}, which is being deleted"
                if what == "add":
                    self.begun.add(obj.uid)
                write_fault = OK if self.is_calm else next(self._callback_fates, OK)
                if write_fault == FAIL:
                    raise ValueError("planned")
                if write_fault == DIE_WITHIN:
                    die(process)
                if write_fault == STRIP_WITHIN:
                    self.strip(obj.name)
                if write_fault in (CHANGE_WITHIN, DELETE_WITHIN):
                    self.play(Step("spec" if write_fault == CHANGE_WITHIN else "delete", obj.name))
                if write_fault == AGAIN and self._form == RECONCILER:
                    return Result(requeue_after=3.0)
                if what in ("add", "delete"):
                    self.done.add((what, obj.uid))
                if what == "add":
                    self.added.add(obj.uid)
                elif what == "delete":
                    self.deleted.add(obj.uid)
                else:
                    assert obj.uid in self.added, f"{what} before add had succeeded"
                return None

            return call

        if self._form == RECONCILER:
            calls = {
                ResourceAction.CREATE: callback("add"),
                ResourceAction.RESYNC: callback("sync"),
                ResourceAction.UPDATE: callback("update"),
                ResourceAction.DELETE: callback("delete"),
            }
            inner = SimpleReconciler(lambda request: calls[request.action](request.object))
            return [OpinionatedReconciler(inner, self.simulation_kind, process.client, **options)]
        return [
            OpinionatedWatcher(
                self.simulation_kind,
                process.client,
                **{what: callback(what) for what in ("add", "sync", "update", "delete")},
                **options,
            )
        ]

    simulation_kind = WIDGET

    def _before_write(self, process: Process) -> None:
        self._write_fault = OK if self.is_calm else next(self._write_fates, OK)
        if self._write_fault == DIE_BEFORE:
            die(process)
        if self._write_fault == REFUSED:
            raise Forbidden("planned", status=403, reason="Forbidden")
        if self._write_fault == STRIPPED:
            for name in NAMES:
                self.strip(name)
        if self._write_fault == LAGGED:
            for name in NAMES:
                self.lag(name, is_begun=self._race % 2 == 1)
            self._race += 1
        if self._write_fault == RACE:
            # Another controller is faster.
            self._race += 1
            for name in NAMES:
                self.play(Step("foreign on", name, self._race % 3))
        self.check()

    def _after_write(self, answer: Entry) -> None:
        if answer.status >= 400:
            return
        if self._write_fault == DIE_AFTER:
            die(self.simulation.process)
        self.check()
        if self._write_fault == LOST:
            raise ConnectionLost("planned: the answer is lost")

    def play(self, step: Step) -> None:
        simulation = self.simulation
        if step.what == "poll":
            simulation.poll(*step.value)
        elif step.what == "handle":
            simulation.handle()
            if not simulation.process.is_alive:
                simulation.restart()
        elif step.what == "catch up":
            for _ in range(4):
                self.play(Step("poll", "", []))
                self.play(Step("handle"))
        elif step.what == "advance":
            simulation.advance(step.value)
        elif step.what == "restart":
            simulation.restart()
        elif step.what == "rename":
            self._at = min(self._at + 1, len(self._releases) - 1)
            simulation.restart(**self.release.options)
        elif step.what == "compact":
            simulation.compact()
        elif step.what == "strip":
            self.strip(step.name)
        elif step.what == "lag":
            self.lag(step.name, is_begun=step.value)
        else:
            self._user(step)
        self.check()

    def _user(self, step: Step) -> None:
        simulation, name = self.simulation, step.name
        present = simulation.find(name)
        if present is None:
            if step.what in ("spec", "label"):
                self.foreign[simulation.create(name, spec={"n": 0}).uid] = []
            return
        mine = self.foreign[present.uid]
        if step.what == "spec":
            change(simulation, name, spec={"n": present.spec["n"] + 1})
        elif step.what == "status":
            change(simulation, name, status={"seen": True})
        elif step.what == "label":
            change(simulation, name, labels={"rv": present.resource_version})
        elif step.what == "delete":
            simulation.delete(name)
        else:
            finalizers = list(present.finalizers)
            other = FOREIGN[step.value]
            if step.what == "foreign on" and not present.is_deleting and other not in mine:
                # In the middle of whatever there is, as other controllers do.
                finalizers.insert(len(finalizers) // 2, other)
            elif step.what == "foreign off" and other in mine:
                finalizers.remove(other)
            mine[:] = [f for f in finalizers if f in FOREIGN]
            change(simulation, name, finalizers=finalizers)

    def strip(self, name: str) -> None:
        """Somebody writes a list of finalizers without ours."""
        obj = self.simulation.find(name)
        if obj is None or not ours(obj):
            return
        self.has_stripped = True
        self.stripped.add(obj.uid)
        # What succeeded may be done again.
        self.done -= {("add", obj.uid)}
        if obj.uid not in self.known or not self.simulation.process.is_alive:
            self.excused.add(obj.uid)
        kept = [f for f in obj.finalizers if f in FOREIGN]
        change(self.simulation, name, finalizers=kept)

    def lag(self, name: str, *, is_begun: bool) -> None:
        """A process of the release before, which spells the same name otherwise, still runs."""
        release, obj = self.release, self.simulation.find(name)
        is_one = any(each.is_older and each.name == release.name for each in self._releases)
        if release.is_older or not is_one or obj is None or obj.is_deleting:
            return
        mark = "wip.v1.Widget.example.com" if release.name == "operator" else f"wip.{release.older}"
        theirs = mark if is_begun else release.older
        if {mark, release.older}.intersection(obj.finalizers):
            return
        self.begun.add(obj.uid)
        if not is_begun:
            self.added.add(obj.uid)
        self.lagged.add(obj.uid)
        change(self.simulation, name, finalizers=[*obj.finalizers, theirs])

    def check(self) -> None:
        """What must hold at every moment."""
        there = {obj.uid: obj for obj in self.simulation.objects()}
        for uid, foreign in self.foreign.items():
            obj = there.get(uid)
            if obj is None:
                is_cleaned = uid not in self.begun or uid in self.deleted
                assert is_cleaned or uid in self.stripped, f"{uid} went without cleanup"
            else:
                if ours(obj):
                    self.stripped.discard(uid)
                    self.excused.discard(uid)
                mine = [f for f in obj.finalizers if f in FOREIGN]
                assert mine == foreign, f"{uid}: foreign finalizers are {mine}, not {foreign}"

    def end(self) -> None:
        """Let everything come to rest, with nobody dying any more."""
        self.is_calm = True
        if not self.simulation.process.is_alive:
            self.simulation.restart()
        self.simulation.settle()
        self.check()
        if self.lagged:  # what is on objects since this process has seen them goes with the next
            self.simulation.restart()
            self.simulation.settle()
            self.check()
        there = {obj.uid: obj for obj in self.simulation.objects()}
        for uid in self.begun - self.deleted - self.excused:
            assert uid in there, f"{uid} went without cleanup"
            assert not there[uid].is_deleting, f"{uid} goes without cleanup"


def ours(obj: Object) -> list[str]:
    """Our finalizers on it."""
    return [name for name in obj.finalizers if name not in FOREIGN]


@settings(
    max_examples=scaled(400),
    deadline=None,
    suppress_health_check=[
        *(HealthCheck.too_slow, HealthCheck.data_too_large),
        HealthCheck.function_scoped_fixture,
    ],
)
@pytest.mark.parametrize("form", [WATCHER, RECONCILER])
@given(
    history=histories,
    write_fates=write_fates,
    callback_fates=callback_fates,
    releases=st.sampled_from(UPGRADES),
    policy=policies,
)
# The watch breaks before it shows the finalizer, and the object goes without it meanwhile.
@example(
    history=[
        Step("spec", "a"),
        Step("poll", "", []),
        Step("handle"),
        Step("compact"),
        Step("strip", "a"),
        Step("delete", "a"),
    ],
    write_fates=[],
    callback_fates=[],
    releases=UPGRADES[0],
    policy=None,
)
# Its add fails, and a change that comes before the retry adds it, also with a policy that keeps
# the retry; then its own write is seen before the retry, or after it.
@example(
    history=[Step("spec", "a"), Step("catch up"), Step("spec", "a"), Step("catch up")],
    write_fates=[],
    callback_fates=[FAIL],
    releases=UPGRADES[0],
    policy=opinionated_retry_dequeue_policy,
)
@example(
    history=[
        Step("spec", "a"),
        Step("catch up"),
        Step("spec", "a"),
        Step("poll", "", []),
        Step("handle"),
        Step("advance", "", 40.0),
    ],
    write_fates=[],
    callback_fates=[FAIL],
    releases=UPGRADES[0],
    policy=keep_all_retries,
)
# It is deleted while its add runs, which a change of its spec led to.
@example(
    history=[Step("spec", "a"), Step("catch up"), Step("spec", "a"), Step("catch up")],
    write_fates=[],
    callback_fates=[FAIL, DELETE_WITHIN],
    releases=UPGRADES[0],
    policy=None,
)
# It is deleted while its add runs, and somebody removes the in-progress finalizer before any event
# has shown it.
@example(
    history=[
        Step("spec", "a"),
        Step("poll", "", []),
        Step("handle"),
        Step("compact"),
        Step("strip", "a"),
    ],
    write_fates=[],
    callback_fates=[DELETE_WITHIN],
    releases=UPGRADES[0],
    policy=None,
)
# What is deleted under the operator's earlier name fails to be cleaned up at first.
@example(
    history=[
        Step("spec", "a"),
        Step("catch up"),
        Step("rename"),
        Step("delete", "a"),
        Step("catch up"),
    ],
    write_fates=[],
    callback_fates=[OK, FAIL],
    releases=UPGRADES[0],
    policy=None,
)
# It is changed and deleted after it was listed under that name.
@example(
    history=[
        Step("spec", "a"),
        Step("catch up"),
        Step("rename"),
        Step("poll", "", []),
        Step("spec", "a"),
        Step("delete", "a"),
        Step("poll", "", []),
    ],
    write_fates=[],
    callback_fates=[],
    releases=UPGRADES[0],
    policy=None,
)
# The finalizer cannot be written after its add, and meanwhile a process of the release before,
# which spells it otherwise, has written its own.
@example(
    history=[Step("spec", "a"), Step("catch up"), Step("poll", "", []), Step("rename")],
    write_fates=[OK, OK, LAGGED, REFUSED],
    callback_fates=[FAIL],
    releases=UPGRADES[1],
    policy=None,
)
def test_no_object_goes_without_its_cleanup_and_foreign_finalizers_stay_whatever_crashes(
    form: str,
    history: list[Step],
    write_fates: list[int],
    callback_fates: list[int],
    releases: tuple[Release, ...],
    policy: RetryDequeuePolicy | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    world = World(write_fates, callback_fates, WIDGET, form, releases, policy)
    with world.simulation as simulation:
        for step in history:
            world.play(step)
        world.end()
        note(simulation.timeline())
        note("\n".join(world.told))
        assert world.has_stripped or "somebody took finalizer" not in caplog.text
        for obj in simulation.objects():
            if obj.is_deleting:
                assert world.foreign[obj.uid], f"{obj} waits for nobody"
                assert not ours(obj)
            else:
                assert obj.uid in world.added, f"{obj} was never added"
                assert ours(obj) == [world.release.finalizer]


@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("write_fault", [DIE_BEFORE, DIE_AFTER])
@pytest.mark.parametrize("form", [WATCHER, RECONCILER])
def test_a_crash_at_each_write_of_an_objects_life_loses_nothing(
    form: str, write: int, write_fault: int
) -> None:
    world = World([OK] * write + [write_fault], [], WIDGET, form)
    with world.simulation as simulation:
        for step in (Step("spec", "a"), Step("poll", "", [])):
            world.play(step)
        for _ in range(6):
            world.play(Step("handle"))
            world.play(Step("poll", "", []))
        world.play(Step("delete", "a"))
        for _ in range(6):
            world.play(Step("poll", "", []))
            world.play(Step("handle"))
        world.end()
        assert not simulation.objects()
        assert world.added == world.deleted == {made.uid for made in simulation.created}


@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("write_fault", [FAIL, DIE_WITHIN, AGAIN])
@pytest.mark.parametrize("form", [WATCHER, RECONCILER])
def test_whatever_befalls_each_call_of_an_objects_life_loses_nothing(
    form: str, call: int, write_fault: int
) -> None:
    world = World([], [OK] * call + [write_fault], WIDGET, form)
    with world.simulation as simulation:
        for step in ("spec", "spec", "delete"):
            world.play(Step(step, "a"))
            for _ in range(3):
                world.play(Step("catch up"))
                world.play(Step("advance", "", 1.0))
        world.end()
        assert not simulation.objects()
        assert world.added == world.deleted == {made.uid for made in simulation.created}
