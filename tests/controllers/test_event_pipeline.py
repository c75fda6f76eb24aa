from __future__ import annotations

import contextlib
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Event, NotFollowedError, NotSyncedError
from appsdk_operator.controllers import (
    HandlerFunctions,
    Predicate,
    for_object,
    generation_changed,
    map_objects,
)
from appsdk_operator.controllers._sources.event_pipeline import EventPipeline
from appsdk_operator.runtime import ManualClock, Metrics
from tests.cache.conftest import NoJitter, thing
from tests.controllers.event_tools import (
    CREATE,
    DELETE,
    GENERIC,
    RESYNC,
    UPDATE,
    RecordingQueue,
    created,
    updated,
)
from tests.hypothesis_profiles import scaled


class Feed:
    """An event feed without a thread."""

    def __init__(self, handler, *predicates, **options):
        self.clock, self.metrics, self.queue = ManualClock(), Metrics(), RecordingQueue()
        self.feed = EventPipeline(
            "things",
            handler,
            predicates,
            clock=self.clock,
            metrics=self.metrics,
            rng=NoJitter(),
            **options,
        )
        self.feed._queue = self.queue
        self.metrics.add_source(self.feed.samples)

    def put(self, *events):
        self.feed.events.on_events(events)
        return self.settle()

    def settle(self):
        """Do what is due now."""
        while self.feed.step():
            pass
        return self

    def close(self):
        self.feed.stop()
        assert self.feed.join(10.0) == []

    @property
    def due_in(self):
        due = self.feed._delivery.next_due()
        return None if due is None else round(due - self.clock.monotonic(), 6)

    def advance(self):
        """Go to the next try, and make it."""
        self.clock.advance(self.feed._delivery.next_due() - self.clock.monotonic())
        return self.settle()

    def value(self, name):
        return self.metrics.value(f"source_{name}", source="things")


class Plan:
    """A map function that fails as planned: ``fails`` is asked with (name, version)."""

    def __init__(self, fails):
        self.fails = fails
        self.tried, self.done = [], []

    def handler(self):
        def handle(event, queue):
            it = event.object
            at = (it.name, int(it.resource_version))
            self.tried.append(at)
            if self.fails(*at):
                raise ValueError(f"no {at}")
            self.done.append(at)
            queue.add(event.key)

        return HandlerFunctions(create=handle, update=handle, delete=handle, generic=handle)


def versions(name, first, last):
    before = thing(name, first - 1) if first > 1 else None
    events = []
    for version in range(first, last + 1):
        now = thing(name, version)
        events.append(updated(before, now) if before is not None else Event(CREATE, now))
        before = now
    return events


def test_what_reads_a_namespace_that_is_followed_no_more_is_not_called_again(caplog):
    asked = []

    def users_of(obj):
        asked.append(obj.name)
        namespace = obj.namespace if obj.name == "a" else "elsewhere"
        raise NotFollowedError("not followed", namespace=namespace)

    with caplog.at_level(logging.INFO):
        feed = Feed(map_objects(users_of)).put(created("a"))
        assert feed.due_in is None
        assert not caplog.records
    feed.put(created("b"))
    assert feed.due_in == 0.1
    assert asked == ["a", "b"]


def test_what_reads_a_copy_that_is_not_complete_is_called_again_without_alarm(caplog):
    errors = [NotSyncedError("not synced yet")]

    def users_of(obj):
        if errors:
            raise errors.pop()
        return [obj.key]

    with caplog.at_level(logging.INFO):
        feed = Feed(map_objects(users_of)).put(created("a"))
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert feed.due_in == 0.1
    assert feed.advance().queue.names == ["x/a"]


def test_an_event_that_passes_all_predicates_reaches_the_handler():
    feed = Feed(for_object(), lambda event: event.object.name != "b", generation_changed)
    feed.put(created("a"), created("b"), created("c")).put(Event(RESYNC, thing("a")))
    assert feed.queue.names == ["x/a", "x/c"]
    assert feed.value("events_total") == 4
    assert feed.value("filtered_events_total") == 2


