"""The event recorder: tells users of an object, by events, what a controller did."""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, final

from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    Patch,
    ServerError,
    TooManyRequests,
    TransportError,
)
from appsdk_operator.manager._events.correlator import (
    EventCorrelator,
    EventOptions,
    EventWrite,
    ObserveResult,
)
from appsdk_operator.manager._events.objects import (
    EventType,
    Occurrence,
    Subject,
    check_instance,
    check_recorder_name,
    keyed_occurrence,
    to_create,
    to_patch,
)
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import (
    NO_THREAD,
    Clock,
    Family,
    Metrics,
    Sample,
    StopSignal,
    ThreadGroup,
    after_fork,
    counted,
    get_logger,
    present_clock,
    present_metrics,
)

_log = get_logger("appsdk_operator.manager")

_RECORDED = Family("event_recorder_recorded_total", "counter", "Events that were taken in.", ())
_DROPPED = Family(
    "event_recorder_dropped_total",
    "counter",
    "Events that were not taken in: too many at once, or after the end.",
    (),
)
_FAILED = Family(
    "event_recorder_failed_total", "counter", "Events that were taken in and then given up.", ()
)
_PENDING = Family(
    "event_recorder_pending", "gauge", "Events, repetitions included, that wait to be written.", ()
)


class EventClient(Protocol):
    """The methods of a client that recorders call."""

    def create(self, obj: Object | MutableObject) -> Object:
        """Create the event."""
        ...

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        """Update the count of the event."""
        ...


