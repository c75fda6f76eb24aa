"""The options of the verbs, and their form in queries and bodies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from appsdk_operator.client._request import query_of
from appsdk_operator.resource import Kind, encode_json
from appsdk_operator.runtime import StopSignal
from appsdk_operator.runtime.validation import (
    check_choice,
    check_flag,
    check_text,
    checked_seconds,
)

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelection, LabelSelection

FieldValidation = Literal["Ignore", "Warn", "Strict"]
"""The server's treatment of unknown and duplicate fields."""

ATTEMPTS = 10
"""The number of writes of an edit that are tried while other clients keep writing."""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""The treatment of the objects that a deleted object owns."""


class WriteOptions(TypedDict, total=False):
    """The options of create and update."""

    dry_run: bool
    field_manager: str
    field_validation: FieldValidation | None


class GetOptions(TypedDict, total=False):
    """The options of get."""

    namespace: str


class PatchOptions(GetOptions, WriteOptions, total=False):
    """The options of patch."""


class ApplyOptions(WriteOptions, total=False):
    """The options of apply."""

    force: bool


class SelectOptions(TypedDict, total=False):
    """The options that select objects of a kind."""

    namespace: str
    label_selector: LabelSelection | None
    field_selector: FieldSelection | None


class DeleteCollectionOptions(SelectOptions, total=False):
    """The options of delete_collection."""

    propagation: Propagation | None
    grace_period: float | None
    dry_run: bool


class DeleteOptions(TypedDict, total=False):
    """The options of delete."""

    namespace: str
    uid: str
    resource_version: str
    propagation: Propagation | None
    grace_period: float | None
    dry_run: bool


class ListOptions(SelectOptions, total=False):
    """The options of list."""

    limit: int


class ListAllOptions(ListOptions, total=False):
    """The options of list that only a :class:`Client` itself takes, and the others."""

    resource_version: str | None
    resource_version_match: str | None
    allow_inconsistent: bool
    stop: StopSignal | None


class ListPageOptions(ListOptions, total=False):
    """The options of list_page."""

    continue_token: str
    resource_version: str | None
    resource_version_match: str | None
    retry: bool
    metadata_only: bool
    stop: StopSignal | None


class WatchOptions(SelectOptions, total=False):
    """The options of watch."""

    resource_version: str | None
    timeout: float | None
    bookmarks: bool
    send_initial_events: bool
    silence_limit: float | None
    metadata_only: bool
    stop: StopSignal | None


class SubresourceUpdateOptions(WriteOptions, total=False):
    """The options of a subresource's update."""

    parent: Kind | None


class SubresourceCreateOptions(SubresourceUpdateOptions, total=False):
    """The options of a subresource's create."""

    name: str
    namespace: str


class SubresourceApplyOptions(SubresourceUpdateOptions, total=False):
    """The options of a subresource's apply."""

    force: bool


def write_query(
    dry_run: bool, field_manager: str, field_validation: FieldValidation | None
) -> list[tuple[str, str]]:
    """The query parameters of a write.

    Raises:
        TypeError, ValueError: an option is wrong; the text names it.
    """
    check_flag("dry_run", dry_run)
    check_text("field_manager", field_manager)
    check_choice("field_validation", field_validation, "Ignore", "Warn", "Strict")
    return query_of(
        dryRun="All" if dry_run else None,
        fieldManager=field_manager,
        fieldValidation=field_validation,
    )


def apply_query(
    dry_run: bool, field_manager: str, field_validation: FieldValidation | None, force: bool
) -> list[tuple[str, str]]:
    """The query parameters of an apply.

    Raises:
        TypeError: an option is wrong; the text names it.
        ValueError: the same, or there is no field manager.
    """
    check_flag("force", force)
    check_text("field_manager", field_manager)
    if not field_manager:
        raise ValueError(
            "apply needs field_manager=…, the owner of the fields: give it, or use a "
            "FieldOwnerClient"
        )
    return [*write_query(dry_run, field_manager, field_validation), *query_of(force=force)]


def delete_body(
    *,
    uid: str = "",
    resource_version: str = "",
    propagation: Propagation | None = None,
    grace_period: float | None = None,
    dry_run: bool = False,
) -> bytes | None:
    """The ``DeleteOptions`` of a delete; None if all have their defaults.

    Raises:
        ValueError: the grace period is negative, or the propagation unknown.
        TypeError: an option has another type; the text names it.

    >>> delete_body(uid="u1", grace_period=0)
    b'{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u1"},"gracePeriodSeconds":0}'
    """
    check_text("uid", uid)
    check_text("resource_version", resource_version)
    check_choice("propagation", propagation, "Background", "Foreground", "Orphan")
    check_flag("dry_run", dry_run)
    options: dict[str, Any] = {}
    preconditions = {
        key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value
    }
    if preconditions:
        options["preconditions"] = preconditions
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_period is not None:
        checked_seconds("grace_period", grace_period)
        options["gracePeriodSeconds"] = math.ceil(grace_period)
    if dry_run:
        options["dryRun"] = ["All"]
    if not options:
        return None
    return encode_json({"apiVersion": "v1", "kind": "DeleteOptions", **options})
