from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.cache import Event
from appsdk_operator.controllers import Predicate
from appsdk_operator.controllers import _predicates as p
from appsdk_operator.resource import ChangeFilter, Filter, annotation, field, labels
from tests.controllers.event_tools import (
    CREATE,
    DELETE,
    GENERIC,
    RESYNC,
    UPDATE,
    created,
    obj,
    one_of_each,
    updated,
)

ANY = created()
CHANGED = {
    "resource_version": p.resource_version_changed,
    "generation": p.generation_changed,
    "annotation": p.annotation_changed,
    "label": p.label_changed,
    "finalizers": p.finalizers_changed,
    "deletion": p.deletion_requested,
    "fields": field("spec.size").changed,
    "status": p.status_changed,
}
changed_predicates = pytest.mark.parametrize("predicate", CHANGED.values(), ids=CHANGED)


def with_generation(number, version=1, **metadata):
    return obj("a", version, metadata={"generation": number, **metadata})


def passes(given, old, new):
    return predicate_of(given)(updated(old, new))


def predicate_of(given):
    (predicate,) = p.as_predicates([given])
    return predicate


# Made from functions.


def test_missing_functions_let_everything_pass():
    predicate = Predicate.from_functions()
    assert all(predicate(event) for event in one_of_each(obj()).values())


@pytest.mark.parametrize("name", ["create", "update", "delete", "generic"])
def test_each_function_is_asked_of_its_own_events_only(name):
    predicate = Predicate.from_functions(**{name: lambda event: False})
    dropped = {a.value for a, event in one_of_each(obj()).items() if not predicate(event)}
    assert dropped == ({"UPDATE", "RESYNC"} if name == "update" else {name.upper()})


def test_the_update_function_sees_a_resync_as_an_update_with_nothing_changed():
    seen = []
    predicate = Predicate.from_functions(update=lambda event: seen.append(event) or True)
    it = obj()
    assert predicate(Event(RESYNC, it))
    assert seen[0].old is seen[0].object is it


def test_a_filter_looks_at_the_object_and_at_an_update_from_both_sides():
    predicate = predicate_of(Filter(lambda it: it.name == "a"))
    assert all(predicate(event) for event in one_of_each(obj("a")).values())
    assert not any(predicate(event) for event in one_of_each(obj("b")).values())
    assert predicate(updated(obj("b"), obj("a")))
    assert predicate(updated(obj("a"), obj("b")))  # it leaves the filter
    assert not predicate(updated(obj("b"), obj("c")))


# The algebra.


def table(size):
    return st.lists(st.booleans(), min_size=size, max_size=size)


def constant(value):
    return Predicate(lambda event: value, name=str(value))


@given(st.lists(st.booleans(), max_size=5))
def test_all_of_and_any_of_are_all_and_any(values):
    parts = [constant(value) for value in values]
    assert p.all_of(*parts)(ANY) is all(values)
    if values:
        assert p.any_of(*parts)(ANY) is any(values)
        assert functools.reduce(lambda a, b: a & b, parts)(ANY) is all(values)
        assert functools.reduce(lambda a, b: a | b, parts)(ANY) is any(values)


@given(st.booleans(), st.booleans(), st.booleans())
def test_the_algebra_is_boolean(x, y, z):
    a, b, c = constant(x), constant(y), constant(z)
    assert (~a)(ANY) is p.not_(a)(ANY) is (not x)
    assert (~~a)(ANY) is x
    assert (~(a & b))(ANY) is (~a | ~b)(ANY)
    assert (~(a | b))(ANY) is (~a & ~b)(ANY)
    assert (a & (b | c))(ANY) is ((a & b) | (a & c))(ANY)


def test_plain_functions_are_taken_on_either_side():
    def yes(event):
        return True

    def no(event):
        return False

    assert (constant(True) & yes)(ANY)
    assert not (no & constant(True))(ANY)
    assert (no | constant(True))(ANY)
    assert (constant(False) | yes)(ANY)
    assert p.not_(no)(ANY)


