"""Errors that are no failures after a stop: cancelled requests and coroutines."""

from __future__ import annotations

from appsdk_operator.runtime import is_cancelled

__all__ = ["is_cancellation"]


def is_cancellation(error: BaseException) -> bool:
    """Whether ``error`` only reports that a stop cut a request or a coroutine short."""
    # Imported here: an Operator alone needs no client.
    from appsdk_operator.client import RequestStopped

    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(one) for one in error.exceptions)
    return isinstance(error, RequestStopped) or is_cancelled(error)
