"""Adding and removing finalizers, in memory and on the server, without changing others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.client import ApiError, NotFound, live_reader
from appsdk_operator.controllers._helpers.finalizer_error import FinalizerError
from appsdk_operator.controllers._helpers.guarded import (
    Operations,
    PatchAbandonedError,
    PatchClient,
    guarded_patch,
    uid_guard,
)
from appsdk_operator.controllers._mutables import check_objects, mutable
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import safe_text
from appsdk_operator.runtime.validation import check_client, check_text

if TYPE_CHECKING:
    from appsdk_operator.client import JsonPatch

_Change: TypeAlias = Callable[[Object], list[dict[str, Any]]]

MAX_FINALIZER_NAME = 63
"""Characters of a finalizer's name after its domain."""
_MAX_PREFIX = 253
_NAME = lazy_pattern(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


_STRICT = ("", "apps", "autoscaling", "batch")
"""Groups whose finalizers pkg/apis/core validates more strictly than other metadata."""
_STANDARD = ("foregroundDeletion", "kubernetes", "orphan")


def check_finalizer(name: str, kind: Kind | None = None) -> str:
    """``name``, checked to be a valid finalizer.

    Args:
        name: the finalizer.
        kind: the kind of the object; in the groups core, apps, autoscaling and batch only the API's
            own finalizers may lack a domain.

    Raises:
        ValueError: no API server would accept it.
    """
    check_text("finalizer name", name)
    prefix, slash, rest = name.rpartition("/")
    is_prefix = _PREFIX.fullmatch(prefix) and len(prefix) <= _MAX_PREFIX
    if not _NAME.fullmatch(rest) or (slash and not is_prefix):
        raise ValueError(
            f"finalizer {name!r} is not a qualified name: use for example 'example.com/cleanup'"
        )
    if len(rest) > MAX_FINALIZER_NAME:
        raise ValueError(
            f"finalizer {name!r} is longer than {MAX_FINALIZER_NAME} characters: give a shorter "
            "one, with finalizer= if there is such an option"
        )
    if kind is not None and kind.group in _STRICT and not slash and name not in _STANDARD:
        raise ValueError(
            f"finalizer {name!r} has no domain, and for {kind} the API server refuses finalizers "
            f"without a domain: use for example 'example.com/{name}'"
        )
    return name


def add_finalizer(obj: MutableObject, name: str) -> bool:
    """Add the finalizer ``name`` to a mutable copy; the caller writes it.

    Returns:
        Whether the copy changed.

    Raises:
        ValueError: no API server would accept ``name``.
        ReadOnlyError: ``obj`` is not a mutable copy.
    """
    check_finalizer(name, mutable(obj).kind)
    if has_finalizer(obj, name):
        return False
    obj.finalizers.append(name)
    return True


def remove_finalizer(obj: MutableObject, name: str) -> bool:
    """Remove every occurrence of the finalizer ``name`` from a mutable copy; the caller writes it.

    Returns:
        Whether the copy changed.

    Raises:
        ReadOnlyError: ``obj`` is not a mutable copy.
    """
    if not has_finalizer(mutable(obj), name):
        return False
    obj.finalizers[:] = [other for other in obj.finalizers if other != name]
    return True


def has_finalizer(obj: Object | MutableObject, name: str) -> bool:
    """Whether the object has the finalizer ``name``."""
    check_text("name", name)
    check_objects(obj=obj)
    if isinstance(obj, Object):
        return name in obj.finalizers
    # Not through obj.finalizers, which would add an empty list.
    return name in ((obj.data.get("metadata") or {}).get("finalizers") or ())


def put_finalizer(
    client: PatchClient, obj: Object[SpecT, StatusT], name: str
) -> Object[SpecT, StatusT] | None:
    """Append the finalizer ``name`` on the server, without changing others.

    The patch tests the state that it is based on. After a concurrent write the kit reads the object
    and makes the patch again, up to 10 times. It writes nothing if the finalizer is there already.

    Returns:
        The object's new state; None when it is gone. An object that is being deleted accepts no new
        finalizers and is returned as it is.

    Raises:
        ValueError: no API server would accept ``name``.
        FinalizerError: the server refused, or other clients kept writing.
    """
    check_client(client, "get", "patch")
    check_objects(obj=obj)
    return Finalizers(obj.kind, client).put(obj, check_finalizer(name, obj.kind))


def take_finalizer_off(
    client: PatchClient, obj: Object[SpecT, StatusT], name: str
) -> Object[SpecT, StatusT] | None:
    """Remove the finalizer ``name`` on the server, with the same kind of patch as put_finalizer.

    Returns:
        The object's new state; None when it is gone.

    Raises:
        FinalizerError: the server refused, or other clients kept writing.
    """
    check_client(client, "get", "patch")
    check_objects(obj=obj)
    check_text("name", name, empty=False)
    return Finalizers(obj.kind, client).remove(obj, name)


@final
class Finalizers:
    """Writes the finalizers of one kind, by patches that test what was read. Thread-safe."""

    def __init__(self, kind: Kind, client: PatchClient) -> None:
        self._kind = kind
        self._client = client
        self._live = live_reader(client)

    def put(
        self,
        obj: Object[SpecT, StatusT],
        name: str,
        *,
        instead_of: Sequence[str] = (),
        on_reread: Callable[[Object], None] | None = None,
        also: _Change | None = None,
    ) -> Object[SpecT, StatusT] | None:
        """Add ``name``, replacing those of ``instead_of`` that are there.

        Args:
            obj: the object.
            name: the finalizer.
            instead_of: others. It takes the place of the first one, unless it is there already.
            on_reread: called with each newer state, after somebody else has written the object.
            also: returns further operations for a state of the object, with their own tests.

        Returns:
            The object's new state; None when it is gone. An object that is being deleted accepts no
            new finalizers and is returned as it is.

        Raises:
            FinalizerError: the server refused, or other clients kept writing.
        """

        def change(present: Object) -> list[dict[str, Any]]:
            if on_reread is not None and present is not obj:
                on_reread(present)
            if present.is_deleting:
                return []
            operations = added(present.finalizers)
            return operations if also is None else [*also(present), *operations]

        def added(finalizers: Sequence[str]) -> list[dict[str, Any]]:
            if name in finalizers:
                return _removals(finalizers, instead_of)
            places = [index for index, other in enumerate(finalizers) if other in instead_of]
            if places:
                path = f"/metadata/finalizers/{places[0]}"
                return [
                    *_removals_at(places[1:]),
                    {"op": "replace", "path": path, "value": name},
                ]
            if finalizers:
                return [{"op": "add", "path": "/metadata/finalizers/-", "value": name}]
            return [{"op": "add", "path": "/metadata/finalizers", "value": [name]}]

        return self._change(obj, change, f"put finalizer {name!r} on")

    def remove(self, obj: Object[SpecT, StatusT], *names: str) -> Object[SpecT, StatusT] | None:
        """Remove every occurrence of ``names``.

        Returns:
            The object's new state; None when it is gone.

        Raises:
            FinalizerError: the server refused, or other clients kept writing.
        """

        def change(present: Object) -> list[dict[str, Any]]:
            return _removals(present.finalizers, names)

        return self._change(obj, change, f"take finalizers {', '.join(names)} off")

    @staticmethod
    def removals(obj: Object, names: Collection[str]) -> list[dict[str, Any]]:
        """The operations that remove every occurrence of ``names`` from this very state."""
        return _removals(obj.finalizers, names)

    def release(
        self,
        obj: Object[SpecT, StatusT],
        change: Callable[[Object], Sequence[dict[str, Any]]],
    ) -> Object[SpecT, StatusT] | None:
        """Take finalizers off an object that is not being deleted.

        Args:
            obj: the object.
            change: returns the operations for a state of the object, with :meth:`removals` among
                them; if it returns none, nothing is written.

        Returns:
            The object's new state; None when it is gone. One that is being deleted is returned as
            it is.

        Raises:
            FinalizerError: the server refused, or other clients kept writing.
        """

        def guarded(present: Object) -> list[dict[str, Any]]:
            operations = [] if present.is_deleting else change(present)
            # A deletion that has begun meanwhile must fail this.
            return [_version_guard(present), *operations] if operations else []

        return self._change(obj, guarded, "take off finalizers that nothing needs")

    def read(self, obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT] | None:
        """The object's state on the server; None when it is gone, also if another has its name."""
        try:
            present = self._read(obj)
        except NotFound:
            return None
        return present if present.uid == obj.uid else None

    def is_gone(self, obj: Object) -> bool:
        """Whether the object is gone from the server; another one of the same name does not count.

        Raises:
            FinalizerError: it could not be read.
        """
        try:
            return self.read(obj) is None
        except Exception as error:
            raise FinalizerError(
                f"could not find out whether {obj!r} is gone: {safe_text(error)}",
                status=_status_of(error),
            ) from error

    def _change(
        self, obj: Object[SpecT, StatusT], change: _Change, what: str
    ) -> Object[SpecT, StatusT] | None:
        def guarded(present: Object) -> Operations:
            operations = change(present)
            return [*_guards(present), *operations] if operations else []

        sent: JsonPatch | None = None

        def write(patch: JsonPatch) -> Object:
            nonlocal sent
            sent = patch
            return self._client.patch(self._kind, obj.name, patch, namespace=obj.namespace)

        try:
            return guarded_patch(
                obj, guarded, read=lambda: self._read(obj), write=write, removes=True
            )
        except PatchAbandonedError:
            raise
        except Exception as error:
            raise FinalizerError(
                f"could not {what} {obj!r}: {safe_text(error)}",
                patch=sent,
                status=_status_of(error),
            ) from error

    def _read(self, obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        return self._live.get(self._kind, obj.name, namespace=obj.namespace)


def _status_of(error: Exception) -> int | None:
    return (error.status or None) if isinstance(error, ApiError) else None


def _guards(present: Object) -> list[dict[str, Any]]:
    guards = uid_guard(present)
    if present.finalizers:
        # Not the resourceVersion: a concurrent write of the status must not fail this patch.
        guards.append(
            {"op": "test", "path": "/metadata/finalizers", "value": list(present.finalizers)}
        )
    elif present.resource_version:
        guards.append(_version_guard(present))
    return guards


def _version_guard(present: Object) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": present.resource_version}


def _removals(finalizers: Sequence[str], names: Collection[str]) -> list[dict[str, Any]]:
    return _removals_at([index for index, other in enumerate(finalizers) if other in names])


def _removals_at(places: Sequence[int]) -> list[dict[str, Any]]:
    # From the end, so that each removal leaves the remaining indexes valid.
    return [{"op": "remove", "path": f"/metadata/finalizers/{index}"} for index in reversed(places)]
