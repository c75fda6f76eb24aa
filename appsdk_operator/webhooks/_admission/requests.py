"""Admission requests, as handlers get them, and the one that is being answered."""

from __future__ import annotations

import contextvars
import enum
import functools
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.resource import (
    AnyObject,
    DecodeError,
    Kind,
    MutableObject,
    Object,
    Scope,
    decode_json,
    encode_json,
    kinds,
    members,
)
from appsdk_operator.runtime import Clock, SafeLogger, get_logger, present_clock
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.webhooks._users import UserInfo

_log: Final = get_logger("appsdk_operator.webhooks")

current: contextvars.ContextVar[AdmissionRequest | None] = contextvars.ContextVar(
    "appsdk_operator.admission", default=None
)


class Operation(enum.StrEnum):
    """The operation of a request on an object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class GroupVersionResource(NamedTuple):
    """A resource by its path in the API.

    >>> str(GroupVersionResource("apps", "v1", "deployments"))
    'deployments.v1.apps'
    """

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return ".".join(part for part in (self.resource, self.version, self.group) if part)


class _WireKind(msgspec.Struct, gc=False, omit_defaults=True):
    group: str | None = None
    version: str | None = None
    kind: str | None = None


class _WireResource(msgspec.Struct, gc=False, omit_defaults=True):
    group: str | None = None
    version: str | None = None
    resource: str | None = None


_NO_KIND: Final = _WireKind()
_NOTHING: Final = msgspec.Raw()


class WireRequest(msgspec.Struct, rename="camel", omit_defaults=True):
    """The request of a review, as decoded; a null is an absent field, as for Go."""

    uid: str | None = None
    kind: _WireKind | None = None
    resource: _WireResource | None = None
    sub_resource: str | None = None
    request_kind: _WireKind | None = None
    request_resource: _WireResource | None = None
    request_sub_resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str | None = None
    user_info: dict[str, Any] | None = None
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING
    dry_run: bool | None = None
    options: msgspec.Raw = _NOTHING


def _identity(kind: Kind | _WireKind) -> tuple[str, str, str]:
    """What a kind is known by; plural, scope and types may be a guess."""
    return kind.group or "", kind.version or "", kind.kind or ""


@functools.lru_cache(maxsize=1024)
def _kind_of(group: str, version: str, kind: str, plural: str, is_namespaced: bool) -> Kind:
    for builtin in kinds.builtin_kinds():
        if _identity(builtin.kind) == (group, version, kind):
            return builtin.kind
    # A request about a Namespace names one, so this does not tell the scope of built-in kinds.
    scope = Scope.NAMESPACED if is_namespaced else Scope.CLUSTER
    if not plural:
        return Kind(group=group, version=version, kind=kind, scope=scope)
    return Kind(group=group, version=version, kind=kind, plural=plural, scope=scope)


def _from_wire(kind: _WireKind, resource: _WireResource | None, is_namespaced: bool) -> Kind:
    group, version = kind.group or "", kind.version or ""
    plural = ""
    # Not that of a subresource with a kind of its own, as autoscaling/v1 Scale.
    if resource is not None and (resource.group or "", resource.version or "") == (group, version):
        plural = resource.resource or ""
    return _kind_of(group, version, kind.kind or "", plural, is_namespaced)


def admission_request() -> AdmissionRequest | None:
    """The admission request that the current code answers; None outside of one.

    It works in plain and in ``async def`` handlers, and in the tasks that they start. Threads that
    a handler starts have no request; pass them what they need.

    >>> admission_request() is None
    True
    """
    return current.get()


@final
class AdmissionRequest:
    """A request that the API server submits to webhooks before it carries it out; read-only.

    Objects are decoded when first used. Thread-safe.

    Webhooks make it from a review of the API server; tests can make one:

    >>> pod = Kind(group="", version="v1", kind="Pod")
    >>> request = AdmissionRequest("CREATE", pod, object={"metadata": {"name": "web"}})
    >>> request.object.name
    'web'

    Args:
        operation: the operation on the object.
        kind: the kind of the object.
        object: the object as it will be stored; for a subresource such as ``pods/exec``, its
            options. Default: none, as for ``DELETE``.
        old_object: the object as it is stored. Default: none, as for ``CREATE``.
        name: the name of the object; default: the name in ``object`` or ``old_object``.
        namespace: its namespace; default: as ``name``.
        subresource: for example ``"status"``; default: the object itself.
        user: the user who sent the request.
        dry_run: whether nothing will be stored.
        options: the options of the operation, such as ``DeleteOptions``.
        uid: the identifier of this request; the response repeats it.
        timeout: seconds that the API server waits for the answer; default: no limit.
        clock: the clock of ``timeout``.

    Raises:
        ValueError: ``operation`` is not an :class:`Operation`.
    """

    __slots__ = (
        "_clock",
        "_kind",
        "_object",
        "_old_object",
        "_user",
        "_wire",
        "api_version",
        "deadline",
        "http",
        "webhook",
    )

    api_version: str
    """The version of the review, for example ``admission.k8s.io/v1``."""
    deadline: float | None
    """The monotonic time at which the API server stops waiting; None if the request does not
    say."""
    http: HTTPRequest | None
    """The HTTP request that carried the review; None if it was made without one."""
    webhook: str
    """The name of the webhook that answers it, for logs."""

    def __init__(
        self,
        operation: Operation | str,
        kind: Kind,
        *,
        object: AnyObject | Mapping[str, Any] | None = None,  # noqa: A002 - the API's name
        old_object: AnyObject | Mapping[str, Any] | None = None,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str = "",
        user: UserInfo | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
        uid: str = "",
        timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """See the class."""
        objects = [_plain(kind, each) for each in (object, old_object)]
        metadata: Mapping[str, Any] = (objects[0] or objects[1] or {}).get("metadata") or {}
        self._wire = WireRequest(
            uid=uid,
            kind=_WireKind(kind.group, kind.version, kind.kind),
            resource=_WireResource(kind.group, kind.version, kind.plural),
            sub_resource=subresource,
            name=str(metadata.get("name") or "") if name is None else name,
            namespace=str(metadata.get("namespace") or "") if namespace is None else namespace,
            operation=Operation(operation).value,
            user_info=(user or UserInfo()).to_dict(),
            object=_raw(objects[0]),
            old_object=_raw(objects[1]),
            dry_run=dry_run,
            options=_raw(options),
        )
        self._kind: Kind | None = kind
        self._clock = clock = present_clock(clock)
        self._object: Object | None = None
        self._old_object: Object | None = None
        self._user = user
        self.api_version = "admission.k8s.io/v1"
        self.deadline = None if timeout is None else clock.monotonic() + timeout
        self.http = None
        self.webhook = ""

    @classmethod
    def of_wire(
        cls,
        wire: WireRequest,
        *,
        kind: Kind | None,
        api_version: str,
        timeout: float | None,
        http: HTTPRequest | None,
        webhook: str,
        clock: Clock,
    ) -> AdmissionRequest:
        """For webhooks: a request from a decoded review.

        Args:
            wire: the decoded request.
            kind: the kind of the handler, whose types the objects get if they are of that kind.
            api_version: the version of the review.
            timeout: seconds left.
            http: the HTTP request.
            webhook: the name of the webhook.
            clock: the clock of the time-out.

        Raises:
            ValueError: the kind has a malformed name.
        """
        self = cls.__new__(cls)
        self._wire = wire
        self._clock = clock
        self._object = self._old_object = None
        self._user = None
        self.api_version = api_version
        self.deadline = None if timeout is None else clock.monotonic() + timeout
        self.http = http
        self.webhook = webhook
        found = wire.kind or _NO_KIND
        if kind is not None and _identity(kind) == _identity(found):
            self._kind = kind
        elif not any(_identity(found)):
            self._kind = None
        else:
            self._kind = _from_wire(found, wire.resource, bool(wire.namespace))
        return self

    @property
    def uid(self) -> str:
        """The identifier of this request."""
        return self._wire.uid or ""

    @property
    def operation(self) -> str:
        """``CREATE``, ``UPDATE``, ``DELETE`` or ``CONNECT``, see :class:`Operation`."""
        return self._wire.operation or ""

    @property
    def kind(self) -> Kind:
        """The kind of :attr:`object`, with the handler's types if it is the handler's kind.

        Raises:
            DecodeError: the review has no kind; API servers always send one.
        """
        if self._kind is None:
            raise DecodeError("the request names no kind")
        return self._kind

    @property
    def request_kind(self) -> Kind:
        """The kind that the user sent; another version than :attr:`kind` if it was converted."""
        wire = self._wire
        if wire.request_kind is None or wire.request_kind == wire.kind:
            return self.kind
        resource = wire.request_resource or wire.resource
        return _from_wire(wire.request_kind, resource, bool(wire.namespace))

    @property
    def resource(self) -> GroupVersionResource:
        """The resource of :attr:`object`."""
        return _resource_of(self._wire.resource)

    @property
    def request_resource(self) -> GroupVersionResource:
        """The resource that the user asked for; another version than :attr:`resource` if it was
        converted."""
        return _resource_of(self._wire.request_resource or self._wire.resource)

    @property
    def subresource(self) -> str:
        """For example ``status``, ``scale`` or ``exec``; empty for the object itself."""
        return self._wire.sub_resource or ""

    @property
    def request_subresource(self) -> str:
        """The subresource that the user asked for."""
        return self._wire.request_sub_resource or self._wire.sub_resource or ""

    @property
    def name(self) -> str:
        """The name of the object; empty if the object has only a ``generateName``, and if a
        collection is deleted."""
        return self._wire.name or ""

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty for cluster-scoped kinds."""
        return self._wire.namespace or ""

    @property
    def user(self) -> UserInfo:
        """The user who sent the request."""
        if self._user is None:
            self._user = UserInfo.of(self._wire.user_info)
        return self._user

    @property
    def dry_run(self) -> bool:
        """Whether nothing will be stored; then a handler must change nothing outside of its
        response."""
        return bool(self._wire.dry_run)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the operation, such as ``CreateOptions``; empty if there are none."""
        raw = bytes(self._wire.options)
        found = decode_json(raw) if raw else None
        return found if isinstance(found, dict) else {}

    @property
    def object(self) -> Object[Any, Any] | None:
        """The object as it will be stored; None for a ``DELETE``.

        Raises:
            DecodeError: it is malformed, or not of :attr:`kind`.
        """
        if self._object is None:
            self._object = self._object_of(self._wire.object)
        return self._object

    @property
    def old_object(self) -> Object[Any, Any] | None:
        """The object as it is stored; None for a ``CREATE``.

        Raises:
            DecodeError: it is malformed, or not of :attr:`kind`.
        """
        if self._old_object is None:
            self._old_object = self._object_of(self._wire.old_object)
        return self._old_object

    def _object_of(self, raw: msgspec.Raw) -> Object[Any, Any] | None:
        text = _bytes(raw)
        return _object_of(self.kind, text) if text else None

    @property
    def raw_object(self) -> bytes:
        """The JSON text of :attr:`object`; empty without one."""
        return _bytes(self._wire.object)

    def object_as(self, kind: Kind[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """:attr:`object` with the types of ``kind``, for handlers of several kinds.

        Raises:
            WrongKindError: it is of another kind.
            LookupError: there is no object.
        """
        if self.object is None:
            raise LookupError(f"{self!r} has no object: a DELETE has an old_object")
        return self.object.viewed_as(kind)

    def time_left(self) -> float | None:
        """Seconds until the API server stops waiting, at least 0; None if the request does not say.

        The webhook server answers a little earlier, see :meth:`Webhooks.time_limit`.
        """
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self._clock.monotonic())

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the fields of this request to each record, and never raises."""
        return SafeLogger(_log.logger, log_fields(self))

    def to_review(self) -> bytes:
        """The review that an API server sends for this request, as JSON."""
        review = {
            "kind": "AdmissionReview",
            "apiVersion": self.api_version,
            "request": self._wire,
        }
        return msgspec.json.encode(review)

    def __repr__(self) -> str:
        # Without the content: it may be a Secret, and reprs end up in logs.
        subresource = f"/{self.subresource}" if self.subresource else ""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        kind = "object" if self._kind is None else self._kind.kind
        return f"<{self.operation} {kind}{subresource} {where} uid={self.uid}>"

    @property
    def kind_text(self) -> str:
        """For logs: the kind; ``""`` if the review names none."""
        return "" if self._kind is None else str(self._kind)


