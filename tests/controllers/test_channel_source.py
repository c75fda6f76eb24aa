from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.controllers import (
    ChannelClosed,
    ChannelSource,
    HandlerFunctions,
    JoinableSource,
    Source,
    SyncingSource,
    for_object,
    map_objects,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import PATIENCE, thing
from tests.controllers.event_tools import DELETE, GENERIC, RecordingQueue, created
from tests.hypothesis_profiles import scaled


@pytest.fixture
def queue():
    return RecordingQueue()


@pytest.fixture
def stop():
    return StopSignal()


@pytest.fixture
def make(stop):
    made = []

    def make(handler=None, *predicates, **options):
        options = {"metrics": Metrics(), **options}
        source = ChannelSource(handler or for_object(), predicates, **options)
        made.append(source)
        return source

    yield make
    stop.set()
    for source in made:
        assert source.join(PATIENCE) == []


class Gate:
    """A handler that waits until the test lets it go on."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def handle(self, event, queue):
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        queue.add(event.key)


def in_thread(function):
    """Run it in a thread; the box gets what it returns or raises."""
    box = []

    def run():
        try:
            box.append(function())
        except Exception as error:
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, box


def test_an_object_stands_for_a_generic_event_of_it(make, queue, stop):
    source = make()
    source.start(queue, stop)
    assert source.push(thing("a"))
    assert queue.wait_for(1) == ["x/a"]
    assert queue.reasons[0].action is GENERIC


def test_events_of_any_action_may_be_pushed(make, queue, stop):
    source = make(HandlerFunctions(delete=lambda event, queue: queue.add("gone")))
    source.start(queue, stop)
    source.push(Event(DELETE, thing()))
    assert queue.wait_for(1) == ["gone"]


def test_what_was_pushed_before_the_start_is_kept(make, queue, stop):
    source = make()
    for name in "abc":
        source.push(created(name))
    assert not source.health().is_ready
    assert "not started, 3 events wait" in source.health().text
    source.start(queue, stop)
    assert queue.wait_for(3) == ["x/a", "x/b", "x/c"]
    assert source.health().is_ready


def test_predicates_filter_what_is_pushed(make, queue, stop):
    source = make(None, lambda event: event.object.name != "a")
    source.start(queue, stop)
    source.push(thing("a"))
    source.push(thing("b"))
    assert queue.wait_for(1) == ["x/b"]


def test_a_full_channel_blocks_who_pushes_until_there_is_room(make, queue, stop):
    source = make(buffer_size=2)
    source.push(thing("a"))
    source.push(thing("b"))
    assert source.push(thing("c"), timeout=0.0) is False
    thread, box = in_thread(lambda: source.push(thing("c")))
    source.start(queue, stop)
    thread.join(PATIENCE)
    assert box == [True]
    assert queue.wait_for(3) == ["x/a", "x/b", "x/c"]


def test_the_wait_for_space_ends_after_its_timeout(make):
    clock = ManualClock()
    source = make(buffer_size=1, clock=clock)
    source.push(thing("a"))
    thread, box = in_thread(lambda: source.push(thing("b"), timeout=5.0))
    clock.block_until_waiting(1)
    clock.advance(4.9)
    assert box == []
    clock.advance(0.2)
    thread.join(PATIENCE)
    assert box == [False]


def test_the_wait_for_space_ends_with_a_stop_signal(make):
    own = StopSignal()
    source = make(buffer_size=1)
    source.push(thing("a"))
    thread, box = in_thread(lambda: source.push(thing("b"), stop=own))
    own.set()
    thread.join(PATIENCE)
    assert box == [False]


def test_the_controller_s_stop_frees_who_waits_with_an_error(make, queue, stop):
    gate = Gate()
    source = make(gate, buffer_size=1)
    source.start(queue, stop)
    source.push(thing("a"))
    assert gate.entered.wait(PATIENCE)
    thread, box = in_thread(lambda: source.push(thing("b")))
    stop.set()
    thread.join(PATIENCE)
    gate.opened.set()
    assert isinstance(box[0], ChannelClosed)
    with pytest.raises(ChannelClosed, match="stopped with its controller"):
        source.push(thing("c"))
    assert source.health().text == "channel channel: stopped"


def test_a_closed_channel_handles_what_it_has_and_then_ends(make, queue, stop):
    gate = Gate()
    source = make(gate)
    source.start(queue, stop)
    for name in "abc":
        source.push(thing(name))
    assert gate.entered.wait(PATIENCE)
    source.close()
    source.close()
    with pytest.raises(ChannelClosed, match="was closed"):
        source.push(thing("d"))
    gate.opened.set()
    assert source.join(PATIENCE) == []
    assert queue.names == ["x/a", "x/b", "x/c"]


def test_closing_frees_who_waits_for_room_with_an_error(make):
    source = make(buffer_size=1)
    source.push(thing("a"))
    thread, box = in_thread(lambda: source.push(thing("b")))
    source.close()
    thread.join(PATIENCE)
    assert isinstance(box[0], ChannelClosed)


def test_a_channel_closed_before_its_start_still_hands_over_what_it_has(make, queue, stop):
    source = make()
    source.push(thing("a"))
    source.close()
    source.start(queue, stop)
    assert source.join(PATIENCE) == []
    assert queue.names == ["x/a"]


def test_an_empty_channel_ends_at_once_when_it_is_closed(make, queue, stop):
    source = make()
    source.start(queue, stop)
    source.close()
    assert source.join(PATIENCE) == []


def test_closing_waits_for_an_event_whose_handler_failed(make, queue, stop):
    clock, failures = ManualClock(), [ValueError("no")]

    def function(it):
        if failures:
            raise failures.pop()
        return [it.key]

    source = make(map_objects(function), clock=clock)
    source.start(queue, stop)
    source.push(thing("a"))
    source.close()
    clock.block_until_waiting(1)
    clock.advance(1.0)
    assert source.join(PATIENCE) == []
    assert queue.names == ["x/a"]


def test_a_handler_may_push_to_its_own_full_channel(make, queue, stop):
    def add(event, queue):
        if event.object.name == "a":
            for name in "bcd":
                source.push(thing(name))
        queue.add(event.key)

    source = make(HandlerFunctions(generic=add), buffer_size=1)
    source.start(queue, stop)
    source.push(thing("a"))
    assert queue.wait_for(4) == ["x/a", "x/b", "x/c", "x/d"]


@pytest.mark.stress
def test_nothing_is_lost_and_each_object_s_events_stay_in_order_under_threads(make, queue, stop):
    source = make(
        HandlerFunctions(
            generic=lambda event, queue: queue.add(
                (event.object.name, int(event.object.resource_version))
            )
        ),
        buffer_size=7,
    )

    def push(name):
        for version in range(1, 301):
            assert source.push(thing(name, version))

    threads = [threading.Thread(target=push, args=(f"o{number}",)) for number in range(6)]
    for thread in threads[:3]:
        thread.start()
    source.start(queue, stop)
    for thread in threads[3:]:
        thread.start()
    for thread in threads:
        thread.join(60)
    source.close()
    assert source.join(60) == []
    for number in range(6):
        seen = [version for name, version in queue.requests if name == f"o{number}"]
        assert seen == list(range(1, 301))


class Keeping:
    """A handler that keeps what it gets."""

    def __init__(self):
        self.events = []

    def handle(self, event, queue):
        self.events.append(event)


@given(
    st.lists(st.tuples(st.sampled_from(list(ResourceAction)), st.sampled_from("ab")), max_size=12),
    st.integers(0, 12),
)
@settings(max_examples=scaled(100))
def test_each_pushed_event_is_handled_whatever_its_action_and_then_the_channel_ends(pushed, early):
    handler, stop = Keeping(), StopSignal()
    source = ChannelSource(handler, buffer_size=12, metrics=Metrics())
    events = [Event(action, thing(name, n + 1)) for n, (action, name) in enumerate(pushed)]
    for event in events[:early]:
        source.push(event)
    source.start(RecordingQueue(), stop)
    for event in events[early:]:
        source.push(event)
    source.close()
    try:
        assert source.join(PATIENCE) == []
    finally:
        stop.set()
        source.join(PATIENCE)
    for name in "ab":
        assert [e for e in handler.events if e.object.name == name] == [
            e for e in events if e.object.name == name
        ]


def test_a_second_controller_is_refused(make, queue, stop):
    source = make()
    source.start(queue, stop)
    with pytest.raises(RuntimeError, match="belongs to one controller, make one for each"):
        source.start(RecordingQueue(), stop)


@pytest.mark.parametrize("wrong", [None, "x/a", 3])
def test_what_is_no_event_is_refused(make, wrong):
    with pytest.raises(TypeError, match="give an Object or an Event"):
        make().push(wrong)


def test_an_object_without_a_name_is_refused(make):
    with pytest.raises(ValueError, match="has no name"):
        make().push(thing(""))


def test_a_channel_without_room_is_refused():
    with pytest.raises(ValueError, match="use at least 1"):
        ChannelSource(for_object(), buffer_size=0)


def test_a_channel_is_a_source_that_is_joined_and_never_waited_for(make):
    assert isinstance(make(), Source)
    assert isinstance(make(), JoinableSource)
    assert not isinstance(make(), SyncingSource)
