"""Checkers of what the kit promises, over the record of a simulation."""

from __future__ import annotations

from collections.abc import Sequence

from appsdk_operator.cache import ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._simulation.simulation import Call, Simulation

__all__ = ["check_converged", "check_exclusion", "check_object_order", "check_watcher_order"]

__tracebackhide__ = hides_kit_frames

_DELETE = ResourceAction.DELETE


def check_object_order(calls: Sequence[Call]) -> None:
    """No watcher is shown an object older than what it was shown of it before.

    Nor is it told of an object after its deletion.

    Raises:
        BrokenPromise: with the two calls.
    """
    last: dict[tuple[int, int, str], Call] = {}
    for call in calls:
        key = (call.operator, call.watcher, call.object.uid)
        before = last.get(key)
        if before is not None:
            if _version(call.object) < _version(before.object):
                raise BrokenPromise(f"shown an older object:\n{before}\n{call}")
            if before.action is _DELETE and call.action is not _DELETE:
                raise BrokenPromise(f"told of an object that is gone:\n{before}\n{call}")
        last[key] = call


def check_watcher_order(calls: Sequence[Call], watchers: int) -> None:
    """Each event goes to the watchers in add order, the next one after the previous has returned.

    For watchers of which none ignores events; retries may come between. A watcher that failed to
    delete an object is told of the next one of that name when it has succeeded, and not in line.

    Raises:
        BrokenPromise: with the two calls.
    """
    first: dict[tuple[int, str, str, ResourceAction], dict[int, Call]] = {}
    failed_deletions: set[tuple[int, int, str, str]] = set()
    out_of_line: set[tuple[int, int, str]] = set()
    for call in calls:
        obj = call.object
        place = (call.operator, call.watcher, obj.namespace, obj.name)
        if call.action is _DELETE and call.error:
            failed_deletions.add(place)
        elif call.action is not _DELETE and place in failed_deletions:
            failed_deletions.discard(place)
            out_of_line.add((call.operator, call.watcher, obj.uid))
        if call.action is ResourceAction.RESYNC:
            continue
        if (call.operator, call.watcher, obj.uid) in out_of_line:
            continue
        event = first.setdefault((call.operator, obj.uid, obj.resource_version, call.action), {})
        event.setdefault(call.watcher, call)
    for by_watcher in first.values():
        for number in range(1, watchers):
            former, latter = by_watcher.get(number - 1), by_watcher.get(number)
            if former is None or latter is None:
                continue
            if not 0 < former.ended < latter.began:
                raise BrokenPromise(f"not in add order:\n{former}\n{latter}")


def check_exclusion(calls: Sequence[Call]) -> None:
    """No two calls for one object overlap, whatever watchers and retries they belong to.

    Raises:
        BrokenPromise: with the two calls.
    """
    last: dict[tuple[int, str, str], Call] = {}
    for call in calls:
        key = (call.operator, call.object.namespace, call.object.name)
        before = last.get(key)
        if before is not None and not 0 < before.ended < call.began:
            raise BrokenPromise(f"at once for one object:\n{before}\n{call}")
        last[key] = call


def check_converged(simulation: Simulation, watcher: int, *, by_key: bool = False) -> None:
    """What the watcher was last told, successfully, is what the server has.

    Call it after :meth:`Simulation.settle`.

    Args:
        simulation: where it ran.
        watcher: its place in add order, from 0.
        by_key: objects of one name are all the same to it, as to a :class:`KeyReconciler`: a new
            one takes the place of the one before.

    Raises:
        BrokenPromise: naming the object.
    """

    def name_of(obj: Object) -> str:
        return f"{obj.namespace}/{obj.name}" if by_key else obj.uid

    seen: dict[str, Object] = {}
    for call in simulation.calls:
        if call.operator != simulation.operator or call.watcher != watcher or call.error:
            continue
        if call.action is _DELETE:
            seen.pop(name_of(call.object), None)
        else:
            seen[name_of(call.object)] = call.object
    there = {name_of(obj): obj for obj in simulation.server.objects}
    for name in there.keys() | seen.keys():
        mine, server = seen.get(name), there.get(name)
        if mine != server:
            raise BrokenPromise(
                f"watcher {watcher} last saw {mine}, the server has {server}\n{simulation.story()}"
            )


def _version(obj: Object) -> int:
    return int(obj.resource_version)
