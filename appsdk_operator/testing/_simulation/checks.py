"""Checks of the kit's promises over the recorded calls of a simulation."""

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
    """Check that no watcher gets an older state of an object after a newer one.

    Nor must it get an object after its deletion.

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
    """Check that each event goes to the watchers in add order, one after the other.

    For watchers that ignore no events; retries may come between. One exception: a watcher whose
    ``delete`` failed gets the next object of that name only after a retry succeeded, so out of
    order.

    Raises:
        BrokenPromise: with the two calls.
    """
    first: dict[tuple[int, str, str, ResourceAction], dict[int, Call]] = {}
    failed_deletions: set[tuple[int, int, str, str]] = set()
    out_of_order: set[tuple[int, int, str]] = set()
    for call in calls:
        obj = call.object
        target = (call.operator, call.watcher, obj.namespace, obj.name)
        if call.action is _DELETE and call.error:
            failed_deletions.add(target)
        elif call.action is not _DELETE and target in failed_deletions:
            failed_deletions.discard(target)
            out_of_order.add((call.operator, call.watcher, obj.uid))
        if call.action is ResourceAction.RESYNC:
            continue
        if (call.operator, call.watcher, obj.uid) in out_of_order:
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
    """Check that no two calls for one object overlap, of any watchers, retries included.

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
    """Check that the state of each object in the watcher's last successful call is the server's.

    Call it after :meth:`Simulation.settle`.

    Args:
        simulation: the simulation that ran it.
        watcher: its number in add order, from 0.
        by_key: whether it identifies objects by name, as a :class:`KeyReconciler` does, and not by
            uid.

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
