"""Events of things and a queue that writes down what is put into it."""

from __future__ import annotations

import threading
from typing import Any

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Kind, Object
from tests.cache.conftest import PATIENCE, THING, data, thing

CREATE, UPDATE, DELETE, RESYNC, GENERIC = ResourceAction


def obj(
    name: str = "a",
    version: int = 1,
    *,
    kind: Kind = THING,
    metadata: dict[str, Any] | None = None,
    **more: Any,
) -> Object:
    """A thing with more metadata than ``thing`` can have."""
    made = data(name, version, kind=kind, **more)
    made["metadata"].update(metadata or {})
    return Object.from_dict(kind, made)


def owned(name: str, *owners: dict[str, Any], version: int = 1, **more: Any) -> Object:
    return obj(name, version, metadata={"ownerReferences": list(owners)}, **more)


def created(name: str = "a", version: int = 1, *, initial: bool = False) -> Event:
    return Event(CREATE, thing(name, version), None, initial)


def updated(old: Object, new: Object) -> Event:
    return Event(UPDATE, new, old)


def one_of_each(of: Object, old: Object | None = None) -> dict[ResourceAction, Event]:
    """An event of each action for one object."""
    return {
        CREATE: Event(CREATE, of),
        UPDATE: Event(UPDATE, of, old or of),
        DELETE: Event(DELETE, of),
        RESYNC: Event(RESYNC, of),
        GENERIC: Event(GENERIC, of),
    }


class RecordingQueue:
    """A queue that keeps everything that is put into it, in order."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.calls: list[tuple[Any, int | None, float, Any]] = []

    def add(
        self,
        request: Any,
        *,
        priority: int | None = None,
        after: float = 0.0,
        reason: Any = None,
    ) -> None:
        with self.condition:
            self.calls.append((request, priority, after, reason))
            self.condition.notify_all()

    def add_rate_limited(
        self, request: Any, *, priority: int | None = None, reason: Any = None
    ) -> float:
        self.add(request, priority=priority, after=1.5, reason=reason)
        return 1.5

    @property
    def requests(self) -> list[Any]:
        with self.condition:
            return [call[0] for call in self.calls]

    @property
    def names(self) -> list[str]:
        return [str(request) for request in self.requests]

    @property
    def priorities(self) -> list[int | None]:
        with self.condition:
            return [call[1] for call in self.calls]

    @property
    def reasons(self) -> list[Any]:
        with self.condition:
            return [call[3] for call in self.calls]

    def wait_for(self, count: int) -> list[str]:
        with self.condition:
            assert self.condition.wait_for(lambda: len(self.calls) >= count, PATIENCE), self.names
        return self.names
