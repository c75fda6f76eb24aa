"""The state of one run of a controller: queue, sources, runner, metrics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar, final

from appsdk_operator.controllers._engine.metrics import ReconcileMetrics
from appsdk_operator.controllers._engine.runner import ReconcileRunner, SourceQueue
from appsdk_operator.controllers._options import ResolvedOptions
from appsdk_operator.controllers._sources.starts import SourceStarts
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    ActivityLog,
    CallRecord,
    Clock,
    Metrics,
    RateLimiter,
    StopSignal,
    ThreadGroup,
    WorkQueue,
    safe_text,
)

R = TypeVar("R", bound=Hashable)

_ENDED: Final = {
    "given up": "no attempt is left",
    "terminal": "failed for good",
    "fatal": "ended the controller",
}


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
        self._activity = activity
        self.metrics = ReconcileMetrics(name, options.max_concurrent_reconciles)
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
            activity=activity,
            stop=stop,
            clock=clock,
            finders=finders,
        )
        self.metrics.publish(
            registry, self.runner.active_count, lambda: len(self.runner.given_up())
        )
        activity.monitor.publish(registry)
        activity.read_counts = self._counts

    def _counts(self) -> tuple[int, int]:
        return sum(self.metrics.results().values()), len(self.queue)

    def given_up_note(self) -> str:
        """For health texts: the requests that are given up; "" without any."""
        given_up = self.runner.given_up()
        if not given_up:
            return ""
        request, error = next(iter(given_up.items()))
        more = f", and {len(given_up) - 1} more" if len(given_up) > 1 else ""
        return f"given up until the next event: {safe_text(request)} ({error}){more}"

    def snapshot(self, now: float, time: float) -> dict[str, Any]:
        """Its sources, results, running, planned and given up requests, as JSON values."""
        failing = {safe_text(request): count for request, count in self.runner.failing().items()}
        errors = _last_errors(self._activity)
        waiting = self.queue.snapshot()
        planned = []
        for entry in waiting:
            request = safe_text(entry["key"])
            attempt = failing.get(request, 0)
            planned.append(
                {
                    "object": request,
                    "callback": "",
                    "why": "; ".join(map(str, entry["reasons"])),
                    "attempt": attempt,
                    "due_in": entry["due_in"],
                    "error": errors.get(request, "") if attempt else "",
                    "place": entry["place"],
                    "priority": entry["priority"],
                }
            )
        return {
            "sources": self.starts.snapshot(),
            "over_time_limit": self._activity.monitor.over_limit(),
            "results": self.metrics.results(),
            "running": [
                {
                    "object": safe_text(context.request),
                    "reconcile_id": context.id,
                    "attempt": context.attempt,
                    "seconds": now - context.started,
                    "why": "; ".join(map(str, context.reasons)),
                }
                for context in self.runner.active()
            ],
            "queued": sum(not entry["due_in"] for entry in waiting),
            "oldest_wait": self.queue.oldest_wait,
            "planned": planned,
            "failing": failing,
            "given_up": _given_up(self._activity, now, time),
            "given_up_total": len(self.runner.given_up()),
        }


def _last_errors(log: ActivityLog) -> dict[str, str]:
    """The last recorded error of each object, by the text of its key."""
    found: dict[str, str] = {}
    for call in log.failures():
        if call.cause is not None:
            found.setdefault(_object_of(call), f"{call.cause.type}: {call.cause.text}")
    return found


def _given_up(log: ActivityLog, now: float, time: float) -> list[dict[str, Any]]:
    """The objects whose last recorded call failed for good."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for call in log.failures():
        if call.outcome not in _ENDED or call.key in found:
            continue
        latest = log.timeline(call.namespace, call.name, kind=call.kind)
        if latest and latest[0] is call and call.cause is not None:
            found[call.key] = {
                "object": _object_of(call),
                "callback": call.callback,
                "why": _ENDED[call.outcome],
                "attempt": call.attempt,
                "due_in": None,
                "error": f"{call.cause.type}: {call.cause.text}",
                "since": time - (now - call.started),
            }
    return list(found.values())


def _object_of(call: CallRecord) -> str:
    return f"{call.namespace}/{call.name}" if call.namespace else call.name


def _check_limiter(limiter: Any) -> None:
    missing = [
        name
        for name in ("when", "forget", "failures")
        if not callable(getattr(limiter, name, None))
    ]
    if missing:
        raise TypeError(
            f"rate_limiter made {limiter!r}, which has no {' and no '.join(missing)}: it must "
            f"return a {RateLimiter.__name__}, such as ItemExponential()"
        )
