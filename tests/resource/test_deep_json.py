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
    MAX_LEVELS,
    DecodeError,
    EncodeError,
    JsonPatch,
    Kind,
    Object,
    UndecodableEvent,
    WrongKindError,
    _codec,
    apply_json_patch,
    apply_merge_patch,
    create_merge_patch,
    decode_json,
    decode_list,
    decode_watch_event,
    decode_watch_events,
    dump_yaml,
    encode_json,
    is_deeper,
    load_yaml,
)
from appsdk_operator.resource._json import parts as json_parts
from appsdk_operator.resource._json.parts import is_object_deeper
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
LEVELS = MAX_LEVELS
TOO_DEEP = "it is nested more than 500 levels deep"


def nested(levels: int, leaf: Any = 1) -> Any:
    value = leaf
    for number in range(levels):
        value = {"a": value} if number % 2 else [value]
    return value


def data(name: str = "deep", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "x", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, **fields}


def text_of(value: Any) -> bytes:
    return msgspec.json.encode(value)


def raw_of(name: str = "deep", levels: int = LEVELS) -> bytes:
    """An object with so many levels in its spec, and in the managedFields that mirror it."""
    marked = data(name, spec="@1")
    marked["metadata"] |= {"managedFields": "@2", "labels": {"a": "b"}}
    raw = text_of(marked)
    # Built as text: objects of Python are no deeper than its recursion.
    inside = (levels - 1) // 2
    spec = b'[{"a":' * inside + b"[" * (levels - 1 - 2 * inside) + b"1"
    spec += b"]" * (levels - 1 - 2 * inside) + b"}]" * inside
    fields = b'{"f:a":' * (levels - 3) + b"{}" + b"}" * (levels - 3)
    return raw.replace(b'"@1"', spec).replace(b'"@2"', fields)


def depth(value: Any) -> int:
    levels = 0
    while isinstance(value, (dict, list)) and value:
        value = value["a"] if isinstance(value, dict) else value[0]
        levels += 1
    return levels


RAW = raw_of()


def test_an_object_of_all_levels_is_read_like_any_other():
    obj = Object.from_json(THING, RAW)
    assert (str(obj.key), obj.uid, obj.resource_version) == ("x/deep", "uid-deep", "7")
    assert dict(obj.labels) == {"a": "b"}
    assert not obj.is_metadata_only
    for spec in (obj.spec, obj["spec"], obj.get("spec"), obj.to_dict()["spec"]):
        assert depth(spec) == LEVELS - 1
    assert "spec" in obj
    assert list(obj) == ["apiVersion", "kind", "metadata", "spec"]
    assert obj.metadata["name"] == "deep"
    assert depth(obj.spec.copy()) == LEVELS - 1


def test_an_object_of_all_levels_is_changed_and_written_like_any_other():
    obj = Object.from_json(THING, RAW)
    draft = obj.mutable_copy()
    assert draft.freeze().raw == RAW
    assert draft.freeze() == obj
    draft["spec"] = nested(LEVELS - 1, leaf=2)
    assert draft.freeze() != obj
    assert depth(draft.to_dict()["spec"]) == LEVELS - 1
    assert encode_json(obj) == RAW
    assert encode_json(decode_json(RAW)) == RAW
    [read] = load_yaml(obj.to_yaml())
    assert Object.from_dict(THING, read) == obj
    # What PyYAML can write stays as people like it.
    assert dump_yaml({"a": nested(10)}).startswith("a:\n")


def test_patches_go_as_deep():
    old, new = nested(LEVELS - 2), nested(LEVELS - 2, leaf=2)
    wrapped = {"a": old, "b": 1}
    patch = create_merge_patch(wrapped, {"a": new})
    assert apply_merge_patch(wrapped, patch) == {"a": new}
    chain: Any = 1
    for _ in range(LEVELS):
        chain = {"a": chain}
    changed = apply_json_patch(chain, [{"op": "replace", "path": "/a" * LEVELS, "value": 2}])
    assert apply_merge_patch(chain, create_merge_patch(chain, changed)) == changed
    tests = [{"op": "test", "path": "", "value": changed}]
    assert apply_json_patch(changed, tests) is changed
    assert len(JsonPatch.between({"a": old}, {"a": new}).body()) < 3_000


