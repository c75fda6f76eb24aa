"""Sharded reconcilers and sources: they handle the objects of shards that this replica holds."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar, final

import attrs

from appsdk_operator.controllers import Outcome, RequestQueue, Result
from appsdk_operator.manager._election.elector import Elector
from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import StopSignal, settle
from appsdk_operator.runtime.validation import no_awaitable

R = TypeVar("R", bound=Any)


@attrs.define(eq=False)
class ShardClaim:
    """The claim of this replica on one shard: its elector, and the reconciles that run under it."""

    shard: int
    elector: Elector
    stop: StopSignal
    running: int = 0
    """How many reconciles of the shard's objects run."""
    is_held: bool = False
    is_handing_over: bool = False
    """Whether the shard is handed over as soon as they have ended."""

    @property
    def accepts_work(self) -> bool:
        """Whether this replica accepts requests for the shard.

        It does so in the fence margin, too, when it must not write: the lease may still be renewed,
        and a request that is dropped now would never come again.
        """
        return self.is_held and not self.is_handing_over

    @property
    def deferral(self) -> Result | None:
        """The requeue of a reconcile in the fence margin; None: the reconcile may begin."""
        if self.elector.may_write():
            return None
        return Result(requeue_after=self.elector.options.retry_period)


current_claim: ContextVar[ShardClaim | None] = ContextVar("shard_claim", default=None)
"""The claim under which this thread, or task, works."""


class _Shards(Protocol):
    def enter(self, key: ObjectKey) -> ShardClaim | None: ...

    def leave(self, claim: ShardClaim | None) -> None: ...

    def shard_of(self, key: ObjectKey) -> int: ...

    def on_gain(self, callback: Callable[[int], None]) -> Callable[[], None]: ...


@final
class ShardedReconciler(Generic[R]):
    """A reconciler for the objects of held shards; made by :meth:`Shards.reconciler`."""

    def __init__(
        self, shards: _Shards, function: Callable[[R], Any], key_of: Callable[[R], ObjectKey]
    ) -> None:
        self._shards = shards
        self._function = function
        self._key_of = key_of
        self._is_async = inspect.iscoroutinefunction(function)

    def reconcile(self, request: R, /) -> Outcome | Awaitable[Outcome]:
        """Reconcile the object if this replica holds its shard."""
        if self._is_async:
            # The coroutine itself enters: one that is never started must not count as running.
            return self._awaited(request)
        claim = self._shards.enter(self._key(request))
        if claim is None:
            return None
        token = current_claim.set(claim)
        try:
            if (deferral := claim.deferral) is not None:
                return deferral
            outcome: Any = self._function(request)
            if inspect.isawaitable(outcome):
                if inspect.iscoroutine(outcome):
                    outcome.close()
                raise TypeError(
                    f"{self._function!r} returned something to await, but is not an 'async def': "
                    "make it one, so that its shard is kept until it has ended"
                )
            result: Outcome = outcome
            return result
        finally:
            self._shards.leave(claim)
            current_claim.reset(token)

    def _key(self, request: R) -> ObjectKey:
        key: object = self._key_of(request)
        if type(key) is ObjectKey or isinstance(key, ObjectKey):
            return key
        no_awaitable("key_of", key)
        raise TypeError(f"key_of returned {type(key).__name__}: return an ObjectKey")

    async def _awaited(self, request: R) -> Outcome:
        claim = self._shards.enter(self._key(request))
        if claim is None:
            return None
        token = current_claim.set(claim)
        try:
            if (deferral := claim.deferral) is not None:
                return deferral
            outcome: Outcome = await self._function(request)
            return outcome
        finally:
            self._shards.leave(claim)
            current_claim.reset(token)


@final
class ShardSource:
    """Queues all objects of a shard that was won; see :meth:`Shards.source`."""

    def __init__(self, shards: _Shards, keys: Callable[[], Any]) -> None:
        self._shards = shards
        self._keys = keys

    def start(self, queue: RequestQueue[ObjectKey], stop: StopSignal, /) -> None:
        """Queue the objects of each shard that is won, until ``stop`` is set."""

        def gained(shard: int) -> None:
            for key in settle(self._keys()):
                if self._shards.shard_of(key) == shard:
                    queue.add(key, reason=f"shard {shard} was won")

        stop.on_set(self._shards.on_gain(gained))
