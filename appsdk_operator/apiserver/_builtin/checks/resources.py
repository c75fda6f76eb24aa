"""Validation of resource names, requests and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors
from appsdk_operator.apiserver._values.status import FieldError

_CONTAINER: Final = ("cpu", "ephemeral-storage", "memory")
STANDARD: Final = frozenset(
    {
        *_CONTAINER,
        "configmaps",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "storage",
    }
)
"""Resource names without a domain."""


def quantity(name: str, value: str, path: str) -> Errors:
    """A quantity of a resource."""
    number = checks.amount_of(value)
    if number < 0:
        yield FieldError.invalid(path, value, "must be greater than or equal to 0")
    countable = name not in (*_CONTAINER, "storage") and not name.endswith(
        (".cpu", ".memory", "storage")
    )
    if countable and not _is_huge(name) and number != int(number):
        yield FieldError.invalid(path, value, "must be an integer")


def resource_name(name: str, path: str) -> Errors:
    """The name of any resource."""
    problems = list(checks.key(name, path))
    yield from problems
    if not problems and "/" not in name and name not in STANDARD and not _is_huge(name):
        detail = "must be a standard resource type or fully qualified"
        yield FieldError.invalid(path, name, detail)


def _container_resource(name: str, path: str) -> Errors:
    yield from resource_name(name, path)
    if "/" not in name and name not in _CONTAINER and not _is_huge(name):
        yield FieldError.invalid(path, name, "must be a standard resource for containers")


def _is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def _shares(name: str) -> bool:
    """Whether the resource can be overcommitted."""
    return name in _CONTAINER


def resources(given: Mapping[str, Any], path: str) -> Errors:
    """The ``resources`` of a container."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    for name, value in limits.items():
        at = f"{path}.limits[{name}]"
        yield from _container_resource(name, at)
        yield from quantity(name, value, at)
    for name, value in requests.items():
        at = f"{path}.requests[{name}]"
        yield from _container_resource(name, at)
        yield from quantity(name, value, at)
        if name in limits:
            more = checks.amount_of(value) - checks.amount_of(limits[name])
            if more and not _shares(name):
                detail = f"must be equal to {name} limit of {limits[name]}"
                yield FieldError.invalid(f"{path}.requests", value, detail)
            elif more > 0:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                yield FieldError.invalid(f"{path}.requests", value, detail)
        elif not _shares(name) and ("/" in name or _is_huge(name)):
            detail = "Limit must be set for non overcommitable resources"
            yield FieldError.required(f"{path}.limits", detail)
    names = {*limits, *requests}
    if any(map(_is_huge, names)) and not names & {"cpu", "memory"}:
        yield FieldError.forbidden(path, "HugePages require cpu or memory")
