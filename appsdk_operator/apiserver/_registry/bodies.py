"""Request bodies and query parameters: decoding, limits, and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._builtin import decoding, protobuf
from appsdk_operator.apiserver._managed_fields import entries
from appsdk_operator.apiserver._registry.writes import WriteOptions
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._storage.lists import Selection
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.selectors import parse_fields, parse_labels
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    Verbatim,
    bad_request,
    invalid,
    unsupported_media_type,
)

BODY_LIMIT: Final = 3 * 1024 * 1024
_MEDIA_TYPES: Final = (
    "application/json",
    "application/yaml",
    protobuf.MEDIA_TYPE,
)
_NO_TYPE: Final = "couldn't get version/kind; json parse error"
_UNRECOGNIZED: Final = "the object provided is unrecognized (must be of type {})"
# The Go type that an object is decoded into first.
GO_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


def too_large() -> StatusError:
    """413: the body exceeds the limit."""
    return StatusError(413, f"Request entity too large: limit is {BODY_LIMIT}")


def as_json(body: bytes, content_type: str) -> bytes:
    """The body as JSON, converted from YAML or, for built-in kinds, from protobuf.

    Raises:
        StatusError: 400 or 415.
    """
    if content_type in ("", "application/json"):
        return body
    obj: Any = None
    if content_type == "application/yaml":
        try:
            obj, _ = go_json.read_yaml(body)
        except ValueError as error:
            raise bad_request(f"error converting YAML to JSON: yaml: {error}") from None
        return msgspec.json.encode({} if obj is None else obj)
    if content_type == protobuf.MEDIA_TYPE:
        try:
            obj = protobuf.decode(body)
        except ValueError as error:
            raise bad_request(f"the body is not valid protobuf: {error}") from None
    if obj is None:
        raise unsupported_media_type(_MEDIA_TYPES)
    return msgspec.json.encode(obj)


def decode_value(body: bytes, what: str) -> Any:
    """Read JSON.

    Raises:
        StatusError: 400, it is not JSON, or nested too deeply.
    """
    try:
        return go_json.decode(body)
    except ValueError as error:
        raise bad_request(f"{what}: {_NO_TYPE}: {error} ({go_json.summary(body)})") from None


def decode_typed(body: bytes, kind: str) -> dict[str, Any]:
    """Decode a JSON object whose ``kind`` and ``apiVersion`` are strings or missing.

    Args:
        body: the JSON.
        kind: the expected kind, for error texts.

    Raises:
        StatusError: 400, it is not an object, or one of them is not a string.
    """
    what = _UNRECOGNIZED.format(kind)
    obj = decode_value(body, what)
    obj = {} if obj is None else obj
    why = ""
    if not isinstance(obj, dict):
        why = go_json.mismatch(obj, "value", GO_TYPE_META)
    else:
        for name in obj:
            if name in ("kind", "apiVersion") and not isinstance(obj[name], str | None):
                why = why or go_json.mismatch(obj[name], f"struct field .{name}", "string")
    if why:
        raise bad_request(f"{what}: {_NO_TYPE}: {why} ({go_json.summary(body)})")
    assert isinstance(obj, dict)
    return obj


def decode_object(
    body: bytes, served: ServedVersion, *, expected: tuple[str, str], validation: str
) -> tuple[dict[str, Any], list[str]]:
    """Decode the object in a body; return it with warnings.

    Args:
        body: the JSON.
        served: the resource version that the client addresses.
        expected: the apiVersion and kind that the object must have.
        validation: for duplicate fields, and for unknown fields of built-in kinds: ``Strict``
            refuses them, ``Warn`` warns.

    Raises:
        StatusError: 400, it is not an object of that kind.
    """
    api_version, kind = expected
    obj = decode_typed(body, kind)
    custom = served.resource.strategy.custom
    if not custom and not (obj.get("apiVersion") and obj.get("kind")):
        obj = {"kind": kind, "apiVersion": api_version} | {
            name: value
            for name, value in obj.items()
            if value or name not in ("kind", "apiVersion")
        }
    for name in ("kind", "apiVersion"):
        if not obj.get(name):
            label = "Kind" if name == "kind" else name
            shown = body[:1024].decode(errors="replace")
            raise bad_request(
                f"{_UNRECOGNIZED.format(kind)}: Object '{label}' is missing in '{shown}' "
                f"({go_json.summary(body)})"
            )
    unknown: list[str] = []
    if decoding.has_type(served) and (obj["apiVersion"], obj["kind"]) == expected:
        try:
            obj, unknown = decoding.read(served, obj)
        except DecodeError as error:
            raise decoding.cannot_be_handled(served, kind, str(error)) from None
    else:
        _check_type(obj, served, api_version, kind)
    warnings = decoding.warnings_of(body, unknown) if validation != "Ignore" else []
    if warnings and validation == "Strict":
        raise decoding.strict_decoding_error(served, warnings)
    return obj, warnings


def _check_type(obj: dict[str, Any], served: ServedVersion, api_version: str, kind: str) -> None:
    if obj["apiVersion"] != api_version:
        raise bad_request(
            f"the API version in the data ({obj['apiVersion']}) does not match the expected API "
            f"version ({api_version})"
        )
    if obj["kind"] == kind:
        return
    if served.resource.strategy.custom:
        metadata = obj.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        problem = FieldError.invalid("kind", obj["kind"], f"must be {kind}")
        raise invalid(obj["kind"], served.resource.group, str(name), [problem])
    raise bad_request(
        f'{obj["kind"]} in version "{served.version}" cannot be handled as a {kind}: '
        f"converting ({obj['kind']}) to ({kind}): unknown conversion"
    )


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter: true unless missing, ``false`` or ``0``, as on the real server."""
    value = query.get(name)
    return value is not None and value.lower() not in ("false", "0")


