"""Histories: steps of other clients and faults, as values to generate, play and print."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from appsdk_operator.client import ApiError, NotFound
from appsdk_operator.resource import FilterMetadata, MutableObject, Object

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from appsdk_operator.testing._world.world import World


FOREIGN: Final = "x.example.org/hold"
"""The finalizer of another controller."""
_ON_OBJECTS: Final = (
    "create",
    "spec",
    "status",
    "label",
    "metadata",
    "hold",
    "release",
    "delete",
    "recreate",
)
_NUMBERED: Final = ("seed", "wait", "lag", "down", "change", "remove")
_PLAIN: Final = ("cut", "compact")
_ON_REPLICAS: Final = ("crash", "restart", "freeze")
_WRITE_FAULTS: Final = ("lost", "409", "500", "503", "crash before", "crash after")
_FAULTS: Final = {
    "write": ("ok", *_WRITE_FAULTS),
    "read": ("ok", "500", "503"),
    "function": ("ok", "fails", "fails late", "fails for good"),
    "timer": ("ok", "fails", "fails for good"),
}


_Metadata: TypeAlias = Mapping[str, Mapping[str, str | None]]
"""Labels and annotations as a merge patch of an object's metadata has them."""

_TIMES: Final = {
    "wait": (0, 1, 30, 600),
    "lag": (5, 60),
    "down": (60, 600),
    "freeze": (20, 90),
}
"""The seconds of steps, the shortest first."""


@attrs.frozen
class Step:
    """One step of a history. :meth:`Step.parse` is the inverse of ``str()``.

    >>> str(Step("create", "a", {"size": 1}))
    'create a {"size": 1}'
    >>> Step.parse("wait 30")
    Step(what='wait', name='', value=30)
    """

    what: str
    """The word of the step.

    * An object: ``create``, ``spec``, ``status``, ``label``, ``hold`` and ``release`` (add and
      remove another controller's finalizer), ``delete``, ``recreate``; ``metadata`` sets and
      removes labels and annotations, also of later objects of this name.
    * An object that the operator made: ``change`` (another client changes one of its values) and
      ``remove``, with a number that chooses the object.
    * Time: ``wait``.
    * Faults: ``lag``, ``down`` and ``freeze`` (for seconds), ``cut``, ``compact``, ``crash``,
      ``restart``; ``write`` and ``read``, a fault of the operator's next write or read;
      ``function`` and ``timer``, a failure of the next call of a function of an App.
    * A race: ``race``, followed by a step with an object, which another client does right before
      the operator's next write.
    * The order of threads: ``seed``."""
    name: str = ""
    """The name of the object, or of the replica of a fault; empty: the first replica."""
    value: Any = None

    def __str__(self) -> str:
        if self.what in _FAULTS or self.what == "race":
            return f"{self.what} {self.value}"
        value = "" if self.value is None else json.dumps(self.value, ensure_ascii=False)
        return " ".join(part for part in (self.what, self.name, value) if part)

    @classmethod
    def parse(cls, text: str) -> Step:
        """Read a step from its text.

        Raises:
            ValueError: the text is not a step.
        """
        what, _, rest = text.partition(" ")
        if rest in _FAULTS.get(what, ()):
            return cls(what, "", rest)
        if what == "race" and rest.partition(" ")[0] in _ON_OBJECTS:
            return cls(what, "", cls.parse(rest))
        if what in _PLAIN and not rest:
            return cls(what)
        try:
            if what in _NUMBERED:
                return cls(what, "", json.loads(rest))
            if what in _ON_REPLICAS:
                name, _, value = rest.rpartition(" ") if what == "freeze" else (rest, "", "null")
                return cls(what, name, json.loads(value))
            name, _, value = rest.partition(" ")
            if what in _ON_OBJECTS and name:
                return cls(what, name, json.loads(value) if value else None)
        except ValueError:
            pass
        raise ValueError(f"{text!r} is not a step of a history: see the docs of Step")


