"""The work queue against a model that is simple enough to be seen to be right."""

from __future__ import annotations

import attrs
import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from appsdk_operator.runtime import LocalHistogram, ManualClock, Metrics, QueueItem, WorkQueue
from tests.hypothesis_profiles import scaled

KEYS = st.sampled_from("abcde")
PRIORITIES = st.sampled_from([0, 0, 0, 5, -100])
# Halves are exact, so that two times are equal when they ought to be.
SECONDS = st.integers(0, 12).map(lambda n: n / 2)
MAX_REASONS = 3


@attrs.define
class Entry:
    """A queued key: waiting while ``due`` is set, ready (or parked) else."""

    priority: int
    due: float | None = None
    place: int = 0
    since: float = 0.0
    reasons: list[int] = attrs.Factory(list)


class Model:
    def __init__(self) -> None:
        self.now = 0.0
        self.places = 0
        self.entries: dict[str, Entry] = {}
        self.locked: dict[str, float] = {}
        self.adds = self.retries = 0
        self.queue_times: list[float] = []
        self.work_times: list[float] = []
        self.is_shut_down = False

    def next_place(self) -> int:
        self.places += 1
        return self.places

    def ready(self) -> dict[str, Entry]:
        return {key: entry for key, entry in self.entries.items() if entry.due is None}

    def waiting(self) -> dict[str, float]:
        return {key: entry.due for key, entry in self.entries.items() if entry.due is not None}

    def make_ready(self, entry: Entry, since: float, place: int | None) -> None:
        entry.due = None
        entry.since = since
        entry.place = self.next_place() if place is None else place
        self.adds += 1

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [e for e in self.entries.values() if e.due is not None and e.due <= self.now]
        for entry in sorted(due, key=lambda e: (e.due, e.place)):
            assert entry.due is not None
            self.make_ready(entry, entry.due, None)

    def add(
        self, key: str, priority: int, delay: float, place: int | None, reason: int | None
    ) -> None:
        if self.is_shut_down:
            return
        self.retries += delay > 0
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(priority)
            if delay > 0:
                entry.due, entry.place = self.now + delay, self.next_place()
            else:
                self.make_ready(entry, self.now, place)
        elif entry.due is not None:
            entry.priority = max(entry.priority, priority)
            if delay <= 0:
                self.make_ready(entry, self.now, place)
            elif self.now + delay < entry.due:
                entry.due, entry.place = self.now + delay, self.next_place()
        else:
            explicit = place if delay <= 0 else None
            if priority > entry.priority:
                entry.priority = priority
                entry.place = self.next_place() if explicit is None else explicit
            elif explicit is not None:
                entry.place = min(entry.place, explicit)
        if reason is not None:
            entry.reasons.append(reason)

    def next(self) -> str | None:
        free = {key: e for key, e in self.ready().items() if key not in self.locked}
        return min(free, key=lambda key: (-free[key].priority, free[key].place), default=None)

    def take(self, key: str) -> Entry:
        entry = self.entries.pop(key)
        self.locked[key] = self.now
        self.queue_times.append(self.now - entry.since)
        return entry


