"""What a part takes from whoever runs it, where the program gave it nothing of its own."""

from __future__ import annotations

from typing import final

from appsdk_operator.runtime._clock import Clock, InheritedClock
from appsdk_operator.runtime._metrics import InheritedMetrics, Metrics

__all__ = ["Environment"]


@final
class Environment:
    """The clock and the metrics of one part and of all that it consists of. Thread-safe.

    What was given stays. Until it is told otherwise the rest is the machine's clock and the default
    metrics.
    """

    __slots__ = ("_inherited", "clock", "metrics")

    def __init__(self, clock: Clock | None, metrics: Metrics | None) -> None:
        self.clock: Clock = InheritedClock() if clock is None else clock
        self.metrics: Metrics = InheritedMetrics() if metrics is None else metrics
        self._inherited: tuple[Clock, Metrics] | None = None

    def inherit(self, clock: Clock, metrics: Metrics) -> None:
        """Take what was not given from whoever runs the part; for one that has not begun."""
        if isinstance(self.clock, InheritedClock):
            self.clock.follow(clock)
        if isinstance(self.metrics, InheritedMetrics):
            self.metrics.follow(metrics)
        self._inherited = clock, metrics

    def hand_down(self, part: object) -> None:
        """Let ``part``, which ours runs, inherit the same, if ours has inherited and it can."""
        inherit = getattr(part, "inherit_environment", None)
        if self._inherited is not None and callable(inherit):
            inherit(*self._inherited)
