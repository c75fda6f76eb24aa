"""The conversion between the versions of CronJob. The controller and the storage know v1 alone."""

from __future__ import annotations

from msgspec import structs

from appsdk_operator.resource import ConversionError, Versions, convert_parts

from .api import CronJob, CronJobSpec, CronJobSpecV2, CronJobV2, Schedule

__all__ = ["VERSIONS", "as_text", "to_v1", "to_v2"]


def to_v2(spec: CronJobSpec) -> CronJobSpecV2:
    """Take the schedule apart."""
    fields = spec.schedule.split()
    if len(fields) != 5:
        # The validator lets no such schedule in; it is from a time without it.
        raise ConversionError(f"spec.schedule: {spec.schedule!r} has not 5 fields, as v2 needs")
    return CronJobSpecV2(**{**structs.asdict(spec), "schedule": Schedule(*fields)})


def to_v1(spec: CronJobSpecV2) -> CronJobSpec:
    """Put the schedule together."""
    return CronJobSpec(**{**structs.asdict(spec), "schedule": as_text(spec.schedule)})


def as_text(schedule: Schedule) -> str:
    """The line of a crontab."""
    return " ".join(structs.astuple(schedule))


VERSIONS = Versions(CronJob).newer(
    CronJobV2,
    up=convert_parts(spec=to_v2),
    down=convert_parts(spec=to_v1),
    lossless=True,  # v2 cannot hold the spaces between the fields
)
