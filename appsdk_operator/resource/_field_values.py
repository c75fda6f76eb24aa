"""The values of fields by which API servers select objects of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.resource._selectors import field_getter

_Object = Mapping[str, Any]
_Value = Callable[[_Object], str]


def field_text(path: str, default: str = "") -> _Value:
    """The function from an object to the text at ``path``; ``default`` if there is none."""
    return lambda obj: field_getter(obj)(path) or default


def _source(event: _Object) -> str:
    get = field_getter(event)
    return get("source.component") or get("reportingComponent")


FIELD_VALUES: Final[Mapping[str, Mapping[str, _Value]]] = {
    "pods": {
        "spec.hostNetwork": field_text("spec.hostNetwork", "false"),
        # The name of former versions.
        "spec.host": field_text("spec.nodeName"),
        # Accepted, but without a value.
        "status.podIPs": lambda _pod: "",
    },
    "nodes": {"spec.unschedulable": field_text("spec.unschedulable", "false")},
    "replicationcontrollers": {"status.replicas": field_text("status.replicas", "0")},
    "jobs.batch": {"status.successful": field_text("status.succeeded", "0")},
    "events": {"source": _source},
}
"""By resource, the fields whose value is not the text at their path; a zero is absent in JSON."""


def selected_values(resource: str, obj: _Object) -> Callable[[str], str]:
    """The function from a path to the value by which an API server selects ``obj``.

    Args:
        resource: plural and group, ``jobs.batch``.
        obj: the object as nested mappings.
    """
    plain = field_getter(obj)
    special = FIELD_VALUES.get(resource)
    if special is None:
        return plain
    return lambda path: special[path](obj) if path in special else plain(path)
