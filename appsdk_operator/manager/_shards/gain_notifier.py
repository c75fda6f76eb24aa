"""Calls callbacks for shards that were won, again until each has succeeded."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias, final

from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.runtime import NO_THREAD, ThreadGroup, as_exception, get_logger, settle

_log = get_logger("appsdk_operator.manager")

GainCallback: TypeAlias = Callable[[int], object]


@final
class GainNotifier:
    """The callbacks for won shards. Thread-safe.

    Args:
        threads: the group for its threads.
        retry_period: seconds until a callback that has failed is called again. Without the retry
            the shard's objects would not be queued.
        give_up: gives up a shard when no thread can be started for its callbacks.
    """

    def __init__(
        self, threads: ThreadGroup, retry_period: float, give_up: Callable[[ShardClaim], None]
    ) -> None:
        self._threads = threads
        self._retry_period = retry_period
        self._give_up = give_up
        self._lock = threading.Lock()
        self._callbacks: list[GainCallback] = []

    def add(self, callback: GainCallback) -> Callable[[], None]:
        """Call ``callback`` for shards that are won later; returns a function that removes it."""
        with self._lock:
            self._callbacks.append(callback)

        def remove() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return remove

    @property
    def callbacks(self) -> list[GainCallback]:
        """Those that are there now."""
        with self._lock:
            return list(self._callbacks)

    def held(self, callback: GainCallback, claims: Iterable[ShardClaim]) -> None:
        """Call ``callback`` for shards that were won before, in this thread."""
        for claim in claims:
            if self._needs_retry(callback, claim, logging.ERROR):
                self._start([callback], claim)

    def won(self, claim: ShardClaim, callbacks: list[GainCallback]) -> None:
        """Call ``callbacks`` in another thread: the elector's has to renew its Lease."""
        if callbacks:
            self._start(callbacks, claim)

    def _start(self, callbacks: list[GainCallback], claim: ShardClaim) -> None:
        try:
            self._threads.start(
                f"gain-{claim.shard}", functools.partial(self._call_all, callbacks, claim)
            )
        except NO_THREAD as error:
            # The next replica that wins it queues its objects.
            text = "cannot start a thread for the callbacks of shard %d, and gives the shard up: %s"
            _log.warning(text, claim.shard, error)
            self._give_up(claim)

    def _call_all(self, callbacks: list[GainCallback], claim: ShardClaim) -> None:
        level = logging.ERROR
        while callbacks := [one for one in callbacks if self._needs_retry(one, claim, level)]:
            level = logging.DEBUG
            claim.stop.wait(self._retry_period)

    def _needs_retry(self, callback: GainCallback, claim: ShardClaim, level: int) -> bool:
        """Call ``callback`` if it still applies; returns whether it failed and needs a retry."""
        with self._lock:
            is_wanted = callback in self._callbacks
        if not is_wanted or not claim.accepts_work:
            return False
        try:
            settle(callback(claim.shard))
        except BaseException as raised:
            as_exception("a callback for a shard", raised)  # Ctrl-C in the main thread
            text = "a callback for shard %d failed: the kit calls it again"
            _log.log(level, text, claim.shard, exc_info=True)
            return True
        return False
