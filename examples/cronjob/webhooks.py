"""What the API server asks before it stores a CronJob, and to serve it in another version."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from appsdk_operator import MutableObject
from appsdk_operator.resource import FieldError, field
from appsdk_operator.webhooks import WebhookHost, webhook_for

from .api import CronJob, CronJobObject, CronJobSpec, CronJobStatus
from .conversion import VERSIONS
from .schedule import check_schedule

__all__ = ["LONGEST_NAME", "add_webhooks", "check", "check_change", "set_defaults"]

LONGEST_NAME: Final = 52
"""A label has 63 characters, of which a job's name needs 11 for its start time."""


def set_defaults(cron_job: MutableObject[CronJobSpec, CronJobStatus | None]) -> None:
    """Write down what holds for what the user has left out."""
    spec = cron_job.spec
    successful, failed = spec.successful_jobs_history_limit, spec.failed_jobs_history_limit
    cron_job.spec = structs.replace(
        spec,
        concurrency_policy=spec.concurrency_policy or "Allow",
        suspend=bool(spec.suspend),
        successful_jobs_history_limit=3 if successful is None else successful,
        failed_jobs_history_limit=1 if failed is None else failed,
    )


def check(cron_job: CronJobObject) -> list[FieldError]:
    """Everything that is wrong with a CronJob, beyond what its schema says."""
    errors: list[FieldError] = []
    if len(cron_job.name) > LONGEST_NAME:
        why = f"must be no more than {LONGEST_NAME} characters"
        errors.append(field("metadata")["name"].invalid(cron_job.name, why))
    try:
        check_schedule(cron_job.spec.schedule)
    except ValueError as error:
        why = str(error)
        errors.append(field("spec")["schedule"].invalid(cron_job.spec.schedule, why))
    return errors


def check_change(_: CronJobObject, new: CronJobObject) -> list[FieldError]:
    """The same for a change, unless that is on the way to the deletion.

    Nobody could take the finalizers off an object that was stored before there was this check.
    """
    return [] if new.is_deleting else check(new)


def add_webhooks(host: WebhookHost) -> None:
    """Add all of them.

    One version is enough: the API server converts what is written in the other before it asks.
    """
    (
        webhook_for(host, CronJob)
        .default(set_defaults)
        .validate(create=check, update=check_change)
        .convert(VERSIONS)
        .complete()
    )
