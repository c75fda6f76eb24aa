"""Plays the controller of Jobs, which neither the embedded API server nor a bare one has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from appsdk_operator import MergePatch
from appsdk_operator.client import ClientLike
from appsdk_operator.runtime import Clock, system_clock

from .api import Job, JobObject

__all__ = ["finish", "work"]


def work(client: ClientLike, job: JobObject, *, clock: Clock = system_clock) -> None:
    """Say that the job has a pod that runs."""
    _report(client, job, {"startTime": _stamp(clock), "active": 1})


def finish(
    client: ClientLike, job: JobObject, *, succeeds: bool = True, clock: Clock = system_clock
) -> None:
    """Say that the job is done."""
    now = _stamp(clock)
    status: dict[str, Any] = {"active": 0, "ready": 0, "terminating": 0}
    if job.status is None or job.status.start_time is None:
        status["startTime"] = now
    if succeeds:
        status |= {"completionTime": now, "succeeded": 1}
        types = ["SuccessCriteriaMet", "Complete"]
    else:
        status["failed"] = 1
        types = ["FailureTarget", "Failed"]
    status["conditions"] = [
        {"type": type_, "status": "True", "lastTransitionTime": now, "reason": "Played"}
        for type_ in types
    ]
    status["uncountedTerminatedPods"] = {}
    _report(client, job, status)


def _report(client: ClientLike, job: JobObject, status: dict[str, Any]) -> None:
    client.status.patch(Job, job.name, MergePatch({"status": status}), namespace=job.namespace)


def _stamp(clock: Clock) -> str:
    return f"{datetime.fromtimestamp(clock.time(), UTC):%Y-%m-%dT%H:%M:%SZ}"
