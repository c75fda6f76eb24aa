"""The clock and the metrics of the parts that are made in a block of code."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Final, Self, final

import msgspec

from appsdk_operator.runtime._clock import Clock, ManualClock, RealClock, system_clock
from appsdk_operator.runtime._logs.texts import safe_repr
from appsdk_operator.runtime._metrics import Metrics, default_metrics


class _Entered(msgspec.Struct, frozen=True):
    clock: Clock
    metrics: Metrics | None
    """None: those of the process."""
    by: object = None
    """The :class:`environment` that was entered."""
    before: _Entered | None = None


_NONE: Final = _Entered(system_clock, None)
_present: contextvars.ContextVar[_Entered] = contextvars.ContextVar(
    "appsdk_operator.environment", default=_NONE
)


@final
class environment:  # noqa: N801
    """Within the block, parts made without ``clock=`` or ``metrics=`` get the given ones.

    A :class:`~appsdk_operator.manager.Manager` enters it around everything that it runs, a
    :class:`~appsdk_operator.testing.World` around each process. Threads that the kit starts within
    the block have the environment, too; your own threads do not.

    >>> from appsdk_operator.runtime import ManualClock, WorkQueue
    >>> with environment(clock=ManualClock(start=5.0)):
    ...     queue = WorkQueue[str]("demo")
    >>> queue.add("a", after=5.0)
    >>> queue.next_due
    10.0

    Args:
        clock: the clock; default: the clock outside of the block.
        metrics: the metrics; default: the metrics outside of the block.
    """

    def __init__(self, *, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        """See the class."""
        self._clock = clock
        self._metrics = metrics

    def __enter__(self) -> Self:
        before = _present.get()
        clock, metrics = self._clock or before.clock, self._metrics or before.metrics
        _present.set(_Entered(clock, metrics, self, before))
        return self

    def __exit__(self, *_: object) -> None:
        # What was before is kept with what was entered: several threads may enter one of these.
        # In a context that has not entered, which a generator's end may run in, there is nothing
        # to leave.
        present = _present.get()
        if present.by is self and present.before is not None:
            _present.set(present.before)


def entered_environment() -> environment:
    """The present environment, to be entered in another thread."""
    present = _present.get()
    return environment(clock=present.clock, metrics=present.metrics)


def present_clock(clock: Clock | None = None) -> Clock:
    """``clock`` if it is given, else the :class:`environment`'s, else the machine's."""
    return clock or _present.get().clock


def entered_metrics(metrics: Metrics | None = None) -> Metrics | None:
    """``metrics`` if given, else the :class:`environment`'s, else None: known at the start."""
    return metrics or _present.get().metrics


def present_metrics(metrics: Metrics | None = None) -> Metrics:
    """``metrics`` if given, else the :class:`environment`'s, else :func:`default_metrics`."""
    return metrics or _present.get().metrics or default_metrics()


def thread_clock() -> Clock:
    """The clock by which threads end: the machine's, or that of a simulation of threads."""
    clock = _present.get().clock
    return clock if isinstance(clock, ManualClock) and clock.runs_threads else system_clock


@final
class PartMetrics:
    """The metrics of a part that counts before it runs, such as one that makes a client.

    They are the metrics that are given, or the environment's where the part is made. Otherwise they
    are its own, which add to :func:`default_metrics`, and from :meth:`publish` on to the metrics of
    the environment in which it runs.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        known = entered_metrics(metrics)
        self.metrics: Metrics = known or Metrics()
        self._home = present_metrics(known)
        self.retire: Callable[[], None] = lambda: None
        if known is None:
            self._add()

    def publish(self) -> None:
        """Write to the metrics of the caller's environment, unless the metrics are settled."""
        present = present_metrics()
        if self.metrics is not self._home is not present:
            self.retire()
            self._home = present
            self._add()

    def _add(self) -> None:
        self.retire = self._home.add_source(self.metrics.samples)


def check_clock(host: object, part: object) -> None:
    """Check that ``part``, if it has a clock, is on that of ``host``, which runs it.

    Raises:
        ValueError: the text says how to make it.
    """
    clock, theirs = getattr(host, "clock", None), getattr(part, "clock", None)
    if theirs is clock or not (isinstance(clock, Clock) and isinstance(theirs, Clock)):
        return
    if isinstance(clock, RealClock) and isinstance(theirs, RealClock):
        return
    whose = type(host).__name__
    raise ValueError(
        f"{safe_repr(part)} is on another clock ({type(theirs).__name__}) than its {whose} "
        f"({type(clock).__name__}), so that its waits would end at other times: make it within "
        f"'with environment(clock=…)', with the clock of the {whose}, or give it clock=…"
    )
