"""The table of what an operator does."""

from __future__ import annotations

import io
import re

import pytest

from appsdk_operator.runtime import CallRecord, FailureCause, Narrator, RequestRecord


def call(**given: object) -> CallRecord:
    fields = {
        "controller": "shop",
        "callback": "greet",
        "role": "watcher",
        "kind": "Greeting.example.com",
        "namespace": "red",
        "name": "a",
        "action": "CREATE",
    }
    made = CallRecord(**{**fields, **given})  # type: ignore[arg-type]
    made.outcome, made.seconds = "done", 0.0123
    return made


def rows(*ended: CallRecord | RequestRecord) -> list[str]:
    stream = io.StringIO()
    narrator = Narrator(stream)
    for one in ended:
        if isinstance(one, CallRecord):
            narrator.call_began(one)
            narrator.call_ended(one)
        else:
            narrator.request_began(one)
            narrator.request_ended(one)
    return [re.sub(r"^\d\d:\d\d:\d\d\.\d{3}", "T", line) for line in stream.getvalue().splitlines()]


def test_each_call_has_a_row_and_its_writes_stand_below() -> None:
    good, bad = call(), call(callback="mirror", action="", reasons=["the spec changed"])
    good.requests.append(write(good))
    bad.outcome, bad.next_in = "retrying", 5.0
    bad.cause = FailureCause(KeyError("size"))
    header, first, below, second = rows(good, bad)
    assert header.split() == ["time", "callback", "why", "object", "took", "outcome"]
    assert first.split() == ["T", "greet", "CREATE", "Greeting", "red/a", "12.3", "ms", "ok"]
    assert below.strip() == "-> patch greetings.example.com/status red/a: 200"
    assert second.endswith("KeyError: 'size'; next try in 5 s")
    assert "the spec changed" in second


def write(of: CallRecord | None = None, **given: object) -> RequestRecord:
    fields = {
        "method": "PATCH",
        "verb": "patch",
        "resource": "greetings.example.com/status",
        "namespace": "red",
        "name": "a",
        "call": of,
    }
    made = RequestRecord(**{**fields, **given})  # type: ignore[arg-type]
    made.status, made.seconds = 200, 0.004
    return made


def test_of_requests_outside_of_calls_writes_alone_are_shown_and_no_leases() -> None:
    shown = rows(
        write(),
        write(method="GET", verb="get"),
        write(resource="leases.coordination.k8s.io"),
        write(call()),
    )
    assert len(shown) == 2
    assert "patch: 200" in shown[1]


@pytest.mark.parametrize("text", ["a\nT  forged", "a\x1b[2J"])
def test_a_text_of_the_cluster_forges_no_row(text: str) -> None:
    assert "\x1b" not in "".join(rows(call(reasons=[text], action="")))
    assert not [line for line in rows(call(reasons=[text], action="")) if line == "T  forged"]


def test_a_closed_terminal_is_told_once_and_stops_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = io.StringIO()
    narrator = Narrator(stream)
    stream.close()
    narrator.call_ended(call())
    narrator.call_ended(call())
    assert caplog.text.count("cannot be written any more") == 1
