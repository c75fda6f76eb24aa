"""The health of an informer: synced, in touch with the server, not blocked."""

from __future__ import annotations

from typing import final

import attrs

from appsdk_operator.cache._informer.watch_state import WatchState
from appsdk_operator.runtime import counted, safe_text

GRACE = 10.0
"""Seconds for which a problem does not count: watches end and are resumed all the time."""


@attrs.frozen
class Health:
    """Whether a part is ready, and if not, why."""

    is_ready: bool
    text: str
    note: str = ""
    """A problem that does not affect readiness, such as given up calls; empty: none."""


@final
class Contact:
    """How long an informer has not reached the server, or been blocked by a handler.

    An open watch proves little: some servers and proxies accept every watch and cut it. So a watch
    counts once it has delivered something, or has been open for :data:`GRACE` seconds. Written by
    one thread, read by any.
    """

    def __init__(self, state: WatchState) -> None:
        self._state = state
        self._failing_since: float | None = None
        self._open_since: float | None = None
        self.blocked_since: float | None = None
        """When the informer began to wait for a slow handler; None while it does not."""

    def note(self, now: float, *, is_failing: bool) -> None:
        """Update from the state machine, after each of its steps."""
        state = self._state
        if self._is_stable(now) or (state.is_following and state.has_delivered and not is_failing):
            self._failing_since = None
        if is_failing and self._failing_since is None:
            self._failing_since = now
        self._open_since = state.opened_at if state.is_following else None

    @property
    def lost_since(self) -> float | None:
        """When the problem began that is not over; None without one."""
        return self._failing_since

    def lost_for(self, now: float) -> float | None:
        """Seconds without the server; None while no more than :data:`GRACE`."""
        since = self._failing_since
        return None if self._is_stable(now) else _beyond_grace(since, now)

    def blocked_for(self, now: float) -> float | None:
        """Seconds that a slow handler has blocked it; None while no more than :data:`GRACE`."""
        return _beyond_grace(self.blocked_since, now)

    def _is_stable(self, now: float) -> bool:
        """Whether the open watch began after the problem and has been open for the grace period."""
        opened, failing = self._open_since, self._failing_since
        return opened is not None and now - opened >= GRACE and (failing or 0.0) <= opened


def _beyond_grace(since: float | None, now: float) -> float | None:
    return None if since is None or now - since <= GRACE else now - since


def health_of(
    what: str,
    contact: Contact,
    now: float,
    *,
    has_run: bool,
    has_synced: bool,
    has_stopped: bool,
    last_error: Exception | None,
    count: int,
    undecodable: str = "",
) -> Health:
    """The health of the informer ``what``, with the next step to take.

    Undecodable objects are named and leave it ready: a user who can write one object must not be
    able to stop the operator for all others.
    """
    if has_stopped:
        return Health(False, f"{what}: stopped")
    if (blocked := contact.blocked_for(now)) is not None:
        return Health(
            False,
            f"{what}: has waited for a slow handler for {blocked:.0f} s, and falls behind the "
            "server: make the handler faster, or use Overflow.COALESCE",
        )
    cause = "" if last_error is None else f": {safe_text(last_error)}"
    if not has_synced:
        started = "" if has_run else " (it was not started)"
        return Health(False, f"{what}: not synced yet{started}{cause}")
    if (lost := contact.lost_for(now)) is not None:
        return Health(False, f"{what}: has not reached the server for {lost:.0f} s{cause}")
    return Health(True, f"{what}: ok, {counted(count, 'object')}{undecodable}")
