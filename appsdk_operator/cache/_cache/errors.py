"""Reads that a cache cannot answer."""

from __future__ import annotations

import attrs

from appsdk_operator.resource import Kind

__all__ = ["NotCachedError", "NotFollowedError", "NotSyncedError", "Remedies"]


class NotCachedError(LookupError):
    """A kind, or a namespace of it, was read that the cache does not hold, or not yet."""

    fact: str = ""
    """What is wrong, without the remedy; empty if that is all of the text."""


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


@attrs.frozen(kw_only=True)
class Remedies:
    """What to do where a read is none of the cache's, in the words of what the reader has."""

    to_keep: str = "call cache.add(kind) first, or make the cache with lazy=True"
    to_follow: str = "add it with set_namespaces"
    to_sync: str = "run the cache and wait with wait_for_sync before reading"
    to_read_live: str = "with the live client, or always, with CachedClient(…, uncached=[kind])"

    def not_kept(self, fact: str) -> NotCachedError:
        """The error for a kind that is not kept."""
        return _with_fact(NotCachedError(f"{fact}: {self.to_keep}"), fact)

    def not_followed(self, fact: str, kind: Kind | None, namespace: str) -> NotCachedError:
        """The error for a namespace that is not followed."""
        text = f"{fact}: {self.to_follow}"
        return _with_fact(NotFollowedError(text, kind=kind, namespace=namespace), fact)

    def not_synced(self, fact: str) -> NotCachedError:
        """The error for a copy that is not complete yet."""
        return _with_fact(NotSyncedError(f"{fact}: {self.to_sync}"), fact)

    def for_client(self, error: NotCachedError) -> NotCachedError:
        """``error`` for who reads through a client, which may read from the server as well."""
        fact = error.fact or str(error)
        live = f". Or read it from the server: {self.to_read_live}"
        advice = attrs.evolve(
            self,
            to_keep=self.to_keep + live,
            to_follow=self.to_follow + live,
            to_sync=self.to_sync + live,
        )
        if isinstance(error, NotFollowedError):
            return advice.not_followed(fact, error.kind, error.namespace)
        return (
            advice.not_synced(fact) if isinstance(error, NotSyncedError) else advice.not_kept(fact)
        )


def _with_fact(error: NotCachedError, fact: str) -> NotCachedError:
    error.fact = fact
    return error
