"""JSON patches, merge patches and strategic merge patches, with the real server's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin import decoding
from appsdk_operator.apiserver._registry.json_patches import apply_as_go
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._schema.merge_keys import merge_keys
from appsdk_operator.apiserver._schema.metadata_decoding import decode_metadata
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    bad_request,
    invalid,
)
from appsdk_operator.resource import (
    DirectiveError,
    MergeKeyError,
    OrderError,
    PatchError,
    apply_merge_patch,
    apply_strategic_merge_patch,
)

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_MAX_OPERATIONS: Final = 10_000
_OPERATION: Final = ("op", "path", "from", "value")


def apply(content_type: str, body: bytes, old: dict[str, Any], served: ServedVersion) -> Any:
    """Apply the patch in ``body`` to ``old``.

    Raises:
        StatusError: 400, 413, 422 or 500: it cannot be applied.
    """
    patch = _decoded(content_type, body)
    try:
        if content_type == JSON_PATCH:
            return apply_as_go(old, patch)
        if content_type == MERGE_PATCH:
            return apply_merge_patch(old, patch)
        resource = served.resource
        keys = merge_keys(resource.group, served.version, resource.kind)
        return apply_strategic_merge_patch(old, patch, keys)
    except DirectiveError as error:
        directive = _printed(error.part.get("$patch"))
        raise _failed(f"unknown patch type: {directive} in map: {_printed(error.part)}") from None
    except MergeKeyError as error:
        if not isinstance(error.element, Mapping):
            raise _failed("list element types are not identical") from None
        shown = _printed(error.element)
        raise _failed(f"map: {shown} does not contain declared merge key: {error.key}") from None
    except OrderError as error:
        listed, order = _printed(error.listed), _printed(error.order)
        raise _failed(
            f"The order in patch list:\n{listed}\n doesn't match $setElementOrder list:\n{order}\n"
        ) from None
    except PatchError:
        raise StatusError(
            422, "the server rejected our request due to an error in our request", details={}
        ) from None


def decode_patched(
    content_type: str, body: bytes, new: Any, served: ServedVersion, validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Decode a patched object as its kind; return it with warnings.

    Args:
        content_type: of the patch.
        body: the patch.
        new: the object with the patch applied.
        served: its resource version.
        validation: ``Strict`` refuses unknown and duplicate fields, ``Ignore`` ignores them.

    Raises:
        StatusError: 400 or 422, the result is not an object of its kind.
    """
    if not isinstance(new, dict):
        raise StatusError(
            422, "the server rejected our request due to an error in our request", details={}
        )
    if served.resource.strategy.custom:
        return _decode_custom(content_type, body, new, served, validation)
    strategic = content_type == STRATEGIC_PATCH
    unknown: list[str] = []
    made = new
    if decoding.has_type(served):
        try:
            made, unknown = decoding.read(served, new, converting=strategic)
        except DecodeError as error:
            raise _invalid_patch(_shown_patch(strategic, body, new), str(error)) from None
    if validation == "Ignore":
        return made, []
    if strategic:
        # The real server finds them level by level.
        unknown.sort(key=lambda path: path.count("."))
    warnings = _warnings(content_type, body, unknown)
    if warnings and validation == "Strict":
        raise _invalid_patch(_shown_patch(strategic, body, new), _strict(warnings))
    return made, warnings


def _decode_custom(
    content_type: str, body: bytes, new: dict[str, Any], served: ServedVersion, validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Decode a patched custom resource in place."""
    _check_type(new, served)
    # Decoding drops the unknown fields, which a refusal shows.
    shown = _shown_object(new) if validation == "Strict" else ""
    try:
        new["metadata"], dropped = decode_metadata(new.get("metadata"))
        unknown = [f"metadata.{path}" for path in dropped]
        if served.structural_schema is not None:
            unknown += served.structural_schema.prune_and_default(new)
    except DecodeError as error:
        raise _invalid_patch(shown or _shown_object(new), str(error)) from None
    if validation == "Ignore":
        return new, []
    # Duplicates come first: the patch is decoded before the object.
    is_json = content_type == JSON_PATCH
    warnings = _operation_warnings(body) if is_json else decoding.warnings_of(body, [])
    warnings += [f'unknown field "{path}"' for path in unknown]
    if warnings and validation == "Strict":
        raise _invalid_patch(shown, _strict(warnings))
    return new, warnings


def _check_type(new: dict[str, Any], served: ServedVersion) -> None:
    """Refuse a changed kind or apiVersion of a custom resource."""
    resource = served.resource
    wanted = {"kind": resource.kind, "apiVersion": served.api_version}
    problems = [
        FieldError.invalid(name, new.get(name), f"must be {value}")
        for name, value in wanted.items()
        if new.get(name) != value
    ]
    if problems:
        metadata = new.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise invalid(str(new.get("kind")), resource.group, str(name), problems)


def _warnings(content_type: str, body: bytes, unknown: list[str]) -> list[str]:
    if content_type == JSON_PATCH:
        return _operation_warnings(body) + [f'unknown field "{path}"' for path in unknown]
    warnings = decoding.warnings_of(body, unknown)
    return warnings + [
        text for path in unknown if (text := f'unknown field "{path}"') not in warnings
    ]


def _operation_warnings(body: bytes) -> list[str]:
    """The warnings about unknown and duplicate fields of the operations in a JSON patch."""
    operations: list[Any] = json.loads(body) or []
    unknown = [
        f"[{index}].{name}"
        for index, operation in enumerate(operations)
        for name in operation
        if name not in _OPERATION
    ]
    return [f"json patch {warning}" for warning in decoding.warnings_of(body, unknown)]


def _decoded(content_type: str, body: bytes) -> Any:
    prefix = "" if content_type == STRATEGIC_PATCH else "error decoding patch: "
    try:
        patch = go_json.decode(body)
    except ValueError as error:
        raise bad_request(f"{prefix}{error}") from None
    is_list = content_type == JSON_PATCH
    if patch is None and content_type != STRATEGIC_PATCH:
        if is_list:
            return []
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, list if is_list else dict):
        wanted = "[]handlers.jsonPatchOp" if is_list else "map[string]interface {}"
        raise bad_request(f"{prefix}{go_json.mismatch(patch, 'value', wanted)}")
    for operation in patch if is_list else ():
        if not isinstance(operation, dict):
            why = go_json.mismatch(operation, "value", "handlers.jsonPatchOp")
            raise bad_request(f"{prefix}{why}")
    if content_type == JSON_PATCH and len(patch) > _MAX_OPERATIONS:
        raise StatusError(
            413,
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got "
            f"{len(patch)}",
        )
    return patch


def _shown_patch(strategic: bool, body: bytes, new: dict[str, Any]) -> str:
    return _printed(json.loads(body)) if strategic else json.dumps(new, separators=(",", ":"))


def _shown_object(new: dict[str, Any]) -> str:
    """A custom resource as Go encodes a map."""
    return json.dumps(new, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _strict(warnings: list[str]) -> str:
    return f"strict decoding error: {', '.join(warnings)}"


def _invalid_patch(shown: str, why: str) -> StatusError:
    return invalid("", "", "", [FieldError.invalid("patch", shown, why)])


def _failed(message: str) -> StatusError:
    return StatusError(500, message, reason="")


def _printed(value: Any) -> str:
    """A value as Go's ``%v`` prints it."""
    if isinstance(value, Mapping):
        inner = " ".join(f"{key}:{_printed(value[key])}" for key in sorted(value))
        return f"map[{inner}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_printed, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
