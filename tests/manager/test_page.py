"""The panels of the live page: which objects they show, in which order, and the filter."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.manager._servers.markup import sparkline, strip
from appsdk_operator.manager._servers.page import (
    STATES,
    Asked,
    _due,
    _kubectl,
    _trend,
    _waiting,
    document,
    objects_of,
    panels_of,
)

KINDS = ("shops.v1.example.com", "keys.v1")
NAMES = st.tuples(st.sampled_from(KINDS), st.sampled_from(("berlin", "")), st.sampled_from("abcd"))


def failing(key: tuple[str, str, str], *, for_good: bool) -> dict[str, Any]:
    return {
        **dict(zip(("kind", "namespace", "name"), key, strict=True)),
        **dict.fromkeys(("function", "place", "text"), "x"),
        "controller": "shops",
        "callback": "open_shop",
        "why": "creation",
        "attempt": 1,
        "due_in": None if for_good else 3.0,
        "since": 40.0,
        "failures": 1,
        "outcome": "terminal" if for_good else "retrying",
        "type": "ConnectionError",
    }


def known(key: tuple[str, str, str]) -> dict[str, Any]:
    reference = dict(zip(("kind", "namespace", "name"), key, strict=True))
    call = {"controller": "shops", "outcome": "done", "why": "creation", "time": 9.0}
    return {**reference, **call, "seconds": 0.1}


def state(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "time": 100.0,
        "operator": {
            "name": "shop",
            "kit": "1",
            "python": "3",
            "pid": 1,
            "started": 0.0,
            "ready": True,
        },
        "verdict": [],
        "controllers": [],
        "informers": [],
        "failures": [],
        "failing": [],
        "deleting": [],
        "objects": [],
        "webhooks": [],
        "shards": [],
        "servers": [],
        "certificates": [],
        "groups": {},
        **changes,
    }


@given(
    st.lists(st.tuples(NAMES, st.booleans()), max_size=8),
    st.lists(NAMES, max_size=6),
    st.lists(NAMES, max_size=12),
)
def test_each_object_is_there_once_with_all_its_states_and_those_that_fail_come_first(
    fails: list[tuple[tuple[str, str, str], bool]],
    deleted: list[tuple[str, str, str]],
    called: list[tuple[str, str, str]],
) -> None:
    rows = [failing(key, for_good=for_good) for key, for_good in fails]
    gone = [{**known(key), "since": 50.0, "finalizers": ["x"]} for key in deleted]
    shown = state(failing=rows, deleting=gone, objects=[known(key) for key in called])
    found = objects_of(shown)
    keys = [(one["kind"], one["namespace"], one["name"]) for one in found]
    assert len(keys) == len(set(keys))
    assert set(keys) == {key for key, _ in fails} | set(deleted) | set(called)
    by_key = dict(zip(keys, found, strict=True))
    for key, one in by_key.items():
        assert ("failing" in one["states"]) is (key in {each for each, _ in fails})
        assert ("for-good" in one["states"]) is ((key, True) in fails)
        assert ("deleting" in one["states"]) is (key in deleted)
        assert ("well" in one["states"]) is (one["states"] == ["well"])
    is_failing = ["failing" in one["states"] for one in found]
    assert is_failing == sorted(is_failing, reverse=True)
    for name in STATES:
        wanted = [one for one in found if Asked(state=name).matches(one)]
        assert wanted == [one for one in found if name in one["states"]]


@given(
    st.builds(
        Asked,
        kind=st.text(max_size=5),
        namespace=st.text(max_size=5),
        state=st.sampled_from(["", *STATES]),
        q=st.text(max_size=5),
        rows=st.sampled_from(["", "all"]),
    )
)
def test_what_is_asked_survives_its_url(asked: Asked) -> None:
    stripped = {name: getattr(asked, name).strip() for name in ("kind", "namespace", "q")}
    query = urllib.parse.parse_qs(asked.query.removeprefix("?"))
    again = Asked.of("overview", query)
    assert {name: getattr(again, name) for name in stripped} == stripped
    assert (again.state, again.rows) == (asked.state, asked.rows)


def test_ten_rows_and_a_link_to_all_of_them() -> None:
    rows = [failing((KINDS[0], "berlin", f"shop-{n:02}"), for_good=False) for n in range(50)]
    shown = state(failing=rows)
    few = panels_of(Asked(q=""), shown)["objects"]
    assert few.count("<tr>") == 11
    assert '<a href="/debug/?rows=all#objects">All 50</a>' in few
    every = panels_of(Asked(rows="all"), shown)["objects"]
    assert every.count("<tr>") == 51
    assert "All 50" not in every


def test_the_filter_is_in_the_form_and_in_the_url_of_the_events() -> None:
    asked = Asked(kind="keys", namespace="berlin", state="failing", q='"<b>')
    text = document(asked, state(), title="shop", operator="shop", links={})
    assert '<option value="failing" selected="selected">failing</option>' in text
    assert '<option value="keys" selected="selected">keys</option>' in text
    assert 'name="q" value="&quot;&lt;b&gt;"' in text
    (events,) = re.findall('data-events="([^"]+)"', text)
    assert events == (
        "/debug/events?kind=keys&amp;namespace=berlin&amp;state=failing&amp;q=%22%3Cb%3E"
    )


def test_a_trend_is_rising_falling_or_steady_and_none_after_a_start() -> None:
    assert _trend([0] * 30 + [9] * 30, 3600.0) == "rising: 270 in 5 min, 0 before"
    assert _trend([9] * 30 + [0] * 30, 3600.0) == "falling: 0 in 5 min, 270 before"
    assert _trend([5] * 60, 3600.0) == "steady: 150 in 5 min, 150 before"
    assert _trend([0] * 59 + [1], 100.0) == "1 failed call since the start"


@given(st.lists(st.integers(0, 10**9), max_size=60), st.text())
def test_a_chart_stays_in_its_frame(numbers: list[int], what: str) -> None:
    drawn = sparkline(numbers, what)
    assert "<script" not in drawn
    bars = re.findall(r"M([\d.]+) 18v-([\d.]+)", drawn)
    assert len(bars) == sum(count > 0 for count in numbers)
    assert all(0.0 <= float(x) <= 120.0 and 1.0 <= float(height) <= 18.0 for x, height in bars)


@given(st.lists(st.tuples(st.floats(), st.just("good"), st.text()), max_size=10), st.floats(60.0))
def test_the_marks_of_a_strip_stay_in_it(marks: list[tuple[float, str, str]], span: float) -> None:
    places = re.findall(r'cx="([\d.]+)%"', strip(marks, span))
    assert len(places) == len(marks)
    assert all(0.0 <= float(place) <= 100.0 for place in places)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("configmaps.v1", "configmaps"),  # kubectl takes no resource.version
        ("deployments.v1.apps", "deployments.v1.apps"),
        ("shops.v1.example.com", "shops.v1.example.com"),
    ],
)
def test_the_line_for_kubectl_names_the_kind_as_kubectl_takes_it(kind: str, named: str) -> None:
    line = _kubectl(kind, {"namespace": "berlin", "name": "a"})
    assert f"kubectl get -n berlin {named} a -o yaml" in line


@pytest.mark.parametrize(
    ("queued", "awaiting", "said"),
    [
        (1, 1, "1 request waits: 0 of 1 worker busy, 1 call awaits something."),
        (2, 2, "2 requests wait: 0 of 1 worker busy, 2 calls await something."),
    ],
)
def test_why_a_queue_waits_is_said_in_singular_and_plural(
    queued: int, awaiting: int, said: str
) -> None:
    one = {
        "queued": queued,
        "awaiting_total": awaiting,
        "running_total": awaiting,
        "oldest_wait": None,
        "workers": 1,
        "running": [],
    }
    assert said in _waiting(one)


def test_a_filter_says_how_many_objects_match_it() -> None:
    objects = [known((KINDS[0], "berlin", name)) for name in "ab"]
    for q, said in (("/a", "1 matches the filter"), ("", "2 match"), ("c", "No known object")):
        asked = Asked(kind=KINDS[0], q=q)
        assert said in panels_of(asked, state(objects=objects))["objects"]


def test_a_time_to_come_has_the_absolute_one_as_its_tooltip() -> None:
    assert 'title="1970-01-01 00:01:43 UTC">in 3.0 s<' in str(_due(3.0, 100.0))