# -- Beyond that -------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [LEVELS + 1, 900, 10_000, 200_000])
def test_a_deeper_text_is_refused_by_name_before_it_is_decoded(levels, monkeypatch):
    raw = raw_of(levels=levels)

    def decode(raw: bytes) -> Any:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(_codec, "_decode_any", decode)
    monkeypatch.setattr(_codec, "decode_header", decode)
    for read in (lambda: Object.from_json(THING, raw), lambda: decode_json(raw)):
        with pytest.raises(DecodeError, match=TOO_DEEP):
            read()
    # Neither malformed text that begins so.
    with pytest.raises(DecodeError, match=TOO_DEEP):
        decode_json(b"[" * levels)


@pytest.mark.parametrize("levels", [LEVELS + 1, 900, 10_000])
def test_a_deeper_value_is_refused_when_it_is_written(levels):
    deep: Any = 1
    for _ in range(levels - 1):
        deep = [deep]
    draft = Object.from_dict(THING, data()).mutable_copy()
    with pytest.raises(EncodeError, match=TOO_DEEP):
        Object.from_dict(THING, data(spec=deep))
    with pytest.raises(EncodeError, match=TOO_DEEP):
        encode_json([[[[[[[[[[deep]]]]]]]]]])
    draft["spec"] = deep
    with pytest.raises(EncodeError, match=TOO_DEEP):
        draft.freeze()
    kind = Kind(group="example.com", version="v1", kind="Thing", spec=Typed)
    typed = Object.from_dict(kind, data(spec={"size": 1})).mutable_copy()

    def assign() -> Any:
        typed.spec = Typed(template=deep)
        return typed.freeze()

    with pytest.raises(EncodeError):
        assign()


@pytest.mark.parametrize("levels", [LEVELS + 1, 900, 10_000, 200_000])
def test_of_a_list_and_a_watch_the_deeper_object_alone_is_not_read(levels):
    raw = raw_of("odd", levels)
    good = [encode_json(data(name)) for name in ("a", "b")]
    page = decode_list(THING, b'{"metadata":{},"items":[%s]}' % b",".join([good[0], raw, good[1]]))
    assert [obj.name for obj in page.items] == ["a", "b"]
    lines = [b'{"type":"ADDED","object":%s}' % one for one in (good[0], raw, good[1])]
    events, garbage = decode_watch_events(THING, lines)
    assert garbage is None
    assert [event.object.name for event in (events[0], events[2]) if event.object] == ["a", "b"]
    assert isinstance(events[1], UndecodableEvent)
    for found in (*page.undecodable, events[1].undecodable):
        assert (str(found), found.uid, found.resource_version) == ("x/odd", "uid-odd", "7")
        assert TOO_DEEP in str(found.error)
    assert len(page.undecodable) == 1


def naive_is_deeper(text: bytes, levels: int) -> bool:
    """Byte by byte, up to the first mistake."""
    level, is_text, is_escaped = 0, False, False
    for byte in text:
        char = chr(byte)
        if is_text:
            if is_escaped:
                is_escaped = False
            elif char == "\\":
                is_escaped = True
            elif char == '"':
                is_text = False
        elif char == '"':
            is_text = True
        elif char in "[{":
            level += 1
            if level > levels:
                return True
        elif char in "]}":
            level -= 1
            if level < 0:
                return False
        elif char == "\\":
            return False
    return False


PIECES = st.sampled_from(
    [
        *(
            b"[",
            b"]",
            b"{",
            b"}",
            b'"',
            b"\\",
            b'\\"',
            b"\\\\",
            b'"["',
            b'"]"',
            b'""',
            b"[]",
            b"1",
            b",",
        ),
        *(b'"a":', b"[[[", b"]]]", b"[[[[[[[[[", b"]]]]]]]]]", b'{"a":[', b"]}", b"[{}]"),
    ]
)


@given(pieces=st.lists(PIECES, max_size=60), levels=st.integers(1, 12))
@settings(max_examples=scaled(400))
def test_the_depth_is_that_which_one_finds_byte_by_byte(pieces, levels):
    text = b"".join(pieces)
    found = is_deeper(text, levels)
    if naive_is_deeper(text, levels):
        assert found
    elif is_json(text):
        assert not found


