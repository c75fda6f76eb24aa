"""What is done about a call that failed: who is told, and when it is made again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TypeAlias, final

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import RetryAfter, TerminalError
from appsdk_operator.controllers._failures import sole_error
from appsdk_operator.resource._frozen import explain_frozen
from appsdk_operator.runtime import get_logger
from appsdk_operator.watchers._calls import WatcherCall
from appsdk_operator.watchers._controller_metrics import ControllerMetrics, Role
from appsdk_operator.watchers._retry import RetryPolicy

__all__ = ["ErrorHandler", "Failures", "action_again", "counts_as_attempt"]

_log = get_logger("appsdk_operator.watchers")

ErrorHandler: TypeAlias = Callable[[Exception, WatcherCall], None]
"""Told of every failed call, before the retry policy is asked."""


def action_again(action: ResourceAction, role: Role) -> ResourceAction:
    """What a call is owed as.

    A watcher knows no resyncs, and gets the update that it may have been by then.
    """
    is_shown_again = action is ResourceAction.RESYNC and role is Role.WATCHER
    return ResourceAction.UPDATE if is_shown_again else action


def counts_as_attempt(error: Exception) -> bool:
    """Whether the retry policy is to know of this failure when it is asked about the next one."""
    return not isinstance(sole_error(error), RetryAfter)


@final
class Failures:
    """Reports failed calls and asks the retry policy about them. Thread-safe.

    :class:`RetryAfter` and :class:`TerminalError` say themselves when a call is made again.
    """

    def __init__(
        self,
        name: str,
        *,
        retry_policy: RetryPolicy,
        error_handler: ErrorHandler,
        metrics: ControllerMetrics,
        give_up_level: int = logging.WARNING,
    ) -> None:
        self._name = name
        self._retry_policy = retry_policy
        self._error_handler = error_handler
        self._metrics = metrics
        self._give_up_level = give_up_level

    def delay_after(self, error: Exception, call: WatcherCall, role: Role) -> float | None:
        """Seconds until ``call``, which failed, is made again; None: given up.

        The traceback of ``error`` is gone afterwards: what is kept of it must not keep the frames
        of the failed call, and all that they hold.
        """
        explain_frozen(sole_error(error))
        try:
            self._error_handler(error, call)
        except BaseException:
            _log.exception("the error handler of controller %s failed", self._name)
        delay = self._ask(error, call.attempt)
        self._log_next_step(error, call, delay)
        if delay is None:
            self._metrics.gave_up(call.kind, role, call.action)
        else:
            self._metrics.retry_planned(call.kind, action_again(call.action, role))
        _drop_tracebacks(error)
        return delay

    def _ask(self, error: Exception, attempt: int) -> float | None:
        sole = sole_error(error)
        if isinstance(sole, TerminalError):
            return None
        if isinstance(sole, RetryAfter):
            return sole.seconds
        try:
            return _checked_delay(self._retry_policy(error, attempt))
        except BaseException:
            _log.exception(
                "the retry policy of controller %s failed: no retry (it returns seconds, or None)",
                self._name,
            )
            return None

    def _log_next_step(self, error: Exception, call: WatcherCall, delay: float | None) -> None:
        fields = {
            "controller": self._name,
            "kind": call.kind,
            "namespace": call.object.namespace,
            "object": call.object.name,
            "action": call.action.value,
            "attempt": call.attempt,
        }
        what = (self._name, call.action.value, f"{call.kind} {call.object.key}")
        if delay is not None:
            _log.info("controller %s: %s of %s: retry in %g s", *what, delay, extra=fields)
        else:
            until = " until the next resync"
            if call.action is ResourceAction.DELETE:
                until = ""
            elif isinstance(sole_error(error), TerminalError):
                until = " until its generation, labels or annotations change"
            level = self._give_up_level
            _log.log(level, "controller %s: %s of %s: given up%s", *what, until, extra=fields)


def _checked_delay(answer: float | None) -> float | None:
    if answer is None:
        return None
    delay = float(answer)
    # One that never comes due would wait for ever, and no resync would bring it back.
    if not 0 <= delay < math.inf:
        raise ValueError(f"{answer!r} is no number of seconds: use 0 or more, or None for never")
    return delay


def _drop_tracebacks(error: BaseException) -> None:
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)
