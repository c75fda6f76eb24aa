"""Which start times have passed, and which is next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples.cronjob.schedule import check_schedule, starts

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday


def test_a_start_time_that_is_now_has_passed() -> None:
    found = starts("0 * * * *", after=NOON - timedelta(minutes=30), now=NOON)
    assert found == (NOON, NOON + timedelta(hours=1))


def test_a_start_time_that_was_dealt_with_does_not_come_again() -> None:
    found = starts("0 * * * *", after=NOON, now=NOON + timedelta(minutes=59))
    assert found == (None, NOON + timedelta(hours=1))


def test_of_several_that_were_missed_the_last_counts() -> None:
    now = NOON + timedelta(minutes=17, seconds=3)
    found = starts("*/5 * * * *", after=NOON, now=now)
    assert found == (NOON + timedelta(minutes=15), NOON + timedelta(minutes=20))


def test_a_clock_that_went_back_starts_nothing() -> None:
    found = starts("* * * * *", after=NOON + timedelta(hours=1), now=NOON)
    assert found == (None, NOON + timedelta(minutes=1))


def test_fractions_of_a_second_neither_hide_a_start_time_nor_repeat_it() -> None:
    moment = timedelta(microseconds=1)
    hour = timedelta(hours=1)
    assert starts("0 * * * *", after=NOON - hour, now=NOON - moment) == (None, NOON)
    assert starts("0 * * * *", after=NOON - hour, now=NOON + moment) == (NOON, NOON + hour)
    assert starts("0 * * * *", after=NOON + moment, now=NOON + moment) == (None, NOON + hour)


def test_a_hundred_may_be_missed_and_not_one_more() -> None:
    after = NOON - timedelta(minutes=100)
    assert starts("* * * * *", after=after, now=NOON).last == NOON
    with pytest.raises(ValueError, match=r"> 100.*startingDeadlineSeconds"):
        starts("* * * * *", after=after, now=NOON + timedelta(minutes=1))


def test_a_day_that_never_comes_is_no_start_time() -> None:
    # A Monday that is the last of its month, on the 1st or 21st.
    assert starts("* * */20 * 1L", after=NOON, now=NOON) == (None, None)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("invalid-cron-schedule", "Expected exactly 5 fields, found 1: invalid-cron-schedule"),
        ("", "Expected exactly 5 fields, found 0: "),
        ("* * * * * *", "Expected exactly 5 fields, found 6: * * * * * *"),
        ("@hourly", "Expected exactly 5 fields, found 1: @hourly"),
        ("61 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 30 2 *", "Bad day-of-month"),
        ("* * * 13 *", "Bad month"),
        ("* * * * MOO", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_reason(schedule: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_schedule(schedule)
    assert str(caught.value) == why


@pytest.mark.parametrize("schedule", ["* * * * *", "0 0 1 JAN MON-FRI", " 1  2\t3 4 5 "])
def test_what_is_a_schedule_is_accepted(schedule: str) -> None:
    check_schedule(schedule)
