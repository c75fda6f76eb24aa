"""Server-side apply: from the body of a request to the stored object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from appsdk_operator.apiserver._registry.write_requests import (
    Change,
    Target,
    WriteOptions,
    WriteResult,
)
from appsdk_operator.apiserver._registry.writes import Writer
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import (
    StatusError,
    bad_request,
    conflict,
    name_missing,
)

APPLY_PATCH: Final = "application/apply-patch+yaml"

_ATTEMPTS: Final = 100
_GO_TYPES: Final = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def configuration(body: bytes) -> tuple[Any, list[str]]:
    """The configuration to apply, from YAML or JSON, and a warning for each duplicate key.

    Raises:
        StatusError: 400, the body is neither.
    """
    try:
        value, repeated = _read(body)
    except ValueError as error:
        raise bad_request(
            f"error decoding YAML: error converting YAML to JSON: yaml: {error}"
        ) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {_GO_TYPES[type(value)]} into Go value of type map[string]interface {{}}"
        )
    return value, repeated


def _read(body: bytes) -> tuple[Any, list[str]]:
    # Most clients send JSON, which the JSON parser reads a hundred times faster than YAML's.
    if body.lstrip().startswith(b"{"):
        try:
            value = json.loads(body, object_pairs_hook=_refuse_duplicates)
        except ValueError:
            pass
        except RecursionError:
            # The YAML parser would fail for the same reason, seconds later.
            raise ValueError("nested too deep") from None
        else:
            go_json.check_values(value)
            return value, []
    return go_json.read_yaml(body)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is duplicate: the YAML parser finds its line")
    return found


def _duplicate_warnings(repeated: list[str], options: WriteOptions) -> list[str]:
    """The warnings about duplicate keys.

    Raises:
        StatusError: 400, the field validation is ``Strict``.
    """
    if not repeated or options.field_validation == "Ignore":
        return []
    if options.field_validation == "Strict":
        lines = "\n  ".join(["yaml: unmarshal errors:", *repeated])
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {lines}")
    return repeated


async def apply(
    writer: Writer,
    target: Target,
    body: bytes,
    options: WriteOptions,
    *,
    force: bool,
    subresource: str = "",
    guarded: Callable[[Change], Change] = lambda change: change,
    check_new: Callable[[dict[str, Any]], None] = lambda _obj: None,
) -> WriteResult:
    """Apply a configuration to an object, and create it if there is none.

    Args:
        writer: carries it out.
        target: the object.
        body: the configuration, as the client sent it.
        options: dry run, field validation and the field manager.
        force: whether to take over fields of other managers.
        subresource: ``"status"`` or another one that changes a part of the object only.
        guarded: wraps a change in the authorization checks for it.
        check_new: raises when the user may not create the object.

    Raises:
        StatusError: 400, 404, 409, 422 or 500: it cannot be applied.
    """
    config, repeated = configuration(body)
    fields = writer.fields.of(target.served, subresource)
    manager = options.manager or ""
    # The apply itself writes managedFields.
    options = attrs.evolve(options, manager=None, applied=True)

    async def change(old: dict[str, Any] | None) -> dict[str, Any]:
        new = await fields.applied(old, config, manager, force=force)
        warnings = _duplicate_warnings(repeated, options)
        if options.origin is not None:
            options.origin.warn(warnings)
        return new

    records = target.served.resource.collection.records
    for _ in range(_ATTEMPTS):
        there = target.key in records
        try:
            if there or subresource:
                result = await writer.update(
                    target, guarded(change), options, subresource=subresource, patch=True
                )
            else:
                new = _check_created(await change(None), target)
                check_new(new)
                result = await writer.create(target, new, options)
        except StatusError:
            # The object may have been created or deleted during a webhook call: then try again.
            if subresource or there == (target.key in records):
                raise
        else:
            return result
    raise conflict(target.served.resource.plural, target.served.resource.group, target.name)


def _check_created(obj: dict[str, Any], target: Target) -> dict[str, Any]:
    """Check an object that the apply creates.

    Raises:
        StatusError: 400 or 409, it has a uid or no name.
    """
    resource, metadata = target.served.resource, obj["metadata"]
    if metadata.get("uid"):
        raise conflict(
            resource.plural,
            resource.group,
            target.name,
            f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing "
            "object was found",
        )
    if not metadata.get("name"):
        raise name_missing(target.name)
    metadata.pop("resourceVersion", None)
    return obj
