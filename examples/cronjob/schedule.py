"""Schedules: which start times have passed, and which is next. Pure functions of the time.

cronsim reads the schedules: it follows Debian's cron, is typed, needs no other package, and is
what a service that watches millions of cron jobs runs on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

__all__ = ["MOST_MISSED", "Starts", "check_schedule", "starts"]

MOST_MISSED: Final = 100
"""With a clock that is wrong by years, there is no end of start times that were missed."""

_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Starts(NamedTuple):
    """The start times around a moment."""

    last: datetime | None
    """The last one that has passed; None if none has."""
    next: datetime | None
    """The next one; None if none will come within 50 years."""


def starts(schedule: str, *, after: datetime, now: datetime) -> Starts:
    """The last start time between ``after`` and ``now``, and the one that follows.

    Raises:
        ValueError: the schedule is not valid, or more than 100 lie between.
    """
    check_schedule(schedule)
    times = takewhile(lambda time: time <= now, CronSim(schedule, after))
    passed = list(islice(times, MOST_MISSED + 1))
    if len(passed) > MOST_MISSED:
        raise ValueError(
            f"too many missed start times (> {MOST_MISSED}): set or decrease "
            "spec.startingDeadlineSeconds, or check the clocks"
        )
    return Starts(passed[-1] if passed else None, next(CronSim(schedule, now), None))


def check_schedule(schedule: str) -> None:
    """Refuse what is no schedule.

    Raises:
        ValueError: with the reason, for the user.
    """
    # cronsim would take a sixth one for seconds.
    count = len(schedule.split())
    if count != 5:
        raise ValueError(f"Expected exactly 5 fields, found {count}: {schedule}")
    try:
        CronSim(schedule, _ANY_TIME)
    except CronSimError as error:
        raise ValueError(str(error)) from error
