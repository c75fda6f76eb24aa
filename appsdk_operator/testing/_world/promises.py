"""Checkers over what happened in a world: each knows one promise, and says how it was broken."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import final

from appsdk_operator.resource import Object
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.histories import FOREIGN
from appsdk_operator.testing._world.journal import Entry, story_of
from appsdk_operator.testing._world.world import LEASE, Replica, World

__all__ = [
    "FinalizerChecker",
    "Promise",
    "break_promise",
    "check_journal",
    "check_rest",
    "still_failing",
]

__tracebackhide__ = hides_kit_frames


class Promise(Enum):
    """What :func:`check_operator` holds an operator to; the values are the words of its texts."""

    ORDER = "order"
    """No watcher is shown an older state of an object after a newer one, nor anything of an object
    that is gone; and each event goes to the watchers in add order."""
    NO_OVERLAP = "no overlap"
    """In one process no two calls for one object run at once."""
    AT_LEAST_ONCE = "at least once"
    """Each object that is there in the end had a call that succeeded."""
    CONVERGENCE = "convergence"
    """What each watcher saw last, and successfully, is what the server has; each reconciler was
    called, and succeeded, after the last change of what was asked for."""
    FINALIZER_SAFETY = "finalizer safety"
    """No object goes without its clean-up, so finalizers of others stay where they are."""
    IDEMPOTENCE = "idempotence"
    """Where nothing changed, a second reconcile writes nothing."""
    NO_HOT_LOOP = "no hot loop"
    """Without changes from outside the operator comes to rest."""
    LEASE = "no writes after the lease is lost"
    """A replica whose Lease another one holds writes nothing."""


def break_promise(world: World, promise: Promise, text: str, key: str = "") -> BrokenPromise:
    """The error that tells how a promise was broken."""
    return BrokenPromise(f"{promise.value}: {text}\n{story_of(world.journal.entries, key)}")


def check_journal(world: World, promises: frozenset[Promise]) -> None:
    """What can be told from the calls alone.

    Raises:
        BrokenPromise: with the story.
    """
    calls = world.journal.of("call")
    if Promise.NO_OVERLAP in promises:
        _check_overlap(world, calls)
    if Promise.ORDER in promises:
        _check_object_order(world, calls)
        _check_watcher_order(world, calls)


def _check_overlap(world: World, calls: list[Entry]) -> None:
    last: dict[tuple[str, int, str, str], Entry] = {}
    for call in calls:
        place = (call.who, call.process, call.kind, call.key)
        before = last.get(place)
        if before is not None and not 0 < before.ended < call.began:
            text = f"two calls for {call.key} at once: {before.who} {before.text}, and {call.text}"
            raise break_promise(world, Promise.NO_OVERLAP, text, call.key)
        last[place] = call


def _check_object_order(world: World, calls: list[Entry]) -> None:
    last: dict[tuple[str, int, int, str], Entry] = {}
    for call in calls:
        if not call.uid:
            continue
        place = (call.who, call.process, call.watcher, call.uid)
        before = last.get(place)
        if before is not None:
            if call.version < before.version:
                text = f"{call.line}, in a state older than what it saw before"
                raise break_promise(world, Promise.ORDER, text, call.key)
            if before.action == "DELETE" and call.action != "DELETE":
                text = f"{call.line}, which is gone, as it was told before"
                raise break_promise(world, Promise.ORDER, text, call.key)
        last[place] = call


def _check_watcher_order(world: World, calls: list[Entry]) -> None:
    first: dict[tuple[str, int, str, int, str], dict[int, Entry]] = {}
    for call in calls:
        if call.uid and call.action in ("CREATE", "UPDATE"):
            event = (call.who, call.process, call.uid, call.version, call.action)
            first.setdefault(event, {}).setdefault(call.watcher, call)
    for by_watcher in first.values():
        for number, latter in by_watcher.items():
            former = by_watcher.get(number - 1)
            if former is not None and former.began > latter.began:
                text = f"{latter.line}: watcher {number} before watcher {number - 1}"
                raise break_promise(world, Promise.ORDER, text, latter.key)


def check_rest(world: World, promises: frozenset[Promise]) -> None:
    """What must be so when the operator has come to rest.

    Raises:
        BrokenPromise: with the story.
    """
    objects = {world.key(obj.name): obj for obj in world.objects()}
    ours = world.kind.qualified_name
    calls = [call for call in world.journal.of("call") if call.ended and call.kind == ours]
    of_others = {call.watcher for call in world.journal.of("call") if call.kind != ours}
    if not calls and world.recorded <= of_others:
        return  # of the world's kind only the writes are known
    if Promise.AT_LEAST_ONCE in promises:
        done = {call.key for call in calls if not call.error}
        for key, obj in objects.items():
            if key not in done:
                text = f"no call for {obj.name} has ever succeeded"
                raise break_promise(world, Promise.AT_LEAST_ONCE, text, key)
    if Promise.CONVERGENCE in promises:
        places = sorted({(call.watcher, bool(call.uid)) for call in calls})
        for number, is_watcher in places:
            check = _check_watcher_converged if is_watcher else _check_reconciler_converged
            check(world, [call for call in calls if call.watcher == number], objects)


def still_failing(world: World) -> Entry | None:
    """The last call for an object that is there, if it failed; nothing went wrong on purpose."""
    present = {world.key(obj.name) for obj in world.objects()}
    alive = {(replica.name, replica.process) for replica in world.replicas}
    last: dict[tuple[int, str], Entry] = {}
    for call in world.journal.of("call"):
        if (call.who, call.process) in alive and call.kind == world.kind.qualified_name:
            last[call.watcher, call.key] = call
    return next((call for call in last.values() if call.error and call.key in present), None)


def _check_watcher_converged(world: World, calls: list[Entry], objects: dict[str, Object]) -> None:
    for replica in _working(world):
        seen: dict[str, Entry] = {}
        for call in calls:
            if (call.who, call.process) == (replica.name, replica.process) and not call.error:
                seen[call.uid] = call
        there = {obj.uid: obj for obj in objects.values()}
        for uid, obj in there.items():
            saw = seen.get(uid)
            if saw is None or (not saw.is_selective and saw.version != int(obj.resource_version)):
                last = "nothing" if saw is None else f"version {saw.version}"
                text = (
                    f"the server has {obj.name} in version {obj.resource_version}, and what "
                    f"{replica.name} saw of it last, successfully, is {last}"
                )
                raise break_promise(world, Promise.CONVERGENCE, text, world.key(obj.name))
        for uid, call in seen.items():
            if uid not in there and call.action != "DELETE":
                text = f"{call.key} is gone, and {replica.name} has not been told, successfully"
                raise break_promise(world, Promise.CONVERGENCE, text, call.key)


def _working(world: World) -> list[Replica]:
    """The replicas that are told of things: those that hold a Lease, or all where nobody does."""
    holders = {lease["spec"].get("holderIdentity") for lease in world.server.objects(LEASE)}
    leading = [one for one in world.replicas if one.identity and one.identity in holders]
    return leading or world.replicas


def _check_reconciler_converged(
    world: World, calls: list[Entry], objects: dict[str, Object]
) -> None:
    for key, obj in objects.items():
        asked = [
            step
            for step in world.journal.of("step", key)
            if step.asks and step.outcome != "refused"
        ]
        done = [call for call in calls if call.key == key and not call.error]
        if asked and (not done or done[-1].began < asked[-1].began):
            last = "never" if not done else f"last at {done[-1].at:g} s"
            text = (
                f"{obj.name} was changed at {asked[-1].at:g} s, and a reconcile of it succeeded "
                f"{last}"
            )
            raise break_promise(world, Promise.CONVERGENCE, text, key)


@final
class FinalizerChecker:
    """Looks at each write of the operator to an object of its kind."""

    def __init__(
        self,
        world: World,
        finalizers: frozenset[str],
        cleaned_up: Callable[[World, Object], bool] | None,
    ) -> None:
        """Begin to look.

        Args:
            world: where it runs; it knows the finalizers of the kit's own watchers.
            finalizers: all that the operator writes; none: nobody can say which are its own.
            cleaned_up: whether what the operator made for an object is gone; None: nobody can say.
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
            kept = () if after is None else after.finalizers
            others, left = self._others(before.finalizers), self._others(kept)
            if left != others:
                lost, now = ", ".join(others) or "none", ", ".join(left) or "none"
                text = f"{entry.line}: others' finalizers were {lost}, now {now}"
                self._break(text, before)
            own = self._own
            if own.intersection(before.finalizers) and not own.intersection(kept):
                text = f"{entry.line}, and so lets {before.name} go, which is not cleaned up"
                self._check_clean(before, text)

    def check_rest(self) -> None:
        """Nothing that is gone has left anything behind, and nothing waits for its clean-up."""
        present = self._present()
        # What is kept by name cannot be told from what belongs to an object that has the name now.
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
        # Of the rest nobody has said that the operator must not write them.
        return [finalizer for finalizer in finalizers if finalizer == FOREIGN]

    def _check_clean(self, obj: Object, text: str) -> None:
        if self._cleaned_up is not None and not self._cleaned_up(self._world, obj):
            self._break(text, obj)

    def _present(self) -> dict[str, Object]:
        world = self._world
        found = [Object.from_dict(world.kind, obj) for obj in world.server.objects(world.kind)]
        return {obj.uid: obj for obj in found}

    def _break(self, text: str, obj: Object) -> None:
        promise = Promise.FINALIZER_SAFETY.value
        self._world.break_promise(f"{promise}: {text}", self._world.key(obj.name))
