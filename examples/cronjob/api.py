"""The kind CronJob in two versions, which differ in how they write the schedule."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from appsdk_operator import Kind, Object, kinds

__all__ = [
    "CommonSpec",
    "ConcurrencyPolicy",
    "CronJob",
    "CronJobObject",
    "CronJobSpec",
    "CronJobSpecV2",
    "CronJobStatus",
    "CronJobV2",
    "Job",
    "JobObject",
    "JobReference",
    "JobStatus",
    "JobTemplate",
    "Schedule",
    "TemplateMetadata",
]

ConcurrencyPolicy = Literal["Allow", "Forbid", "Replace"]
Count = Annotated[int, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]


class TemplateMetadata(Struct, frozen=True, omit_defaults=True):
    """The labels and annotations of the jobs."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class JobTemplate(Struct, frozen=True, omit_defaults=True):
    """The jobs to make."""

    # A JobSpec has hundreds of fields, of which this operator reads none.
    spec: dict[str, Any]
    metadata: TemplateMetadata = TemplateMetadata()


class CommonSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All but the schedule, which is the same in each version.

    None stands for what the user has left out.
    """

    job_template: JobTemplate
    starting_deadline_seconds: Count | None = None
    """How late a job may start. A start that is missed by more is left out."""
    concurrency_policy: ConcurrencyPolicy | None = None
    """What to do if the last job still runs: start a second one, none, or one in its place."""
    suspend: bool | None = None
    """Whether no new jobs are started."""
    successful_jobs_history_limit: Count | None = None
    failed_jobs_history_limit: Count | None = None


class CronJobSpec(CommonSpec, frozen=True, kw_only=True):
    """When to start which jobs."""

    schedule: str
    """Five fields, as in a crontab, in UTC."""


class Schedule(Struct, frozen=True, rename="camel"):
    """A schedule, field by field; what is left out is any."""

    # No patterns here: objects are converted before they are checked, and what cannot be read then
    # is an internal error to the user. The validator has better words.
    minute: str = "*"
    hour: str = "*"
    day_of_month: str = "*"
    month: str = "*"
    day_of_week: str = "*"


class CronJobSpecV2(CommonSpec, frozen=True, kw_only=True):
    """When to start which jobs."""

    schedule: Schedule


class JobReference(Struct, frozen=True, rename="camel"):
    """A job."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class CronJobStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was started."""

    active: tuple[JobReference, ...] = ()
    """The jobs that run."""
    last_schedule_time: Time | None = None
    """The last start time for which a job was made."""


CronJob: Kind[CronJobSpec, CronJobStatus | None] = Kind(
    group="batch.tutorial.kubebuilder.io",
    version="v1",
    kind="CronJob",
    spec=CronJobSpec,
    status=CronJobStatus,
)
CronJobV2: Kind[CronJobSpecV2, CronJobStatus | None] = Kind(
    group="batch.tutorial.kubebuilder.io",
    version="v2",
    kind="CronJob",
    spec=CronJobSpecV2,
    status=CronJobStatus,
)
CronJobObject: TypeAlias = Object[CronJobSpec, CronJobStatus | None]


class JobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What this operator reads of a job's status, apart from the conditions."""

    start_time: Time | None = None


Job: Kind[Any, JobStatus | None] = kinds.batch.v1.Job.typed(status=JobStatus)
JobObject: TypeAlias = Object[Any, JobStatus | None]
