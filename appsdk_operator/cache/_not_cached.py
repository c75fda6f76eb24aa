"""Reads that a cache cannot answer."""

from __future__ import annotations

from appsdk_operator.resource import Kind

__all__ = ["NotCachedError", "NotFollowedError", "NotSyncedError"]


class NotCachedError(LookupError):
    """A kind, or a namespace of it, was read that the cache does not hold, or not yet."""


class NotSyncedError(NotCachedError):
    """A kind was read whose local copy is not complete yet, there or at all.

    A controller that meets this tries again soon, and counts no failure.
    """


class NotFollowedError(NotCachedError):
    """A namespace was read that the cache does not follow, or follows no longer.

    Who reconciles an object there has nothing more to do with it: a controller takes it for done
    when a read of its kind, in the namespace of its request, raises this.
    """

    def __init__(self, message: str, *, kind: Kind | None = None, namespace: str = "") -> None:
        """``message``, and what was to be read."""
        super().__init__(message)
        self.kind = kind
        """The kind, None if it is not known."""
        self.namespace = namespace
        """The namespace."""
