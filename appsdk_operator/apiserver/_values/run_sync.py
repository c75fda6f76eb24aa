"""Run a coroutine that never waits, without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run ``coroutine`` to its end and return its result.

    A write waits for webhooks alone, so a write without webhooks can run like this.

    Raises:
        RuntimeError: the coroutine waits for something.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("this needs a call of a webhook: start the server first")
