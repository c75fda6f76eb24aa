"""Callbacks for shards that were won."""

from __future__ import annotations

import pytest

from appsdk_operator.manager._shards.gain_notifier import GainNotifier
from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.runtime import StopSignal, ThreadGroup


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
