"""A handler's place at an informer, and how its methods are called."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias, final

from appsdk_operator.cache._delivery.delivery import Delivery
from appsdk_operator.cache._delivery.event_source import DeliveryKey, EventSource, Overflow
from appsdk_operator.cache._events import (
    BatchHandler,
    Event,
    EventHandler,
    MaybeAwaitable,
    ResourceAction,
)
from appsdk_operator.cache._options import check_overflow, join_all
from appsdk_operator.client import ClientError
from appsdk_operator.resource import DecodeError, Kind
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    StopSignal,
    as_exception,
    get_logger,
    present_clock,
)
from appsdk_operator.runtime.validation import check_count, checked_seconds

if TYPE_CHECKING:
    import asyncio

    from appsdk_operator.cache._informer.informer import Informer

__all__ = [
    "ErrorHandler",
    "HandlerCaller",
    "Registration",
    "check_handler",
    "report_failure",
    "report_problem",
    "sink_of",
]

_log = get_logger("appsdk_operator.cache")

ErrorHandler: TypeAlias = Callable[[Exception], None]


@final
class Registration:
    """A handler's place at an informer. Thread-safe."""

    def __init__(
        self,
        informer: Informer,
        sink: BatchHandler,
        own_delivery: Delivery | None,
        *,
        replay: Callable[[Registration], None],
    ) -> None:
        self.informer = informer
        self._do_replay = replay
        self.sink = sink
        self.own_delivery = own_delivery
        self.is_started: bool = False
        self.end_resync: Callable[[], None] = lambda: None

    @property
    def has_synced(self) -> bool:
        """Whether the handler has handled every object that was there when it was added."""
        # Both: several informers may share one EventSource, which knows of the first's list only.
        return self.informer.has_synced and bool(getattr(self.sink, "has_synced", True))

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the local copy is complete, and the handler has handled what was there.

        A :class:`BatchHandler` has handled what was handed to it.

        Args:
            stop: ends the wait.
            timeout: the longest to wait, in seconds of the informer's clock; default: no limit.

        Returns:
            False when stopped, after ``timeout`` seconds, or when the informer or the handler came
            to its end meanwhile.
        """
        clock = present_clock(self.informer.clock)
        deadline = None if timeout is None else clock.monotonic() + timeout
        if not self.informer.wait_for_sync(stop, timeout):
            return False
        if not isinstance(self.sink, EventSource):
            return True
        left = None if deadline is None else deadline - clock.monotonic()
        return self.sink.wait_for_sync(stop, left)

    def remove(self, *, timeout: float = 30.0) -> None:
        """Stop handing events to the handler, and wait for the call that runs; twice is harmless.

        A handler that removes itself is not waited for.

        Args:
            timeout: seconds of real time that the call has to end; default 30.

        Raises:
            TimeoutError: it still runs; the text names its thread.
        """
        own = self.own_delivery
        if own is not None:
            own.stop()
        self.end_resync()
        self.informer.forget(self)
        if own is not None:
            join_all([own.join], timeout, f"a handler of {self.informer.kind}")

    @property
    def pending_events(self) -> tuple[int, int]:
        """How many events wait for an EventHandler, and how many were merged so far."""
        own = self.own_delivery
        return (0, 0) if own is None else (own.pending, own.merged)

    def start(self) -> None:
        """For the informer: begin to call the handler."""
        if self.own_delivery is not None and not self.is_started:
            self.is_started = True
            self.own_delivery.start()

    def replay(self) -> None:
        """Show the handler every object once more, as :attr:`ResourceAction.RESYNC`."""
        self._do_replay(self)


@final
class HandlerCaller:
    """Calls an :class:`EventHandler`; what it raises is reported and goes no further."""

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
        self._view = view  # None: objects are shown with the types of the informer's kind
        self._runner: asyncio.Runner | None = None

    @contextlib.contextmanager
    def bound(self) -> Iterator[None]:
        """For the thread that calls: one event loop for all calls, if any is async."""
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
            outcome = self._call(event)
            if outcome is not None and inspect.isawaitable(outcome):
                if self._runner is None:
                    import asyncio

                    self._runner = asyncio.Runner()
                self._runner.run(_wait_for(outcome))
        except Exception as error:
            if self._on_error is None:
                self._failures.failed(
                    error,
                    # A handler may be anything, also what has no hash.
                    type(self._handler).__qualname__,
                    "handler %r failed for %r",
                    self._handler,
                    event,
                )
            else:
                report_failure(self._on_error, error, str(key))

    def _call(self, event: Event) -> MaybeAwaitable:
        obj, old = event.object, event.old or event.object
        if self._view is not None:
            obj, old = obj.viewed_as(self._view), old.viewed_as(self._view)
        if event.action is ResourceAction.CREATE:
            return self._handler.on_add(obj, is_initial=event.is_initial)
        if event.action is ResourceAction.DELETE:
            return self._handler.on_delete(obj, is_final_state_unknown=event.is_final_state_unknown)
        return self._handler.on_update(old, obj)


def check_handler(
    handler: EventHandler | BatchHandler,
    resync: float | None,
    max_pending: int,
    overflow: Overflow,
) -> None:
    """Refuse what is no handler, and options that it cannot have.

    Raises:
        TypeError: something is of another type.
        ValueError: a number is out of bounds; or a resync is wanted for a handler that has no
            thread in which it could be shown anything.
    """
    if isinstance(handler, type) or not isinstance(handler, (BatchHandler, EventHandler)):
        raise _no_handler(handler)
    check_count("max_pending", max_pending, 1)
    check_overflow(overflow)
    if resync is not None:
        checked_seconds("resync", resync)
    if resync and isinstance(handler, BatchHandler) and not isinstance(handler, EventSource):
        raise ValueError(
            f"resync={resync}: {type(handler).__name__} is called in the informer's thread and "
            "has no time of its own; call replay() of the registration instead"
        )


def _no_handler(handler: object) -> TypeError:
    if isinstance(handler, type):
        return TypeError(f"handler={handler!r} is a class: give an instance, {handler.__name__}(…)")
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
    """What to hand events to, and the delivery that was made for an :class:`EventHandler`.

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


async def _wait_for(outcome: Awaitable[None]) -> None:
    await outcome


def report_problem(
    on_error: ErrorHandler | None, error: Exception, kind: Kind, namespace: str
) -> None:
    """Tell ``on_error`` of an informer's problem, or the log when there is none."""
    what = f"the informer of {kind}"
    if on_error is not None:
        report_failure(on_error, error, what)
        return
    # What a server or a network does needs no traceback; what code does, does.
    is_expected = isinstance(error, (ClientError, DecodeError, OSError))
    _log.warning(
        "%s: %s",
        what,
        error if is_expected else repr(error),
        exc_info=None if is_expected else error,
        extra={"kind": str(kind), "namespace": namespace},
    )


def report_failure(on_error: ErrorHandler, error: Exception, whose: str) -> None:
    """Tell ``on_error``, which must not raise: what it raises is logged."""
    try:
        on_error(error)
    except BaseException as raised:
        failure = as_exception("on_error", raised)
        _log.error("on_error failed when told of %r of %s", error, whose, exc_info=failure)
