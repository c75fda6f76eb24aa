"""Tells callbacks of shards that were won, until each of them has been told."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias, final

from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.runtime import ThreadGroup, get_logger

__all__ = ["GainCallback", "GainNotifier"]

_log = get_logger("appsdk_operator.manager")

GainCallback: TypeAlias = Callable[[int], None]


@final
class GainNotifier:
    """Whoever wants to know of won shards. Thread-safe.

    Args:
        threads: where it starts its threads.
        retry_period: seconds until a callback that has failed is called again. Nobody else would
            ask for the objects that it was to ask for.
        give_up: lets go of a shard of which nobody can be told.
    """

    def __init__(
        self, threads: ThreadGroup, retry_period: float, give_up: Callable[[ShardClaim], None]
    ) -> None:
        self._threads = threads
        self._retry_period = retry_period
        self._give_up = give_up
        self._lock = threading.Lock()
        self._callbacks: list[GainCallback] = []

    def add(
        self, callback: GainCallback, held: Callable[[], Iterable[ShardClaim]]
    ) -> Callable[[], None]:
        """Call it with what is held, in this thread, and with what is won from now on."""
        with self._lock:
            self._callbacks.append(callback)
        for claim in held():
            if self._is_left(callback, claim, logging.ERROR):
                self._begin([callback], claim)

        def forget() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return forget

    def won(self, claim: ShardClaim) -> None:
        """Tell all, in another thread: the one of an elector has to renew its Lease."""
        with self._lock:
            callbacks = list(self._callbacks)
        if callbacks:
            self._begin(callbacks, claim)

    def _begin(self, callbacks: list[GainCallback], claim: ShardClaim) -> None:
        try:
            self._threads.start(
                f"gain-{claim.shard}", functools.partial(self._tell, callbacks, claim)
            )
        except RuntimeError as error:
            # Whoever wins it next asks for its objects.
            _log.warning("shard %d is given up: no thread to tell of it: %s", claim.shard, error)
            self._give_up(claim)

    def _tell(self, callbacks: list[GainCallback], claim: ShardClaim) -> None:
        level = logging.ERROR
        while callbacks := [one for one in callbacks if self._is_left(one, claim, level)]:
            level = logging.DEBUG
            claim.stop.wait(self._retry_period)

    def _is_left(self, callback: GainCallback, claim: ShardClaim, level: int) -> bool:
        """Call it, unless that has become pointless; whether it is to be called again."""
        with self._lock:
            is_wanted = callback in self._callbacks
        if not is_wanted or not claim.accepts_work:
            return False
        try:
            callback(claim.shard)
        except Exception:
            text = "a callback for shard %d failed, and is called again"
            _log.log(level, text, claim.shard, exc_info=True)
            return True
        return False
