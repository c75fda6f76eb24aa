"""The watch state machine: all courses of lists and watches, as scripts without threads."""

from __future__ import annotations

import random

import pytest

from appsdk_operator import client as c
from appsdk_operator.cache._informer.watch_state import (
    Begin,
    Changes,
    Finish,
    List,
    Problem,
    ShortWatchError,
    Upsert,
    VersionWentBackError,
    Wait,
    Watch,
    WatchBackoff,
    WatchState,
)
from appsdk_operator.resource import DecodeError
from tests.cache.conftest import NoJitter, bookmark, error_line, event, line, page, thing

EXPIRED = c.error_from_status({"code": 410, "reason": "Expired"})
TOO_LARGE = c.error_from_status(
    {
        "code": 504,
        "reason": "Timeout",
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]},
    }
)
LOST = c.ConnectionLost("reset by peer")
SILENT = c.WatchSilent("no byte for 90 s")


def status(code, **more):
    return c.error_from_status({"code": code, **more})


def machine(stream=False, **options):
    rng = NoJitter()
    return WatchState(stream_first_sync=stream, rng=rng, backoff=WatchBackoff(rng=rng), **options)


def shown(steps):
    """Steps in short."""
    found = []
    for step in steps:
        if isinstance(step, Upsert):
            found.append(" ".join(["upsert", *(o.name for o in step.objects)]))
        elif isinstance(step, Changes):
            changes = (f"{e.type.value.lower()} {e.object.name}" for e in step.events)
            found.append(", ".join(changes))
        elif isinstance(step, Finish):
            found.append(f"finish {step.resource_version}")
        elif isinstance(step, Problem):
            found.append(f"{step.doing}: {type(step.error).__name__}")
        else:
            assert isinstance(step, Begin)
            found.append("begin")
    return found


def what(command):
    """A command in short."""
    if isinstance(command, List):
        return f"list {command.limit} {command.continue_token}".strip()
    if isinstance(command, Wait):
        return f"wait {command.seconds:g}"
    return "stream" if command.initial_events else f"watch {command.resource_version}"


def commands(state, count=1):
    return [what(state.next()) for _ in range(count)]


def watching(version=10, **options):
    """A machine with an open watch."""
    state = machine(**options)
    state.page(page(version=version), 0.0)
    state.next()
    state.watch_opened(0.0)
    return state


def streaming():
    """A machine whose first sync streams."""
    state = machine(stream=True)
    assert commands(state) == ["stream"]
    assert shown(state.watch_opened(0.0)) == ["begin"]
    return state


def feed(state, *lines, now=0.0):
    return shown(state.events([event(text) for text in lines], now))


# Lists.


def test_pages_are_fetched_until_the_last_and_the_watch_begins_at_the_version_of_the_first():
    state = machine()
    assert commands(state) == ["list 500"]
    assert shown(state.page(page(thing("a"), version=10, token="t"), 0.0)) == ["begin", "upsert a"]
    assert commands(state) == ["list 500 t"]
    steps = state.page(page(thing("b"), version=12), 0.0)
    assert shown(steps) == ["upsert b", "finish 10"]
    assert commands(state) == ["watch 10"]


def test_an_empty_list_is_complete():
    state = machine()
    assert shown(state.page(page(version=3), 0.0)) == ["begin", "upsert", "finish 3"]


def test_a_page_size_of_0_asks_for_everything_at_once():
    assert machine(page_size=0).next() == List(0, "")


def test_pages_that_expire_begin_anew_at_once_and_the_second_time_without_pages():
    state = machine(page_size=2)
    state.page(page(thing("a"), token="t"), 0.0)
    assert shown(state.list_failed(EXPIRED, 0.0)) == ["list: Expired"]
    assert commands(state) == ["list 2"]
    assert shown(state.page(page(thing("a"), token="u"), 0.0)) == ["begin", "upsert a"]
    state.list_failed(EXPIRED, 1.0)
    assert commands(state) == ["list 0"]
    assert shown(state.page(page(thing("a"), version=9), 0.0)) == ["begin", "upsert a", "finish 9"]
    # The next list has pages again.
    state.next()
    state.watch_opened(2.0)
    feed(state, error_line(410, "Expired"), now=2.0)
    assert commands(state) == ["list 2"]


