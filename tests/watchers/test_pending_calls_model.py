"""The pending calls of one target for one object against a model, over histories with late events.

The model is the table of the documentation: what waits has a place by its reason, informer, object
and action, so that there is one of each; and an event meets each of them by a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis import example, given, settings

from appsdk_operator.cache import Delivery, Event, EventSource, ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.watchers import (
    KeyReconciler,
    OpinionatedWatcher,
    ReconcileRequest,
    SimpleReconciler,
    SimpleWatcher,
)
from appsdk_operator.watchers._dispatch.failures import RetryPlan
from appsdk_operator.watchers._dispatch.pending_calls import PendingCall, PendingCalls
from appsdk_operator.watchers._dispatch.registered import (
    RegisteredReconciler,
    RegisteredTarget,
    RegisteredWatcher,
)
from tests.hypothesis_profiles import scaled
from tests.simulations import no_client
from tests.watchers.conftest import CREATE, DELETE, RESYNC, UPDATE, WIDGET, make_widget

SOURCES = (0, 1)
RESTORE = 1000
"""How far a restore of the server takes the versions back: farther than any history goes."""


def reconciler(handler: Any) -> RegisteredReconciler:
    return RegisteredReconciler(handler, WIDGET, controller="model", clock=ManualClock())


TARGETS: dict[str, Callable[[], RegisteredTarget]] = {
    "watcher": lambda: RegisteredWatcher(SimpleWatcher(add=print), WIDGET),
    "opinionated": lambda: RegisteredWatcher(OpinionatedWatcher(WIDGET, no_client()), WIDGET),
    "reconciler": lambda: reconciler(SimpleReconciler(lambda _: None)),
    "by key": lambda: reconciler(KeyReconciler(lambda _: None)),
}


# What waits, in the words of the model.

Place = tuple[str, int, str, str]
"""Why (first, retry, requeue, terminal), the informer, the uid, and for a retry the action."""


@attrs.define
class Waiting:
    action: ResourceAction
    seen: Object
    latest: Object
    old: Object | None = None
    error: Exception | None = None
    attempt: int = 0
    due: float | None = None
    state: Any = None


@attrs.define
class Expected:
    asked: set[Place] = attrs.Factory(set)
    repeated: set[Place] = attrs.Factory(set)
    call: tuple[ResourceAction, Object, Object | None, Any] | None = None


class Model:
    def __init__(self, how: str) -> None:
        self.how = how
        self.waiting: dict[Place, Waiting] = {}

    def of(self, source: int, uid: str) -> dict[Place, Waiting]:
        return {at: w for at, w in self.waiting.items() if at[1] == source and at[2] == uid}

    def first(self, source: int) -> Place | None:
        return next((at for at in self.waiting if at[0] == "first" and at[1] == source), None)

    def event(self, source: int, event: Event, now: float) -> Expected:
        action, obj, uid = event.action, event.object, event.object.uid
        self.freshen(source, event)
        first = self.first(source)
        if action is not DELETE and not self.may_help(source, event):
            return Expected()
        cross = action is CREATE or first is not None
        if self.deletions_before(uid, None if cross else source):
            # The new object waits for the deletion of the old one.
            if first is None and action is not DELETE:
                self.waiting["first", source, uid, ""] = Waiting(CREATE, obj, obj, due=now)
            elif first is not None and action is DELETE:
                del self.waiting[first]
            return Expected()
        met = self.of(source, uid)
        if cross:
            met |= {
                at: w
                for at, w in self.waiting.items()
                if at[1] != source and at[2] == uid and w.action is DELETE
            }
        if action is RESYNC:
            if not met:
                return Expected(call=(RESYNC, obj, None, None))
            wanted = {at for at, w in met.items() if w.due is None or at[0] == "requeue"}
            for at in wanted:
                self.waiting[at].attempt = 0
            return Expected(repeated=wanted)
        # It is delivered, and ends what waits here for whatever object, and deletions elsewhere.
        asked = set()
        for at, w in list(self.waiting.items()):
            if at[1] != source and not (cross and w.action is DELETE):
                continue
            if at[0] == "retry" and w.due is not None:
                asked.add(at)
            else:
                del self.waiting[at]
        state = [w.state for w in met.values()][-1] if met else None
        if first is None or first[2] != uid:
            return Expected(asked=asked, call=(action, obj, event.old, state))
        if action is DELETE:
            return Expected(asked=asked)
        return Expected(asked=asked, call=(CREATE, obj, None, state))

    def passed_over(self, source: int, event: Event) -> Expected:
        self.freshen(source, event)
        failed: Place = ("terminal", source, event.object.uid, "")
        wanted: set[Place] = set()
        if failed in self.waiting and self.may_help(source, event):
            wanted.add(failed)
        for at in wanted:
            self.waiting[at].attempt = 0
        return Expected(repeated=wanted)

    def freshen(self, source: int, event: Event) -> None:
        for w in self.of(source, event.object.uid).values():
            w.latest = event.object

    def goes_back(self, event: Event) -> bool:
        was = event.old
        return was is not None and int(was.resource_version) > int(event.object.resource_version)

    def may_help(self, source: int, event: Event) -> bool:
        """Whether no call failed terminally, or the event changes what the object asks for."""
        failed = self.waiting.get(("terminal", source, event.object.uid, ""))
        return failed is None or self.is_news(failed.seen, event)

    def is_news(self, then: Object, event: Event) -> bool:
        """Whether the object asks for something else than when a call failed."""
        now = event.object
        if event.action is RESYNC:
            return False
        if self.goes_back(event) or then.is_deleting != now.is_deleting:
            return True
        if now.generation:
            return (then.generation, then.labels) != (now.generation, now.labels)
        if self.how == "opinionated":
            content = [(o.spec["size"], o.labels, o.get("status")) for o in (then, now)]
            return content[0] != content[1]
        return then.resource_version != now.resource_version

    def deletions_before(self, uid: str, source: int | None) -> bool:
        """Whether a call waits for its time that is for the deletion of another object."""
        return self.how != "by key" and any(
            w.action is DELETE and at[2] != uid and source in (None, at[1])
            for at, w in self.waiting.items()
        )

    def answered(self, at: Place, event: Event, is_dropped: bool) -> None:
        is_of_gone = at[3] == "DELETE"
        if event.action is DELETE:
            is_wrong = not is_of_gone
        else:
            is_wrong = is_of_gone and at[2] == event.object.uid
        if is_dropped or is_wrong:
            del self.waiting[at]

    def is_free(self, at: Place) -> bool:
        return at[0] != "first" or not self.deletions_before(at[2], None)

    def due(self, now: float) -> set[Place]:
        return {at for at, w in self.waiting.items() if w.due is not None and w.due <= now}

    def next_due(self) -> float | None:
        dues = [w.due for at, w in self.waiting.items() if w.due is not None and self.is_free(at)]
        return min(dues, default=None)

    def started(self, at: Place, w: Waiting, finalizer: str) -> Waiting | None:
        """What is called, if anything is left to do."""
        if self.waiting.get(at) is not w or not self.is_free(at):
            return None  # another call has replaced it, or it has to wait
        del self.waiting[at]
        was_added = finalizer in w.latest.finalizers and finalizer not in w.seen.finalizers
        if self.how == "opinionated" and at[0] in ("retry", "terminal") and w.action is CREATE:
            return None if was_added else w
        return w

    def failed(
        self, source: int, request: ReconcileRequest, error: Exception, plan: RetryPlan, now: float
    ) -> None:
        action, old, uid = request.action, request.old, request.object.uid
        if plan.delay is None and (action is DELETE or (action is RESYNC and not plan.is_final)):
            return  # nobody shows it again, and the next resync is another one
        if action is RESYNC and self.how in ("watcher", "opinionated"):
            action, old = UPDATE, request.object
        due = None if plan.delay is None else now + plan.delay
        new = Waiting(
            action, request.object, request.object, old, error, plan.attempt, due, request.state
        )
        if plan.is_final:
            new_at = ("terminal", source, uid, "")
            older = [at for at in self.of(source, uid) if at[0] != "first"]
        else:
            new_at = ("retry", source, uid, action.value)
            older = [at for at in self.of(source, uid) if at[0] == "retry" and at[3] == new_at[3]]
        self.put(new_at, new, older)

    def requeued(self, source: int, request: ReconcileRequest, due: float) -> None:
        obj = request.object
        at = ("requeue", source, obj.uid, "")
        new = Waiting(request.action, obj, obj, request.old, due=due, state=request.state)
        self.put(at, new, [at] if at in self.waiting else [])

    def put(self, at: Place, new: Waiting, older: Iterable[Place]) -> None:
        for place in older:
            w = self.waiting.pop(place)
            if at[0] == "terminal" and place[0] == "requeue":
                continue
            new.action, new.old = w.action, w.old
            new.attempt = min(new.attempt, w.attempt)
            if at[0] != "terminal":
                new.due = min((d for d in (new.due, w.due) if d is not None), default=None)
        if at[0] == "retry":
            at = (*at[:3], new.action.value)
        self.waiting[at] = new


class World:
    """Two informers that may show an object of one name, and one target that may come late.

    It does what the Dispatcher does: takes what waits to be handled, asks, calls, one at a time.
    """

    def __init__(
        self,
        how: str,
        has_generations: bool,
        outcomes: list[tuple[str, float]],
        answers: list[bool],
    ) -> None:
        self.outcomes, self.answers = iter(outcomes), iter(answers)
        self.clock = 0.0
        self.delivery = Delivery(
            "model", lambda key, event: None, clock=ManualClock(), metrics=Metrics()
        )
        self.sources: list[EventSource] = [self.delivery.source(str(WIDGET)) for _ in SOURCES]
        self.target = TARGETS[how]()
        lifecycle = self.target.finalizer_lifecycle
        self.finalizer = lifecycle.finalizer if lifecycle else "example.com/mine"
        self.calls = PendingCalls(self.target)
        self.model = Model(how)
        self.has_generations = has_generations
        self.is_there = True
        self.version, self.order, self.uids = 10_000, 0, 0
        self.orders: dict[str, int] = {}
        self.present: list[Object | None] = [None for _ in SOURCES]
        self.waiting: list[tuple[int, Event]] = []
        # What must not be lost, by uid: the last state that concerned the target, the last one and
        # the last action that a call succeeded with; and deletions that nobody makes up for.
        self.wanted: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self.last_good: dict[str, ResourceAction] = {}
        self.lost_deletions: set[str] = set()
        # What both informers show: the one may report a deletion while the other follows it.
        self.shared: set[str] = set()
        self.moved: set[str] = set()
        # What failed terminally, by informer and uid.
        self.hopeless: dict[tuple[int, str], Object] = {}

    # The world.

    def state_of(self, old: Object | None, uid: str = "", **change: Any) -> Object:
        self.version += 1
        self.order += 1
        data = {"size": 0, "status": 0, "generation": 1, "labels": {}, "finalizers": []}
        if old is not None:
            uid = uid or old.uid
            data.update(
                size=old.spec["size"],
                status=old.get("status", 0),
                generation=old.generation or 1,
                labels=dict(old.labels),
                finalizers=list(old.finalizers),
            )
            if old.is_deleting:
                data["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        data.update(change)
        metadata = {
            name: data[name]
            for name in ("labels", "finalizers", "deletionTimestamp")
            if data.get(name)
        }
        if self.has_generations:
            metadata["generation"] = data["generation"]
        obj = make_widget("a", self.version, uid=uid).to_dict()
        obj["metadata"] |= metadata
        obj["status"] = data["status"]
        obj["spec"] = {"size": data["size"]}
        self.orders[str(self.version)] = self.order
        return Object.from_dict(WIDGET, obj)

    def order_of(self, obj: Object) -> int:
        """The place of a state in the history of the world, which no restore takes back."""
        return self.orders[obj.resource_version]

    def put(self, source: int, event: Event) -> None:
        self.present[source] = None if event.action is DELETE else event.object
        self.waiting.append((source, event))

    def happen(self, what: str) -> None:
        """Something happens to the object; where there is none, one is created."""
        sources = [n for n in SOURCES if self.present[n] is not None]
        if sources:
            self.change(sources[self.order % len(sources)], what)
        else:
            self.create(SOURCES[what == "over"], is_back=what == "resync")

    def create(self, source: int, *, is_back: bool) -> None:
        """A new object, or, with a selector, one that is back."""
        if not is_back or not self.uids:
            self.uids += 1
        self.put(source, Event(CREATE, self.state_of(None, f"uid-{self.uids}")))

    def change(self, source: int, what: str) -> None:
        old = self.present[source]
        assert old is not None
        new: dict[str, Any] = {}
        if what == "resync":
            self.waiting.append((source, Event(RESYNC, old)))
            return
        other = 1 - source
        has_other = self.present[other] is not None
        if what in ("away", "anew", "over"):
            # Another one of its name may come, or itself at the other informer.
            self.put(source, Event(DELETE, self.state_of(old)))
            if what == "anew" and not has_other:
                self.create(source, is_back=False)
            elif what == "over" and not has_other:
                self.moved.add(old.uid)
                self.put(other, Event(CREATE, self.state_of(old)))
            return
        if what == "both":
            if not has_other:
                self.shared.add(old.uid)
                self.put(other, Event(CREATE, old))
            return
        if what == "restore":
            self.version -= RESTORE
        elif what == "spec":
            new = {"size": old.spec["size"] + 1, "generation": old.generation + 1}
        elif what == "status":
            new = {"status": old.get("status", 0) + 1}
        elif what == "label":
            new = {"labels": {"n": str(self.order)}}
        elif what == "mark":
            new = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        else:
            new = {"finalizers": [] if old.finalizers else [self.finalizer]}
        self.put(source, Event(UPDATE, self.state_of(old, **new), old))

    # The Dispatcher.

    def come_late(self) -> None:
        """Its first calls stand in line; what stood there before is not for it."""
        self.is_there = True
        present = [(n, obj) for n, obj in enumerate(self.present) if obj is not None]
        self.waiting = [(n, Event(CREATE, obj, None, True)) for n, obj in present]

    def handle(self, *, is_concerned: bool = True) -> None:
        if not self.waiting:
            return
        source, event = self.waiting.pop(0)
        if not self.is_there:
            return
        self.note_hope(source, event)
        if is_concerned or event.action is not UPDATE:
            self.note_wanted(event)
            expected = self.model.event(source, event, self.clock)
            reaction = self.calls.event(self.sources[source], event, self.clock)
        else:
            expected = self.model.passed_over(source, event)
            reaction = self.calls.pass_over(self.sources[source], event)
        assert self.places(reaction.retries) == expected.asked
        assert self.places(reaction.repeats) == expected.repeated
        assert (reaction.request is not None) is (expected.call is not None)
        for retry in reaction.retries:
            at = self.place(retry)
            is_dropped = next(self.answers, True)
            self.calls.supersede(retry, event, is_dropped=is_dropped)
            self.model.answered(at, event, is_dropped)
        self.start(reaction.repeats)
        if reaction.request is not None and expected.call is not None:
            request = reaction.request
            action, obj, old, state = expected.call
            assert (request.action, request.object, request.old) == (action, obj, old)
            assert (request.attempt, request.error) == (0, None)
            assert request.state is state if state is not None else request.state == {}
            self.call(source, request)
        self.make_due_calls()

    def note_hope(self, source: int, event: Event) -> None:
        failed = self.hopeless.get((source, event.object.uid))
        if failed and (event.action is DELETE or self.model.is_news(failed, event)):
            del self.hopeless[source, event.object.uid]

    def note_wanted(self, event: Event) -> None:
        if event.action is not RESYNC:
            uid, order = event.object.uid, self.order_of(event.object)
            self.wanted[uid] = max(self.wanted.get(uid, 0), order)

    def pass_time(self, seconds: float) -> None:
        self.clock += seconds
        if self.is_there:
            self.make_due_calls()

    def make_due_calls(self) -> None:
        due = self.calls.due(self.clock)
        assert self.places(due) == self.model.due(self.clock)
        self.start(due)

    def stop_following(self, source: int) -> None:
        """The informer no longer follows the object's namespace."""
        self.present[source] = None
        self.waiting = [(n, event) for n, event in self.waiting if n != source]
        self.calls.forget(self.sources[source])
        for at in [at for at in self.model.waiting if at[1] == source]:
            del self.model.waiting[at]
        self.hopeless = {at: obj for at, obj in self.hopeless.items() if at[0] != source}
        self.wanted.clear()
        self.make_due_calls()

    def start(self, calls: Sequence[PendingCall]) -> None:
        for call, at, w in [(c, self.place(c), self.model.waiting[self.place(c)]) for c in calls]:
            self.start_one(call, at, w)

    def start_one(self, call: PendingCall, at: Place, w: Waiting) -> None:
        source = at[1]
        expected = self.model.started(at, w, self.finalizer)
        is_first = call.is_first
        request = self.calls.start(call)
        assert (request is not None) is (expected is not None)
        if call not in self.calls.calls:
            assert self.calls.start(call) is None, "made twice"
        if request is None or expected is None:
            if self.model.how == "opinionated" and at not in self.model.waiting and not is_first:
                # Another call has succeeded with the same.
                self.reached[at[2]] = self.order_of(call.latest)
            return
        assert (request.action, request.object) == (expected.action, expected.latest)
        assert (request.old, request.error) == (expected.old, expected.error)
        assert request.attempt == expected.attempt
        assert request.state is expected.state if expected.state is not None else True
        self.call(source, request)

    def call(self, source: int, request: ReconcileRequest) -> None:
        at = source, request.object.uid
        assert at not in self.hopeless, "called again after a terminal failure"
        outcome, delay = next(self.outcomes, ("ok", 0.0))
        is_reconciler = self.model.how in ("reconciler", "by key")
        key = self.sources[source]
        if outcome in ("ok", "requeue"):
            self.reached[at[1]] = self.order_of(request.object)
            self.last_good[at[1]] = request.action
            if outcome == "requeue" and is_reconciler:
                self.calls.requeued(key, request, self.clock + delay)
                self.model.requeued(source, request, self.clock + delay)
            return
        error = ConnectionError("planned")
        plan = RetryPlan(
            delay if outcome in ("fails", "asks for a retry") else None,
            request.attempt + (outcome != "asks for a retry"),
            outcome == "terminal",
        )
        if plan.delay is None and request.action is DELETE:
            self.lost_deletions.add(at[1])
        elif plan.is_final:
            self.hopeless[at] = request.object
        self.calls.failed(key, request, error, plan, self.clock)
        self.model.failed(source, request, error, plan, self.clock)

    # What holds at all times.

    def place(self, call: PendingCall) -> Place:
        source = next(n for n, each in enumerate(self.sources) if each is call.source)
        why = "terminal" if call.is_terminal else call.reason.value
        return why, source, call.latest.uid, call.action.value if why == "retry" else ""

    def places(self, calls: Iterable[PendingCall]) -> set[Place]:
        listed = [self.place(call) for call in calls]
        assert len(listed) == len(set(listed)), "one of each is enough"
        return set(listed)

    def check(self) -> None:
        assert self.places(self.calls.calls) == self.model.waiting.keys()
        for call in self.calls.calls:
            w = self.model.waiting[self.place(call)]
            assert (call.action, call.latest, call.seen) == (w.action, w.latest, w.seen)
            assert (call.old, call.error, call.attempt) == (w.old, w.error, w.attempt)
            assert call.due == w.due
        assert self.calls.next_due() == self.model.next_due()
        for (_, _, uid, _), w in self.model.waiting.items():
            assert w.latest.uid == uid

    def come_to_rest(self) -> None:
        """Nothing is lost: when all calls succeed from here on, each object's end is reached."""
        if not self.is_there:
            return
        self.outcomes = iter(())
        while self.waiting:
            self.handle()
        for _ in range(20):
            self.clock += 10.0
            self.make_due_calls()
        left = {at[2] for at in self.model.waiting}
        assert all(w.due is None for w in self.model.waiting.values()), "what is due is made"
        present = {obj.uid for obj in self.present if obj is not None}
        for uid, order in self.wanted.items():
            if uid in self.shared:
                continue
            if uid in present and uid not in left:
                assert self.reached[uid] >= order, "a state is lost"
                # An opinionated watcher looks whether an object has only left the selector.
                is_moved = self.model.how == "opinionated" and uid in self.moved
                assert is_moved or self.last_good.get(uid) is not DELETE, "gone, and it is there"
            elif uid not in present | self.lost_deletions and self.model.how != "by key":
                assert self.last_good.get(uid, DELETE) is DELETE, "a deletion is lost"


