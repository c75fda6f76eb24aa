"""Handlers, map functions and sources that fail in unpleasant ways, and for long."""

from __future__ import annotations

import asyncio
import threading

import attrs

from appsdk_operator.cache import Event
from appsdk_operator.controllers import ChannelSource, FunctionSource, HandlerFunctions, map_objects
from appsdk_operator.controllers._sources import channel
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, THING, NoJitter, thing
from tests.controllers.event_tools import (
    CREATE,
    DELETE,
    GENERIC,
    RecordingQueue,
    created,
    updated,
)
from tests.controllers.test_event_pipeline import Feed, Plan, versions
from tests.waiting import eventually


class Mute(Exception):  # noqa: N818 - it is what it does
    """An error whose text fails."""

    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


def stand_aside(feed):
    """Let all that is owed fail so often that nothing waits for it any more."""
    for _ in range(5):
        feed.clock.advance(66.0)
        feed.settle()


# What is kept.


def test_a_handler_that_never_works_keeps_no_more_than_16_updates_of_an_object():
    plan = Plan(lambda name, version: True)
    feed = Feed(plan.handler())
    for version in range(2, 60):
        feed.put(updated(thing("a", version - 1), thing("a", version)))
        stand_aside(feed)
    assert feed.feed.retrying == 16


def test_the_newest_state_is_tried_at_once_also_when_it_was_merged_into_what_has_failed():
    broken = True
    plan = Plan(lambda name, version: broken)
    feed = Feed(plan.handler())
    for version in range(2, 40):
        feed.put(updated(thing("a", version - 1), thing("a", version)))
        stand_aside(feed)
    broken = False
    feed.put(updated(thing("a", 39), thing("a", 40)))
    assert ("a", 40) in plan.done
    while feed.due_in is not None:
        feed.advance()
    assert feed.feed.retrying == 0


def test_generic_events_that_are_merged_stay_generic():
    broken, seen = True, []

    def generic(event, queue):
        if broken:
            raise ValueError("no")
        seen.append((event.action, event.object.resource_version))

    feed = Feed(HandlerFunctions(generic=generic))
    feed.put(*(Event(GENERIC, thing("a", version)) for version in range(1, 40)))
    assert feed.feed.retrying == 16
    broken = False
    feed.advance()
    assert seen[-1] == (GENERIC, "39")
    assert {action for action, _ in seen} == {GENERIC}


def test_one_event_that_always_fails_takes_no_room_of_a_channel_from_others():
    def generic(event, queue):
        if event.object.name == "poison":
            raise ValueError("no")
        queue.add(event.key)

    stop, queue = StopSignal(), RecordingQueue()
    source = ChannelSource(HandlerFunctions(generic=generic), buffer_size=1, metrics=Metrics())
    source.start(queue, stop)
    for name in ("poison", "a", "b"):
        assert source.push(thing(name), timeout=PATIENCE)
    assert queue.wait_for(2) == ["x/a", "x/b"]
    stop.set()
    assert source.join(PATIENCE) == []


def test_a_channel_whose_handler_fails_makes_who_pushes_wait(monkeypatch):
    monkeypatch.setattr(channel, "_MAX_RETRYING", 3)
    broken = [True]

    def generic(event, queue):
        if broken:
            raise ValueError("no")
        queue.add(event.key)

    clock, stop, queue = ManualClock(), StopSignal(), RecordingQueue()
    source = ChannelSource(
        HandlerFunctions(generic=generic),
        buffer_size=3,
        clock=clock,
        metrics=Metrics(),
        rng=NoJitter(),
    )
    source.start(queue, stop)
    for number in range(3):
        assert source.push(thing(f"o{number}"))
    eventually(lambda: source._pipeline.retrying == 3)
    assert not source.push(thing("o3"), timeout=0.0)
    outcomes = []
    pusher = threading.Thread(target=lambda: outcomes.append(source.push(thing("o3"))))
    pusher.start()
    broken.clear()
    clock.block_until_waiting(1)
    clock.advance(1.0)
    assert sorted(queue.wait_for(4)) == ["x/o0", "x/o1", "x/o2", "x/o3"]
    pusher.join(PATIENCE)
    assert outcomes == [True]
    stop.set()
    assert source.join(PATIENCE) == []