def simpler(step: Step) -> list[Step]:
    """Steps of the same effect with a shorter time or a smaller number, the simplest first."""
    times = _TIMES.get(step.what, (0,) if step.what in ("label", "change", "remove") else ())
    return [attrs.evolve(step, value=value) for value in times if value < step.value]


def play(world: World, step: Step) -> None:
    """Do a step; one for an object that does not exist does nothing."""
    match step.what:
        case "wait":
            world.run(float(step.value))
        case "lag":
            world.lag(float(step.value))
        case "down":
            world.down(float(step.value))
        case "freeze":
            world.freeze(float(step.value), _replica(world, step))
        case "cut":
            world.cut()
        case "compact":
            world.compact()
        case "crash":
            world.crash(_replica(world, step))
        case "restart":
            world.restart(_replica(world, step))
        case "write":
            world.write_faults.append("" if step.value == "ok" else step.value)
        case "race":
            world.write_faults.append(lambda: _on_object(world, step.value))
        case "function" | "timer" | "read":
            world.failures[step.what].append("" if step.value == "ok" else step.value)
        case "change" | "remove":
            _on_made(world, step)
        case "seed":
            pass
        case _:
            _on_object(world, step)


def _replica(world: World, step: Step) -> int:
    names = [replica.name for replica in world.replicas]
    return names.index(step.name) if step.name in names else 0


def _on_made(world: World, step: Step) -> None:
    """Change or remove one of the objects of other kinds that the operator made."""
    found = [obj for obj in world.made() if not obj.is_deleting]
    if step.what == "remove" and found:
        obj = found[step.value % len(found)]
        world.outside(f"deletes {obj.kind.plural} {obj.name}", obj.name, kind=obj.kind)
        world.client.delete(obj.kind, obj.name, namespace=obj.namespace)
    elif step.what == "change":
        changes = [change for obj in found for change in _changes(obj)]
        if changes:
            changed, path = changes[step.value % len(changes)]
            text = f"changes {'.'.join(path)} of {changed.kind.plural} {changed.name}"
            entry = world.outside(text, changed.name, kind=changed.kind)
            try:
                world.client.update(changed)
            except ApiError as error:
                if error.status not in (400, 422):
                    raise
                entry.outcome = "refused"


def _changes(obj: Object) -> Iterator[tuple[MutableObject, tuple[str, ...]]]:
    """The object with one of its wanted values changed, for each of them, and which it is."""
    for path, value in list(_leaves(obj.to_dict(), ())):
        changed = obj.mutable_copy()
        part: Any = changed
        for name in path[:-1]:
            part = part[name]
        # What is put before a text leaves one in base64.
        part[path[-1]] = value + 1 if isinstance(value, int) else f"xxxx{value}"
        yield changed, path


def _leaves(part: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    for name, value in part.items():
        if not above and name in ("apiVersion", "kind", "metadata", "status"):
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, name))
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            yield (*above, name), value


def _on_object(world: World, step: Step) -> None:
    name, what = step.name, step.what
    present = world.find(name)
    try:
        if what == "metadata":
            _set_metadata(world, name, step.value)
        elif present is None:
            if what in ("create", "spec", "recreate"):
                world.create(name, step.value, **world.metadata[name])
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
                world.create(name, step.value, **world.metadata[name])
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


def _set_metadata(world: World, name: str, wanted: _Metadata) -> None:
    """Set labels and annotations of the object, and of later ones of its name; None removes."""
    for part, values in wanted.items():
        kept = world.metadata[name].setdefault(part, {})
        for key, value in values.items():
            kept.pop(key, None)
            if value is not None:
                kept[key] = value
    if world.find(name) is not None:
        world.patch(name, {"metadata": wanted})