def test_a_first_page_that_is_gone_backs_off():
    state = machine()
    state.list_failed(EXPIRED, 0.0)
    assert commands(state, 2) == ["wait 0.8", "list 500"]


@pytest.mark.parametrize(
    "error",
    [
        status(401),
        status(403),
        status(404),
        status(500),
        status(503),
        c.ConnectFailed("refused"),
        LOST,
        DecodeError("half a page"),
        RuntimeError("the credentials plugin failed"),
    ],
)
def test_a_list_that_fails_is_tried_again_after_a_backoff(error):
    state = machine()
    state.page(page(thing("a"), token="t"), 0.0)
    steps = state.list_failed(error, 0.0)
    assert [(step.error, step.doing) for step in steps] == [(error, "list")]
    assert commands(state, 2) == ["wait 0.8", "list 500"]
    assert shown(state.page(page(thing("a")), 0.0)) == ["begin", "upsert a", "finish 10"]


@pytest.mark.parametrize("fail", ["list_failed", "watch_failed"])
def test_what_another_library_calls_retry_after_hides_no_error(fail):
    error = type("Throttled", (Exception,), {"retry_after": "5"})("slow down")
    state = machine()
    assert shown(getattr(state, fail)(error, 0.0)) == [f"{fail[:-7]}: Throttled"]
    assert isinstance(state.next(), Wait)


@pytest.mark.parametrize("fail", ["list_failed", "watch_failed"])
def test_retry_after_makes_the_wait_longer_but_never_shorter(fail):
    state = machine() if fail == "list_failed" else watching()
    if fail == "watch_failed":
        state.watch_ended(5.0)
    slow = c.TooManyRequests("slow down", status=429, retry_after=2.0)
    getattr(state, fail)(slow, 0.0)
    assert commands(state) == ["wait 2"]
    for _ in range(5):
        getattr(state, fail)(LOST, 0.0)
        state.next()
    getattr(state, fail)(slow, 0.0)
    assert commands(state) == ["wait 2.5"]


def test_a_server_cannot_send_us_away_for_hours():
    state = machine()
    state.list_failed(c.TooManyRequests("later", status=429, retry_after=86_400.0), 0.0)
    assert commands(state) == ["wait 300"]


@pytest.mark.parametrize("trouble", ["token", "items", "empty"])
def test_pages_without_end_are_an_error_and_the_list_is_tried_without_pages(trouble):
    state = machine()
    for number in range(100):
        items = {"token": [thing(f"a{number}")], "items": [thing("a")], "empty": []}[trouble]
        token = "t" if trouble == "token" else f"t{number}"
        steps = state.page(page(*items, token=token), 0.0)
        if isinstance(steps[0], Problem):
            break
        assert what(state.next()) == f"list 500 {token}"
    assert isinstance(steps[0].error, c.BadResponse)
    assert "the list does not end" in str(steps[0].error)
    assert number == {"token": 1, "items": 1, "empty": 9}[trouble]
    assert commands(state, 2) == ["wait 0.8", "list 0"]
    assert shown(state.page(page(thing("a")), 0.0)) == ["begin", "upsert a", "finish 10"]


def test_a_list_without_pages_that_expires_again_and_again_backs_off():
    state = machine()
    waits = []
    for _ in range(6):
        state.page(page(thing("a"), token="t"), 0.0)
        state.list_failed(EXPIRED, 0.0)
        command = state.next()
        waits.append(what(command))
        if isinstance(command, Wait):
            state.next()
    assert waits == ["list 500", "list 0", "list 0", "wait 0.8", "wait 1.6", "wait 2.5"]


# Watches that end.


def test_a_watch_that_ends_cleanly_is_resumed_at_once_and_nothing_is_listed():
    state = watching()
    feed(state, line("ADDED", thing("a", 11)))
    assert state.watch_ended(400.0) == []
    assert commands(state) == ["watch 11"]


