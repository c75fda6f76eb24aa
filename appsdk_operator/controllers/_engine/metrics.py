"""The metrics of a controller, sampled at each scrape.

Names and labels are those of controller-runtime, so that its dashboards work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.runtime import Family, LocalHistogram, Metrics, Sample

_LABELS = ("controller",)
_RESULTS: tuple[str, ...] = ("success", "error", "requeue", "requeue_after")
_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
_TOTAL = Family(
    "controller_runtime_reconcile_total",
    "counter",
    "Reconciles by result.",
    ("controller", "result"),
)
_ERRORS = Family(
    "controller_runtime_reconcile_errors_total", "counter", "Reconciles that failed.", _LABELS
)
_TERMINAL = Family(
    "controller_runtime_terminal_reconcile_errors_total",
    "counter",
    "Reconciles that failed and will not be retried.",
    _LABELS,
)
_PANICS = Family(
    "controller_runtime_reconcile_panics_total",
    "counter",
    "Reconciles that ended with a bug.",
    _LABELS,
)
_TIMEOUTS = Family(
    "controller_runtime_reconcile_timeouts_total",
    "counter",
    "Reconciles that took longer than the reconcile time-out.",
    _LABELS,
)
_TIME = Family(
    "controller_runtime_reconcile_time_seconds",
    "histogram",
    "Time that a reconcile took.",
    _LABELS,
)
_WORKERS = Family(
    "controller_runtime_max_concurrent_reconciles",
    "gauge",
    "How many reconciles may run side by side.",
    _LABELS,
)
_GIVEN_UP = Family(
    "controller_requests_given_up",
    "gauge",
    "Requests whose last reconcile failed, and that only an event repeats.",
    _LABELS,
)
_ACTIVE = Family(
    "controller_runtime_active_workers", "gauge", "How many reconciles run now.", _LABELS
)


@final
class ReconcileMetrics:
    """The metrics of one controller. Thread-safe."""

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._workers = workers
        self._lock = threading.Lock()
        self._results: dict[str, int] = dict.fromkeys(_RESULTS, 0)
        self._time = LocalHistogram(_BUCKETS)
        self._terminal = self._panics = self._timeouts = 0
        self._active: Callable[[], int] = lambda: 0
        self._given_up: Callable[[], int] = lambda: 0
        self._retire: Callable[[], None] = lambda: None

    def publish(
        self, metrics: Metrics, active: Callable[[], int], given_up: Callable[[], int]
    ) -> None:
        """Publish every series, from 0 on.

        Args:
            metrics: where.
            active: returns the number of running reconciles.
            given_up: returns the number of requests that are given up.
        """
        self._active = active
        self._given_up = given_up
        self._retire = metrics.add_source(self._samples)

    def retire(self) -> None:
        """Stop publishing; the registry keeps the totals."""
        self._retire()

    def count(
        self,
        result: str,
        seconds: float,
        *,
        is_terminal: bool = False,
        is_panic: bool = False,
        is_timeout: bool = False,
    ) -> None:
        """Count a finished reconcile."""
        with self._lock:
            self._results[result] += 1
            self._time.observe(seconds)
            self._terminal += is_terminal
            self._panics += is_panic
            self._timeouts += is_timeout

    def results(self) -> dict[str, int]:
        """The number of reconciles by result."""
        with self._lock:
            return dict(self._results)

    def _samples(self) -> list[Sample]:
        labels = (self._name,)
        active, given_up = self._active(), self._given_up()
        with self._lock:
            return [
                *(
                    Sample(_TOTAL, (self._name, result), count)
                    for result, count in self._results.items()
                ),
                Sample(_ERRORS, labels, self._results["error"]),
                Sample(_TERMINAL, labels, self._terminal),
                Sample(_PANICS, labels, self._panics),
                Sample(_TIMEOUTS, labels, self._timeouts),
                Sample(_TIME, labels, self._time.copy()),
                Sample(_WORKERS, labels, self._workers),
                Sample(_ACTIVE, labels, active),
                Sample(_GIVEN_UP, labels, given_up),
            ]
