"""When timers are called: after an interval, or at the times of a crontab line."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import Final, final

import msgspec

from appsdk_operator.runtime import safe_text, validation

_CORRECTION: Final = 3 * 3600.0
"""Seconds by which a clock may be set back without a second call for a time, as cron has it.
Without a limit, a clock that was years ahead for a moment would end a timer for as long."""


@final
class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a timer."""

    interval: float = math.inf
    """Seconds from the end of a call to the next one; infinite where ``cron`` says when."""
    cron: str = ""
    """The five fields of a crontab line: minute, hour, day of month, month, day of week."""
    timezone: tzinfo = UTC
    """That of ``cron``."""
    idle: float = 0.0
    """Seconds for which an object has not changed before a call."""
    first_after: float = 0.0
    """Seconds from the first sight of an object to the first call."""

    def first(self, time: float) -> tuple[float, float]:
        """The first time and the seconds until then, as :meth:`after`."""
        return self.after(0.0, time) if self.cron else (0.0, self.first_after)

    def after(self, tick: float, time: float) -> tuple[float, float]:
        """The next time of ``cron`` in seconds since the epoch, and the seconds until a call.

        Args:
            tick: the time for which a call has been made; what comes is later, although the clock
                may have been set back, unless by more than three hours.
            time: now, in seconds since the epoch.
        """
        if not self.cron:
            return 0.0, self.interval
        following = self._next(tick if time < tick <= time + _CORRECTION else time)
        return following, following - time

    def _next(self, time: float) -> float:
        # Timers are few, and their module is not needed before the first one is declared.
        from cronsim import CronSim

        # In whole seconds: a datetime would round what is just before a time to it.
        since = datetime.fromtimestamp(math.floor(time), self.timezone)
        found = next(CronSim(self.cron, since), None)
        return math.inf if found is None else found.timestamp()

    def __str__(self) -> str:
        """As logs and timelines have it."""
        if self.cron:
            return f"at {self.cron} {self.timezone}"
        return f"every {self.interval:g} s"


def schedule_of(
    interval: float | None, cron: str, timezone: str, idle: float, first_after: float
) -> Schedule:
    """The schedule that these options of a timer say.

    Raises:
        TypeError: a wrong type, or neither an interval nor ``cron``, or both.
        ValueError: a value that is not an interval, crontab line or time zone.
    """
    validation.check_text("cron", cron)
    validation.check_text("timezone", timezone)
    validation.checked_seconds("idle", idle)
    validation.checked_seconds("first_after", first_after)
    if (interval is None) is not bool(cron):
        raise TypeError("give either an interval in seconds, or cron='0 3 * * *'")
    if interval is None:
        if first_after:
            raise ValueError("first_after= needs an interval: cron= says when the first call is")
        return Schedule(cron=_checked_cron(cron), timezone=_zone(timezone), idle=idle)
    validation.check_number("interval", interval)
    if not 0 < interval < math.inf:
        raise ValueError(f"interval={interval}: use more than 0 seconds")
    if timezone:
        raise ValueError(
            "timezone= needs cron=: leave it out, or give cron= in place of the interval"
        )
    return Schedule(interval=interval, idle=idle, first_after=first_after)


def _checked_cron(cron: str) -> str:
    from cronsim import CronSim, CronSimError

    fields = "use minute, hour, day of month, month and day of week, for example '0 3 * * *'"
    if len(cron.split()) != len(("minute", "hour", "day", "month", "weekday")):
        raise ValueError(f"cron={cron!r} does not have five fields: {fields}")
    try:
        is_ever = next(CronSim(cron, datetime.now(UTC)), None) is not None
    except CronSimError as error:
        raise ValueError(f"cron={cron!r}: {safe_text(error)}: {fields}") from error
    if not is_ever:
        raise ValueError(f"cron={cron!r}: no day has this date: {fields}")
    return cron


def _zone(name: str) -> tzinfo:
    if not name:
        return UTC
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"timezone={name!r} is not known here: use a name such as 'Europe/Berlin', and install "
            "the package tzdata where the system has no time zones"
        ) from error
