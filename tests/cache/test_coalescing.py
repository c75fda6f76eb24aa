from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Event, ResourceAction, Store
from appsdk_operator.cache._delivery.coalescing import CoalescingBuffer, coalesced
from tests.cache.conftest import THING, check_history, event, line, thing, told
from tests.hypothesis_profiles import scaled

CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction

ONE, TWO, THREE = (thing("a", version) for version in (1, 2, 3))
ADD = Event(CREATE, ONE, None, True)
UPDATE_2 = Event(UPDATE, TWO, ONE)
UPDATE_3 = Event(UPDATE, THREE, TWO)
GONE = Event(DELETE, THREE, None, False, True)
AGAIN = Event(RESYNC, ONE)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (ADD, UPDATE_2, "add a@2 initial"),
        (ADD, GONE, None),
        (ADD, AGAIN, "add a@1 initial"),
        (UPDATE_2, UPDATE_3, "update a@1->3"),
        (UPDATE_2, GONE, "delete a@3 unknown"),
        (UPDATE_2, AGAIN, "update a@1->2"),
        (AGAIN, UPDATE_2, "update a@1->2"),
        (AGAIN, GONE, "delete a@3 unknown"),
        (AGAIN, AGAIN, "resync a@1"),
    ],
)
def test_two_events_in_a_row_become_one(before, after, expected):
    both = coalesced(before, after)
    assert (None if both is None else told(both)) == expected


class Pending:
    def __init__(self, bound):
        self.dropped = []
        self.events = CoalescingBuffer(
            bound, on_dropped=lambda key, e: self.dropped.append(told(e))
        )
        self.ticket = 0

    def put(self, *events):
        for item in events:
            self.ticket += 1
            self.events.put(item.key, self.ticket, item)

    def take_all(self, key=ONE.key):
        found = []
        while (item := self.events.take(key, 10**9)) is not None:
            found.append(told(item))
        return found


def test_everything_is_kept_below_the_bound():
    pending = Pending(3)
    pending.put(ADD, UPDATE_2, UPDATE_3)
    assert pending.events.count == 3
    assert pending.take_all() == ["add a@1 initial", "update a@1->2", "update a@2->3"]
    assert pending.events.count == pending.events.merged_count == 0


def test_beyond_the_bound_events_of_one_object_are_merged():
    pending = Pending(1)
    pending.put(ADD, UPDATE_2, UPDATE_3)
    assert (pending.events.count, pending.events.merged_count) == (1, 2)
    assert pending.take_all() == ["add a@3 initial"]
    assert pending.dropped == ["update a@1->2", "update a@2->3"]


def test_an_initial_event_that_became_part_of_another_one_is_told_as_dropped():
    pending = Pending(1)
    pending.put(ADD, ADD)
    assert pending.take_all() == pending.dropped == ["add a@1 initial"]


def test_what_came_and_went_is_dropped_once_and_told_as_dropped():
    pending = Pending(1)
    pending.put(ADD, UPDATE_2, GONE)
    assert pending.events.count == 0
    assert pending.dropped == ["update a@1->2", "delete a@3 unknown", "add a@2 initial"]
    assert pending.events.next_ticket(ONE.key) is None


def test_a_new_object_of_the_same_name_is_never_merged_with_the_old_one():
    pending = Pending(1)
    pending.put(UPDATE_2, GONE, Event(CREATE, thing("a", 4, uid="new")))
    assert pending.take_all() == ["delete a@3 unknown", "add a@4"]


def test_a_resync_of_what_waits_is_nothing():
    pending = Pending(100)
    pending.put(UPDATE_2, AGAIN)
    assert pending.take_all() == ["update a@1->2"]


def test_the_merged_event_keeps_its_place_in_line():
    pending = Pending(1)
    pending.put(UPDATE_2, UPDATE_3)
    assert pending.events.next_ticket(ONE.key) == 1


