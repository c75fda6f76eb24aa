"""CHAIN across crashes, lost answers and downtime, where handled states are remembered."""

from __future__ import annotations

import json
import threading
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import strategies as st

from appsdk_operator.app import App, HandledStates
from appsdk_operator.app._due import ObjectState
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.app._handled import Handled, HandledState
from appsdk_operator.app._remember import AnnotationRecords
from appsdk_operator.client import MergePatch
from appsdk_operator.resource import Kind, Object, field, labels
from appsdk_operator.runtime import current_stop
from appsdk_operator.testing import BrokenPromise, Promise, World, check_operator
from tests.hypothesis_profiles import scaled


@attrs.frozen
class ThingSpec:
    a: int = 0
    b: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
SPECS = st.fixed_dictionaries({"a": st.integers(1, 3), "b": st.integers(1, 3)})


def nothing(*_: Any) -> None: ...


def update(old: Object, new: Object) -> None: ...


def set_a(old: Object, new: Object) -> None: ...


def remembering(
    *, has_add: bool = True, states: HandledStates | None = None, **options: Any
) -> App:
    app = App("thing-operator", handled_states=states, **options)
    app.own(THING)
    if has_add:
        app.on_add(THING)(nothing)
    app.on_update(THING)(update)
    app.on_update(THING, when=field("spec.a").changed)(set_a)
    app.on_update(THING, where=labels("touched"))(nothing)
    app.every(40, THING)(nothing)
    return app


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("has_add", [True, False], ids=["with a finalizer", "without one"])
def test_no_change_is_lost_to_a_crash_or_while_the_operator_is_down(
    has_add: bool, replicas: int
) -> None:
    check_operator(
        remembering(has_add=has_add),
        specs=SPECS,
        replicas=replicas,
        leader_election=replicas > 1,
        max_examples=scaled(16 // replicas),
    )


class Place:
    """A place for records that is slow, fails, and asks the server, by turns; new in each history.

    What was stored survives a crash.
    """

    def __init__(self, turns: list[str]) -> None:
        self.app: App | None = None
        self.texts: dict[str, str] = {}
        self._added: dict[str, int] = {}
        self._turns = turns
        self._count = 0
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """Called after each step; before the first one that creates nothing is stored."""
        if world is not self._world:
            self._world, self._count = world, 0
            self.texts.clear()
            self._added.clear()

    def check_added(self, world: World) -> None:
        """No object that is recorded as added is added again, whatever became of a load."""
        for entry in world.journal.of("function"):
            is_again = entry.declared.cause == "add" and entry.uid in self._added
            assert not (is_again and entry.began > self._added[entry.uid]), entry

    def load(self, obj: Object, /) -> str | None:
        self._turn(obj)
        return self.texts.get(obj.uid)

    def store(self, obj: Object, state: str | None, /) -> None:
        turn = self._turn(obj)
        if state is None:
            self.texts.pop(obj.uid, None)
        else:
            self.texts[obj.uid] = state
            if "nothing" in json.loads(state).get("done", ()):
                assert self._world is not None
                self._added.setdefault(obj.uid, self._world.journal.steps)
        if turn == "fails afterwards":
            raise ConnectionError("the answer is lost")

    def _turn(self, obj: Object) -> str:
        self._count += 1
        turn = self._turns[self._count % len(self._turns)]
        assert self.app is not None
        match turn:
            case "fails":
                raise ConnectionError("the place is down")
            case "is slow":
                threading.Event().wait(20)
            case "hangs":
                threading.Event().wait(400)
            case "reads":
                self.app.live_client.get(THING, obj.name, namespace=obj.namespace)
            case "writes":
                patch = MergePatch({"metadata": {"annotations": {"seen": str(self._count % 3)}}})
                self.app.client.patch(THING, obj.name, patch, namespace=obj.namespace)
        return turn


@pytest.mark.parametrize(
    "turns",
    [
        ["hangs"],
        ["writes", "fails afterwards"],
        ["is slow", "reads", "fails"],
        ["fails", "hangs", "writes", "fails afterwards", "is slow"],
    ],
    ids=",".join,
)
def test_no_change_is_lost_in_a_place_that_is_slow_fails_or_asks_the_server(
    turns: list[str],
) -> None:
    place = Place([*turns, "ok", "ok"])
    place.app = remembering(states=place, time_limit=None)
    check_operator(
        place.app,
        # Its own writes are some after a restart, and a timer waits while it hangs.
        promises=set(Promise) - {Promise.IDEMPOTENCE, Promise.TIMERS},
        specs=SPECS,
        always=place.begin,
        at_rest=place.check_added,
        max_examples=scaled(8),
    )


def test_an_add_that_is_recorded_is_not_repeated_when_the_object_changes_after_a_failed_load() -> (
    None
):
    place = Place(["ok", "ok", "ok", "fails", "ok", "ok"])
    place.app = remembering(states=place, time_limit=None)
    check_operator(
        place.app,
        always=place.begin,
        at_rest=place.check_added,
        replay=[
            'create a {"a": 1, "b": 1}',
            "wait 1",
            "crash",
            "wait 0",
            'spec a {"a": 1, "b": 2}',
        ],
    )


@pytest.mark.parametrize("turn", ["fails", "fails afterwards", "hangs"])
def test_what_changes_before_the_first_record_is_stored_is_not_lost(turn: str) -> None:
    place = Place(["ok", "ok", turn, turn, turn, "ok"])
    place.app = remembering(states=place, time_limit=None)
    check_operator(
        place.app,
        always=place.begin,
        at_rest=place.begin,
        promises=[Promise.CHAIN, Promise.NO_HOT_LOOP],
        replay=['create a {"a": 3, "b": 3}', "wait 1", "crash", 'spec a {"a": 2, "b": 2}'],
    )


UNRECORDED = [
    *('create a {"a": 1, "b": 3}', "wait 60"),
    *('spec a {"a": 2, "b": 3}', "wait 60", "crash", 'spec a {"a": 1, "b": 3}'),
]


def test_a_change_that_was_handled_not_recorded_and_reverted_while_down_is_the_known_limit() -> (
    None
):
    """For a function with when= alone, and only if its call went back to the recorded value."""
    for last in (1, 3):
        replay = [
            step.replace('"a": 1', f'"a": {last}', n > 1) for n, step in enumerate(UNRECORDED)
        ]
        # The store after the call hangs.
        place = Place(["ok", "ok", "ok", "hangs"])
        place.app = remembering(states=place, time_limit=None)
        check_operator(
            place.app,
            always=place.begin,
            at_rest=place.begin,
            promises=[Promise.CHAIN],
            replay=replay,
        )


@pytest.mark.parametrize("has_add", [True, False])
def test_a_new_leader_goes_on_from_what_the_last_one_has_recorded(has_add: bool) -> None:
    begins = ["seed 1", 'create a {"a": 1, "b": 3}']
    late = [*begins, "wait 0", "lag 60", "crash", 'spec a {"b": 2, "a": 2}', "wait 90"]
    # The first one stands still, and does not know yet that another one leads.
    changes = ['spec a {"a": 2, "b": 3}', "wait 1", 'spec a {"a": 3, "b": 3}', "wait 1"]
    lost = [*begins, "wait 1", "freeze operator-2 90", *changes, "wait 60"]
    for replay in (late, [*lost, 'spec a {"a": 4, "b": 3}', "wait 90", "crash", *changes]):
        check_operator(
            remembering(has_add=has_add), replicas=2, leader_election=True, replay=replay
        )


def test_an_add_that_the_last_leader_recorded_is_not_repeated_by_one_that_saw_it_begin() -> None:
    app, began = App("thing-operator", leader_election=True), list[str]()
    app.own(THING)
    app.on_update(THING)(nothing)
    app.on_delete(THING)(nothing)

    @app.on_add(THING)
    def make(thing: Object[ThingSpec]) -> None:
        began.append(thing.name)
        current_stop().wait(10)

    with World(THING, app, replicas=2) as world:
        world.run(30)
        world.create("a", {"a": 1, "b": 1})
        world.run(1)
        world.restart(1)
        world.run(1)
        world.lag(90)
        world.run(10)
        world.crash(0)
        world.run(200)
    assert began == ["a"]


CRASHES = ("ok", "crash before", "crash after", "lost", "409", "500")


def history(place: int, fault: str, *, is_down: bool) -> list[str]:
    """A creation, three changes and a deletion, with a fault at the write of this number."""
    writes = [f"write {'ok'}"] * place + [f"write {fault}"]
    changes = ['spec a {"a": 2, "b": 1}', 'spec a {"a": 2, "b": 2}', 'spec a {"a": 3, "b": 2}']
    between = ["down 60", "wait 30"] if is_down else ["wait 30"]
    steps = [step for change in changes for step in (*between[:1], change, "wait 90")]
    return [*writes, 'create a {"a": 1, "b": 1}', "wait 30", *steps, "label a 1", "delete a"]


class Elsewhere:
    """What the functions set elsewhere, each from the state that it has handled."""

    def __init__(self) -> None:
        self.by_uid: dict[str, dict[str, int]] = {}
        self.repeated = 0

    def app(self) -> App:
        app = App("thing-operator")
        app.own(THING)

        @app.on_add(THING)
        def make(thing: Object[ThingSpec]) -> None:
            self.by_uid[thing.uid] = {"a": thing.spec.a, "b": thing.spec.b}

        @app.on_update(THING, when=field("spec.a").changed)
        def set_a(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
            self._move(new.uid, "a", old.spec.a, new.spec.a)

        @app.on_update(THING, when=field("spec.b").changed)
        def set_b(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
            self._move(new.uid, "b", old.spec.b, new.spec.b)

        @app.on_delete(THING)
        def remove(thing: Object[ThingSpec]) -> None:
            self.by_uid.pop(thing.uid, None)

        return app

    def _move(self, uid: str, name: str, old: int, new: int) -> None:
        present = self.by_uid[uid][name]
        assert present in (old, new), f"{name} is {present}, and {old} was handled"
        self.repeated += present == new
        self.by_uid[uid][name] = new

    def check(self, world: World) -> None:
        present = {thing.uid: thing for thing in world.objects()}
        assert self.by_uid.keys() == present.keys()
        for uid, thing in present.items():
            assert self.by_uid[uid] == {"a": thing.spec.a, "b": thing.spec.b}


@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("fault", CRASHES)
def test_a_crash_before_and_after_each_write_loses_nothing_and_repeats_one_success(
    fault: str, is_down: bool
) -> None:
    for place in range(7):
        elsewhere = Elsewhere()
        check_operator(
            elsewhere.app(),
            at_rest=elsewhere.check,
            replay=history(place, fault, is_down=is_down),
        )
        assert elsewhere.repeated <= (fault in CRASHES[1:])


# Defects of it.


def forgets(self: Any, obj: Any) -> Any:
    return None


def one_state_for_all(self: Any) -> Handled:
    made = _record(self)
    states = list(made.states.values())
    return (
        msgspec.structs.replace(made, states=dict.fromkeys(made.states, states[0]))
        if states
        else made
    )


def the_present_state(self: Any, obj: Any) -> bool:
    return True


def records_before_the_call(self: Any) -> Handled:
    present = {
        each.name: HandledState.of(self.present, each.paths)
        for each in self._functions
        if each.cause == "update"
    }
    return msgspec.structs.replace(_record(self), states=present)


def never_saves(self: Any, known: Any, recording: Any, record: Any) -> None:
    known.state.saved()


_record = ObjectState.record


def check_histories() -> None:
    for place, fault in ((6, "ok"), (2, "crash before"), (3, "crash after")):
        check_operator(
            remembering(),
            promises=[Promise.CHAIN],
            replay=[
                *history(place, fault, is_down=True)[:-2],
                *("function ok", "function fails", "function fails"),
                'spec a {"a": 4, "b": 2}',
                "wait 1",
                "down 60",
                "wait 90",
                *("down 60", 'spec a {"a": 6, "b": 2}', "wait 90"),
            ],
        )


def test_the_histories_of_the_defects_hold_without_one() -> None:
    check_histories()


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (AnnotationRecords, "stored", forgets),
        (ObjectState, "record", one_state_for_all),
        (ObjectState, "record", records_before_the_call),
        (HandledState, "is_of", the_present_state),
        (KindFunctions, "_save", never_saves),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(BrokenPromise, match="chain"):
        check_histories()
