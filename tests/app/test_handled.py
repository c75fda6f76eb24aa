"""Records of handled states, and the machine of due calls that begins with one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from appsdk_operator import annotation, kinds
from appsdk_operator.app._due import Function, ObjectState, Step
from appsdk_operator.app._handled import MOST_BYTES, Handled, HandledState, kept_paths
from appsdk_operator.resource import (
    ChangeFilter,
    Kind,
    Object,
    change_filter_of,
    field,
    labels,
)
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")


def thing(version: int = 1, uid: str = "u", kind: Any = THING, **parts: Any) -> Object:
    labels_of, generation = parts.pop("labels", {}), parts.pop("generation", 1)
    metadata = {
        "name": "a",
        "uid": uid,
        "resourceVersion": str(version),
        "generation": generation,
        "labels": labels_of,
        **parts.pop("metadata", {}),
    }
    return Object.from_dict(kind, {"metadata": metadata, **parts})


# What is kept.


@pytest.mark.parametrize(
    ("when", "paths"),
    [
        (None, None),
        (field("spec.a").changed, ("/spec/a",)),
        (field("spec.a").became(3) & field("spec.b").left(3), ("/spec/a", "/spec/b")),
        (field("spec.a").changed | field("spec").changed, ("/spec",)),
        (field("spec.jobs[0].image").changed, ("/spec/jobs",)),
        (field("status.phase").became("Ready"), ("/status/phase",)),
        (annotation("example.com/x.y").changed, ("/metadata/annotations/example.com~1x.y",)),
        # A filter of objects looks at the new one.
        (labels("app=web") & field("spec.a").changed, ("/spec/a",)),
        (labels("app=web"), None),
        (lambda old, new: True, None),
        (field("spec.a").changed & (lambda old, new: True), None),
    ],
)
def test_the_fields_that_a_filter_names_are_kept(when: Any, paths: Any) -> None:
    given: ChangeFilter | None = None if when is None else change_filter_of(when)
    assert kept_paths(given, THING) == paths


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
SPECS = st.dictionaries(st.sampled_from(["a", "b", "a/b", "~"]), JSON, max_size=4)
PATHS = st.none() | st.lists(
    st.sampled_from(["/spec/a", "/spec/b/c", "/spec/a~1b", "/spec/~0", "/metadata/labels"]),
    min_size=1,
    unique=True,
).map(lambda found: tuple(sorted(found)))


@settings(max_examples=scaled(200))
@example(before={"a": [False]}, after={"a": [0]}, paths=None, as_digest=True)
@given(SPECS, SPECS, PATHS, st.booleans())
def test_what_was_kept_comes_back_whatever_the_object_is_now(
    before: Any, after: Any, paths: Any, as_digest: bool
) -> None:
    old, new = thing(1, spec=before, labels={"x": "y"}), thing(2, spec=after, generation=2)
    state = HandledState.of(old, paths)
    handled = Handled(states={"f": state, "g": state}, done=frozenset({"make"}))
    text = handled.to_text(old, digests_only=as_digest)
    found = Handled.from_text(text, new)
    assert found is not None
    assert found.done == {"make"}
    kept = found.states["f"]
    assert kept == found.states["g"]
    assert kept.is_of(old)
    assert kept.is_of(thing(3, spec=before, labels={"x": "y"}))
    # As JSON: to Python False is 0.
    one, other = (
        json.dumps(HandledState.of(obj, paths).values, sort_keys=True) for obj in (old, new)
    )
    is_same = one == other
    restored = kept.restored(new)
    if as_digest:
        assert (restored is None) == (not is_same)
        assert kept.values is None
    else:
        assert restored is not None
        expected = {
            path: value for path, value in (state.values or {}).items() if value is not None
        }
        found_values = HandledState.of(restored, paths).values or {}
        assert {p: v for p, v in found_values.items() if v is not None} == expected
        # Anything else is as it is now.
        assert (restored.uid, restored.name, restored.resource_version) == ("u", "a", "")


def test_a_record_is_of_one_object_and_its_states_are_of_one_version() -> None:
    obj = thing(spec={"a": 1})
    text = Handled(done=frozenset({"make"})).to_text(obj)
    states = {"update": HandledState.of(obj, None)}
    v2 = Kind(group="example.com", version="v2", kind="Thing")
    assert Handled.from_text(text, obj) == Handled(done=frozenset({"make"}))
    assert Handled.from_text(text, thing(uid="other")) is None
    with_states = Handled(done=frozenset({"make"}), states=states)
    assert Handled.from_text(with_states.to_text(obj), obj) == with_states
    found = Handled.from_text(with_states.to_text(obj), thing(kind=v2))
    assert found == Handled(done=frozenset({"make"}))
    assert Handled.from_text(text.replace('"v":1', '"v":2'), obj) is None


def test_the_largest_states_become_digests_until_the_rest_fits() -> None:
    obj = thing(spec={"a": "x" * 12_000, "b": "y" * 8_000, "c": 1})
    states = {name: HandledState.of(obj, (f"/spec/{name}",)) for name in "abc"}
    text = Handled(states=states).to_text(obj)
    found = Handled.from_text(text, obj)
    assert found is not None
    assert len(text.encode()) <= MOST_BYTES
    assert [name for name in "abc" if found.states[name].values is None] == ["a"]
    assert all(each.is_of(obj) for each in found.states.values())
    assert Handled(states=found.states).to_text(obj) == text


@pytest.mark.parametrize("letter", ["x", "é"], ids=["one byte", "two bytes"])
def test_a_record_of_just_the_limit_is_whole_and_with_a_byte_more_the_largest_is_a_digest(
    letter: str,
) -> None:
    def written(size: int) -> tuple[int, list[str]]:
        obj = thing(spec={"a": letter * 2000, "b": letter * 3000 + "x" * size, "c": "x" * 4000})
        states = {name: HandledState.of(obj, (f"/spec/{name}",)) for name in "abc"}
        # One that is the same as another costs nothing more.
        states["same"] = states["b"]
        text = Handled(done=frozenset({"make"}), states=states).to_text(obj)
        found = Handled.from_text(text, obj)
        assert found is not None
        assert all(each.is_of(obj) for each in found.states.values())
        return len(text.encode()), [n for n, each in found.states.items() if each.values is None]

    bytes_of_none, _ = written(0)
    room = MOST_BYTES - bytes_of_none
    assert written(room) == (MOST_BYTES, [])
    assert written(room + 1)[1] == ["b", "same"]


def test_equal_states_are_there_once() -> None:
    obj = thing(spec={"text": "x" * 9000})
    states = {f"f{number}": HandledState.of(obj, None) for number in range(20)}
    found = Handled.from_text(Handled(states=states).to_text(obj), obj)
    assert found == Handled(states=states)


def test_a_record_is_no_part_of_a_state() -> None:
    key = "other.appsdk-operator.io/handled"
    one, other = (
        thing(number, metadata={"annotations": {key: str(number), "x": "y"}}) for number in (1, 2)
    )
    for paths in (("/metadata",), ("/metadata/annotations",)):
        assert HandledState.of(one, paths).is_of(other)


def test_numbers_are_compared_as_json() -> None:
    one, other = thing(spec={"a": 1}), thing(spec={"a": 1.0})
    assert HandledState.of(one, None).is_of(other)
    assert HandledState.of(one, None).as_digest("u").is_of(other)


# The machine.


def is_red(obj: Object) -> bool:
    return obj.labels.get("color") == "red"


def always(obj: Object) -> bool:
    return True


def differs(old: Object, new: Object) -> bool:
    return old.resource_version != new.resource_version and old.generation != new.generation


def a_differs(old: Object, new: Object) -> bool:
    return bool(old["spec"]["a"] != new["spec"]["a"])


FUNCTIONS = [
    Function(cause="add", name="make", where=always, when=differs),
    Function(cause="add", name="paint", where=is_red, when=differs),
    Function(cause="update", name="spec", where=always, when=differs),
    Function(cause="update", name="a", where=always, when=a_differs, paths=("/spec/a",)),
    Function(cause="delete", name="unpaint", where=is_red, when=differs),
]
MAKE, PAINT, SPEC, A, UNPAINT = range(5)
MOVES = st.lists(
    st.sampled_from(
        ["a", "b", "back", "red", "blue", "wait", "fail", "restart", "crash", "delete", "down"]
    ),
    max_size=30,
)


class Run:
    """One history of an object, and what its functions may be called with."""

    def __init__(self, *, digests_only: bool = False) -> None:
        self.digests_only = digests_only
        self.now, self.version, self.generation = 0.0, 1, 1
        self.spec, self.color, self.is_deleting = {"a": 0, "b": 0}, "blue", False
        self.text: str | None = None
        self.is_marked = False
        self.failures = 0
        self.is_down = False
        self.calls: list[int] = []
        # By function: the states that the next call of it may begin with.
        self.begins: dict[int, list[Any]] = {}
        self.adding: set[int] = set()
        self.added: set[int] = set()
        self.was_red = False
        self.start()

    def present(self) -> Object:
        metadata: dict[str, Any] = {"labels": {"color": self.color}}
        if self.is_deleting:
            metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
        return thing(
            self.version, spec=dict(self.spec), generation=self.generation, metadata=metadata
        )

    def start(self) -> None:
        obj = self.present()
        self.machine = ObjectState(
            FUNCTIONS,
            obj,
            self.now,
            is_known=self.is_marked,
            relents=differs,
            remembered=None if self.text is None else Handled.from_text(self.text, obj),
        )
        self.is_down = False
        self.adding.clear()
        self.settle()

    def state_of(self, number: int, obj: Object) -> Any:
        return HandledState.of(obj, FUNCTIONS[number].paths).values

    def settle(self) -> None:
        if self.is_down:
            return
        self.machine.see(self.present())
        self.was_red |= self.color == "red"
        while (step := self.machine.next(self.now)) is not None:
            if self.machine.progress[step.number].is_unsaved:
                self.save()
            self.call(step)
        self.save()

    def save(self) -> None:
        if self.machine.is_begun and not self.is_deleting:
            obj = self.machine.present
            self.text = self.machine.record().to_text(obj, digests_only=self.digests_only)
            self.is_marked = self.is_marked or self.machine.is_complete
            self.machine.saved()
            self.added |= self.adding
            for number, states in self.begins.items():
                self.begins[number] = states[:1]

    def call(self, step: Step) -> None:
        obj, number = self.machine.present, step.number
        self.calls.append(number)
        self.machine.start(step)
        if step.old is not None and not self.digests_only and number in self.begins:
            assert self.state_of(number, step.old) in self.begins[number]
        if number in (MAKE, PAINT):
            assert number not in self.added, "it was done"
        if self.failures:
            self.failures -= 1
            self.machine.failed(step, obj, 10.0, 1, self.now)
            return
        self.machine.succeeded(step, obj, self.now)
        if number == MAKE:
            for each in (SPEC, A):
                self.begins[each] = [self.state_of(each, obj)]
        if number in (MAKE, PAINT):
            self.adding.add(number)
            self.save()
        if step.old is not None:
            self.begins[number] = [self.state_of(number, one) for one in (obj, step.old)]

    def move(self, what: str) -> None:
        if self.is_deleting and what not in ("restart", "wait", "red", "blue", "down"):
            return
        match what:
            case "a" | "b":
                self.version, self.generation = self.version + 1, self.generation + 1
                self.spec = {**self.spec, what: self.spec[what] + 1}
            case "back":
                self.version, self.generation = self.version + 1, self.generation + 1
                self.spec = {"a": 0, "b": 0}
            case "red" | "blue":
                self.version, self.color = self.version + 1, what
            case "delete":
                self.version, self.is_deleting = self.version + 1, True
            case "wait":
                self.now += 60.0
            case "fail":
                self.failures += 1
            case "down":
                self.is_down = True
                return
            case "restart":
                self.failures = 0
                self.start()
        self.settle()

    def end(self) -> None:
        """Nothing fails any more: what was last handled is the present state."""
        self.failures = 0
        if self.is_down:
            self.start()
        for _ in range(3):
            self.now += 60.0
            self.settle()
        obj = self.machine.present
        assert self.machine.next(self.now) is None
        if self.is_deleting:
            if self.is_marked:
                assert (UNPAINT in self.calls) == self.was_red
            return
        assert MAKE in self.added
        assert PAINT in self.added or self.color != "red"
        for number in (SPEC, A):
            assert self.begins[number][0] == self.state_of(number, obj)


def play(moves: list[str], *, digests_only: bool = False) -> Run:
    run = Run(digests_only=digests_only)
    for what in moves:
        run.move(what)
    run.end()
    return run


LEFT = ["red", "blue", "restart", "delete"]
DOWN = ["a", "down", "a", "b", "restart"]
LATE = ["down", "red", "restart", "restart", "blue", "restart", "red"]
HALF = ["fail", "a", "restart", "b"]
TWICE = ["a", "fail", "b", "down", "a", "restart"]


@settings(max_examples=scaled(400))
@given(MOVES)
@example(LEFT)
@example(DOWN)
@example(LATE)
@example(HALF)
@example(TWICE)
def test_each_process_goes_on_where_the_last_one_has_ended(moves: list[str]) -> None:
    play(moves)


@settings(max_examples=scaled(200))
@given(MOVES)
def test_a_digest_says_that_something_has_changed(moves: list[str]) -> None:
    play(moves, digests_only=True)


PLACES = ["", "spec", "/spec/a", "kind", "/kind", "metadata", "/metadata", "/metadata/x"]
FIELDS = st.dictionaries(st.sampled_from(PLACES), JSON, max_size=3)
STATES = st.lists(st.dictionaries(st.sampled_from(["all", "at"]), FIELDS), max_size=2)
EDITED = st.fixed_dictionaries(
    {"states": STATES | JSON},
    optional={
        "of": st.dictionaries(st.sampled_from(["spec", "a"]), st.integers(-1, 2) | JSON),
        **dict.fromkeys(["done", "due", "held", "new"], JSON),
    },
)


@settings(max_examples=scaled(300))
@example({"states": [{"at": {"": 1}}], "of": {"spec": 0}})
@example({"states": [{"at": {"/metadata": "x"}}], "of": {"spec": 0}})
@example({"states": [{"all": {"metadata": "x"}}], "of": {"spec": 0}})
@example({"states": [{"all": {"kind": "x"}}], "of": {"spec": 0}})
@given(EDITED)
def test_a_record_that_somebody_has_edited_keeps_no_function_from_its_calls(edited: Any) -> None:
    obj = thing(2, spec={"a": 1, "b": 1})
    found = Handled.from_text(json.dumps({"v": 1, "uid": "u", "api": "v1", **edited}), obj)
    functions = [FUNCTIONS[MAKE], FUNCTIONS[SPEC]]
    machine = ObjectState(functions, obj, 0.0, is_known=True, relents=differs, remembered=found)
    while (step := machine.next(0.0)) is not None:
        machine.start(step)
        machine.succeeded(step, obj, 0.0)
    assert Handled.from_text(machine.record().to_text(obj), obj) is not None


def test_the_same_state_is_no_change() -> None:
    run = Run()
    run.calls.clear()
    run.move("restart")
    assert not run.calls
    assert run.machine.has_changed is False


# Its defects.


def no_overlay(self: Any, present: Any) -> Any:
    return present


def one_for_all(self: Any) -> Handled:
    made = _record(self)
    return Handled(
        done=made.done,
        due=made.due,
        held=made.held,
        states={name: HandledState.of(self.present, None) for name in made.states},
    )


def nothing_held(self: Any) -> Handled:
    made = _record(self)
    return Handled(done=made.done, due=made.due, states=made.states)


def nothing_done(self: Any) -> Handled:
    made = _record(self)
    return Handled(due=made.due | made.done, held=made.held, states=made.states)


def nothing_due(self: Any) -> Handled:
    made = _record(self)
    return Handled(done=made.done | made.due, held=made.held, states=made.states)


def always_same(self: Any, obj: Any) -> bool:
    return True


def updates_begin_anew(self: Any, remembered: Any, first: Any) -> None:
    _remember(self, remembered, first)
    for each, progress in zip(self._functions, self.progress, strict=True):
        if each.cause == "update":
            progress.handled = first


def sets_succeeded(self: Any, step: Any, obj: Any, now: float) -> None:
    _succeeded(self, step, obj, now)
    self.progress[step.number].is_unsaved = False
    for each, progress in zip(self._functions, self.progress, strict=True):
        if each.cause == "update":
            progress.handled = obj


_record, _remember, _succeeded = (
    ObjectState.record,
    ObjectState._remember,
    ObjectState.succeeded,
)


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (HandledState, "restored", no_overlay),
        (HandledState, "is_of", always_same),
        (ObjectState, "record", one_for_all),
        (ObjectState, "record", nothing_held),
        (ObjectState, "record", nothing_done),
        (ObjectState, "record", nothing_due),
        (ObjectState, "_remember", updates_begin_anew),
        (ObjectState, "succeeded", sets_succeeded),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, name, broken)

    @settings(
        max_examples=scaled(500),
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
    @given(MOVES)
    @example(LEFT)
    @example(DOWN)
    @example(LATE)
    @example(HALF)
    @example(TWICE)
    def check(moves: list[str]) -> None:
        play(moves)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check()


def test_a_retry_that_waits_for_the_record_is_not_due_before_that_may_be_written() -> None:
    machine = ObjectState(FUNCTIONS, thing(1, spec={"a": 1}), 0.0, is_known=False, relents=differs)

    def take(number: int, now: float) -> Step:
        step = machine.next(now)
        assert step is not None
        assert step.number == number
        machine.start(step)
        return step

    machine.succeeded(take(MAKE, 0.0), machine.present, 0.0)
    machine.saved()
    machine.see(thing(2, generation=2, spec={"a": 2}))
    machine.failed(take(SPEC, 1.0), machine.present, 5.0, 1, 1.0)
    machine.see(thing(3, generation=2, spec={"a": 2}, labels={"color": "red"}))
    machine.succeeded(take(PAINT, 2.0), machine.present, 2.0)
    machine.saves_at = 10.0  # the update must not be called before the record says so
    assert machine.next(6.0) is None
    assert machine.look_at() == 10.0, "a look before that changes nothing, and another one follows"
    machine.saved()
    assert machine.look_at() == 6.0


def test_a_held_delete_that_has_another_name_now_is_called() -> None:
    obj = thing(2, spec={"a": 1}, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    for held, is_called in ((frozenset({"former"}), True), (frozenset[str](), False)):
        machine = ObjectState(
            FUNCTIONS, obj, 0.0, is_known=True, relents=differs, remembered=Handled(held=held)
        )
        assert (machine.next(0.0) is not None) is is_called


def test_a_function_whose_fields_are_others_now_is_compared_in_what_is_kept() -> None:
    before, now = thing(1, spec={"a": 1, "b": 1}), thing(9, spec={"a": 2, "b": 2}, generation=2)
    done = frozenset({"make", "paint"})
    kept_b = Handled(done=done, states={"a": HandledState.of(before, ("/spec/b",))})
    machine = ObjectState(FUNCTIONS, now, 0.0, is_known=True, relents=differs, remembered=kept_b)
    numbers = []
    while (step := machine.next(0.0)) is not None:
        numbers.append(step.number)
        machine.succeeded(step, now, 0.0)
    assert numbers == []  # nothing is known of its field
    assert machine.record().states["a"] == HandledState.of(now, ("/spec/a",)) or (
        machine.record().states["a"].values == {"/spec/a": 2}
    )
    kept_a = Handled(done=done, states={"spec": HandledState.of(before, ("/spec/a",))})
    machine = ObjectState(FUNCTIONS, now, 0.0, is_known=True, relents=differs, remembered=kept_a)
    step = machine.next(0.0)
    assert step is not None
    assert step.number == SPEC
    assert step.old is not None
    assert step.old["spec"] == {"a": 1, "b": 2}


def test_secrets_have_no_generation_and_their_digest_is_enough() -> None:
    secret = kinds.core.v1.Secret
    one, other = (
        thing(version, kind=secret, generation=0, data={"token": text})
        for version, text in ((1, "eA=="), (2, "eQ=="))
    )
    state = HandledState.of(one, None).as_digest("u")
    assert state.is_of(one)
    assert not state.is_of(other)
    assert state.restored(other) is None
