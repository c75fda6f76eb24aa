"""What a reconcile can learn of itself, from anywhere in the code that it runs."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
import uuid
from collections.abc import Callable, Hashable
from typing import Any, final

from appsdk_operator.controllers._engine.reasons import safe_text
from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import Clock, SafeLogger, StopSignal, get_logger

__all__ = ["ReconcileContext", "current", "log_fields", "reconcile_context"]

_log = get_logger("appsdk_operator.controllers")

current: contextvars.ContextVar[ReconcileContext | None] = contextvars.ContextVar(
    "appsdk_operator.reconcile", default=None
)

# Its own, so that a program that seeds the common one does not repeat ids.
_random_bits = random.Random().getrandbits

# For what most reconciles never ask for; one for all, for a lock each would cost more.
_lazy = threading.Lock()


def reconcile_context() -> ReconcileContext | None:
    """The context of the reconcile that this code runs in, None outside of any.

    Works in plain and in ``async def`` reconcilers and in the tasks that they start. Threads that
    a reconciler starts have none; give them what they need.

    >>> reconcile_context() is None
    True
    """
    return current.get()


@final
class ReconcileContext:
    """One reconcile: why, which try, how long it may take. Thread-safe."""

    __slots__ = (
        "_clock",
        "_expire",
        "_id",
        "_is_over",
        "_max_attempts",
        "_parent",
        "_reasons",
        "_stop",
        "attempt",
        "controller",
        "deadline",
        "is_own_time_out",
        "is_timed_out",
        "kind",
        "priority",
        "request",
        "started",
    )

    def __init__(
        self,
        controller: str,
        kind: str,
        request: Hashable,
        *,
        reasons: tuple[Any, ...],
        priority: int,
        attempt: int,
        max_attempts: int,
        started: float,
        deadline: float | None,
        stop: StopSignal,
        clock: Clock,
    ) -> None:
        self.controller: str = controller
        """The name of the controller."""
        self.kind: str = kind
        """What the controller is for, as in ``Deployment.apps``; empty when it did not say."""
        self.request: Any = request
        """What is reconciled."""
        self.priority: int = priority
        """With which priority it was handed out."""
        self.attempt: int = attempt
        """How often in a row it has failed before: 0 for the first try."""
        self.started: float = started
        """The monotonic time at which it began."""
        self.deadline: float | None = deadline
        """The monotonic time by which it should end; None without ``reconcile_timeout``."""
        self.is_timed_out: bool = False
        """Whether the deadline has passed while it ran."""
        self.is_own_time_out: bool = False
        """Whether it passed before the controller was asked to stop."""
        self._id = _random_bits(128)
        self._reasons = reasons
        self._max_attempts = max_attempts
        self._parent = stop
        self._clock = clock
        self._stop: StopSignal | None = None
        self._expire: Callable[[], None] | None = None
        self._is_over = False

    @property
    def id(self) -> str:
        """A UUID of this reconcile, the ``reconcile_id`` of its log records."""
        return str(uuid.UUID(int=self._id, version=4))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it runs, oldest first; of many the first and the newest."""
        return tuple(map(safe_text, self._reasons))

    @property
    def is_last_attempt(self) -> bool:
        """Whether it is given up when it fails now; never without ``max_attempts``."""
        return 0 < self._max_attempts <= self.attempt + 1

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the fields of this reconcile to each record, and never raises."""
        return SafeLogger(_log.logger, log_fields(self))

    @property
    def stop(self) -> StopSignal:
        """Set when the controller stops, at the deadline, and when the reconcile is over.

        Give it to everything that waits.
        """
        with _lazy:
            if self._stop is None:
                self._stop = self._parent.child()
                if self._is_over or self.is_timed_out:
                    self._stop.set()
            return self._stop

    def remaining(self) -> float | None:
        """Seconds until the deadline, not below 0; None when there is no deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self._clock.monotonic())

    def __repr__(self) -> str:
        return f"<reconcile of {self.request} by {self.controller}, attempt {self.attempt}>"

    # For the controller.

    def time_out(self) -> None:
        """The deadline has passed: tell the reconciler."""
        with _lazy:
            if self._is_over or self.is_timed_out:
                return
            self.is_timed_out = True
            self.is_own_time_out = not self._parent.is_set()
            stop, expire = self._stop, self._expire
        if stop is not None:
            stop.set()
        if expire is not None:
            expire()

    def on_time_out(self, expire: Callable[[], None]) -> None:
        """Call ``expire`` at the deadline, at once when it has passed."""
        with _lazy:
            self._expire = expire
            is_late = self.is_timed_out
        if is_late:
            expire()

    def end(self) -> None:
        """The reconcile is over."""
        self._is_over = True
        if self._stop is not None or self._expire is not None:
            with _lazy:
                stop, self._expire = self._stop, None
            if stop is not None:
                stop.set()


def log_fields(context: ReconcileContext) -> dict[str, Any]:
    """The structured fields of a log record of this reconcile."""
    request = context.request
    fields: dict[str, Any] = {
        "controller": context.controller,
        "reconcile_id": context.id,
        "attempt": context.attempt,
        "reasons": list(context.reasons),
    }
    if context.kind:
        fields["kind"] = context.kind
    if isinstance(request, ObjectKey):
        # "name" is the logger's own.
        fields.update(namespace=request.namespace, object=request.name)
    else:
        fields["request"] = safe_text(request)
    return fields
