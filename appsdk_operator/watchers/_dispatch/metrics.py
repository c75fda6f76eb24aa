"""The metrics of an InformerController, sampled at each scrape.

Names and labels are those of grafana-app-sdk, so that its dashboards work.
"""

from __future__ import annotations

import collections
import enum
import threading
from collections.abc import Callable, Mapping
from typing import final

import msgspec

from appsdk_operator.cache import ResourceAction
from appsdk_operator.runtime import Family, LocalHistogram, Metrics, Sample

_LABELS = ("event_type", "kind")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DURATION = Family(
    "watcher_process_duration_seconds", "histogram", "Time a watcher took for a call.", _LABELS
)
_ERRORS = Family("watcher_errors_total", "counter", "Calls of watchers that failed.", _LABELS)
_GIVEN_UP = Family(
    "watcher_given_up_total", "counter", "Failed calls that will not be retried.", _LABELS
)
_RECONCILER_DURATION = Family(
    "reconciler_process_duration_seconds",
    "histogram",
    "Time a reconciler took for a call.",
    _LABELS,
)
_RECONCILER_ERRORS = Family(
    "reconciler_errors_total", "counter", "Calls of reconcilers that failed.", _LABELS
)
_RECONCILER_GIVEN_UP = Family(
    "reconciler_given_up_total",
    "counter",
    "Failed calls of reconcilers that will not be retried.",
    _LABELS,
)
_REQUEUED = Family(
    "reconciler_requeues_total", "counter", "Calls that reconcilers asked for.", _LABELS
)
_CLEAN_UPS_GIVEN_UP = Family(
    "cleanups_given_up_total",
    "counter",
    "Failed calls for objects that are deleted, or are being deleted, that will not be retried.",
    ("kind",),
)
_GIVEN_UP_NOW = Family(
    "calls_given_up",
    "gauge",
    "Failed calls that nothing repeats before their object changes, a resync or a restart.",
    ("kind",),
)
_EVENT_DURATION = Family(
    "informer_reconcile_duration_seconds",
    "histogram",
    "Time that all watchers and reconcilers together took for an event.",
    _LABELS,
)
_ONGOING = Family("ongoing_reconcile_processes", "gauge", "Calls that run now.", _LABELS)
_ONGOING_EVENTS = Family(
    "ongoing_reconcile_events", "gauge", "Events whose calls run now, without retries.", _LABELS
)
_ENQUEUED = Family("retry_processor_enqueued_total", "counter", "Retries planned.", _LABELS)
_EXECUTED = Family("retry_processor_executions_total", "counter", "Retries made.", _LABELS)
_PENDING = Family("retry_processor_pending_total", "gauge", "Retries that wait.", ())
_WAITED = Family(
    "retry_processor_queue_wait_duration_seconds",
    "histogram",
    "Time from the moment a retry was due to the moment it was made.",
    _LABELS,
)


class Role(enum.Enum):
    """Watcher or reconciler; they have separate metrics."""

    WATCHER = "watcher"
    RECONCILER = "reconciler"


_OF_CALLS = {
    Role.WATCHER: (_DURATION, _ERRORS, _GIVEN_UP),
    Role.RECONCILER: (_RECONCILER_DURATION, _RECONCILER_ERRORS, _RECONCILER_GIVEN_UP),
}
_ACTIONS = tuple(a for a in ResourceAction if a is not ResourceAction.GENERIC)


@final
class RunningCall(msgspec.Struct, frozen=True):
    """What a thread works on: a call for an event, or the retry of one."""

    action: ResourceAction
    kind: str
    is_event: bool


@final
class CallMetrics:
    """The metrics of the calls of one role, kind and action."""

    __slots__ = ("duration", "errors", "given_up", "sole_duration")

    def __init__(self) -> None:
        # Apart, so that most events, which lead to one call, are measured once and not twice.
        self.sole_duration = LocalHistogram(_BUCKETS)
        """The durations of calls that were the only one for their event."""
        self.duration = LocalHistogram(_BUCKETS)
        """The durations of all others."""
        self.errors = self.given_up = 0


class _Series:
    """The metrics of one kind and action."""

    __slots__ = (
        "enqueued",
        "events",
        "executed",
        "of_reconcilers",
        "of_watchers",
        "requeued",
        "waited",
    )

    def __init__(self) -> None:
        # No dict by role: hashing an enumeration costs as much as the rest of a call's metrics.
        self.of_watchers = CallMetrics()
        self.of_reconcilers = CallMetrics()
        self.events = LocalHistogram(_BUCKETS)
        """The durations of events that led to more than one call."""
        self.waited = LocalHistogram(_BUCKETS)
        self.enqueued = self.executed = self.requeued = 0

    def of(self, role: Role) -> CallMetrics:
        """The metrics of the calls of one role."""
        return self.of_watchers if role is Role.WATCHER else self.of_reconcilers


