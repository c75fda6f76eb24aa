"""The priority of new pods, as the admission plugin ``Priority`` sets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._builtin import strategies
from appsdk_operator.apiserver._storage.storage import Storage
from appsdk_operator.apiserver._values.status import forbidden

__all__ = ["SYSTEM_CLASSES", "Priorities"]

_COMMON: Final = "PreemptLowerPriority"
_USE: Final = "Used for system critical pods that must"

SYSTEM_CLASSES: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "metadata": {"name": "system-node-critical"},
        "value": 2_000_001_000,
        "description": f"{_USE} not be moved from their current node.",
    },
    {
        "metadata": {"name": "system-cluster-critical"},
        "value": 2_000_000_000,
        "description": f"{_USE} run in the cluster, but can be moved to another node if necessary.",
    },
)
"""The PriorityClasses that every cluster has."""


@final
class Priorities:
    """Admits pods: sets their priority and the default tolerations."""

    def __init__(self, storage: Storage) -> None:
        """The PriorityClasses are those in ``storage``."""
        self._classes = storage.collection("priorityclasses.scheduling.k8s.io")

    def admit_pod(self, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        """Complete a pod.

        Raises:
            StatusError: 403, the class does not exist, or the pod has another priority.
        """
        strategies.add_tolerations(new["spec"])
        if old is not None:
            strategies.keep_priority(new, old)
            return
        spec, name = new["spec"], new["metadata"].get("name", "")
        priority, policy = self._of(spec, name)
        given = spec.get("priority", priority)
        if given != priority:
            why = (
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {priority} from the given PriorityClass "
                "name"
            )
            raise forbidden("pods", "", name, why)
        given = spec.get("preemptionPolicy", policy)
        if given != policy:
            why = (
                f"the string value of PreemptionPolicy ({given}) must not be provided in pod "
                f"spec; priority admission controller computed {policy} from the given "
                "PriorityClass name"
            )
            raise forbidden("pods", "", name, why)
        spec["priority"], spec["preemptionPolicy"] = priority, policy

    def _of(self, spec: dict[str, Any], pod: str) -> tuple[int, str]:
        wanted = spec.get("priorityClassName", "")
        if wanted:
            record = self._classes.records.get(wanted)
            if record is None:
                raise forbidden("pods", "", pod, f"no PriorityClass with name {wanted} was found")
            found = record.decode()
            return found.get("value", 0), found.get("preemptionPolicy", _COMMON)
        defaults = [
            found
            for record in self._classes.records.values()
            if (found := record.decode()).get("globalDefault")
        ]
        if not defaults:
            return 0, _COMMON
        least = min(defaults, key=lambda found: int(found.get("value", 0)))
        spec["priorityClassName"] = least["metadata"]["name"]
        return least.get("value", 0), least.get("preemptionPolicy", _COMMON)
