"""Places in answers, as cases name them: ``body.metadata.name``, ``events.*.type``, ``**.uid``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]


def split(path: str) -> Path:
    """The steps of a path; a step with dots stands in brackets: ``labels[a.b/c]``."""
    return tuple(a or b for a, b in re.findall(r"\[([^\]]*)\]|([^.\[\]]+)", path))


def get(value: Any, path: str) -> Any:
    """What stands there; None when nothing does."""
    for key in split(path):
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def matches(pattern: Path, path: Path) -> bool:
    """Whether a place is the one meant, or inside of it."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(matches(pattern[1:], path[at:]) for at in range(len(path) + 1))
    if not path or pattern[0] not in ("*", path[0]):
        return False
    return matches(pattern[1:], path[1:])


def without(value: Any, patterns: list[Path], path: Path = ()) -> Any:
    """The value without what stands at these places."""
    if isinstance(value, dict):
        return {
            key: without(item, patterns, (*path, key))
            for key, item in value.items()
            if not any(matches(pattern, (*path, key)) for pattern in patterns)
        }
    if isinstance(value, list):
        return [
            without(item, patterns, (*path, str(at)))
            for at, item in enumerate(value)
            if not any(matches(pattern, (*path, str(at))) for pattern in patterns)
        ]
    return value


def differences(one: Any, other: Any, path: Path = ()) -> Iterator[tuple[str, Any, Any]]:
    """Where two values differ, and what they have there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key, NOTHING), other.get(key, NOTHING), (*path, key))
    elif isinstance(one, list) and isinstance(other, list):
        for at in range(max(len(one), len(other))):
            yield from differences(
                one[at] if at < len(one) else NOTHING,
                other[at] if at < len(other) else NOTHING,
                (*path, str(at)),
            )
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield ".".join(path), one, other


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


NOTHING = _Nothing()
