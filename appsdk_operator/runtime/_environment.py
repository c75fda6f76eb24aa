"""The clock and the metrics of a part, which it inherits from its manager by default."""

from __future__ import annotations

from typing import final

from appsdk_operator.runtime._clock import Clock, InheritedClock
from appsdk_operator.runtime._metrics import InheritedMetrics, Metrics

__all__ = ["Environment"]


@final
class Environment:
    """The clock and the metrics of a part, and of everything that it consists of. Thread-safe.

    Explicit ones stay. Otherwise they are the machine's clock and the default metrics, until the
    part inherits others.
    """

    __slots__ = ("_inherited", "clock", "metrics")

    def __init__(self, clock: Clock | None, metrics: Metrics | None) -> None:
        self.clock: Clock = InheritedClock() if clock is None else clock
        self.metrics: Metrics = InheritedMetrics() if metrics is None else metrics
        self._inherited: tuple[Clock, Metrics] | None = None

    def inherit(self, clock: Clock, metrics: Metrics) -> None:
        """Use these where none were given; for a part that does not run yet."""
        if isinstance(self.clock, InheritedClock):
            self.clock.follow(clock)
        if isinstance(self.metrics, InheritedMetrics):
            self.metrics.follow(metrics)
        self._inherited = clock, metrics

    def hand_down(self, part: object) -> None:
        """Pass inherited clock and metrics on to ``part``, if it can inherit."""
        inherit = getattr(part, "inherit_environment", None)
        if self._inherited is not None and callable(inherit):
            inherit(*self._inherited)
