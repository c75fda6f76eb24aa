"""Conversion reviews: what is answered to which body, and how a failure reads."""

from __future__ import annotations

import json
import logging
import threading
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource import ConversionError, Kind, MutableObject, Object, Versions
from appsdk_operator.runtime import Metrics
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.webhooks import ConversionWebhook

GROUP = "example.com"
V1 = Kind(group=GROUP, version="v1", kind="Widget")
OLD = Kind(group=GROUP, version="v1alpha1", kind="Widget")
BETA = Kind(group=GROUP, version="v1beta1", kind="Widget")


def up(old: Object, new: MutableObject) -> None:
    size = old["spec"]["size"]
    if size == "crash":
        raise RuntimeError("password=hunter2")
    if size == "refuse":
        raise ConversionError("spec.size is refused")
    if size == "rename":
        new.metadata["name"] = "other"
    new.spec["size"] = int(size) if size.isdigit() else size


def down(old: Object, new: MutableObject) -> None:
    new.spec["size"] = str(old["spec"]["size"])


def same(old: Object, new: MutableObject) -> None:
    """Change the version only."""


WIDGETS = Versions(V1).older(OLD, up=up, down=down).older(BETA, up=same, down=same)
GADGETS = Versions(Kind(group=GROUP, version="v1", kind="Gadget")).older(
    Kind(group=GROUP, version="v2", kind="Gadget"), up=same, down=same
)


def widget(name: str, size: Any, kind: Kind = OLD) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "more": [1]},
        "spec": {"size": size},
    }


def review_of(*objects: Any, to: str = "example.com/v1", **fields: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": "u-1", "desiredAPIVersion": to, "objects": list(objects)},
            # kube-apiserver sends an empty one along.
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
            **fields,
        }
    ).encode()


def answer(*objects: Any, webhook: ConversionWebhook | None = None, **options: Any) -> Any:
    webhook = webhook or ConversionWebhook(WIDGETS, GADGETS)
    status, body = webhook.review(review_of(*objects, **options))
    assert status == 200
    found = json.loads(body)
    assert set(found) == {"apiVersion", "kind", "response"}, "without the request"
    assert found["response"]["uid"] == "u-1"
    return found["response"]


def message(*objects: Any, **options: Any) -> str:
    response = answer(*objects, **options)
    assert response["result"]["status"] == "Failure"
    assert response["convertedObjects"] is None
    text: str = response["result"]["message"]
    return text


def test_objects_are_converted_in_order() -> None:
    names = [f"w-{number}" for number in range(20)]
    response = answer(*(widget(name, str(place)) for place, name in enumerate(names)))
    assert response["result"] == {"metadata": {}, "status": "Success"}
    found = response["convertedObjects"]
    assert [obj["metadata"]["name"] for obj in found] == names
    assert [obj["spec"]["size"] for obj in found] == list(range(20))
    assert found[0] == {**widget("w-0", 0), "apiVersion": "example.com/v1"}


def test_versions_and_kinds_may_be_mixed() -> None:
    gadget = {**widget("g", "x"), "kind": "Gadget", "apiVersion": "example.com/v2"}
    response = answer(widget("a", "1"), widget("b", 2, BETA), gadget)
    found = [(obj["kind"], obj["spec"]["size"]) for obj in response["convertedObjects"]]
    assert found == [("Widget", 1), ("Widget", 2), ("Gadget", "x")]


def test_a_text_that_no_json_can_have_is_answered_all_the_same() -> None:
    def refuse(old: Object, new: MutableObject) -> None:
        raise ConversionError("size \ud800 is refused")

    versions = Versions(V1).older(BETA, up=refuse, down=refuse)
    webhook = ConversionWebhook(versions)
    assert "size ? is refused" in message(widget("a", 1, BETA), webhook=webhook)


def test_a_review_without_objects_succeeds() -> None:
    assert answer()["convertedObjects"] == []
    body = json.dumps({"request": {"objects": None}}).encode()
    status, answered = ConversionWebhook(WIDGETS).review(body)
    assert status == 200
    assert json.loads(answered) == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": "",
            "convertedObjects": [],
            "result": {"metadata": {}, "status": "Success"},
        },
    }