def test_a_predicate_that_raises_lets_the_event_pass_and_is_named_and_counted(caplog):
    def broken(event):
        return event.object["spec"]["missing"]

    feed = Feed(for_object(), Predicate(broken, name="is worth it"))
    feed.put(created("a"), created("b"))
    assert feed.queue.names == ["x/a", "x/b"]
    assert feed.value("predicate_errors_total") == 2
    assert [
        r.message.count("predicate is worth it failed for <CREATE") for r in caplog.records
    ] == [
        1,
        1,
    ]
    assert caplog.records[0].exc_info
    assert not caplog.records[1].exc_info, "thousands of events must not mean as many tracebacks"


def test_another_predicate_still_filters_what_a_broken_one_let_pass():
    feed = Feed(for_object(), lambda event: 1 / 0, lambda event: event.object.name == "a")
    feed.put(created("a"), created("b"))
    assert feed.queue.names == ["x/a"]


def test_even_system_exit_of_a_handler_is_tried_again(monkeypatch, caplog):
    monkeypatch.setattr("threading.main_thread", lambda: None)
    outcomes = [SystemExit(3)]

    def function(it):
        if outcomes:
            raise outcomes.pop()
        return [it.key]

    feed = Feed(map_objects(function)).put(created())
    assert feed.queue.names == []
    feed.advance()
    assert feed.queue.names == ["x/a"]
    assert "SystemExit" in caplog.text


def test_a_handler_that_raises_is_called_again_with_growing_delays():
    plan = Plan(lambda name, version: len(plan.tried) < 6)
    feed = Feed(plan.handler()).put(created())
    delays = []
    while (due := feed.due_in) is not None:
        delays.append(due)
        feed.advance()
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert feed.queue.names == ["x/a"]
    assert feed.value("handler_errors_total") == 5


def test_the_delay_never_exceeds_a_minute():
    plan = Plan(lambda name, version: True)
    feed = Feed(plan.handler()).put(created())
    for _ in range(30):
        feed.advance()
    assert feed.due_in == 60.0


def test_a_failure_is_logged_counted_and_told_in_the_health_text_until_it_is_mended(caplog):
    is_broken = True
    plan = Plan(lambda name, version: is_broken)
    feed = Feed(plan.handler()).put(created("a", 7))
    assert "for 1 event, which it retries; newest: things x/a: ValueError: no ('a', 7)" in (
        feed.feed.text()
    )
    assert feed.value("retrying_events") == 1
    record = caplog.records[0]
    assert record.levelno == logging.ERROR
    assert record.exc_info
    assert (record.source, record.object, record.action, record.attempt) == (
        "things",
        "a",
        "CREATE",
        0,
    )
    is_broken = False
    feed.advance()
    assert feed.feed.text() == "ok"
    assert feed.value("retrying_events") == 0


def test_what_is_kept_of_a_failure_holds_no_traceback():
    feed = Feed(Plan(lambda name, version: True).handler()).put(created())
    pending = next(iter(feed.feed._failed.values()))[0]
    assert not hasattr(pending, "error")


def test_other_objects_do_not_wait_for_one_that_fails():
    plan = Plan(lambda name, version: name == "a")
    Feed(plan.handler()).put(created("a"), created("b"))
    assert plan.done == [("b", 1)]


def test_later_events_of_an_object_do_not_wait_for_the_one_that_failed():
    is_broken = True
    plan = Plan(lambda name, version: is_broken and version == 1)
    feed = Feed(plan.handler()).put(*versions("a", 1, 3), Event(DELETE, thing("a", 4)))
    assert plan.done == [("a", 2), ("a", 3), ("a", 4)]
    # It is still tried, each time by itself.
    feed.advance()
    assert plan.tried.count(("a", 1)) == 2
    is_broken = False
    feed.advance()
    assert plan.done[3:] == [("a", 1)]
    assert feed.due_in is None


def test_a_map_function_that_fails_once_loses_no_state_in_between():
    failures = [OSError("not now")]

    def targets(it):
        if failures:
            raise failures.pop()
        return [f"v{it.resource_version}"]

    feed = Feed(map_objects(targets)).put(*versions("a", 2, 4))
    feed.advance()
    assert feed.queue.requests == ["v2", "v3", "v3", "v4", "v1", "v2"]


