"""What tests make go wrong in the embedded server, and the log of requests."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

import attrs

from appsdk_operator.apiserver._fault_rules import (
    ActiveFaults,
    FaultRule,
    FaultSchedule,
    RequestFacts,
)
from appsdk_operator.apiserver._values.status import StatusError

__all__ = ["Faults", "LoggedRequest", "fault_error"]

# As Kubernetes words them, where it has such an error.
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
    verb: str = ""
    """What was asked for, as RBAC names it; empty for paths that are no resource's."""
    namespace: str = ""
    """The namespace of what was asked for; empty for all, and for kinds without one."""
    user: str = ""
    """Who asked, as far as the server knows."""
    duration: float = 0.0
    """Seconds from the request to its answer, or to the beginning of a watch."""
    fault: str = ""
    """The rules that befell it; empty: none."""


def fault_error(rule: FaultRule) -> StatusError:
    """The error that a rule answers with."""
    status = rule.status or 500
    message = rule.message or _MESSAGES.get(status, f"a fault rule answers {status}")
    return StatusError(status, message, reason=rule.reason, retry_after=rule.retry_after)


@final
class Faults:
    """The rules that are in force, and the last requests. Belongs to the server's loop."""

    def __init__(self, *, log_size: int) -> None:
        """No rules; remember ``log_size`` requests."""
        self.log: deque[LoggedRequest] = deque(maxlen=log_size)
        self.released: asyncio.Event = asyncio.Event()
        """Set once those who wait because of a rule are to wait no more."""
        self._state = ActiveFaults()

    def add(self, schedule: FaultSchedule) -> None:
        """Apply rules to the next requests they mean, after the rules that are there."""
        self._state.add(schedule)

    def clear(self) -> None:
        """Drop all rules, and let those go on who wait because of one."""
        self._state.clear()
        self.released.set()
        self.released = asyncio.Event()

    @property
    def asks_for_names(self) -> bool:
        """Whether any rule looks at the names of objects."""
        return self._state.asks_for_names

    def take(self, facts: RequestFacts) -> tuple[FaultRule, ...]:
        """The rules for a request, which count as applied once."""
        return self._state.take(facts)
