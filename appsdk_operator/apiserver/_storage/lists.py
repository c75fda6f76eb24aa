"""Lists: selection, resourceVersion semantics, and pages.

A continue token holds the revision of the list and the last key returned. Later pages show the
state at that revision, so no object is missing or returned twice, whatever is written in between.
"""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import HistoryGoneError, Record, Storage
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    bad_request,
    expired,
    invalid,
)
from appsdk_operator.resource import FieldSelector, LabelSelector

_PAGE_GONE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
_ENCODED: Final = "meta.k8s.io/v1"
_BASE64: Final = frozenset(string.ascii_letters + string.digits + "-_")
_TOO_OLD: Final = "The resourceVersion for the provided list is too old."


@attrs.frozen
class Selection:
    """The objects of a resource that a list or watch selects."""

    namespace: str = ""
    labels: LabelSelector = attrs.field(factory=LabelSelector)
    fields: FieldSelector = attrs.field(factory=FieldSelector)

    @property
    def prefix(self) -> str:
        """The prefix of the keys of the selected objects."""
        return f"{self.namespace}/" if self.namespace else ""

    def reads_converted(self, served: ServedVersion) -> bool:
        """Whether a webhook must convert objects before they can be selected."""
        selected = set(self.fields.paths) - served.selectable.metadata
        return served.resource.converter is not None and bool(selected)

    def filter(self, served: ServedVersion) -> Callable[[Record], bool] | None:
        """The predicate for objects with the prefix; None if all are selected."""
        if self.labels.empty and self.fields.empty:
            return None
        labels = self.labels
        if self.fields.empty:
            return lambda record: labels.matches(record.labels)
        return lambda record: labels.matches(record.labels) and self._has_fields(served, record)

    def _has_fields(self, served: ServedVersion, record: Record) -> bool:
        found = {"metadata.name": record.name, "metadata.namespace": record.namespace}
        paths = self.fields.paths
        if not found.keys() >= set(paths):
            custom, values = served.resource.strategy.custom, served.selectable.values
            obj = served.decode(record) if custom else record.decode()
            found |= {path: values[path](obj) for path in paths if path not in found}
        return self.fields.matches(found.__getitem__)

    def includes(self, served: ServedVersion) -> Callable[[Record], bool] | None:
        """The predicate for any object of the resource; None if all are selected."""
        wanted = self.filter(served)
        if not self.namespace:
            return wanted
        namespace = self.namespace
        if wanted is None:
            return lambda record: record.namespace == namespace
        return lambda record: record.namespace == namespace and wanted(record)


@attrs.frozen(kw_only=True)
class ListOptions:
    """The query parameters of a list for resourceVersion and pages."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    is_stream: bool = False
    """Whether ``sendInitialEvents`` is set, which only watches support."""


@attrs.frozen
class Page:
    """A page of a list."""

    records: list[Record]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


async def list_page(
    storage: Storage, served: ServedVersion, selection: Selection, options: ListOptions
) -> Page:
    """The requested page of a list.

    Raises:
        StatusError: 400 or 422 for options that contradict each other, 410 for a version or token
            that is too old, 504 for a version in the future, 500 for a conversion that fails.
    """
    at, after = _start(storage, options)
    if at is not None:
        check_not_ahead(storage, at)
    collection = served.resource.collection
    revision = storage.revision if at is None else at
    # The current state needs no history.
    past = None if at is None or at == storage.revision else at
    wanted = selection.filter(served)
    try:
        found: Iterator[Record] = collection.scan(selection.prefix, after=after, at=past)
        if selection.reads_converted(served):
            scanned = list(found)
            await conversion.convert_records(served, scanned)
            found = iter(scanned)
        if wanted is not None:
            found = filter(wanted, found)
        # The real server answers version "0" from its watch cache, which has no pages.
        if not options.limit or (options.resource_version == "0" and not options.continue_token):
            return Page(list(found), revision)
        records = list(islice(found, options.limit))
        # As on the real server, a selector leaves the count of the rest unknown.
        rest = len(list(found if wanted is None else islice(found, 1)))
    except HistoryGoneError:
        raise _too_old(storage, options, after) from None
    if not rest:
        return Page(records, revision)
    token = _encode_token(revision, records[-1].key)
    return Page(records, revision, token, rest if wanted is None else None)


def _start(storage: Storage, options: ListOptions) -> tuple[int | None, str]:
    """The revision to list at (None: the present) and the key to continue after."""
    version = options.resource_version
    if options.match or options.is_stream:
        _check_match(options)
    if options.continue_token:
        if version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_token(options.continue_token)
        return (None if revision < 0 else revision), after
    if version in ("", "0"):
        return None, ""
    try:
        number = parse_version(version)
    except StatusError as error:
        raise bad_request(f"invalid resource version: {error}") from None
    if options.match == "Exact" or (options.limit and not options.match):
        return number, ""
    check_not_ahead(storage, number)
    return None, ""


def _check_match(options: ListOptions) -> None:
    field, match = "resourceVersionMatch", options.match
    problems: list[FieldError] = []

    def forbid(why: str) -> None:
        problems.append(FieldError.forbidden(field, why))

    if match and not options.resource_version:
        forbid("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and options.continue_token:
        forbid("resourceVersionMatch is forbidden when continue is provided")
    if match not in ("Exact", "NotOlderThan", ""):
        supported = ("Exact", "NotOlderThan", "")
        problems.append(FieldError.not_supported(field, match, supported))
    elif match == "Exact" and options.resource_version == "0":
        forbid('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if options.is_stream:
        what = "sendInitialEvents is forbidden for list"
        problems.append(FieldError.forbidden("sendInitialEvents", what))
    if problems:
        raise invalid("ListOptions", "meta.k8s.io", "", problems)


def parse_version(text: str) -> int:
    """Parse the resourceVersion of a query.

    Raises:
        StatusError: 500 as on the real server: it is not a number of 64 bits.
    """
    number = parse_integer(text) if text[:1] not in ("+", "-") else None
    if number is not None and number < 2**64:
        return number
    what = "value out of range" if number is not None else "invalid syntax"
    raise StatusError(
        500,
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {what}',
        reason="",
    )


def check_not_ahead(storage: Storage, revision: int) -> None:
    """Refuse a resourceVersion in the future.

    Raises:
        StatusError: 504 with the cause on which clients retry.
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
    content = {"v": _ENCODED, "rv": revision, "start": f"{key}\x00"}
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def _decode_token(text: str) -> tuple[int, str]:
    bad = next((at for at, char in enumerate(text) if char not in _BASE64), None)
    if bad is None and len(text) % 4 == 1:
        bad = len(text)
    if bad is not None:
        raise _bad_token(f"illegal base64 data at input byte {bad}")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        content: Any = json.loads(raw.decode(errors="replace"))
    except ValueError:
        raise _bad_token(go_json.syntax_error(raw)) from None
    version = content.get("v", "") if isinstance(content, dict) else ""
    if version != _ENCODED:
        raise _bad_token(f"server does not recognize this encoded version {version}")
    revision, start = content.get("rv", 0), content.get("start", "")
    if type(revision) is not int or not revision:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {version})")
    if type(start) is not str or not start:
        raise _bad_token(f"encoded start key empty (version {version})")
    return revision, start.rstrip("\x00")


def _bad_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
