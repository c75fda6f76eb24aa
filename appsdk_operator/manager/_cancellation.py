"""Errors that are not failures after a stop: cancelled requests and coroutines."""

from __future__ import annotations

from appsdk_operator.runtime import group_members, is_cancelled, with_class


def is_cancellation(error: BaseException) -> bool:
    """Whether ``error`` only reports that a stop cut a request or a coroutine short."""
    # Imported here: an Operator alone needs no client.
    from appsdk_operator.client import RequestStopped

    error = with_class(error)
    if members := group_members(error):
        return all(map(is_cancellation, members))
    return isinstance(error, RequestStopped) or is_cancelled(error)
