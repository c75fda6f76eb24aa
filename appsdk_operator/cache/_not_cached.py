"""Reads that a cache cannot answer."""

from __future__ import annotations

__all__ = ["NotCachedError", "NotFollowedError"]


class NotCachedError(LookupError):
    """A kind, or a namespace of it, was read that the cache does not hold, or not yet."""


class NotFollowedError(NotCachedError):
    """A namespace was read that the cache does not follow, or follows no longer.

    Who reconciles an object there has nothing more to do with it.
    """
