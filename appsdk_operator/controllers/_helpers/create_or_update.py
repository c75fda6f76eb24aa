"""Bring an object into shape: create it if it is missing, write it if that changes anything."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    ClientLike,
    Conflict,
    MergePatch,
    NotFound,
    check_object,
)
from appsdk_operator.controllers._field_paths import is_same_json
from appsdk_operator.controllers._helpers.guarded import ATTEMPTS, Getter, live_reader
from appsdk_operator.controllers._reconcile import check_ignored_result
from appsdk_operator.resource import (
    AnyObject,
    MutableObject,
    Object,
    create_merge_patch,
    explain_frozen,
)
from appsdk_operator.runtime import settle
from appsdk_operator.runtime.validation import check_client, check_flag, check_text

__all__ = ["Change", "OperationResult", "Written", "apply", "create_or_patch", "create_or_update"]


class OperationResult(enum.Enum):
    """What became of an object."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    UPDATED = "updated"
    UPDATED_STATUS = "updatedStatus"
    """Both the object and its status."""
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class Written(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """What became of an object, and the object as it is on the server now."""

    result: OperationResult
    object: Object[SpecT_co, StatusT_co]


if not TYPE_CHECKING:  # mypy knows no such line inside of a NamedTuple
    Written.__class_getitem__ = subscript


class Change(Protocol[SpecT, StatusT]):
    """Brings a changeable copy into shape; may be ``async def``."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(self, draft: MutableObject[SpecT, StatusT], /) -> Any:
        """Change ``draft``."""
        ...


_MANIFEST = {"apiVersion", "kind", "metadata", "spec", "data", "stringData"}
"""What tells an object from one of its parts."""
_SERVERS_OWN = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)


def create_or_update(
    client: ClientLike, obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    """Create the object if there is none of its name, else change it in place.

    Unlike controller-runtime's function of this name it does not fail when somebody else was
    quicker: a create that finds the name taken, and an update of what was changed or deleted since
    it was read, are made anew from a fresh read, up to 10 times. Where the client reads from a
    cache, these reads are live. Nothing is written when ``mutate`` changes nothing.

    Args:
        client: reads and writes.
        obj: says which object: its kind, namespace and name. What else it holds is what a new one
            begins with. It is not changed.
        mutate: brings a copy of the present object, or of ``obj``, into shape. It may be called
            several times, each time with another copy: what it does must depend on that only. It
            sets what it wants to be so and leaves the rest, which others may have set; it returns
            nothing.

    Returns:
        The result and the object. Without a difference on the server, as when only the status of
        a kind with a status subresource was changed, the result is UNCHANGED.

    Raises:
        ValueError: ``obj`` has no name, or ``mutate`` changed name or namespace.
        TypeError: ``mutate`` is no function of one argument, or returned another object instead of
            changing its copy, or an error.
        Conflict, AlreadyExists: somebody else was quicker each time.
        ApiError: any other refusal, and any failure of the first read.
    """

    def change(present: Object[SpecT, StatusT]) -> Written[SpecT, StatusT]:
        draft = _mutated(present, mutate)
        if is_same_json(draft.data, present.to_dict()):
            return Written(OperationResult.UNCHANGED, present)
        return _compared(present, client.update(draft))

    _check_mutate(mutate)
    return _retry_conflicts(client, obj, mutate, change, with_status=False)


def create_or_patch(
    client: ClientLike, obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    """As :func:`create_or_update`, but by merge patches: one of the object, one of its status.

    The patches hold what changed and the resource version, so that lists, which are replaced whole,
    cannot overwrite what somebody else put into them. A new object's status is written, too.

    Args and errors are those of :func:`create_or_update`; for a status that changed the kind needs
    a status subresource.

    Returns:
        The result, UPDATED_STATUS for both and UPDATED_STATUS_ONLY for the status alone, and the
        object. When the write of the status fails, that of the object was made all the same.
    """
    has_patched = False

    def change(present: Object[SpecT, StatusT]) -> Written[SpecT, StatusT]:
        nonlocal has_patched
        draft = _mutated(present, mutate)
        fields = create_merge_patch(present.to_dict(), draft.data)
        status = {name: fields.pop(name) for name in ("status",) if name in fields}
        now = present
        if fields:
            now = client.patch(
                obj.kind, obj.name, _with_resource_version(fields, now), namespace=now.namespace
            )
            # Remembered, in case the status comes too late and all of it is done anew.
            has_patched = has_patched or now.resource_version != present.resource_version
        before = now.resource_version
        if status:
            patch = _with_resource_version(status, now)
            now = client.status.patch(obj.kind, obj.name, patch, namespace=now.namespace)
        if now.resource_version != before:
            both = OperationResult.UPDATED_STATUS
            return Written(both if has_patched else OperationResult.UPDATED_STATUS_ONLY, now)
        result = OperationResult.UPDATED if has_patched else OperationResult.UNCHANGED
        return Written(result, now)

    _check_mutate(mutate)
    return _retry_conflicts(client, obj, mutate, change, with_status=True)


def apply(
    client: ClientLike,
    obj: AnyObject[SpecT, StatusT],
    *,
    field_manager: str = "",
    force: bool = False,
) -> Written[SpecT, StatusT]:
    """Server-side apply that tells what became of it.

    The object is read before, live, so this costs two requests. What somebody else wrote between
    them is taken for ours.

    Args:
        client: reads and writes.
        obj: the fields that ``field_manager`` wants to be so, and no others.
        field_manager: who wants them; may be empty if the client brings one.
        force: take fields over from other managers instead of failing.

    Returns:
        CREATED, UPDATED or UNCHANGED, and the object.

    Raises:
        ValueError: ``obj`` has no name.
        Conflict: another manager owns a field, and ``force`` is not set.
        ApiError: any other refusal.
    """
    check_client(client, "get", "apply")
    check_flag("force", force)
    check_text("field_manager", field_manager)
    _check_name(obj)
    before: Object[SpecT, StatusT] | None = None
    with contextlib.suppress(NotFound):
        before = live_reader(client).get(obj.kind, obj.name, namespace=obj.namespace)
    after = client.apply(obj, field_manager=field_manager, force=force)
    if before is None or before.uid != after.uid:
        return Written(OperationResult.CREATED, after)
    return _compared(before, after)


def _retry_conflicts(
    client: ClientLike,
    obj: AnyObject[SpecT, StatusT],
    mutate: Change[SpecT, StatusT],
    change: Callable[[Object[SpecT, StatusT]], Written[SpecT, StatusT]],
    *,
    with_status: bool,
) -> Written[SpecT, StatusT]:
    check_client(client, "get", "create", "update", "patch")
    _check_name(obj)
    failure: ApiError | None = None
    is_created = False
    for attempt in range(ATTEMPTS):
        # A cache may not have what made the first attempt fail.
        present = _read(client if attempt == 0 else live_reader(client), obj)
        try:
            if present is None:
                draft = _mutated(_new(obj), mutate)
                has_status = with_status and bool(draft.get("status"))
                present = client.create(draft)
                is_created = True
                if not has_status:
                    return Written(OperationResult.CREATED, present)
            written = change(present)
            return Written(OperationResult.CREATED, written.object) if is_created else written
        except (AlreadyExists, Conflict) as error:
            failure = error
        except NotFound as error:
            # Deleted since it was read. Twice, or for a create, it is something else that is
            # missing: the namespace, the kind or its status subresource.
            if present is None or isinstance(failure, NotFound):
                raise
            failure = error
    assert failure is not None
    raise failure


def _read(reader: Getter, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT] | None:
    try:
        return reader.get(obj.kind, obj.name, namespace=obj.namespace)
    except NotFound:
        return None


def _new(obj: AnyObject[SpecT, StatusT]) -> MutableObject[SpecT, StatusT]:
    draft = MutableObject(obj.kind, obj.to_dict())
    for field in _SERVERS_OWN:
        draft.metadata.pop(field, None)
    return draft


def _mutated(
    obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> MutableObject[SpecT, StatusT]:
    draft = MutableObject(obj.kind, obj.to_dict())
    try:
        _check_changed(draft, settle(mutate(draft)))
    except AttributeError as error:
        explain_frozen(error)
        raise
    # A namespace that the client fills in is not known before the first read.
    if draft.key != obj.key:
        raise ValueError(
            f"mutate made {draft.kind.kind} {draft.key} of {obj.key}: it must not change name and "
            "namespace, for it would be another object; delete this one and create that"
        )
    if obj.resource_version:
        # What was read is what is changed: a write of something newer has to fail.
        draft.metadata["resourceVersion"] = obj.resource_version
    return draft


def _check_changed(draft: MutableObject, returned: object) -> None:
    """Refuse another object than the one that was to be changed, which nobody would write.

    What else a lambda returns, as that of ``dict.pop``, is a by-product.
    """
    if returned is None or returned is draft or returned is draft.data:
        return
    is_object = isinstance(returned, (Object, MutableObject)) or (
        isinstance(returned, Mapping) and bool(_MANIFEST & returned.keys())
    )
    instead = "change its argument in place, and raise what failed"
    if is_object:
        raise TypeError(
            f"mutate returned {type(returned).__name__}, which would not be written: {instead}"
        )
    check_ignored_result("mutate", returned, instead)


def _compared(
    before: Object[SpecT, StatusT], after: Object[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    # The server makes no new version of what does not differ.
    is_same = before.resource_version == after.resource_version
    return Written(OperationResult.UNCHANGED if is_same else OperationResult.UPDATED, after)


def _with_resource_version(fields: Mapping[str, Any], obj: Object) -> MergePatch:
    metadata = {**(fields.get("metadata") or {}), "resourceVersion": obj.resource_version}
    return MergePatch({**fields, "metadata": metadata})


def _check_mutate(mutate: object) -> None:
    if not callable(mutate):
        raise TypeError(
            f"mutate={mutate!r}: give a function that changes its argument, a draft of the object; "
            "to write an object as it is use apply(…), client.create or client.update"
        )


def _check_name(obj: AnyObject[SpecT, StatusT]) -> None:
    check_object(obj)
    if not obj.name:
        raise ValueError(
            f"a {obj.kind.kind} without a name cannot be found again: give it a name, or use "
            "client.create for one whose name the server generates"
        )
