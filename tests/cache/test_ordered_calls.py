"""Calls in the order of an object's events, as the first ones of watchers that are added late."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Delivery, Event, Overflow, ResourceAction
from appsdk_operator.cache._delivery.coalescing import CoalescingBuffer, OrderedCall
from appsdk_operator.runtime import ManualClock
from tests.cache.conftest import NoJitter, thing, told
from tests.hypothesis_profiles import scaled

CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
Place = tuple[int, str]
"""The number of a source, and a name."""


class Subject:
    """A delivery of two sources of one kind, which checks the order of events and calls."""

    def __init__(self, max_pending: int) -> None:
        self.delivery = Delivery(
            "d", self.handle, max_pending=max_pending, clock=ManualClock(), rng=NoJitter()
        )
        self.sources = [self.delivery.source("k") for _ in range(2)]
        self.version = self.calls = 0
        self.during: Callable[[], None] = lambda: None
        self.unfinished: dict[Place, list[int]] = defaultdict(list)
        """The versions of the events that are not handled to their end."""
        self.waiting: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        """The calls that are to come, each with the newest version that comes before it."""
        self.reached: dict[Place, int] = defaultdict(int)
        """The newest version that comes before the last call."""

    def place(self, key) -> Place:
        return self.sources.index(key.source), key.name

    def put(self, source: int, names: str) -> None:
        events = []
        for name in names:
            self.version += 1
            self.unfinished[source, name].append(self.version)
            obj, old = thing(name, self.version), thing(name, self.version - 1)
            events.append(Event(UPDATE, obj, old))
        self.sources[source].on_events(events)

    def handle(self, key, event) -> None:
        if event is None:
            return
        place = self.place(key)
        version, old = int(event.object.resource_version), int(event.old.resource_version)
        assert all(version <= before for _, before in self.waiting[place]), "before a call"
        assert old >= self.reached[place], "after a call"
        during, self.during = self.during, lambda: None
        during()
        self.unfinished[place] = [each for each in self.unfinished[place] if each > version]

    def call(self, source: int, names: str) -> None:
        self.calls += 1
        number, before = self.calls, self.version

        def made(key) -> None:
            place = self.place(key)
            assert self.waiting[place].pop(0)[0] == number, "each once, in their order"
            assert all(version > before for version in self.unfinished[place]), "after its events"
            self.reached[place] = before

        own = self.sources[source]
        found = own.call_in_order([own.key_of(thing(name)) for name in names], made)
        places = list(map(self.place, found))
        assert len(places) == len(set(places))
        assert {*places} >= {(source, name) for name in names}
        assert {*places} >= {at for at, left in self.unfinished.items() if left and at[0] == source}
        for place in places:
            self.waiting[place].append((number, before))

    def step(self) -> None:
        self.delivery.step()
        self.delivery._come_back(threading.get_ident())

    def go_away(self) -> None:
        """What waits in the batch queue moves to its objects, as when a worker is replaced."""
        self.delivery._go_away(threading.get_ident())


puts = st.tuples(st.just("put"), st.integers(0, 1), st.text("abc", min_size=1, max_size=6))
calls = st.tuples(
    st.sampled_from(["call", "call in a call"]), st.integers(0, 1), st.text("abcd", max_size=2)
)
others = st.tuples(st.sampled_from(["step", "step", "go away in a call"]), st.just(0), st.just(""))


@settings(max_examples=scaled(300), deadline=None)
@example(steps=[("put", 0, "a"), ("call in a call", 0, ""), ("step", 0, "")], max_pending=10_000)
@example(steps=[("put", 0, "a"), ("call in a call", 0, ""), ("step", 0, "")], max_pending=1)
@given(
    steps=st.lists(puts | puts | calls | others | others, max_size=40),
    max_pending=st.sampled_from([1, 3, 10_000]),
)
def test_a_call_comes_after_the_events_so_far_and_before_all_later_ones(steps, max_pending):
    subject = Subject(max_pending)
    for what, source, names in steps:
        if what == "put":
            subject.put(source, names)
        elif what == "call":
            subject.call(source, names)
        elif what == "call in a call":
            subject.during = lambda source=source, names=names: subject.call(source, names)
        elif what == "go away in a call":
            subject.during = subject.go_away
        else:
            subject.step()
    while subject.delivery.pending:
        subject.step()
    assert not any(subject.waiting.values())
    assert not any(subject.unfinished.values())
    assert not any(source.initial_left for source in subject.sources)
    subject.delivery.stop()


@pytest.mark.parametrize("ends", ["removed", "stopped"])
def test_no_call_is_made_for_a_source_that_has_gone(ends):
    subject = Subject(10_000)
    subject.put(0, "a")
    subject.call(0, "ab")
    if ends == "removed":
        subject.delivery.remove(subject.sources[0])
    else:
        subject.delivery.stop()
    assert subject.sources[0].call_in_order([subject.sources[0].key_of(thing("a"))], print) == ()
    while subject.delivery.step():
        pass
    assert len(subject.waiting[0, "a"]) == 1
    assert subject.delivery.pending == subject.delivery._pending.calls == 0
    subject.delivery.stop()


def test_a_call_says_when_the_handler_is_called_again():
    seen = []
    clock = ManualClock()
    delivery = Delivery("d", lambda key, event: seen.append(event), clock=clock)
    source = delivery.source("k")
    source.call_in_order([source.key_of(thing("a"))], lambda key: 5.0)
    assert delivery.step()
    assert not delivery.step()
    clock.advance(5)
    assert delivery.step()
    assert seen == [None]
    delivery.stop()


@pytest.mark.parametrize("overflow", Overflow)
def test_calls_neither_make_an_informer_wait_nor_events_merge(overflow):
    keys, seen = [f"o{number}" for number in range(9)], []
    delivery = Delivery(
        "d",
        lambda _, event: seen.append(told(event)),
        max_pending=2,
        overflow=overflow,
        clock=ManualClock(),
    )
    source = delivery.source("k")
    source.call_in_order([source.key_of(thing(name)) for name in keys], lambda _: None)
    assert delivery.pending == len(keys)
    waits = threading.Thread(target=source.wait_for_space, daemon=True)
    waits.start()
    waits.join(5)
    assert not waits.is_alive()
    source.on_events([Event(UPDATE, TWO, ONE)])
    source.on_events([Event(UPDATE, THREE, TWO)])
    while delivery.step():
        pass
    assert seen == ["update a@1->2", "update a@2->3"]
    assert delivery.pending == delivery._pending.calls == 0
    delivery.stop()


ONE, TWO, THREE = (thing("a", version) for version in (1, 2, 3))
LEFT = Event(DELETE, ONE, None, False, True, True)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (["call", Event(RESYNC, ONE), Event(RESYNC, ONE)], ["call", "resync a@1"]),
        ([Event(UPDATE, TWO, ONE), "call", Event(RESYNC, ONE)], ["update a@1->2", "call"]),
        (
            [Event(UPDATE, TWO, ONE), "call", Event(UPDATE, THREE, TWO)],
            ["update a@1->2", "call", "update a@2->3"],
        ),
        (
            [Event(CREATE, ONE), "call", Event(DELETE, ONE)],
            ["add a@1", "call", "delete a@1"],
        ),
        # That it is deleted, and not only followed no more, must be the last word.
        (
            [LEFT, "call", Event(CREATE, ONE), Event(DELETE, ONE)],
            ["delete a@1 unknown", "call", "add a@1", "delete a@1"],
        ),
    ],
    ids=str,
)
def test_what_comes_before_and_after_a_call_does_not_merge(events, expected):
    buffer: CoalescingBuffer[str] = CoalescingBuffer(1, on_dropped=lambda *_: None)
    for ticket, event in enumerate(events):
        if event == "call":
            buffer.put_call("a", ticket, OrderedCall(lambda _: None))
        else:
            buffer.put("a", ticket, event)
    found = []
    while (item := buffer.take("a", 100)) is not None:
        found.append("call" if isinstance(item, OrderedCall) else told(item))
    assert found == expected
    assert buffer.count == 0


def test_a_call_that_is_dropped_with_its_source_is_told_to_nobody():
    dropped: list[str] = []
    buffer: CoalescingBuffer[str] = CoalescingBuffer(
        9, on_dropped=lambda *each: dropped.append(each)
    )
    buffer.put_call("a", 1, OrderedCall(lambda _: None))
    buffer.drop(lambda _: True)
    assert (buffer.count, dropped) == (0, [])