def test_a_watch_that_was_reset_is_resumed_at_once_and_the_next_times_after_a_backoff():
    state = watching()
    feed(state, line("ADDED", thing("a", 11)))
    assert shown(state.watch_ended(1.0, LOST)) == ["watch: ConnectionLost"]
    assert commands(state) == ["watch 11"]
    for wait in ("wait 0.8", "wait 1.6", "wait 2.5"):
        state.watch_opened(1.0)
        state.watch_ended(1.0, LOST)
        assert commands(state, 2) == [wait, "watch 11"]


def test_watches_that_are_cut_after_a_while_each_time_are_resumed_without_growing_delays():
    state = watching()
    waits = []
    for cut in range(1, 8):
        state.watch_ended(60.0 * cut, LOST)
        waits += commands(state)
        state.watch_opened(60.0 * cut + 1.0)
    assert waits == ["watch 10"] * 7


def test_a_silent_watch_is_resumed_at_once():
    state = watching()
    assert shown(state.watch_ended(90.0, SILENT)) == ["watch: WatchSilent"]
    assert commands(state) == ["watch 10"]


def test_a_second_silent_watch_leads_to_a_list_unless_one_has_brought_something():
    """A proxy holds back what watches bring, or the server was restored to an older version."""
    state = watching()
    for began in (0.0, 90.0, 180.0):
        state.watch_opened(began)
        feed(state, bookmark(11))
        state.watch_ended(began + 90.0, SILENT)
        assert commands(state) == ["watch 11"]
    state.watch_opened(270.0)
    assert shown(state.watch_ended(360.0, SILENT)) == ["watch: WatchSilent"]
    assert commands(state) == ["list 500"]


def test_silent_watches_lead_to_a_list_each_second_time():
    state = watching()
    for number in range(1, 8):
        state.watch_ended(90.0 * number, SILENT)
        asked = commands(state)
        if number % 2:
            assert asked == ["watch 10"]
        else:
            assert asked == ["list 500"]
            state.page(page(version=10), 90.0 * number)
            assert commands(state) == ["watch 10"]
        state.watch_opened(90.0 * number)


def test_a_garbage_line_leads_to_a_list():
    state = watching()
    feed(state, line("ADDED", thing("a", 11)))
    assert shown(state.garbage(DecodeError("what?"), 1.0)) == ["watch: DecodeError"]
    assert not state.is_watching
    assert state.watch_ended(1.0) == []
    assert commands(state) == ["list 500"]


@pytest.mark.parametrize("error", [EXPIRED, status(410), status(404), TOO_LARGE])
def test_a_watch_that_cannot_begin_where_we_are_leads_to_a_list(error):
    state = watching()
    state.watch_ended(400.0)
    assert shown(state.watch_failed(error, 400.0)) == [f"watch: {type(error).__name__}"]
    assert commands(state) == ["list 500"]


@pytest.mark.parametrize(
    "error", [status(401), status(403), status(429), status(500), status(503), LOST]
)
def test_a_watch_that_is_refused_is_tried_again_at_the_same_version(error):
    state = watching()
    state.watch_ended(400.0)
    state.watch_failed(error, 400.0)
    assert commands(state, 2) == ["wait 0.8", "watch 10"]


@pytest.mark.parametrize(("error", "is_refusal"), [(403, True), (404, True), (500, False)])
def test_a_refusal_holds_until_the_server_answers_otherwise(error, is_refusal):
    state = machine()
    state.next()
    state.list_failed(status(error), 0.0)
    assert state.is_refused is is_refusal
    state.list_failed(LOST, 1.0)
    assert state.is_refused is is_refusal
    state.page(page(version=10), 2.0)
    assert not state.is_refused
    state.watch_failed(status(error), 2.0)
    assert state.is_refused is is_refusal
    state.watch_opened(3.0)
    assert not state.is_refused
    state.watch_ended(400.0)  # cleanly
    assert not state.is_refused
    state.watch_failed(LOST, 401.0)
    assert not state.is_refused


