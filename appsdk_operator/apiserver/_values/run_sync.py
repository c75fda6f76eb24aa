"""Coroutines that have nothing to wait for, run to their end without a loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_sync"]

_T = TypeVar("_T")


def run_sync(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """What ``coroutine`` returns.

    Writes wait for nobody but webhooks. Where none can be asked, this is all it takes to run one.

    Raises:
        RuntimeError: it has to wait after all.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a webhook has to be asked: that takes a server that is started")
