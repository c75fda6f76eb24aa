"""Objects as deep as API servers store them, and lists and watches in which one item is odd."""

from __future__ import annotations

import json
import threading
from typing import Any

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import example, given, settings

from appsdk_operator.resource import (
    DecodeError,
    EncodeError,
    Kind,
    Object,
    UndecodableEvent,
    WrongKindError,
    _deep_json,
    apply_json_patch,
    apply_merge_patch,
    create_merge_patch,
    decode_json,
    decode_list,
    decode_watch_event,
    decode_watch_events,
    dump_yaml,
    encode_json,
    load_yaml,
)
from appsdk_operator.resource._frozen import thaw
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
LEVELS = 10_000
"""As many as the API server's own decoder takes."""


def nested(levels: int = LEVELS, leaf: Any = 1) -> Any:
    value = leaf
    for number in range(levels):
        value = {"a": value} if number % 2 else [value]
    return value


def text_of(value: Any) -> bytes:
    return _deep_json.encode(value)


def data(name: str = "deep", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "x", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, **fields}


def raw_of(name: str = "deep", levels: int = LEVELS, **fields: Any) -> bytes:
    """An object that is deep in its spec, and in the managedFields that mirror it."""
    value = data(name, spec=nested(levels), **fields)
    value["metadata"] |= {"managedFields": [{"f:spec": nested(levels, {})}], "labels": {"a": "b"}}
    return text_of(value)


def depth(value: Any) -> int:
    levels = 0
    while isinstance(value, (dict, list)) and value:
        value = value["a"] if isinstance(value, dict) else value[0]
        levels += 1
    return levels


RAW = raw_of()


def test_a_deep_object_is_read_like_any_other():
    obj = Object.from_json(THING, RAW)
    assert (str(obj.key), obj.uid, obj.resource_version) == ("x/deep", "uid-deep", "7")
    assert dict(obj.labels) == {"a": "b"}
    assert not obj.is_metadata_only
    for spec in (obj.spec, obj["spec"], obj.get("spec"), obj.to_dict()["spec"]):
        assert depth(spec) == LEVELS
    assert "spec" in obj
    assert list(obj) == ["apiVersion", "kind", "metadata", "spec"]
    assert obj.metadata["name"] == "deep"
    assert depth(thaw(obj.spec)) == LEVELS


def test_a_deep_object_is_changed_and_written_like_any_other():
    obj = Object.from_json(THING, RAW)
    draft = obj.mutable_copy()
    assert draft.freeze().raw == RAW
    assert draft.freeze() == obj
    draft["spec"] = nested(leaf=2)
    assert draft.freeze() != obj
    assert depth(draft.to_dict()["spec"]) == LEVELS
    assert encode_json(obj) == RAW
    assert encode_json(decode_json(RAW)) == RAW


def test_a_deep_object_survives_yaml():
    obj = Object.from_json(THING, raw_of(levels=2_000))
    [read] = load_yaml(obj.to_yaml())
    assert Object.from_dict(THING, read) == obj
    assert obj.mutable_copy().to_yaml() == obj.to_yaml()
    # What PyYAML can write stays as people like it.
    assert dump_yaml({"a": nested(10)}).startswith("a:\n")


def test_patches_go_as_deep():
    old, new = nested(), nested(leaf=2)
    wrapped = {"a": old, "b": 1}
    patch = create_merge_patch(wrapped, {"a": new})
    assert _deep_json.equal_by(apply_merge_patch(wrapped, patch), {"a": new})
    chain: Any = 1
    for _ in range(LEVELS):
        chain = {"a": chain}
    changed = apply_json_patch(chain, [{"op": "replace", "path": "/a" * LEVELS, "value": 2}])
    assert create_merge_patch(chain, changed)["a"]["a"]["a"]
    assert _deep_json.equal_by(
        apply_merge_patch(chain, create_merge_patch(chain, changed)), changed
    )
    tests = [{"op": "test", "path": "", "value": changed}]
    assert apply_json_patch(changed, tests) is changed


@attrs.frozen
class Typed:
    size: int = 1
    template: Any = None


def test_a_typed_spec_may_have_a_deep_part_without_a_type():
    kind = Kind(group="example.com", version="v1", kind="Thing", spec=Typed)
    raw = text_of(data(spec={"size": 3, "template": nested(), "unknown": 5}))
    obj = Object.from_json(kind, raw)
    assert obj.spec.size == 3
    assert depth(obj.spec.template) == LEVELS
    draft = obj.mutable_copy()
    draft.spec = attrs.evolve(draft.spec, size=4)
    read = draft.freeze()
    assert (read.spec.size, read["spec"]["unknown"]) == (4, 5)
    assert depth(read.spec.template) == LEVELS


def test_a_deep_object_is_read_at_the_bottom_of_a_deep_stack():
    """The recursion that is left there is less than a shallow object needs."""

    def down(levels: int) -> int:
        return down(levels - 1) if levels else depth(Object.from_json(THING, RAW).spec)

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(down(800)))
    thread.start()
    thread.join()
    assert found == [LEVELS]


@pytest.mark.parametrize("make", [encode_json, lambda value: Object.from_dict(THING, value).raw])
def test_what_contains_itself_is_refused(make):
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(EncodeError, match="contains itself"):
        make(data(spec=loop))


def test_a_draft_that_contains_itself_is_refused():
    loop: dict[str, Any] = {}
    loop["a"] = loop
    draft = Object.from_dict(THING, data()).mutable_copy()
    with pytest.raises(EncodeError, match=r"\$\.spec contains itself"):
        draft.spec = loop
    draft["spec"] = loop
    with pytest.raises(EncodeError, match="contains itself"):
        draft.to_dict()


# The slow way reads and writes what the fast one does.

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


