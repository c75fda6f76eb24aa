"""Evictions of pods, which obey the PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from appsdk_operator.apiserver._managed_fields.entries import SERVER
from appsdk_operator.apiserver._registry.deletion import check_preconditions
from appsdk_operator.apiserver._registry.request_options import options_of
from appsdk_operator.apiserver._registry.write_requests import DeleteOptions
from appsdk_operator.apiserver._registry.writes import Target, WriteOptions, Writer
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.status import StatusError, forbidden
from appsdk_operator.resource import LabelSelector

_Object = dict[str, Any]

# Pods that are evicted and whose end the budget's controller has not seen yet.
_MOST_DISRUPTED: Final = 2000
# Seconds to wait for the budget's controller.
_RETRY_AFTER: Final = 10


async def evict(
    writer: Writer,
    target: Target,
    budgets: ServedVersion | None,
    obj: Mapping[str, Any],
    options: WriteOptions,
) -> None:
    """Delete a pod if its budget allows that.

    Raises:
        StatusError: 429, the budget does not allow it now; 500, the pod has several budgets.
    """
    wanted = options_of(obj.get("deleteOptions") or {})
    if options.dry_run:
        wanted = attrs.evolve(wanted, dry_run=True)
    pod = writer.get(target).decode()
    if budgets is not None and not _is_free(pod):
        found = _budgets_of(pod, budgets, target.namespace)
        if len(found) > 1:
            why = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise StatusError(500, why, reason="")
        if found and not _may_go_unhealthy(pod, found[0]):
            budget = Target(budgets, target.namespace, found[0]["metadata"]["name"])
            await _use(writer, budget, target.name, dry_run=wanted.dry_run)
    if not wanted.dry_run:
        wanted = await _announce(writer, target, wanted)
    await writer.delete(target, wanted)


async def _announce(writer: Writer, target: Target, options: DeleteOptions) -> DeleteOptions:
    """Tell in the pod's status that it is evicted; return the options that fit its new version."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": _metadata.timestamp(writer.clock.time()),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    async def append(pod: _Object) -> _Object:
        # Empty ones are left to the deletion, as on the real server.
        uid, version = options.uid or None, options.resource_version or None
        check_preconditions(target.served.resource, writer.get(target), uid, version)
        status = pod["status"] = dict(pod.get("status") or {})
        status["conditions"] = _with(status.get("conditions") or (), condition)
        return pod

    written = await writer.update(target, append, WriteOptions(), subresource="status", patch=True)
    if options.resource_version is None:
        return options
    return attrs.evolve(options, resource_version=written.obj["metadata"]["resourceVersion"])


def _with(conditions: Sequence[_Object], condition: _Object) -> list[_Object]:
    """The conditions with that one in its place; it keeps its time while its status stays."""
    found = list(conditions)
    for at, old in enumerate(found):
        if old.get("type") == condition["type"]:
            if old.get("status") == condition["status"]:
                condition = {**condition, "lastTransitionTime": old.get("lastTransitionTime")}
            found[at] = condition
            return found
    return [*found, condition]


def _is_free(pod: _Object) -> bool:
    """Whether no budget counts the pod."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budgets_of(pod: _Object, budgets: ServedVersion, namespace: str) -> list[_Object]:
    labels = pod["metadata"].get("labels") or {}
    found = [
        record.decode() for record in budgets.resource.collection.scan(f"{namespace}/") if labels
    ]
    return [
        budget
        for budget in found
        if (selector := (budget.get("spec") or {}).get("selector")) is not None
        and LabelSelector.from_object(selector).matches(labels)
    ]


def _may_go_unhealthy(pod: _Object, budget: _Object) -> bool:
    """Whether the pod is not ready and the budget lets such a pod go in any case."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


async def _use(writer: Writer, target: Target, pod: str, *, dry_run: bool) -> None:
    """Take one disruption from a budget."""
    now = _metadata.timestamp(writer.clock.time())

    async def take(budget: _Object) -> _Object:
        status = budget["status"] = dict(budget.get("status") or {})
        _check(budget, status)
        left = status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
        if left == 0:
            _note_that_none_is_left(status, now)
        status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
        return budget

    options = WriteOptions(dry_run=dry_run, manager=SERVER)
    await writer.update(target, take, options, subresource="status", patch=True)


def _check(budget: _Object, status: _Object) -> None:
    name, allowed = budget["metadata"]["name"], status.get("disruptionsAllowed", 0)
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, _RETRY_AFTER)
    if allowed < 0:
        raise forbidden(
            "poddisruptionbudget", "policy", name, "pdb disruptions allowed is negative"
        )
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("poddisruptionbudget", "policy", name, why)
    if allowed == 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(
            f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        )


def _note_that_none_is_left(status: _Object, now: str) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    status["conditions"] = [*others, condition]


def _too_many(cause: str, seconds: int = 0) -> StatusError:
    details: _Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if seconds:
        details["retryAfterSeconds"] = seconds
    why = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(429, why, details=details)
