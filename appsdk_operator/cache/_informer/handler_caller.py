"""Calls of event handlers and error handlers: user code whose exceptions stop nothing."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, final

from appsdk_operator.cache._delivery.delivery import (
    Delivery,
    DeliveryKey,
    EventSource,
    Overflow,
    check_overflow,
)
from appsdk_operator.cache._events import (
    BatchHandler,
    Event,
    EventHandler,
    MaybeAwaitable,
    ResourceAction,
)
from appsdk_operator.client import ClientError
from appsdk_operator.resource import DecodeError, Kind
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    as_exception,
    get_logger,
    guarded_call,
    safe_repr,
    traceback_of,
)
from appsdk_operator.runtime.validation import check_count, checked_seconds

if TYPE_CHECKING:
    import asyncio


_log = get_logger("appsdk_operator.cache")

ErrorHandler: TypeAlias = Callable[[Exception], None]
"""A function that is called with each error."""


@final
class HandlerCaller:
    """Calls the methods of an :class:`EventHandler`, and reports their exceptions."""

    def __init__(
        self,
        handler: EventHandler,
        on_error: ErrorHandler | None,
        view: Kind | None = None,
        *,
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._on_error = on_error
        self._failures = FailureLog(_log, clock)
        self._view = view  # None: objects have the types of the informer's kind
        self._runner: asyncio.Runner | None = None

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        """The context of the calling thread: one event loop for all async methods."""
        try:
            yield
        finally:
            runner, self._runner = self._runner, None
            if runner is not None:
                runner.close()

    def __call__(self, key: DeliveryKey, event: Event | None) -> None:
        if event is None:
            return
        try:
            result = self._call(event)
            if result is not None and inspect.isawaitable(result):
                if self._runner is None:
                    import asyncio

                    self._runner = asyncio.Runner()
                self._runner.run(_wait_for(result))
        except BaseException as raised:
            error = as_exception("the handler", raised)
            if self._on_error is None:
                self._failures.failed(
                    error,
                    # By type, because the handler itself may not be hashable.
                    type(self._handler).__qualname__,
                    "handler %r failed for %r",
                    self._handler,
                    event,
                )
            else:
                report_failure(self._on_error, error, str(key))

    def _call(self, event: Event) -> MaybeAwaitable:
        if self._view is not None:
            event = event.viewed_as(self._view)
        obj, old = event.object, event.old or event.object
        if event.action is ResourceAction.CREATE:
            return self._handler.on_add(obj, is_initial=event.is_initial)
        if event.action is ResourceAction.DELETE:
            return self._handler.on_delete(obj, is_final_state_unknown=event.is_final_state_unknown)
        return self._handler.on_update(old, obj)


async def _wait_for(result: Awaitable[None]) -> None:
    await result


def check_handler(
    handler: EventHandler | BatchHandler,
    resync: float | None,
    max_pending: int,
    overflow: Overflow,
) -> None:
    """Refuse a handler without the methods of either form, and options that it cannot have.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a number is out of bounds, or ``resync`` was given for a handler without a
            thread to run it in.
    """
    if isinstance(handler, type) or not isinstance(handler, (BatchHandler, EventHandler)):
        raise _no_handler(handler)
    check_count("max_pending", max_pending, 1)
    check_overflow(overflow)
    if resync is not None:
        checked_seconds("resync", resync)
    if resync and isinstance(handler, BatchHandler) and not isinstance(handler, EventSource):
        raise ValueError(
            f"resync={resync}: {type(handler).__name__} is called in the informer's thread, which "
            "has no timer for it; call replay() of the registration instead"
        )


def _no_handler(handler: object) -> TypeError:
    if isinstance(handler, type):
        return TypeError(f"handler={handler!r} is a class: give an instance, {handler.__name__}(…)")
    if all(callable(getattr(handler, name, None)) for name in ("add", "update", "delete")):
        return TypeError(
            f"handler: {type(handler).__name__} is a watcher: give it to the add_watcher of an "
            "InformerController, or to a KubernetesInformer"
        )
    return TypeError(
        f"handler: {type(handler).__name__} handles no events: give it on_add, on_update and "
        "on_delete, or on_events and on_initial_list_end"
    )


def sink_of(
    handler: EventHandler | BatchHandler,
    kind: Kind,
    on_error: ErrorHandler | None,
    max_pending: int,
    overflow: Overflow,
    *,
    clock: Clock,
) -> tuple[BatchHandler, Delivery | None]:
    """The sink for the events of ``handler``, and the delivery made for an :class:`EventHandler`.

    Raises:
        TypeError: ``handler`` has neither form.
    """
    if isinstance(handler, BatchHandler):
        return handler, None
    if not isinstance(handler, EventHandler):
        raise _no_handler(handler)
    calls = HandlerCaller(handler, on_error, clock=clock)
    own = Delivery(
        f"informer/{kind}",
        calls,
        max_pending=max_pending,
        overflow=overflow,
        worker_context=calls.bound,
        clock=clock,
    )
    return own.source(str(kind)), own


def report_problem(
    on_error: ErrorHandler | None, error: Exception, kind: Kind, namespace: str
) -> None:
    """Report an informer's error to ``on_error``, or log it when there is none."""
    what = f"the informer of {kind.qualified_name}"
    if on_error is not None:
        report_failure(on_error, error, what)
        return
    # Errors of the server and the network need no traceback; errors of code do.
    is_expected = isinstance(error, (ClientError, DecodeError, OSError))
    _log.warning(
        "%s: %s",
        what,
        error if is_expected else safe_repr(error),
        exc_info=None if is_expected else _exc_info(error),
        extra={"kind": str(kind), "namespace": namespace},
    )


def report_failure(on_error: ErrorHandler, error: Exception, whose: str) -> None:
    """Call ``on_error``, and log what it raises."""

    def failed(raised: Exception) -> None:
        text = "on_error failed when called with %s of %s"
        _log.error(text, safe_repr(error), whose, exc_info=_exc_info(raised))

    guarded_call("on_error", on_error, error, failed=failed)


def _exc_info(error: Exception) -> Any:
    return type(error), error, traceback_of(error)
