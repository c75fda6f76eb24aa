"""The conversion between the versions of CronJob. The controller and the storage know v1 alone."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from appsdk_operator.resource import ConversionError, Versions, convert_parts

from .api import CommonSpec, CronJob, CronJobSpec, CronJobSpecV2, CronJobV2, Schedule

__all__ = ["VERSIONS", "to_v1", "to_v2"]


def to_v2(spec: CronJobSpec) -> CronJobSpecV2:
    """Take the schedule apart."""
    fields = spec.schedule.split()
    if len(fields) != 5:
        # The validator lets no such schedule in; it is from a time without it.
        raise ConversionError(f"spec.schedule: {spec.schedule!r} has not 5 fields, as v2 needs")
    return CronJobSpecV2(schedule=Schedule(*fields), **common_fields(spec))


def to_v1(spec: CronJobSpecV2) -> CronJobSpec:
    """Put the schedule together."""
    return CronJobSpec(schedule=" ".join(structs.astuple(spec.schedule)), **common_fields(spec))


def common_fields(spec: CommonSpec) -> dict[str, Any]:
    """All but the schedule."""
    return {name: getattr(spec, name) for name in CommonSpec.__struct_fields__}


VERSIONS = Versions(CronJob).newer(
    CronJobV2,
    up=convert_parts(spec=to_v2),
    down=convert_parts(spec=to_v1),
    lossless=True,  # v2 cannot hold the spaces between the fields
)