@final
class ControllerMetrics:
    """The metrics of one controller. Thread-safe."""

    def __init__(self, pending: Callable[[], int]) -> None:
        self._pending = pending
        self.lock = threading.Lock()
        """Held while metrics change."""
        self._series: dict[str, dict[ResourceAction, _Series]] = {}
        self._reconciled: set[str] = set()
        self._clean_ups_given_up: dict[str, int] = {}
        self.given_up_calls: Callable[[], Mapping[str, int]] = dict
        """Returns the number of calls that are given up now, by kind; set by who makes them."""
        self.running_calls: Callable[[], list[RunningCall]] = list
        """Returns the running calls; set by who makes them."""
        self._retire: Callable[[], None] = lambda: None

    def publish(self, metrics: Metrics) -> None:
        """Publish in ``metrics``."""
        self._retire = metrics.add_source(self._samples)

    def retire(self) -> None:
        """Stop publishing; the registry keeps the totals."""
        self._retire()

    def add_kind(
        self, kind: str, role: Role = Role.WATCHER
    ) -> Mapping[ResourceAction, CallMetrics]:
        """Create every series of ``kind`` at 0; those of reconcilers only if there are any.

        Returns:
            The metrics of the calls of that role by action, to be changed under :attr:`lock`.
        """
        with self.lock:
            if kind not in self._series:
                self._series[kind] = {action: _Series() for action in _ACTIONS}
                self._clean_ups_given_up[kind] = 0
            if role is Role.RECONCILER:
                self._reconciled.add(kind)
            return {action: series.of(role) for action, series in self._series[kind].items()}

    def event_handled(self, kind: str, action: ResourceAction, seconds: float) -> None:
        """Count an event that led to more than one call."""
        with self.lock:
            self._series[kind][action].events.observe(seconds)

    def requeued(self, kind: str, action: ResourceAction) -> None:
        """Count a requeue that a reconciler asked for."""
        with self.lock:
            self._series[kind][action].requeued += 1

    def retry_planned(self, kind: str, action: ResourceAction) -> None:
        """Count a failed call that will be retried."""
        with self.lock:
            self._series[kind][action].enqueued += 1

    def gave_up(
        self, kind: str, role: Role, action: ResourceAction, *, is_clean_up: bool = False
    ) -> None:
        """Count a failed call that will not be retried.

        Args:
            kind: the kind that the call was for.
            role: who was called.
            action: what the call was for.
            is_clean_up: whether its object is deleted or is being deleted.
        """
        with self.lock:
            self._series[kind][action].of(role).given_up += 1
            self._clean_ups_given_up[kind] += is_clean_up

    def retry_made(self, kind: str, action: ResourceAction, late: float) -> None:
        """Count a retry that starts ``late`` seconds after it was due."""
        with self.lock:
            series = self._series[kind][action]
            series.executed += 1
            series.waited.observe(late)

    def calls(self) -> int:
        """The number of calls that have ended."""
        with self.lock:
            return sum(
                sum(histogram.counts)
                for by_action in self._series.values()
                for series in by_action.values()
                for calls in (series.of_watchers, series.of_reconcilers)
                for histogram in (calls.sole_duration, calls.duration)
            )

    def _samples(self) -> list[Sample]:
        samples = [Sample(_PENDING, (), self._pending())]
        given_up = self.given_up_calls()
        with self.lock:
            running = collections.Counter(self.running_calls())
            samples += [
                Sample(_CLEAN_UPS_GIVEN_UP, (kind,), count)
                for kind, count in self._clean_ups_given_up.items()
            ]
            samples += [
                Sample(_GIVEN_UP_NOW, (kind,), given_up.get(kind, 0)) for kind in self._series
            ]
            for kind, by_action in self._series.items():
                for action, series in by_action.items():
                    labels = (action.value, kind)
                    events = running[RunningCall(action, kind, is_event=True)]
                    retries = running[RunningCall(action, kind, is_event=False)]
                    sole = series.of_watchers.sole_duration.plus(
                        series.of_reconcilers.sole_duration
                    )
                    samples += (
                        Sample(_ONGOING, labels, events + retries),
                        Sample(_ONGOING_EVENTS, labels, events),
                        Sample(_EVENT_DURATION, labels, sole.plus(series.events)),
                    )
                    samples += _of_calls(Role.WATCHER, labels, series)
                    if kind in self._reconciled:
                        samples += _of_calls(Role.RECONCILER, labels, series)
                        samples.append(Sample(_REQUEUED, labels, series.requeued))
                    samples += (
                        Sample(_ENQUEUED, labels, series.enqueued),
                        Sample(_EXECUTED, labels, series.executed),
                        Sample(_WAITED, labels, series.waited.copy()),
                    )
        return samples


def _of_calls(role: Role, labels: tuple[str, ...], series: _Series) -> tuple[Sample, ...]:
    duration, errors, given_up = _OF_CALLS[role]
    calls = series.of(role)
    return (
        Sample(duration, labels, calls.sole_duration.plus(calls.duration)),
        Sample(errors, labels, calls.errors),
        Sample(given_up, labels, calls.given_up),
    )