def test_combinations_ask_in_order_and_no_more_than_they_need():
    asked = []

    def part(name, answer):
        return Predicate(lambda event: asked.append(name) or answer)

    p.all_of(part("a", False), part("b", True))(ANY)
    p.any_of(part("c", True), part("d", True))(ANY)
    assert asked == ["a", "c"]


def test_the_name_of_a_combination_tells_what_it_is_made_of():
    def mine(event):
        return True

    predicate = (Predicate(p.generation_changed) | mine) & ~p.label_changed
    name = "test_the_name_of_a_combination_tells_what_it_is_made_of.mine"
    assert str(predicate) == f"(generation_changed | {name}) & ~label_changed"
    assert str(Predicate(p.label_changed)) == "label_changed"
    assert repr(p.label_changed) == "<ChangeFilter label_changed>"


def test_python_s_own_and_or_not_are_refused_because_they_would_drop_one_side():
    with pytest.raises(TypeError, match="combine filters with &"):
        _ = p.generation_changed and p.label_changed


def test_any_of_nothing_is_refused_because_nothing_would_pass():
    with pytest.raises(ValueError, match="at least one"):
        p.any_of()
    assert p.all_of()(ANY)


def test_what_a_part_raises_is_raised_by_the_whole_so_that_the_event_passes():
    predicate = ~Predicate(lambda event: 1 / 0) & constant(False)
    with pytest.raises(ZeroDivisionError):
        predicate(ANY)


def test_what_is_only_truthy_counts():
    assert Predicate(lambda event: "text")(ANY) is True
    assert Predicate(lambda event: None)(ANY) is False


# What is refused.


async def async_filter(event):
    return True


class AsyncFilter:
    async def __call__(self, event):
        return True


@pytest.mark.parametrize(
    "make",
    [
        Predicate,
        p.not_,
        p.any_of,
        lambda f: Predicate(p.generation_changed) & f,
        lambda f: Predicate.from_functions(update=f),
        lambda f: p.as_predicates([f]),
    ],
)
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (async_filter, "plain function"),
        (AsyncFilter(), "plain function"),
        (functools.partial(async_filter), "plain function"),
        ("generation_changed", "cannot be called"),
        (lambda: True, "give a function of"),
        (lambda old, new: True, "give a function of"),
    ],
)
def test_what_is_no_plain_function_of_an_event_is_refused_at_construction(make, function, text):
    with pytest.raises(TypeError, match=text):
        make(function)


def test_an_async_function_in_disguise_is_an_error_and_not_true():
    with pytest.raises(TypeError, match="returned coroutine: make it a plain function"):
        Predicate(lambda event: async_filter(event) or False)(ANY)


def test_a_predicate_that_is_called_as_if_it_made_one_says_so():
    for each in (p.generation_changed, Predicate(p.generation_changed)):
        with pytest.raises(TypeError, match=r"generation_changed .* without \("):
            p.as_predicates([each()])


@pytest.mark.parametrize("filters", [p.generation_changed, "label_changed", {"a": 1}, 3])
def test_predicates_are_given_as_a_list(filters):
    with pytest.raises(TypeError, match="give a list of predicates"):
        p.as_predicates(filters)


# What has changed.


@changed_predicates
def test_changed_predicates_gate_only_updates(predicate):
    predicate = predicate_of(predicate)
    same = one_of_each(obj())
    assert {action for action, event in same.items() if predicate(event)} == {
        CREATE,
        DELETE,
        GENERIC,
    }


@changed_predicates
def test_an_update_without_an_old_object_does_not_pass(predicate):
    assert not predicate_of(predicate)(Event(UPDATE, obj()))


@changed_predicates
def test_an_object_that_was_deleted_and_made_anew_always_passes(predicate):
    assert passes(predicate, obj("a", 1, uid="one"), obj("a", 1, uid="two"))


