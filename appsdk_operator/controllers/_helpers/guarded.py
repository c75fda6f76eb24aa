"""Guarded patches: JSON patches that test their base and are repeated after concurrent writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from appsdk_operator.client import (
    ATTEMPTS,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    Patch,
)
from appsdk_operator.resource import Kind, Object

if TYPE_CHECKING:
    from appsdk_operator.client import JsonPatch

Operations = Sequence[dict[str, Any]]


class PatchAbandonedError(Exception):
    """Raised by a change that finds another state than it was made for: nothing is written."""

    def __init__(self, present: Object) -> None:
        """Abandoned because of the state ``present``."""
        super().__init__(f"{present!r} was changed by another process")
        self.present = present


class PatchClient(Protocol):
    """The part of a client that writes of finalizers need."""

    def get(self, kind: Kind, name: str, *, namespace: str = ...) -> Object:
        """The object's current state on the server."""
        ...

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = ...) -> Object:
        """Patch the object; returns its new state."""
        ...


def guarded_patch(
    obj: Object,
    change: Callable[[Object], Operations],
    *,
    read: Callable[[], Object],
    write: Callable[[JsonPatch], Object],
    removes: bool = False,
) -> Object | None:
    """Send the patch that ``change`` makes; after a concurrent write read the object and try again.

    A copy that a cache's transform made is only trusted in what it shows: a patch is made from what
    the server has.

    Args:
        obj: the object as the caller knows it.
        change: returns the operations for a state of the object, including tests that fail when
            that state is outdated; no operations: nothing has to be written.
        read: returns the object's current state on the server, not in a cache.
        write: sends a patch.
        removes: whether ``change`` also removes something, which a transformed copy may not show.

    Returns:
        The object's new state; None when it is gone, also if another one has its name.

    Raises:
        Conflict, Invalid: other clients kept writing, or the server rejected the patch itself.
        PatchAbandonedError: as ``change`` raised it.
    """
    present = obj
    failure: ApiError | None = None
    if obj.is_transformed and (removes or change(obj)):
        try:
            present = read()
        except NotFound:
            return None
    for _ in range(ATTEMPTS):
        if present.uid != obj.uid:
            return None
        operations = change(present)
        if not operations:
            return present
        from appsdk_operator.client import JsonPatch

        try:
            return write(JsonPatch(operations))
        except NotFound:
            return None
        except (Conflict, Invalid) as error:
            # A concurrent write, a deletion or a rejection: the object's current state tells which.
            failure = error
        before = present
        try:
            present = read()
        except NotFound:
            return None
        is_same = before.resource_version == present.resource_version
        if isinstance(failure, Invalid) and is_same:
            break
    assert failure is not None
    raise failure


def uid_guard(obj: Object) -> list[dict[str, Any]]:
    """The patch operation that tests the uid, so that no other object of the name is changed."""
    return [{"op": "test", "path": "/metadata/uid", "value": obj.uid}] if obj.uid else []
