from __future__ import annotations

import random
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from appsdk_operator.cache import Store, drop_managed_fields
from appsdk_operator.resource import DecodeError, Object, encode_json
from tests.cache.conftest import PLACE, THING, event, line, thing, told


def store_of(*objects, **options):
    store = Store(THING, **options)
    store.begin_list()
    store.upsert(objects, is_initial=True)
    store.finish_list()
    return store


def change(store, type_, obj):
    return [told(e) for e in store.change([event(line(type_, obj))])]


def relist(store, *objects, is_initial=False):
    store.begin_list()
    events = store.upsert(objects, is_initial=is_initial)
    return [told(e) for e in [*events, *store.finish_list()]]


def names(objects):
    return sorted(obj.name for obj in objects)


# Reading.


def test_an_object_is_found_by_namespace_and_name_only():
    store = store_of(thing("a"), thing("a", namespace="y"))
    assert store.get("a", "x").namespace == "x"
    assert store.get("a", "y").namespace == "y"
    assert store.get("a") is None
    assert store.get("b", "x") is None
    assert sorted(store.namespaces()) == ["x", "y"]


def test_lists_select_by_namespace_and_labels():
    store = store_of(
        thing("a", labels={"app": "web"}),
        thing("b", labels={"app": "db"}),
        thing("c", namespace="y", labels={"app": "web"}),
    )
    assert names(store.list()) == names(store) == ["a", "b", "c"]
    assert names(store.list(namespace="x")) == ["a", "b"]
    assert names(store.list(namespace="")) == ["a", "b", "c"]
    assert names(store.list(namespace="nowhere")) == []
    assert names(store.list(label_selector="app=web")) == ["a", "c"]
    assert names(store.list(namespace="x", label_selector="app in (web, db)")) == ["a", "b"]


def test_lists_are_snapshots():
    store = store_of(thing("a"))
    before = store.list()
    change(store, "ADDED", thing("b", 2))
    assert names(before) == ["a"]
    before.clear()
    assert names(store.list()) == ["a", "b"]


def test_cluster_scoped_objects_need_no_namespace():
    store = Store(PLACE)
    store.upsert([thing("here", kind=PLACE)], is_initial=True)
    assert store.get("here").name == "here"
    assert names(store.list(namespace="")) == ["here"]


def test_counts_and_bytes_are_exact_through_all_changes():
    store = store_of(thing("a"), thing("b", spec={"long": "x" * 100}))

    def check():
        assert len(store) == len(store.list())
        assert store.json_bytes == sum(len(obj.raw) for obj in store)

    check()
    for type_, obj in [
        ("MODIFIED", thing("b", 2)),
        ("ADDED", thing("c", 3)),
        ("DELETED", thing("a", 4)),
        ("ADDED", thing("c", 5, uid="other", spec={})),
    ]:
        change(store, type_, obj)
        check()
    relist(store, thing("d", 9))
    check()
    relist(store)
    assert (len(store), store.json_bytes, list(store.namespaces())) == (0, 0, [])


# What changes mean.


def test_changes_are_adds_updates_and_deletes():
    store = store_of()
    assert change(store, "ADDED", thing("a", 1)) == ["add a@1"]
    assert change(store, "MODIFIED", thing("a", 2)) == ["update a@1->2"]
    assert change(store, "DELETED", thing("a", 3)) == ["delete a@3"]
    assert change(store, "DELETED", thing("a", 3)) == []


def test_the_type_of_a_change_counts_less_than_what_the_store_holds():
    store = store_of()
    assert change(store, "MODIFIED", thing("a", 1)) == ["add a@1"]
    assert change(store, "ADDED", thing("a", 2)) == ["update a@1->2"]


def test_what_is_older_or_the_same_changes_nothing():
    first = thing("a", 5)
    store = store_of(first)
    for type_ in ("ADDED", "MODIFIED"):
        assert change(store, type_, thing("a", 5)) == []
        assert change(store, type_, thing("a", 4)) == []
    assert change(store, "DELETED", thing("a", 4)) == []
    assert store.get("a", "x") is first


def test_another_uid_is_a_delete_and_an_add_in_a_watch_and_in_a_list():
    store = store_of(thing("a", 1, uid="one"))
    assert change(store, "ADDED", thing("a", 2, uid="two")) == ["delete a@1 unknown", "add a@2"]
    assert relist(store, thing("a", 3, uid="three")) == ["delete a@2 unknown", "add a@3"]