def test_what_is_cleared_is_told_to_nobody():
    pending = Pending(100)
    pending.put(ADD, UPDATE_2)
    pending.events.clear()
    assert (pending.events.count, pending.take_all(), pending.dropped) == (0, [], [])


def test_dropping_a_source_drops_its_events_only():
    pending = Pending(100)
    other = Event(CREATE, thing("b"))
    pending.put(ADD, UPDATE_2, other)
    pending.events.drop(lambda key: key == ONE.key)
    assert pending.dropped == ["add a@1 initial", "update a@1->2"]
    assert pending.events.count == 1


NAMES = "abc"
steps = st.lists(
    st.tuples(
        st.sampled_from(["change", "change", "delete", "recreate", "take", "resync"]),
        st.sampled_from(NAMES),
    ),
    max_size=60,
)


@settings(max_examples=scaled(300), deadline=None)
@given(steps=steps, bound=st.integers(1, 5))
def test_what_is_seen_through_merging_is_legal_and_ends_in_the_same_state(steps, bound):
    store, seen, initial = Store(THING), [], 0

    def dropped(_, item):
        nonlocal initial
        initial -= item.is_initial

    def take(key):
        nonlocal initial
        item = pending.take(key, 10**9)
        if item is not None:
            initial -= item.is_initial
            seen.append(item)

    pending = CoalescingBuffer(bound, on_dropped=dropped)
    for version, (what, name) in enumerate(steps, 1):
        present = store.get(name, "x")
        if what == "take":
            take(thing(name).key)
            continue
        if what == "resync":
            events = [Event(RESYNC, present)] if present else []
        elif what == "delete":
            gone = thing(name, version, uid=present.uid) if present else thing(name, version)
            events = store.change([event(line("DELETED", gone))])
        else:
            uid = present.uid if present and what == "change" else f"u{version}"
            events = store.upsert([thing(name, version, uid=uid)], is_initial=True)
        for item in events:
            pending.put(item.key, version, item)
            initial += item.is_initial
        assert pending.count <= bound + 2 * len(NAMES)
    for name in NAMES:
        while pending.next_ticket(thing(name).key) is not None:
            take(thing(name).key)
    final = check_history(seen)
    assert {key: id(obj) for key, obj in final.items()} == {o.key: id(o) for o in store}
    assert (pending.count, initial) == (0, 0)


@given(
    bound=st.integers(1, 3),
    toggles=st.lists(st.booleans(), max_size=6),
    ends=st.sampled_from(["deleted", "unfollowed", "followed"]),
)
def test_the_last_word_of_an_object_that_was_followed_by_turns_is_what_became_of_it(
    bound, toggles, ends
):
    buffer = CoalescingBuffer(bound, on_dropped=lambda *_: None)
    heard, ticket = [Event(CREATE, ONE)], 0

    def put(item):
        nonlocal ticket
        ticket += 1
        buffer.put(ONE.key, ticket, item)

    left = Event(DELETE, ONE, None, False, True, True)
    for is_updated in toggles:
        put(left)
        put(Event(CREATE, ONE))
        if is_updated:
            put(UPDATE_2)
    if ends == "deleted":
        put(Event(DELETE, THREE))
    elif ends == "unfollowed":
        put(left)
    while (item := buffer.take(ONE.key, ticket)) is not None:
        heard.append(item)
    last = heard[-1]
    assert (last.action is DELETE) == (ends != "followed")
    assert last.is_unfollowed == (ends == "unfollowed")


def test_what_is_put_first_comes_first_and_keeps_its_tickets():
    events = Pending(10).events
    events.put(ONE.key, 7, UPDATE_3)
    events.put_first(ONE.key, [(4, ADD), (5, UPDATE_2)])
    assert events.count == 3
    assert events.take(ONE.key, 3) is None
    assert [events.take(ONE.key, 5) for _ in range(3)] == [ADD, UPDATE_2, None]
    assert events.next_ticket(ONE.key) == 7
