"""The wait until a server has rebuilt the storage of a kind whose conversion was changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from appsdk_operator.client import (
    ApiError,
    ClientError,
    ClientLike,
    ServiceUnavailable,
    TooManyRequests,
)
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, StopSignal

_INTERVAL: Final = 0.1
_SETTLE: Final = 0.5
"""Seconds for which it has to answer: a server notices the change a moment after it stored it."""
_WATCH: Final = 5.0


def await_storage(
    client: ClientLike,
    kinds: Iterable[Kind],
    *,
    timeout: float,
    clock: Clock,
    stop: StopSignal | None = None,
) -> bool:
    """Wait until the objects of all ``kinds`` can be listed and watched.

    A real server answers 429 "storage is (re)initializing" for some moments after a change of a
    CRD's conversion, to watches more often than to lists.

    Returns:
        False when stopped.

    Raises:
        TimeoutError: one of them still cannot after ``timeout`` seconds; the text has the server's
            answer. So it is if a stored object cannot be converted.
    """
    kinds = tuple(kinds)
    stop = stop or StopSignal(clock=clock)
    deadline = clock.monotonic() + timeout
    good_since: float | None = None
    while True:
        problem = next(filter(None, (_problem_of(client, kind, stop) for kind in kinds)), None)
        now = clock.monotonic()
        if problem is not None:
            good_since = None
            if now >= deadline:
                raise TimeoutError(f"{problem}, still after {timeout:g} s")
        elif good_since is None:
            good_since = now
        elif now - good_since >= _SETTLE:
            return True
        if stop.wait(_INTERVAL):
            return False


def _problem_of(client: ClientLike, kind: Kind, stop: StopSignal) -> str | None:
    """Why the objects of a kind cannot be read yet; None if they can, or if that is another
    matter, such as a version that is not served or a missing permission."""
    try:
        page = client.list_page(kind, limit=1, retry=False, metadata_only=True, stop=stop)
        version = page.resource_version
        client.watch(kind, resource_version=version, timeout=_WATCH, stop=stop).close()
    except (TooManyRequests, ServiceUnavailable) as error:
        return f"{kind} cannot be read yet: {error.message}"
    except ApiError:
        return None
    except ClientError as error:
        return f"{kind} cannot be read yet: {error}"
    return None
