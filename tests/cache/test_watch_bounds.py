"""Bounds of the watch state machine for any answers of a server: all reachable states are tried.

Time is abstract: with each answer either none passes, or so much that all backoffs start anew, and
waits take none. So the states are finite in number, and among them is every one that a real clock
leads to, as far as what is waited for goes.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator import client as c
from appsdk_operator.cache._informer.watch_state import List, Wait, Watch, WatchState
from appsdk_operator.resource import DecodeError
from tests.cache.conftest import bookmark, error_line, event, line, page, thing

LONGEST = 5.0
AGES = 1000.0

EXPIRED = c.error_from_status({"code": 410, "reason": "Expired"})
UNAVAILABLE = c.error_from_status({"code": 503})
CANNOT = c.error_from_status({"code": 422})
UNKNOWN = c.error_from_status({"code": 404})
LOST = c.ConnectionLost("reset by peer")
SILENT = c.WatchSilent("no byte for 90 s")
GARBAGE = DecodeError("what?")

Answer = tuple[str, Callable[[WatchState, float], object]]


class MostJitter(random.Random):
    """Always the upper end."""

    def random(self) -> float:
        return 0.999999


def opened(
    *lines: bytes, error: Exception | None = None, garbage: bool = False, lasts: float = 0.0
) -> Callable[[WatchState, float], object]:
    """A watch that is accepted, says ``lines`` and ends after ``lasts`` seconds."""
    events = [event(text) for text in lines]

    def answer(state: WatchState, now: float) -> None:
        state.watch_opened(now - lasts)
        for one in events:
            if state.is_watching:
                state.events([one], now)
        if garbage and state.is_watching:
            state.garbage(GARBAGE, now)
        state.watch_ended(now, error)

    return answer


LAST, PAGE = page(thing("a")), page(thing("a"), token="t")
LISTS: list[Answer] = [
    ("ok", lambda s, now: s.page(LAST, now)),
    ("page", lambda s, now: s.page(PAGE, now)),
    ("expired", lambda s, now: s.list_failed(EXPIRED, now)),
    ("refused", lambda s, now: s.list_failed(UNAVAILABLE, now)),
]
REFUSALS: list[Answer] = [
    ("expired", lambda s, now: s.watch_failed(EXPIRED, now)),
    ("unknown", lambda s, now: s.watch_failed(UNKNOWN, now)),
    ("lost", lambda s, now: s.watch_failed(LOST, now)),
]
ENDS: list[Answer] = [
    ("nothing", opened()),
    ("cut", opened(error=LOST)),
    ("silent", opened(error=SILENT, lasts=90.0)),
    ("error event", opened(error_line(410, "Expired"))),
    ("garbage", opened(garbage=True)),
    ("same object", opened(line("ADDED", thing("a", 10)))),
    ("bookmark", opened(bookmark(10))),
    ("back", opened(line("ADDED", thing("a", 9)))),
]
# A server that brings something new each time may be asked as often as it does.
LASTING: list[Answer] = [
    ("lasts", opened(lasts=60.0)),
    ("lasts, cut", opened(error=LOST, lasts=60.0)),
    ("lasts, expired", opened(error_line(410, "Expired"), lasts=60.0)),
]
STREAMS: list[Answer] = [
    ("cannot", lambda s, now: s.watch_failed(CANNOT, now)),
    ("streamed", opened(line("ADDED", thing("a", 9)), bookmark(10, ends_initial=True))),
    (
        "streamed, expired",
        opened(bookmark(10, ends_initial=True), error_line(410, "Expired")),
    ),
    ("streamed, cut", opened(bookmark(10, ends_initial=True), error=LOST)),
]


def answers(command: List | Watch, *, lasting: bool = True) -> Iterator[Answer]:
    if isinstance(command, List):
        yield from LISTS
        return
    yield from REFUSALS
    yield from ENDS
    if command.initial_events:
        yield from STREAMS
    if lasting:
        yield from LASTING


def key(state: WatchState, now: float) -> tuple[Any, ...]:
    """Everything that determines the future of a state."""
    backoffs = tuple(
        # From the third failure on the delay is the longest one.
        (
            min(backoff._failures, 2),
            backoff._last_failure is None or now - backoff._last_failure > 120.0,
        )
        for backoff in (state._refused, state._broken)
    )
    pages = (len(state._pages._tokens), len(state._pages._pages), state._pages._empty)
    return (
        state._phase,
        state._delay,
        backoffs,
        state._has_waited,
        state._may_stream,
        state._prefers_list,
        state._continue,
        state._limit,
        state._restarts,
        state._short_watches,
        state._silent_watches,
        state.resource_version,
        pages,
    )


def copied(state: WatchState) -> WatchState:
    made = copy.copy(state)
    made._refused, made._broken = copy.copy(state._refused), copy.copy(state._broken)
    made._pages = copy.copy(state._pages)
    made._pages._tokens, made._pages._pages = set(made._pages._tokens), set(made._pages._pages)
    return made


def after(state: WatchState, answer: Answer, now: float) -> WatchState:
    made = copied(state)
    answer[1](made, now)
    return made


def all_states() -> list[tuple[WatchState, float]]:
    """Every state that any sequence of answers leads to."""
    rng = MostJitter()
    found: dict[tuple[Any, ...], tuple[WatchState, float]] = {}
    pending: list[tuple[WatchState, float]] = [
        (WatchState(stream_first_sync=streams, rng=rng), 0.0) for streams in (True, False)
    ]
    while pending:
        state, now = pending.pop()
        if key(state, now) in found:
            continue
        found[key(state, now)] = state, now
        asked = copied(state)
        command = asked.next()
        if isinstance(command, Wait):
            pending.append((asked, now))
            continue
        for answer, passed in itertools.product(answers(command), (0.0, AGES)):
            next_one = after(asked, answer, now + passed), now + passed
            if key(*next_one) not in found:
                pending.append(next_one)
    return list(found.values())


@pytest.fixture(scope="module")
def states() -> list[tuple[WatchState, float]]:
    found = all_states()
    assert 500 < len(found) < 20_000
    return found


@pytest.mark.parametrize("refusal", ["", "expired", "error event"])
@pytest.mark.parametrize("streams", [True, False])
def test_the_copy_is_followed_5_seconds_after_a_server_is_well_again(
    states: list[tuple[WatchState, float]], refusal: str, streams: bool
) -> None:
    """For any state, also with an expired history: the longest time of all states is measured."""
    by_name = dict((*LISTS, *REFUSALS, *ENDS, *STREAMS))
    worst = 0.0
    for start, now in states:
        state, waited, refusals = copied(start), 0.0, refusal
        for _ in range(20):
            command = state.next()
            if isinstance(command, Wait):
                waited += command.seconds
            elif isinstance(command, List):
                by_name["ok"](state, now)
                refusals = ""  # where it begins now is kept
            elif command.initial_events and not streams:
                by_name["cannot"](state, now)
            elif command.initial_events:
                state.watch_opened(now)
                state.events([event(bookmark(10, ends_initial=True))], now)
                break
            elif refusals:
                by_name[refusals](state, now)
                refusals = ""
            else:
                state.watch_opened(now)
                break
        assert state.is_following
        worst = max(worst, waited)
    assert 4.9 < worst < LONGEST


def test_no_loop_is_without_waits(states: list[tuple[WatchState, float]]) -> None:
    """However fast a server answers, requests without a pause end."""
    edges: dict[tuple[Any, ...], dict[tuple[Any, ...], str]] = {}
    for state, now in states:
        asked = copied(state)
        command = asked.next()
        if not isinstance(command, Wait):
            edges[key(state, now)] = {
                key(after(asked, answer, now), now): answer[0]
                for answer in answers(command, lasting=False)
                if answer[0] != "silent"  # which takes its time
            }
    # What leads to no loop is taken away, from the ends on.
    while True:
        ends = [one for one, nexts in edges.items() if not any(n in edges for n in nexts)]
        if not ends:
            break
        for one in ends:
            del edges[one]
    loop = next(iter(edges.items()), None)
    assert loop is None, f"{len(edges)} states are in loops without a wait, as {loop}"


def test_a_server_that_says_when_to_come_back_is_obeyed_in_each_state(
    states: list[tuple[WatchState, float]],
) -> None:
    slow = c.TooManyRequests("slow down", status=429, retry_after=60.0)
    for start, now in states:
        state = copied(start)
        command = state.next()
        if isinstance(command, Wait):
            continue
        if isinstance(command, List):
            state.list_failed(slow, now)
        else:
            state.watch_failed(slow, now)
        assert state.next() == Wait(60.0)
