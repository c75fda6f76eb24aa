"""The state of one run of a controller: queue, sources, runner, metrics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, final

from appsdk_operator.controllers._engine.deadlines import Deadlines
from appsdk_operator.controllers._engine.metrics import ReconcileMetrics
from appsdk_operator.controllers._engine.runner import ReconcileRunner, SourceQueue
from appsdk_operator.controllers._options import ResolvedOptions
from appsdk_operator.controllers._sources.starts import SourceStarts
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    ActivityLog,
    Clock,
    Metrics,
    RateLimiter,
    StopSignal,
    ThreadGroup,
    WorkQueue,
    safe_text,
)

R = TypeVar("R", bound=Hashable)


@final
class ControllerRun(Generic[R]):
    """The queue of a run, the sources that fill it and the runner that empties it.

    It is created at the start of the controller, and publishes its metrics then.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        reconcile: Callable[[R], Any],
        *,
        options: ResolvedOptions,
        on_source_failure: Callable[[Exception], None],
        helpers: ThreadGroup,
        activity: ActivityLog,
        stop: StopSignal,
        clock: Clock,
        registry: Metrics,
        finders: Sequence[Callable[[str, str], Object | None]],
    ) -> None:
        limiter = options.rate_limiter()
        _check_limiter(limiter)
        self.queue: WorkQueue[R] = WorkQueue(
            name, rate_limiter=limiter, clock=clock, metrics=registry
        )
        self.source_queue: SourceQueue[R] = SourceQueue(self.queue, on_source_failure)
        self.metrics = ReconcileMetrics(name, options.max_concurrent_reconciles)
        self.deadlines = Deadlines(helpers, clock)
        self.starts: SourceStarts[R] = SourceStarts(
            name, helpers, clock, timeout=options.cache_sync_timeout, stop=stop
        )
        self.runner: ReconcileRunner[R] = ReconcileRunner(
            name,
            kind,
            reconcile,
            options=options,
            queue=self.queue,
            metrics=self.metrics,
            deadlines=self.deadlines,
            activity=activity,
            stop=stop,
            clock=clock,
            finders=finders,
        )
        self.metrics.publish(registry, self.runner.active_count)

    def snapshot(self, now: float) -> dict[str, Any]:
        """Its sources, results, running and queued requests, as JSON values."""
        return {
            "sources": self.starts.snapshot(),
            "results": self.metrics.results(),
            "running": [
                {
                    "request": safe_text(context.request),
                    "reconcile_id": context.id,
                    "attempt": context.attempt,
                    "seconds": now - context.started,
                    "reasons": list(context.reasons),
                }
                for context in self.runner.active()
            ],
            "queued": [
                {
                    "request": safe_text(entry["key"]),
                    "place": entry["place"],
                    "priority": entry["priority"],
                    "due_in": entry["due_in"],
                    "reasons": entry["reasons"],
                }
                for entry in self.queue.snapshot()
            ],
            "failing": {
                safe_text(request): count for request, count in self.runner.failing().items()
            },
        }


def _check_limiter(limiter: Any) -> None:
    missing = [
        name
        for name in ("when", "forget", "failures")
        if not callable(getattr(limiter, name, None))
    ]
    if missing:
        raise TypeError(
            f"rate_limiter made {limiter!r}, which has no {' and no '.join(missing)}: it is to "
            f"return a {RateLimiter.__name__}, as ItemExponential() is"
        )