class QueueMachine(RuleBasedStateMachine):
    tickets = Bundle("tickets")

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.queue: WorkQueue[str] = WorkQueue(
            "model", clock=self.clock, max_reasons=MAX_REASONS, metrics=self.metrics
        )
        self.model = Model()
        self.reason = 0

    def next_reason(self, wanted: bool) -> int | None:
        if not wanted:
            return None
        self.reason += 1
        return self.reason

    @rule(key=KEYS, priority=PRIORITIES, delay=SECONDS, why=st.booleans())
    def add(self, key: str, priority: int, delay: float, why: bool) -> None:
        reason = self.next_reason(why)
        self.queue.add(key, priority=priority, after=delay, reason=reason)
        self.model.add(key, priority, delay, None, reason)

    @rule(key=KEYS, why=st.booleans())
    def add_plain(self, key: str, why: bool) -> None:
        self.add(key, 0, 0.0, why)

    @rule(target=tickets, count=st.integers(1, 3))
    def take_tickets(self, count: int) -> tuple[int, int]:
        return multiple(
            *[(ticket, self.model.next_place()) for ticket in self.queue.tickets(count)]
        )

    @rule(key=KEYS, priority=PRIORITIES, ticket=consumes(tickets))
    def add_with_ticket(self, key: str, priority: int, ticket: tuple[int, int]) -> None:
        self.queue.add(key, priority=priority, ticket=ticket[0])
        self.model.add(key, priority, 0.0, ticket[1], None)

    @rule(key=KEYS, delay=st.sampled_from([0.5, 3.0]), ticket=consumes(tickets))
    def add_with_ticket_and_delay(self, key: str, delay: float, ticket: tuple[int, int]) -> None:
        self.queue.add(key, after=delay, ticket=ticket[0])
        self.model.add(key, 0, delay, ticket[1], None)

    @rule(keys=st.lists(KEYS, max_size=6), priority=PRIORITIES)
    def add_all(self, keys: list[str], priority: int) -> None:
        self.queue.add_all(iter(keys), priority=priority)
        for key in keys:
            self.model.add(key, priority, 0.0, None, None)

    @rule()
    def get(self) -> None:
        expected = self.model.next()
        if expected is not None or (self.model.is_shut_down and not self.model.locked):
            self.check_item(self.queue.get(), expected)
        else:
            self.check_item(self.queue.try_get(), expected)

    def check_item(self, item: QueueItem[str] | None, expected: str | None) -> None:
        if expected is None:
            assert item is None
            return
        assert item is not None
        assert item.key == expected
        assert item.key not in self.model.locked, "handed out twice"
        entry = self.model.take(expected)
        assert item.priority == entry.priority
        assert item.waited == self.model.queue_times[-1]
        reasons = entry.reasons
        if len(reasons) > MAX_REASONS:
            reasons = [reasons[0], *reasons[1 - MAX_REASONS :]]
        assert list(item.reasons) == reasons

    @precondition(lambda self: self.model.locked)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        self.queue.done(self.draw_done(data))

    @precondition(lambda self: self.model.locked)
    @rule(data=st.data())
    def done_and_get(self, data: st.DataObject) -> None:
        key = self.draw_done(data)
        expected = self.model.next()
        if expected is None and (self.model.locked or not self.model.is_shut_down):
            self.queue.done(key)  # the other one would wait
        else:
            self.check_item(self.queue.done_and_get(key), expected)

    def draw_done(self, data: st.DataObject) -> str:
        key = data.draw(st.sampled_from(sorted(self.model.locked)))
        self.model.work_times.append(self.model.now - self.model.locked.pop(key))
        return key

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.advance(seconds)

    @precondition(lambda self: self.model.adds > 5)
    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        self.queue.shut_down(drain=drain)
        self.model.is_shut_down = True
        self.model.entries = self.model.ready() if drain else {}

    @invariant()
    def lengths_agree(self) -> None:
        ready, waiting = self.model.ready(), self.model.waiting()
        assert len(self.queue) == len(ready)
        assert self.queue.waiting == len(waiting)
        assert self.queue.next_due == min(waiting.values(), default=None)
        assert self.queue.wait_idle(0) is (not ready and not self.model.locked)

    @invariant()
    def the_snapshot_agrees(self) -> None:
        places = {
            key: "waiting"
            if e.due is not None
            else "parked"
            if key in self.model.locked
            else "ready"
            for key, e in self.model.entries.items()
        }
        shown = {row["key"]: row for row in self.queue.snapshot()}
        assert {key: row["place"] for key, row in shown.items()} == places
        for key, due in self.model.waiting().items():
            assert shown[key]["due_in"] == due - self.model.now

    @invariant()
    def metrics_agree(self) -> None:
        model = self.model
        totals = {(f.name, labels[2:]): v for (f, labels), v in self.metrics._all_totals().items()}
        assert totals["workqueue_adds_total", ()] == model.adds
        assert totals["workqueue_retries_total", ()] == model.retries
        for name, times in [("queue", model.queue_times), ("work", model.work_times)]:
            histogram = totals[f"workqueue_{name}_duration_seconds", ()]
            assert isinstance(histogram, LocalHistogram)
            assert (sum(histogram.counts), histogram.total) == (len(times), sum(times))
        if model.is_shut_down and not model.locked and not model.ready():
            assert ("workqueue_depth", ("0",)) not in totals
            return
        depth = {labels[0]: n for (name, labels), n in totals.items() if "depth" in name and n}
        expected: dict[str, int] = {}
        for entry in model.ready().values():
            expected[str(entry.priority)] = expected.get(str(entry.priority), 0) + 1
        assert depth == expected
        running = [model.now - since for since in model.locked.values()]
        assert totals["workqueue_unfinished_work_seconds", ()] == sum(running)
        assert totals["workqueue_longest_running_processor_seconds", ()] == max(running, default=0)
        ages = [model.now - entry.since for entry in model.ready().values()]
        assert totals["workqueue_oldest_item_age_seconds", ()] == max(ages, default=0)

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        # Nothing is lost: what the model holds comes out, each key once, in the model's order.
        while self.model.entries or self.model.locked:
            while self.model.next() is not None:
                self.get()
            for key in list(self.model.locked):
                self.queue.done(key)
                del self.model.locked[key]
            self.pass_time(10.0)
        assert self.queue.try_get() is None


TestWorkQueueAgainstAModel = QueueMachine.TestCase
TestWorkQueueAgainstAModel.settings = settings(
    max_examples=scaled(300), stateful_step_count=40, deadline=None
)
