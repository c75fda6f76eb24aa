"""Changes of an object as the smallest patches, repeated after concurrent writes.

The mechanism is a generator of steps: it decides what is asked of the server, and does no I/O.
:func:`run_steps` performs the steps in the calling thread, ``AsyncClient`` on an event loop.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, final

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api.options import ATTEMPTS
from appsdk_operator.client._api.protocols import Change, Verbs
from appsdk_operator.client._errors import AlreadyExists, ApiError, Conflict, NotFound
from appsdk_operator.resource import (
    AnyObject,
    Kind,
    MergeClash,
    MergePatch,
    MutableObject,
    Object,
    ObjectKey,
    check_kind,
    create_merge_patch,
    explain_frozen,
    is_older_version,
    merge_changes,
)
from appsdk_operator.runtime import StopSignal, get_logger, present_clock, random_of, settle
from appsdk_operator.runtime.validation import check_text

_log = get_logger("appsdk_operator.client")

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
SERVER_FIELDS = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""The metadata that the server sets."""
_LARGEST_WHOLE = 2**53
"""Below it, floats have every whole number."""
_OBJECT_FIELDS = {"apiVersion", "kind", "metadata", "spec", "data", "stringData"}
"""Fields by which a mapping is recognised as a whole object."""

_T = TypeVar("_T")


class Performer(Protocol):
    """What performs the steps. On an event loop the results are awaitable."""

    @property
    def client(self) -> Any:
        """A client."""
        ...

    @property
    def live(self) -> Any:
        """One that reads from the server."""
        ...

    def call(self, change: Callable[..., Any], draft: MutableObject) -> Any:
        """Call a function of the user."""
        ...

    def pause(self, seconds: float) -> Any:
        """Wait."""
        ...


Step: TypeAlias = Callable[[Performer], Any]
Steps: TypeAlias = Generator[Step, Any, _T]


class _InThread(msgspec.Struct, frozen=True):
    """Performs steps in the calling thread."""

    client: Verbs
    live: Any

    def call(self, change: Callable[..., Any], draft: MutableObject) -> Any:
        return settle(change(draft))

    def pause(self, seconds: float) -> None:
        StopSignal().wait(seconds)


def run_steps(steps: Steps[_T], client: Verbs, live: Any) -> _T:
    """Perform ``steps`` in this thread, and return their result."""
    performer = _InThread(client, live)
    try:
        step = next(steps)
        while True:
            try:
                answer = step(performer)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: _T = end.value
        return result


class Outcome(msgspec.Struct, frozen=True):
    """The effect of a change."""

    object: Object
    """The object's state after it."""
    is_created: bool = False
    has_changed_body: bool = False
    has_changed_status: bool = False


def modify_steps(
    kind: Kind[SpecT, StatusT],
    name: str,
    change: Change[SpecT, StatusT],
    *,
    namespace: str = "",
    absent: AnyObject[SpecT, StatusT] | None = None,
    by_update: bool = False,
) -> Steps[Outcome]:
    """The steps of :meth:`Client.modify`.

    Args:
        kind, name, change, namespace: as there.
        absent: what a missing object is made of; default: it is an error.
        by_update: replace the object as a whole, without its status, instead of patching it.
    """
    check_kind(kind)
    check_text("name", name)
    check_text("namespace", namespace)
    if not callable(change):
        raise TypeError(
            f"change={change!r}: give a function that changes its argument, a draft of the object"
        )
    writing = Writing(kind, name, namespace)
    made: Object | None = None
    while True:
        present: Object | None = made
        if made is None:
            present = yield from writing.read()
        made = None
        if present is not None:
            is_made = by_update or absent is not None
            draft = MutableObject(kind, present.to_dict()) if is_made else draft_of(present, kind)
        elif absent is not None:
            draft = _new_draft(absent)
        else:
            raise writing.absent
        # What it raises is its own: only the refusal of a write is a reason for another attempt.
        yield from _change(draft, change)
        try:
            if present is None:
                made = yield from writing.create(draft)
                # After a dry run there is no object whose status could be written.
                if by_update or not draft.get("status") or not made.resource_version:
                    return Outcome(made, is_created=True)
            elif by_update:
                return (yield from writing.update(present, draft))
            else:
                return (yield from writing.patch(present, content_of(draft, plain(present))))
        except (AlreadyExists, Conflict, NotFound) as error:
            yield from writing.after(error)


