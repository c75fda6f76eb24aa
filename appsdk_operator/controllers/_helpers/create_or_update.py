"""create_or_update and the like: create an object if it is missing, else write the differences."""

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
from appsdk_operator.controllers._helpers.guarded import ATTEMPTS, Getter, live_reader
from appsdk_operator.controllers._reconcile import check_ignored_result
from appsdk_operator.resource import (
    AnyObject,
    MutableObject,
    Object,
    create_merge_patch,
    equal_numbers,
    explain_frozen,
)
from appsdk_operator.runtime import settle
from appsdk_operator.runtime.validation import check_client, check_flag, check_text


class OperationResult(enum.Enum):
    """The effect of a write."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    UPDATED = "updated"
    UPDATED_STATUS = "updatedStatus"
    """Both the object and its status."""
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class Written(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """The effect of a write, and the object's new state on the server."""

    result: OperationResult
    object: Object[SpecT_co, StatusT_co]


if not TYPE_CHECKING:  # mypy knows no such line inside of a NamedTuple
    Written.__class_getitem__ = subscript


class Change(Protocol[SpecT, StatusT]):
    """Changes a mutable copy to the wanted state; may be ``async def``."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __call__(self, draft: MutableObject[SpecT, StatusT], /) -> Any:
        """Change ``draft``."""
        ...


_OBJECT_FIELDS = {"apiVersion", "kind", "metadata", "spec", "data", "stringData"}
"""Fields by which a mapping is recognised as a whole object."""
_SERVER_FIELDS = (
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
    """Create the object if it does not exist, else update it.

    Unlike controller-runtime's function of this name it does not fail after a concurrent write: a
    create of an existing name, and an update of an object that was changed or deleted since the
    read, are repeated from a fresh read, up to 10 times. With a cached client these reads are live.
    Nothing is written when ``mutate`` changes nothing.

    Args:
        client: reads and writes.
        obj: the kind, namespace and name of the object, and the initial content of a new one. It is
            not changed.
        mutate: changes a copy of the existing object, or of ``obj``, to the wanted state. It may be
            called several times, each time with another copy, and must depend on that only. It
            should set the fields that it owns and leave the others; it returns nothing.

    Returns:
        The result and the object. If nothing changed on the server, as when only the status of a
        kind with a status subresource was changed, the result is UNCHANGED.

    Raises:
        ValueError: ``obj`` has no name, or ``mutate`` changed name or namespace.
        TypeError: ``mutate`` is no function of one argument, or returned another object instead of
            changing its copy, or an error.
        Conflict, AlreadyExists: every try met a concurrent write.
        ApiError: any other refusal, and any failure of the first read.
    """

    def change(present: Object[SpecT, StatusT]) -> Written[SpecT, StatusT]:
        draft = _mutated(present, mutate)
        if equal_numbers(_content(draft), present.to_dict()):
            return Written(OperationResult.UNCHANGED, present)
        return _compared(present, client.update(draft))

    _check_mutate(mutate)
    return _retry_conflicts(client, obj, mutate, change, with_status=False)


def create_or_patch(
    client: ClientLike, obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    """:func:`create_or_update` by merge patches: one of the object, one of its status.

    The patches have the changed fields and the resource version. Lists are replaced as a whole, so
    the version prevents that they overwrite concurrent changes. The status of a new object is
    written too.

    Arguments and errors are those of :func:`create_or_update`; to change a status the kind needs a
    status subresource.

    Returns:
        The result, UPDATED_STATUS for both and UPDATED_STATUS_ONLY for the status alone, and the
        object. If the write of the status fails, the object has been written nevertheless.
    """
    has_patched = False

    def change(present: Object[SpecT, StatusT]) -> Written[SpecT, StatusT]:
        nonlocal has_patched
        draft = _mutated(present, mutate)
        fields = create_merge_patch(present.to_dict(), _content(draft))
        status = {name: fields.pop(name) for name in ("status",) if name in fields}
        now = present
        if fields:
            now = client.patch(
                obj.kind, obj.name, _with_resource_version(fields, now), namespace=now.namespace
            )
            # Remembered, in case the write of the status conflicts and all is repeated.
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
    """Server-side apply that reports whether it changed the object.

    It costs two requests, because the object is read first, uncached. A concurrent write between
    the two counts as a change.

    Args:
        client: reads and writes.
        obj: the fields that ``field_manager`` owns, and no others.
        field_manager: the field manager; may be empty if the client has one.
        force: take over fields of other managers instead of failing.

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
    missed: str | None = None
    is_created = False
    for attempt in range(ATTEMPTS):
        # A cache may not have the write that made the first attempt fail.
        present = _read(client if attempt == 0 else live_reader(client), obj)
        if present is not None and present.is_transformed:
            # It may lack what mutate looks at, and what an update would then remove.
            present = _read(live_reader(client), obj)
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
            # Deleted since the read. If it is there still, or for a create, something else is
            # missing: the namespace, the kind or its status subresource.
            if present is None or present.uid == missed:
                raise
            failure, missed = error, present.uid
    assert failure is not None
    raise failure


def _read(reader: Getter, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT] | None:
    try:
        return reader.get(obj.kind, obj.name, namespace=obj.namespace)
    except NotFound:
        return None


def _new(obj: AnyObject[SpecT, StatusT]) -> MutableObject[SpecT, StatusT]:
    draft = MutableObject(obj.kind, obj.to_dict())
    for field in _SERVER_FIELDS:
        draft.metadata.pop(field, None)
    return draft


def _content(draft: MutableObject) -> dict[str, Any]:
    """The content of a draft; without a copy, unless the kind writes typed values its own way."""
    return draft.data if draft.kind.rename is None else draft.to_dict()


def _mutated(
    obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> MutableObject[SpecT, StatusT]:
    draft = MutableObject(obj.kind, obj.to_dict())
    try:
        _check_changed(draft, settle(mutate(draft)))
    except AttributeError as error:
        explain_frozen(error)
        raise
    # Compared with obj, because a namespace that the client adds is unknown before the first read.
    if draft.key != obj.key:
        raise ValueError(
            f"mutate made {draft.kind.kind} {draft.key} of {obj.key}: it must not change name and "
            "namespace, for it would be another object; delete this one and create that"
        )
    if obj.resource_version:
        # So that a write fails if the object was changed since the read.
        draft.metadata["resourceVersion"] = obj.resource_version
    return draft


def _check_changed(draft: MutableObject, returned: object) -> None:
    """Refuse a returned object other than the draft, because it would not be written.

    Other values are by-products, such as that of ``dict.pop`` in a lambda.
    """
    if returned is None or returned is draft or returned is draft.data:
        return
    is_object = isinstance(returned, (Object, MutableObject)) or (
        isinstance(returned, Mapping) and bool(_OBJECT_FIELDS & returned.keys())
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
    # The server creates no new version without a difference.
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
