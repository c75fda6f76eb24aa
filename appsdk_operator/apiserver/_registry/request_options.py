"""The options of requests: of deletes, from the body or the query, of writes and of watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from appsdk_operator.apiserver._builtin import protobuf
from appsdk_operator.apiserver._registry import bodies
from appsdk_operator.apiserver._registry.write_requests import DeleteOptions, Origin
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import FieldError, bad_request, invalid
from appsdk_operator.apiserver._values.users import User

_POLICIES: Final = ("Foreground", "Background", "Orphan")
_TYPES: Final[dict[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "orphanDependents": (bool, "bool"),
    "preconditions": (dict, "v1.Preconditions"),
    "dryRun": (list, "[]string"),
}
# Those that admission sees, in its order.
_SHOWN: Final = (
    "preconditions",
    "orphanDependents",
    "propagationPolicy",
    "dryRun",
    "gracePeriodSeconds",
)


def delete_options(
    user: User, query: Mapping[str, str], body: bytes, warnings: list[str]
) -> DeleteOptions:
    """The options of a delete request, with its origin.

    With a body, the query is ignored.

    Raises:
        StatusError: 400 or 422.
    """
    given = _of_body(body) if body.strip() else _of_query(query)
    shown = {name: given[name] for name in _SHOWN if given.get(name) is not None}
    return attrs.evolve(options_of(given), origin=Origin(user, shown, warnings))


def options_of(given: Mapping[str, Any]) -> DeleteOptions:
    """The options of a deletion, from a mapping whose values have the right types.

    Raises:
        StatusError: 422, a value is not valid.
    """
    policy, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    problems: list[FieldError] = []
    if policy is not None and orphan is not None:
        what = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(FieldError.invalid("propagationPolicy", policy, what))
    elif policy is not None and policy not in _POLICIES:
        supported = (*_POLICIES, "nil")
        problems.append(FieldError.not_supported("propagationPolicy", policy, supported))
    if problems:
        raise invalid("DeleteOptions", "meta.k8s.io", "", problems)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bodies.dry_run({}, given, "DeleteOptions"),
        propagation=policy,
        grace=given.get("gracePeriodSeconds"),
        cascades=orphan is False,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )


def _of_query(query: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if query.get("propagationPolicy"):
        given["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        given["orphanDependents"] = bodies.flag(query, "orphanDependents")
    if "gracePeriodSeconds" in query:
        given["gracePeriodSeconds"] = bodies.number(query, "gracePeriodSeconds")
    if "dryRun" in query:
        given["dryRun"] = [query["dryRun"]]
    return given


def _of_body(body: bytes) -> dict[str, Any]:
    if protobuf.is_encoded(body):
        body = bodies.as_json(body, protobuf.MEDIA_TYPE)
    try:
        given: Any = go_json.decode(body)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(given, dict):
        why = go_json.mismatch(given, "value", bodies.GO_TYPE_META)
        raise bad_request(f"couldn't get version/kind; json parse error: {why}")
    kind, version = given.get("kind") or "DeleteOptions", given.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    for name, (type_, go) in _TYPES.items():
        _check(given.get(name), type_, f"struct field DeleteOptions.{name}", go)
    for name, go in (("uid", "types.UID"), ("resourceVersion", "string")):
        place = f"struct field Preconditions.preconditions.{name}"
        _check((given.get("preconditions") or {}).get(name), str, place, go)
    return given


def _check(value: Any, type_: type, place: str, go: str) -> None:
    if value is not None and type(value) is not type_:
        raise bad_request(go_json.mismatch(value, place, go))


def wants_state(query: Mapping[str, str], *, streaming_lists: bool) -> bool:
    """Whether a watch asks to stream the initial state (``sendInitialEvents``).

    Args:
        query: the query of the watch.
        streaming_lists: whether the server supports it.

    Raises:
        StatusError: 422, the options contradict each other.
    """
    field, match = "resourceVersionMatch", query.get("resourceVersionMatch", "")
    streaming = "sendInitialEvents" in query
    problems: list[FieldError] = []
    if streaming and match != "NotOlderThan":
        what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(FieldError.forbidden(field, what))
    if match and not streaming:
        what = f"{field} is forbidden for watch unless sendInitialEvents is provided"
        problems.append(FieldError.forbidden(field, what))
    if match and query.get("continue"):
        what = f"{field} is forbidden when continue is provided"
        problems.append(FieldError.forbidden(field, what))
    if match not in ("", "NotOlderThan"):
        problems.append(FieldError.not_supported(field, match, ("NotOlderThan",)))
    if streaming and not streaming_lists:
        problems.append(
            FieldError.forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate "
                "is enabled",
            )
        )
    if problems:
        raise invalid("ListOptions", "meta.k8s.io", "", problems)
    return bodies.flag(query, "sendInitialEvents")


def write_origin(user: User, query: Mapping[str, str], warnings: list[str]) -> Origin:
    """The origin of a create, update or patch, with its options from the query.

    Admission webhooks see its user and its options.
    """
    options: dict[str, Any] = {}
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    for name in ("fieldManager", "fieldValidation"):
        if query.get(name):
            options[name] = query[name]
    return Origin(user, options, warnings)