happenings = st.sampled_from(
    [
        *("spec", "spec", "status", "label", "mark", "finalizer", "restore", "resync", "resync"),
        *("away", "anew", "over", "both"),
    ]
)
later = happenings.map(lambda what: f"later {what}")
others = st.sampled_from(["handle", "handle", "pass over", *["second"] * 4, "seconds", "unfollow"])
outcomes = st.sampled_from(
    [("ok", 0.0), ("given up", 0.0), ("terminal", 0.0)]
    + [
        (what, delay)
        for what in ("fails", "asks for a retry", "requeue")
        for delay in (0.0, 1.0, 4.0)
    ]
)


@settings(max_examples=scaled(500), deadline=None)
@example(  # a requeue beside a terminal failure
    how="reconciler",
    has_generations=True,
    before=None,
    steps=["spec", "spec", "second", "seconds", "second"],
    outcomes=[("fails", 1.0), ("requeue", 4.0), ("terminal", 0.0)],
    answers=[False],
)
@example(  # events of before a first call that failed
    how="watcher",
    has_generations=True,
    before=["spec", "later spec", "later spec"],
    steps=["second", "handle", "handle", "seconds"],
    outcomes=[("fails", 4.0)],
    answers=[],
)
@example(  # a retry of an object that has moved to the other informer
    how="opinionated",
    has_generations=False,
    before=None,
    steps=["later mark", "later over", "finalizer"],
    outcomes=[("ok", 0.0), ("ok", 0.0), ("fails", 0.0), ("fails", 0.0)],
    answers=[False],
)
@example(  # an add that another call has succeeded with
    how="opinionated",
    has_generations=True,
    before=None,
    steps=["spec", "finalizer", "seconds", "second"],
    outcomes=[("fails", 4.0)],
    answers=[],
)
@example(  # a late target that was shown an object before the call of its deletion elsewhere failed
    how="watcher",
    has_generations=True,
    before=["later spec", "later over"],
    steps=["spec", "spec", "spec"],
    outcomes=[("ok", 0.0), ("ok", 0.0), ("fails", 1.0)],
    answers=[],
)
@example(  # a late target that was not concerned by the change with which the server went back
    how="reconciler",
    has_generations=True,
    before=["spec"],
    steps=["handle", "later restore", "pass over", "spec"],
    outcomes=[],
    answers=[],
)
@given(
    how=st.sampled_from(sorted(TARGETS)),
    has_generations=st.booleans(),
    before=st.none() | st.lists(happenings | later | later, max_size=8),
    steps=st.lists(happenings | happenings | later | others, min_size=20, max_size=60),
    outcomes=st.lists(outcomes, min_size=20, max_size=60),
    answers=st.lists(st.booleans(), min_size=5, max_size=20),
)
def test_each_input_leads_to_what_the_model_says_and_nothing_is_lost(
    how: str,
    has_generations: bool,
    before: list[str] | None,
    steps: list[str],
    outcomes: list[tuple[str, float]],
    answers: list[bool],
) -> None:
    world = World(how, has_generations, outcomes, answers)
    if before is not None:
        world.is_there = False
        for step in before:
            play(world, step)
        world.come_late()
    for step in steps:
        play(world, step)
        world.check()
    world.come_to_rest()
    world.delivery.stop()


def play(world: World, step: str) -> None:
    what = step.removeprefix("later ")
    if what in ("handle", "pass over"):
        world.handle(is_concerned=what == "handle")
    elif what in ("second", "seconds"):
        world.pass_time(1.0 if what == "second" else 3.0)
    elif what == "unfollow":
        world.stop_following(world.order % 2)
    else:
        world.happen(what)
        while what == step and world.waiting:
            # Of its own write an opinionated watcher says that it does not concern it.
            world.handle(is_concerned=what != "finalizer")
