"""The clock and the metrics of the parts that are made in a block of code."""

from __future__ import annotations

import contextvars
from typing import Final, NamedTuple, Self, final

from appsdk_operator.runtime._clock import Clock, InheritedClock, ManualClock, system_clock
from appsdk_operator.runtime._metrics import InheritedMetrics, Metrics, default_metrics

__all__ = [
    "Environment",
    "entered_environment",
    "environment",
    "present_clock",
    "present_metrics",
    "thread_clock",
    "unwrapped_clock",
]


class _Entered(NamedTuple):
    clock: Clock
    metrics: Metrics | None
    """None: those of the process."""


_NONE: Final = _Entered(system_clock, None)
_present: contextvars.ContextVar[_Entered] = contextvars.ContextVar(
    "appsdk_operator.environment", default=_NONE
)


@final
class environment:  # noqa: N801
    """Within the block, parts that are made without ``clock=`` or ``metrics=`` get these.

    A :class:`~appsdk_operator.manager.Manager` enters it around everything that it runs, a
    :class:`~appsdk_operator.testing.World` around each process. The threads of the kit that are
    started within have it too; threads of your own do not.

    >>> from appsdk_operator.runtime import ManualClock, WorkQueue
    >>> with environment(clock=ManualClock(start=5.0)):
    ...     queue = WorkQueue[str]("demo")
    >>> queue.add("a", after=5.0)
    >>> queue.next_due
    10.0

    Args:
        clock: the clock; default: as around the block.
        metrics: the metrics; default: as around the block.
    """

    def __init__(self, *, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        """See the class."""
        self._clock = clock
        self._metrics = metrics
        self._before: list[_Entered] = []

    def __enter__(self) -> Self:
        before = _present.get()
        self._before.append(before)
        _present.set(_Entered(self._clock or before.clock, self._metrics or before.metrics))
        return self

    def __exit__(self, *_: object) -> None:
        # Not with a token, which only the context that entered could use.
        _present.set(self._before.pop())


def entered_environment() -> environment:
    """The present environment, to be entered in another thread."""
    present = _present.get()
    return environment(clock=present.clock, metrics=present.metrics)


def present_clock(clock: Clock | None = None) -> Clock:
    """``clock`` if it is given, else the :class:`environment`'s, else the machine's."""
    return clock or _present.get().clock


def unwrapped_clock(clock: Clock) -> Clock:
    return clock.clock if isinstance(clock, InheritedClock) else clock


def present_metrics(metrics: Metrics | None = None) -> Metrics:
    """``metrics`` if given, else the :class:`environment`'s, else those of the process."""
    return metrics or _present.get().metrics or default_metrics()


def thread_clock() -> Clock:
    """The clock by which threads end: the machine's, or that of a simulation of threads."""
    clock = _present.get().clock
    return clock if isinstance(clock, ManualClock) and clock.runs_threads else system_clock


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
