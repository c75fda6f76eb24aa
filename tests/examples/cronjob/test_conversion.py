"""A CronJob in one version and in the other."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator import Object
from appsdk_operator.resource import ConversionError
from examples.cronjob.api import CronJob, CronJobV2, Schedule
from examples.cronjob.conversion import VERSIONS
from tests.examples.cronjob.cron_tools import TEMPLATE, spec

FIELDS = {
    "startingDeadlineSeconds": 30,
    "concurrencyPolicy": "Forbid",
    "suspend": True,
    "successfulJobsHistoryLimit": 0,
    "failedJobsHistoryLimit": 7,
}
STATUS = {"lastScheduleTime": "2026-01-01T00:00:00Z"}


def v1(schedule: str, **fields: Any) -> Object:
    metadata = {"name": "a", "namespace": "b", "labels": {"c": "d"}}
    return Object.from_dict(
        CronJob, {"metadata": metadata, "spec": spec(schedule, **fields), "status": STATUS}
    )


def test_v2_has_the_schedule_field_by_field_and_all_else_as_it_was() -> None:
    old = v1("*/5 1 2-3 4,6 MON", **FIELDS)
    new = VERSIONS.convert(old, CronJobV2)
    assert new.spec.schedule == Schedule("*/5", "1", "2-3", "4,6", "MON")
    before, after = old.to_dict(), new.to_dict()
    assert after.pop("apiVersion") == "batch.tutorial.kubebuilder.io/v2"
    before.pop("apiVersion")
    before["spec"].pop("schedule")
    after["spec"].pop("schedule")
    assert after == before
    assert VERSIONS.convert(new, CronJob).to_dict() == old.to_dict()


def test_what_v2_leaves_out_is_any() -> None:
    data = {
        "metadata": {"name": "a"},
        "spec": {"schedule": {"hour": "3"}, "jobTemplate": TEMPLATE},
    }
    old = VERSIONS.convert(Object.from_dict(CronJobV2, data), CronJob)
    assert old.spec.schedule == "* 3 * * *"


def test_v1_has_its_spaces_again_after_v2() -> None:
    old = v1("*/5   *\t* * *")
    new = VERSIONS.convert(old, CronJobV2)
    assert new.spec.schedule.minute == "*/5"
    assert VERSIONS.convert(new, CronJob).spec.schedule == "*/5   *\t* * *"


def test_a_change_made_in_v2_wins_over_the_spaces() -> None:
    draft = VERSIONS.convert(v1("*/5   * * * *"), CronJobV2).mutable_copy()
    draft.spec = draft.spec.__class__(
        schedule=Schedule("*/7"), job_template=draft.spec.job_template
    )
    assert VERSIONS.convert(draft.freeze(), CronJob).spec.schedule == "*/7 * * * *"


@pytest.mark.parametrize("schedule", ["", "@hourly", "* * * * * *"])
def test_a_schedule_that_v2_cannot_hold_is_refused_with_the_reason(schedule: str) -> None:
    with pytest.raises(ConversionError, match="has not 5 fields, as v2 needs"):
        VERSIONS.convert(v1(schedule), CronJobV2)
