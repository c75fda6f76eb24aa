"""A pause of an operator, as the annotations of its Lease say it. Without I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final, final

import attrs

_PREFIX: Final = "appsdk-operator.io/"
PAUSED_UNTIL: Final = f"{_PREFIX}paused-until"
"""When the pause ends, as ``2030-01-31T12:00:00Z``."""
PAUSED_BY: Final = f"{_PREFIX}paused-by"
"""Who has asked for the pause."""
PAUSE_REASON: Final = f"{_PREFIX}pause-reason"
"""Why."""
_LONGEST: Final = 200


class PauseError(ValueError):
    """The annotations of a Lease ask for a pause that cannot be understood."""


@attrs.frozen
class Pause:
    """A pause that somebody has asked for."""

    until: dt.datetime
    """When it ends, in UTC."""
    by: str = ""
    """Who has asked for it."""
    reason: str = ""
    """Why."""

    def is_over(self, now: dt.datetime) -> bool:
        """Whether it has ended at ``now``."""
        return now >= self.until

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the Lease that ask for this pause."""
        return {PAUSED_UNTIL: time_text(self.until), PAUSED_BY: self.by, PAUSE_REASON: self.reason}

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return f"paused{by} until {time_text(self.until)}{why}"


def time_text(time: dt.datetime) -> str:
    """A time in UTC, in whole seconds."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pause_of(annotations: Mapping[str, str]) -> Pause | None:
    """The pause that the annotations of a Lease ask for, over or not; None if they ask for none.

    Raises:
        PauseError: its end is not a time with a time zone.
    """
    text = annotations.get(PAUSED_UNTIL, "")
    if not text:
        return None
    try:
        until = _utc(text)
    except (ValueError, OverflowError):  # the last hours of the year 9999 elsewhere
        raise PauseError(
            f"the annotation {PAUSED_UNTIL}={text[:_LONGEST]!r} is not a time such as "
            "2030-01-31T12:00:00Z: the operator is not paused"
        ) from None
    return Pause(
        until,
        by=_plain(annotations.get(PAUSED_BY, "")),
        reason=_plain(annotations.get(PAUSE_REASON, "")),
    )


def _utc(text: str) -> dt.datetime:
    until = dt.datetime.fromisoformat(text)
    if until.tzinfo is None:
        raise ValueError("it has no time zone")
    return until.astimezone(dt.UTC)


def _plain(text: str) -> str:
    """One line, not too long: it is written to logs."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_LONGEST]


@final
class PauseState:
    """Whether an operator is paused, by what its Lease said when it was last observed."""

    def __init__(self) -> None:
        self.present: Pause | None = None
        """The pause that holds now."""
        self.problem: str = ""
        """Why what the Lease asks for is not done; "" if it is."""

    def observe(self, annotations: Mapping[str, str], now: dt.datetime) -> bool:
        """Note the Lease's annotations at ``now``; returns whether anything changed."""
        before = self.present, self.problem
        try:
            asked, self.problem = pause_of(annotations), ""
        except PauseError as error:
            asked, self.problem = None, str(error)
        self.present = None if asked is None or asked.is_over(now) else asked
        return before != (self.present, self.problem)