@pytest.mark.parametrize(("code", "reason"), [(410, "Expired"), (500, "InternalError"), (0, "")])
def test_an_error_event_leads_to_a_list_and_the_rest_of_the_stream_is_dropped(code, reason):
    state = watching()
    steps = feed(
        state,
        line("ADDED", thing("a", 11)),
        error_line(code, reason),
        line("ADDED", thing("b", 12)),
    )
    assert steps[0] == "added a"
    assert len(steps) == 2
    assert not state.is_watching
    assert state.watch_ended(1.0) == []
    assert commands(state) == ["list 500"]


@pytest.mark.parametrize("ended_by", ["error", "garbage", "version"])
def test_what_ends_a_watch_is_one_problem_and_streams_again_at_once(ended_by):
    """The closing of the stream that follows is no failure of the streamed list to come."""
    state = streaming()
    feed(state, bookmark(10, ends_initial=True))
    if ended_by == "error":
        feed(state, error_line(410, "Expired"))
    elif ended_by == "garbage":
        state.garbage(DecodeError("what?"), 0.0)
    else:
        feed(state, line("ADDED", thing("a", 9)))
    assert state.watch_ended(0.0) == []
    assert commands(state) == ["stream"]


def test_an_error_event_that_says_when_to_come_back_is_obeyed():
    state = watching()
    text = line("ERROR", {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 9}})
    feed(state, text)
    assert commands(state, 2) == ["wait 9", "list 500"]


def test_watches_that_end_at_once_back_off_and_the_fifth_leads_to_a_list():
    state = watching()
    waits = []
    for number in range(1, 6):
        steps = state.watch_ended(0.5)
        assert isinstance(steps[0].error, ShortWatchError)
        assert f" {number} watches" in str(steps[0].error)
        waits += commands(state)
        if 1 < number < 5:
            assert commands(state) == ["watch 10"]
        if number < 5:
            state.watch_opened(0.0)
    assert waits == ["watch 10", "wait 0.8", "wait 1.6", "wait 2.5", "list 500"]


@pytest.mark.parametrize("rescue", ["an object", "a second"])
def test_a_watch_that_lives_or_brings_something_is_not_short(rescue):
    state = watching()
    for _ in range(4):
        state.watch_ended(0.5)
        commands(state, 2)
        state.watch_opened(0.0)
    if rescue == "an object":
        feed(state, line("ADDED", thing("a", 11)))
        assert state.watch_ended(0.1) == []
        # But not when it is the same one each time.
        commands(state)
        state.watch_opened(0.1)
        feed(state, line("ADDED", thing("a", 11)))
        assert " 1 watches" in str(state.watch_ended(0.2)[0].error)
        return
    assert state.watch_ended(1.0) == []
    commands(state)
    state.watch_opened(2.0)
    assert " 1 watches" in str(state.watch_ended(2.1)[0].error)


def test_a_watch_that_brings_a_bookmark_only_and_ends_at_once_backs_off():
    """Servers that shut down, and proxies, end watches so; without a backoff that is a storm."""
    state = watching()
    feed(state, bookmark(12))
    assert shown(state.watch_ended(0.1)) == ["watch: ShortWatchError"]
    assert commands(state) == ["watch 12"]
    state.watch_opened(0.1)
    feed(state, bookmark(13))
    assert shown(state.watch_ended(0.2)) == ["watch: ShortWatchError"]
    assert commands(state, 2) == ["wait 0.8", "watch 13"]


# Versions.


def test_bookmarks_move_the_version_on_but_never_back():
    state = watching()
    assert feed(state, bookmark(20)) == []
    assert state.resource_version == "20"
    feed(state, bookmark(15))
    assert state.resource_version == "20"
    feed(state, bookmark(""))
    assert state.resource_version == "20"
    state.watch_ended(400.0)
    assert commands(state) == ["watch 20"]


