"""The tree of errors: refusals by the API server, failed transports, unusable configurations."""

# ruff: noqa: N818 - the classes are named for the reasons of the API

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import msgspec

from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.client._redaction import display_text, redacted_json
from appsdk_operator.client._request import Request
from appsdk_operator.client._secret_texts import shown_status
from appsdk_operator.resource import Kind, check_kind

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldError

MAX_EXCERPT = 256
"""Characters shown of an answer that is not a Status: enough to recognise a proxy's page."""
_MAX_SHOWN = 4096  # characters of a message: a custom resource with many wrong fields
_MAX_SECONDS = 10**9


class ClientError(Exception):
    """The root of all errors of this package except wrong arguments (``ValueError``)."""


class Cause(msgspec.Struct, frozen=True):
    """One entry of ``Status.details.causes``."""

    reason: str
    """For example ``FieldValueInvalid`` or ``ResourceVersionTooLarge``."""
    message: str
    field: str
    """The path of the field, for example ``spec.replicas``; empty if there is none."""

    def to_dict(self) -> dict[str, str]:
        """The entry in plain JSON values, without empty ones."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


_ADMISSION: Final = lazy_pattern(
    r"admission webhook \".*?\" denied the request"
    r"|(\S+ \".*?\" is forbidden: )?ValidatingAdmissionPolicy '.*?' (with binding '.*?' )?denied"
    r"|\S+ \".*?\" is forbidden: "
    r"(exceeded quota|violates PodSecurity|unable to create new content in namespace)"
)
"""How messages of admission begin, which names the reason itself: no permission is missing."""


class ApiError(ClientError):
    """The API server refused the request.

    Subclasses are named for ``Status.reason``; without a known reason, the HTTP status selects the
    class.

    Webhooks and tests make these errors, too. ``status`` and ``reason`` are then the class's own,
    so ``Forbidden("only on Sundays")`` is enough for a denial; see also :meth:`Invalid.of`.

    >>> Forbidden("only on Sundays").to_status()["reason"]
    'Forbidden'
    """

    remedy: str = ""
    _of_class: ClassVar[tuple[int, str]] = (500, "")

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str | None = None,
        causes: Sequence[Cause] = (),
        details: Mapping[str, Any] | None = None,
        request: Request | None = None,
        retry_after: float | None = None,
        continue_token: str = "",
    ) -> None:
        self.status: int = self._of_class[0] if status is None else status
        """The HTTP status."""
        self.reason: str = self._of_class[1] if reason is None else reason
        """``Status.reason``, for example ``NotFound``; empty when the answer had none."""
        self.message = message
        """``Status.message``, or the beginning of an answer that was no Status."""
        self.causes: tuple[Cause, ...] = tuple(causes)
        """``Status.details.causes``: one entry for each wrong field."""
        self.details: Mapping[str, Any] = details or {}
        """``Status.details`` as plain JSON values."""
        self.request = request
        """The request; None for an error event that was decoded without its watch."""
        self.retry_after = retry_after
        """The seconds after which the server allows a retry; None: the answer named none."""
        self.continue_token = continue_token
        """With :class:`Expired` during a list: the token for the inconsistent rest."""
        super().__init__(self._text())

    def has_cause(self, reason: str) -> bool:
        """Whether one of the causes has this reason, for example ``ResourceVersionTooLarge``."""
        return any(cause.reason == reason for cause in self.causes)

    def to_status(self) -> dict[str, Any]:
        """The ``Status`` as an API server sends it, in plain JSON values.

        :func:`error_from_status` is the inverse: it makes the same error from it, but without
        :attr:`request`, and with :attr:`retry_after` in whole seconds.
        """
        metadata = {"continue": self.continue_token} if self.continue_token else {}
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": metadata}
        status |= {"status": "Failure", "message": self.message}
        if self.reason:
            status["reason"] = self.reason
        details = copy.deepcopy(dict(self.details))
        if self.causes and "causes" not in details:
            details["causes"] = [cause.to_dict() for cause in self.causes]
        if self.retry_after and "retryAfterSeconds" not in details:
            details["retryAfterSeconds"] = math.ceil(self.retry_after)
        if details:
            status["details"] = details
        status["code"] = self.status
        return status

    @property
    def _is_of_admission(self) -> bool:
        """Whether admission refused the object, such as a webhook or a policy."""
        return _ADMISSION.match(self.message) is not None

    def _text(self) -> str:
        if self.remedy and self._is_of_admission:
            self.remedy = ""
        asked = f"{self.request}: " if self.request is not None else ""
        reason = display_text(self.reason, limit=MAX_EXCERPT) or type(self).__name__
        text = f"{asked}{self.status} {reason}"
        if self.message:
            text += f": {display_text(self.message, limit=_MAX_SHOWN)}"
        return f"{text} ({self.remedy})" if self.remedy else text

    def __reduce__(self) -> Any:
        # Exceptions cross process borders in test runners and worker pools.
        return _rebuild_api, (type(self), self.message, {**self.__dict__, "message": None})


def _rebuild_api(kind: type[ApiError], message: str, state: dict[str, Any]) -> ApiError:
    names = ("status", "reason", "causes", "details", "request", "retry_after", "continue_token")
    return kind(message, **{name: state[name] for name in names})


class BadRequest(ApiError):
    """400: the request itself is malformed."""

    _of_class = (400, "BadRequest")


class Unauthorized(ApiError):
    """401: the server rejects the credentials, even after a reload."""

    _of_class = (401, "Unauthorized")

    remedy = "check that the token or certificate is of this cluster and has not expired"


class Forbidden(ApiError):
    """403: the account may not do this."""

    _of_class = (403, "Forbidden")

    _verbs: tuple[str, ...] = ()

    def for_verbs(self, *verbs: str) -> None:
        """Name all verbs that the caller needs, such as list and watch, in the remedy."""
        self._verbs = verbs
        self.args: tuple[Any, ...] = (self._text(),)

    def _text(self) -> str:
        if self.request is not None and self.request.verb:
            where = (
                f"in namespace {self.request.namespace!r}"
                if self.request.namespace
                else "in the whole cluster"
            )
            verbs = self._verbs or (self.request.verb,)
            named = f"verb{'s' * (len(verbs) > 1)} {' and '.join(map(repr, verbs))}"
            self.remedy: str = (
                f"the account needs {named} on {self.request.resource} {where}: "
                "grant it with a Role or ClusterRole and its binding"
            )
        return super()._text()


class NotFound(ApiError):
    """404: no such object, or no such kind on this server."""

    _of_class = (404, "NotFound")

    def _text(self) -> str:
        if self.request is not None and self.request.resource:
            resource, _, subresource = self.request.resource.partition("/")
            none = f"the kind has no subresource {subresource}, which its CRD must name"
            if not self.details.get("kind"):
                # A missing path is answered by the server's router, which names neither kind nor
                # name.
                self.remedy = (
                    f"the server knows no {self.request.resource} under {self.request.path}: check "
                    "that its CRD is installed (for an App: appsdk-operator crds MODULE:APP -o - | "
                    "kubectl apply -f -), and the kind's plural, version and scope"
                ) + (f"; or {none}" if subresource else "")
            elif subresource in ("status", "scale") and "." in resource.partition(".")[2]:
                # Servers answer so for a custom resource that has none.
                self.remedy: str = f"there is no such object, or {none}"
        return super()._text()


class MethodNotAllowed(ApiError):
    """405: the resource does not support the verb."""

    _of_class = (405, "MethodNotAllowed")


class NotAcceptable(ApiError):
    """406: the server cannot answer in the requested media type."""

    _of_class = (406, "NotAcceptable")


class AlreadyExists(ApiError):
    """409 for a create: the name is taken. Not a :class:`Conflict`: a retry does not help."""

    _of_class = (409, "AlreadyExists")


class Conflict(ApiError):
    """409: the object was changed since it was read, or a precondition does not hold."""

    _of_class = (409, "Conflict")

    remedy = "read the object again and apply the change to the new state"


class Gone(ApiError):
    """410: the server does not, or no longer, serve the requested resource version."""

    _of_class = (410, "Gone")


class Expired(Gone):
    """410: the resource version or continue token is too old; list again."""

    _of_class = (410, "Expired")

    remedy = "list anew"


class RequestEntityTooLarge(ApiError):
    """413: the object is larger than the server accepts."""

    _of_class = (413, "RequestEntityTooLarge")


class UnsupportedMediaType(ApiError):
    """415: the server does not know this kind of patch or body."""

    _of_class = (415, "UnsupportedMediaType")


class Invalid(ApiError):
    """422: the object is well-formed but invalid; :attr:`ApiError.causes` names the fields."""

    _of_class = (422, "Invalid")

    @classmethod
    def of(cls, kind: Kind, name: str, errors: FieldError | Iterable[FieldError]) -> Invalid:
        """The error with which an API server refuses an object because of its fields.

        Message, details and causes are as kube-apiserver writes them for the same errors
        (apimachinery's ``NewInvalid``): the message has each error once, the causes have all.

        Args:
            kind: the kind of the object.
            name: its name; empty if the server generates the name.
            errors: errors of fields, made with :func:`appsdk_operator.resource.field`. Paths may
                have the Python names of the kind's classes; the error has the names in JSON.

        Raises:
            TypeError: ``kind`` is not a Kind, or an item of ``errors`` is not a FieldError.

        >>> from appsdk_operator.resource import Kind, field
        >>> job = Kind(group="example.com", version="v1", kind="Job")
        >>> errors = [field("spec")["size"].required()]
        >>> print(Invalid.of(job, "nightly", errors).message)
        Job.example.com "nightly" is invalid: spec.size: Required value
        """
        from appsdk_operator.resource import FieldError, go_quote, joined_errors, wire_path

        check_kind(kind)
        found = [errors] if isinstance(errors, FieldError) else list(errors)
        for error in found:
            if not isinstance(error, FieldError):
                raise TypeError(
                    f"an error is a {type(error).__name__}: make it with a field's path, such as "
                    'field("spec")["size"].invalid(-1, "must not be negative")'
                )
        found = [attrs.evolve(error, field=wire_path(kind, error.field)) for error in found]
        qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        message = f"{qualified} {go_quote(name)} is invalid"
        if found:
            message += f": {joined_errors(found)}"
        causes = [Cause(error.reason, error.message, error.field) for error in found]
        details = {"name": name, "group": kind.group, "kind": kind.kind}
        return cls(
            message,
            causes=causes,
            details={key: value for key, value in details.items() if value}
            | ({"causes": [cause.to_dict() for cause in causes]} if causes else {}),
        )


class TooManyRequests(ApiError):
    """429: the server limits requests, or a disruption budget forbids an eviction."""

    _of_class = (429, "TooManyRequests")


class ServerError(ApiError):
    """5xx: the server failed."""


class InternalError(ServerError):
    """500: the server, or an admission webhook, failed."""

    _of_class = (500, "InternalError")


class ServerTimeout(ServerError):
    """500 with reason ServerTimeout: the server ran out of time; try again."""

    _of_class = (500, "ServerTimeout")


class ServiceUnavailable(ServerError):
    """503: the server, or the aggregated server behind it, is not ready."""

    _of_class = (503, "ServiceUnavailable")


class Timeout(ServerError):
    """504: the server timed out; it may have carried out a write."""

    _of_class = (504, "Timeout")


class ConfigError(ClientError, ValueError):
    """The configuration or the credentials are unusable; the text says what to change."""


class TransportError(ClientError):
    """The request got no usable answer.

    ``sent``: whether the server may have received the request, and so may have carried it out.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> Any:
        return _rebuild_transport, (type(self), str(self), self.sent)


def _rebuild_transport(kind: type[TransportError], message: str, sent: bool) -> TransportError:
    return kind(message, sent=sent)


class ConnectFailed(TransportError):
    """No connection: name not resolved, refused, unreachable, or timed out. Nothing was sent."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message, sent=sent)


class TLSFailed(ConnectFailed):
    """The TLS handshake failed: the text names the option to change. Nothing was sent."""


class ProxyFailed(ConnectFailed):
    """The proxy failed, or refused the connection. Nothing was sent to the server."""


class ConnectionLost(TransportError):
    """The connection broke before the answer was complete."""


class ReadTimeout(TransportError):
    """The connection is open, but no byte came for ``read_timeout`` seconds."""


class WatchSilent(TransportError):
    """No byte came on a watch within its silence limit: the connection counts as dead.

    Resume from the last resource version; nothing was lost.
    """


class BadResponse(TransportError):
    """The answer is not HTTP, or breaks its rules."""


class WrongAnswer(BadResponse):
    """The answer is about another object than the request.

    The server or a proxy mixed up answers. The client closed the connection, because its next
    answer would be wrong, too. The server may have carried out a write.
    """


class ResponseTooLarge(TransportError):
    """The answer is larger than ``max_response_bytes``."""


class RequestStopped(TransportError):
    """The stop signal was set, or the client was closed, during the request."""


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "BadRequest": BadRequest,
    "Conflict": Conflict,
    "Expired": Expired,
    "Forbidden": Forbidden,
    "Gone": Gone,
    "InternalError": InternalError,
    "Invalid": Invalid,
    "MethodNotAllowed": MethodNotAllowed,
    "NotAcceptable": NotAcceptable,
    "NotFound": NotFound,
    "RequestEntityTooLarge": RequestEntityTooLarge,
    "ServerTimeout": ServerTimeout,
    "ServiceUnavailable": ServiceUnavailable,
    "Timeout": Timeout,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
    "UnsupportedMediaType": UnsupportedMediaType,
}
_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    413: RequestEntityTooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: Timeout,
}


def error_from_status(
    status: Mapping[str, Any],
    *,
    code: int = 0,
    request: Request | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """The error for a ``Status``, for example the one inside a watch's ERROR event.

    Args:
        status: the Status as plain JSON values; fields of another type are ignored.
        code: the HTTP status of the answer; default: the Status' own.
        request: the request that the Status answers.
        retry_after: seconds from the ``Retry-After`` header; default:
            ``details.retryAfterSeconds``.

    >>> error = error_from_status({"code": 410, "reason": "Expired", "message": "too old"})
    >>> type(error).__name__, isinstance(error, Gone)
    ('Expired', True)
    """
    if request is not None and request.secret:
        status = shown_status(status)
    status = redacted_json(dict(status))
    code = code or _int(status.get("code"))
    code = code if 0 < code < 1000 else 0
    reason = _str(status.get("reason"))
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    metadata = status.get("metadata")
    if retry_after is None and (seconds := _int(details.get("retryAfterSeconds"))) > 0:
        retry_after = float(min(seconds, _MAX_SECONDS))
    causes = details.get("causes")
    return error_class_of(reason, code)(
        _str(status.get("message")),
        status=code,
        reason=reason,
        causes=[
            Cause(_str(c.get("reason")), _str(c.get("message")), _str(c.get("field")))
            for c in (causes if isinstance(causes, list) else ())
            if isinstance(c, dict)
        ],
        details=details,
        request=request,
        retry_after=retry_after,
        continue_token=_str(metadata.get("continue")) if isinstance(metadata, dict) else "",
    )


def error_class_of(reason: str, code: int) -> type[ApiError]:
    """The class for a ``Status.reason`` or, where that says nothing, for an HTTP status."""
    found = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if found is None:
        found = ServerError if code >= 500 else ApiError
    return found


def is_late(error: Exception) -> bool:
    """Whether one of the client's time limits has passed.

    A TimeoutError with a number is the system's: the peer acknowledges nothing, and the connection
    is gone.
    """
    return isinstance(error, TimeoutError) and error.errno is None


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""
