"""The algebra of filters, against plain Python over plain JSON."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable
from typing import Annotated, Any

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appsdk_operator.resource import (
    ChangeFilter,
    FieldName,
    FieldPath,
    FieldSelector,
    Filter,
    Kind,
    LabelSelector,
    MetadataOnlyError,
    Object,
    SelectorError,
    annotation,
    change_filter_of,
    check_fields,
    field,
    field_selector_of,
    filter_of,
    label_selector_of,
    labels,
)

THING = Kind(group="example.com", version="v1", kind="Thing")
MISSING = object()

Json = dict[str, Any]


def thing(
    *, labels: Any = None, annotations: Any = None, kind: Kind[Any, Any] = THING, **more: Any
) -> Object[Any, Any]:
    metadata: Json = {"name": "a", "namespace": "b", "uid": "1"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return Object.from_dict(kind, {"metadata": metadata, **more})


# The algebra against plain Python.


def found(data: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


PATHS: list[tuple[FieldPath, tuple[str | int, ...]]] = [
    (field("spec.a"), ("spec", "a")),
    (field("spec")["a"], ("spec", "a")),
    (field("spec.b[1]"), ("spec", "b", 1)),
    (field("spec", "b", 1, "c"), ("spec", "b", 1, "c")),
    (field("spec").key("x.y/z"), ("spec", "x.y/z")),
    (field('spec["it\'s"]'), ("spec", "it's")),
    (field("metadata.labels['app']"), ("metadata", "labels", "app")),
    (field("data.a"), ("data", "a")),
]
# Few, so that they often are equal.
SCALARS = st.sampled_from([None, True, 1, 1.0, 0, "", "web"])
VALUES = SCALARS | st.lists(SCALARS | st.just({"c": 1}), max_size=2) | st.just({"c": 1})
LABELS = st.dictionaries(
    st.sampled_from(["app", "old", "tier"]), st.sampled_from(["", "web", "3"]), max_size=3
)
PARTS = st.none() | st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": st.lists(VALUES, max_size=2), "x.y/z": VALUES, "it's": VALUES}
)
OBJECTS: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("a"), "uid": st.just("1")},
            optional={"labels": LABELS, "annotations": LABELS},
        )
    },
    optional={"spec": PARTS, "status": PARTS, "data": PARTS},
)
SELECTORS: list[tuple[str, Callable[[Json], bool]]] = [
    ("app=web,!old", lambda found: found.get("app") == "web" and "old" not in found),
    ("tier in (web,3)", lambda found: found.get("tier") in ("web", "3")),
    ("app!=web", lambda found: found.get("app") != "web"),
    ("tier>2", lambda found: found.get("tier") == "3"),
    ("", lambda found: True),
]

# A pair: the filter, and what plain Python says of the old and the new object.
Plain = Callable[[Json, Json], bool]
OfObject = tuple[Any, Plain]


@st.composite
def atoms_of_objects(draw: st.DrawFn) -> OfObject:
    form = draw(st.sampled_from(["labels", "annotation", "equals", "differs", "exists", "isin"]))
    if form == "labels":
        text, holds = draw(st.sampled_from(SELECTORS))
        return labels(text), lambda _, new: holds(new["metadata"].get("labels", {}))
    if form == "annotation":
        key = draw(st.sampled_from(["app", "old"]))
        text_or_none = draw(st.sampled_from(["", "web", None, MISSING]))

        def value(obj: Json) -> Any:
            return obj["metadata"].get("annotations", {}).get(key)

        if text_or_none is MISSING:
            return annotation(key), lambda _, new: value(new) is not None
        return annotation(key) == text_or_none, lambda _, new: value(new) == text_or_none
    path, steps = draw(st.sampled_from(PATHS))
    if form == "exists":
        return path.exists, lambda _, new: found(new, steps) is not None
    if form == "isin":
        several = draw(st.lists(VALUES, max_size=3))
        return path.isin(several), lambda _, new: any(same(found(new, steps), v) for v in several)
    wanted = draw(VALUES)
    if form == "equals":
        return path == wanted, lambda _, new: same(found(new, steps), wanted)
    return path != wanted, lambda _, new: not same(found(new, steps), wanted)


@st.composite
def atoms_of_changes(draw: st.DrawFn) -> OfObject:
    path, steps = draw(st.sampled_from(PATHS))
    wanted = draw(VALUES)

    def before_and_after(old: Json, new: Json) -> tuple[bool, bool]:
        return same(found(old, steps), wanted), same(found(new, steps), wanted)

    return draw(
        st.sampled_from(
            [
                (path.changed, lambda old, new: not same(found(old, steps), found(new, steps))),
                (path.became(wanted), lambda old, new: before_and_after(old, new) == (False, True)),
                (path.left(wanted), lambda old, new: before_and_after(old, new) == (True, False)),
            ]
        )
    )


def plain_functions(of_change: bool) -> st.SearchStrategy[OfObject]:
    """Functions as users write them."""
    if of_change:
        return st.just((lambda old, new: "spec" in old, lambda old, new: "spec" in old))
    return st.just((lambda obj: "status" in obj, lambda _, new: "status" in new))


def trees(of_change: bool) -> st.SearchStrategy[OfObject]:
    atoms = atoms_of_objects() | atoms_of_changes() if of_change else atoms_of_objects()
    functions = plain_functions(of_change)

    def grown(inner: st.SearchStrategy[OfObject]) -> st.SearchStrategy[OfObject]:
        def joined(parts: tuple[OfObject, OfObject, str, bool]) -> OfObject:
            (one, one_says), (two, two_says), operator, is_swapped = parts
            if is_swapped:
                one, one_says, two, two_says = two, two_says, one, one_says
            if operator == "&":
                return one & two, lambda old, new: one_says(old, new) and two_says(old, new)
            return one | two, lambda old, new: one_says(old, new) or two_says(old, new)

        def negated(part: OfObject) -> OfObject:
            one, says = part
            return ~one, lambda old, new: not says(old, new)

        pairs = st.tuples(inner, inner, st.sampled_from("&|"), st.booleans())
        if not of_change:  # a function next to a filter of an object is one of an object
            pairs |= st.tuples(inner, functions, st.sampled_from("&|"), st.booleans())
        return pairs.map(joined) | inner.map(negated)

    return st.recursive(atoms, grown, max_leaves=6)


@given(trees(of_change=False), OBJECTS)
def test_a_filter_of_objects_is_what_plain_python_says(tree: OfObject, data: Json) -> None:
    built, says = tree
    assert isinstance(built, Filter)
    assert filter_of(built)(Object.from_dict(THING, data)) is says(data, data)


@given(trees(of_change=True), OBJECTS, OBJECTS)
def test_a_filter_of_changes_is_what_plain_python_says(
    tree: OfObject, before: Json, after: Json
) -> None:
    built, says = tree
    old, new = (Object.from_dict(THING, data) for data in (before, after))
    assert change_filter_of(built)(old, new) is says(before, after)


@given(trees(of_change=False), OBJECTS)
def test_a_selector_of_a_filter_matches_the_same_objects(tree: OfObject, data: Json) -> None:
    built, says = tree
    selector = built.label_selector
    if selector is not None:
        assert selector.matches(data["metadata"].get("labels", {})) is says(data, data)


@given(trees(of_change=True), trees(of_change=True), OBJECTS, OBJECTS)
def test_the_text_of_a_filter_is_python_that_makes_it(
    one: OfObject, two: OfObject, before: Json, after: Json
) -> None:
    """So brackets are where they must be; plain functions and secrets have other texts."""
    built = ~(one[0] & (two[0] | ~one[0])) | (one[0] & two[0])
    assume("lambda" not in str(built) and "…" not in str(built))
    names = {"labels": labels, "annotation": annotation, "field": field}
    again = change_filter_of(eval(str(built), names))
    assert str(again) == str(built)
    old, new = (Object.from_dict(THING, data) for data in (before, after))
    assert again(old, new) is change_filter_of(built)(old, new)


def test_a_filter_of_an_object_looks_at_the_new_one_where_a_change_is_expected() -> None:
    web, other = thing(labels={"app": "web"}), thing()
    for made in (labels("app=web"), labels("app=web") & field("metadata.labels").changed):
        assert change_filter_of(made)(other, web)
        assert not change_filter_of(made)(web, other)


@pytest.mark.parametrize(
    ("before", "after", "changed", "became", "left"),
    [
        ({"a": 1}, {"a": 2}, True, True, False),
        ({"a": 2}, {"a": 1}, True, False, True),
        ({"a": 2}, {"a": 2.0}, False, False, False),
        ({"a": 1}, {"a": 3}, True, False, False),
        ({}, {"a": 2}, True, True, False),
        ({"a": 2}, {"a": None}, True, False, True),
        ({"a": None}, {}, False, False, False),
        ({"a": 1}, {"a": True}, True, False, False),
        (None, {"a": 2}, True, True, False),
    ],
)
def test_a_change_is_to_a_value_or_from_it(
    before: Any, after: Any, changed: bool, became: bool, left: bool
) -> None:
    old, new, size = thing(spec=before), thing(spec=after), field("spec.a")
    assert size.changed(old, new) is changed
    assert size.became(2)(old, new) is became
    assert size.left(2)(old, new) is left


# What is compared.


@pytest.mark.parametrize("value", ["", 0, False, [], {}, 1])
def test_a_value_exists_unless_it_is_null(value: Any) -> None:
    for spec in ({"a": value}, {"b": [1, value]}):
        exists = (field("spec.a") if "a" in spec else field("spec.b[1]")).exists
        assert exists(thing(spec=spec))
    for missing in (None, {}, {"a": None}, {"b": [value]}):
        assert not field("spec.a").exists(thing(spec=missing))
        assert not field("spec.b[1]").exists(thing(spec=missing))


class Phase(enum.Enum):
    READY = "Ready"


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (1, {"a": 1.0}, True),
        (True, {"a": 1}, False),
        (None, {}, True),
        (None, {"a": None}, True),
        (None, {"a": ""}, False),
        ((1, 2), {"a": [1, 2]}, True),
        (Phase.READY, {"a": "Ready"}, True),
        ([Phase.READY], {"a": ["Ready"]}, True),
        (10**30, {"a": 10**30}, True),
    ],
)
def test_values_are_compared_as_json(value: Any, spec: Json, expected: bool) -> None:
    obj = thing(spec=spec)
    assert (field("spec.a") == value)(obj) is expected
    assert (field("spec.a") != value)(obj) is not expected
    assert field("spec.a").isin([value])(obj) is expected


def test_a_value_is_that_of_the_time_when_it_was_given() -> None:
    wanted = [1]
    is_it = field("spec.a") == wanted
    wanted.append(2)
    assert is_it(thing(spec={"a": [1]}))


@pytest.mark.parametrize("value", [object(), {1, 2}, b"a", lambda: 1, field, attrs.Factory(list)])
def test_what_is_no_json_value_is_refused(value: Any) -> None:
    for compare in (
        lambda: field("spec.a") == value,
        lambda: field("spec.a") != [value],
        lambda: field("spec.a").became(value),
        lambda: field("spec.a").left({"a": value}),
        lambda: field("spec.a").isin([value]),
        lambda: annotation("a") == value,
    ):
        with pytest.raises(TypeError, match=r"is compared with a \w+: give a JSON value"):
            compare()


def test_the_values_of_an_annotation_are_text() -> None:
    with pytest.raises(TypeError, match="its values are text"):
        _ = annotation("a") == 3
    for wrong in ("a", {"a": 1}, 3):
        with pytest.raises(TypeError, match=r"isin.*give a list of values"):
            field("spec.a").isin(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["data.password", "stringData.password", "binaryData['a.b']"])
def test_values_that_may_be_secret_are_not_shown(path: str) -> None:
    secret = field(path)
    for made in (
        secret == "hunter2",
        secret != "hunter2",
        secret.isin(["hunter2"]),
        secret.became("hunter2"),
        secret.left("hunter2"),
    ):
        assert "hunter2" not in repr(made)


@attrs.frozen
class Spec:
    max_size: int = 1
    own: Annotated[int, FieldName("theirs")] = 0


TYPED = Kind(group="example.com", version="v1", kind="Thing", spec=Spec, rename="camel")


def test_a_field_has_the_name_of_python_or_that_on_the_wire() -> None:
    for kind in (TYPED, THING):
        obj = thing(kind=kind, spec={"maxSize": 3, "theirs": 4})
        assert (field("spec.maxSize") == 3)(obj)
        assert (field("spec.theirs") == 4)(obj)
        assert (field("spec.max_size") == 3)(obj) is (kind is TYPED)
        assert (field("spec.own") == 4)(obj) is (kind is TYPED)
        # The typed and the untyped view of one object.
        assert (field("spec.max_size") == 3)(obj.viewed_as(TYPED))


def test_a_field_of_an_object_with_metadata_only_is_no_missing_one() -> None:
    raw = (
        b'{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",'
        b'"metadata":{"name":"a","uid":"1","labels":{"app":"web"}}}'
    )
    obj = Object.from_json(THING, raw)
    assert labels("app=web")(obj)
    assert (field("metadata.name") == "a")(obj)
    with pytest.raises(MetadataOnlyError):
        field("spec.a").exists(obj)


def test_a_field_below_what_is_no_mapping_is_missing() -> None:
    for spec in ("text", 3, [1], {"a": "text"}, {"a": [{"b": 1}]}, {"a": None}):
        obj = thing(spec=spec)
        assert not field("spec.a.b").exists(obj)
        assert not field("spec.a[0].b.c").exists(obj)
        assert (field("spec") == spec)(obj)
    copy: Any = thing(spec={"a": {"b": [1, 2]}}).mutable_copy()
    assert (field("spec.a.b[1]") == 2)(copy)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_key_may_have_characters_that_json_escapes(name: str) -> None:
    obj = thing(spec={name: {"size": 1}})
    assert (field("spec").key(name)["size"] == 1)(obj)
    assert field("spec").key(name).changed(obj, thing(spec={}))
    assert not field("status").key(name).exists(obj)


def test_a_value_that_is_read_cannot_be_changed() -> None:
    value = field("spec.a").value(thing(spec={"a": {"b": [1]}}))
    assert value == {"b": [1]}
    with pytest.raises(TypeError):
        value["b"] = 2


# What is refused.


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: field("spec.a") == 1 and labels("a"),
        lambda: labels("a") or labels("b"),
        lambda: not annotation("a"),
        lambda: 0 == field("spec.a") == 1,
        lambda: bool(field("spec.a").changed),
        lambda: 1 if field("spec.a").became(3) else 0,
    ],
)
def test_the_truth_value_of_a_filter_is_an_error_that_names_the_operators(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"combine filters with &, \| and ~ instead of"):
        wrong()


def test_the_truth_value_of_a_path_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"names a field .* write .exists, == value"):
        bool(field("spec.a"))


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (lambda: labels("a") & True, "labels('a') & True: True cannot be called: give a function"),
        (lambda: field("spec.a") == 1 & labels("a"), "1 & labels('a'): 1 cannot be called"),
        (lambda: labels("a") & field("spec.a") == 1, "write field('spec.a').exists"),
        (lambda: labels("a") | annotation, "annotation makes a filter: call it"),
        (lambda: ~field("spec.a"), "bad operand type for unary ~"),
        (lambda: labels("a") & (lambda old, new: True), "give a function of (obj)"),
        (lambda: field("a").changed & (lambda obj: True), "give a function of (old, new)"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_a_remedy(wrong: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=re.escape(remedy)):
        wrong()


async def later(obj: Object[Any, Any]) -> bool:
    return True


class Later:
    async def __call__(self, obj: Object[Any, Any]) -> bool:
        return True


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (
            field("spec.a").changed,
            "looks at a change, but this option takes filters of one object: give it as when=",
        ),
        (labels("a") & field("spec.a").left(3), "give it as when="),
        (field("spec.a"), "names a field and is not a filter: write field('spec.a').exists"),
        (labels, "labels makes a filter: call it"),
        (False, "False cannot be called: give a function of (obj)"),
        ("app=web", "give a function of (obj)"),
        (lambda old, new: True, "give a function of (obj)"),
        (later, "is async, but it is called for every event"),
        (Later(), "is async"),
        (functools.partial(later), "is async"),
    ],
)
def test_what_is_no_filter_of_an_object_is_refused_when_given(wrong: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=re.escape(remedy)) as raised:
        filter_of(wrong, "where")
    assert str(raised.value).startswith("where: ")


@pytest.mark.parametrize("wrong", [field("spec.a"), annotation, True, lambda obj: True, None])
def test_what_is_no_filter_of_a_change_is_refused_when_given(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^when: .*(call it|write|give a function of \(old, new\))"
    ):
        change_filter_of(wrong, "when")


@pytest.mark.parametrize(
    "path",
    [*("", ".spec", "$.spec", "spec.", "spec..size", "spec size", "spec.*", "spec[x]", "spec[0"),
     *("spec['a", "[0]", "spec.a/b", "spec[-1]")],
)  # fmt: skip
def test_a_path_that_is_none_is_refused_with_an_example(path: str) -> None:
    for word in ("exists", "changed"):
        with pytest.raises(ValueError, match=r"write for example spec\.replicas|path\.key"):
            getattr(field(path), word)
    with pytest.raises(ValueError, match=r"write for example spec\.replicas|path\.key"):
        _ = field(path) == 3


@pytest.mark.parametrize("key", ["labels", "annotations"])
def test_a_label_s_key_without_brackets_is_refused_because_it_would_never_be_found(
    key: str,
) -> None:
    with pytest.raises(ValueError, match=rf"write metadata\.{key}\['app\.example\.com'\]"):
        _ = field(f"metadata.{key}.app.example.com").exists


def test_atoms_are_checked_when_they_are_made() -> None:
    with pytest.raises(SelectorError):
        labels("app in web")
    for wrong in (3, None):
        with pytest.raises(TypeError, match="selector="):
            labels(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key of an annotation as text"):
        annotation(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key of an annotation"):
        annotation("")


# Functions.


def test_a_function_may_return_what_is_only_truthy_and_nothing_to_wait_for() -> None:
    assert Filter(lambda obj: "text")(thing()) is True  # type: ignore[arg-type, return-value]
    assert ChangeFilter(lambda old, new: None)(thing(), thing()) is False  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="returned coroutine: make it a plain function"):
        Filter(lambda obj: later(obj) or True)(thing())


def test_what_a_part_raises_is_raised_by_the_whole() -> None:
    broken = ~Filter(lambda obj: bool(1 / 0)) & labels("a")
    with pytest.raises(ZeroDivisionError):
        broken(thing())


def test_parts_are_asked_in_order_and_no_more_than_needed() -> None:
    asked: list[str] = []

    def part(name: str, answer: bool) -> Filter[Any, Any]:
        return Filter(lambda obj: bool(asked.append(name)) or answer)

    assert not (part("a", False) & part("b", True) & part("c", True))(thing())
    assert (part("d", False) | part("e", True) | part("f", True))(thing())
    assert asked == ["a", "d", "e"]
    asked.clear()
    first: Any = lambda obj: bool(asked.append("first"))  # noqa: E731
    assert not (first & part("second", True))(thing())
    assert (first | part("third", True))(thing())
    assert asked == ["first", "first", "third"]


# Equality and hashes.


def test_paths_are_equal_by_their_text_and_filters_to_themselves_alone() -> None:
    assert field("spec.a") == field("spec")["a"]
    assert field("spec.a") != field("spec.b")
    assert len({field("spec.a"), field("spec")["a"], field("spec.b")}) == 2
    one, two = labels("a"), annotation("a")
    assert {one: 1, two: 2}[two] == 2
    assert one != labels("a")
    assert two in [one, two]
    assert two != annotation("a")
    assert not two == one  # noqa: SIM201 - the other operator


def test_filters_that_are_made_alike_are_known_to_be_the_same() -> None:
    def large(obj: Object[Any, Any]) -> bool:
        return True

    def made() -> list[Filter[Any, Any]]:
        parts = [labels("a"), annotation("a"), field("spec.a") == 3, filter_of(large)]
        return [*parts, ~parts[0], parts[0] & parts[3], parts[0] | parts[3], labels("a,b")]

    for number, one in enumerate(made()):
        for other_number, other in enumerate(made()):
            assert one.tree.is_same(other.tree) is (number == other_number)
    # Neither functions of the same name nor secrets are known to be the same.
    assert not filter_of(lambda obj: True).tree.is_same(filter_of(lambda obj: False).tree)
    secrets = [field("data.a") == value for value in ("one", "two")]
    assert not secrets[0].tree.is_same(secrets[1].tree)


# Selectors.


def test_a_selector_may_be_given_as_a_filter() -> None:
    both = labels("app=web") & labels({"tier": "a"})
    assert label_selector_of(both) == LabelSelector.parse("app=web,tier=a")
    fields = (field("metadata.name") == "web") & (field("spec.nodeName") != "b")
    assert field_selector_of(fields) == FieldSelector.parse("metadata.name=web,spec.nodeName!=b")


@pytest.mark.parametrize(
    "wrong",
    [
        labels("a") | labels("b"),
        ~labels("a"),
        labels("a") & annotation("b"),
        field("spec.a").changed,
        field("spec.a") == 3,
        field("spec.a") == "",
        field("spec.a[0]") == "a",
        field("spec.a").exists,
    ],
)
def test_what_no_server_can_select_by_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"label_selector=.*filter by the rest with where="):
        label_selector_of(wrong)
    with pytest.raises(TypeError, match=r"field_selector=.*filter by the rest with where="):
        field_selector_of(wrong)


# Checks against a class.


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (field("spec.max_sise") == 3, "has no field 'max_sise', did you mean 'maxSize'?"),
        (labels("a") & ~field("spec.sice").exists, "has no field 'sice'"),
        (field("spce").changed | labels("a"), "did you mean 'spec'?"),
        (field("metadata.label['a']").exists, "metadata of things.v1.example.com has no field"),
        (field("metadata.naem") == "a", "did you mean 'name'?"),
    ],
)
def test_a_field_that_objects_cannot_have_is_refused(made: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_fields("where", made, TYPED)
