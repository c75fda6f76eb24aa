"""The promises of an operator, and the checks of a journal for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import final

from appsdk_operator.app import Handler, Timer
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.app_promises import (
    check_calls,
    check_chain,
    check_chain_at_rest,
    check_timers,
    check_timers_at_rest,
)
from appsdk_operator.testing._world.cluster import SimulatedCluster
from appsdk_operator.testing._world.histories import FOREIGN
from appsdk_operator.testing._world.journal import Entry, timeline_of
from appsdk_operator.testing._world.world import World

__tracebackhide__ = hides_kit_frames


class Promise(Enum):
    """The promises that :func:`check_operator` checks; the values stand in its error texts."""

    ORDER = "order"
    """No watcher gets an older state of an object after a newer one, or an object after its
    deletion. Each event goes to the watchers in add order."""
    NO_OVERLAP = "no overlap"
    """In one process, no two calls of watchers for one object run at once, and no two calls of one
    reconciler. Two reconcilers of a kind are two controllers."""
    AT_LEAST_ONCE = "at least once"
    """Each object that exists at the end had a successful call."""
    CONVERGENCE = "convergence"
    """The last successful call of each watcher has the server's state; each reconciler had a
    successful call after the last change of the spec."""
    FINALIZER_SAFETY = "finalizer safety"
    """No object is gone without its clean-up, and finalizers of other controllers stay."""
    IDEMPOTENCE = "idempotence"
    """A second reconcile without a change writes nothing."""
    NO_HOT_LOOP = "no hot loop"
    """Without changes from outside the operator comes to rest."""
    LEASE = "no writes after the lease is lost"
    """A replica writes nothing while another one holds the Lease."""
    CHAIN = "chain"
    """The functions of an App lose no change and repeat no success.

    Each successful call of a function for updates begins with the state with which the function
    last succeeded, and at rest this is the server's state. If the App remembers the kind, this
    holds across processes, except that the last success before a crash may be repeated. No function
    is called again for a state with which it has succeeded, or that it gave up, and none for a
    paused object. Each ``on_add`` begins after the ones that were declared before it."""
    TIMERS = "timers"
    """The timer of an App is called in time, as long as its object lives.

    It is not called before ``first_after`` and the success of ``on_add``, and never together with
    another function of the object."""


def break_promise(
    simulated: SimulatedCluster, promise: Promise, text: str, key: str = ""
) -> BrokenPromise:
    """The error of a broken promise, with the timeline."""
    return BrokenPromise(f"{promise.value}: {text}\n{timeline_of(simulated.journal.entries, key)}")


def check_journal(
    world: World,
    promises: frozenset[Promise],
    handlers: Sequence[Handler] = (),
    remembered: Callable[[Kind], bool] = lambda _: False,
) -> None:
    """Check overlap and order of the calls so far; ``handlers`` are the functions of an App, which
    remembers what it has handled of some kinds.

    Raises:
        BrokenPromise: with the timeline.
    """
    if Promise.NO_OVERLAP in promises:
        check_exclusion(world)
    if Promise.ORDER in promises:
        check_object_order(world)
        check_watcher_order(world)
    if Promise.CHAIN in promises:
        check_chain(world, handlers, remembered, _breaker(world, Promise.CHAIN))
        check_calls(world, handlers, _breaker(world, Promise.CHAIN))
    if Promise.TIMERS in promises:
        check_timers(world, handlers, _breaker(world, Promise.TIMERS))


def check_app_rest(
    world: World,
    promises: frozenset[Promise],
    handlers: Sequence[Handler],
    timers: Sequence[Timer],
    remembered: Callable[[Kind], bool],
) -> None:
    """Check what an App promises of its functions and timers, at rest.

    Raises:
        BrokenPromise: with the timeline.
    """
    if Promise.CHAIN in promises:
        check_chain_at_rest(world, handlers, remembered, _breaker(world, Promise.CHAIN))
    if Promise.TIMERS in promises:
        check_timers_at_rest(world, handlers, timers, _breaker(world, Promise.TIMERS))


def _breaker(world: World, promise: Promise) -> Callable[[str, str], BrokenPromise]:
    return lambda text, key: break_promise(world, promise, text, key)


def check_exclusion(simulated: SimulatedCluster) -> None:
    """Check that no two calls for one object overlap in one process, retries included.

    Raises:
        BrokenPromise: with the timeline.
    """
    last: dict[tuple[str, int, str, str, int | None], Entry] = {}
    for call in simulated.journal.of("call"):
        # Watchers take turns; a reconciler of names is called by a controller of its own.
        reconciler = None if call.action else call.watcher
        target = (call.who, call.process, call.kind, call.key, reconciler)
        before = last.get(target)
        if before is not None and not 0 < before.ended < call.began:
            text = f"two calls for {call.key} at once: {before.who} {before.text}, and {call.text}"
            raise break_promise(simulated, Promise.NO_OVERLAP, text, call.key)
        last[target] = call


def check_object_order(simulated: SimulatedCluster) -> None:
    """Check that no watcher gets an older state of an object after a newer one.

    Nor must it get an object after its deletion.

    Raises:
        BrokenPromise: with the timeline.
    """
    last: dict[tuple[str, int, int, str], Entry] = {}
    for call in simulated.journal.of("call"):
        if not call.uid:
            continue
        target = (call.who, call.process, call.watcher, call.uid)
        before = last.get(target)
        if before is not None:
            if call.version < before.version:
                text = f"{call.line}, in an older state than it saw before"
                raise break_promise(simulated, Promise.ORDER, text, call.key)
            if before.action == "DELETE" and call.action != "DELETE":
                text = f"{call.line}, although an earlier call said that it is gone"
                raise break_promise(simulated, Promise.ORDER, text, call.key)
        last[target] = call


def check_watcher_order(simulated: SimulatedCluster) -> None:
    """Check that each event goes to the watchers in add order, one after the other.

    Retries may come between. One exception: a watcher whose ``delete`` failed gets the next object
    of that name only after a retry succeeded, so out of order.

    Raises:
        BrokenPromise: with the timeline.
    """
    first: dict[tuple[str, int, str, int, str], dict[int, Entry]] = {}
    failed_deletions: set[tuple[str, int, int, str]] = set()
    out_of_order: set[tuple[str, int, int, str]] = set()
    for call in simulated.journal.of("call"):
        target = (call.who, call.process, call.watcher, call.key)
        one = (call.who, call.process, call.watcher, call.uid)
        if call.action == "DELETE" and call.has_failed:
            failed_deletions.add(target)
        elif call.action != "DELETE" and target in failed_deletions:
            failed_deletions.discard(target)
            out_of_order.add(one)
        if call.uid and call.action != "RESYNC" and one not in out_of_order:
            event = (call.who, call.process, call.uid, call.version, call.action)
            first.setdefault(event, {}).setdefault(call.watcher, call)
    for by_watcher in first.values():
        for number, latter in by_watcher.items():
            former = by_watcher.get(number - 1)
            if former is not None and not 0 < former.ended < latter.began:
                text = f"{latter.line}: watcher {number} before watcher {number - 1}"
                raise break_promise(simulated, Promise.ORDER, text, latter.key)


def check_converged(simulated: SimulatedCluster, watcher: int) -> None:
    """Check that the state of each object in the watcher's last successful call is the server's.

    Call it at rest, after ``settle``.

    Args:
        simulated: a :class:`Simulation` or a :class:`World`.
        watcher: the number of the watcher or reconciler in add order, from 0.

    Raises:
        BrokenPromise: with the timeline.
    """
    ours = simulated.kind.qualified_name
    calls = [
        call
        for call in simulated.journal.of("call")
        if call.watcher == watcher and call.ended and not call.has_failed and call.kind == ours
    ]
    for process in simulated.working:
        seen: dict[str, Entry] = {}
        for call in calls:
            if (call.who, call.process) == (process.name, process.process):
                seen[call.key if call.is_by_key else call.uid] = call
        is_by_key = any(call.is_by_key for call in seen.values())
        there = {
            simulated.key(obj.name) if is_by_key else obj.uid: obj for obj in simulated.objects()
        }
        for one, obj in there.items():
            saw = seen.get(one)
            if saw is None or not (saw.is_selective or saw.version == int(obj.resource_version)):
                last = "nothing" if saw is None else f"version {saw.version}"
                text = (
                    f"the server has {obj.name} in version {obj.resource_version}, but the last "
                    f"successful call of {process.name} saw {last}"
                )
                raise break_promise(simulated, Promise.CONVERGENCE, text, simulated.key(obj.name))
        for one, call in seen.items():
            if one not in there and call.action != "DELETE":
                text = f"{call.key} is gone, but {process.name} has not seen the deletion"
                raise break_promise(simulated, Promise.CONVERGENCE, text, call.key)


def check_rest(world: World, promises: frozenset[Promise]) -> None:
    """Check that the operator, at rest, has handled each object.

    Raises:
        BrokenPromise: with the timeline.
    """
    objects = {world.key(obj.name): obj for obj in world.objects()}
    ours = world.kind.qualified_name
    calls = [call for call in world.journal.of("call") if call.ended and call.kind == ours]
    of_others = {call.watcher for call in world.journal.of("call") if call.kind != ours}
    if not calls and world.recorded <= of_others:
        return  # no calls for the world's kind were recorded
    if Promise.AT_LEAST_ONCE in promises:
        done = {call.key for call in calls if not call.has_failed}
        for key, obj in objects.items():
            if key not in done:
                text = f"no call for {obj.name} has ever succeeded"
                raise break_promise(world, Promise.AT_LEAST_ONCE, text, key)
    if Promise.CONVERGENCE in promises:
        for number, gets_objects in sorted({(call.watcher, bool(call.uid)) for call in calls}):
            if gets_objects:
                check_converged(world, number)
            else:
                of_it = [call for call in calls if call.watcher == number]
                concerns = world.concerns[number]
                wanted = {key: obj for key, obj in objects.items() if concerns(obj)}
                _check_reconciler_converged(world, of_it, wanted)


def still_failing(world: World) -> Entry | None:
    """The last call for an existing object, if it failed without a fault."""
    present = {world.key(obj.name) for obj in world.objects()}
    alive = {(replica.name, replica.process) for replica in world.replicas}
    last: dict[tuple[int, str], Entry] = {}
    for call in world.journal.of("call"):
        if (call.who, call.process) in alive and call.kind == world.kind.qualified_name:
            last[call.watcher, call.key] = call
    return next((call for call in last.values() if call.has_failed and call.key in present), None)


def _check_reconciler_converged(
    world: World, calls: list[Entry], objects: dict[str, Object]
) -> None:
    for key, obj in objects.items():
        asked = [
            step
            for step in world.journal.of("step", key)
            if step.asks and step.outcome != "refused"
        ]
        done = [call for call in calls if call.key == key and not call.has_failed]
        if asked and (not done or done[-1].began < asked[-1].began):
            last = "never" if not done else f"last at {done[-1].at:g} s"
            text = (
                f"{obj.name} was changed at {asked[-1].at:g} s, and a reconcile of it succeeded "
                f"{last}"
            )
            raise break_promise(world, Promise.CONVERGENCE, text, key)


@final
class FinalizerChecker:
    """Checks finalizers before and after each write of the operator to an object of its kind."""

    def __init__(
        self,
        world: World,
        finalizers: frozenset[str],
        cleaned_up: Callable[[World, Object], bool] | None,
    ) -> None:
        """Register for the world's writes.

        Args:
            world: the world; it knows the finalizers of the kit's own watchers.
            finalizers: all finalizers of the operator; empty: unknown.
            cleaned_up: whether everything that the operator made for an object is gone; None:
                unknown.
        """
        self._world = world
        self._finalizers = finalizers
        self._cleaned_up = cleaned_up
        self._before: dict[str, Object] = {}
        world.on_write = self._before_write
        world.on_answer = self._after_write

    def _before_write(self, _entry: Entry) -> None:
        self._before = self._present()

    def _after_write(self, entry: Entry) -> None:
        present = self._present()
        for uid, before in self._before.items():
            after = present.get(uid)
            remaining = () if after is None else after.finalizers
            others, left = self._others(before.finalizers), self._others(remaining)
            if left != others:
                lost, now = ", ".join(others) or "none", ", ".join(left) or "none"
                text = f"{entry.line}: others' finalizers were {lost}, now {now}"
                self._break(text, before)
            own = self._own
            if own.intersection(before.finalizers) and not own.intersection(remaining):
                text = f"{entry.line}, and so releases {before.name}, which is not cleaned up"
                self._check_clean(before, text)

    def check_rest(self) -> None:
        """Check that deleted objects are cleaned up, and that none still waits for it."""
        present = self._present()
        # State that is stored by name may belong to a new object of that name.
        names = {obj.name for obj in present.values()}
        for obj in self._world.created:
            if obj.uid not in present and obj.name not in names:
                self._check_clean(obj, f"{obj.name} is gone, and was never cleaned up")
        for obj in present.values():
            if obj.is_deleting and self._own.intersection(obj.finalizers):
                self._break(f"{obj.name} is deleted, and still waits for its clean-up", obj)

    @property
    def _own(self) -> frozenset[str]:
        return self._finalizers | self._world.finalizers

    def _others(self, finalizers: tuple[str, ...]) -> list[str]:
        if self._finalizers:
            return [finalizer for finalizer in finalizers if finalizer not in self._own]
        # The operator's own are unknown, so any other may be one of them.
        return [finalizer for finalizer in finalizers if finalizer == FOREIGN]

    def _check_clean(self, obj: Object, text: str) -> None:
        if self._cleaned_up is not None and not self._cleaned_up(self._world, obj):
            self._break(text, obj)

    def _present(self) -> dict[str, Object]:
        return {obj.uid: obj for obj in self._world.objects()}

    def _break(self, text: str, obj: Object) -> None:
        promise = Promise.FINALIZER_SAFETY.value
        self._world.break_promise(f"{promise}: {text}", self._world.key(obj.name))
