"""Which calls fail now: a line when one works again, and one a minute while several fail."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._logs.counts import counted
from appsdk_operator.runtime._logs.durations import duration_text
from appsdk_operator.runtime._logs.loggers import SafeLogger

_PERIOD = 60.0
"""Seconds between two lines about all that fails."""
_MOST = 10_000
_MOST_CAUSES = 3


class _Failing:
    """What is known of one that fails."""

    __slots__ = ("error", "failures", "function", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.failures = 0
        self.function = self.error = ""


@final
class FailingCalls:
    """The calls whose last try has failed, by what was called and the object. Thread-safe.

    At most 10,000; beyond that the one that has failed last longest ago is forgotten.
    """

    def __init__(self, log: SafeLogger, clock: Clock) -> None:
        """Log to ``log``, with the times of ``clock``."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self.calls: OrderedDict[tuple[Hashable, Hashable], _Failing] = OrderedDict()
        """To be read without the lock for whether it is empty or has a key, nothing else."""
        self._said_at = -_PERIOD

    def failed(
        self, called: Hashable, about: Hashable, function: str, error: BaseException
    ) -> None:
        """Note a failed call.

        Logs a line about all that fails, at most once a minute, and none while it is one alone.

        Args:
            called: what was called.
            about: the object that it was called for.
            function: the name of the function.
            error: what it raised.
        """
        now = self._clock.monotonic()
        with self._lock:
            one = self.calls.pop((called, about), None) or _Failing(now)
            self.calls[called, about] = one
            if len(self.calls) > _MOST:
                self.calls.popitem(last=False)
            one.failures += 1
            one.function, one.error = function, type(error).__name__
            if now - self._said_at < _PERIOD:
                return
            self._said_at = now
            objects = len({each for _, each in self.calls})
            causes = Counter(f"{one.error} in {one.function}" for one in self.calls.values())
        if objects > 1:
            listed = [f"{number} {cause}" for cause, number in causes.most_common(_MOST_CAUSES)]
            more = "" if len(causes) <= _MOST_CAUSES else ", …"
            self._log.warning("%d objects fail: %s%s", objects, ", ".join(listed), more)

    def succeeded(self, called: Hashable, about: Hashable, text: str) -> None:
        """Note a call that has succeeded, and log at INFO that it works again.

        Args:
            called: as for :meth:`failed`.
            about: the same.
            text: the object for people.
        """
        now = self._clock.monotonic()
        with self._lock:
            one = self.calls.pop((called, about), None)
        if one is not None:
            times = counted(one.failures, "failure")
            self._log.info(
                "%s works again for %s, after %s in %s",
                one.function,
                text,
                times,
                duration_text(now - one.since),
                extra={"callback": one.function, "failures": one.failures},
            )

    def forget(self, *, called: Hashable = None, about: Hashable = None) -> None:
        """What was called is called no more, or the object is gone.

        Args:
            called: as for :meth:`failed`; None: whatever was called.
            about: the same; None: whichever object.
        """
        with self._lock:
            for key in list(self.calls):
                # None is compared by identity: an object of the user's may know its like alone.
                if (called is None or key[0] == called) and (about is None or key[1] == about):
                    del self.calls[key]
