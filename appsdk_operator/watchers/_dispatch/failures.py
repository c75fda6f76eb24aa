"""Failed calls: the error handler, the log, and the delay until the retry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TypeAlias, final

import msgspec

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.client import ClientError
from appsdk_operator.controllers import (
    FinalizerError,
    TerminalError,
    retry_after_seconds,
    sole_error,
)
from appsdk_operator.resource import Object, explain_frozen
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    RetryPolicy,
    asked_delay,
    duration_text,
    error_text,
    failed_function,
    forget_frames,
    get_logger,
    guarded_call,
    has_user_frames,
    is_cancelled,
)
from appsdk_operator.runtime.validation import FALLBACK_DELAY
from appsdk_operator.watchers._dispatch.metrics import ControllerMetrics, Role
from appsdk_operator.watchers._dispatch.registered import cause_of, name_of
from appsdk_operator.watchers._level_based import CalledFunction
from appsdk_operator.watchers._reconciler import ReconcileRequest, ResourceReconciler
from appsdk_operator.watchers._watcher import ResourceWatcher

_log = get_logger("appsdk_operator.watchers")


class WatcherCall(msgspec.Struct, frozen=True):
    """One call of a watcher or reconciler, as error handlers get it."""

    kind: str
    """The kind under which the informer and the watcher were added."""
    watcher: ResourceWatcher | ResourceReconciler
    """The watcher or reconciler; for a function of an App, an object that stands for it."""
    action: ResourceAction
    object: Object
    attempt: int
    """0 for the event itself, 1 for the first retry, …"""

    @property
    def callback(self) -> str:
        """The name of the called function."""
        return name_of(self.watcher, self.action, self.object)

    @property
    def cause(self) -> str:
        """The reason of the call: the action, or ``SYNC`` or ``DELETE``.

        ``SYNC`` is for an object that was handled before, ``DELETE`` for one that is being deleted.
        """
        return cause_of(self.watcher, self.action, self.object)

    def __str__(self) -> str:
        return f"{self.callback}: {self.cause} of {self.object!r}, attempt {self.attempt}"


ErrorHandler: TypeAlias = Callable[[Exception, WatcherCall], None]
"""Called for every failed call, before the retry policy."""


def retry_action(action: ResourceAction, role: Role) -> ResourceAction:
    """The action of a call's retry.

    A watcher's failed resync becomes an update, since watchers have no method for resyncs and the
    object may have changed by then.
    """
    is_watcher_resync = action is ResourceAction.RESYNC and role is Role.WATCHER
    return ResourceAction.UPDATE if is_watcher_resync else action


def _counts_as_attempt(error: Exception) -> bool:
    """Whether the failure increases the attempt number that the retry policy gets."""
    return retry_after_seconds(sole_error(error)) is None


class RetryPlan(msgspec.Struct, frozen=True):
    """What follows a failed call."""

    delay: float | None
    """Seconds until the retry; None: it is given up."""
    attempt: int
    """The attempt number of the next call."""
    is_final: bool
    """Whether no resync repeats the call, but only a change of the object."""


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
        error_handler: ErrorHandler | None,
        metrics: ControllerMetrics,
        clock: Clock,
        resyncs_repeat: bool = True,
    ) -> None:
        self._name = name
        self._resyncs_repeat = resyncs_repeat
        self._retry_policy = retry_policy
        self._error_handler = error_handler
        self._metrics = metrics
        self.log = FailureLog(_log, clock)

    def plan_after(
        self,
        error: Exception,
        call: WatcherCall,
        role: Role,
        longest: float | None = None,
        *,
        policy: RetryPolicy | None = None,
        is_stopping: bool = False,
    ) -> RetryPlan:
        """Report a failed call, and decide on its retry.

        Removes the traceback of ``error``: a stored error must not keep the frames of the failed
        call alive.

        Args:
            error: what the call raised.
            call: the call.
            role: of what was called.
            longest: the seconds after which it is called again in any case; None: no such time.
            policy: the retry policy of what was called; default: the controller's.
            is_stopping: whether the controller stops, which cancels coroutines.
        """
        explain_frozen(sole_error(error))
        if self._error_handler is not None:
            guarded_call(
                "error_handler",
                self._error_handler,
                *(error, call),
                failed=lambda raised: self._log_failure_of(
                    raised, "error handler", "the error handler of controller %s failed"
                ),
            )
        delay = self._retry_delay(error, call.attempt, policy or self._retry_policy)
        attempt = call.attempt + _counts_as_attempt(error)
        if longest is not None:
            attempt = attempt if delay is not None else 0
            delay = longest if delay is None else min(delay, longest)
        is_final = delay is None and self._is_final(error)
        is_known = self._error_handler is not None or (is_stopping and is_cancelled(error))
        self._log_failure(error, call, delay, is_final, is_known=is_known)
        if delay is None:
            is_clean_up = call.action is ResourceAction.DELETE or call.object.is_deleting
            self._metrics.gave_up(call.kind, role, call.action, is_clean_up=is_clean_up)
        else:
            self._metrics.retry_planned(call.kind, retry_action(call.action, role))
        if delay is None and call.action is ResourceAction.DELETE:
            self.forget(call.object)
        elif not is_known:
            function = failed_function(error) or call.callback
            called, about = called_of(call.watcher), _identity(call.object)
            self.log.failing.failed(called, about, function, sole_error(error))
        forget_frames(error)
        return RetryPlan(delay, attempt, is_final)

    def succeeded(self, called: Hashable, request: Event | ReconcileRequest) -> None:
        """Note that a call has succeeded which may have failed before.

        Args:
            called: what :func:`called_of` has for it.
            request: what it was called with.
        """
        obj = request.object
        if request.action is ResourceAction.DELETE:
            self.forget(obj)
        else:
            self.log.failing.succeeded(called, _identity(obj), f"{obj}")

    def forget(self, obj: Object) -> None:
        """Nothing is called any more for an object that is gone, or no longer followed."""
        if self.log.failing.calls:
            self.log.failing.forget(about=_identity(obj))

    def forget_watcher(self, watcher: object) -> None:
        """The watcher or reconciler is called no more."""
        if self.log.failing.calls:
            self.log.failing.forget(called=called_of(watcher))

    def _is_final(self, error: Exception) -> bool:
        """Whether no resync repeats a call that is given up.

        The kit's own write of a finalizer is repeated: its failure says nothing of the object.
        """
        sole = sole_error(error)
        if isinstance(sole, TerminalError):
            return True
        return not self._resyncs_repeat and not isinstance(sole, FinalizerError)

    def _retry_delay(self, error: Exception, attempt: int, policy: RetryPolicy) -> float | None:
        sole = sole_error(error)
        if isinstance(sole, TerminalError):
            return None
        asked = retry_after_seconds(sole)
        if asked is not None:
            return asked
        return asked_delay(
            "retry_policy",
            policy,
            *(error, attempt),
            failed=lambda raised: self._log_failure_of(
                raised,
                "retry policy",
                "the retry policy of controller %s failed: the kit retries in "
                f"{FALLBACK_DELAY:g} s (it returns seconds, or None for no retry)",
            ),
        )

    def _log_failure_of(self, error: BaseException, function: str, message: str) -> None:
        self.log.failed(error, function, message, self._name, extra={"controller": self._name})

    def _log_failure(
        self,
        error: Exception,
        call: WatcherCall,
        delay: float | None,
        is_final: bool,
        *,
        is_known: bool,
    ) -> None:
        """Log a failure: as an error, or as info without traceback if it ``is_known``."""
        name = failed_function(error) or call.callback
        obj = call.object
        self.log.failed(
            error,
            name,
            "%s failed on %s of %s %s: %s; %s",
            name,
            call.cause,
            obj.kind.kind,
            obj.key,
            error_text(sole_error(error)),
            _next_try(call, delay, is_final),
            # The last line about a call, however soon it follows the one before.
            about=None if delay is None else _identity(obj),
            level=logging.INFO if is_known else logging.ERROR,
            with_traceback=not is_known and not _is_self_explanatory(error),
            extra={
                "controller": self._name,
                "kind": call.kind,
                "namespace": obj.namespace,
                "object": obj.name,
                "action": call.action.value,
                "attempt": call.attempt,
                "failures": call.attempt + 1,
                "callback": name,
                "error": type(sole_error(error)).__name__,
                "retry_in": delay,
            },
        )


def called_of(watcher: object) -> Hashable:
    """What is called, for the log of what fails: a function of an App, or the whole watcher."""
    return watcher.function if isinstance(watcher, CalledFunction) else id(watcher)


def _identity(obj: Object) -> Hashable:
    return obj.uid or obj.key


def _next_try(call: WatcherCall, delay: float | None, is_final: bool) -> str:
    """What follows a failed call."""
    if delay is not None:
        failed = f", failed {call.attempt + 1} times" if call.attempt else ""
        return f"next try in {duration_text(delay)}{failed}"
    if call.action is ResourceAction.DELETE:
        return "given up"
    if is_final:
        return "given up until its generation, labels or annotations change"
    return "given up until the next resync"


def _is_self_explanatory(error: Exception) -> bool:
    """Whether a traceback would tell nothing more: a request of the kit's own failed."""
    is_of_request = isinstance(sole_error(error), (ClientError, FinalizerError))
    return is_of_request and not has_user_frames(error)