def log_fields(request: AdmissionRequest) -> dict[str, Any]:
    """The structured fields of a request's log records; none is a part of the object's content."""
    fields: dict[str, Any] = {
        "webhook": request.webhook,
        "request_id": request.uid,
        "operation": request.operation,
        "kind": request.kind_text,
        "namespace": request.namespace,
        # "name" is a field of every log record already.
        "object": request.name,
        "user": request.user.username,
    }
    if request.subresource:
        fields["subresource"] = request.subresource
    if request.dry_run:
        fields["dry_run"] = True
    return fields


def _resource_of(wire: _WireResource | None) -> GroupVersionResource:
    if wire is None:
        return GroupVersionResource("", "", "")
    return GroupVersionResource(wire.group or "", wire.version or "", wire.resource or "")


def _bytes(raw: msgspec.Raw) -> bytes:
    text = bytes(raw)
    return b"" if text == b"null" else text


def _object_of(kind: Kind, text: bytes) -> Object:
    try:
        return Object.from_json(kind, text)
    except DecodeError:
        # Options of CONNECT requests, and of other subresources, have no metadata.
        if not _lacks_metadata(kind, text):
            raise
        return Object(kind, text, "", "", "", "", 0, None)


def _lacks_metadata(kind: Kind, text: bytes) -> bool:
    try:
        found = members(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return (
        "metadata" not in found
        and bytes(found.get("kind", b"")) == encode_json(kind.kind)
        and bytes(found.get("apiVersion", b"")) == encode_json(kind.api_version)
    )


def _plain(kind: Kind, given: AnyObject | Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, (Object, MutableObject)):
        return given.to_dict()
    return {"apiVersion": kind.api_version, "kind": kind.kind, **given}


def _raw(value: Mapping[str, Any] | None) -> msgspec.Raw:
    return _NOTHING if value is None else msgspec.Raw(encode_json(value))
