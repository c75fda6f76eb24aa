"""The errors of reads that a cache cannot answer."""

from __future__ import annotations

import msgspec

from appsdk_operator.resource import Kind


class NotCachedError(LookupError):
    """A read of a kind, or of a namespace of it, that the cache does not hold, or not yet."""

    fact: str = ""
    """The text without the remedy; empty if there is no remedy."""


class NotSyncedError(NotCachedError):
    """A read of a kind, or of a namespace of it, whose local copy is not complete yet.

    A controller whose reconciler raises this tries again soon, and counts no failure.
    """


class NotFollowedError(NotCachedError):
    """The cache does not follow the namespace that was read, or no longer does.

    There is nothing left to reconcile in the namespace. If a read of the controller's own kind, in
    the namespace of the request, raises this, the controller treats the request as done.
    """

    def __init__(self, message: str, *, kind: Kind | None = None, namespace: str = "") -> None:
        """An error with ``message``, for a read of ``kind`` in ``namespace``."""
        super().__init__(message)
        self.kind = kind
        """The kind that was read; None if unknown."""
        self.namespace = namespace
        """The namespace that was read."""


class Remedies(msgspec.Struct, frozen=True, kw_only=True):
    """The advice in the texts of these errors, in terms of the API that the reader uses."""

    to_keep: str = "call cache.add(kind) first, or make the cache with lazy=True"
    to_follow: str = "add it with set_namespaces"
    to_sync: str = "run the cache and wait with wait_for_sync before reading"
    to_read_live: str = "with the live client, or always, with CachedClient(…, uncached=[kind])"

    def not_cached(self, fact: str) -> NotCachedError:
        """The error for a kind that the cache does not hold."""
        return _with_fact(NotCachedError(f"{fact}: {self.to_keep}"), fact)

    def not_followed(self, fact: str, kind: Kind | None, namespace: str) -> NotCachedError:
        """The error for a namespace that the cache does not follow."""
        text = f"{fact}: {self.to_follow}"
        return _with_fact(NotFollowedError(text, kind=kind, namespace=namespace), fact)

    def not_synced(self, fact: str) -> NotCachedError:
        """The error for a local copy that is not complete yet."""
        return _with_fact(NotSyncedError(f"{fact}: {self.to_sync}"), fact)

    def for_client(self, error: NotCachedError) -> NotCachedError:
        """``error`` with advice for reads through a client, which can also read from the server."""
        fact = error.fact or str(error)
        live = f". Or read it from the server: {self.to_read_live}"
        advice = msgspec.structs.replace(
            self,
            to_keep=self.to_keep + live,
            to_follow=self.to_follow + live,
            to_sync=self.to_sync + live,
        )
        if isinstance(error, NotFollowedError):
            return advice.not_followed(fact, error.kind, error.namespace)
        return (
            advice.not_synced(fact)
            if isinstance(error, NotSyncedError)
            else advice.not_cached(fact)
        )


def _with_fact(error: NotCachedError, fact: str) -> NotCachedError:
    error.fact = fact
    return error
