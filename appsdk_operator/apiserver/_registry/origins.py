"""Whose write a request is, and the options it came with, as webhooks are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from appsdk_operator.apiserver._registry.write_requests import Origin
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.users import User

__all__ = ["deleting", "writing"]


def writing(user: User, query: Mapping[str, str], warnings: list[str]) -> Origin:
    """The origin of a create, update or patch, whose options are in the query."""
    options: dict[str, Any] = {}
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    for name in ("fieldManager", "fieldValidation"):
        if query.get(name):
            options[name] = query[name]
    return Origin(user, options, warnings)


def deleting(user: User, query: Mapping[str, str], body: bytes, warnings: list[str]) -> Origin:
    """The origin of a deletion, whose options, which are valid, are in the body or the query."""
    options: dict[str, Any] = {}
    given: dict[str, Any] = dict(query)
    if body.strip():
        # Options are all in the body then.
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
