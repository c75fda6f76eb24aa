"""Finds objects that are reconciled again and again without a pause."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, final

from appsdk_operator.runtime import SafeLogger

__all__ = ["HotLoops"]

_MOST: Final = 100
_WITHIN: Final = 1.0
_MOST_KEYS: Final = 256  # counted within one second
_QUIET: Final = 60.0  # seconds until the next warning of a controller


@final
class HotLoops:
    """Warns of an object that is reconciled 100 times in a second. Thread-safe.

    What does so is nearly always a reconciler that writes its own object each time, so that each
    write brings the next reconcile.
    """

    def __init__(self, logger: SafeLogger, controller: str, kind: str, *, filter_hint: str) -> None:
        self._log = logger
        self._filter_hint = filter_hint
        self._controller = controller
        self._kind = kind
        # Of the present second only; replaced as a whole, so that no lock is needed. What two
        # threads count at once may be counted once: it is a sign, not a measure.
        self._window: tuple[float, dict[Hashable, int]] = (float("-inf"), {})
        self._warned_at = float("-inf")

    def note(self, key: Hashable, now: float) -> None:
        """``key`` is reconciled at the monotonic time ``now``."""
        began, counts = self._window
        if now - began >= _WITHIN:
            self._window = (now, {key: 1})
            return
        count = counts.get(key, 0) + 1
        if count == 1 and len(counts) >= _MOST_KEYS:
            return  # one that loops is among the first
        counts[key] = count
        if count == _MOST and now - self._warned_at >= _QUIET:
            self._warned_at = now
            self._warn(key)

    def _warn(self, key: Hashable) -> None:
        self._log.warning(
            "controller %s: %s %s was reconciled %d times in a second, as happens when each of its "
            "own writes brings the next reconcile. Write only what differs (create_or_update and "
            "patch_conditions do so; no times or counters in the status), and keep changes of the "
            "status away with %s",
            self._controller,
            self._kind,
            key,
            _MOST,
            self._filter_hint,
            extra={"controller": self._controller, "kind": self._kind},
        )
