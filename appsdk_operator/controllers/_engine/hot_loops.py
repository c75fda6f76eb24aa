"""Detects hot loops: objects that are reconciled again and again without a pause."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, final

from appsdk_operator.runtime import SafeLogger, safe_text

HOT_CALLS: Final = 100
HOT_TIME: Final = 1.0
"""The seconds in which these many calls are a hot loop."""
_MAX_KEYS: Final = 256  # counted within one second
_WARNING_INTERVAL: Final = 60.0  # seconds until the next warning of a controller


@final
class HotLoops:
    """Warns of an object that is reconciled 100 times in a second. Thread-safe.

    The usual cause is a reconciler that writes its own object each time, so that each write leads
    to the next reconcile.
    """

    def __init__(self, logger: SafeLogger, controller: str, kind: str, *, filter_hint: str) -> None:
        self._log = logger
        self._filter_hint = filter_hint
        self._controller = controller
        self._kind = kind
        # Counts of the current second. Replaced as a whole, so that no lock is needed: increments
        # of two threads may be lost, which an estimate allows.
        self._window: tuple[float, dict[Hashable, int]] = (float("-inf"), {})
        self._warned_at = float("-inf")

    def note(self, key: Hashable, now: float) -> None:
        """Count a reconcile of ``key`` at the monotonic time ``now``; a tuple is a key's parts."""
        began, counts = self._window
        if now - began >= HOT_TIME:
            self._window = (now, {key: 1})
            return
        count = counts.get(key, 0) + 1
        if count == 1 and len(counts) >= _MAX_KEYS:
            return  # a hot loop is among the first keys
        counts[key] = count
        if count == HOT_CALLS:
            self.found(key, now)

    def found(self, key: Hashable, now: float) -> None:
        """Warn of ``key``, which was reconciled :data:`HOT_CALLS` times within :data:`HOT_TIME`."""
        if now - self._warned_at >= _WARNING_INTERVAL:
            self._warned_at = now
            self._warn(key)

    def _warn(self, key: Hashable) -> None:
        self._log.warning(
            "controller %s: %s %s was reconciled %d times in a second. This happens when each "
            "write of the reconciler causes the next reconcile. Write only changed fields, as "
            "create_or_update and patch_conditions do, and no times or counters in the status. "
            "Filter changes of the status with %s",
            self._controller,
            self._kind,
            "/".join(filter(None, map(safe_text, key if type(key) is tuple else (key,)))),
            HOT_CALLS,
            self._filter_hint,
            extra={"controller": self._controller, "kind": self._kind},
        )
