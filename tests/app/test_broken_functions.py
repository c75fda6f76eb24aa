"""Each promise of an App's functions is broken by a defect of what calls them, and found so."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest

from appsdk_operator.app import App
from appsdk_operator.app._due import ObjectState
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.resource import Kind, Object, field
from appsdk_operator.testing import BrokenPromise, check_operator


@attrs.frozen
class ThingSpec:
    a: int = 0
    b: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
CREATE = 'create a {"a": 1, "b": 1}'
CHANGE_A, CHANGE_B = 'spec a {"a": 2, "b": 1}', 'spec a {"a": 2, "b": 2}'


class Storage:
    """What the functions have made, by uid; new in each history, where uids come again."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self._world: Any = None

    def begin(self, world: Any) -> None:
        if world is not self._world:
            self._world = world
            self.made.clear()


def operator(storage: Storage) -> App:
    app = App("thing-operator")

    @app.on_add(THING)
    def make(thing: Object) -> None:
        storage.made.add(thing.uid)

    @app.on_add(THING)
    def make_another(thing: Object) -> None: ...

    @app.on_update(THING, when=field("spec.a").changed)
    def set_a(old: Object, new: Object) -> None: ...

    @app.on_update(THING, when=field("spec.b").changed)
    def set_b(old: Object, new: Object) -> None: ...

    @app.every(40, THING, first_after=10)
    def look(thing: Object) -> None:
        threading.Event().wait(0.2)

    @app.on_delete(THING)
    def close(thing: Object) -> None: ...

    @app.on_delete(THING)
    def remove(thing: Object) -> None:
        storage.made.discard(thing.uid)

    return app


succeeded, failed, see = ObjectState.succeeded, ObjectState.failed, ObjectState.see
waits, next_step, look_at = ObjectState._waits, ObjectState.next, ObjectState.look_at
call_next, step_of = KindFunctions._call_next, ObjectState._step


def failure_is_success(self: Any, step: Any, obj: Any, *more: Any) -> None:
    succeeded(self, step, obj, more[-1])


def failure_of_all(self: Any, step: Any, obj: Any, *more: Any) -> None:
    failed(self, step, obj, *more)
    for function, progress in zip(self._functions, self.progress, strict=True):
        progress.is_done = progress.is_done and function.cause != "add"


def of_the_last_event(self: Any, number: int, function: Any, obj: Any) -> Any:
    found = step_of(self, number, function, obj)
    if found is None or found.old is None or self.progress[number].failed_at is None:
        return found
    return found._replace(old=self.progress[number].failed_at)


def never_gives_up(self: Any, *arguments: Any) -> bool:
    found = waits(self, *arguments)
    return found and self.progress[arguments[0]].next_time is not None


def an_event_ends_the_wait(self: Any, obj: Any, **more: Any) -> Any:
    for function, progress in zip(self._functions, self.progress, strict=True):
        at = progress.failed_at
        if at is not None and function.cause == "update" and obj.generation > at.generation:
            progress.failed_at, progress.handled = None, obj
    return see(self, obj, **more)


def until_an_event(self: Any, obj: Any, **more: Any) -> Any:
    for function, progress in zip(self._functions, self.progress, strict=True):
        if function.cause == "every" and obj.generation > 1:
            progress.next_time = float("inf")
    return see(self, obj, **more)


def in_a_thread(self: Any, known: Any) -> None:
    state = known.state
    step = next_step(state, self._clock.monotonic())
    if step is None or self._functions[step.number].cause != "every":
        call_next(self, known)
        return
    function = self._functions[step.number].function
    threading.Thread(target=function, args=(state.present,), daemon=True).start()
    known.look_now = True
    succeeded(state, step, state.present, self._clock.monotonic())


def last_first(self: Any, now: float, obj: Any = None) -> Any:
    found = next_step(self, now, obj)
    present = self.present if obj is None else obj
    for number, function in reversed(list(enumerate(self._functions))):
        step = step_of(self, number, function, present)
        if found and step and not waits(self, number, function, present, now):
            return step
    return found