# Errors without a text.


def test_an_error_whose_text_fails_loses_no_event():
    failures = [Mute()]

    def targets(it):
        if failures:
            raise failures.pop()
        return [it.key]

    feed = Feed(map_objects(targets)).put(created("a"))
    assert "newest: things x/a: Mute: " in feed.feed.text()
    feed.advance()
    assert feed.queue.names == ["x/a"]


def test_a_predicate_whose_error_has_no_text_lets_the_event_pass():
    def broken(event):
        raise Mute

    feed = Feed(HandlerFunctions(create=lambda event, queue: queue.add(event.key)), broken)
    assert feed.put(created("a")).queue.names == ["x/a"]


def test_a_handler_whose_text_fails_loses_no_event():
    failures = [OSError("no")]

    class Handler:
        def handle(self, event, queue):
            if failures:
                raise failures.pop()
            queue.add(event.key)

        def __str__(self):
            raise ValueError("no text")

    feed = Feed(Handler()).put(created("a"))
    assert "fails for 1 event," in feed.feed.text()
    feed.advance()
    assert feed.queue.names == ["x/a"]


def test_a_function_whose_error_has_no_text_is_called_again():
    clock, stop, queue = ManualClock(), StopSignal(), RecordingQueue()
    failures = [Mute()]

    def function(queue, stop):
        if failures:
            raise failures.pop()
        queue.add("a")

    source = FunctionSource(function, name="bus", clock=clock, metrics=Metrics(), rng=NoJitter())
    source.start(queue, stop)
    clock.block_until_waiting(1)
    assert "newest: Mute: " in source.health().text
    clock.advance(1.0)
    assert queue.wait_for(1) == ["a"]
    stop.set()
    assert source.join(PATIENCE) == []


# Health.


def test_a_function_that_works_again_is_ready_again():
    clock, stop, queue = ManualClock(), StopSignal(), RecordingQueue()
    failures = [OSError("gone")]

    def function(queue, stop):
        if failures:
            raise failures.pop()
        queue.add("a")
        stop.wait()

    source = FunctionSource(function, name="bus", clock=clock, metrics=Metrics(), rng=NoJitter())
    source.start(queue, stop)
    clock.block_until_waiting(1)
    clock.advance(1.0)
    assert queue.wait_for(1) == ["a"]
    clock.advance(9.0)
    assert "has failed for 10 s" in source.health().text
    clock.advance(1.0)
    assert source.health().is_ready
    assert source.health().text == "source bus: ok"
    clock.advance(3600.0)
    assert source.health().is_ready
    stop.set()
    assert source.join(PATIENCE) == []


# What handlers are given.


def test_a_deletion_that_only_ends_a_namespace_says_so_to_handlers_of_another_view():
    seen = []
    view = attrs.evolve(THING)
    handler = HandlerFunctions(delete=lambda event, queue: seen.append(event))
    event = Event(DELETE, thing("a"), None, False, True, True)
    Feed(handler, kind=view).put(event)
    assert (seen[0].is_final_state_unknown, seen[0].is_unfollowed) == (True, True)
    assert seen[0].object.kind is view


# Async handlers.


def test_an_async_handler_may_push_to_its_own_full_channel():
    stop, queue = StopSignal(), RecordingQueue()

    async def add(event, queue):
        if event.object.name == "a":
            for name in "bcd":
                source.push(thing(name))
            await asyncio.to_thread(source.push, thing("e"))
        queue.add(event.key)

    source = ChannelSource(HandlerFunctions(generic=add), buffer_size=1, metrics=Metrics())
    source.start(queue, stop)
    source.push(thing("a"))
    try:
        assert queue.wait_for(5) == ["x/a", "x/b", "x/c", "x/d", "x/e"]
    finally:
        stop.set()
        assert source.join(PATIENCE) == []


def test_creations_and_deletions_are_all_kept_behind_one_that_fails():
    broken = True
    plan = Plan(lambda name, version: broken)
    feed = Feed(plan.handler()).put(*versions("a", 1, 30), Event(DELETE, thing("a", 31)))
    feed.put(Event(CREATE, thing("a", 32)))
    broken = False
    feed.advance()
    assert plan.done[-3:] == [("a", 30), ("a", 31), ("a", 32)]
