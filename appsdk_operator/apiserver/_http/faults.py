"""The fault rules of a running server, and its request log."""

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
    """A request that the server has answered or begun to answer."""

    method: str
    path: str
    query: str
    user_agent: str
    status: int
    """The HTTP status; 0 when the connection was cut instead."""
    verb: str = ""
    """The verb, as RBAC names it; empty for paths that are not resource's."""
    namespace: str = ""
    """The requested namespace; empty for all namespaces, and for cluster-scoped kinds."""
    user: str = ""
    """The username; empty before authentication."""
    duration: float = 0.0
    """Seconds from the request to its answer, or to the beginning of a watch."""
    fault: str = ""
    """The fault rules that applied to it; empty: none."""


def fault_error(rule: FaultRule) -> StatusError:
    """The error that a rule answers with."""
    status = rule.status or 500
    message = rule.message or _MESSAGES.get(status, f"a fault rule answers {status}")
    return StatusError(status, message, reason=rule.reason, retry_after=rule.retry_after)


@final
class Faults:
    """The active fault rules, and the last requests. For use in the server's event loop only."""

    def __init__(self, *, log_size: int) -> None:
        """No rules; remember ``log_size`` requests."""
        self.log: deque[LoggedRequest] = deque(maxlen=log_size)
        self.released: asyncio.Event = asyncio.Event()
        """Set to end every wait that a rule causes."""
        self._state = ActiveFaults()

    def add(self, schedule: FaultSchedule) -> None:
        """Apply rules to the next requests that they match, after the present rules."""
        self._state.add(schedule)

    def clear(self) -> None:
        """Remove all rules, and end the waits that they cause."""
        self._state.clear()
        self.end_waits()
        self.begin_waits()

    def end_waits(self) -> None:
        """End the waits that rules cause, and those of later requests before they begin."""
        self.released.set()

    def begin_waits(self) -> None:
        """Let rules cause waits again, in the event loop that runs now."""
        self.released = asyncio.Event()

    @property
    def asks_for_names(self) -> bool:
        """Whether any rule selects by object name."""
        return self._state.asks_for_names

    def take(self, facts: RequestFacts) -> tuple[FaultRule, ...]:
        """The rules that apply to a request; each counts it."""
        return self._state.take(facts)