@final
class Writing:
    """The reads and writes of one change, which end when a write is accepted or given up."""

    def __init__(self, kind: Kind[Any, Any], name: str, namespace: str) -> None:
        self._kind = kind
        self._name = name
        self._namespace = namespace
        self._failures = 0
        self._present: Object | None = None
        self._missing: NotFound | None = None
        self.absent: NotFound = NotFound(name)
        """Why the last read found nothing."""
        # Of one object: another of its name, made meanwhile, has nothing of what was written.
        self._uid = ""
        self._is_created = False
        self._has_changed_body = False
        # It is not written again when the status has to be.
        self._has_written_body = False

    # Reading.

    def read(self, *, live: bool = False) -> Steps[Object | None]:
        """The current state, unless ``live`` the first time from the cache; None without one.

        Raises:
            NotFound: the very object was not found in the attempt before. So its namespace, its
                kind or its subresource is missing.
        """
        # A cache may not have the write that made the first attempt fail, and a transformed copy
        # may lack what the change looks at.
        present: Object | None = None
        try:
            if not (live or self._failures):
                present = yield self._get("client")
            if present is None or present.is_transformed:
                present = yield self._get("live")
        except NotFound as error:
            self.absent = error
            return None
        assert present is not None
        missing, last = self._missing, self._present
        if missing is not None and last is not None and last.uid == present.uid:
            raise missing
        return present

    def _get(self, reader: str) -> Step:
        kind, name, namespace = self._kind, self._name, self._namespace
        return lambda by: getattr(by, reader).get(kind, name, namespace=namespace)

    # Writing.

    def create(self, draft: MutableObject) -> Steps[Object]:
        """Create the object, without its status."""
        self._present = None
        made: Object = yield lambda by: by.client.create(draft)
        self._uid = made.uid
        self._is_created = self._has_written_body = True
        return made

    def update(self, present: Object, draft: MutableObject) -> Steps[Outcome]:
        """Replace the object, if the draft differs."""
        self._present = now = present
        before = plain(present)
        if create_merge_patch(before, content_of(draft, before)):
            draft.metadata["resourceVersion"] = present.resource_version
            now = yield lambda by: by.client.update(draft)
        return Outcome(now, has_changed_body=_is_changed(present, now))

    def patch(self, present: Object, wanted: dict[str, Any]) -> Steps[Outcome]:
        """Write the differences between two states: those of the body, then those of the status."""
        self._present = now = present
        if present.uid != self._uid:
            self._uid = present.uid
            self._is_created = self._has_changed_body = self._has_written_body = False
        fields = create_merge_patch(plain(present), wanted)
        status = {name: fields.pop(name) for name in ("status",) if name in fields}
        if fields and not self._has_written_body:
            now = yield self._patch(fields, now)
            self._has_written_body = True
            self._has_changed_body = _is_changed(present, now)
        written = now
        if status:
            try:
                now = yield self._patch(status, now, "status")
            except ApiError as error:
                if self._has_changed_body and not isinstance(error, (Conflict, NotFound)):
                    error.add_note("the other fields of the object were written before")
                raise
        has_both = status and written is not present
        is_dry = has_both and now.resource_version == present.resource_version
        return Outcome(
            _with_status_of(written, now) if is_dry else now,
            is_created=self._is_created,
            has_changed_body=self._has_changed_body,
            has_changed_status=bool(status) and _is_changed(written, now, status=True),
        )

    def _patch(self, fields: dict[str, Any], present: Object, subresource: str = "") -> Step:
        # Lists are replaced as a whole: without the version that would undo changes of others.
        metadata = {**fields.get("metadata", {}), "resourceVersion": present.resource_version}
        patch = MergePatch({**fields, "metadata": metadata})

        def send(by: Performer) -> Any:
            target = by.client.subresource(subresource) if subresource else by.client
            return target.patch(self._kind, self._name, patch, namespace=self._namespace)

        return send

    def merged(
        self, before: dict[str, Any], ours: dict[str, Any], present: Object
    ) -> dict[str, Any]:
        """The current state with the changes from ``before`` to ``ours`` that are to be written.

        Raises:
            Conflict: others have changed the same fields.
        """
        theirs = plain(present)
        if self._has_written_body:
            before, ours = ({**theirs, "status": each["status"]} for each in (before, ours))
        try:
            merged: dict[str, Any] = merge_changes(before, ours, theirs)
        except MergeClash as clash:
            raise Conflict(
                f"the edit of {present!r} is not written: since it was read, others have changed "
                f"{clash}",
                status=409,
                reason="Conflict",
            ) from None
        return merged

    def after(self, error: ApiError) -> Steps[None]:
        """Wait before the next attempt.

        Raises:
            ApiError: there is none.
        """
        self._failures += 1
        self._missing = error if isinstance(error, NotFound) else None
        if self._missing and self._present is None:
            raise error  # a create: its namespace or its kind is missing
        if self._failures >= ATTEMPTS:
            raise error
        if self._failures > 1:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failures)
            pause = longest * random_of(present_clock()).uniform(0.5, 1.0)
            yield lambda by: by.pause(pause)


