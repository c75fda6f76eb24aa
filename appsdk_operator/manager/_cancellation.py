"""What is no failure when it comes after the stop."""

from __future__ import annotations

__all__ = ["is_cancellation"]


def is_cancellation(error: BaseException) -> bool:
    """Whether ``error`` says no more than that a stop ended what was under way."""
    # Loaded when they are needed: an operator alone has no use for a client, nor for coroutines.
    import asyncio
    import concurrent.futures

    from appsdk_operator.client import RequestStopped

    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(one) for one in error.exceptions)
    cancelled = (asyncio.CancelledError, concurrent.futures.CancelledError)
    return isinstance(error, (RequestStopped, *cancelled))
