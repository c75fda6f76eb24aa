"""The reconcile context, available to all code that a reconcile runs."""

from __future__ import annotations

import contextvars
import logging
import random
import uuid
from collections.abc import Callable, Hashable
from typing import Any, final

from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import (
    CallRecord,
    CallSlot,
    Clock,
    LimitedCall,
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


def reconcile_context() -> ReconcileContext | None:
    """The context of the current reconcile; None outside of one.

    It works in plain and in ``async def`` reconcilers, and in the tasks that they start. A thread
    that a reconciler starts has no context; pass it the values that it needs.

    >>> reconcile_context() is None
    True
    """
    return current.get()


@final
class ReconcileContext(LimitedCall):
    """One reconcile: its reasons, attempt and deadline. Thread-safe."""

    __slots__ = (
        "_id",
        "_max_attempts",
        "_reasons",
        "attempt",
        "controller",
        "kind",
        "priority",
        "request",
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
        limit: float | None,
        stop: StopSignal,
        clock: Clock,
    ) -> None:
        super().__init__(started, limit, parent=stop, clock=clock)
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
        self._id = _random_bits(128)
        self._reasons = reasons
        self._max_attempts = max_attempts

    @property
    def id(self) -> str:
        """A UUID of this reconcile, the ``reconcile_id`` of its log records."""
        return str(uuid.UUID(int=self._id, version=4))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for this reconcile, oldest first; of many, the first and the newest ones."""
        return tuple(map(safe_text, self._reasons))

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now is final; never without ``max_attempts``."""
        return 0 < self._max_attempts <= self.attempt + 1

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the fields of this reconcile to each record, and never raises."""
        return SafeLogger(_log.logger, log_fields(self))

    def __repr__(self) -> str:
        return f"<reconcile of {self.request} by {self.controller}, attempt {self.attempt}>"

    # For the controller.

    @property
    def compact_reasons(self) -> tuple[Any, ...]:
        """The reasons, as the small values in which they are stored."""
        return self._reasons


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
