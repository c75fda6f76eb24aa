"""The fields that selectors of built-in kinds may name, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._storage.resources import SelectableFields
from appsdk_operator.resource import FIELD_VALUES, field_text

_Object = Mapping[str, Any]


def _paths(*paths: str) -> dict[str, Callable[[_Object], str]]:
    return {path: field_text(path) for path in paths}


_NAME: Final = frozenset({"metadata.name"})
_REFERENCE: Final = (
    *("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"),
)

FIELDS: Final[dict[str, SelectableFields]] = {
    "pods": SelectableFields(
        {
            **_paths(
                *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName"),
                *("spec.serviceAccountName", "status.phase", "status.podIP"),
                "status.nominatedNodeName",
            ),
            **FIELD_VALUES["pods"],
        }
    ),
    "nodes": SelectableFields(FIELD_VALUES["nodes"], metadata=_NAME),
    "namespaces": SelectableFields(_paths("status.phase"), metadata=_NAME),
    "secrets": SelectableFields(_paths("type")),
    "services": SelectableFields(_paths("spec.clusterIP", "spec.type")),
    "replicationcontrollers": SelectableFields(FIELD_VALUES["replicationcontrollers"]),
    "jobs.batch": SelectableFields(
        FIELD_VALUES["jobs.batch"],
        refusal='field label "{}" not supported for Job',
    ),
    "certificatesigningrequests.certificates.k8s.io": SelectableFields(
        _paths("spec.signerName"), metadata=_NAME
    ),
    "events": SelectableFields(
        {
            **_paths(*(f"involvedObject.{name}" for name in _REFERENCE)),
            **_paths("reason", "reportingComponent", "type"),
            **FIELD_VALUES["events"],
        }
    ),
    # They are stored as events of the core group.
    "events.events.k8s.io": SelectableFields(
        {
            **{f"regarding.{name}": field_text(f"involvedObject.{name}") for name in _REFERENCE},
            **_paths("reason", "type"),
            "reportingController": field_text("reportingComponent"),
        }
    ),
}
"""The selectable fields of the kinds that have any besides name and namespace."""
