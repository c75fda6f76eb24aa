"""The reconcile context, available to all code that a reconcile runs."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
import uuid
from collections.abc import Callable, Hashable
from typing import Any, final

from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import (
    CallRecord,
    CallSlot,
    Clock,
    SafeLogger,
    StopSignal,
    callback_name,
    get_logger,
    safe_text,
)

_log = get_logger("appsdk_operator.controllers")

current: contextvars.ContextVar[ReconcileContext | None] = contextvars.ContextVar(
    "appsdk_operator.reconcile", default=None
)

# Its own, so that a program that seeds the common one does not repeat ids.
_random_bits = random.Random().getrandbits

# Guards stop signals, which most reconciles never create; one lock is cheaper than one for each.
_stop_lock = threading.Lock()


def reconcile_context() -> ReconcileContext | None:
    """The context of the current reconcile; None outside of one.

    It works in plain and in ``async def`` reconcilers, and in the tasks that they start. Threads
    that a reconciler starts have none; pass them what they need.

    >>> reconcile_context() is None
    True
    """
    return current.get()


@final
class ReconcileContext:
    """One reconcile: its reasons, attempt and deadline. Thread-safe."""

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
        """The controller's kind, as in ``Deployment.apps``; empty if it has none."""
        self.request: Any = request
        """The request."""
        self.priority: int = priority
        """The priority that the request had in the queue."""
        self.attempt: int = attempt
        """How often in a row the request failed before: 0 for the first try. Failed calls that an
        event brought before the planned retry do not count."""
        self.started: float = started
        """The monotonic time of its start."""
        self.deadline: float | None = deadline
        """The monotonic time by which it should end; None without ``reconcile_timeout``."""
        self.is_timed_out: bool = False
        """Whether the deadline passed while it ran."""
        self.is_own_time_out: bool = False
        """Whether the deadline passed before the controller was stopped."""
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
        """Why it runs, oldest first; of many reasons the first and the newest."""
        return tuple(map(safe_text, self._reasons))

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now is final; never without ``max_attempts``."""
        return 0 < self._max_attempts <= self.attempt + 1

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the fields of this reconcile to each record, and never raises."""
        return SafeLogger(_log.logger, log_fields(self))

    @property
    def stop(self) -> StopSignal:
        """The stop signal, set when the controller stops, at the deadline, and at the end.

        Pass it to everything that waits.
        """
        with _stop_lock:
            if self._stop is None:
                self._stop = self._parent.child()
                if self._is_over or self.is_timed_out:
                    self._stop.set()
            return self._stop

    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None when there is no deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self._clock.monotonic())

    def __repr__(self) -> str:
        return f"<reconcile of {self.request} by {self.controller}, attempt {self.attempt}>"

    # For the controller.

    def time_out(self) -> None:
        """Mark the deadline as passed, and set the stop signal."""
        with _stop_lock:
            if self._is_over or self.is_timed_out:
                return
            self.is_timed_out = True
            self.is_own_time_out = not self._parent.is_set()
            stop, expire = self._stop, self._expire
        if stop is not None:
            stop.set()
        if expire is not None:
            expire()

    @property
    def compact_reasons(self) -> tuple[Any, ...]:
        """Its reasons as the small values that they are stored as."""
        return self._reasons

    def on_time_out(self, expire: Callable[[], None]) -> None:
        """Call ``expire`` at the deadline, or at once if it has passed."""
        with _stop_lock:
            self._expire = expire
            is_late = self.is_timed_out
        if is_late:
            expire()

    def end(self) -> None:
        """End the reconcile: set its stop signal."""
        self._is_over = True
        if self._stop is not None or self._expire is not None:
            with _stop_lock:
                stop, self._expire = self._stop, None
            if stop is not None:
                stop.set()


def log_fields(context: ReconcileContext) -> dict[str, Any]:
    """The structured fields of the reconcile's log records."""
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
        # "name" is a field of every log record already.
        fields.update(namespace=request.namespace, object=request.name)
    else:
        fields["request"] = safe_text(request)
    return fields


def call_describer(
    controller: str, kind: str, reconcile: Callable[..., Any]
) -> Callable[[CallSlot], CallRecord]:
    """The function that makes the record of a reconcile, whose context is the slot's trigger."""
    callback = callback_name(reconcile)

    def describe(slot: CallSlot) -> CallRecord:
        context: ReconcileContext = slot.trigger
        request = context.request
        is_object = isinstance(request, ObjectKey)
        return CallRecord(
            controller=controller,
            callback=callback,
            role="reconciler",
            kind=kind,
            namespace=request.namespace if is_object else "",
            name=request.name if is_object else safe_text(request),
            reasons=context.compact_reasons,
            attempt=context.attempt,
            started=context.started,
        )

    return describe
