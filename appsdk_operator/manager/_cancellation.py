"""Errors that are no failures after a stop: cancelled requests and coroutines."""

from __future__ import annotations

__all__ = ["is_cancellation"]


def is_cancellation(error: BaseException) -> bool:
    """Whether ``error`` only reports that a stop cut a request or a coroutine short."""
    # Imported here: an Operator alone needs neither a client nor asyncio.
    import asyncio
    import concurrent.futures

    from appsdk_operator.client import RequestStopped

    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(one) for one in error.exceptions)
    cancelled = (asyncio.CancelledError, concurrent.futures.CancelledError)
    return isinstance(error, (RequestStopped, *cancelled))
