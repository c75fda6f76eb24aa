"""Timers at the times of a crontab line, and of objects that have not changed for a while."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.app import App, each
from appsdk_operator.app._schedules import Schedule, schedule_of
from appsdk_operator.controllers import RetryAfter, TerminalError
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import World, check_operator
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
SPECS = st.fixed_dictionaries({"a": st.integers(1, 3)})
BERLIN = ZoneInfo("Europe/Berlin")


def nothing(*_: Any) -> None:
    pass


# Schedules.


def times(schedule: Schedule, begin: datetime, count: int) -> list[datetime]:
    """The first times, as of a timer whose calls take no time."""
    found, (tick, pause) = [], schedule.first(begin.timestamp())
    time = begin.timestamp()
    for _ in range(count):
        time += pause
        found.append(datetime.fromtimestamp(time, schedule.timezone))
        tick, pause = schedule.after(tick, time)
    return found


FIELDS = st.sampled_from(
    [
        ("* * * * *", lambda at: True),
        ("*/5 * * * *", lambda at: at.minute % 5 == 0),
        ("30 2 * * *", lambda at: (at.hour, at.minute) == (2, 30)),
        ("0 9-17 * * 1-5", lambda at: at.minute == 0 and 9 <= at.hour <= 17 and at.weekday() < 5),
        ("15 0 1 * *", lambda at: (at.minute, at.hour, at.day) == (15, 0, 1)),
    ]
)


@settings(max_examples=scaled(100))
@given(FIELDS, st.integers(10**9, 4 * 10**9), st.floats(-5, 5))
def test_times_are_those_of_the_line_each_once_and_in_order(
    line: tuple[str, Callable[[datetime], bool]], time: float, skew: float
) -> None:
    """However the clock is set meanwhile, a little."""
    cron, fits = line
    schedule = Schedule(cron=cron)
    tick, pause = schedule.first(time)
    for _ in range(5):
        at = datetime.fromtimestamp(tick, UTC)
        assert fits(at)
        assert (at.second, at.microsecond) == (0, 0)
        assert tick > time
        assert tick == pytest.approx(time + pause)
        # The call is made a little before or after its time, as a clock that was set says.
        time = tick + skew
        before, (tick, pause) = tick, schedule.after(tick, time)
        assert tick > before
        # None is left out.
        minutes = range(1, int((tick - before) / 60))
        between = [datetime.fromtimestamp(before + 60 * minute, UTC) for minute in minutes[:2000]]
        assert not any(map(fits, between))


@pytest.mark.parametrize("hours", [0.5, 3.0, 3.5, 24.0 * 3650])
def test_a_clock_that_is_set_back_repeats_no_time_of_the_last_three_hours(hours: float) -> None:
    schedule = Schedule(cron="*/10 * * * *")
    tick = 600.0 * 3_000_000
    time = tick - 3600.0 * hours
    following, pause = schedule.after(tick, time)
    assert following == time + pause
    assert following == (tick + 600.0 if hours <= 3.0 else time + 600.0)


def test_a_daily_time_keeps_its_hour_when_clocks_change() -> None:
    schedule = Schedule(cron="0 3 * * *", timezone=BERLIN)
    found = times(schedule, datetime(2026, 3, 27, 12, tzinfo=BERLIN), 3)
    assert [each.isoformat() for each in found] == [
        "2026-03-28T03:00:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T03:00:00+02:00",
    ]


def test_a_time_that_a_change_of_clocks_leaves_out_or_repeats_comes_once() -> None:
    schedule = Schedule(cron="30 2 * * *", timezone=BERLIN)
    spring = times(schedule, datetime(2026, 3, 28, 12, tzinfo=BERLIN), 2)
    assert [each.isoformat() for each in spring] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    autumn = times(schedule, datetime(2026, 10, 24, 12, tzinfo=BERLIN), 2)
    assert [each.isoformat() for each in autumn] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either an interval in seconds, or cron='0 3"),
        ({"interval": 60, "cron": "* * * * *"}, "either an interval in seconds, or cron='0 3"),
        ({"interval": 0}, "use more than 0 seconds"),
        ({"interval": float("inf")}, "use more than 0 seconds"),
        ({"interval": 60, "timezone": "UTC"}, "timezone= needs cron="),
        ({"cron": "* * * * *", "first_after": 5.0}, "cron= says when the first call is"),
        ({"cron": "@daily"}, "does not have five fields: use minute, hour"),
        ({"cron": "0 0 3 * * *"}, "does not have five fields: use minute, hour"),
        ({"cron": "0 25 * * *"}, "cron='0 25 .*hour.*: use minute, hour"),
        ({"cron": "0 0 30 2 *"}, "cron='0 0 30 2.*: use minute, hour"),
        ({"cron": "0 0 * * *", "timezone": "Berlin/Europe"}, "not known here.*package tzdata"),
        ({"cron": "0 0 * * *", "timezone": "../etc/passwd"}, "not known here.*package tzdata"),
        ({"interval": 60, "idle": -1.0}, "idle=-1.0: use 0 or more seconds"),
    ],
)
def test_what_is_no_schedule_is_refused_when_it_is_given(
    given: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {
        "interval": None, "cron": "", "timezone": "", "idle": 0.0, "first_after": 0.0, **given
    }  # fmt: skip
    with pytest.raises((TypeError, ValueError), match=message):
        schedule_of(**options)
    with pytest.raises((TypeError, ValueError), match=message):
        App("thing-operator").every(kind=THING, **given)


@pytest.mark.parametrize("option", ["where", "result", "idle"])
def test_options_about_objects_need_a_kind(option: str) -> None:
    value: Any = {"where": bool, "result": "status.a", "idle": 5.0}[option]
    with pytest.raises(TypeError, match=f"{option}= is about objects"):
        App("thing-operator").every(60, **{option: value})


# Timers of an App.


class Calls:
    """What is called, and when."""

    def __init__(self, app: App) -> None:
        self.world, self.calls = World(THING, app), list[datetime]()

    def note(self) -> int:
        self.calls.append(datetime.fromtimestamp(self.world.clock.time(), UTC))
        return len(self.calls)

    def minutes(self, count: int) -> list[datetime]:
        """The full minutes that follow the first call."""
        first = self.calls[0].replace(second=0, microsecond=0)
        return [first + timedelta(minutes=minute) for minute in range(count)]

    def rounded(self) -> list[datetime]:
        """The times of the calls, to whole seconds."""
        return [
            (each + timedelta(seconds=0.5)).replace(microsecond=0, tzinfo=UTC)
            for each in self.calls
        ]


@pytest.mark.parametrize("kind", [THING, None], ids=["objects", "app"])
def test_a_timer_is_called_at_the_times_of_its_line(kind: Any) -> None:
    app = App("thing-operator")
    app.on_add(THING)(nothing)
    calls: Calls

    def look(*_: Any) -> None:
        calls.note()

    app.every(kind=kind, cron="* * * * *")(look)
    calls = Calls(app)
    with calls.world as world:
        world.create("a", {"a": 1})
        world.run(300)
    assert len(calls.calls) == 5
    assert calls.rounded() == calls.minutes(5)


@pytest.mark.parametrize("kind", [THING, None], ids=["objects", "app"])
@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (lambda: ConnectionError("down"), [0, 20, 40, 60, 80, 100, 120]),
        (lambda: TerminalError("no"), [0, 60, 120]),
        (lambda: RetryAfter(25), [0, 25, 50, 60, 85, 110, 120]),
        (lambda: RetryAfter(7000), [0, 60, 120]),
    ],
)
def test_a_failed_call_is_repeated_until_the_next_time_of_the_line(
    kind: Any, error: Callable[[], Exception], seconds: list[int]
) -> None:
    app = App("thing-operator", retry_policy=lambda error, attempt: 20.0)
    app.on_add(THING)(nothing)
    calls: Calls

    def look(*_: Any) -> None:
        calls.note()
        raise error()

    app.every(kind=kind, cron="* * * * *")(look)
    calls = Calls(app)
    with calls.world as world:
        world.create("a", {"a": 1})
        world.run(182)
    begin = calls.minutes(1)[0]
    found = [round((each - begin).total_seconds()) for each in calls.calls]
    assert found[: len(seconds)] == seconds


@pytest.mark.parametrize("kind", [None, THING])
def test_the_next_time_of_a_line_is_computed_once_for_each_call(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, calls, asked = App("thing-operator"), list[float](), list[float]()
    app.on_add(THING)(nothing)
    after = Schedule.after

    def counted(self: Schedule, tick: float, time: float) -> tuple[float, float]:
        asked.append(time)
        return after(self, tick, time)

    monkeypatch.setattr(Schedule, "after", counted)

    def fail(*_: Any) -> None:
        calls.append(1.0)
        each([1], nothing)
        if len(calls) % 4:
            raise ConnectionError("not yet")

    app.every(kind=kind, cron="*/10 * * * *")(fail)
    with World(app) as world:
        world.create("a", {"a": 1})
        world.run(3600.0)
    assert len(calls) > 12
    # The first time is computed before the first call.
    assert len(asked) == len(calls) + 1


def test_an_idle_timer_waits_until_the_object_does_not_change() -> None:
    app, calls = App("thing-operator"), list[int]()

    @app.every(60, THING, idle=20)
    def look(thing: Object[Any, Any]) -> None:
        calls.append(round(world.clock.monotonic() - began))

    world = World(THING, app)
    with world:
        began = world.clock.monotonic()
        world.create("a", {"a": 1})
        world.run(70)
        for size in range(2, 8):  # 70, 80, … 120
            world.patch("a", {"spec": {"a": size}})
            world.run(10)
        world.run(100)
    assert calls == [20, 140, 200]


def test_neither_status_nor_the_kits_own_writes_make_an_object_busy() -> None:
    app, calls = App("thing-operator"), list[int]()
    app.on_add(THING)(nothing)

    @app.every(60, THING, idle=20, result="status.count")
    def look(thing: Object[Any, Any]) -> int:
        calls.append(round(world.clock.monotonic() - began))
        return len(calls)

    world = World(THING, app)
    with world:
        began = world.clock.monotonic()
        world.create("a", {"a": 1})
        world.run(145)
    assert calls == [20, 80, 140]


@pytest.mark.parametrize("options", [{"interval": 40}, {"cron": "* * * * *"}], ids=str)
def test_the_checker_holds_for_idle_timers_and_lines(options: dict[str, Any]) -> None:
    app = App("thing-operator")
    app.on_add(THING)(nothing)
    app.every(kind=THING, idle=15, **options)(nothing)
    check_operator(app, specs=SPECS, max_examples=scaled(20))
