"""A model of an API server for one kind, without sockets and threads.

It has the rules that the correctness of an operator depends on: resource versions, optimistic
concurrency, generations, finalizers, paging, an expiring history, and watches that the test ends.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, final

import attrs

from appsdk_operator.client import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    Expired,
    Invalid,
    NotFound,
    Patch,
    ServiceUnavailable,
    WatchSilent,
)
from appsdk_operator.resource import (
    FieldSelection,
    Kind,
    LabelSelection,
    ListPage,
    Object,
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    decode_json,
    encode_json,
    label_selector_of,
    patch_body,
)
from appsdk_operator.runtime import StopSignal

__all__ = ["Fault", "ModelServer"]


class Fault(enum.Enum):
    """A fault of one request."""

    NONE = "none"
    REFUSED = "refused"
    """The server answers 503 and does nothing."""
    LOST = "lost"
    """The server does the request, but the answer is lost; a watch is cut in the middle."""
    HALF = "half"
    """A watch is cut in the middle of a line; other requests as LOST."""
    SILENT = "silent"
    """A watch goes silent after some events; other requests as LOST."""
    EXPIRED = "expired"
    """A watch, or the next page of a list, gets 410 Expired; others as REFUSED."""
    GARBAGE = "garbage"
    """A watch sends a line that is not an event; other requests as REFUSED."""


@attrs.frozen
class _HistoryEvent:
    revision: int
    type: str
    object: dict[str, Any]


@final
class ModelServer:
    """A model of an API server. Not thread-safe: the test is its only thread.

    It is a client as well: ``list_page`` and ``watch`` for informers, ``get``, ``patch`` and
    ``status`` for watchers; and it has the writes of users and other controllers.
    """

    def __init__(self, kind: Kind, *, namespace: str = "default") -> None:
        """A server without objects; new ones go to ``namespace``."""
        self.kind = kind
        self._namespace = namespace if kind.is_namespaced else ""
        self._objects: dict[str, dict[str, Any]] = {}
        self._history: list[_HistoryEvent] = []
        self._snapshots: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._revision = 1
        self._oldest = 1
        self._uids = itertools.count(1)
        self.page_size = 2
        """The objects per page, for any limit; small, so that tests exercise paging."""
        self.streams_lists = True
        """Whether ``send_initial_events`` is allowed; older servers refuse it."""
        self.next_fault: Fault = Fault.NONE
        """The fault of the next request."""
        self.watch_budget = 1_000_000
        """The most events per watch, so that a test can handle some before the next ones."""

    # The stored objects.

    @property
    def resource_version(self) -> str:
        """The resource version of the newest write."""
        return str(self._revision)

    @property
    def objects(self) -> list[Object]:
        """The stored objects."""
        return [self._frozen(data) for data in self._objects.values()]

    def find(self, name: str) -> Object | None:
        """The object of that name, None where there is none; faults do not apply."""
        data = self._objects.get(name)
        return None if data is None else self._frozen(data)

    # Writes of users and other controllers; faults do not apply.

    def create(self, name: str, *, spec: Any = None, **metadata: Any) -> Object:
        """Create an object with ``spec`` and further ``metadata`` (``finalizers=[…]``).

        Raises:
            AlreadyExists: the name is taken.
        """
        if name in self._objects:
            raise AlreadyExists(f"{name!r} already exists", status=409)
        data = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {
                "name": name,
                **({"namespace": self._namespace} if self._namespace else {}),
                "uid": f"uid-{next(self._uids)}",
                "generation": 1,
                **metadata,
            },
            "spec": spec if spec is not None else {},
        }
        return self._store("ADDED", name, data)

    def change(self, name: str, *, spec: Any = None, status: Any = None, **metadata: Any) -> Object:
        """Change ``spec``, ``status`` or metadata; a changed ``spec`` raises the generation.

        Raises:
            NotFound: there is no such object.
        """
        data = self._copy(name)
        if spec is not None and spec != data["spec"]:
            data["spec"] = spec
            data["metadata"]["generation"] += 1
        if status is not None:
            data["status"] = status
        data["metadata"].update(metadata)
        return self._written(name, data)

    def delete(self, name: str) -> None:
        """Delete an object; one with finalizers gets a deletion timestamp.

        Raises:
            NotFound: there is no such object.
        """
        data = self._copy(name)
        metadata = data["metadata"]
        if not metadata.get("finalizers"):
            self._remove(name)
        elif "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
            metadata["generation"] += 1
            self._store("MODIFIED", name, data)

    def compact(self) -> None:
        """Compact the history: every older version is expired."""
        self._oldest = self._revision
        self._snapshots.clear()

    # The interface of a client; faults apply.

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """As :meth:`Client.get`."""
        del kind, namespace
        self._request("get")
        return self._frozen(self._copy(name))

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        """As :meth:`Client.patch`, for JSON and merge patches; the status stays as it is."""
        del kind, namespace
        return self._patch(name, patch, _without_status)

    @property
    def status(self) -> ModelStatus:
        """As :attr:`Client.status`."""
        return ModelStatus(self)

    def patch_status(self, name: str, patch: Patch) -> Object:
        """Patch the status; other fields stay as they are."""
        return self._patch(name, patch, _status_alone)

    def _patch(
        self,
        name: str,
        patch: Patch,
        allowed: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    ) -> Object:
        fault = self._request("patch")
        present = self._copy(name)
        changes = decode_json(patch_body(patch, self.kind))
        try:
            if isinstance(changes, list):
                made = apply_json_patch(present, changes)
            else:
                made = apply_merge_patch(present, changes)
        except PatchError as error:
            raise Invalid(str(error), status=422, reason="Invalid") from error
        written = self._written(name, allowed(present, made))
        if fault is not Fault.NONE:
            raise ConnectionLost(f"patch of {name}: the answer is lost")
        return written

    def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        limit: int = 0,
        continue_token: str = "",
        retry: bool = True,
        stop: StopSignal | None = None,
    ) -> ListPage:
        """As :meth:`Client.list_page`."""
        del namespace, field_selector, retry, stop
        fault = self._request("list")
        if fault is not Fault.NONE and fault is not Fault.EXPIRED:
            raise ConnectionLost("list: the answer is lost")
        if continue_token:
            if fault is Fault.EXPIRED or continue_token not in self._snapshots:
                raise Expired("the continue token is too old", status=410, reason="Expired")
            revision, rest = self._snapshots.pop(continue_token)
        else:
            revision, rest = self._revision, _selected(self._objects.values(), label_selector)
        size = self.page_size if limit else len(rest)
        page, rest = rest[:size], rest[size:]
        token = ""
        if rest:
            token = f"{revision}-{len(rest)}"
            self._snapshots[token] = (revision, rest)
        items = [Object.from_json(kind, encode_json(data)) for data in page]
        return ListPage(items, str(revision), token, len(rest) or None)

    def watch(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        resource_version: str = "",
        timeout: float = 0.0,
        send_initial_events: bool = False,
        stop: StopSignal | None = None,
    ) -> _ScriptedStream:
        """As :meth:`Client.watch`; the stream ends after the last event so far."""
        del kind, namespace, field_selector, timeout, stop, label_selector
        fault = self._request("watch")
        if send_initial_events:
            if not self.streams_lists:
                raise Invalid("sendInitialEvents is forbidden", status=422, reason="Invalid")
            lines = [_line("ADDED", data) for data in self._objects.values()]
            lines.append(_bookmark(self._revision, ends_initial_events=True))
        else:
            since = int(resource_version or 0)
            if fault is Fault.EXPIRED or since < self._oldest:
                raise Expired("too old resource version", status=410, reason="Expired")
            news = [entry for entry in self._history if entry.revision > since]
            lines = [_line(entry.type, entry.object) for entry in news[: self.watch_budget]]
            if len(news) <= self.watch_budget:
                lines.append(_bookmark(self._revision))
        return _ScriptedStream(lines, fault)

    def _request(self, verb: str) -> Fault:
        fault, self.next_fault = self.next_fault, Fault.NONE
        if fault is Fault.REFUSED or (
            fault in (Fault.EXPIRED, Fault.GARBAGE) and verb not in ("watch", "list")
        ):
            raise ServiceUnavailable("try again later", status=503, reason="ServiceUnavailable")
        return fault

    def _copy(self, name: str) -> dict[str, Any]:
        data = self._objects.get(name)
        if data is None:
            raise NotFound(f"{name!r} not found", status=404, reason="NotFound")
        return self._frozen(data).to_dict()

    def _written(self, name: str, data: dict[str, Any]) -> Object:
        present = self._objects[name]
        metadata, before = data["metadata"], present["metadata"]
        if metadata.get("resourceVersion") != before["resourceVersion"]:
            raise Conflict(f"{name!r} was modified", status=409, reason="Conflict")
        if data == present:
            return self._frozen(present)
        finalizers = metadata.get("finalizers") or []
        if "deletionTimestamp" in before:
            if set(finalizers) - set(before.get("finalizers") or []):
                raise Invalid(
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object "
                    "is being deleted",
                    status=422,
                    reason="Invalid",
                )
            if not finalizers:
                self._remove(name)
                return self._frozen(data)
        return self._store("MODIFIED", name, data)

    def _remove(self, name: str) -> None:
        # The event has the last stored state, without the changes of the write.
        self._record("DELETED", self._objects.pop(name))

    def _store(self, event: str, name: str, data: dict[str, Any]) -> Object:
        self._objects[name] = data
        return self._record(event, data)

    def _record(self, event: str, data: dict[str, Any]) -> Object:
        self._revision += 1
        data["metadata"]["resourceVersion"] = str(self._revision)
        self._history.append(_HistoryEvent(self._revision, event, self._frozen(data).to_dict()))
        return self._frozen(data)

    def _frozen(self, data: Mapping[str, Any]) -> Object:
        return Object.from_json(self.kind, encode_json(data))


@final
class ModelStatus:
    """The subresource ``status`` of a :class:`ModelServer`, as a client has it."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        """As :meth:`SubresourceClient.get`."""
        return self._server.get(kind, name, namespace=namespace)

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        """As :meth:`SubresourceClient.patch`, for JSON and merge patches."""
        del kind, namespace
        return self._server.patch_status(name, patch)


def _status_alone(present: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """``present`` with the status and the resource version of ``made``."""
    version = made["metadata"].get("resourceVersion")
    metadata = {**present["metadata"], "resourceVersion": version}
    return _with_status_of(made, {**present, "metadata": metadata})


def _without_status(present: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """``made`` with the status of ``present``; a changed spec raises the generation."""
    if made.get("spec") != present.get("spec"):
        generation = present["metadata"]["generation"] + 1
        made = {**made, "metadata": {**made["metadata"], "generation": generation}}
    return _with_status_of(present, made)


def _with_status_of(other: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    rest = {field: value for field, value in data.items() if field != "status"}
    return {**rest, "status": other["status"]} if "status" in other else rest


class _ScriptedStream:
    """A watch stream of given lines that ends with a fault."""

    def __init__(self, lines: list[bytes], fault: Fault) -> None:
        self._lines = lines
        self._fault = fault

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        del kind, error, trace

    def __iter__(self) -> Iterator[list[bytes]]:
        lines, fault = self._lines, self._fault
        if fault is Fault.NONE:
            yield lines
            return
        # A fault comes in the middle of the lines.
        before = lines[: (len(lines) + 1) // 2]
        if before:
            yield before
        if fault is Fault.GARBAGE:
            yield [b'{"type":"MODIFIED","object":{"met']
        elif fault is Fault.EXPIRED:
            yield [_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})]
        elif fault is Fault.SILENT:
            raise WatchSilent("no byte came for too long")
        elif fault is Fault.LOST:
            raise ConnectionLost("the connection was reset")
        # HALF: the half line was dropped by the transport, and the stream just ends.


def _selected(objects: Any, selection: LabelSelection | None) -> list[dict[str, Any]]:
    parsed = label_selector_of(selection)
    if parsed is None:
        return list(objects)
    return [data for data in objects if parsed.matches(data["metadata"].get("labels") or {})]


def _line(event: str, data: Mapping[str, Any]) -> bytes:
    return b'{"type":"%s","object":%s}' % (event.encode(), encode_json(data))


def _bookmark(revision: int, *, ends_initial_events: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if ends_initial_events:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _line("BOOKMARK", {"metadata": metadata})
