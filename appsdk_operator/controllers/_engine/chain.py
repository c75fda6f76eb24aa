"""Async reconciles in a row: the next one begins on the event loop where the last one ended."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar, final

from appsdk_operator.controllers._engine.context import ReconcileContext, current
from appsdk_operator.controllers._engine.runner import ReconcileRunner
from appsdk_operator.runtime import (
    CallSlot,
    ItemExponential,
    LoopPart,
    LoopThread,
    QueueItem,
    RateLimiter,
    TokenBucket,
)

R = TypeVar("R", bound=Hashable)

MOST: Final = 100
"""The most reconciles in a row."""
LONGEST: Final = 0.01
"""Seconds after which no further one begins."""


def may_chain(reconcile: Callable[..., Any], limiter: RateLimiter) -> bool:
    """Whether neither a call of ``reconcile`` nor a success runs code of the user's that may block.

    A call of an ``async def`` only makes the coroutine; each success calls a method of the limiter.
    """
    if type(limiter) not in {ItemExponential, TokenBucket}:
        return False
    function = reconcile.__func__ if inspect.ismethod(reconcile) else reconcile
    return inspect.isfunction(function) and bool(function.__code__.co_flags & inspect.CO_COROUTINE)


@final
class ReconcileChain(Generic[R]):
    """One worker's reconciles of an ``async def`` reconciler.

    To wake the worker for each costs several times what a reconcile itself does. So where one has
    succeeded and another request is ready, that is taken and begun on the event loop, and the
    worker goes on waiting. It is woken for everything else: failures and other results, a stop,
    observers and log lines, whose code may block, and from time to time, so that others have their
    turn, and a worker that was replaced sees that.
    """

    def __init__(
        self,
        runner: ReconcileRunner[R],
        loop: LoopThread | LoopPart,
        has_stopped: Callable[[], bool],
    ) -> None:
        """A chain for the calling worker, which is woken once ``has_stopped()`` is true."""
        self._runner = runner
        self._loop = loop
        self._has_stopped = has_stopped
        self._slot: CallSlot = runner.activity.slot(threading.get_ident())
        self._base = contextvars.copy_context()
        self._item: QueueItem[R] | None = None
        self._context: ReconcileContext | None = None
        self._left = 0
        self._until = 0.0

    def handle(self, item: QueueItem[R]) -> BaseException | None:
        """Reconcile ``item`` and those that follow, as :meth:`ReconcileRunner.handle` does."""
        runner, slot = self._runner, self._slot
        self._base = contextvars.copy_context()
        context = self._begin(item)
        self._left, self._until = MOST - 1, context.started + LONGEST
        outcome, failure = None, None
        token = current.set(context)
        if runner.activity.observers.present:
            runner.activity.begin(slot)
        try:
            runner.note_begin(context)
            returned = self._loop.run(runner.coroutine(item.key), following=self._follow)
            outcome = runner.checked(returned)
        except BaseException as error:
            failure = error
        finally:
            current.reset(token)
        present, last = self._context, self._item
        if present is None or last is None:  # it has succeeded, and nothing follows
            if failure is not None:
                raise failure
            return None
        try:
            return runner.end_of(last, present, slot, outcome, failure)
        finally:
            self._context = None
            failure = None  # its traceback holds this frame, which would hold it in turn

    def take(self, item: QueueItem[R]) -> QueueItem[R]:
        """What is to be given back instead of ``item``, which :meth:`handle` was called with."""
        last, self._item = self._item, None
        return last or item

    def _begin(self, item: QueueItem[R]) -> ReconcileContext:
        slot = self._slot
        self._item = item  # first: it is locked by now
        context = self._runner.begin(item)
        self._context = context
        slot.started = context.started
        slot.limited = context
        slot.trigger = context
        return context

    def _follow(
        self, returned: object
    ) -> tuple[contextvars.Context, Coroutine[Any, Any, Any]] | None:
        return self._base.run(self._next, returned)

    def _next(
        self, returned: object
    ) -> tuple[contextvars.Context, Coroutine[Any, Any, Any]] | None:
        """End a reconcile and begin the next one; None: the worker does that."""
        runner, item, context = self._runner, self._item, self._context
        if (
            returned is not None
            or item is None
            or context is None
            or self._left <= 0
            or runner.clock.monotonic() >= self._until
            or self._has_stopped()
            or runner.activity.observers.present
            or runner.has_to_log(item.key)
        ):
            return None
        self._left -= 1
        self._context = None
        runner.end_of(item, context, self._slot)
        following = runner.exchange(item.key)
        if following is None:
            return None
        context = self._begin(following)
        own = self._base.copy()
        own.run(current.set, context)
        return own, own.run(runner.coroutine, following.key)