def too_often(self: Any, step: Any, obj: Any, now: float) -> None:
    is_timer = self._functions[step.number].cause == "every"
    succeeded(self, step, obj, now - 20.0 if is_timer else now)


def put_off_by_a_change(self: Any, step: Any, obj: Any, now: float) -> None:
    succeeded(self, step, obj, now)
    for function, progress in zip(self._functions, self.progress, strict=True):
        if function.cause == "every" and self._functions[step.number].cause == "update":
            progress.next_time = now + 40.0


def late_after_a_failure(self: Any, step: Any, obj: Any, *more: Any) -> None:
    failed(self, step, obj, *more)
    if self._functions[step.number].cause == "every":
        self.progress[step.number].next_time = more[-1] + 70.0


def is_cleaned_up(self: Any) -> bool:
    return True


def lost_to_a_later_one(self: Any, step: Any, obj: Any, now: float) -> None:
    succeeded(self, step, obj, now)
    for function, progress in zip(self._functions, self.progress, strict=True):
        if function.cause == "update":
            progress.handled, progress.failed_at = obj, None


@attrs.frozen
class Defect:
    """A defect, where it is, and a history that shows it."""

    owner: Any
    name: str
    broken: Any
    promise: str
    replay: list[str]

    @property
    def what(self) -> str:
        function = getattr(self.broken, "fget", self.broken)
        return str(function.__name__)


FAILS_A = [CREATE, "wait 30", "function fails", CHANGE_A, "wait 1"]
DEFECTS = [
    Defect(ObjectState, "failed", failure_is_success, "chain: ", FAILS_A),
    Defect(
        ObjectState,
        "failed",
        failure_of_all,
        "chain: ",
        ["function ok", "function fails", CREATE, "wait 9"],
    ),
    Defect(ObjectState, "_step", of_the_last_event, "chain: ", [*FAILS_A, 'spec a {"a": 3}']),
    Defect(
        ObjectState,
        "_waits",
        never_gives_up,
        "chain: .*gave up",
        [CREATE, "wait 30", "function fails for good", CHANGE_A, "wait 100"],
    ),
    Defect(ObjectState, "see", an_event_ends_the_wait, "chain: ", [*FAILS_A, CHANGE_B]),
    Defect(ObjectState, "succeeded", lost_to_a_later_one, "chain: ", [*FAILS_A, CHANGE_B]),
    Defect(ObjectState, "see", until_an_event, "timers: ", [CREATE, "wait 30", CHANGE_A]),
    Defect(
        KindFunctions, "_call_next", in_a_thread, "timers: two calls", [CREATE, "wait 50", CHANGE_A]
    ),
    Defect(ObjectState, "next", last_first, "chain: .*declared later", [CREATE]),
    Defect(
        ObjectState, "succeeded", too_often, "timers: .*after the last call", [CREATE, "wait 99"]
    ),
    Defect(
        ObjectState,
        "succeeded",
        put_off_by_a_change,
        "timers: .*after the end of the last call",
        [CREATE, "wait 30", "function fails", CHANGE_A, "wait 30", CHANGE_B, "wait 90"],
    ),
    Defect(
        ObjectState,
        "failed",
        late_after_a_failure,
        "timers: .*after the end of the last call",
        [CREATE, "wait 30", "timer fails", "wait 90", "wait 90", "wait 90"],
    ),
    Defect(
        ObjectState,
        "is_cleaned_up",
        property(is_cleaned_up),
        "finalizer safety: ",
        [CREATE, "wait 30", "delete a", "wait 9"],
    ),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=[each.what for each in DEFECTS])
def test_a_defect_breaks_a_promise(monkeypatch: pytest.MonkeyPatch, defect: Defect) -> None:
    storage = Storage()

    def check() -> None:
        check_operator(
            operator(storage),
            always=storage.begin,
            cleaned_up=lambda _, thing: thing.uid not in storage.made,
            replay=defect.replay,
        )

    check()
    monkeypatch.setattr(defect.owner, defect.name, defect.broken)
    with pytest.raises(BrokenPromise, match=f"^{defect.promise}"):
        check()