def test_what_waits_for_one_object_is_bounded_and_the_newest_state_is_kept():
    is_broken = True
    plan = Plan(lambda name, version: is_broken)
    feed = Feed(plan.handler()).put(*versions("a", 1, 500))
    assert feed.feed.retrying == 16
    is_broken = False
    feed.advance()
    assert plan.done == [*(("a", version) for version in range(1, 16)), ("a", 500)]


def test_merged_updates_go_from_the_oldest_state_to_the_newest():
    seen = []
    is_broken = True

    def update(event, queue):
        if is_broken:
            raise ValueError("no")
        seen.append((event.action, event.old.resource_version, event.object.resource_version))

    events = versions("a", 2, 30)
    feed = Feed(HandlerFunctions(update=update)).put(*events, Event(RESYNC, events[-1].object))
    is_broken = False
    feed.advance()
    assert seen[-2:] == [(UPDATE, "15", "16"), (UPDATE, "16", "30")]


def test_creations_and_deletions_are_never_merged():
    is_broken = True
    plan = Plan(lambda name, version: is_broken)
    events = []
    for version in range(1, 41, 2):
        events += [created("a", version), Event(DELETE, thing("a", version + 1))]
    feed = Feed(plan.handler()).put(*events)
    is_broken = False
    feed.advance()
    assert plan.done == [("a", version) for version in range(1, 41)]


@settings(deadline=None, max_examples=scaled(50))
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=24),
    st.lists(st.integers(0, 4), min_size=24, max_size=24),
)
def test_whatever_fails_each_event_is_handled_once_and_those_that_do_not_fail_in_order(
    steps, failures
):
    """Each event fails up to four times; in between, time passes or not."""
    left, failures_of, next_version = {}, {}, {"a": 1, "b": 1}

    def fails(name, version):
        left[name, version] -= 1
        return left[name, version] >= 0

    plan = Plan(fails)
    feed = Feed(plan.handler())
    for (name, is_pause), count in zip(steps, failures, strict=False):
        version = next_version[name]
        if version > 12:
            continue
        next_version[name] = version + 1
        left[name, version] = failures_of[name, version] = count
        feed.put(*versions(name, version, version))
        if is_pause and feed.due_in is not None:
            feed.advance()
    while feed.due_in is not None:
        feed.advance()
    for name in "ab":
        done = [v for n, v in plan.done if n == name]
        assert sorted(done) == list(range(1, next_version[name]))
        at_once = [v for v in done if failures_of[name, v] == 0]
        assert at_once == sorted(at_once)
    assert feed.feed.retrying == 0


# What handlers are given.


class Own:
    def handle(self, event, queue):
        queue.add(event.key)
        queue.add_rate_limited(event.key, reason="mine")


@pytest.mark.parametrize("handler", [Own(), for_object()])
def test_each_request_has_its_event_as_reason_unless_the_handler_says_another(handler):
    event = Event(GENERIC, thing())
    feed = Feed(handler).put(event)
    assert feed.queue.reasons == ([event, "mine"] if isinstance(handler, Own) else [event])
    assert feed.queue.priorities[0] is None


def test_async_handlers_are_awaited():
    class Async:
        async def handle(self, event, queue):
            queue.add(event.key)

    with contextlib.closing(Feed(Async())) as feed:
        assert feed.put(created()).queue.names == ["x/a"]


def test_an_async_handler_that_raises_is_called_again():
    failures = [ValueError("no")]

    async def create(event, queue):
        if failures:
            raise failures.pop()
        queue.add(event.key)

    with contextlib.closing(Feed(HandlerFunctions(create=create))) as feed:
        assert feed.put(created()).queue.names == []
        assert feed.advance().queue.names == ["x/a"]


@pytest.mark.parametrize("wrong", [None, for_object, lambda event, queue: None])
def test_what_is_no_handler_is_refused(wrong):
    with pytest.raises(TypeError, match="use for_object"):
        Feed(wrong)