def test_a_version_that_goes_back_leads_to_a_list():
    state = watching()
    steps = state.events([event(line("MODIFIED", thing("a", 9)))], 1.0)
    assert isinstance(steps[0].error, VersionWentBackError)
    assert commands(state) == ["list 500"]


def test_a_list_that_is_older_than_the_watch_before_is_taken_as_true():
    state = watching(version=100)
    feed(state, error_line(410, "Expired"))
    state.next()
    assert shown(state.page(page(version=7), 0.0))[-1] == "finish 7"
    assert commands(state) == ["watch 7"]


def test_several_objects_with_one_version_are_all_told():
    """Aggregated APIs have versions that are not the store's revisions."""
    state = watching()
    told = feed(state, line("ADDED", thing("a", 11)), line("ADDED", thing("b", 11)))
    assert told == ["added a, added b"]


def test_versions_that_are_not_numbers_are_kept_and_never_compared():
    state = watching(version="z9")
    feed(state, line("ADDED", thing("a", "b1")), bookmark("a0"))
    state.watch_ended(400.0)
    assert commands(state) == ["watch a0"]


def test_an_object_without_a_version_does_not_lose_the_place():
    state = watching()
    assert feed(state, line("MODIFIED", thing("a", ""))) == ["modified a"]
    assert state.resource_version == "10"


@pytest.mark.parametrize("end", ["cleanly", "reset", "short"])
def test_a_kind_whose_lists_have_no_version_is_watched_and_listed_again(end):
    state = watching(version="")
    # The present objects come first, in any order.
    assert feed(state, line("ADDED", thing("a", 9)), line("ADDED", thing("b", 5))) == [
        "added a, added b"
    ]
    if end == "short":
        state.watch_opened(0.0)
    state.watch_ended(0.1 if end == "short" else 400.0, LOST if end == "reset" else None)
    assert commands(state) == ["list 500"]


def test_a_watch_without_a_version_finds_its_place_with_the_first_news():
    state = watching(version="")
    feed(state, line("ADDED", thing("a", 9)), line("MODIFIED", thing("a", 12)))
    state.watch_ended(400.0)
    assert commands(state) == ["watch 12"]


# Streamed lists.


def test_a_first_sync_streams_and_goes_on_as_the_watch():
    state = streaming()
    assert feed(state, line("ADDED", thing("a", 9)), line("ADDED", thing("b", 5))) == ["upsert a b"]
    assert not state.is_following
    assert feed(
        state, bookmark(10, ends_initial=True), line("MODIFIED", thing("a", 11)), bookmark(12)
    ) == ["finish 10", "modified a"]
    assert state.is_following
    state.watch_ended(400.0)
    assert commands(state) == ["watch 12"]


def test_what_is_deleted_while_the_list_streams_is_told():
    state = streaming()
    told = feed(state, line("ADDED", thing("a", 9)), line("DELETED", thing("a", 11)))
    assert told == ["upsert a", "deleted a"]


@pytest.mark.parametrize("code", [400, 405, 415, 422, 501])
def test_a_server_that_cannot_stream_is_listed_without_complaint_and_not_asked_again(code):
    state = machine(stream=True)
    state.next()
    assert state.watch_failed(status(code), 0.0) == []
    assert commands(state) == ["list 500"]
    state.page(page(), 0.0)
    state.next()
    state.watch_opened(1.0)
    feed(state, error_line(410, "Expired"))
    assert commands(state) == ["list 500"]


@pytest.mark.parametrize("error", [status(403), status(404), status(429), status(500), LOST])
def test_a_stream_that_is_refused_for_now_falls_back_to_a_list_and_is_asked_for_again(error):
    state = machine(stream=True)
    state.next()
    assert shown(state.watch_failed(error, 0.0)) == [f"watch: {type(error).__name__}"]
    assert commands(state, 2) == ["wait 0.8", "list 500"]
    state.page(page(), 0.0)
    state.next()
    state.watch_opened(1.0)
    feed(state, error_line(410, "Expired"))
    assert commands(state) == ["stream"]


