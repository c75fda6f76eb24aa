"""Lists and watch events as servers send them, and everything else."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appsdk_operator.resource import (
    DecodeError,
    Kind,
    Lines,
    UndecodableEvent,
    WatchEventType,
    WrongKindError,
    decode_list,
    decode_watch_event,
    decode_watch_events,
)
from appsdk_operator.resource._list_watch import _decode_other
from tests.hypothesis_profiles import scaled

POD = Kind(group="", version="v1", kind="Pod")
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap")
WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def pod(name: str = "web", **fields: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": "u", "resourceVersion": "7"},
        **fields,
    }


def compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def page(items: Any, **fields: Any) -> bytes:
    return compact(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, **fields}
        | {"items": items}
    )


def test_a_page_is_its_objects_and_where_to_go_on() -> None:
    body = page(
        [pod("a"), pod("b")],
        metadata={"resourceVersion": "9", "continue": "tok", "remainingItemCount": 3},
    )
    result = decode_list(POD, body)
    assert [obj.name for obj in result.items] == ["a", "b"]
    assert (result.resource_version, result.continue_token, result.remaining) == ("9", "tok", 3)


@pytest.mark.parametrize("items", [[], None])
def test_the_last_page_may_be_empty(items: Any) -> None:
    result = decode_list(POD, page(items))
    assert result == ([], "9", "", None, ())


def test_items_keep_no_more_than_their_own_bytes() -> None:
    body = page([pod("a", padding="x" * 10_000), pod("b")])
    small = decode_list(POD, body).items[1]
    assert type(small.raw) is bytes
    assert small.raw == compact(pod("b"))


def test_items_without_kind_are_of_the_lists_kind() -> None:
    bare = {key: value for key, value in pod().items() if key not in ("kind", "apiVersion")}
    [obj] = decode_list(POD, page([bare])).items
    assert list(obj.to_dict())[:2] == ["apiVersion", "kind"]
    assert obj.to_dict()["kind"] == "Pod"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[]",
        b"null",
        b'{"items":[]}',
        b'{"metadata":{},"items":{}}',
        b'{"metadata":{},"items":[{"metadata":{}}',
        b'{"metadata":{"resourceVersion":"\xff"},"items":[]}',
        b'{"metadata":{},"items":[' + b"[" * 100_000,
        compact(pod()),
        compact({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}),
    ],
)
def test_what_is_no_list_is_an_error_and_never_an_empty_list(body: bytes) -> None:
    with pytest.raises(DecodeError, match=r"pods\.v1"):
        decode_list(POD, body)


@pytest.mark.parametrize(
    "body",
    [
        page([pod()], kind="WidgetList", apiVersion="example.com/v1"),
        page([], apiVersion="v2"),
        page([{"metadata": {"name": "secretly a config map"}}], kind="ConfigMapList"),
        page([{**pod(), "kind": "ConfigMap"}]),
    ],
)
def test_a_list_of_another_kind_is_refused(body: bytes) -> None:
    with pytest.raises(WrongKindError, match="check the kind's plural, group and version"):
        decode_list(POD, body)


@pytest.mark.parametrize("item", [{}, [], 7, None, "x", {"metadata": {"name": 7}}])
def test_a_list_of_many_items_without_names_is_refused_without_an_error_for_each(item: Any) -> None:
    few = decode_list(POD, page([pod("a"), *[item] * 1000, pod("b")]))
    assert ([obj.name for obj in few.items], len(few.undecodable)) == (["a", "b"], 1000)
    with pytest.raises(DecodeError, match="more than 1000 items have no readable name; the first"):
        decode_list(POD, page([pod("a"), *[item] * 1001, pod("b")]))


def test_of_a_list_of_many_undecodable_items_with_names_the_others_are_read() -> None:
    deep = b'{"metadata":{"name":"deep"},"spec":' + b"[" * 501 + b"]" * 501 + b"}"
    body = b'{"metadata":{},"items":[%s,%s]}' % (b",".join([deep] * 1001), compact(pod("a")))
    found = decode_list(POD, body)
    assert [obj.name for obj in found.items] == ["a"]
    assert {one.name for one in found.undecodable} == {"deep"}


def test_a_custom_resource_may_call_its_lists_as_it_likes() -> None:
    item = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    body = page([item], kind="WidgetCollection", apiVersion="example.com/v1")
    assert decode_list(WIDGET, body).items[0].name == "w"


@pytest.mark.parametrize("name", ["ADDED", "MODIFIED", "DELETED"])
def test_events_carry_their_object(name: str) -> None:
    event = decode_watch_event(POD, compact({"type": name, "object": pod()}))
    assert event.type is WatchEventType(name)
    assert event.object is not None
    assert event.object.raw == compact(pod())
    assert (event.status, event.initial_events_end, event.resource_version) == (None, False, "")


def test_bookmarks_carry_a_version_and_may_end_a_streamed_list() -> None:
    meta: dict[str, Any] = {"resourceVersion": "12", "creationTimestamp": None}
    plain = decode_watch_event(
        POD, compact({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": meta}})
    )
    assert (plain.type, plain.object) == (WatchEventType.BOOKMARK, None)
    assert (plain.resource_version, plain.initial_events_end) == ("12", False)
    meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    last = decode_watch_event(POD, compact({"type": "BOOKMARK", "object": {"metadata": meta}}))
    assert last.initial_events_end


def test_errors_carry_their_status() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired"}
    event = decode_watch_event(POD, compact({"type": "ERROR", "object": status}))
    assert (event.type, event.object, event.status) == (WatchEventType.ERROR, None, status)
    odd = decode_watch_event(POD, b'{"type":"ERROR","object":"gone"}')
    assert odd.status == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"garbage",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":}',
        b'{"type":"ADDED","object":null}',
        b'{"type":"ADDED","object":{}}',
        b'{"type":"ADDED","object":[]}',
        b'{"type":"ADDED","object":{"metadata":{}}',
        b'{"type":"ADDED","object":{"metadata":{}}}}',
        b'{"type":"ADDED","object":{"metadata":{"name":1}}}',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
        b'{"type":"ADDED","object":{"metadata":{},"x":' + b"[" * 100_000 + b"}}",
        b'{"type":"SURPRISE","object":{"metadata":{}}}',
        b'{"type":"BOOKMARK","object":{}}',
        b'{"type":"MODIFIED","obj":1}',
        b"HTTP/1.1 500 Internal Server Error",
    ],
)
def test_what_is_no_event_is_an_error_that_says_how_long_it_is(line: bytes) -> None:
    with pytest.raises(DecodeError, match=r"it has \d+ bytes|it begins b''"):
        decode_watch_event(POD, line)


def test_a_proxys_page_in_the_place_of_an_event_is_shown() -> None:
    with pytest.raises(DecodeError, match="it begins b'<html>502 Bad Gateway"):
        decode_watch_event(POD, b"<html>502 Bad Gateway</html>")


def test_what_cannot_be_read_is_not_shown_for_it_may_be_a_secret() -> None:
    line = b'{"type":"MODIFIED","object":{"data":{"password":"aHVudGVyMg=="},"metadata":{'
    with pytest.raises(DecodeError) as caught:
        decode_watch_event(POD, line)
    assert "aHVudGVyMg" not in str(caught.value)


def test_of_many_lines_the_good_ones_are_told_and_what_is_wrong_with_the_others() -> None:
    good = [compact({"type": "ADDED", "object": pod(name)}) for name in ("a", "b", "c")]
    other = compact({"type": "ADDED", "object": {**pod("x"), "kind": "ConfigMap"}})
    read = b"#".join([good[0], other, good[1], b'{"type":', good[2]])
    places, begin = [], 0
    for line in read.split(b"#"):
        places.append((read, begin, begin + len(line)))
        begin += len(line) + 1
    for lines in (Lines(places), read.split(b"#")):
        events, garbage = decode_watch_events(POD, lines)
        assert [event.object and event.object.name for event in events] == ["a", None, "b"]
        wrong = events[1]
        assert isinstance(wrong, UndecodableEvent)
        assert "got v1 ConfigMap" in str(wrong.undecodable.error)
        assert (wrong.type, str(wrong.undecodable)) == (WatchEventType.ADDED, "default/x")
        assert "not a watch event" in str(garbage)
        # What follows the garbage is not looked at: nobody knows where it begins.


def test_lines_are_cut_out_where_they_are_asked_for() -> None:
    lines = Lines([(b"one two", 0, 3), (b"one two", 4, 7), (b"six", 0, 3)])
    assert lines == [b"one", b"two", b"six"]
    assert lines[1:] == [b"two", b"six"]
    assert lines != [b"one"]
    assert lines != 5
    assert (lines[-1], len(lines), repr(lines), bool(Lines([]))) == (b"six", 3, "<3 lines>", False)


@pytest.mark.parametrize("spaces", [b"", b" "])
def test_an_event_of_another_kind_is_refused(spaces: bytes) -> None:
    line = compact({"type": "ADDED", "object": pod()}) + spaces
    with pytest.raises(WrongKindError, match=r"expected v1 ConfigMap, got v1 Pod default/web"):
        decode_watch_event(CONFIG_MAP, line)


SPACES = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=scaled(250), deadline=None)
@given(
    event_type=st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
    content=JSON,
    spaces=st.lists(SPACES, min_size=9, max_size=9) | st.just([""] * 9),
    type_first=st.booleans(),
    extra=st.booleans(),
)
def test_the_fast_and_the_slow_way_agree_whatever_the_spaces_and_the_order(
    event_type: str, content: Any, spaces: list[str], type_first: bool, extra: bool
) -> None:
    s = spaces
    pairs = [
        f'{s[0]}"type"{s[1]}:{s[2]}"{event_type}"{s[3]}',
        f'{s[4]}"object"{s[5]}:{s[6]}{json.dumps(pod(spec=content))}{s[7]}',
    ]
    if not type_first:
        pairs.reverse()
    if extra:
        pairs.append('"extra":{"a":1}')
    line = ("{" + ",".join(pairs) + "}" + s[8]).encode()
    fast, slow = decode_watch_event(POD, line), _decode_other(POD, line)
    assert fast == slow
    assert fast.object is not None
    assert fast.object.to_dict() == pod(spec=content)


@settings(max_examples=scaled(250), deadline=None)
@given(cut=st.integers(0, 200), junk=st.binary(max_size=4), kind=st.sampled_from([POD, CONFIG_MAP]))
def test_damaged_lines_are_errors_of_ours_or_the_same_event(
    cut: int, junk: bytes, kind: Kind
) -> None:
    line = compact({"type": "ADDED", "object": pod()})
    damaged = line[:cut] + junk + line[cut + len(junk) :]
    try:
        event = decode_watch_event(kind, damaged)
    except DecodeError:
        return
    assert isinstance(event.type, WatchEventType)
