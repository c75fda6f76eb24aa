"""The media types of ``Accept`` headers, in the order in which kube-apiserver tries them."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from typing import Final, TypeAlias

JSON: Final = "application/json"
YAML: Final = "application/yaml"
JSON_TYPES: Final = (JSON, "application/*", "*/*")
"""The types that JSON is sent for."""

_Types: TypeAlias = tuple[tuple[str, Mapping[str, str]], ...]


@functools.lru_cache(maxsize=256)
def accepted_types(accept: str) -> _Types:
    """The media types of the header with their parameters, the preferred ones first.

    By their quality; of the same quality, those with a wildcard come last.

    >>> [name for name, _ in accepted_types("*/*, application/json;q=0.1, application/yaml")]
    ['application/yaml', '*/*', 'application/json']
    """
    found = []
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        given = {key: value for key, _, value in (each.partition("=") for each in parameters)}
        found.append((name, given))
    return tuple(sorted(found, key=_rank))


def _rank(clause: tuple[str, Mapping[str, str]]) -> tuple[float, bool, bool]:
    name, given = clause
    try:
        quality = float(given.get("q", 1))
    except ValueError:
        quality = 1.0
    return -quality, name.startswith("*"), name.endswith("*")


def preferred_type(accept: str, types: Container[str]) -> str:
    """The first accepted media type that is among ``types``; empty if there is none."""
    return next((name for name, _ in accepted_types(accept) if name in types), "")