def draft_of(present: Object, kind: Kind[Any, Any]) -> MutableObject[Any, Any]:
    """A draft whose status, without a class, can be changed by key although there is none yet."""
    draft = MutableObject(kind, present.to_dict())
    if kind.status is None and draft.get("status") is None:
        draft["status"] = {}  # as long as it is empty nothing is written
    return draft


def _new_draft(absent: AnyObject) -> MutableObject:
    draft = MutableObject(absent.kind, absent.to_dict())
    for field in SERVER_FIELDS:
        draft.metadata.pop(field, None)
    return draft


def _change(draft: MutableObject, change: Change) -> Steps[None]:
    """Let ``change`` change the draft."""
    key = draft.key
    try:
        returned = yield lambda by: by.call(change, draft)
    except AttributeError as error:
        explain_frozen(error)
        raise
    _check_returned(draft, returned)
    check_key(draft, key)


def check_key(draft: MutableObject, key: ObjectKey) -> None:
    if draft.key != key:
        raise ValueError(
            f"a change made {draft} of {key}: it must not change name and namespace, because it "
            "would be another object; delete this one and create the other"
        )


def _check_returned(draft: MutableObject, returned: object) -> None:
    """Refuse what a change returns and nobody would look at.

    Other values are by-products, such as that of ``dict.pop`` in a lambda.
    """
    if returned is None or returned is draft or returned is draft.data:
        return
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TypeError("the change has a yield, so none of its code ran: leave the yield out")
    is_object = isinstance(returned, (Object, MutableObject, BaseException)) or (
        isinstance(returned, Mapping) and bool(_OBJECT_FIELDS & returned.keys())
    )
    if is_object:
        raise TypeError(
            f"the change returned {type(returned).__name__}, which would not be written: change "
            "its argument in place, and raise errors"
        )


def is_older(one: Object, other: Object) -> bool:
    return is_older_version(one.resource_version, other.resource_version)


def plain(obj: Object) -> dict[str, Any]:
    return _comparable(obj.to_dict())


def _comparable(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` without what is the server's, and with one form for what is the same to it.

    A null is a missing field, which is all that a merge patch can do to it; 1.0 is 1; missing
    labels and the like, and a missing status, are empty ones.
    """
    for field in ("apiVersion", "kind"):
        data.pop(field, None)
    metadata = data.setdefault("metadata", {})
    for field in SERVER_FIELDS:
        metadata.pop(field, None)
    pending: list[Any] = [data]
    while pending:
        part = pending.pop()
        for key, value in [*(part.items() if isinstance(part, dict) else enumerate(part))]:
            if isinstance(value, (dict, list)):
                pending.append(value)
            elif value is None and isinstance(part, dict):
                del part[key]
            elif isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
                part[key] = int(value)
    for field in ("labels", "annotations"):
        metadata.setdefault(field, {})
    for field in ("finalizers", "ownerReferences"):
        metadata.setdefault(field, [])
    data.setdefault("status", {})
    return data


def content_of(draft: MutableObject, before: dict[str, Any]) -> dict[str, Any]:
    """The comparable content of a draft of ``before``, with the times of its conditions."""
    content = _comparable(draft.to_dict())
    known = {each["type"]: each for each in _conditions(before)}
    for condition in _conditions(content):
        if condition.get("lastTransitionTime") or "reason" not in condition:
            continue
        old = known.get(condition["type"], {})
        if old.get("status") == condition.get("status"):
            since = old.get("lastTransitionTime")
        else:
            now = dt.datetime.fromtimestamp(present_clock().time(), dt.UTC)
            since = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        if since:
            condition["lastTransitionTime"] = since
    return content


def _conditions(content: dict[str, Any]) -> list[dict[str, Any]]:
    status = content.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("type"), str)]


def _is_changed(before: Object, after: Object, *, status: bool = False) -> bool:
    """Whether a write has changed an object, or its status; a dry run makes no new version."""
    if after.resource_version != before.resource_version:
        return True
    one, other = plain(before), plain(after)
    if status:
        return bool(one["status"] != other["status"])
    return bool({**one, "status": None} != {**other, "status": None})


def _with_status_of(obj: Object, other: Object) -> Object:
    """After dry runs: neither answer has what the other one would have changed."""
    status = other.to_dict().get("status")
    return Object.from_dict(obj.kind, {**obj.to_dict(), "status": status})
