"""Callbacks for shards that were won."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.manager import LeaderElection, Shards
from appsdk_operator.manager._shards.gain_notifier import GainNotifier
from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.runtime import Metrics, StillRunning, StopSignal, ThreadGroup
from appsdk_operator.testing import MemoryServer


@pytest.mark.parametrize("error", [None, ValueError("first"), SystemExit(3)])
def test_an_async_callback_for_a_shard_is_awaited_and_called_again_whatever_it_raised(
    error: BaseException | None,
) -> None:
    threads, won = ThreadGroup("shards"), []
    gains = GainNotifier(threads, 0.001, lambda claim: None)
    claim = ShardClaim(1, None, StopSignal(), is_held=True)  # type: ignore[arg-type]
    errors = [error] if error is not None else []

    async def callback(shard: int) -> None:
        if errors:
            raise errors.pop()
        won.append(shard)

    gains.add(callback)
    gains.won(claim, gains.callbacks)
    assert threads.join(10) == []
    assert won == [1]


def test_a_callback_that_hangs_does_not_hang_the_stop() -> None:
    leave, entered = threading.Event(), threading.Event()
    election = LeaderElection(
        id="x", namespace="default", lease_duration=0.5, renew_deadline=0.4, retry_period=0.1
    )
    shards = Shards(MemoryServer().client(), election, 1, metrics=Metrics(), stop_timeout=0.1)

    def hang(shard: int) -> None:
        entered.set()
        leave.wait(30)

    shards.on_gain(hang)
    stop, raised = StopSignal(), []

    def run() -> None:
        try:
            shards.run(stop)
        except StillRunning as error:
            raised.append((str(error), error.running()))

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(20)
    stop.set()
    thread.join(20)
    leave.set()
    [(text, running)] = raised
    assert "shards/gain-0: set a time-out for what callbacks" in text
    assert running == ["shards/gain-0"]
    assert shards._threads.join(20) == []
