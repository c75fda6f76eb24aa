"""The controller: jobs at their times, policies, deadlines, history. Hours pass in milliseconds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from appsdk_operator import MutableObject, kinds
from appsdk_operator.controllers import controller_of, set_controller_reference
from appsdk_operator.testing import World
from examples.cronjob.api import CronJob, CronJobStatus, Job
from examples.cronjob.job_player import finish, work
from tests.examples.cronjob.cron_tools import (
    EPOCH,
    NAME,
    TEMPLATE,
    active,
    cron_job,
    finish_all,
    make,
    spec,
    started,
)

EVENT = kinds.events.v1.Event


def reasons(world: World) -> list[str]:
    """The reasons of the events that were recorded."""
    return [event["reason"] for event in world.objects(EVENT)]


def test_a_job_is_made_at_each_start_time() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("*/5 * * * *"))
        world.run(99)
        assert started(world) == []
        world.run(2)
        assert started(world) == ["22:15"]
        world.run(600)
        assert started(world) == ["22:15", "22:20", "22:25"]


def test_a_job_is_made_from_the_template_and_owned_by_the_cron_job() -> None:
    template = {
        "metadata": {"labels": {"app": "report"}, "annotations": {"team": "blue"}},
        "spec": {**TEMPLATE["spec"], "backoffLimit": 2},
    }
    with World(CronJob, make) as world:
        world.create(NAME, {"schedule": "* * * * *", "jobTemplate": template})
        world.run(60)
        (job,) = world.objects(Job)
        assert job.name == "nightly-1700000040"
        assert job.labels["app"] == "report"
        assert job.annotations == {
            "team": "blue",
            "batch.tutorial.kubebuilder.io/scheduled-at": "2023-11-14T22:14:00Z",
        }
        assert job.spec["backoffLimit"] == 2
        owner = controller_of(job)
        assert owner is not None
        assert owner.uid == cron_job(world).uid
        assert reasons(world) == ["Started"]


def test_the_status_has_the_active_jobs_and_the_last_start_time() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *"))
        world.run(1)
        assert cron_job(world).status is None
        world.run(60)
        (job,) = world.objects(Job)
        status = cron_job(world).status
        assert status is not None
        assert [(each.name, each.uid) for each in status.active] == [(job.name, job.uid)]
        assert status.last_schedule_time == EPOCH + timedelta(seconds=40)

        finish_all(world)
        world.run(1)
        assert cron_job(world).status == CronJobStatus(
            last_schedule_time=EPOCH + timedelta(seconds=40)
        )


def test_jobs_run_beside_each_other_unless_the_policy_says_otherwise() -> None:
    for fields in ({}, {"concurrencyPolicy": "Allow"}):
        with World(CronJob, make) as world:
            world.create(NAME, spec("* * * * *", **fields))
            world.run(180)
            assert len(active(world)) == 3


def test_forbid_waits_for_the_end_of_the_active_job() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", concurrencyPolicy="Forbid"))
        world.run(200)
        assert started(world) == ["22:14"]
        finish_all(world)
        world.run(1)
        # Late, for the last of those that were missed.
        assert started(world) == ["22:14", "22:16"]


def test_forbid_does_not_start_late_beyond_the_deadline() -> None:
    with World(CronJob, make) as world:
        world.create(
            NAME, spec("*/10 * * * *", concurrencyPolicy="Forbid", startingDeadlineSeconds=60)
        )
        world.run(1200)
        assert started(world) == ["22:20"]
        world.run(70)
        finish_all(world)
        world.run(300)
        assert started(world) == ["22:20"]
        world.run(60)
        assert started(world) == ["22:20", "22:40"]


def test_replace_deletes_the_active_job() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", concurrencyPolicy="Replace"))
        world.run(60)
        assert started(world) == ["22:14"]
        world.run(60)
        assert started(world) == ["22:15"]
        status = cron_job(world).status
        assert status is not None
        assert [each.name for each in status.active] == ["nightly-1700000100"]


def test_replace_keeps_jobs_that_are_done() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", concurrencyPolicy="Replace"))
        world.run(60)
        finish_all(world)
        world.run(60)
        assert started(world) == ["22:14", "22:15"]


def test_a_suspended_cron_job_makes_no_jobs_and_goes_on_where_it_is() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", suspend=True))
        world.run(600)
        assert started(world) == []
        world.patch(NAME, {"spec": {"suspend": False}})
        world.run(1)
        assert started(world) == ["22:23"]


def test_a_suspended_cron_job_still_reports_and_cleans_up() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", successfulJobsHistoryLimit=1))
        world.run(180)
        world.patch(NAME, {"spec": {"suspend": True}})
        finish_all(world)
        world.run(1)
        assert len(started(world)) == 1
        status = cron_job(world).status
        assert status is not None
        assert status.active == ()


def test_history_is_kept_up_to_its_limits_the_oldest_go_first() -> None:
    with World(CronJob, make) as world:
        world.create(
            NAME, spec("* * * * *", successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
        )
        outcomes = [True, False, True, True, False, True]
        for succeeds in outcomes:
            world.run(60)
            finish_all(world, succeeds=succeeds)
        world.run(1)
        # 22:14 and 22:16 succeeded, 22:15 failed, and there are newer ones.
        assert started(world) == ["22:17", "22:18", "22:19"]


def test_the_oldest_is_the_one_that_began_first() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", successfulJobsHistoryLimit=1))
        world.run(120)
        first, second = world.objects(Job)
        work(world.client, second, clock=world.clock)
        world.run(5)
        work(world.client, first, clock=world.clock)
        for job in world.objects(Job):
            finish(world.client, job, clock=world.clock)
        world.run(1)
        assert [job.uid for job in world.objects(Job)] == [first.uid]


def test_without_limits_all_history_is_kept() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *"))
        for _ in range(6):
            world.run(60)
            finish_all(world)
        assert len(started(world)) == 6


def test_a_start_time_is_not_repeated_when_no_history_is_kept() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *", successfulJobsHistoryLimit=0))
        world.run(3000)
        assert started(world) == ["23:00"]
        finish_all(world)
        world.run(60)
        world.restart()
        world.run(60)
        assert started(world) == []
        status = cron_job(world).status
        assert status is not None
        assert status.last_schedule_time is not None
        assert f"{status.last_schedule_time:%H:%M}" == "23:00"


def test_a_lost_status_is_read_from_the_jobs() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *"))
        world.run(3000)
        finish_all(world)
        world.patch(NAME, {"status": None}, subresource="status")
        world.run(60)
        assert started(world) == ["23:00"]
        status = cron_job(world).status
        assert status is not None
        assert status.last_schedule_time is not None


def test_an_operator_that_was_down_starts_the_last_missed_job() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("*/10 * * * *"))
        world.run(500)
        assert started(world) == ["22:20"]
        world.freeze(3600)
        world.run(3600)
        world.run(1)
        assert started(world) == ["22:20", "23:20"]


def test_an_operator_that_was_down_does_not_start_later_than_the_deadline() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *", startingDeadlineSeconds=600))
        world.run(60)
        world.freeze(3600)
        world.run(3601)  # 23:14:21, and 23:00 is more than ten minutes ago
        assert started(world) == []
        world.run(3600)
        assert started(world) == ["00:00"]


def test_too_many_missed_start_times_are_an_error_until_a_deadline_is_set() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", suspend=True))
        world.run(101 * 60)
        world.patch(NAME, {"spec": {"suspend": False}})
        world.run(300)
        assert started(world) == []
        (event,) = world.objects(EVENT)
        assert event["reason"] == "NotScheduled"
        assert "too many missed start times (> 100)" in event["note"]
        world.patch(NAME, {"spec": {"startingDeadlineSeconds": 60}})
        world.run(1)
        assert len(started(world)) == 1


def test_a_schedule_that_nobody_checked_is_an_error_until_it_is_changed() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("whenever"))
        world.run(3600)
        assert started(world) == []
        (event,) = world.objects(EVENT)
        assert event["note"] == "Expected exactly 5 fields, found 1: whenever"
        world.patch(NAME, {"spec": {"schedule": "* * * * *"}})
        world.run(1)
        assert started(world) == ["23:13"]


@pytest.mark.parametrize("write_fault", ["lost", "409", "500", "crash before", "crash after"])
@pytest.mark.parametrize("before", [0, 1])
def test_one_job_is_made_whatever_happens_to_the_writes(write_fault: str, before: int) -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *"))
        world.run(1000)
        world.write_faults = [""] * before + [write_fault]
        world.run(2000)
        assert not world.write_faults
        assert started(world) == ["23:00"]
        status = cron_job(world).status
        assert status is not None
        assert [each.name for each in status.active] == [job.name for job in world.objects(Job)]


def test_one_job_is_made_although_neither_the_answer_nor_the_event_comes() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *"))
        world.run(2700)
        world.lag(300)
        world.write_faults = ["lost"]
        world.run(600)
        assert started(world) == ["23:00"]


def test_a_job_that_is_gone_before_its_event_comes_is_not_made_again() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 * * * *"))
        world.run(60)
        world.lag(3600)
        world.run(3000)
        (job,) = world.objects(Job)
        finish(world.client, job, clock=world.clock)
        world.client.delete(Job, job.name, namespace=job.namespace)  # as its own deadline may
        world.run(600)
        world.restart()
        world.run(60)
        assert world.objects(Job) == []


def test_a_job_of_another_owner_is_left_alone() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 0 1 1 *", successfulJobsHistoryLimit=0))
        other = world.create("other", spec("0 0 1 1 *"))
        for name, owner in (("free", None), ("owned", other)):
            job = MutableObject.new(Job, name, namespace="default", spec=TEMPLATE["spec"])
            if owner is not None:
                set_controller_reference(owner, job)
            world.client.create(job)
        finish_all(world)
        world.run(60)
        assert {job.name for job in world.objects(Job)} == {"free", "owned"}
        assert cron_job(world).status in (None, CronJobStatus())


def test_a_job_that_somebody_made_for_the_cron_job_counts() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *", concurrencyPolicy="Forbid"))
        job = MutableObject.new(Job, "by-hand", namespace="default", spec=TEMPLATE["spec"])
        job.annotations["batch.tutorial.kubebuilder.io/scheduled-at"] = "yesterday"
        set_controller_reference(cron_job(world), job)
        world.client.create(job)
        world.run(120)
        assert [job.name for job in world.objects(Job)] == ["by-hand"]
        status = cron_job(world).status
        assert status is not None
        assert [each.name for each in status.active] == ["by-hand"]


def test_a_deleted_cron_job_takes_its_jobs_along() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *"))
        world.run(120)
        world.delete(NAME)
        world.run(120)
        assert world.objects(Job) == []


def test_a_cron_job_that_goes_while_its_status_is_written_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *"))
        world.run(120)
        world.lag(600)
        world.delete(NAME)
        world.run(120)
        assert "(404)" in world.timeline()
        assert [each for each in caplog.messages if "failed" in each] == []
        world.run(600)
        assert world.objects(Job) == []


def test_a_cron_job_that_is_being_deleted_makes_no_jobs() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("* * * * *"), finalizers=["example.com/wait"])
        world.delete(NAME)
        world.run(300)
        assert world.objects(Job) == []


def test_nothing_is_written_while_nothing_is_due() -> None:
    with World(CronJob, make) as world:
        world.create(NAME, spec("0 0 1 1 *"))
        world.run(60)
        version = cron_job(world).resource_version
        world.run(24 * 3600)
        world.restart()
        world.run(60)
        assert cron_job(world).resource_version == version
        assert world.journal.of("write") == []
