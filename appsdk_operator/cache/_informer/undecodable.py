"""The undecodable objects of a kind: each is reported once, until it is decodable or deleted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import final

from appsdk_operator.resource import DecodeError, Kind, Object, Undecodable, WrongKindError
from appsdk_operator.runtime import fork_safe

_MAX_NAMELESS = 1_000
"""A bound, because each new version of an object without a readable name looks like another one."""
_SHOWN = 3


@final
class UndecodableObjects:
    """The objects of an informer's kind that cannot be decoded. Thread-safe."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._lock = fork_safe(threading.Lock())
        # By namespace and name; by a digest of the bytes where the name cannot be read.
        self._items: dict[tuple[str, str] | int, Undecodable] = {}
        self._listed: set[tuple[str, str] | int] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def begin_list(self) -> None:
        """Note that a complete list begins."""
        self._listed = set()

    def finish_list(self) -> None:
        """Note that the list is complete; remove objects that it did not name as undecodable."""
        listed, self._listed = self._listed, None
        if listed is not None:
            self._drop([key for key in self._items if key not in listed])

    def note(self, items: Iterable[Undecodable]) -> Sequence[Exception]:
        """Add undecodable objects; returns an error for each new one."""
        problems: list[Exception] = []
        for item in items:
            key = _key(item)
            if self._listed is not None:
                self._listed.add(key)
            if key not in self._items:
                problems.append(self._problem(item))
                if item.name or len(self._items) < _MAX_NAMELESS:
                    with self._lock:
                        self._items[key] = item
        return problems

    def forget(self, gone: Iterable[Undecodable]) -> None:
        """Remove deleted objects."""
        self._drop(map(_key, gone))

    def note_decodable(self, objects: Iterable[Object]) -> None:
        """Remove objects that were decoded, in their present or their last state."""
        self._drop((obj.namespace, obj.name) for obj in objects)

    def text(self) -> str:
        """The text for a health check; empty when there are none."""
        with self._lock:
            count, shown = len(self._items), list(itertools.islice(self._items.values(), _SHOWN))
        if not count:
            return ""
        more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
        return f"; {count} cannot be read: {', '.join(map(str, shown))}{more}"

    def _drop(self, keys: Iterable[tuple[str, str] | int]) -> None:
        with self._lock:
            for key in keys:
                self._items.pop(key, None)

    def _problem(self, item: Undecodable) -> DecodeError:
        version = f" (resourceVersion {item.resource_version})" if item.resource_version else ""
        is_wrong_kind = isinstance(item.error, WrongKindError)
        problem = (WrongKindError if is_wrong_kind else DecodeError)(
            f"{self._kind.qualified_name}: {item}{version} cannot be read, so its last known state "
            "stays: "
            f"{item.error}; all others are followed; fix or delete it on the server"
        )
        problem.__cause__ = item.error
        return problem


def _key(item: Undecodable) -> tuple[str, str] | int:
    return (item.namespace, item.name) if item.name else item.digest
