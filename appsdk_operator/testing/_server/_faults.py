"""What tests make go wrong: rules that answer or cut requests, and the log of requests."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import attrs

from appsdk_operator.resource._kind import Kind
from appsdk_operator.testing._server._status import StatusError

__all__ = ["VERBS", "Fault", "Faults", "LoggedRequest"]

VERBS: Final = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)

_MESSAGES: Final = {
    401: "Unauthorized",
    403: "forbidden by a fault rule",
    409: "the object has been modified; please apply your changes to the latest version and try "
    "again",
    410: "too old resource version",
    429: "the server has received too many requests and has asked us to try again later",
    500: "Internal error occurred: a fault rule said so",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted",
}


@attrs.frozen
class LoggedRequest:
    """A request the server has answered or begun to answer."""

    method: str
    path: str
    query: str
    user_agent: str
    status: int
    """The HTTP status; 0 when the connection was cut instead."""


@final
@attrs.define(eq=False)
class Fault:
    """One rule: which requests, what happens to them, how often."""

    verb: str | None
    kind: Kind | str | None
    status: int
    times: int
    retry_after: int | None
    after_write: bool

    def __attrs_post_init__(self) -> None:
        if self.verb is not None and self.verb not in VERBS:
            raise ValueError(f"{self.verb!r} is no verb: use one of {', '.join(VERBS)}")
        if not 400 <= self.status <= 599:
            raise ValueError(f"status {self.status} is no error: use 400 to 599")
        if self.times < 1:
            raise ValueError(f"times={self.times} would never apply: use 1 or more")

    def applies(self, verb: str, group: str, plural: str, kind: str) -> bool:
        """Whether a request is meant."""
        if self.verb not in (None, verb):
            return False
        if self.kind is None:
            return True
        if isinstance(self.kind, str):
            return self.kind in (kind, plural)
        return (self.kind.group, self.kind.plural) == (group, plural)

    def answer(self) -> StatusError:
        """The error to answer with."""
        message = _MESSAGES.get(self.status, f"a fault rule answers {self.status}")
        return StatusError(self.status, message, retry_after=self.retry_after)


@final
class Faults:
    """The rules that are in force, and the last requests. Belongs to the server's loop."""

    def __init__(self, *, log_size: int) -> None:
        """No rules; remember ``log_size`` requests."""
        self.log: deque[LoggedRequest] = deque(maxlen=log_size)
        self._rules: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Apply a rule to the next requests it means, after the rules that are there."""
        self._rules.append(fault)

    def clear(self) -> None:
        """Drop all rules."""
        self._rules.clear()

    def take(self, verb: str, group: str, plural: str, kind: str) -> Fault | None:
        """The rule for a request, which counts as applied once."""
        for fault in self._rules:
            if fault.applies(verb, group, plural, kind):
                fault.times -= 1
                if not fault.times:
                    self._rules.remove(fault)
                return fault
        return None
