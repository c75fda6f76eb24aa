"""The controller of CronJobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from appsdk_operator import MutableObject
from appsdk_operator.client import ClientLike, NotFound
from appsdk_operator.controllers import (
    ControllerHost,
    Request,
    Result,
    TerminalError,
    controller_for,
    controller_of,
    is_condition_true,
    set_controller_reference,
)
from appsdk_operator.manager import EventRecorder
from appsdk_operator.runtime import Clock

from .api import CronJob, CronJobObject, CronJobSpec, CronJobStatus, Job, JobObject, JobReference
from .schedule import starts

__all__ = ["SCHEDULED_AT", "CronJobReconciler", "add_controller", "job_name"]

SCHEDULED_AT: Final = "batch.tutorial.kubebuilder.io/scheduled-at"
"""The annotation of a job with the start time for which it was made."""

_OWNER = "owner"


@attrs.frozen
class Jobs:
    """The jobs of a CronJob, each list in the order in which they began."""

    active: list[JobObject]
    successful: list[JobObject]
    failed: list[JobObject]

    @classmethod
    def of(cls, jobs: Iterable[JobObject]) -> Jobs:
        """Tell jobs that run from those that are done."""
        sorted_out = cls([], [], [])
        for job in sorted(jobs, key=began):
            if is_condition_true(job, "Complete"):
                sorted_out.successful.append(job)
            elif is_condition_true(job, "Failed"):
                sorted_out.failed.append(job)
            else:
                sorted_out.active.append(job)
        return sorted_out


class CronJobReconciler:
    """Makes the jobs of a CronJob when they are due, and deletes those that are long done."""

    def __init__(self, client: ClientLike, recorder: EventRecorder, clock: Clock) -> None:
        self.client = client
        self.recorder = recorder
        self.clock = clock

    def reconcile(self, request: Request) -> Result | None:
        """Write down what runs, clean up, start what is due, and wait for the next start."""
        try:
            cron_job = self.client.get(CronJob, request.name, namespace=request.namespace)
            return None if cron_job.is_deleting else self.run(cron_job)
        except NotFound:  # deleted, maybe right now; the garbage collector deletes its jobs
            return None

    def run(self, cron_job: CronJobObject) -> Result | None:
        """What is due for a CronJob that exists."""
        now = datetime.fromtimestamp(self.clock.time(), UTC)
        jobs = Jobs.of(
            self.client.list(
                Job, namespace=cron_job.namespace, field_selector=f"{_OWNER}={cron_job.uid}"
            )
        )
        # First of all, because a job that is deleted has no other trace than the status.
        cron_job = self.report(cron_job, jobs.active, last_start(cron_job, jobs))
        self.clean_up(cron_job.spec, jobs)
        if cron_job.spec.suspend:
            return None
        try:
            last, following = starts(cron_job.spec.schedule, after=earliest(cron_job, now), now=now)
        except ValueError as error:
            self.recorder.event(cron_job, "Warning", "NotScheduled", "Schedule", str(error))
            raise TerminalError(str(error)) from None  # until somebody changes the CronJob
        if last is not None:
            self.start(cron_job, jobs.active, last)
        if following is None:
            return None
        return Result(requeue_after=(following - now).total_seconds())

    def report(
        self,
        cron_job: CronJobObject,
        active: Iterable[JobObject],
        last: datetime | None,
    ) -> CronJobObject:
        """Write the status, if there is anything new in it."""
        status = CronJobStatus(active=tuple(map(reference_to, active)), last_schedule_time=last)
        if status == (cron_job.status or CronJobStatus()):
            return cron_job
        draft = cron_job.mutable_copy()
        draft.status = status
        return self.client.status.update(draft)  # a Conflict is tried again

    def clean_up(self, spec: CronJobSpec, jobs: Jobs) -> None:
        """Delete the oldest jobs that are done, down to the limits; no limit: none."""
        limits = (
            (jobs.successful, spec.successful_jobs_history_limit),
            (jobs.failed, spec.failed_jobs_history_limit),
        )
        for done, limit in limits:
            if limit is not None:
                for job in done[: max(0, len(done) - limit)]:
                    self.delete(job)

    def start(
        self,
        cron_job: CronJobObject,
        active: list[JobObject],
        time: datetime,
    ) -> None:
        """Make the job for a start time, if the policy lets it."""
        policy = cron_job.spec.concurrency_policy
        if policy == "Forbid" and active:
            return  # the end of the active one is an event, which leads here again
        if policy == "Replace":
            for job in active:
                self.delete(job)
            active = []
        job = self.client.create(new_job(cron_job, time))
        self.recorder.event(cron_job, "Normal", "Started", "Start", f"created job {job.name}")
        # Not left to the event of the job: it may be done and deleted before that comes.
        self.report(cron_job, [*active, job], time)

    def delete(self, job: JobObject) -> None:
        """Delete a job together with its pods."""
        with contextlib.suppress(NotFound):
            self.client.delete(
                Job, job.name, namespace=job.namespace, uid=job.uid, propagation="Background"
            )


def began(job: JobObject) -> datetime:
    """When the first pod of a job was started; a time long ago if none was yet."""
    return (job.status and job.status.start_time) or datetime.min.replace(tzinfo=UTC)


def earliest(cron_job: CronJobObject, now: datetime) -> datetime:
    """The moment after which a start time may still lead to a job."""
    since = cron_job.status.last_schedule_time if cron_job.status else None
    since = since or cron_job.creation_timestamp or now
    if cron_job.spec.starting_deadline_seconds is None:
        return since
    return max(since, now - timedelta(seconds=cron_job.spec.starting_deadline_seconds))


def last_start(cron_job: CronJobObject, jobs: Jobs) -> datetime | None:
    """The last start time for which there is a job, or was one.

    The jobs say it if the status was lost, or not written; the status, if the jobs are deleted.
    """
    times = [cron_job.status.last_schedule_time] if cron_job.status else []
    for job in (*jobs.active, *jobs.successful, *jobs.failed):
        with contextlib.suppress(ValueError):  # somebody else's writing
            noted = datetime.fromisoformat(job.annotations.get(SCHEDULED_AT, ""))
            times.append(noted.astimezone(UTC))
    return max((time for time in times if time is not None), default=None)


def new_job(cron_job: CronJobObject, time: datetime) -> MutableObject:
    """The job of a CronJob for a start time."""
    template = cron_job.spec.job_template
    job = MutableObject.new(
        Job, job_name(cron_job.name, time), namespace=cron_job.namespace, spec=template.spec
    )
    job.labels.update(template.metadata.labels)
    job.annotations.update(template.metadata.annotations)
    job.annotations[SCHEDULED_AT] = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    set_controller_reference(cron_job, job)
    return job


def job_name(name: str, time: datetime) -> str:
    """The same name for the same start time, so that the API server refuses a second job for it."""
    return f"{name}-{int(time.timestamp())}"


def reference_to(job: JobObject) -> JobReference:
    """The entry of the status for a job."""
    return JobReference(
        api_version=Job.api_version,
        kind=Job.kind,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
    )


def owner_of(job: JobObject) -> list[str]:
    """The uid of the CronJob that controls a job, for the index."""
    owner = controller_of(job)
    return [owner.uid] if owner is not None and owner.kind == CronJob.kind else []


def add_controller(host: ControllerHost, client: ClientLike, recorder: EventRecorder) -> None:
    """Add the controller, and the index from which it reads the jobs of a CronJob."""
    host.cache.add(Job)
    host.cache.index_field(Job, _OWNER, owner_of)
    reconciler = CronJobReconciler(client, recorder, host.clock)
    controller_for(host).for_(CronJob).owns(Job).complete(reconciler)