def end_pauses(world: World, pauses: Sequence[FilterMetadata]) -> None:
    """Have other clients end the pauses of objects, whatever the filter is made of."""
    removed = ((part, key, None) for part, key in dict.fromkeys(each[:2] for each in pauses))
    for part, key, value in (*removed, *pauses):
        for obj in world.objects():
            if world.is_paused(obj):
                _set_metadata(world, obj.name, {part: {key: value}})


def histories(
    specs: SearchStrategy[Any],
    *,
    names: Sequence[str] = ("a", "b"),
    statuses: SearchStrategy[Any] | None = None,
    faults: bool = True,
    replicas: Sequence[str] = (),
    functions: bool = False,
    metadata: Sequence[FilterMetadata] = (),
    pauses: Sequence[FilterMetadata] = (),
    longest: int = 20,
) -> list[SearchStrategy[list[Step]]]:
    """Histories: other clients create, change, delete and recreate objects; time passes; faults.

    One strategy for each theme, with which its histories end: the deletion of a held object, a
    conflict, a failed read, a crash, … Draw from them in turn, so that none comes up too rarely.

    Args:
        specs: the specs of objects.
        names: the names of objects; few, so that names are used again.
        statuses: the statuses that other clients write; default: they write none.
        faults: whether there are faults.
        replicas: the names of the replicas, where there are several: they are suspended as well,
            and each of them crashes and restarts.
        functions: whether functions and timers of an App fail as well.
        metadata: labels and annotations that make a difference to the operator's filters: objects
            have them from the beginning, or get and lose them.
        pauses: the same for a filter of objects that it leaves alone: objects get and lose them.
        longest: the most steps; default 20.
    """
    from hypothesis import strategies as st

    def plain(what: Sequence[str], values: Sequence[Any]) -> SearchStrategy[Step]:
        return st.builds(Step, st.sampled_from(what), st.just(""), st.sampled_from(values))

    soon, wait = plain(["wait"], [0, 1]), plain(["wait"], _TIMES["wait"])
    ok, replica = plain(["write"], ["ok"]), st.sampled_from(["", *replicas[1:]])
    freeze = st.builds(Step, st.just("freeze"), replica, st.sampled_from(_TIMES["freeze"]))
    # What a function has given up on is not done at rest, so that nothing could be asked of it.
    function, timer = (
        plain(["function"], _FAULTS["function"][:-1]),
        plain(["timer"], _FAULTS["timer"]),
    )
    writes = {
        "conflict": plain(["write"], ["409"]),
        "refused": plain(["write"], ["500", "503"]),
        "lost": plain(["write"], ["lost"]),
        "crash at a write": plain(["write"], ["crash before", "crash after"]),
    }
    others = {
        "read": plain(["read"], _FAULTS["read"][1:]),
        "crash": st.builds(Step, st.sampled_from(["crash", "restart"]), replica),
        "network": st.one_of(plain(_PLAIN, [None]), plain(["lag"], _TIMES["lag"])),
        "down": plain(["down"], _TIMES["down"]),
    }
    on_made = {what: plain([what], range(4)) for what in ("change", "remove")}
    single = [wait]
    if faults:
        single += [ok, *writes.values(), *others.values(), *on_made.values()]
        single += [freeze] * (len(replicas) > 1)
        single += [function, timer] * functions
    themes: dict[str, list[SearchStrategy[tuple[Step, ...]]]] = defaultdict(list)
    for name in map(st.just, names):
        create, spec, recreate = (
            st.builds(Step, st.just(what), name, specs) for what in ("create", "spec", "recreate")
        )
        delete, hold, release = (
            st.builds(Step, st.just(what), name) for what in ("delete", "hold", "release")
        )
        label = st.builds(Step, st.just("label"), name, st.integers(0, 9))
        change = st.one_of(spec, delete, recreate)
        race = st.builds(
            Step, st.just("race"), st.just(""), st.one_of(change, label, hold, release)
        )
        single += [create, spec, delete, recreate, hold, release, label]
        for what, given in (("filter", metadata), ("pause", pauses)):
            if given:
                switch = st.builds(Step, st.just("metadata"), name, _one_of_metadata(given))
                single.append(switch)
                # What it gets is also what it loses, once it was handled with it.
                both = [
                    [
                        st.builds(Step, st.just("metadata"), name, st.just({part: {key: each}}))
                        for each in (value, None)
                    ]
                    for part, key, value in given
                ]
                themes[what] += [
                    st.tuples(create, soon, switch, soon, spec, soon, switch, wait),
                    st.tuples(create, wait, switch, soon, change, wait),
                    st.one_of(
                        [st.tuples(create, soon, got, wait, lost, wait) for got, lost in both]
                    ),
                ]
                if faults:
                    fault = st.one_of(others["crash"], others["down"], others["read"])
                    themes[what] += [st.tuples(switch, create, wait, fault, spec, switch, wait)]
                    themes[what] += [st.tuples(create, wait, switch, soon, fault, change, wait)]
        if statuses is not None:
            single.append(st.builds(Step, st.just("status"), name, statuses))
        themes["hold"] += [st.tuples(create, soon, hold, soon, delete, soon)]
        themes["again"] += [st.tuples(create, soon, change, soon)]
        if not faults:
            continue
        racing = {**writes, "conflict": st.one_of(writes["conflict"], race)}
        for what, fault in {**racing, **others}.items():
            themes[what] += [
                st.tuples(fault, create, soon),
                st.tuples(create, wait, fault, change, soon),
            ]
        for what, fault in racing.items():
            themes[what] += [st.tuples(ok, fault, create, soon)]
        for what, fault in on_made.items():
            themes[what] += [st.tuples(create, wait, fault, wait)]
        if len(replicas) > 1:
            themes["freeze"] += [st.tuples(soon, freeze, st.one_of(create, spec), wait)]
        if functions:
            # A change whose function fails, and another one before or after the retry.
            themes["function"] += [
                st.tuples(create, wait, function, spec, soon, spec, wait),
                st.tuples(function, create, soon, spec, wait),
            ]
            themes["timer"] += [st.tuples(create, wait, timer, wait)]
    one = st.one_of(single).map(lambda step: (step,))
    parts = [part for theme in themes.values() for part in theme]
    before = st.lists(st.one_of(one, *parts), max_size=longest // 2)
    begins = st.just(())
    if metadata:
        begins = st.tuples(
            *(
                st.builds(Step, st.just("metadata"), st.just(name), _all_of_metadata(metadata))
                for name in names
            )
        )
    # What a later step would correct is found at the end alone: the last part is a whole one.
    return [
        st.tuples(begins, st.one_of(st.just([]), before), st.one_of(theme)).map(
            lambda found: [
                *found[0],
                *[step for part in (*found[1], found[2]) for step in part][-longest:],
            ]
        )
        for theme in themes.values()
    ]


def _one_of_metadata(given: Sequence[FilterMetadata]) -> SearchStrategy[_Metadata]:
    """A label or an annotation with one of its values, or without."""
    from hypothesis import strategies as st

    removed = dict.fromkeys((part, key) for part, key, _ in given)
    choices = [*given, *((part, key, None) for part, key in removed)]
    return st.sampled_from([{part: {key: value}} for part, key, value in choices])


def _all_of_metadata(given: Sequence[FilterMetadata]) -> SearchStrategy[_Metadata]:
    """Each label and annotation with one of its values, or without, which is the simplest."""
    from hypothesis import strategies as st

    values: dict[tuple[str, str], list[str]] = defaultdict(list)
    for part, key, value in given:
        values[part, key].append(value)

    def made(drawn: tuple[str | None, ...]) -> _Metadata:
        found: dict[str, dict[str, str | None]] = {}
        for (part, key), value in zip(values, drawn, strict=True):
            if value is not None:
                found.setdefault(part, {})[key] = value
        return found

    return st.tuples(*(st.sampled_from([None, *each]) for each in values.values())).map(made)
