"""What a controller has only from its beginning on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, final

from appsdk_operator.controllers._engine.deadlines import Deadlines
from appsdk_operator.controllers._engine.metrics import ReconcileMetrics
from appsdk_operator.controllers._engine.reasons import text
from appsdk_operator.controllers._engine.runner import Inbox, Reconciling
from appsdk_operator.controllers._options import Settings
from appsdk_operator.controllers._sources.starts import SourceStarts
from appsdk_operator.runtime import Clock, Metrics, RateLimiter, StopSignal, ThreadGroup, WorkQueue

__all__ = ["Engine"]

R = TypeVar("R", bound=Hashable)


@final
class Engine(Generic[R]):
    """A queue, what fills it and what empties it; its metrics are published at 0."""

    def __init__(
        self,
        name: str,
        kind: str,
        reconcile: Callable[[R], Any],
        *,
        settings: Settings,
        on_source_failure: Callable[[Exception], None],
        helpers: ThreadGroup,
        stop: StopSignal,
        clock: Clock,
        registry: Metrics,
    ) -> None:
        limiter = settings.rate_limiter()
        _check_limiter(limiter)
        self.queue: WorkQueue[R] = WorkQueue(
            name, rate_limiter=limiter, clock=clock, metrics=registry
        )
        self.inbox: Inbox[R] = Inbox(self.queue, on_source_failure)
        self.metrics = ReconcileMetrics(name, settings.max_concurrent_reconciles)
        self.deadlines = Deadlines(helpers, clock)
        self.starts: SourceStarts[R] = SourceStarts(
            name, helpers, clock, timeout=settings.cache_sync_timeout, stop=stop
        )
        self.reconciling: Reconciling[R] = Reconciling(
            name,
            kind,
            reconcile,
            settings=settings,
            queue=self.queue,
            metrics=self.metrics,
            deadlines=self.deadlines,
            stop=stop,
            clock=clock,
        )
        self.metrics.publish(registry, self.reconciling.active_count)

    def snapshot(self, now: float) -> dict[str, Any]:
        """What it does and has to do, and why, as values that JSON knows."""
        return {
            "sources": self.starts.snapshot(),
            "results": self.metrics.results(),
            "running": [
                {
                    "request": text(context.request),
                    "reconcile_id": context.id,
                    "attempt": context.attempt,
                    "seconds": now - context.started,
                    "reasons": list(context.reasons),
                }
                for context in self.reconciling.active()
            ],
            "queued": [
                {
                    "request": text(entry["key"]),
                    "place": entry["place"],
                    "priority": entry["priority"],
                    "due_in": entry["due_in"],
                    "reasons": entry["reasons"],
                }
                for entry in self.queue.snapshot()
            ],
            "failing": {
                text(request): count for request, count in self.reconciling.failing().items()
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
