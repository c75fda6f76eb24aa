"""What holds for CronJobs of any schedule and policy, whatever happens to the operator."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
from hypothesis import Phase, example, given, note, settings
from hypothesis import strategies as st

from appsdk_operator.resource import WatchEventType
from appsdk_operator.testing import World
from examples.cronjob.api import CronJob, Job
from examples.cronjob.job_player import finish
from tests.examples.cronjob.cron_tools import (
    EPOCH,
    NAME,
    active,
    cron_job,
    finish_all,
    history,
    is_done,
    make,
    minutes,
    now,
    scheduled_at,
    spec,
)
from tests.hypothesis_profiles import scaled

SCHEDULES: Final[dict[str, Callable[[datetime], bool]]] = {
    "* * * * *": lambda time: True,
    "*/7 * * * *": lambda time: time.minute % 7 == 0,
    "30 * * * *": lambda time: time.minute == 30,
    "0 */2 * * *": lambda time: time.minute == 0 and time.hour % 2 == 0,
    "15,45 22-23 * * TUE": lambda time: (
        time.minute in (15, 45) and time.hour in (22, 23) and time.isoweekday() == 2
    ),
    "0 0 15 11 *": lambda time: (time.minute, time.hour, time.day, time.month) == (0, 0, 15, 11),
    "0 9 29 2 *": lambda time: (time.minute, time.hour, time.day, time.month) == (0, 9, 29, 2),
}
"""Schedules, and what they mean."""

WAITS = [1, 20, 59, 60, 61, 300, 3600]
LIMITS = [None, 0, 1, 3]
STEPS: Final[dict[str, list[Any]]] = {
    "wait": [None],
    "freeze": [30, 90, 3700, 3 * 3600],
    "finish one": [True, False],
    "finish all": [True, False],
    "suspend": [True, False],
    "crash": [None],
    "lag": [5, 90, 600],
    "write_fault": ["409", "500", "lost", "crash before", "crash after"],
}


@attrs.frozen
class Plan:
    """A CronJob, and what happens to it: names of steps, their arguments, and waits after them."""

    schedule: str
    policy: str
    deadline: int | None
    limits: tuple[int | None, int | None]
    steps: list[tuple[str, Any, int]]
    seed: int

    @classmethod
    def of(cls, seed: int) -> Plan:
        """One of them. Hypothesis' own variations of a plan would resemble each other too much."""
        rng = random.Random(seed)
        names = rng.choices(list(STEPS), k=rng.randint(2, 12))
        return cls(
            schedule=rng.choice(list(SCHEDULES)),
            policy=rng.choice(["Allow", "Forbid", "Replace"]),
            deadline=rng.choice([None, 30, 600]),
            limits=(rng.choice(LIMITS), rng.choice(LIMITS)),
            steps=[(name, rng.choice(STEPS[name]), rng.choice(WAITS)) for name in names],
            seed=rng.randint(0, 3),
        )


def play(world: World, step: str, argument: Any) -> None:
    """Let one step happen."""
    match step:
        case "freeze":
            world.freeze(argument)
        case "finish one":
            for job in active(world)[:1]:
                finish(world.client, job, succeeds=argument, clock=world.clock)
        case "finish all":
            finish_all(world, succeeds=argument)
        case "suspend":
            world.patch(NAME, {"spec": {"suspend": argument}})
        case "crash":
            world.crash()
        case "lag":
            world.lag(argument)
        case "write_fault":
            world.write_faults.append(argument)


def check_history(world: World, plan: Plan) -> None:
    """Check each job that there ever was, and those that ran beside each other."""
    is_start = SCHEDULES[plan.schedule]
    times: list[datetime] = []
    running: set[str] = set()
    for what, job in history(world):
        if what is WatchEventType.ADDED:
            time = scheduled_at(job)
            assert time not in times, f"two jobs for {time}"
            assert not times or time > times[-1], f"{time} after {times[-1]}"
            times.append(time)
            made = job.creation_timestamp
            assert made is not None
            assert EPOCH < time <= made, f"the job of {time} was made at {made}"
            assert is_start(time), f"{time} is no start time of {plan.schedule}"
            if plan.deadline is not None:
                assert made - time <= timedelta(seconds=plan.deadline), f"{time} at {made}"
        if what is WatchEventType.DELETED or is_done(job):
            running.discard(job.uid)
        else:
            running.add(job.uid)
        if plan.policy != "Allow":
            assert len(running) <= 1, f"{len(running)} at once"


def check_end(world: World, plan: Plan) -> None:
    """When all works again, and somebody sets a deadline, what is due is made and reported."""
    world.end_faults()
    # A job that starts in the last seconds of a minute forbids the next one, which is due already.
    world.run(10 if now(world).second >= 55 else 1)
    deadline = plan.deadline or 600
    world.patch(NAME, {"spec": {"suspend": False, "startingDeadlineSeconds": deadline}})
    finish_all(world)
    world.run(2)
    status = cron_job(world).status
    last = status.last_schedule_time if status else None
    earliest = max(EPOCH, now(world) - timedelta(seconds=deadline - 2))
    due = [time for time in minutes(earliest, now(world)) if SCHEDULES[plan.schedule](time)]
    if due:
        assert last == due[-1], f"the last start time is {due[-1]}, and reported is {last}"
    running = sorted(job.name for job in active(world))
    assert [job.name for job in (status.active if status else ())] == running
    done = [job for job in world.objects(Job) if is_done(job)]
    for kind, limit in zip(("succeeded", "failed"), plan.limits, strict=True):
        if limit is not None:
            assert len([job for job in done if job["status"].get(kind)]) <= limit


@settings(max_examples=scaled(30), phases=[Phase.explicit, Phase.generate])
@example(seed=3063)  # the answer of a create is lost while the watch lags
@example(seed=8027)
@given(seed=st.integers(0, 2**32))
def test_start_times_are_kept_once_each_as_the_policy_says(seed: int) -> None:
    plan = Plan.of(seed)
    note(str(plan))
    successful, failed = plan.limits
    with World(CronJob, make, seed=plan.seed) as world:
        world.create(
            NAME,
            spec(
                plan.schedule,
                concurrencyPolicy=plan.policy,
                startingDeadlineSeconds=plan.deadline,
                successfulJobsHistoryLimit=successful,
                failedJobsHistoryLimit=failed,
            ),
        )
        for step, argument, wait in plan.steps:
            play(world, step, argument)
            world.run(wait)
        check_end(world, plan)
        check_history(world, plan)