def is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """JSON whose depth goes up and down, with brackets in its texts and keys."""
    open_marks: list[bytes] = []
    parts: list[bytes] = [b"["]
    texts = st.sampled_from(
        [b'"[[["', b'"}"', b'"\\\\"', b'"\\"["', b"1", b'"\\\\\\""', b"{}", b"[]"]
    )
    for step in draw(st.lists(st.integers(-3, 4), max_size=40)):
        parts += [open_marks.pop() for _ in range(-step) if open_marks]
        if parts[-1] != b"[":
            parts.append(b",")
        for _ in range(step):
            is_list = draw(st.booleans())
            parts += [b"["] if is_list else [b'{"]":', b"["]
            open_marks += [b"]"] if is_list else [b"]}"]
        parts += [draw(texts)]
    return b"".join([*parts, *reversed(open_marks), b"]"])


@given(text=json_texts(), levels=st.integers(1, 30))
@settings(max_examples=scaled(300))
def test_of_json_the_depth_is_exact(text, levels):
    assert is_json(text)
    assert is_deeper(text, levels) is naive_is_deeper(text, levels)


@given(text=json_texts(), others=st.lists(json_texts(), max_size=3))
@settings(max_examples=scaled(200))
def test_parts_are_found_without_decoding(text, others):
    parts = [text, *others]
    assert json_parts.elements(b"[ %s ]" % b" , ".join(parts)) == parts
    members = b",".join(b'"%d" : %s' % pair for pair in enumerate(parts))
    found = json_parts.members(b"{%s}" % members)
    assert found == {str(number): part for number, part in enumerate(parts)}


@pytest.mark.parametrize("size", [5_000, 20_000, 80_000])
def test_a_depth_that_moves_in_every_byte_is_found(size):
    """Each block of words begins where the last one ended."""
    comb = b"[" * 400 + b"[]" * size + b"[" * 100 + b"]" * 500
    assert not is_deeper(comb.replace(b"[][", b"[],[").replace(b"][", b"],["), 500)
    assert is_deeper(comb, 499)


@pytest.mark.parametrize("gap", [0, 1, 7, 30, 31, 62])
def test_spaced_levels_are_found_in_objects_that_come_in_masses(gap):
    """Also where a sample of the bytes is all that is looked at first."""
    text = b"x" * gap
    for levels, is_more in ((LEVELS, False), (LEVELS + 1, True)):
        spec = b'{"%s":' % text * (levels - 1) + b"1" + b"}" * (levels - 1)
        raw = text_of(data(spec="@")).replace(b'"@"', spec)
        assert is_object_deeper(raw) is is_more


@attrs.frozen
class Typed:
    size: int = 1
    template: Any = None


def test_a_typed_spec_may_have_a_deep_part_without_a_type():
    kind = Kind(group="example.com", version="v1", kind="Thing", spec=Typed)
    raw = text_of(data(spec={"size": 3, "template": nested(LEVELS - 2), "unknown": 5}))
    obj = Object.from_json(kind, raw)
    assert obj.spec.size == 3
    assert depth(obj.spec.template) == LEVELS - 2
    draft = obj.mutable_copy()
    draft.spec = attrs.evolve(draft.spec, size=4)
    read = draft.freeze()
    assert (read.spec.size, read["spec"]["unknown"]) == (4, 5)
    assert depth(read.spec.template) == LEVELS - 2


def test_where_calls_leave_no_room_for_all_levels_the_error_says_so():
    found: list[Any] = []

    def down(levels: int) -> None:
        if levels:
            down(levels - 1)
            return
        try:
            found.append(decode_json(b"[" * 400 + b"]" * 400))
        except DecodeError as error:
            found.append(str(error))

    thread = threading.Thread(target=down, args=(800,))
    thread.start()
    thread.join()
    assert depth(found[0]) in (399, 400) or "nested too deep for the rest" in found[0]


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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


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
    known = [(i.namespace, i.name, i.uid, i.resource_version) for i in page.undecodable]
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
