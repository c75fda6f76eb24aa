"""Plays the controller of Jobs, which neither the embedded API server nor a bare one has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from appsdk_operator import MergePatch
from appsdk_operator.client import ClientLike, NotFound
from appsdk_operator.controllers import (
    ControllerHost,
    Request,
    Result,
    controller_for,
    is_condition_true,
)
from appsdk_operator.runtime import Clock, system_clock

from .api import Job, JobObject

__all__ = ["JobPlayer", "add_job_player", "finish", "work"]


class JobPlayer:
    """Pretends that each job runs for some seconds, and succeeds."""

    def __init__(self, client: ClientLike, clock: Clock, seconds: float) -> None:
        self.client = client
        self.clock = clock
        self.seconds = seconds

    def reconcile(self, request: Request) -> Result | None:
        """Begin the job, or end it when it is time."""
        try:
            job = self.client.get(Job, request.name, namespace=request.namespace)
        except NotFound:
            return None
        if job.is_deleting or is_condition_true(job, "Complete"):
            return None
        if job.status is None or job.status.start_time is None:
            work(self.client, job, clock=self.clock)
            return Result(requeue_after=self.seconds)
        left = job.status.start_time.timestamp() + self.seconds - self.clock.time()
        if left > 0:
            return Result(requeue_after=left)
        finish(self.client, job, clock=self.clock)
        return None


def add_job_player(host: ControllerHost, client: ClientLike, *, seconds: float) -> None:
    """Let all jobs run for some seconds of the host's clock."""
    player = JobPlayer(client, host.clock, seconds)
    controller_for(host).for_(Job).named("job-player").complete(player)


def work(client: ClientLike, job: JobObject, *, clock: Clock = system_clock) -> None:
    """Say that the job has a pod that runs."""
    _report(client, job, {"startTime": _stamp(clock), "active": 1, "ready": 1})


def finish(
    client: ClientLike, job: JobObject, *, succeeds: bool = True, clock: Clock = system_clock
) -> None:
    """Say that the job is done."""
    now = _stamp(clock)
    # With the counts and conditions that a real API server wants to see together.
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