def test_a_deletion_of_another_uid_deletes_what_was_there():
    store = store_of(thing("a", 1, uid="one"))
    assert change(store, "DELETED", thing("a", 3, uid="two")) == ["delete a@1 unknown"]


def test_objects_without_versions_are_updates_each_time():
    store = store_of(thing("a", ""))
    assert change(store, "MODIFIED", thing("a", "")) == ["update a@->"]
    assert relist(store, thing("a", "")) == ["update a@->"]


# Other content at one version: a CRD got another default or conversion, or etcd was restored.


SPECS = st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 1, True, None, "x", [1], {}]))


def written(obj, seed, *, has_type):
    """The same object in other bytes: keys in another order, with or without its type."""
    fields = obj.to_dict()
    if not has_type:
        del fields["apiVersion"], fields["kind"]
    names = list(fields)
    random.Random(seed).shuffle(names)
    return Object.from_json(THING, encode_json({name: fields[name] for name in names}))


def in_order(spec):
    """What says the spec, in whatever order its keys are: 1 and True are not the same there."""
    return repr(sorted(spec.items()))


@given(
    states=st.lists(
        st.tuples(st.dictionaries(st.sampled_from("xy"), SPECS), st.booleans(), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    )
)
@example(states=[({"x": {"a": 0, "b": 0}}, False, 0), ({"x": {"b": 0, "a": 0}}, False, 0)])
@example(states=[({"x": {"a": 1}}, False, 0), ({"x": {"a": True}}, False, 0)])
def test_after_a_list_the_store_has_what_the_list_has_and_tells_of_changes_alone(states):
    store, before = store_of(indexes={"spec": lambda obj: [in_order(obj.spec)]}), {}
    for specs, has_type, seed in states:
        objects = [
            written(thing(name, 1, spec=spec), seed, has_type=has_type)
            for name, spec in specs.items()
        ]
        events = relist(store, *objects)
        assert {obj.name: in_order(obj.spec) for obj in store.list()} == {
            name: in_order(spec) for name, spec in specs.items()
        }
        for name, spec in specs.items():
            assert [o.name for o in store.by_index("spec", in_order(spec)) if o.name == name]
        assert {event.split("@")[0] for event in events} == {
            *(f"add {name}" for name in specs.keys() - before.keys()),
            *(f"delete {name}" for name in before.keys() - specs.keys()),
            *(
                f"update {name}"
                for name in before.keys() & specs.keys()
                if in_order(before[name]) != in_order(specs[name])
            ),
        }
        before = specs


def test_an_object_of_which_the_metadata_alone_can_be_read_replaces_the_same_version():
    store = store_of(thing("a", 1))
    # A number out of range, which nobody looks at before the spec is read.
    item = thing("a", 1, spec={"a": 1}).raw.replace(b'"a":1', b'"a":1e999')
    broken = Object.from_json(THING, item)
    with pytest.raises(DecodeError):
        broken.to_dict()
    assert relist(store, broken) == ["update a@1->1"]
    assert relist(store, broken) == []


def test_an_item_of_a_list_that_lacks_its_type_is_compared_without_decoding_it(monkeypatch):
    store = Store(THING)
    change(store, "ADDED", thing("a", 1, spec={"a": 1}))
    monkeypatch.setattr(Object, "to_dict", None)
    item = thing("a", 1, spec={"a": 1}).raw
    item = b"{" + item[item.index(b'"metadata"') :]
    assert relist(store, Object.from_json(THING, item)) == []


# Lists.


def test_a_list_tells_what_came_changed_and_went():
    store = store_of(thing("a", 1), thing("b", 1), thing("c", 1, namespace="y"))
    assert relist(store, thing("a", 1), thing("b", 4), thing("d", 5)) == [
        "update b@1->4",
        "add d@5",
        "delete c@1 unknown",
    ]


def test_unchanged_objects_give_no_event_and_keep_their_bytes():
    first = thing("a", 1)
    store = store_of(first)
    assert relist(store, thing("a", 1)) == []
    assert store.get("a", "x") is first


def test_a_list_that_begins_anew_forgets_what_it_named_before():
    store = store_of(thing("a"), thing("b"))
    store.begin_list()
    store.upsert([thing("a")], is_initial=False)
    assert relist(store, thing("b")) == ["delete a@1 unknown"]


def test_a_first_list_that_begins_anew_deletes_what_is_gone_by_then():
    store = Store(THING)
    store.begin_list()
    store.upsert([thing("a")], is_initial=True)
    assert relist(store, thing("b"), is_initial=True) == [
        "add b@1 initial",
        "delete a@1 unknown",
    ]


def test_what_is_deleted_and_made_anew_while_a_list_streams_ends_as_it_is():
    store = store_of(thing("a", 1), thing("b", 1))
    store.begin_list()
    store.upsert([thing("a", 1), thing("b", 1)], is_initial=False)
    change(store, "DELETED", thing("a", 5))
    change(store, "DELETED", thing("b", 6))
    change(store, "ADDED", thing("b", 7, uid="new"))
    # News that is older than what the store has does not unname an object.
    change(store, "DELETED", thing("b", 2))
    assert store.finish_list() == []
    assert names(store) == ["b"]


def test_the_first_list_and_the_time_between_lists_keep_no_record_of_names():
    store = Store(THING)
    store.begin_list()
    store.upsert([thing("a")], is_initial=True)
    assert store._seen is None
    store.finish_list()
    relist(store, thing("a"))
    assert store._seen is None


# Indexes.


def by_colors(obj):
    return obj.spec["colors"]


def colored(name, version, *colors, **more):
    return thing(name, version, spec={"colors": list(colors)}, **more)


def test_an_index_follows_objects_that_come_change_and_go():
    store = store_of(
        colored("a", 1, "red", "blue", "red"), colored("b", 1), indexes={"color": by_colors}
    )
    assert names(store.by_index("color", "red")) == names(store.by_index("color", "blue")) == ["a"]
    change(store, "MODIFIED", colored("a", 2, "blue"))
    assert store.by_index("color", "red") == []
    assert store.by_index("color", "blue")[0].resource_version == "2"
    change(store, "ADDED", colored("a", 3, "green", uid="new"))
    change(store, "MODIFIED", colored("b", 4, "green"))
    assert names(store.by_index("color", "green")) == ["a", "b"]
    assert store.index_values("color") == ["green"]
    relist(store, colored("b", 4, "green"))
    assert names(store.by_index("color", "green")) == ["b"]
    relist(store)
    assert store.index_values("color") == []


def test_a_string_is_one_value_and_not_its_letters():
    store = store_of(thing("abc"), indexes={"name": lambda obj: obj.name})
    assert store.index_values("name") == ["abc"]


class Odd(str):
    """Text that cannot be compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise ZeroDivisionError


@pytest.mark.parametrize("result", [Odd("v"), [Odd("v")], [Odd("v"), Odd("v")]])
def test_the_methods_of_an_index_value_lose_no_event(result):
    store = store_of(thing("a"), indexes={"odd": lambda _: result})
    assert change(store, "ADDED", thing("b", 2)) == ["add b@2"]
    assert change(store, "MODIFIED", thing("b", 3)) == ["update b@2->3"]
    assert names(store.by_index("odd", "v")) == ["a", "b"]
    assert change(store, "DELETED", thing("b", 4)) == ["delete b@4"]
    assert names(store.by_index("odd", "v")) == ["a"]


@pytest.mark.parametrize("result", [None, 1, [[]]])
def test_an_index_function_that_fails_leaves_the_object_out_and_says_so(result, caplog):
    store = store_of(
        thing("a"), thing("b"), indexes={"odd": lambda o: result if o.name == "a" else ["v"]}
    )
    assert names(store.by_index("odd", "v")) == ["b"]
    assert names(store) == ["a", "b"]
    assert "index 'odd' failed for Thing x/a:" in caplog.text


def test_an_unknown_index_is_an_error_that_names_those_there_are():
    store = store_of(indexes={"color": by_colors, "name": lambda o: [o.name]})
    for read in (lambda: store.by_index("size", "1"), lambda: store.index_values("size")):
        with pytest.raises(KeyError, match=r"no index 'size'; it has: color, name"):
            read()
    with pytest.raises(KeyError, match="it has: none"):
        store_of().by_index("size", "1")
    with pytest.raises(ValueError, match="an index 'color' already"):
        store.add_index("color", by_colors)


def test_an_index_function_may_read_the_store():
    store = Store(THING, indexes={"peers": lambda obj: [str(len(store.list()))]})
    store.upsert([thing("a"), thing("b")], is_initial=True)
    store.add_index("more", lambda obj: [str(len(store.list()))])
    assert store.index_values("more") == ["2"]


def test_an_index_can_be_added_while_objects_change_all_the_time():
    """What changes while it is built is indexed by whoever changes it: building always ends."""
    store = store_of(*(colored(f"o{n}", 1, "red") for n in range(20)))
    versions = iter(range(2, 1_000_000))

    is_writing = False

    def slow_colors(obj):
        nonlocal is_writing
        if not is_writing:
            is_writing = True
            version = next(versions)
            change(store, "MODIFIED", colored(f"o{version % 20}", version, "blue"))
            change(store, "DELETED", colored("o19", next(versions)))
            with pytest.raises(KeyError):
                store.by_index("color", "red")
            is_writing = False
        return by_colors(obj)

    store.add_index("color", slow_colors)
    for color in ("red", "blue"):
        expected = [obj.name for obj in store if obj.spec["colors"] == [color]]
        assert names(store.by_index("color", color)) == sorted(expected)
    assert len(store.by_index("color", "red")) + len(store.by_index("color", "blue")) == len(store)


@pytest.mark.stress
def test_readers_see_whole_states_while_a_writer_writes():
    store = store_of(indexes={"color": by_colors})
    done = threading.Event()
    wrong: list[object] = []

    def read():
        while not done.is_set():
            for color in ("red", "blue"):
                wrong.extend(
                    o for o in store.by_index("color", color) if o.spec["colors"] != [color]
                )
            seen = store.list()
            if len({o.key for o in seen}) != len(seen):
                wrong.append(seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, 2000):
        color = "red" if version % 2 else "blue"
        change(store, "MODIFIED", colored(f"o{version % 7}", version, color))
        if not version % 5:
            change(store, "DELETED", colored(f"o{version % 7}", version))
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


# The transform that comes with the room.


MANAGED = b'"managedFields":[{"manager":"kubectl","x":"}]"}]'
HEAD = b'{"apiVersion":"example.com/v1","kind":"Thing","metadata":'


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b'{%b,"name":"a","namespace":"x"}', b'{"name":"a","namespace":"x"}'),
        (b'{"name":"a","namespace":"x",%b}', b'{"name":"a","namespace":"x"}'),
        (b'{"name":"a",%b,"namespace":"x"}', b'{"name":"a","namespace":"x"}'),
        (b"{%b}", b"{}"),
        (b'{ "name" : "a" ,\n %b , "uid":"u" }', b'{"name":"a","uid":"u"}'),
    ],
)
def test_managed_fields_are_dropped_wherever_they_are(metadata, expected):
    raw = HEAD + metadata % MANAGED + b',"spec":{"managedFields":[1]}}'
    made = drop_managed_fields(Object.from_json(THING, raw))
    assert made.raw == HEAD + expected + b',"spec":{"managedFields":[1]}}'


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b'{"name":"a"}}',
        HEAD + b'{"name":"a","annotations":{"managedFields":"[]"}},"managedFields":[]}',
        HEAD + b'{"name":"a","annotations":{"x":"\\"managedFields\\":[]"}}}',
    ],
)
def test_an_object_without_managed_fields_is_returned_as_it_is(raw):
    obj = Object.from_json(THING, raw)
    assert drop_managed_fields(obj) is obj


def test_dropping_finds_the_right_member_and_keeps_every_number_and_is_idempotent():
    twin = b'{"managedFields":[1],"name":"a","n":12345678901234567890123,"f":1e400}'
    raw = b'{"before":%b,"metadata":%b,"apiVersion":"example.com/v1","kind":"Thing"}' % (twin, twin)
    made = drop_managed_fields(Object.from_json(THING, raw))
    rest = b'{"name":"a","n":12345678901234567890123,"f":1e400}'
    assert made.raw == (
        b'{"before":%b,"metadata":%b,"apiVersion":"example.com/v1","kind":"Thing"}' % (twin, rest)
    )
    assert drop_managed_fields(made) is made or drop_managed_fields(made).raw == made.raw


def test_null_or_spaced_managed_fields_go_too():
    raw = HEAD + b'{"name":"a", "managedFields" : null}}'
    assert drop_managed_fields(Object.from_json(THING, raw)).raw == HEAD + b'{"name":"a"}}'
