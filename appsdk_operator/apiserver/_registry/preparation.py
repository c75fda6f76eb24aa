"""Preparation of an object for the storage: metadata, pruning and defaults, validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from appsdk_operator.apiserver._builtin import decoding
from appsdk_operator.apiserver._registry.write_requests import Target, WriteOptions
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._schema.metadata_decoding import decode_metadata
from appsdk_operator.apiserver._values.status import (
    FieldError,
    check_name,
    check_namespace,
    invalid,
)


def check_metadata(target: Target, obj: dict[str, Any]) -> list[str]:
    """Decode the metadata of ``obj``, and check it against the request's path.

    Returns:
        The paths of unknown fields, which are dropped.

    Raises:
        StatusError: 400, they don't fit.
    """
    resource = target.served.resource
    try:
        metadata, unknown = decode_metadata(obj.get("metadata"))
    except DecodeError as error:
        raise decoding.cannot_be_handled(target.served, resource.kind, str(error)) from None
    obj["metadata"] = metadata
    if target.name:
        check_name(metadata, target.name)
    if resource.namespaced:
        check_namespace(metadata, target.namespace)
        metadata["namespace"] = target.namespace
    else:
        metadata.pop("namespace", None)
    return [f"metadata.{path}" for path in unknown]


def prune_and_default(
    target: Target, obj: dict[str, Any], options: WriteOptions, unknown: list[str]
) -> list[str]:
    """Prune unknown fields and fill in defaults; return the warnings.

    Args:
        target: its address.
        obj: the object, which is changed in place.
        options: the field validation.
        unknown: the paths of unknown fields that were dropped before.

    Raises:
        StatusError: 400, a value has the wrong type, or a field is unknown and validation strict.
    """
    served = target.served
    structure = served.structural_schema
    if structure is None:
        if options.origin is not None and decoding.has_type(served):
            return [f'unknown field "{path}"' for path in decoding.fit(served, obj)]
        return []
    nulls = list(_nulls(obj)) if options.applied else []
    try:
        dropped = unknown + structure.prune_and_default(obj)
    except DecodeError as error:
        raise decoding.cannot_be_handled(served, served.resource.kind, str(error)) from None
    stored = served.resource.versions[served.resource.storage_version]
    if (
        stored is not served
        and stored.structural_schema is not None
        and served.to_storage is None
        and served.resource.converter is None
    ):
        # A field that the storage version does not have is not stored.
        stored.structural_schema.prune_and_default(obj)
        structure.prune(obj)
    for place, name in nulls:
        place.setdefault(name, None)
    warnings = [f'unknown field "{path}"' for path in dropped]
    if not warnings or options.field_validation == "Ignore":
        return []
    if options.field_validation == "Strict":
        raise decoding.strict_decoding_error(served, warnings)
    return warnings


def _nulls(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Each null in ``value``, as the object that contains it and its key."""
    if isinstance(value, dict):
        for name, item in value.items():
            if item is None:
                yield value, name
            else:
                yield from _nulls(item)
    elif isinstance(value, list):
        for item in value:
            yield from _nulls(item)


def validate(
    target: Target,
    new: dict[str, Any],
    old: dict[str, Any] | None,
    warnings: list[str],
    subresource: str = "",
) -> None:
    """Validate an object before it is stored.

    Args:
        target: its address.
        new: the new object.
        old: the stored object; None on create.
        warnings: warnings for the client; more are added.
        subresource: the subresource that is written.

    Raises:
        StatusError: 422, with a cause for each rule.
    """
    resource = target.served.resource
    errors = list(_metadata.validate(new["metadata"], resource.strategy.name_style))
    if old is not None:
        errors += _metadata.validate_update(new["metadata"], old["metadata"])
    structure = target.served.structural_schema
    if structure is not None:
        status_only = subresource == "status"
        warnings += structure.validate(new, old, errors, status_only=status_only)
    elif resource.group not in ("apiextensions.k8s.io", "apiregistration.k8s.io"):
        errors += _metadata.validate_finalizers(new["metadata"])
    # A binding sets fields that updates must not change.
    if subresource != "binding":
        # What a resize may not change was taken from the old object.
        before = new if subresource == "resize" else old
        errors += resource.strategy.validate(new, before)
        for path, shown in resource.strategy.immutable.items():
            value = _at(new, path)
            if before is not None and value != _at(before, path):
                errors.append(FieldError.invalid(shown, value, "field is immutable"))
    if errors:
        name = new["metadata"].get("name", "")
        group = resource.strategy.error_group
        group = resource.group if group is None else group
        problem = invalid(resource.kind, group, name, errors)
        problem.warnings += warnings
        raise problem


def _at(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for name in path.split("."):
        value = (value or {}).get(name)
    return value
