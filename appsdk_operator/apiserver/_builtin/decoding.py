"""Built-in objects as the server takes them: read into their types, with what there is to tell.

What is told of a body is in the order of the body: each field that is unknown or there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, final

from appsdk_operator.apiserver._builtin import types
from appsdk_operator.apiserver._builtin.types import DecodeError
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.status import bad_request

__all__ = ["cannot_be_handled", "fit", "has_type", "read", "strict_decoding_error", "warnings_of"]

_BY_BODY: Final = ("kind", "apiVersion")


def has_type(served: ServedVersion) -> bool:
    """Whether objects of that version are read into a type."""
    resource = served.resource
    return not resource.strategy.custom and types.reads(
        resource.group, served.version, resource.kind
    )


def read(
    served: ServedVersion, obj: Any, *, converting: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """What is kept of ``obj``, and the paths of its unknown fields.

    Raises:
        DecodeError: a value that does not fit.
    """
    resource = served.resource
    made, unknown = types.read(
        resource.group, served.version, resource.kind, obj, converting=converting
    )
    given = obj.get("metadata")
    if isinstance(given, dict) and given.get("managedFields") == []:
        # It means: forget the owners.
        made["metadata"]["managedFields"] = []
    return {name: made.pop(name) for name in _BY_BODY if name in made} | made, unknown


def fit(served: ServedVersion, obj: dict[str, Any]) -> list[str]:
    """Bring ``obj`` itself into the form it is kept in; the paths of unknown fields.

    Raises:
        StatusError: 400, a value that does not fit.
    """
    try:
        made, unknown = read(served, obj)
    except DecodeError as error:
        raise cannot_be_handled(served, served.resource.kind, str(error)) from None
    obj.clear()
    obj.update(made)
    return unknown


def cannot_be_handled(served: ServedVersion, kind: str, why: str) -> Exception:
    """400: an object that cannot be what it was sent as."""
    return bad_request(
        f'{kind} in version "{served.version}" cannot be handled as a {served.resource.kind}: {why}'
    )


def strict_decoding_error(served: ServedVersion, warnings: list[str]) -> Exception:
    """400: what is only told of otherwise was to be refused."""
    return cannot_be_handled(
        served, served.resource.kind, f"strict decoding error: {', '.join(warnings)}"
    )


def warnings_of(body: bytes, unknown: list[str]) -> list[str]:
    """What to tell of a body in JSON, given the paths of its unknown fields."""
    if not _has_duplicates(body):
        return [f'unknown field "{path}"' for path in unknown]
    told: dict[str, None] = {}
    within = tuple(f"{path}{joint}" for path in unknown for joint in (".", "["))
    for path, again in _paths(_loads(body, _Pairs), ""):
        if path.startswith(within):
            continue  # nobody looks into what is unknown
        if again and path not in unknown:
            told[f'duplicate field "{path}"'] = None
        elif path in unknown:
            told[f'unknown field "{path}"'] = None
    return list(told)


@final
class _Pairs(list[tuple[str, Any]]):
    """The names and values of an object, also those that are there twice."""


def _has_duplicates(body: bytes) -> bool:
    twice = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal twice
        twice = twice or len(dict(pairs)) != len(pairs)

    _loads(body, note)
    return twice


def _loads(body: bytes, hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    # Values do not matter, and Python refuses to convert thousands of digits.
    return json.loads(body, object_pairs_hook=hook, parse_int=str, parse_float=str)


def _paths(value: Any, path: str) -> Iterator[tuple[str, bool]]:
    """The path of each field, as they come, and whether it was there before."""
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
