"""JSON patches, merge patches and strategic merge patches, with the real server's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource._patches import PatchError, apply_json_patch, apply_merge_patch
from appsdk_operator.resource._strategic import (
    DirectiveError,
    MergeKeyError,
    apply_strategic_merge_patch,
)
from appsdk_operator.testing._server import _decoding
from appsdk_operator.testing._server._builtin_types import DecodeError
from appsdk_operator.testing._server._merge_keys import merge_keys
from appsdk_operator.testing._server._resources import ServedVersion
from appsdk_operator.testing._server._status import FieldError, StatusError, bad_request, invalid

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "apply", "fitted"]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_MAX_OPERATIONS: Final = 10_000
_GO_NAMES: Final[dict[type, str]] = {
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
    dict: "object",
}


def apply(content_type: str, body: bytes, old: dict[str, Any], served: ServedVersion) -> Any:
    """What a patch in ``body`` makes of ``old``.

    Raises:
        StatusError: 400, 413, 422 or 500: it cannot be applied.
    """
    patch = _decoded(content_type, body)
    try:
        if content_type == JSON_PATCH:
            return apply_json_patch(old, patch)
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
    except PatchError:
        raise StatusError(
            422, "the server rejected our request due to an error in our request", details={}
        ) from None


def fitted(
    content_type: str, body: bytes, new: Any, served: ServedVersion, validation: str
) -> tuple[dict[str, Any], list[str]]:
    """The patched object in the form it is kept in, and what to warn of.

    Args:
        content_type: of the patch.
        body: the patch.
        new: the object with the patch applied.
        served: what it is an object of.
        validation: ``Strict`` refuses unknown and duplicate fields, ``Ignore`` says nothing.

    Raises:
        StatusError: 400 or 422, the patch makes something of it that it cannot be.
    """
    if not isinstance(new, dict):
        raise StatusError(
            422, "the server rejected our request due to an error in our request", details={}
        )
    strategic = content_type == STRATEGIC_PATCH
    unknown: list[str] = []
    made = new
    if _decoding.has_type(served):
        try:
            made, unknown = _decoding.read(served, new, converting=strategic)
        except DecodeError as error:
            raise _unfit(strategic, body, new, str(error)) from None
    if validation == "Ignore":
        return made, []
    told = _complaints(content_type, body, unknown)
    if told and validation == "Strict":
        why = f"strict decoding error: {', '.join(told)}"
        raise _unfit(strategic, body, new, why)
    return made, told


def _complaints(content_type: str, body: bytes, unknown: list[str]) -> list[str]:
    if content_type == JSON_PATCH:
        return [f'unknown field "{path}"' for path in unknown]
    told = _decoding.complaints_of(body, unknown)
    return told + [text for path in unknown if (text := f'unknown field "{path}"') not in told]


def _decoded(content_type: str, body: bytes) -> Any:
    prefix = "" if content_type == STRATEGIC_PATCH else "error decoding patch: "
    try:
        patch = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"{prefix}{error}") from None
    wanted: type[Any] = list if content_type == JSON_PATCH else dict
    if not isinstance(patch, wanted):
        type_ = "[]handlers.jsonPatchOp" if wanted is list else "map[string]interface {}"
        shown = _GO_NAMES.get(type(patch), "null")
        raise bad_request(f"{prefix}json: cannot unmarshal {shown} into Go value of type {type_}")
    if content_type == JSON_PATCH and len(patch) > _MAX_OPERATIONS:
        raise StatusError(
            413,
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got "
            f"{len(patch)}",
        )
    return patch


def _unfit(strategic: bool, body: bytes, new: dict[str, Any], why: str) -> StatusError:
    shown = _printed(json.loads(body)) if strategic else json.dumps(new, separators=(",", ":"))
    return invalid("", "", "", [FieldError.invalid("patch", shown, why)])


def _failed(message: str) -> StatusError:
    return StatusError(500, message, reason="")


def _printed(value: Any) -> str:
    """A value as Go prints it."""
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
