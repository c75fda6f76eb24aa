"""create_or_update and the like: create an object if it is missing, else write the differences."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING, Generic, NamedTuple

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.client import (
    Change,
    ClientLike,
    NotFound,
    check_object,
    live_reader,
    modify_steps,
    run_steps,
)
from appsdk_operator.controllers._reconcile import check_ignored_result
from appsdk_operator.resource import AnyObject, MutableObject, Object
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


def create_or_update(
    client: ClientLike, obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    """Create the object if it does not exist, else update it.

    Unlike controller-runtime's function of this name it does not fail after a concurrent write. If
    it creates an existing name, or updates an object that was changed or deleted since the read, it
    reads again and retries, up to 10 times. With a cached client these reads are live. It writes
    nothing if ``mutate`` changes nothing.

    Args:
        client: reads and writes.
        obj: the kind, namespace and name of the object, and the initial content of a new one. It
            stays unchanged.
        mutate: changes a copy of the existing object, or of ``obj``, to the desired state. It may
            be called several times, each time with another copy, and must depend only on the copy.
            It should set the fields that it owns and leave the others; it returns nothing.

    Returns:
        The result and the object. If nothing changed on the server, the result is UNCHANGED; for
        example, ``mutate`` changed only the status, and the kind has a status subresource.

    Raises:
        ValueError: ``obj`` has no name, or ``mutate`` changed name or namespace.
        TypeError: ``mutate`` is not a function of one argument, or it returned an error, or another
            object instead of changing its copy.
        Conflict, AlreadyExists: every try met a concurrent write.
        ApiError: any other refusal, and any failure of the first read.
    """

    return _written(client, obj, mutate, by_update=True)


def create_or_patch(
    client: ClientLike, obj: AnyObject[SpecT, StatusT], mutate: Change[SpecT, StatusT]
) -> Written[SpecT, StatusT]:
    """:func:`create_or_update` by merge patches: one of the object, one of its status.

    The patches have the changed fields and the resource version. A merge patch replaces a list as a
    whole; the version prevents it from overwriting concurrent changes. For a new object the status
    is written, too. Through a :class:`DryRunClient` the result says what would be written, except
    for the status of a new object.

    For arguments and errors see :func:`create_or_update`. To change a status, the kind needs a
    status subresource.

    Returns:
        The result and the object. UPDATED_STATUS means the object and its status,
        UPDATED_STATUS_ONLY the status alone. If the write of the status fails, the object has been
        written nevertheless.
    """
    return _written(client, obj, mutate, by_update=False)


def apply(
    client: ClientLike,
    obj: AnyObject[SpecT, StatusT],
    *,
    field_manager: str = "",
    force: bool = False,
) -> Written[SpecT, StatusT]:
    """Server-side apply that reports whether it changed the object.

    It sends two requests, because it reads the object first, uncached. A concurrent write between
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
    # The server makes no new version without a difference.
    is_same = before.resource_version == after.resource_version
    return Written(OperationResult.UNCHANGED if is_same else OperationResult.UPDATED, after)


def _written(
    client: ClientLike,
    obj: AnyObject[SpecT, StatusT],
    mutate: Change[SpecT, StatusT],
    *,
    by_update: bool,
) -> Written[SpecT, StatusT]:
    if not callable(mutate):
        raise TypeError(
            f"mutate={mutate!r}: give a function that changes its argument, a draft of the object; "
            "to write an object as it is use apply(…), client.create or client.update"
        )
    check_client(client, "get", "create", "update", "patch")
    _check_name(obj)

    def change(draft: MutableObject[SpecT, StatusT]) -> object:
        returned = settle(mutate(draft))
        instead = "change its argument in place, and raise errors"
        check_ignored_result("mutate", returned, instead)
        return returned

    steps = modify_steps(
        obj.kind, obj.name, change, namespace=obj.namespace, absent=obj, by_update=by_update
    )
    outcome = run_steps(steps, client, live_reader(client))
    if outcome.is_created:
        result = OperationResult.CREATED
    elif outcome.has_changed_status:
        both = OperationResult.UPDATED_STATUS
        result = both if outcome.has_changed_body else OperationResult.UPDATED_STATUS_ONLY
    elif outcome.has_changed_body:
        result = OperationResult.UPDATED
    else:
        result = OperationResult.UNCHANGED
    return Written(result, outcome.object)


def _check_name(obj: AnyObject[SpecT, StatusT]) -> None:
    check_object(obj)
    if not obj.name:
        raise ValueError(
            f"a {obj.kind.kind} without a name cannot be found again: give it a name, or use "
            "client.create if the server generates the name"
        )
