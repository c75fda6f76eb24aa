"""What an operator logs about its own life: start, kinds, workers, stop. Silent in between."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from typing import Final, final

from appsdk_operator._version import __version__
from appsdk_operator.runtime import Clock, counted, duration_text, get_logger

_log: Final = get_logger("appsdk_operator.manager")


def kinds_of(runnables: Iterable[object]) -> list[str]:
    """The kinds that these watch, as far as they say so; each once."""
    found: dict[str, None] = {}
    for runnable in runnables:
        kinds = getattr(runnable, "watched_kinds", ())
        if isinstance(kinds, tuple):
            found |= dict.fromkeys(kinds)
    return list(found)


def workers_of(runnables: Iterable[object]) -> tuple[int, int]:
    """How many of these are controllers, and how many workers they have together."""
    numbers = [getattr(runnable, "worker_counts", None) for runnable in runnables]
    counts = [each for one in numbers if isinstance(one, tuple) for each in one]
    return len(counts), sum(counts)


@final
class Announcements:
    """The lines about one run at INFO, each with the name of the operator."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name or "the operator"
        self._clock = clock
        self._began = self._stopping_since = clock.monotonic()

    def starts(
        self, runnables: Sequence[object], *, server: str = "", namespaces: Sequence[str] = ()
    ) -> None:
        """The version, where it runs, and the kinds and namespaces that it watches."""
        self._began = self._clock.monotonic()
        place = f", on {server}" if server else ""
        version = f"appsdk-operator {__version__}, Python {platform.python_version()}"
        _log.info("%s starts: %s%s", self._name, version, place)
        kinds = kinds_of(runnables)
        if kinds:
            where = f"in {', '.join(namespaces)}" if namespaces else "in all namespaces"
            _log.info("%s watches %s %s", self._name, ", ".join(sorted(kinds)), where)

    def has_started(self, runnables: Sequence[object]) -> None:
        """The numbers of controllers and workers."""
        controllers, workers = workers_of(runnables)
        what = f"{counted(controllers, 'controller')} with {counted(workers, 'worker')}"
        took = self._clock.monotonic() - self._began
        _log.info("%s has started, after %s: %s", self._name, duration_text(took), what)

    def stops(self, why: str = "", grace: float | None = None, *, has_failed: bool = False) -> None:
        """Why it stops, and how long its parts have to end; after a failure the log has that."""
        self._stopping_since = self._clock.monotonic()
        if has_failed:
            return
        cause = f": {why}" if why else ""
        limit = "" if grace is None or grace < 0 else f"; running calls have {grace:g} s to end"
        _log.info("%s is stopping%s%s", self._name, cause, limit)

    def has_stopped(self) -> None:
        """How long the stop took."""
        took = self._clock.monotonic() - self._stopping_since
        _log.info("%s has stopped, after %s", self._name, duration_text(took))
