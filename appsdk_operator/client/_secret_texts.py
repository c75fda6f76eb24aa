"""What is shown of a server's texts about a write whose content is secret.

Servers quote what they refuse: kube-apiserver the whole object where a patch makes it unreadable,
decoders what surrounds the wrong byte, admission webhooks whatever they like. So of these texts the
beginning is shown, if it is one that servers make of names alone, and the paths of the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator._lazy import lazy_pattern

HIDDEN: Final = "the rest of the server's text is not shown, as it may have the object's content"

_NAMED_ONLY: Final = frozenset(
    (
        *("Unauthorized", "NotFound", "AlreadyExists", "Conflict", "Gone", "Expired"),
        *("TooManyRequests", "MethodNotAllowed", "NotAcceptable", "RequestEntityTooLarge"),
        *("ServerTimeout", "Timeout", "ServiceUnavailable"),
    )
)
"""Reasons whose messages a server makes of names, and not of content."""
_QUOTED: Final = r'"(?:[^"\\]|\\.){0,300}"'
_WHOLE: Final = lazy_pattern(
    rf"(?:\S+ )?(?:{_QUOTED} )?is forbidden: "
    r"(?:User \"|exceeded quota|violates PodSecurity|unable to create new content in namespace)"
    r"|the server rejected our request due to an error in our request$"
)
"""How messages begin that are shown in full."""
_ADMISSION: Final = lazy_pattern(r"admission webhook |.{0,600}ValidatingAdmissionPolicy ")
_BEGINNING: Final = lazy_pattern(
    rf"admission webhook {_QUOTED} denied the request"
    rf"|(?:\S+ {_QUOTED} is forbidden: )?ValidatingAdmissionPolicy '[^']{{0,300}}' "
    r"(?:with binding '[^']{0,300}' )?denied request"
    rf"|\S+ {_QUOTED} is forbidden"
    rf"|(?:Internal error occurred: )?failed calling webhook {_QUOTED}"
    rf"|(?:\S* )?{_QUOTED} is invalid"
    r'|\S+ in version "\w{1,63}" cannot be handled as an? \w{1,63}'
    r"|strict decoding error|error decoding patch|Internal error occurred"
)
_FIELD_PROBLEM: Final = lazy_pattern(rf"(?:unknown|duplicate) field {_QUOTED}")
_CAUSE: Final = lazy_pattern(
    r"(?:Required|Invalid|Unsupported|Duplicate) value|Forbidden|Too long|Too many|Not found"
)
_DETAILS: Final = ("name", "group", "kind", "uid", "retryAfterSeconds")
_PATH: Final = lazy_pattern(
    r"/api/v1/(namespaces/[^/]+/)?secrets(/|$)"
    r"|/apis/authentication\.k8s\.io/[^/]+/tokenreviews$|/api/v1/.*/serviceaccounts/[^/]+/token$"
)


def is_secret_path(path: str) -> bool:
    """Whether a path is of a built-in kind with secret content, such as Secrets."""
    return _PATH.match(path) is not None


def shown_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """A ``Status`` cut to what may be shown: names, and paths of fields."""
    message = status.get("message")
    text = message if isinstance(message, str) else ""
    shown = dict(status)
    if _is_of_names(status.get("reason"), text):
        return shown
    details = status.get("details")
    found: dict[str, Any] = {}
    causes: list[dict[str, Any]] = []
    if isinstance(details, Mapping):
        found = {name: details[name] for name in _DETAILS if name in details}
        listed = details.get("causes")
        if isinstance(listed, list):
            causes = [_shown_cause(one) for one in listed if isinstance(one, Mapping)]
            found["causes"] = causes
    if details is not None:
        shown["details"] = found
    beginning = _BEGINNING.match(text)
    fields = [": ".join(filter(None, (one["field"], one["message"]))) for one in causes]
    fields = [*filter(None, fields), *_FIELD_PROBLEM.findall(text)]
    parts = [beginning.group()] if beginning is not None else []
    if fields:
        parts.append(", ".join(dict.fromkeys(fields)))
    shown["message"] = f"{': '.join(parts)} ({HIDDEN})" if parts else HIDDEN
    return shown


def shown_warning(text: str) -> str:
    """A warning of the server about the write, cut likewise."""
    return text if _FIELD_PROBLEM.fullmatch(text) else f"of a write that has secrets; {HIDDEN}"


def _is_of_names(reason: object, message: str) -> bool:
    if _ADMISSION.match(message):
        return False
    return reason in _NAMED_ONLY or _WHOLE.match(message) is not None


def _shown_cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    message, field = cause.get("message"), cause.get("field")
    kind = _CAUSE.match(message) if isinstance(message, str) else None
    shown: dict[str, Any] = {"reason": cause.get("reason")}
    shown["message"] = kind.group() if kind is not None else ""
    shown["field"] = field if isinstance(field, str) else ""
    return shown