@pytest.mark.parametrize("name", CHANGED)
def test_each_changed_predicate_sees_its_own_change_and_no_other(name):
    base = {"generation": 1, "annotations": {"k": "1"}, "labels": {"k": "1"}}
    before = obj("a", 1, metadata=base, spec={"size": 1}, status={"n": 1})
    changes = {
        "resource_version": obj("a", 2, metadata=base, spec={"size": 1}, status={"n": 1}),
        "generation": obj(
            "a", 1, metadata={**base, "generation": 2}, spec={"size": 1}, status={"n": 1}
        ),
        "annotation": obj(
            "a", 1, metadata={**base, "annotations": {}}, spec={"size": 1}, status={"n": 1}
        ),
        "label": obj("a", 1, metadata={**base, "labels": {}}, spec={"size": 1}, status={"n": 1}),
        "finalizers": obj(
            "a", 1, metadata={**base, "finalizers": ["x/y"]}, spec={"size": 1}, status={"n": 1}
        ),
        "deletion": obj(
            "a",
            1,
            metadata={**base, "deletionTimestamp": "2024-05-01T10:00:00Z"},
            spec={"size": 1},
            status={"n": 1},
        ),
        "fields": obj("a", 1, metadata=base, spec={"size": 2}, status={"n": 1}),
        "status": obj("a", 1, metadata=base, spec={"size": 1}, status={"n": 2}),
    }
    seen = {change for change, after in changes.items() if passes(CHANGED[name], before, after)}
    assert seen == {name} | ({"deletion"} if name == "generation" else set())


def test_generation_changed_sees_that_deletion_was_asked_for_without_a_new_generation():
    marked = {"deletionTimestamp": "2024-05-01T10:00:00Z", "finalizers": ["x/y"]}
    assert passes(p.generation_changed, with_generation(1), with_generation(1, 2, **marked))
    # And not each update after it.
    assert not passes(
        p.generation_changed, with_generation(1, 2, **marked), with_generation(1, 3, **marked)
    )


def test_generation_changed_does_not_see_a_finalizer_that_was_removed_but_can_be_combined():
    before, after = with_generation(1, finalizers=["x/y", "z"]), with_generation(1, finalizers=[])
    assert not passes(p.generation_changed, before, after)
    assert passes(p.generation_changed | p.finalizers_changed, before, after)


def test_generation_changed_lets_updates_of_kinds_pass_that_have_no_generation():
    assert passes(p.generation_changed, obj("a", 1), obj("a", 2))
    assert not passes(p.generation_changed, obj("a", 2), obj("a", 2))


@pytest.mark.parametrize(
    ("predicate", "field"), [(p.annotation_changed, "annotations"), (p.label_changed, "labels")]
)
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": "1"}, {"a": "1"}, False),
        ({"a": "1"}, {"a": "2"}, True),
        ({"a": "1"}, {"a": "1", "b": "1"}, True),
        ({"a": "1", "b": "1"}, {"a": "1"}, True),
        ({"a": "1"}, {"b": "1"}, True),
        (None, {}, False),
        ({}, None, False),
        ("absent", {}, False),
        (None, {"a": "1"}, True),
        ({"a": "1"}, "absent", True),
        ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, False),
    ],
)
def test_labels_and_annotations_are_compared_as_mappings(predicate, field, old, new, expected):
    before, after = (
        obj("a", 1, metadata={} if value == "absent" else {field: value}) for value in (old, new)
    )
    assert passes(predicate, before, after) is expected