def test_the_version_of_the_review_comes_back() -> None:
    body = review_of(widget("a", "1"), apiVersion="apiextensions.k8s.io/v1beta1")
    _, answered = ConversionWebhook(WIDGETS).review(body)
    assert json.loads(answered)["apiVersion"] == "apiextensions.k8s.io/v1beta1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"request": null}',
        b'{"request": []}',
        b'{"request": {"uid": 3}}',
        b'{"request": {"objects": {}}}',
        b'{"request": {"uid": "\xff"}}',
        review_of()[:-1],
        review_of() + b"{}",
        b'{"request": {"objects": ' + b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"request": {"objects": 5, "a": ' + b"[" * 9_000 + b"]" * 9_000 + b"}}",
    ],
)
def test_what_is_no_review_with_a_request_is_a_bad_request(body: bytes) -> None:
    status, text = ConversionWebhook(WIDGETS).review(body)
    assert status == 400
    assert text.startswith(b"the body is not a ConversionReview: ") or text.endswith(b" no request")
    response = ConversionWebhook(WIDGETS)(HTTPRequest(method="POST", path="/convert", body=body))
    assert response.status == 400


UP = "example.com/v1"


@pytest.mark.parametrize(
    ("obj", "to", "text"),
    [
        (widget("a", "1"), "example.com/v1alpha1", "default/a is of example.com/v1alpha1 already"),
        (widget("a", "1"), "other.com/v1", "Widget default/a is of the group 'example.com', and"),
        (widget("a", "1"), "", "and  is of another"),
        (widget("a", "1"), "example.com/v9", "default/a: widgets.example.com has no version v9"),
        (
            {**widget("a", "1"), "apiVersion": "example.com/v9"},
            UP,
            "object 1: widgets.example.com has no version v9: it has v1, v1alpha1, v1beta1",
        ),
        (
            {**widget("a", "1"), "kind": "Pod"},
            UP,
            "object 1: this webhook does not convert Pod of the group 'example.com'",
        ),
        ({"metadata": {}}, UP, "object 1: this webhook does not convert no kind"),
        ({"kind": 3}, UP, "object 1: its apiVersion and kind are not texts"),
        (5, UP, "object 1: "),
        (None, UP, "object 1: "),
        ({**widget("a", "1"), "metadata": None}, UP, "object 1: not an object of kind widgets"),
        (widget("a", "refuse"), UP, "default/a from v1alpha1 to v1: spec.size is refused"),
        (
            widget("a", "rename"),
            UP,
            "from v1alpha1 to v1: the function changed metadata.name: only labels and annotations",
        ),
    ],
)
def test_one_failure_fails_all_and_names_the_object(obj: Any, to: str, text: str) -> None:
    first = widget("first", 1, V1 if to == "example.com/v1alpha1" else BETA)
    if to in ("other.com/v1", "", "example.com/v9"):
        first = obj
    assert text in message(first, obj, widget("last", 1, BETA), to=to)


def test_details_of_a_crash_are_logged_with_the_uid_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    webhook = ConversionWebhook(WIDGETS)
    metrics = Metrics()
    metrics.add_source(webhook.samples)
    name = "controller_runtime_conversion_webhook_panics_total"
    assert metrics.value(name) == 0
    with caplog.at_level(logging.ERROR, logger="appsdk_operator.webhooks"):
        text = message(widget("a", "1"), widget("b", "crash"), webhook=webhook)
    assert text == (
        "Widget default/b from v1alpha1 to v1: internal error occurred during conversion"
    )
    (crash,) = caplog.records
    assert crash.exc_info is not None
    assert str(crash.exc_info[1]) == "password=hunter2"
    assert crash.uid == "u-1"  # type: ignore[attr-defined]
    assert "hunter2" not in crash.getMessage()
    assert metrics.value(name) == 1
    message(widget("a", "refuse"), webhook=webhook)
    assert metrics.value(name) == 1, "a refusal is no crash"


def deep_review(levels: int) -> bytes:
    """Of an object with so many levels."""
    deep = b'{"a":' * (levels - 2) + b"1" + b"}" * (levels - 2)
    text = (
        json.dumps(widget("a", "1")).encode().replace(b'"size": "1"', b'"size": "1", "d": ' + deep)
    )
    return review_of().replace(b'"objects": []', b'"objects": [' + text + b"]")


