"""Decoding of built-in objects into their types, with warnings about unknown and duplicate fields.

The warnings come in the order of the fields in the body.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, final

import msgspec

from appsdk_operator.apiserver._schema import builtin_types as types
from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.status import bad_request

_BY_BODY: Final = ("kind", "apiVersion")


def has_type(served: ServedVersion) -> bool:
    """Whether the version has a built-in type."""
    resource = served.resource
    return not resource.strategy.custom and types.has_type(
        resource.group, served.version, resource.kind
    )


def read(
    served: ServedVersion, obj: Any, *, converting: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The decoded object, and the paths of its unknown fields.

    Raises:
        DecodeError: a value has the wrong type.
    """
    resource = served.resource
    made, unknown = types.read(
        resource.group, served.version, resource.kind, obj, converting=converting
    )
    if served.normalize is not None:
        made = served.normalize(made)
    given = obj.get("metadata")
    if isinstance(given, dict) and given.get("managedFields") == []:
        # An empty entry resets the managed fields.
        made["metadata"]["managedFields"] = []
    return {name: made.pop(name) for name in _BY_BODY if name in made} | made, unknown


def fit(served: ServedVersion, obj: dict[str, Any]) -> list[str]:
    """Decode ``obj`` in place; return the paths of unknown fields.

    Raises:
        StatusError: 400, a value has the wrong type.
    """
    try:
        made, unknown = read(served, obj)
    except DecodeError as error:
        raise cannot_be_handled(served, served.resource.kind, str(error)) from None
    obj.clear()
    obj.update(made)
    return unknown


def cannot_be_handled(served: ServedVersion, kind: str, why: str) -> Exception:
    """400: the object cannot be decoded as its kind."""
    return bad_request(
        f'{kind} in version "{served.version}" cannot be handled as a {served.resource.kind}: {why}'
    )


def strict_decoding_error(served: ServedVersion, warnings: list[str]) -> Exception:
    """400: the warnings, as an error of strict field validation."""
    return cannot_be_handled(
        served, served.resource.kind, f"strict decoding error: {', '.join(warnings)}"
    )


def warnings_of(body: bytes, unknown: list[str]) -> list[str]:
    """The warnings about a JSON body, given the paths of its unknown fields."""
    if not _has_duplicates(body):
        return [f'unknown field "{path}"' for path in unknown]
    found: dict[str, None] = {}
    within = tuple(f"{path}{joint}" for path in unknown for joint in (".", "["))
    for path, again in _paths(_loads(body, _Pairs), ""):
        if path.startswith(within):
            continue  # duplicates within unknown fields do not count
        if again and path not in unknown:
            found[f'duplicate field "{path}"'] = None
        elif path in unknown:
            found[f'unknown field "{path}"'] = None
    return list(found)


@final
class _Pairs(list[tuple[str, Any]]):
    """The keys and values of an object, duplicates included."""


def _has_duplicates(body: bytes) -> bool:
    # What comes out of decoding and encoding has no duplicates.
    with contextlib.suppress(msgspec.DecodeError):
        if msgspec.json.encode(msgspec.json.decode(body)) == body:
            return False
    twice = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal twice
        twice = twice or len(dict(pairs)) != len(pairs)

    _loads(body, note)
    return twice


def _loads(body: bytes, hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    # The values are not needed, and Python refuses to convert thousands of digits.
    return json.loads(body, object_pairs_hook=hook, parse_int=str, parse_float=str)


def _paths(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """The path of each field in order, and whether it is a duplicate."""
    if isinstance(value, _Pairs):
        seen = set()
        for name, item in value:
            at = f"{path}.{name}" if path else name
            yield at, name in seen
            seen.add(name)
            yield from _paths(item, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