def test_the_order_of_finalizers_does_not_matter():
    one = obj("a", 1, metadata={"finalizers": ["x", "y"]})
    two = obj("a", 2, metadata={"finalizers": ["y", "x"]})
    assert not passes(p.finalizers_changed, one, two)


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("spec.replicas", {"replicas": 1}, {"replicas": 2}, True),
        ("spec.replicas", {"replicas": 1, "x": 1}, {"replicas": 1, "x": 2}, False),
        ("spec.replicas", {}, {"replicas": None}, False),
        ("spec.replicas", None, {"replicas": 0}, True),
        ("spec.replicas", "text", "other", False),
        ("spec.paused", {"paused": True}, {"paused": 1}, True),
        ("spec", {"a": [{"on": True}]}, {"a": [{"on": 1}]}, True),
        ("spec", {"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ("spec", {"a": [1, 2]}, {"a": [1]}, True),
        ("spec.list[1].image", {"list": [{}, {"image": "a"}]}, {"list": [{}]}, True),
        ("spec.list[0]['the.key/x']", {"list": [{"the.key/x": 1}]}, {"list": [{}]}, True),
        ('spec.list[0]["it\'s"]', {"list": [{"it's": 1}]}, {"list": [{"it's": 1}]}, False),
        ("spec.list[7]", {"list": [1]}, {"list": [2]}, False),
    ],
)
def test_fields_are_found_by_path(path, old, new, expected):
    assert passes(field(path).changed, obj(spec=old), obj(spec=new)) is expected


def test_several_fields_are_looked_at_and_labels_by_key():
    predicate = (
        field("spec.size").changed | field("metadata.labels")["app.kubernetes.io/name"].changed
    )
    before = obj(labels={"app.kubernetes.io/name": "a", "x": "1"}, spec={"size": 1})
    assert passes(predicate, before, obj(labels={"app.kubernetes.io/name": "b"}, spec={"size": 1}))
    assert not passes(
        predicate, before, obj(labels={"app.kubernetes.io/name": "a"}, spec={"size": 1})
    )


# Filters.


def test_labels_look_at_all_events():
    predicate = predicate_of(labels("app=web"))
    assert all(map(predicate, one_of_each(obj(labels={"app": "web"})).values()))
    assert not any(map(predicate, one_of_each(obj(labels={"app": "api"})).values()))
    assert str(predicate) == "labels('app=web')"


def test_an_object_that_leaves_the_selection_is_seen_once_more():
    for inside in (labels("app=web"), ~~labels("app=web"), labels("app=web") & p.label_changed):
        web, other = obj("a", 1, labels={"app": "web"}), obj("a", 2)
        assert passes(inside, other, web)
        assert passes(inside, web, other)
        assert not passes(inside, other, other)


def test_an_object_that_enters_a_negated_selection_is_seen_too():
    worth_it = ~(labels("ignore") & field("spec.size").changed)
    ignored, seen = obj(labels={"ignore": ""}, spec={"size": 1}), obj(spec={"size": 2})
    assert passes(worth_it, ignored, seen)
    assert passes(worth_it, seen, ignored)


def test_a_function_of_events_is_called_once_where_nothing_looks_at_an_object():
    calls = []
    predicate = Predicate(lambda event: bool(calls.append(event))) & p.label_changed
    assert not predicate(updated(obj("a", 1), obj("a", 2)))
    assert len(calls) == 1


def test_what_combines_filters_is_as_general_as_its_most_general_part():
    of_object, of_change, of_event = labels("a"), p.label_changed, constant(True)
    made = {
        Filter: [of_object & annotation("b"), annotation("b") | of_object, ~annotation("b")],
        ChangeFilter: [of_object & of_change, of_change | of_object, ~(of_change & of_object)],
        Predicate: [of_object | of_event, of_event & of_change, ~(of_change | of_event)],
    }
    for kind, all_of_it in made.items():
        assert {type(each) for each in all_of_it} == {kind}
    assert not (of_event & of_object & of_change)(Event(CREATE, obj()))
    assert (of_event & of_object & of_change)(Event(CREATE, obj(labels={"a": ""})))


def test_what_is_no_filter_yet_is_refused_where_predicates_are_given():
    for wrong, remedy in ((field("spec.size"), "write field"), (labels, "call it"), (True, "give")):
        with pytest.raises(TypeError, match=remedy):
            p.as_predicates([wrong])
