"""Odd events, bookmarks, pages and headers of a server never end the informer's thread."""

from __future__ import annotations

import json
from email.message import Message
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from appsdk_operator.cache import Informer
from appsdk_operator.client import ApiError, Request, error_from_status
from appsdk_operator.client._transport.response_errors import error_from_response
from appsdk_operator.resource import DecodeError, decode_list
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import (
    THING,
    NoJitter,
    ScriptedClient,
    Stream,
    data,
    page,
    thing,
)
from tests.hypothesis_profiles import scaled

HUGE = int("9" * 400)
NUMBERS = st.sampled_from([0, -1, 1, HUGE, -HUGE, 2**63, 0.5, 1e308, -0.0])
ODD = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6) | st.just("\x00"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the fields, each as it should be or odd."""
    return st.fixed_dictionaries({}, optional={key: s | ODD for key, s in fields.items()})


STATUS = some_of(
    kind=st.just("Status"),
    code=st.sampled_from([0, 200, 410, 429, 500, HUGE]),
    reason=st.sampled_from(["Expired", "Gone", "TooManyRequests"]),
    message=st.text(max_size=9),
    metadata=some_of(**{"continue": st.text(max_size=3), "resourceVersion": st.just("5")}),
    details=some_of(
        retryAfterSeconds=NUMBERS,
        causes=st.lists(some_of(reason=st.text(max_size=3), message=st.text(), field=st.text())),
    ),
)
BOOKMARK = some_of(
    kind=st.just("Thing"),
    metadata=some_of(
        resourceVersion=st.sampled_from(["5", "50", str(HUGE), "-1", "x", "٣"]),
        annotations=some_of(**{"k8s.io/initial-events-end": st.just("true")}),
    ),
)
LIST = some_of(
    kind=st.just("ThingList"),
    apiVersion=st.just("example.com/v1"),
    metadata=some_of(
        resourceVersion=st.sampled_from(["5", str(HUGE), ""]),
        remainingItemCount=NUMBERS,
        **{"continue": st.text(max_size=2)},
    ),
    items=st.lists(st.just(data("a", 1)) | ODD, max_size=2),
)


def is_well_again(steps: Informer, clock: ManualClock, stop: StopSignal) -> bool:
    for _ in range(30):
        clock.advance(steps.step(stop))
        if steps.store.get("well", "x") is not None:
            return True
    return False


def informer(client: ScriptedClient, clock: ManualClock) -> Informer:
    return Informer(
        THING, client, clock=clock, metrics=Metrics(), rng=NoJitter(), on_error=lambda _: None
    )


@given(
    status=STATUS,
    bookmark=BOOKMARK,
    in_stream=st.booleans(),
)
@example(status={"code": 429, "details": {"retryAfterSeconds": HUGE}}, bookmark={}, in_stream=False)
@settings(max_examples=scaled(150), deadline=None)
def test_no_event_ends_the_thread(status, bookmark, in_stream):
    lines = [
        json.dumps({"type": kind, "object": value}).encode()
        for kind, value in (("BOOKMARK", bookmark), ("ERROR", status))
    ]
    well = page(thing("well"), version=HUGE)
    first = (
        [Stream(lines)] if in_stream else [error_from_status({"code": 422}), page(), Stream(lines)]
    )

    def ask(*, send_initial_events: bool | None = None, **_: Any) -> Any:
        """A server that answers properly again."""
        if send_initial_events is None:
            return well
        return error_from_status({"code": 422}) if send_initial_events else Stream()

    clock = ManualClock()
    made = informer(ScriptedClient(*first, *[ask] * 20), clock)
    assert is_well_again(made, clock, StopSignal(clock=clock))


@given(body=LIST)
@settings(max_examples=scaled(150))
def test_a_list_is_a_page_or_a_decode_error(body):
    try:
        read = decode_list(THING, json.dumps(body).encode())
    except DecodeError:
        return
    assert isinstance(read.resource_version, str)
    assert isinstance(read.continue_token, str)


@given(
    code=st.sampled_from([302, 400, 410, 429, 503, 999]),
    status=STATUS,
    retry_after=st.sampled_from(["", "9" * 400, "-1", "1e9", "٣", "nan", "inf", "5", "\x00"]),
)
def test_an_answer_that_says_no_is_an_api_error(code, status, retry_after):
    headers = Message()
    headers["Retry-After"] = retry_after
    request = Request(method="GET", path="/", verb="list", resource="things", namespace="x")
    error = error_from_response(request, code, headers, json.dumps(status).encode())
    assert isinstance(error, ApiError)
    assert error.retry_after is None or 0 <= error.retry_after <= 1e9
    assert str(error)


@pytest.mark.parametrize("where", ["list", "watch", "apply"])
def test_a_defect_ends_no_thread_and_the_informer_begins_anew(where):
    """A defect in the kit or in a user's client: a dead thread would look like a quiet server."""
    client = ScriptedClient()
    clock = ManualClock()
    made = informer(client, clock)
    reflector = made._reflector
    stop = StopSignal(clock=clock)
    raised: list[str] = []

    def broken(*_: Any, **__: Any) -> Any:
        raised.append(where)
        if len(raised) > 3:
            stop.set()
        raise OverflowError("int too large to convert to float")

    if where == "apply":
        reflector._apply = broken
    elif where == "list":
        made._state.page = broken
    else:
        made._state.watch_opened = broken
    client.then(*[page(thing("a")), Stream()] * 10)
    advance = stop.wait
    stop.wait = lambda seconds: clock.advance(seconds) or advance(0.0)
    reflector.run(stop)
    assert len(raised) > 3
    if where != "apply":
        assert isinstance(made.last_error, OverflowError)