def test_objects_of_500_levels_are_converted_and_deeper_ones_refused_by_name() -> None:
    status, answered = ConversionWebhook(WIDGETS).review(deep_review(500))
    assert status == 200
    assert b'"status":"Success"' in answered
    assert answered.count(b'{"a":') == 498
    for levels in (501, 900, 9_000):
        status, answered = ConversionWebhook(WIDGETS).review(deep_review(levels))
        assert status == 400
        assert b"more than 500 levels deep" in answered


def test_a_body_that_is_too_large_is_refused() -> None:
    webhook = ConversionWebhook(WIDGETS, max_body_bytes=100)
    body = review_of(widget("a", "1"))
    response = webhook(HTTPRequest(method="POST", path="/convert", body=body))
    assert (response.status, b"the limit is 100 bytes" in response.body) == (413, True)
    fine = ConversionWebhook(WIDGETS, max_body_bytes=len(body))
    response = fine(HTTPRequest(method="POST", path="/convert", body=body))
    assert (response.status, response.content_type) == (200, "application/json")


def test_kinds_are_added_once() -> None:
    webhook = ConversionWebhook(WIDGETS)
    with pytest.raises(ValueError, match=r"widgets\.example\.com is converted already"):
        webhook.add(Versions(V1))
    with pytest.raises(
        TypeError, match=r"versions=.* is not of type Versions: give one, for example"
    ):
        webhook.add(V1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_body_bytes=0"):
        ConversionWebhook(max_body_bytes=0)
    webhook.add(GADGETS)
    assert webhook.versions == (WIDGETS, GADGETS)
    assert repr(webhook) == "<ConversionWebhook widgets.example.com, gadgets.example.com>"
    assert message(widget("a", "1"), webhook=ConversionWebhook()).endswith("of no kind yet>")


def test_kinds_are_added_while_others_are_converted() -> None:
    webhook = ConversionWebhook(WIDGETS)
    results: list[Any] = []

    def ask() -> None:
        results.extend(answer(widget("a", "1"), webhook=webhook) for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(50):
        kind = Kind(group=GROUP, version="v1", kind=f"Kind{number}")
        webhook.add(Versions(kind))
    for thread in threads:
        thread.join()
    assert len(results) == 200
    assert all(one["result"]["status"] == "Success" for one in results)


@given(st.lists(st.tuples(st.text("ab", min_size=1), st.integers(0, 10**30)), max_size=5))
def test_all_objects_arrive_in_order_with_all_digits(pairs: list[tuple[str, int]]) -> None:
    found = answer(*(widget(name, str(size)) for name, size in pairs))["convertedObjects"]
    assert [(obj["metadata"]["name"], obj["spec"]["size"]) for obj in found] == pairs


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda b: review_of()[:-1] + b))
def test_no_body_raises(body: bytes) -> None:
    status, _ = ConversionWebhook(WIDGETS).review(body)
    assert status in (200, 400)


def batch(count: int) -> bytes:
    filler = {"filler": "x" * 1_800}
    return review_of(*({**widget(f"w-{n}", str(n)), "status": filler} for n in range(count)))


@pytest.mark.stress
def test_a_large_batch_is_linear_in_time_and_memory() -> None:
    webhook = ConversionWebhook(WIDGETS)
    bodies = {count: batch(count) for count in (500, 5_000)}
    seconds: dict[int, float] = {}
    for count, body in bodies.items():
        tries = []
        for _ in range(3):
            # The processor's time: other processes take more of the longer one's.
            began = time.thread_time()
            _, answered = webhook.review(body)
            tries.append(time.thread_time() - began)
        seconds[count] = min(tries)
        assert answered.count(b'"apiVersion":"example.com/v1"') == count
    assert seconds[5_000] < 30 * seconds[500]
    tracemalloc.start()
    webhook.review(bodies[5_000])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(bodies[5_000])


@pytest.mark.parametrize(("size", "words"), [("refuse", "is refused"), ("crash", "failed")])
def test_one_object_that_cannot_be_converted_is_not_logged_again_and_again(
    size: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = ConversionWebhook(WIDGETS)
    for _ in range(100):
        message(widget("a", size), webhook=webhook)
    lines = [each for each in caplog.messages if words in each]
    assert 1 <= len(lines) <= 10, "one a second, on a slow machine several"
    message(widget("b", size), webhook=webhook)
    assert "default/b" in caplog.messages[-1]