def number(query: Mapping[str, str], name: str) -> int:
    """An integer parameter, 0 when it is missing.

    Raises:
        StatusError: 400, it is not an integer.
    """
    value = query.get(name)
    if value is None:
        return 0
    found = parse_integer(value)
    if found is not None:
        if abs(found) < 2**63:
            return found
        raise bad_request(f'strconv.ParseInt: parsing "{value}": value out of range')
    raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')


def dry_run(query: Mapping[str, str], body: Mapping[str, Any], kind: str) -> bool:
    """Whether this is a dry run.

    Raises:
        StatusError: 422, another value than ``All``.
    """
    value = query.get("dryRun")
    values = [value] if value is not None else body.get("dryRun") or []
    if not values:
        return False
    if values != ["All"]:
        shown = Verbatim(msgspec.json.encode(values).decode())
        problem = FieldError.not_supported("dryRun", shown, ("All",))
        raise invalid(kind, "meta.k8s.io", "", [problem])
    return True


def write_options(
    query: Mapping[str, str], kind: str, user_agent: str = "", *, applies: bool = False
) -> WriteOptions:
    """The options of a create, update or patch.

    Args:
        query: the query parameters.
        kind: the kind of the options, such as ``CreateOptions``.
        user_agent: the client's User-Agent, the default field manager.
        applies: whether it is a server-side apply, which must name its field manager.

    Raises:
        StatusError: 422, a value is not valid.
    """
    manager = query.get("fieldManager", "")
    problems = list(entries.manager_problems(manager))
    if applies and not manager:
        problems = [FieldError.required("fieldManager", "is required for apply patch")]
    elif kind == "PatchOptions" and not applies and "force" in query:
        why = "may not be specified for non-apply patch"
        problems.insert(0, FieldError.forbidden("force", why))
    if problems:
        raise invalid(kind, "meta.k8s.io", "", problems)
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        supported = ("", "Ignore", "Strict", "Warn")
        problem = FieldError.not_supported("fieldValidation", validation, supported)
        raise invalid(kind, "meta.k8s.io", "", [problem])
    return WriteOptions(
        dry_run=dry_run(query, {}, kind),
        field_validation=validation,
        manager=entries.manager_name(manager, user_agent),
    )


def selection(query: Mapping[str, str], served: ServedVersion, namespace: str) -> Selection:
    """The selection of a list, a watch or a deletecollection.

    Raises:
        StatusError: 400, a selector is malformed, or the resource doesn't support its field.
    """
    labels, fields = parse_labels(query), parse_fields(query)
    selectable = served.selectable
    for path in fields.paths:
        if path not in selectable.metadata and path not in selectable.values:
            raise bad_request(selectable.refused(path))
    return Selection(namespace, labels, fields)