def outcome(read: Any, raw: bytes) -> Any:
    try:
        return repr(read(raw))
    except (msgspec.MsgspecError, UnicodeError):
        return "refused"


@given(value=JSON, indent=st.sampled_from([None, 1]))
def test_the_slow_way_reads_and_writes_what_the_fast_one_does(value, indent):
    raw = json.dumps(value, indent=indent).encode()
    assert _deep_json.decode(raw) == msgspec.json.decode(raw)
    assert _deep_json.encode(value) == msgspec.json.encode(value)
    assert _deep_json.equal_by(value, msgspec.json.decode(raw))


@given(value=JSON, cut=st.data())
@settings(max_examples=scaled(200))
def test_the_slow_way_refuses_what_the_fast_one_does(value, cut):
    raw = bytearray(json.dumps(value).encode())
    for _ in range(cut.draw(st.integers(1, 2))):
        at = cut.draw(st.integers(0, len(raw)))
        raw[at : at + cut.draw(st.integers(0, 2))] = cut.draw(
            st.sampled_from([b"", b",", b":", b"{", b"}", b"[", b"]", b'"', b"\\", b"1", b"\xff"])
            | st.binary(max_size=2)
        )
    text = bytes(raw)
    assert outcome(_deep_json.decode, text) == outcome(msgspec.json.decode, text)


# One odd item among others.

DEEP = raw_of("deep", 1_500)
ODD_JSON = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda field, value: json.dumps(
            data("odd") | {"metadata": {**data("odd")["metadata"], field: value}}
        ).encode(),
        st.sampled_from(["name", "namespace", "uid", "resourceVersion", "generation", "labels"]),
        JSON,
    ),
    st.builds(
        lambda field, value: json.dumps(data("odd") | {field: value}).encode(),
        st.sampled_from(["metadata", "kind", "apiVersion", "spec"]),
        JSON,
    ),
    st.sampled_from(
        [DEEP, b"[" * 5_000 + b"]" * 5_000, b'{"metadata":' * 1_200 + b"1" + b"}" * 1_200]
    ),
)
# Bytes that are no JSON, but whose brackets and quotes are closed: else a list has no items.
NO_JSON = st.binary(max_size=8).map(
    lambda noise: bytes(byte for byte in noise if byte not in b'[]{},"\\')
)
BROKEN = st.one_of(
    NO_JSON.filter(bytes.strip),
    st.builds(lambda noise: b'{"metadata":{"name":"odd","x":%s}}' % noise, NO_JSON),
    st.builds(lambda noise: b'{"metadata":{"name":"%s"},,}' % noise, NO_JSON),
)


def is_well(raw: bytes) -> bool:
    try:
        Object.from_json(THING, raw)
    except DecodeError:
        return False
    return True


@given(item=ODD_JSON | BROKEN, place=st.integers(0, 2), is_spaced=st.booleans())
@example(item=DEEP, place=0, is_spaced=False)
@example(item=b"\xff", place=1, is_spaced=False)
@settings(max_examples=scaled(150))
def test_whatever_one_item_of_a_list_is_all_others_arrive(item, place, is_spaced):
    items = [encode_json(data(name)) for name in ("a", "b")]
    items.insert(place, item)
    body = b'{"kind":"ThingList","apiVersion":"example.com/v1","metadata":%s,"items":[%s]}' % (
        b'{"resourceVersion":"9","continue":"t"}',
        (b" ,\n" if is_spaced else b",").join(items),
    )
    page = decode_list(THING, body)
    names = [obj.name for obj in page.items if obj.raw != item.strip(b" \t\n\r")]
    assert names == ["a", "b"]
    assert (page.resource_version, page.continue_token) == ("9", "t")
    assert len(page.items) + len(page.undecodable) == 3
    assert len(page.undecodable) == int(not is_well(item))


@given(item=ODD_JSON | BROKEN | st.binary(max_size=30).filter(lambda raw: b"\n" not in raw))
@example(item=DEEP)
@settings(max_examples=scaled(150))
def test_whatever_the_object_of_one_event_is_all_others_arrive(item):
    lines = [
        b'{"type":"ADDED","object":%s}' % raw
        for raw in (encode_json(data("a")), item, encode_json(data("b")))
    ]
    events, garbage = decode_watch_events(THING, lines)
    assert garbage is None
    assert [event.object.name for event in (events[0], events[2]) if event.object] == ["a", "b"]
    assert isinstance(events[1], UndecodableEvent) is not is_well(item)


def test_what_is_known_of_an_item_that_cannot_be_read_is_told():
    odd = data("odd")
    odd["metadata"]["generation"] = "many"
    body = encode_json({"metadata": {}, "items": [odd, {"metadata": 5}, "?"]})
    page = decode_list(THING, body)
    known = [tuple(item[1:5]) for item in page.undecodable]
    assert known == [("x", "odd", "uid-odd", "7"), ("", "", "", ""), ("", "", "", "")]
    assert [str(item) for item in page.undecodable] == [
        "x/odd",
        *["an object without a readable name"] * 2,
    ]
    assert "generation" in str(page.undecodable[0].error)
    with pytest.raises(DecodeError, match="generation"):
        decode_watch_event(THING, b'{"type":"ADDED","object":%s}' % encode_json(odd))


def test_a_list_whose_items_are_all_of_another_kind_is_refused():
    other = {**data(), "kind": "Other"}
    with pytest.raises(WrongKindError):
        decode_list(THING, encode_json({"metadata": {}, "items": [other, other]}))
    page = decode_list(THING, encode_json({"metadata": {}, "items": [other, data()]}))
    assert [obj.name for obj in page.items] == ["deep"]
    assert isinstance(page.undecodable[0].error, WrongKindError)
