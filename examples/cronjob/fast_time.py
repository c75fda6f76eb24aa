"""Time for impatient people: a clock of which a minute passes in a second."""

from __future__ import annotations

import threading
from typing import Any

import attrs

from appsdk_operator.cache import Cache
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.manager import Manager, Runnable
from appsdk_operator.runtime import Clock, Metrics, StopSignal, system_clock

__all__ = ["FastClock", "OnClock"]


class FastClock:
    """A clock that begins shortly before a full minute, and then runs too fast."""

    def __init__(self, *, factor: float = 60.0) -> None:
        self._factor = factor
        self._began = system_clock.monotonic()
        self._epoch = (system_clock.time() // 60 + 1) * 60 - 20

    def monotonic(self) -> float:
        """Seconds of this clock since it was made."""
        return (system_clock.monotonic() - self._began) * self._factor

    def time(self) -> float:
        """Seconds since 1970."""
        return self._epoch + self.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        """Wait for ``timeout`` seconds of this clock."""
        system_clock.wait(condition, None if timeout is None else timeout / self._factor)


@attrs.frozen
class OnItsOwnTime:
    """A part of a manager that takes part in all but the manager's clock.

    A manager refuses parts on another clock, which is a mistake as a rule.
    """

    part: Any

    def run(self, stop: StopSignal) -> None:
        """Run the part until ``stop``."""
        self.part.run(stop)

    def __getattr__(self, name: str) -> Any:
        if name == "clock":
            raise AttributeError(name)
        return getattr(self.part, name)


@attrs.frozen
class OnClock:
    """A manager as the host of controllers that have a clock of their own.

    Not the manager's clock, because connections and webhooks keep to real time.
    """

    manager: Manager
    clock: Clock

    @property
    def controller_options(self) -> ControllerOptions:
        """Patience with caches, which are not faster than usual."""
        return ControllerOptions(cache_sync_timeout=3600.0)

    @property
    def cache(self) -> Cache:
        """The manager's."""
        return self.manager.cache

    @property
    def metrics(self) -> Metrics:
        """The manager's."""
        return self.manager.metrics

    def add(self, runnable: Runnable, /) -> None:
        """Let the manager run it."""
        self.manager.add(OnItsOwnTime(runnable))