@pytest.mark.parametrize("error", [None, LOST, SILENT])
def test_a_stream_that_breaks_midway_falls_back_to_a_list(error):
    state = streaming()
    feed(state, line("ADDED", thing("a", 9)))
    name = type(error).__name__ if error else "ConnectionResetError"
    assert shown(state.watch_ended(1.0, error)) == [f"watch: {name}"]
    assert commands(state) == ["list 500"]
    assert shown(state.page(page(thing("a", 9)), 0.0))[0] == "begin"
    # Nothing streams again until a watch has lasted.
    for opened, lasts, then in ((2.0, 10.0, "list 500"), (20.0, 30.0, "stream")):
        state.next()
        state.watch_opened(opened)
        feed(state, error_line(410, "Expired"), now=opened + lasts)
        command = state.next()
        assert what(command if not isinstance(command, Wait) else state.next()) == then
        state.page(page(thing("a", 9)), 0.0)


@pytest.mark.parametrize("trouble", ["error", "garbage"])
def test_trouble_inside_a_streamed_list_falls_back_to_a_plain_one(trouble):
    state = streaming()
    if trouble == "error":
        assert feed(state, error_line(500, "InternalError")) == ["watch: InternalError"]
    else:
        state.garbage(DecodeError("what?"), 0.0)
    assert state.watch_ended(0.0) == []
    assert commands(state) == ["list 500"]


def test_a_plain_bookmark_before_the_end_of_the_list_tells_a_server_that_does_not_stream():
    state = streaming()
    assert feed(state, line("ADDED", thing("a", 9)), bookmark(10)) == ["upsert a"]
    assert not state.is_watching
    assert state.watch_ended(0.0) == []
    assert commands(state) == ["list 500"]


# Time.


def test_the_length_of_watches_is_drawn_between_the_bounds():
    state = WatchState(stream_first_sync=False, watch_timeout=(300.0, 600.0))
    state.page(page(), 0.0)
    lengths = {state.next().timeout for _ in range(50)}
    assert len(lengths) > 40
    assert all(300 <= length <= 600 for length in lengths)


def test_backoff_doubles_to_its_cap_and_starts_anew_after_two_healthy_minutes():
    backoff = WatchBackoff(rng=NoJitter())
    assert [backoff.delay(float(now)) for now in range(7)] == [
        0.8,
        1.6,
        2.5,
        2.5,
        2.5,
        2.5,
        2.5,
    ]
    assert backoff.delay(126.0) == 2.5
    assert backoff.delay(246.1) == 0.8


def test_backoff_jitters_within_twice_the_capped_delay():
    for seed in range(50):
        backoff = WatchBackoff(rng=random.Random(seed))
        for number in range(8):
            low = min(2.5, 0.8 * 2**number)
            assert low <= backoff.delay(0.0) < 2 * low


@pytest.mark.parametrize(
    "options", [{"initial": 0}, {"initial": 5, "maximum": 4}, {"reset_after": -1}]
)
def test_backoff_options_are_checked(options):
    with pytest.raises(ValueError, match="use 0 < initial <= maximum"):
        WatchBackoff(**options)


def test_requests_of_all_kinds_that_are_refused_share_one_backoff():
    state = machine(stream=True)
    state.next()
    state.watch_failed(LOST, 0.0)
    waits = commands(state)
    state.list_failed(LOST, 1.0)
    waits += commands(state)
    state.page(page(), 0.0)
    state.next()
    state.watch_failed(LOST, 2.0)
    waits += commands(state)
    assert waits == ["wait 0.8", "wait 1.6", "wait 2.5"]


def test_commands_are_values():
    assert Watch("1", 2.0, False) == Watch("1", 2.0, False)
    assert machine().next() == List(500, "")


def test_the_longest_delays_are_spread_at_random_too():
    """Else all that lost a server together come back to it together, each few seconds."""
    backoff = WatchBackoff(rng=random.Random(1))
    delays = [backoff.delay(0.0) for _ in range(100)]
    assert all(2.5 <= delay < 5.0 for delay in delays[6:])
    assert len(set(delays[6:])) > 50
