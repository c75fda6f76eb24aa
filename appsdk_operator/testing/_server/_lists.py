"""Lists: which objects, as of when, and in pages.

A page's token names the revision of its list and the last key that was given. Later pages are the
state at that revision, so nothing is missing or twice whatever happens in between.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.resource._selectors import FieldSelector, LabelSelector
from appsdk_operator.testing._server._resources import ServedVersion
from appsdk_operator.testing._server._status import (
    FieldError,
    StatusError,
    bad_request,
    expired,
    invalid,
)
from appsdk_operator.testing._server._storage import HistoryGoneError, Record, Storage

__all__ = ["ListOptions", "Page", "Selection", "check_not_ahead", "list_page"]

_PAGE_GONE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
_TOO_OLD: Final = "The resourceVersion for the provided list is too old."


@attrs.frozen
class Selection:
    """Which objects of a resource are asked for."""

    namespace: str = ""
    labels: LabelSelector = attrs.field(factory=LabelSelector)
    fields: FieldSelector = attrs.field(factory=FieldSelector)

    @property
    def prefix(self) -> str:
        """What the keys of the objects start with."""
        return f"{self.namespace}/" if self.namespace else ""

    def filter(self) -> Callable[[Record], bool] | None:
        """What is to be asked of each object with that prefix; None when there is nothing."""
        if self.labels.empty and self.fields.empty:
            return None
        labels, fields = self.labels, self.fields
        if fields.empty:
            return lambda record: labels.matches(record.labels)
        return lambda record: labels.matches(record.labels) and _fields_match(fields, record)

    def includes(self) -> Callable[[Record], bool] | None:
        """What is to be asked of any object of the resource; None when there is nothing."""
        wanted = self.filter()
        if not self.namespace:
            return wanted
        namespace = self.namespace
        if wanted is None:
            return lambda record: record.namespace == namespace
        return lambda record: record.namespace == namespace and wanted(record)


def _fields_match(selector: FieldSelector, record: Record) -> bool:
    metadata = {"name": record.name, "namespace": record.namespace}
    if all(path.startswith("metadata.") for path in selector.paths):
        return selector.matches({"metadata": metadata})
    return selector.matches(record.decode())


@attrs.frozen(kw_only=True)
class ListOptions:
    """The query of a list, as far as it says when and how much."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""


@attrs.frozen
class Page:
    """A part of a list."""

    records: list[Record]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


def list_page(
    storage: Storage, served: ServedVersion, selection: Selection, options: ListOptions
) -> Page:
    """The page that was asked for.

    Raises:
        StatusError: 400 or 422 for options that contradict each other, 410 for a version or token
            that is too old, 504 for a version that is yet to come.
    """
    at, after = _start(storage, options)
    if at is not None:
        check_not_ahead(storage, at)
    collection = served.resource.collection
    revision = storage.revision if at is None else at
    # The present state needs no looking back, even where the ring is too short for it.
    past = None if at is None or at == storage.revision else at
    wanted = selection.filter()
    try:
        found: Iterator[Record] = collection.scan(selection.prefix, after=after, at=past)
        if wanted is not None:
            found = filter(wanted, found)
        if not options.limit:
            return Page(list(found), revision)
        records = list(islice(found, options.limit))
        rest = 0
        # With a selector the rest is not counted, as on the real server: only whether there is one.
        rest = sum(1 for _ in (found if wanted is None else islice(found, 1)))
    except HistoryGoneError:
        raise _too_old(storage, options, after) from None
    if not rest:
        return Page(records, revision)
    token = _encode_token(revision, records[-1].key)
    return Page(records, revision, token, rest if wanted is None else None)


def _start(storage: Storage, options: ListOptions) -> tuple[int | None, str]:
    """The revision to list at (None: now) and the key to go on after."""
    version = options.resource_version
    if options.match:
        _check_match(options)
    if options.continue_token:
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_token(options.continue_token)
        return (None if revision < 0 else revision), after
    if version in ("", "0"):
        return None, ""
    if options.match == "Exact" or (options.limit and not options.match):
        try:
            return parse_version(version), ""
        except StatusError as error:
            raise bad_request(f"invalid resource version: {error}") from None
    number = parse_version(version)
    check_not_ahead(storage, number)
    return None, ""


def _check_match(options: ListOptions) -> None:
    field, match = "resourceVersionMatch", options.match
    problem: FieldError | None = None
    if not options.resource_version:
        problem = FieldError.forbidden(
            field, "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    elif options.continue_token:
        problem = FieldError.forbidden(
            field, "resourceVersionMatch is forbidden when continue is provided"
        )
    elif match not in ("Exact", "NotOlderThan"):
        problem = FieldError.not_supported(field, match, ("Exact", "NotOlderThan", ""))
    elif match == "Exact" and options.resource_version == "0":
        problem = FieldError.forbidden(
            field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        )
    if problem is not None:
        raise invalid("ListOptions", "meta.k8s.io", "", [problem])


def parse_version(text: str) -> int:
    """The number in a resourceVersion of a query.

    Raises:
        StatusError: 500 as on the real server, it is none.
    """
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    raise StatusError(
        500,
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid '
        "syntax",
        reason="",
    )


def check_not_ahead(storage: Storage, revision: int) -> None:
    """Refuse a version that is yet to come.

    Raises:
        StatusError: 504 with the cause that clients know to wait for.
    """
    if revision > storage.revision:
        raise StatusError(
            504,
            f"Timeout: Too large resource version: {revision}, current: {storage.revision}",
            details={
                "causes": [
                    {
                        "reason": "ResourceVersionTooLarge",
                        "message": "Too large resource version",
                    }
                ]
            },
            retry_after=1,
        )


def _too_old(storage: Storage, options: ListOptions, after: str) -> StatusError:
    if not options.continue_token:
        return expired(_TOO_OLD)
    metadata = {"resourceVersion": str(storage.revision), "continue": _encode_token(-1, after)}
    return expired(_PAGE_GONE, metadata=metadata)


def _encode_token(revision: int, key: str) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"{key}\x00"}
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def _decode_token(text: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        content: Any = msgspec.json.decode(raw)
        version, revision, start = content["v"], content["rv"], content["start"]
        if version != "meta.k8s.io/v1" or type(revision) is not int or type(start) is not str:
            raise bad_request("continue key is not valid: incorrect encoded start resourceVersion")
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise bad_request("continue key is not valid") from None
    return revision, start.rstrip("\x00")
