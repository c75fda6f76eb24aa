"""Checks of custom resources beyond value validation: list types, embedded objects, scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._schema.metadata_decoding import decode_metadata
from appsdk_operator.apiserver._schema.pruning import EMBEDDED
from appsdk_operator.apiserver._values import names as _names
from appsdk_operator.apiserver._values.go_text import GO_TYPES
from appsdk_operator.apiserver._values.names import NameStyle
from appsdk_operator.apiserver._values.status import FieldError

Visitor = Callable[[Any, str, list[FieldError]], None]
"""Called with a value, its path and the list of errors to extend."""

_LIST_TYPE: Final = "x-kubernetes-list-type"
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


def _compile_visitor(
    schema: Mapping[str, Any], find: Callable[[Mapping[str, Any]], Visitor | None]
) -> Visitor | None:
    """A visitor that applies what ``find`` returns for each schema; None without checks."""
    own = find(schema)
    children: dict[str, Visitor] = {}
    for name, child in (schema.get("properties") or {}).items():
        if (below := _compile_visitor(child, find)) is not None:
            children[name] = below
    additional = schema.get("additionalProperties")
    other = _compile_visitor(additional, find) if isinstance(additional, Mapping) else None
    items = schema.get("items")
    each = _compile_visitor(items, find) if isinstance(items, Mapping) else None
    if own is None and not children and other is None and each is None:
        return None

    def visit(value: Any, path: str, errors: list[FieldError]) -> None:
        if own is not None:
            own(value, path, errors)
        if type(value) is dict:
            for name, item in value.items():
                if (child := children.get(name)) is not None:
                    child(item, f"{path}.{name}" if path else name, errors)
                elif other is not None:
                    other(item, f"{path}[{name}]", errors)
        elif type(value) is list and each is not None:
            for index, item in enumerate(value):
                each(item, f"{path}[{index}]", errors)

    return visit


# -- list types ----------------------------------------------------------------------------


def list_type_checks(schema: Mapping[str, Any]) -> Visitor | None:
    """The check for duplicate items in sets and duplicate keys in maps."""
    return _compile_visitor(schema, _list_type)


def _list_type(schema: Mapping[str, Any]) -> Visitor | None:
    match schema.get(_LIST_TYPE):
        case "set":
            return _check_set
        case "map":
            names = tuple(schema.get("x-kubernetes-list-map-keys") or ())
            return lambda value, path, errors: _check_map(value, names, path, errors)
        case _:
            return None


def _duplicates(identities: list[bytes]) -> Iterator[int]:
    """The indexes at which an identity occurs for the second time."""
    seen: dict[bytes, int] = {}
    for index, identity in enumerate(identities):
        seen[identity] = times = seen.get(identity, 0) + 1
        if times == 2:
            yield index


def _check_set(value: Any, path: str, errors: list[FieldError]) -> None:
    if isinstance(value, list) and len(value) > 1:
        errors += [
            FieldError.duplicate(f"{path}[{index}]", value[index])
            for index in _duplicates([_canonical(item) for item in value])
        ]


def _check_map(value: Any, names: tuple[str, ...], path: str, errors: list[FieldError]) -> None:
    if not isinstance(value, list):
        return
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            detail = "must be an object for an array of list-type map"
            errors.append(FieldError.invalid(f"{path}[{index}]", item, detail))
            return
    keys = [{name: item[name] for name in names if name in item} if item else {} for item in value]
    errors += [
        FieldError.duplicate(f"{path}[{index}]", keys[index])
        for index in _duplicates([_canonical(key) for key in keys])
    ]


# -- embedded objects ----------------------------------------------------------------------


def embedded_object_checks(schema: Mapping[str, Any]) -> Visitor | None:
    """The checks of type and metadata of embedded objects."""
    return _compile_visitor(schema, lambda part: _check_embedded if part.get(EMBEDDED) else None)


def _check_embedded(value: Any, path: str, errors: list[FieldError]) -> None:
    if not isinstance(value, dict):
        return
    below = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name not in value:
            errors.append(FieldError.required(f"{below}{name}"))
        elif not value[name]:
            errors.append(FieldError.invalid(f"{below}{name}", "", "must not be empty"))
    version = value.get("apiVersion")
    if isinstance(version, str) and version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        errors.append(FieldError.invalid(f"{below}apiVersion", version, detail))
    kind = value.get("kind")
    if isinstance(kind, str) and kind:
        errors += [
            FieldError.invalid(f"{below}kind", kind, f"{_MIXED}{problem}")
            for problem in _names.label_problems(kind.lower())
        ]
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        named = {**metadata, "name": metadata.get("name") or "fakename"}
        for error in _metadata.validate(named, NameStyle.PATH_SEGMENT):
            errors.append(attrs.evolve(error, field=f"{below}{error.field}"))


_NO_TEXT: Final = "must be a string"
_MIXED: Final = "may have mixed case, but should otherwise match: "


def metadata_coercion(
    schema: Mapping[str, Any],
) -> Callable[[dict[str, Any], list[str]], None] | None:
    """A function that drops unknown metadata fields of embedded objects and reports them.

    It raises :class:`DecodeError` for fields of the wrong type. None without embedded objects.
    """
    dropped: list[str] = []

    def one(value: Any, path: str, _errors: list[FieldError]) -> None:
        if isinstance(value, dict):
            _coerce(value, path, dropped)

    visit = _compile_visitor(schema, lambda part: one if part.get(EMBEDDED) else None)
    if visit is None:
        return None

    def coerce(obj: dict[str, Any], unknown: list[str]) -> None:
        dropped.clear()
        visit(obj, "", [])
        unknown += dropped

    return coerce


def _coerce(value: dict[str, Any], path: str, dropped: list[str]) -> None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            raise DecodeError(str(FieldError.invalid(f"{path}.{name}", value[name], _NO_TEXT)))
    if "metadata" not in value:
        return
    metadata = value["metadata"]
    try:
        decoded, unknown = decode_metadata(metadata)
    except DecodeError as error:
        problem = FieldError.invalid(f"{path}.metadata", metadata, str(error))
        raise DecodeError(str(problem)) from None
    dropped += [f"{path}.metadata.{name}" for name in unknown]
    value["metadata"] = {name: item for name, item in decoded.items() if item != []}


# -- replicas ------------------------------------------------------------------------------


def scale_problems(obj: Any, scale: Mapping[str, Any], *, spec: bool) -> Iterator[FieldError]:
    """The errors of the replica counts and the selector that the scale subresource reads."""
    names = ["specReplicasPath"] if spec else []
    for name in [*names, "statusReplicasPath"]:
        path = scale.get(name) or ""
        value, problem = _value_at(obj, path, int, "int64")
        if problem:
            yield FieldError.invalid(path, 0, problem)
        elif value < 0:
            yield FieldError.invalid(path, value, "should be a non-negative integer")
        elif value > 2**31 - 1:
            detail = f"should be less than or equal to {2**31 - 1}"
            yield FieldError.invalid(path, value, detail)
    selector = scale.get("labelSelectorPath")
    if selector:
        _value, problem = _value_at(obj, selector, str, "string")
        if problem:
            yield FieldError.invalid(selector, "", problem)


def _value_at(obj: Any, path: str, kind: type, go_name: str) -> tuple[Any, str]:
    """The value at a path, and the problem if it has the wrong type."""
    value = obj
    segments = path.removeprefix(".").split(".")
    for index, segment in enumerate(segments):
        if not isinstance(value, dict):
            return None, _accessor(segments[:index], value, "map[string]interface {}")
        if segment not in value:
            return kind(), ""
        value = value[segment]
    if not isinstance(value, kind) or isinstance(value, bool):
        return None, _accessor(segments, value, go_name)
    return value, ""


def _accessor(segments: list[str], value: Any, wanted: str) -> str:
    shown = "<nil>" if value is None else value
    return (
        f".{'.'.join(segments)} accessor error: {shown} is of the type "
        f"{GO_TYPES[type(value)]}, expected {wanted}"
    )
