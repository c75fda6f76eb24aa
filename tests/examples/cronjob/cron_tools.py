"""CronJobs in a world of simulated time, and the checks of what became of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from appsdk_operator.controllers import is_condition_true
from appsdk_operator.manager import Manager
from appsdk_operator.resource import WatchEventType
from appsdk_operator.testing import Replica, World
from examples.cronjob.api import CronJob, CronJobObject, Job, JobObject
from examples.cronjob.controller import SCHEDULED_AT, add_controller
from examples.cronjob.job_player import finish

NAME = "nightly"
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
TEMPLATE = {"spec": {"template": {"spec": POD}}}
EPOCH = datetime.fromtimestamp(1_700_000_000, UTC)
"""The time in a new world: 2023-11-14 22:13:20, a Tuesday."""


def make(replica: Replica) -> Manager:
    """The operator of one process."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    add_controller(manager, manager.client, manager.event_recorder("cronjob-controller"))
    return manager


def spec(schedule: str = "*/5 * * * *", **fields: Any) -> dict[str, Any]:
    """The spec of a CronJob."""
    return {"schedule": schedule, "jobTemplate": TEMPLATE, **fields}


def cron_job(world: World) -> CronJobObject:
    """The CronJob, as it is now."""
    return world.client.get(CronJob, NAME, namespace="default")


def now(world: World) -> datetime:
    """The time in the world."""
    return datetime.fromtimestamp(world.clock.time(), UTC)


def is_done(job: JobObject) -> bool:
    """Whether a job has ended."""
    return is_condition_true(job, "Complete") or is_condition_true(job, "Failed")


def active(world: World) -> list[JobObject]:
    """The jobs that have not ended."""
    return [job for job in world.objects(Job) if not is_done(job)]


def scheduled_at(job: JobObject) -> datetime:
    """The start time for which a job was made."""
    return datetime.fromisoformat(job.annotations[SCHEDULED_AT])


def started(world: World) -> list[str]:
    """The times of day for which there are jobs."""
    return [f"{scheduled_at(job):%H:%M}" for job in world.objects(Job)]


def finish_all(world: World, *, succeeds: bool = True) -> None:
    """End all jobs, as the controller of Jobs would."""
    for job in active(world):
        finish(world.client, job, succeeds=succeeds, clock=world.clock)


def history(world: World) -> list[tuple[WatchEventType, JobObject]]:
    """All that ever happened to jobs, in order."""
    with world.client.watch(Job, resource_version="1", timeout=1.0) as stream:
        return [(event.type, event.object) for event in stream.events() if event.object]


def minutes(since: datetime, until: datetime) -> list[datetime]:
    """The full minutes after a time, up to and with another."""
    first = since.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return [
        first + timedelta(minutes=n) for n in range(int((until - first).total_seconds()) // 60 + 1)
    ]
