"""What classes give to new pods, as the admission plugins ``Priority`` and ``RuntimeClass`` do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._builtin import strategies
from appsdk_operator.apiserver._storage.storage import Storage
from appsdk_operator.apiserver._values.status import forbidden

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
    """Admits pods: sets their priority, what their runtime asks, and the default tolerations."""

    def __init__(self, storage: Storage) -> None:
        """The classes are those in ``storage``."""
        self._classes = storage.collection("priorityclasses.scheduling.k8s.io")
        self._runtimes = storage.collection("runtimeclasses.node.k8s.io")

    def admit_pod(self, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        """Complete a pod.

        Raises:
            StatusError: 403, a class does not exist, or the pod contradicts it.
        """
        strategies.add_tolerations(new["spec"])
        if old is not None:
            strategies.keep_priority(new, old)
            return
        spec, name = new["spec"], new["metadata"].get("name", "")
        self._admit_runtime(spec, name)
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

    def check_class(self, new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> None:
        """Check that only one PriorityClass is the default.

        Raises:
            StatusError: 403, another one is.
        """
        name = new["metadata"]["name"]
        names = [found["metadata"]["name"] for found in self._defaults()]
        others = [other for other in names if other != name]
        if new.get("globalDefault") and others:
            why = f"PriorityClass {others[0]} is already marked as default. Only one default can "
            raise forbidden("priorityclasses", "scheduling.k8s.io", name, f"{why}exist")

    def _defaults(self) -> list[dict[str, Any]]:
        found = [record.decode() for record in self._classes.records.values()]
        return [each for each in found if each.get("globalDefault")]

    def _admit_runtime(self, spec: dict[str, Any], pod: str) -> None:
        wanted, given, why = spec.get("runtimeClassName"), spec.get("overhead"), ""
        record = self._runtimes.records.get(wanted or "")
        found: dict[str, Any] = record.decode() if record is not None else {}
        overhead = (found.get("overhead") or {}).get("podFixed")
        scheduling = found.get("scheduling") or {}
        nodes = {**(scheduling.get("nodeSelector") or {}), **(spec.get("nodeSelector") or {})}
        if wanted and record is None:
            why = f'pod rejected: RuntimeClass "{wanted}" not found'
        elif given and overhead and given != overhead:
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        for name, value in (scheduling.get("nodeSelector") or {}).items():
            if nodes[name] != value:
                why = (
                    f"conflict: runtimeClass.scheduling.nodeSelector[{name}] = {value}; "
                    f"pod.spec.nodeSelector[{name}] = {nodes[name]}"
                )
        if why:
            raise forbidden("pods", "", pod, why)
        if overhead:
            spec["overhead"] = overhead
        if nodes:
            spec["nodeSelector"] = nodes
        kept = spec.get("tolerations") or []
        added = [each for each in scheduling.get("tolerations") or () if each not in kept]
        if added:
            spec["tolerations"] = [*kept, *added]

    def _of(self, spec: dict[str, Any], pod: str) -> tuple[int, str]:
        wanted = spec.get("priorityClassName", "")
        if wanted:
            record = self._classes.records.get(wanted)
            if record is None:
                raise forbidden("pods", "", pod, f"no PriorityClass with name {wanted} was found")
            found = record.decode()
            return found.get("value", 0), found.get("preemptionPolicy", _COMMON)
        defaults = self._defaults()
        if not defaults:
            return 0, _COMMON
        least = min(defaults, key=lambda found: int(found.get("value", 0)))
        spec["priorityClassName"] = least["metadata"]["name"]
        return least.get("value", 0), least.get("preemptionPolicy", _COMMON)
