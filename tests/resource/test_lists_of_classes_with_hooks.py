"""Classes that sort, leave out, repeat, add and change items of lists while they are read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import assume, given, settings

from appsdk_operator.resource import Kind, MutableObject, Object
from tests.hypothesis_profiles import scaled

pydantic = pytest.importorskip("pydantic")

TUPLE: Any = tuple
LIBRARIES = ("attrs", "dataclass", "struct", "pydantic")
FORCED: dict[str, Callable[[Any, str, Any], None]] = {
    "attrs": object.__setattr__,
    "dataclass": object.__setattr__,
    "struct": msgspec.structs.force_setattr,
}


def made_class(library: str, fields: dict[str, Any], hook: Callable[[Any], dict[str, Any]]) -> Any:
    """A class with these fields, each with a type and a default; ``hook`` gives new values."""
    if library == "pydantic":

        def checked(self: Any) -> Any:
            self.__dict__.update(hook(self))
            return self

        return pydantic.create_model(
            "Made",
            __config__=pydantic.ConfigDict(frozen=True),
            __validators__={"checked": pydantic.model_validator(mode="after")(checked)},
            **fields,
        )

    def after(self: Any) -> None:
        for name, value in hook(self).items():
            FORCED[library](self, name, value)

    annotations = {name: view for name, (view, _) in fields.items()}
    defaults = {name: default for name, (_, default) in fields.items()}
    if library == "struct":
        listed = [(name, annotations[name], defaults[name]) for name in fields]
        return msgspec.defstruct(
            "Made", listed, frozen=True, namespace={"__post_init__": after, "__module__": __name__}
        )
    if library == "dataclass":
        body = {**defaults, "__annotations__": annotations, "__post_init__": after}
        return dataclasses.dataclass(frozen=True)(type("Made", (), body))
    body = {**defaults, "__annotations__": annotations, "__attrs_post_init__": after}
    return attrs.frozen(type("Made", (), body))


def evolved(value: Any, **changes: Any) -> Any:
    if isinstance(value, pydantic.BaseModel):
        return type(value)(
            **{**{n: getattr(value, n) for n in type(value).model_fields}, **changes}
        )
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return (attrs.evolve if attrs.has(type(value)) else dataclasses.replace)(value, **changes)


def key_of(host: str) -> str:
    return host.lower().strip()


def hook_of_list(step: str, item: Any, field: str) -> Callable[[Any], tuple[Any, ...]]:
    def key(one: Any) -> str:
        return key_of(getattr(one, field))

    hooks: dict[str, Callable[[tuple[Any, ...]], Any]] = {
        "sort": lambda items: sorted(items, key=key),
        "reverse": lambda items: sorted(items, key=key, reverse=True),
        "drop": lambda items: [one for one in items if key(one) not in ("b", "d")],
        "drop color": lambda items: [one for one in items if one.color != "red"],
        "duplicate": lambda items: [
            *items,
            *(one for one in items if key(one) == "c" and items.count(one) < 2),
        ],
        "add": lambda items: items if "e" in map(key, items) else [item(**{field: "e"}), *items],
        "normalise": lambda items: [evolved(one, **{field: key(one)}) for one in items],
        "number": lambda items: [evolved(one, place=at) for at, one in enumerate(items)],
    }
    return lambda items: tuple(hooks[step](items))


STEPS = ("sort", "reverse", "drop", "drop color", "duplicate", "add", "normalise")
# Of items without a name, nobody can tell one that was changed from one that was replaced.
CHANGES: dict[str, list[tuple[str, ...]]] = {
    "name": [("append", "remove", "color", "shuffle")],
    "host": [("append", "shuffle"), ("remove", "shuffle")],
}
HOSTS = st.lists(
    st.sampled_from(["a", "B", "c ", "C", "b", "D", "e"]), max_size=5, unique_by=key_of
)
COLORS = st.sampled_from([None, "red", "blue"])


@st.composite
def stored_items(draw: st.DrawFn, field: str) -> list[dict[str, Any]]:
    found = []
    for host in draw(HOSTS):
        color = draw(COLORS)
        parts = {} if color is None else {"color": color}
        found.append({field: host, **parts, "hidden": key_of(host)})
    return found


def check_hidden(field: str, stored: list[Any], given: Any, written: list[Any]) -> None:
    hidden = [one["hidden"] for one in written if "hidden" in one]
    assert len(hidden) == len(set(hidden))
    for one in written:
        assert one.get("hidden", key_of(one[field])) == key_of(one[field])
    known = {one["hidden"] for one in stored}
    assert known & {key_of(getattr(one, field)) for one in given} <= set(hidden)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=scaled(60), deadline=None)
@given(data=st.data())
def test_unknown_fields_stay_with_their_items_whatever_a_class_makes_of_its_lists(
    library: str, data: st.DataObject
) -> None:
    field = data.draw(st.sampled_from(["name", "host"]))
    is_normal = data.draw(st.booleans())
    possible = (*STEPS, "number") if field == "name" else STEPS
    steps = data.draw(st.lists(st.sampled_from(possible), max_size=3, unique=True))
    item = made_class(
        library,
        {field: (str, ""), "color": (str, "blue"), "place": (int, 0)},
        lambda one: {field: key_of(getattr(one, field))} if is_normal else {},
    )

    def of_lists(spec: Any) -> dict[str, Any]:
        items = spec.all_items
        for step in steps:
            items = hook_of_list(step, item, field)(items)
        return {"all_items": items}

    view = made_class(library, {"all_items": (TUPLE[item, ...], ()), "size": (int, 0)}, of_lists)
    rename: Any = data.draw(st.sampled_from([None, "camel"]))
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view, rename=rename)
    name = "allItems" if rename else "all_items"
    stored = data.draw(stored_items(field))
    spec = {name: stored, "hidden": 1}
    draft: MutableObject[Any, Any] = Object.from_dict(
        kind, {"metadata": {"name": "web"}, "spec": spec}
    ).mutable_copy()
    items = list(draft.spec.all_items)
    changes = st.sampled_from(data.draw(st.sampled_from(CHANGES[field])))
    for change in data.draw(st.lists(changes, max_size=3)):
        if change == "append":
            items.append(item(**{field: "z"}))
        elif items and change == "remove":
            del items[data.draw(st.integers(0, len(items) - 1))]
        elif items and change == "color":
            at = data.draw(st.integers(0, len(items) - 1))
            items[at] = evolved(items[at], color="green")
        elif change == "shuffle":
            items = data.draw(st.permutations(items))
    new = view(all_items=tuple(items), size=data.draw(st.integers(0, 1)))
    assume(evolved(new) == new)  # else it is not read as it is written
    keys, new_keys = (
        {key_of(getattr(one, field)) for one in all_} for all_ in (items, new.all_items)
    )
    # Nothing replaces what was removed, by whomever.
    assume(field == "name" or (new_keys <= keys and not {"add", "drop color"} <= {*steps}))
    draft.spec = new
    assert draft["spec"]["hidden"] == 1
    check_hidden(field, stored, new.all_items, draft["spec"].get(name, []))


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_item_that_a_class_leaves_out_and_makes_anew_keeps_its_unknown_fields(
    library: str,
) -> None:
    item = made_class(
        library, {"name": (str, ""), "color": (str, "blue"), "place": (int, 0)}, lambda _: {}
    )

    def add_and_drop(spec: Any) -> dict[str, Any]:
        items = hook_of_list("add", item, "name")(spec.all_items)
        return {"all_items": hook_of_list("drop color", item, "name")(items)}

    view = made_class(library, {"all_items": (TUPLE[item, ...], ())}, add_and_drop)
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view)
    stored = [{"name": "a", "hidden": 1}, {"name": "e", "color": "red", "place": 7, "hidden": 2}]
    draft = MutableObject(kind, {"metadata": {"name": "web"}, "spec": {"all_items": stored}})
    draft.spec = view(all_items=draft.spec.all_items)
    assert draft["spec"]["all_items"] == [
        {"name": "e", "color": "blue", "place": 0, "hidden": 2},
        {"name": "a", "hidden": 1},
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_sets_are_written_alike(library: str) -> None:
    view = made_class(library, {"tags": (frozenset[int], frozenset())}, lambda _: {})
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view)
    # The order of a set depends on the one in which its items came, where they collide.
    one, other = frozenset([0, 8, 16]), frozenset([16, 8, 0])
    assert list(one) != list(other)
    draft = MutableObject.new(kind, "web", spec=view(tags=one))
    again = MutableObject.new(kind, "web", spec=view(tags=other))
    assert draft["spec"] == again["spec"]
    draft["spec"]["tags"] = [8, 16, 0]
    draft.spec = view(tags=other)
    assert draft["spec"]["tags"] == [8, 16, 0]


def test_a_long_list_of_changed_items_is_matched_in_linear_time() -> None:
    item = made_class("attrs", {"host": (str, ""), "port": (int, 0)}, lambda _: {})
    view = made_class("attrs", {"items": (TUPLE[item, ...], ())}, lambda _: {})
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view)
    stored = [{"host": f"h{at}", "port": 1, "hidden": at} for at in range(20_000)]
    draft = MutableObject(kind, {"metadata": {"name": "web"}, "spec": {"items": stored}})
    # Compared in pairs, these would take hours.
    draft.spec = view(items=tuple(evolved(one, port=at) for at, one in enumerate(draft.spec.items)))
    assert draft["spec"]["items"] == [{**one, "port": at} for at, one in enumerate(stored)]


def test_attributes_that_are_no_fields_are_not_written() -> None:
    @attrs.frozen
    class Slots:
        size: int = 1

        @functools.cached_property
        def double(self) -> int:
            return 2 * self.size

    @attrs.frozen(slots=False)
    class NoSlots:
        size: int = 1

        @functools.cached_property
        def double(self) -> int:
            return 2 * self.size

    for spec in (Slots(3), NoSlots(3)):
        assert spec.double == 6
        kind: Any = Kind(group="example.com", version="v1", kind="Widget", spec=type(spec))
        assert MutableObject.new(kind, "web", spec=spec)["spec"] == {"size": 3}


def test_a_value_is_assigned_where_a_hook_fails_on_the_stored_one() -> None:
    def hook(spec: Any) -> dict[str, Any]:
        if spec.size < 0:
            raise LookupError("no such size")
        return {}

    view = made_class("attrs", {"size": (int, 1)}, hook)
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view)
    draft = MutableObject(kind, {"metadata": {}, "spec": {"size": -1, "hidden": 1}})
    draft.spec = view(size=2)
    assert draft["spec"] == {"size": 2, "hidden": 1}


def test_the_comparison_of_a_class_is_not_asked() -> None:
    @attrs.frozen(eq=False)
    class Spec:
        size: int = 1

        def __eq__(self, other: object) -> bool:
            raise LookupError("not to be compared")

        __hash__ = None  # type: ignore[assignment]

    kind = Kind(group="example.com", version="v1", kind="Widget", spec=Spec)
    draft = MutableObject(kind, {"metadata": {}, "spec": {"size": 1, "hidden": 1}})
    draft.spec = Spec(2)
    assert draft["spec"] == {"size": 2, "hidden": 1}
