"""Change a part of an object on the server, without touching what others wrote meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from appsdk_operator.client import (
    ApiError,
    ClientLike,
    Conflict,
    Invalid,
    JsonPatch,
    NamespacedClient,
    NotFound,
    Patch,
)
from appsdk_operator.resource import Kind, Object

__all__ = [
    "ATTEMPTS",
    "Getter",
    "Operations",
    "PatchClient",
    "guarded_patch",
    "live_reader",
    "uid_guard",
]

ATTEMPTS = 10
"""Writes that are tried while somebody else keeps writing."""

Operations = Sequence[dict[str, Any]]


class PatchClient(Protocol):
    """What finalizers need of a client."""

    def get(self, kind: Kind, name: str, *, namespace: str = ...) -> Object:
        """The object as it is on the server now."""
        ...

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = ...) -> Object:
        """Change the object; returns what became of it."""
        ...


def guarded_patch(
    obj: Object,
    change: Callable[[Object], Operations],
    *,
    read: Callable[[], Object],
    write: Callable[[JsonPatch], Object],
) -> Object | None:
    """Write what ``change`` makes of the object, anew if that came too late.

    Args:
        obj: the object as the caller knows it.
        change: gives the operations for a state of the object, tests included that fail when
            what they build upon is not so any more; none: there is nothing to do.
        read: the object as it is on the server, not in a cache.
        write: sends a patch.

    Returns:
        The object as it is now; None when it is gone, also when another one has its name.

    Raises:
        Conflict, Invalid: somebody else kept writing, or the server refused in earnest.
    """
    present: Object | None = obj
    failure: ApiError | None = None
    for _ in range(ATTEMPTS):
        if present is None or present.uid != obj.uid:
            return None
        operations = change(present)
        if not operations:
            return present
        try:
            return write(JsonPatch(operations))
        except NotFound:
            return None
        except (Conflict, Invalid) as error:
            # Written by somebody else since it was read, or deleted, or a real refusal: the
            # object as it is now tells which.
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
    """The test that it is still this object, and not another of its name."""
    return [{"op": "test", "path": "/metadata/uid", "value": obj.uid}] if obj.uid else []


class Getter(Protocol):
    """Reads one object."""

    def get(self, kind: Kind, name: str, *, namespace: str = ...) -> Object:
        """The object, or :class:`~appsdk_operator.client.NotFound`."""
        ...


def live_reader(client: Getter) -> Getter:
    """What reads from the server itself where ``client`` reads from a cache, else ``client``.

    A client with a cache says so by an attribute ``live``; wrappers have theirs as ``inner``. The
    namespace of a :class:`~appsdk_operator.client.NamespacedClient` around it goes on to be meant.
    """
    layer: Any = client
    namespace = ""
    while layer is not None:
        live: Any = getattr(layer, "live", None)
        if live is not None:
            return NamespacedClient(live, namespace) if namespace else live
        if isinstance(layer, NamespacedClient):
            namespace = namespace or layer.namespace
        layer = getattr(layer, "inner", None)
    return client


def _fits(client: ClientLike) -> PatchClient:
    return client
