"""A CronJob in one version and in the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from appsdk_operator import Kind, Object
from appsdk_operator.resource import ConversionError
from appsdk_operator.testing import check_conversion, strategies
from examples.cronjob.api import CronJob, CronJobV2, Schedule
from examples.cronjob.conversion import VERSIONS
from tests.examples.cronjob.cron_tools import TEMPLATE, spec

PARTS = ["*", "*/5", "0", "1-3", "2,4", "JAN", "1#2", "5L"]
SPACES = st.sampled_from([" ", "  ", "\t", " \t "])
NAMES = ["minute", "hour", "dayOfMonth", "month", "dayOfWeek"]

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


def with_schedules(kind: Kind, schedules: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Specs with such schedules; the schema says neither what a schedule is, nor a template.

    Without nulls, which mean the same as nothing.
    """

    def spec_of(made: dict[str, Any], schedule: Any) -> dict[str, Any]:
        given = {name: value for name, value in made.items() if value is not None}
        return {**given, "schedule": schedule, "jobTemplate": TEMPLATE}

    return st.builds(spec_of, strategies.specs(kind), schedules)


def test_nothing_is_lost_between_the_versions() -> None:
    part = st.sampled_from(PARTS)
    lines = st.builds(
        lambda parts, spaces: "".join(x + y for x, y in zip(parts, spaces, strict=True)),
        st.lists(part, min_size=5, max_size=5),
        st.lists(SPACES, min_size=5, max_size=5),
    )
    check_conversion(
        VERSIONS,
        specs={
            CronJob: with_schedules(CronJob, lines),
            CronJobV2: with_schedules(
                CronJobV2, st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, part))
            ),
        },
    )
