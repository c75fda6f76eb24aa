"""Histories: steps of other clients and faults, as values to generate, play and print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from appsdk_operator.client import ApiError, NotFound

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from appsdk_operator.testing._world.world import World

__all__ = ["FOREIGN", "Step", "histories", "play"]

FOREIGN: Final = "x.example.org/hold"
"""The finalizer of another controller."""
_ON_OBJECTS: Final = ("create", "spec", "status", "label", "hold", "release", "delete", "recreate")
_TIMED: Final = ("wait", "lag", "freeze")
_PLAIN: Final = ("cut", "compact", "crash", "restart")
_FATES: Final = ("lost", "409", "500", "503", "crash before", "crash after")
_FAULTS: Final = {
    "write": ("ok", *_FATES),
    "function": ("ok", "fails", "fails late"),
    "timer": ("ok", "fails", "fails for good"),
}


@attrs.frozen
class Step:
    """One step of a history. :meth:`Step.parse` is the inverse of ``str()``.

    >>> str(Step("create", "a", {"size": 1}))
    'create a {"size": 1}'
    >>> Step.parse("wait 30")
    Step(what='wait', name='', value=30)
    """

    what: str
    """On an object: ``create``, ``spec``, ``status``, ``label``, ``hold`` and ``release`` (add and
    remove another controller's finalizer), ``delete``, ``recreate``. Time: ``wait``. Faults:
    ``lag`` and ``freeze`` (for seconds), ``cut``, ``compact``, ``crash``, ``restart``, and
    ``write``, the fault of the operator's next write, ``function`` and ``timer``, the failure of
    the next call of a function of an App. ``seed``: the order of threads."""
    name: str = ""
    value: Any = None

    def __str__(self) -> str:
        if self.what in _FAULTS:
            return f"{self.what} {self.value}"
        value = "" if self.value is None else json.dumps(self.value, ensure_ascii=False)
        return " ".join(part for part in (self.what, self.name, value) if part)

    @classmethod
    def parse(cls, text: str) -> Step:
        """The step of a text.

        Raises:
            ValueError: the text is no step.
        """
        what, _, rest = text.partition(" ")
        if rest in _FAULTS.get(what, ()):
            return cls(what, "", rest)
        if what in _PLAIN and not rest:
            return cls(what)
        try:
            if what in (*_TIMED, "seed"):
                return cls(what, "", json.loads(rest))
            name, _, value = rest.partition(" ")
            if what in _ON_OBJECTS and name:
                return cls(what, name, json.loads(value) if value else None)
        except ValueError:
            pass
        raise ValueError(f"{text!r} is no step of a history: see the docs of Step")


def play(world: World, step: Step) -> None:
    """Do a step; one for an object that does not exist does nothing."""
    match step.what:
        case "wait":
            world.run(float(step.value))
        case "lag":
            world.lag(float(step.value))
        case "freeze":
            world.freeze(float(step.value))
        case "cut":
            world.cut()
        case "compact":
            world.compact()
        case "crash":
            world.crash()
        case "restart":
            world.restart()
        case "write":
            world.fates.append("" if step.value == "ok" else step.value)
        case "function" | "timer":
            world.failures[step.what].append("" if step.value == "ok" else step.value)
        case "seed":
            pass
        case _:
            _on_object(world, step)


def _on_object(world: World, step: Step) -> None:
    name, what = step.name, step.what
    present = world.find(name)
    try:
        if present is None:
            if what in ("create", "spec", "recreate"):
                world.create(name, step.value)
        elif what == "spec":
            world.replace(name, step.value)
        elif what == "status":
            world.patch(name, {"status": step.value}, subresource="status")
        elif what == "label":
            world.patch(name, {"metadata": {"labels": {"touched": str(step.value)}}})
        elif what in ("hold", "release"):
            _set_foreign_finalizer(
                world, name, present.finalizers, what == "hold" and not present.is_deleting
            )
        elif what in ("delete", "recreate") and not present.is_deleting:
            world.delete(name)
            if what == "recreate" and world.find(name) is None:
                world.create(name, step.value)
    except NotFound:
        pass
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        entry = world.journal.entries[-1]
        entry.outcome, entry.error = "refused", error


def _set_foreign_finalizer(world: World, name: str, finalizers: Sequence[str], holds: bool) -> None:
    if (FOREIGN in finalizers) == holds:
        return
    wanted = [finalizer for finalizer in finalizers if finalizer != FOREIGN]
    if holds:
        # In the middle: other controllers may have added theirs before or after.
        wanted.insert(len(wanted) // 2, FOREIGN)
    world.patch(name, {"metadata": {"finalizers": wanted}})


def histories(
    specs: SearchStrategy[Any],
    *,
    names: Sequence[str] = ("a", "b"),
    statuses: SearchStrategy[Any] | None = None,
    faults: bool = True,
    freezes: bool = False,
    functions: bool = False,
    longest: int = 20,
) -> SearchStrategy[list[Step]]:
    """Histories: other clients create, change, delete and recreate objects; time passes; faults.

    Args:
        specs: the specs of objects.
        names: the names of objects; few, so that names are used again.
        statuses: the statuses that other clients write; default: they write none.
        faults: whether there are faults.
        freezes: whether replicas are suspended as well.
        functions: whether functions and timers of an App fail as well.
        longest: the most steps; default 20.
    """
    from hypothesis import strategies as st

    name = st.sampled_from(list(names))
    create = st.builds(Step, st.just("create"), name, specs)
    spec = st.builds(Step, st.just("spec"), name, specs)
    delete = st.builds(Step, st.just("delete"), name)
    recreate = st.builds(Step, st.just("recreate"), name, specs)
    hold = st.builds(Step, st.just("hold"), name)
    soon = st.builds(Step, st.just("wait"), st.just(""), st.sampled_from([0, 1]))
    wait = st.builds(Step, st.just("wait"), st.just(""), st.sampled_from([0, 1, 30, 600]))
    single = [
        create,
        spec,
        wait,
        delete,
        recreate,
        hold,
        st.builds(Step, st.just("release"), name),
        st.builds(Step, st.just("label"), name, st.integers(0, 9)),
    ]
    # Sequences that single draws make too rarely.
    together = [
        st.tuples(create, soon, hold, soon, delete, soon),
        st.tuples(create, soon, st.one_of(delete, recreate, spec), soon),
    ]
    if statuses is not None:
        single.append(st.builds(Step, st.just("status"), name, statuses))
    if faults:
        fate = st.builds(Step, st.just("write"), st.just(""), st.sampled_from(["ok", *_FATES]))
        trouble = st.one_of(
            st.builds(Step, st.sampled_from(["crash", "restart", "cut", "compact"])),
            st.builds(Step, st.just("lag"), st.just(""), st.sampled_from([5, 60])),
        )
        single += [fate, trouble]
        together += [
            st.tuples(fate, st.one_of(create, spec), soon, st.one_of(delete, recreate, wait)),
            st.tuples(fate, st.one_of(delete, recreate), soon),
            st.tuples(trouble, st.one_of(create, spec, delete, recreate), soon),
        ]
    if freezes:
        freeze = st.builds(Step, st.just("freeze"), st.just(""), st.sampled_from([20, 90]))
        single.append(freeze)
        together += [st.tuples(soon, freeze, st.one_of(create, spec), wait)] * 2
    if functions:
        function, timer = (
            st.builds(Step, st.just(what), st.just(""), st.sampled_from(_FAULTS[what]))
            for what in ("function", "timer")
        )
        single += [function, timer]
        # A change whose function fails, and another one before or after the retry.
        together += [
            st.tuples(create, wait, function, spec, soon, spec, wait),
            st.tuples(function, create, soon, spec, wait),
            st.tuples(create, wait, timer, wait),
        ]
    one = st.one_of(single).map(lambda step: (step,))
    parts = st.lists(st.one_of(one, *together), max_size=longest)
    return parts.map(lambda found: [step for part in found for step in part][:longest])