@final
class EventRecorder:
    """Records events of one controller; see :meth:`EventBroadcaster.recorder`."""

    def __init__(self, name: str, record: Callable[..., None]) -> None:
        self._record = record
        self.name: str = check_recorder_name(name)
        """The reporting controller."""

    def event(
        self,
        regarding: Subject,
        type: EventType,  # noqa: A002 - the API's own word
        reason: str,
        action: str,
        note: str = "",
        *,
        related: Subject | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event. Returns at once; server errors are only logged and counted.

        Events about cluster-scoped objects go into the namespace ``kube-system``, or with
        :attr:`EventOptions.legacy` into ``default``, as the API requires.

        The event has only the kind, name, namespace and uid of the objects. Everybody who may list
        events can read ``note``: put no secrets there.

        Events that differ only in their note become one event with a count. It has the first note,
        or with :attr:`EventOptions.legacy` the last.

        Args:
            regarding: the object, or an :class:`ObjectReference`.
            type: ``"Normal"`` or ``"Warning"``.
            reason: the reason, one word for machines: ``"ScalingUp"``.
            action: the action, one word for machines: ``"CreatePod"``. In the older API the
                sentence for people comes in this place; here it is ``note``.
            note: a sentence for people; cut to 1024 bytes.
            related: a second object that the event concerns.
            annotations: annotations of the event object.

        Raises:
            ValueError: the API does not allow ``type``, ``reason`` or ``action``, or the object has
                no name.

        Thread-safe.
        """
        self._record(
            self.name,
            regarding,
            type,
            reason,
            action,
            note,
            related=related,
            annotations=annotations,
        )


@final
class EventBroadcaster:
    """Writes the events of all recorders, in a thread that runs while events are pending.

    Semantics and numbers are those of client-go's ``tools/events``: repetitions become a series.
    The broadcaster writes its count with the second event, then every half hour, and when the
    series ends. It drops floods. Two things differ: it also writes pending counts when it closes,
    and a changed resource version of the object does not begin another series.

    Guarantees:
        * Recording never waits for the server, and memory is bounded.
        * Every occurrence is in a written count, or in one of the metrics
          ``event_recorder_dropped_total`` and ``event_recorder_failed_total``.

    Caveats:
        * The broadcaster repeats a write without an answer; the count is still correct.
        * Run it in a Manager, or call :meth:`close` at the end; otherwise pending counts are lost.

    Thread-safe.
    """

    needs_leader_election = False

    def __init__(
        self,
        client: EventClient,
        *,
        options: EventOptions | None = None,
        instance: str = "",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A broadcaster whose thread starts with the first event.

        Args:
            client: writes the events; the account needs ``create`` and ``patch`` on ``events``.
            options: see :class:`EventOptions`.
            instance: the reporting instance, cut to 128 bytes; default: the host's name,
                which in a pod is the pod's.
            clock: the clock for waits and time stamps.
            metrics: the metrics that it writes to; default: the environment's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
        """
        self._client = client
        self._options = options or EventOptions()
        self._instance = check_instance(instance or platform.node() or "unknown")
        self._clock = clock = present_clock(clock)
        self._begin()
        self._is_closing = False
        self._is_closed = False
        self._number = 0
        self._recorders: dict[str, EventRecorder] = {}
        self._warned: set[str] = set()
        self._end_metrics = present_metrics(metrics).add_source(self._samples)
        # A forked child has no writer thread. The parent writes what is pending.
        after_fork(self._begin)

    def _begin(self) -> None:
        self._condition = threading.Condition()
        self._correlator: EventCorrelator[Occurrence] = EventCorrelator(self._options)
        self._threads = ThreadGroup("events")
        self._is_running = False
        self._flushes = 0

    def recorder(self, name: str) -> EventRecorder:
        """The recorder for the controller ``name``, the same for all callers.

        Raises:
            ValueError: the API does not allow the name for a reporting controller.
        """
        with self._condition:
            known = self._recorders.get(name)
            if known is None:
                known = self._recorders[name] = EventRecorder(name, self._record)
            return known

    def run(self, stop: StopSignal) -> None:
        """Wait for ``stop``, then :meth:`close`; for managers and operators."""
        stop.wait()
        self.close()

    def flush(self, timeout: float = 10.0) -> bool:
        """Write all pending events, including counts of series.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            Whether everything was written or given up.
        """
        deadline = self._clock.monotonic() + timeout
        with self._condition:
            self._flushes += 1
            try:
                self._correlator.force(retries=True)
                if not self._correlator.is_clean:
                    self._ensure_writer()
                while not self._correlator.is_clean:
                    left = deadline - self._clock.monotonic()
                    if left <= 0:
                        return False
                    self._clock.wait(self._condition, left)
                return True
            finally:
                self._flushes -= 1

    def close(self, timeout: float = 5.0) -> bool:
        """Write pending events, with one attempt for each, and end; later events are dropped.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            Whether everything was written; lost events are counted as failed and logged.

        Harmless when called twice.
        """
        deadline = self._clock.monotonic() + timeout
        with self._condition:
            self._is_closing = True
            failed_before = self._correlator.failed
        self.flush(timeout)
        with self._condition:
            self._is_closed = True
            self._correlator.give_up()
            lost = self._correlator.failed - failed_before
            self._condition.notify_all()
        running = self._threads.join(max(0.0, deadline - self._clock.monotonic()))
        self._end_metrics()
        if lost:
            _log.warning("%s could not be written before the stop", counted(lost, "event"))
        if running:
            text = "the recorder is closed, but the API server has not answered these threads: %s"
            _log.warning(text, ", ".join(running))
        return not lost

    def _record(
        self,
        name: str,
        regarding: Subject,
        type: EventType,  # noqa: A002
        reason: str,
        action: str,
        note: str,
        *,
        related: Subject | None,
        annotations: Mapping[str, str] | None,
    ) -> None:
        now, time = self._clock.monotonic(), self._clock.time()
        with self._condition:
            self._number += 1
            number = self._number
        made = keyed_occurrence(
            name,
            self._instance,
            regarding,
            type,
            reason,
            action,
            note,
            related=related,
            annotations=annotations,
            time=time,
            number=number,
        )
        with self._condition:
            if self._is_closing:
                self._correlator.dropped += 1
                outcome = "closed"
            else:
                outcome = self._correlator.observe(made, now).value
                self._ensure_writer()
            is_first = outcome != ObserveResult.RECORDED.value and outcome not in self._warned
            if is_first:
                self._warned.add(outcome)
        if is_first:
            _log.warning(_REASONS[outcome], made.fields.regarding.name)

    def _ensure_writer(self) -> None:
        """Wake or start the writer thread; the lock is held."""
        self._condition.notify_all()
        if not self._is_running:
            try:
                self._threads.start("writer", self._write_all)
            except NO_THREAD as error:
                # Events stay pending; the next event, or a flush, tries again.
                _log.warning("cannot start the thread that writes events: %s", error)
            else:
                self._is_running = True

    def _write_all(self) -> None:
        while (write := self._next()) is not None:
            self._write(write)

    def _next(self) -> EventWrite[Occurrence] | None:
        with self._condition:
            while not self._is_closed:
                now = self._clock.monotonic()
                write = self._correlator.next_write(now)
                if write is None and self._flushes:
                    # Also events that were recorded, or became a series, since the flush began.
                    self._correlator.force(retries=False)
                    write = self._correlator.next_write(now)
                if write is not None:
                    return write
                due = self._correlator.next_due()
                if due is None:
                    break
                self._clock.wait(self._condition, max(0.0, due - now))
            self._is_running = False
            return None

    def _write(self, write: EventWrite[Occurrence]) -> None:
        error: BaseException | None = None
        try:
            if write.is_new:
                self._client.create(to_create(write, legacy=self._options.legacy))
            else:
                first = write.first.fields
                self._client.patch(
                    kinds.core.v1.Event if self._options.legacy else kinds.events.v1.Event,
                    first.name,
                    to_patch(write, legacy=self._options.legacy),
                    namespace=first.namespace(legacy=self._options.legacy),
                )
        except BaseException as raised:  # the writer must survive every error
            error = raised
        with self._condition:
            # After the end the correlator has dropped the series.
            is_lost = not self._is_closed and self._record_result(write, error)
            # Warn once until a write succeeds: usually all of them fail for the same reason.
            level = logging.DEBUG if "failed" in self._warned else logging.WARNING
            if is_lost:
                self._warned.add("failed")
            self._condition.notify_all()
        if is_lost:
            self._log_failure(write, error, level)

    def _record_result(self, write: EventWrite[Occurrence], error: BaseException | None) -> bool:
        """Report the result of a write to the correlator; returns whether it was given up."""
        correlator, now = self._correlator, self._clock.monotonic()
        if error is None:
            self._warned.discard("failed")
            correlator.succeeded(write, now)
        elif isinstance(error, AlreadyExists) and write.is_new:
            correlator.already_exists(write, now)
        elif isinstance(error, NotFound) and not write.is_new:
            correlator.not_found(write)
        elif _is_transient(error) and not self._is_closing:
            return not correlator.retry_later(write, now)
        else:
            correlator.rejected(write)
            return True
        return False

    def _log_failure(
        self, write: EventWrite[Occurrence], error: BaseException | None, level: int
    ) -> None:
        first = write.first.fields
        _log.log(
            level,
            "event %s about %s %s could not be written: %s",
            first.reason,
            first.regarding.kind.kind,
            first.regarding.name,
            error,
        )

    def _samples(self) -> Iterable[Sample]:
        with self._condition:
            correlator = self._correlator
            return [
                Sample(_RECORDED, (), correlator.recorded),
                Sample(_DROPPED, (), correlator.dropped),
                Sample(_FAILED, (), correlator.failed),
                Sample(_PENDING, (), correlator.pending),
            ]


_REASONS = {
    ObserveResult.FLOODED.value: "too many different events about %s: some are dropped, see the "
    "metric event_recorder_dropped_total; this is said once",
    ObserveResult.FULL.value: "too many events wait to be written, the one about %s and others are "
    "dropped, see the metric event_recorder_dropped_total; this is said once",
    "closed": "an event about %s was recorded after the end and dropped; this is said once",
}


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, ApiError):
        return isinstance(error, (Conflict, ServerError, TooManyRequests))
    return isinstance(error, TransportError)
