"""The origin of a write: the user and the options that admission webhooks see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from appsdk_operator.apiserver._registry.write_requests import Origin
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.users import User

__all__ = ["delete_origin", "write_origin"]


def write_origin(user: User, query: Mapping[str, str], warnings: list[str]) -> Origin:
    """The origin of a create, update or patch, with its options from the query."""
    options: dict[str, Any] = {}
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    for name in ("fieldManager", "fieldValidation"):
        if query.get(name):
            options[name] = query[name]
    return Origin(user, options, warnings)


def delete_origin(user: User, query: Mapping[str, str], body: bytes, warnings: list[str]) -> Origin:
    """The origin of a deletion, with its options, already checked, from the body or the query."""
    options: dict[str, Any] = {}
    given: dict[str, Any] = dict(query)
    if body.strip():
        # With a body, the query is ignored.
        given = msgspec.json.decode(body)
    elif given.get("gracePeriodSeconds"):
        given["gracePeriodSeconds"] = parse_integer(given["gracePeriodSeconds"])
    if isinstance(given.get("dryRun"), str):
        given["dryRun"] = [given["dryRun"]]
    if isinstance(given.get("orphanDependents"), str):
        given["orphanDependents"] = given["orphanDependents"] not in ("false", "0")
    for name in ("preconditions", "orphanDependents", "propagationPolicy", "dryRun"):
        if given.get(name) is not None:
            options[name] = given[name]
    if isinstance(given.get("gracePeriodSeconds"), int):
        options["gracePeriodSeconds"] = given["gracePeriodSeconds"]
    return Origin(user, options, warnings)
