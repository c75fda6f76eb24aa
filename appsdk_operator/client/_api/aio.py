"""The verbs of a client as coroutines: they wait in threads, so that an event loop need not."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import itertools
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, final

import attrs

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.client._api.edits import Steps, modify_steps
from appsdk_operator.client._api.options import (
    ApplyOptions,
    DeleteCollectionOptions,
    DeleteOptions,
    GetOptions,
    ListAllOptions,
    ListPageOptions,
    PatchOptions,
    SubresourceApplyOptions,
    SubresourceCreateOptions,
    SubresourceUpdateOptions,
    WatchOptions,
    WriteOptions,
)
from appsdk_operator.client._api.protocols import Change, SubresourceLike, Verbs
from appsdk_operator.client._errors import RequestStopped
from appsdk_operator.client._transport.cancelling import requests_end_with
from appsdk_operator.client._transport.watch import WatchStream
from appsdk_operator.resource import (
    AnyObject,
    DecodeError,
    Kind,
    ListPage,
    MutableObject,
    Object,
    Patch,
    WatchEvent,
)
from appsdk_operator.runtime import StopSignal, fork_safe
from appsdk_operator.runtime.validation import check_client

CALLS = 32
"""The calls of one event loop that run at once; more wait for their turn, in order."""
WATCHES = 256
"""The watches of one event loop that wait for events at once."""
_BATCH = 500
_FOR_EVER = 10 * 365 * 86_400.0
"""Seconds."""
_LINGER = 0.05
"""Seconds for which a thread waits for the next call: starting one takes longer than a call."""

_T = TypeVar("_T")


# -- Threads ---------------------------------------------------------------------------------


@final
class _Call(Generic[_T]):
    """A function that runs in a thread, for a coroutine that waits for it."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        # Weakly: a thread must not keep the task of a loop that was closed, whose end ends the
        # thread.
        self._ended: Callable[[], asyncio.Future[None] | None] = lambda: None
        self._result: _T | None = None
        self._error: BaseException | None = None

    def begin(self) -> asyncio.Future[None]:
        """The future that is done when the function has ended."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self._ended = weakref.ref(ended)
        return ended

    def run(self) -> None:
        """Run the function, and tell the loop."""
        try:
            self._result = self._context.run(self._function)
        except BaseException as error:
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        ended = self._ended()
        if ended is not None:
            ended.set_result(None)

    def result(self) -> Any:
        """The result of the function, or its error."""
        try:
            if self._error is not None:
                raise self._error
            return self._result
        finally:
            # The error's traceback has this frame.
            self._error = None


@final
class _Threads:
    """Threads of one event loop, each of which ends when there is no call for it for a moment.

    So nothing has to be closed, and an idle loop has none.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._changed = threading.Condition(fork_safe(threading.Lock()))
        self._running = self._idle = 0
        self._waiting: deque[_Call[Any]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether the next call would have to wait."""
        return self._running - self._idle + len(self._waiting) >= self._limit

    def start(self, call: _Call[Any]) -> None:
        """Run ``call`` in a thread, as soon as one is free."""
        with self._changed:
            self._waiting.append(call)
            if self._idle >= len(self._waiting):
                self._changed.notify()
                return
            if self._running >= self._limit:
                return
            self._running += 1
        thread = threading.Thread(target=self._run, name=self._name, daemon=False)
        try:
            thread.start()
        except BaseException:
            with self._changed:
                self._running -= 1
            self.withdraw(call)
            raise

    def withdraw(self, call: _Call[Any]) -> bool:
        """Take back a call that waits for a thread; False if it has one."""
        with self._changed:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            del call

    def _next(self) -> _Call[Any] | None:
        """The next call; None after a moment without one."""
        with self._changed:
            if not self._waiting:
                self._idle += 1
                try:
                    self._changed.wait(_LINGER)
                finally:
                    self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


@attrs.frozen
class _LoopThreads:
    calls: _Threads = attrs.field(factory=lambda: _Threads("client-aio/call", CALLS))
    watches: _Threads = attrs.field(factory=lambda: _Threads("client-aio/watch", WATCHES))


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopThreads] = (
    weakref.WeakKeyDictionary()
)
_by_loop_lock = fork_safe(threading.Lock())


def _threads() -> _LoopThreads:
    """The threads of the running loop."""
    loop = asyncio.get_running_loop()
    with _by_loop_lock:
        found = _by_loop.get(loop)
        if found is None:
            found = _by_loop[loop] = _LoopThreads()
        return found


async def _run_in(
    threads: _Threads, function: Callable[[], _T], stop: StopSignal | None = None
) -> _T:
    """Run ``function`` in one of ``threads``, with the context variables of the caller.

    When the waiting task is cancelled, the function's requests end with ``stop``, and the task is
    waited for until the function has ended: it leaves no thread behind.
    """
    signal = stop or StopSignal()

    def run() -> _T:
        with requests_end_with(signal):
            return function()

    call = _Call(run)
    ended = call.begin()
    # The call refers to ``ended`` weakly. So the loop keeps it, and the waiting task with it.
    hold = asyncio.get_running_loop().call_later(_FOR_EVER, ended.done)
    cancelled: asyncio.CancelledError | None = None
    try:
        threads.start(call)
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                if threads.withdraw(call):
                    raise
                cancelled = error
                signal.set()
    except BaseException:
        # Also when the coroutine is closed, because its loop is gone.
        threads.withdraw(call)
        signal.set()
        raise
    finally:
        hold.cancel()
    if cancelled is not None:
        raise cancelled
    result: _T = call.result()
    return result


async def _call(method: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    return await _run_in(_threads().calls, lambda: method(*arguments, **options))


# -- Steps -----------------------------------------------------------------------------------


@attrs.frozen
class _OnLoop:
    """Performs the steps of a change on an event loop."""

    client: AsyncClient
    live: AsyncClient

    async def call(self, change: Callable[..., Any], draft: MutableObject) -> Any:
        returned = change(draft)
        return await returned if inspect.isawaitable(returned) else returned

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def run_steps(steps: Steps[_T], client: Verbs, live: Any) -> _T:
    """Perform ``steps`` on the running loop, and return their result."""
    performer = _OnLoop(AsyncClient(client), AsyncClient(live))
    try:
        step = next(steps)
        while True:
            try:
                answer = await step(performer)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: _T = end.value
        return result


# -- The verbs -------------------------------------------------------------------------------


@final
class AsyncClient:
    """The verbs of a client as coroutines; lists and watches are async iterators.

        async with asyncio.timeout(5):
            bucket = await client.aio.get(BUCKET, "photos", namespace="default")
        async for event in client.aio.watch(BUCKET):
            ...

    :attr:`Client.aio` is one. It calls the wrapped client in a thread, with the caller's context
    variables, so results, errors, hooks, caches and fences are the same. Semantics as
    :class:`Client`. It has no state and needs no closing; any number of event loops may use one.

    * An event loop has up to 32 calls under way; more calls wait. Watches have their own threads.
    * If a task is cancelled during a call, it ends when the request has ended. A read is cut off at
      once. A write that was sent is awaited, and not retried.

    Args:
        client: the client, or any object with its verbs.
        live: the reader that :meth:`modify` uses to read from the server; default: ``client``.

    Raises:
        TypeError: ``client`` is not a client.
    """

    def __init__(self, client: Verbs, *, live: Any = None) -> None:
        check_client(client, "get")
        self._client: Any = client
        self._live = client if live is None else live

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._client!r}>"

    async def get(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[GetOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.get`."""
        found: Object[SpecT, StatusT] = await _call(self._client.get, kind, name, **options)
        return found

    async def list(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListAllOptions]
    ) -> AsyncGenerator[Object[SpecT, StatusT], None]:
        """See :meth:`Client.list`; for ``async for``."""
        objects: Any = None
        # As many as a page has: one more would ask for the next page.
        count = options.get("limit") or _BATCH

        def read() -> tuple[Any, Exception | None]:
            nonlocal objects
            found: Any = []
            try:
                if objects is None:
                    objects = iter(self._client.list(kind, **options))
                for obj in itertools.islice(objects, count):
                    found.append(obj)
            except Exception as error:
                return found, error
            return found, None

        while True:
            found, error = await _call(read)
            for obj in found:
                yield obj
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame
            if len(found) < count:
                return

    async def list_page(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[ListPageOptions]
    ) -> ListPage[SpecT, StatusT]:
        """See :meth:`Client.list_page`."""
        page: ListPage[SpecT, StatusT] = await _call(self._client.list_page, kind, **options)
        return page

    def watch(
        self, kind: Kind[SpecT, StatusT], **options: Unpack[WatchOptions]
    ) -> AsyncWatch[SpecT, StatusT]:
        """See :meth:`Client.watch`; for ``async for``, which yields the events, decoded."""
        return AsyncWatch(self._client, kind, options)

    async def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.create`."""
        made: Object[SpecT, StatusT] = await _call(self._client.create, obj, **options)
        return made

    async def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[WriteOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.update`."""
        written: Object[SpecT, StatusT] = await _call(self._client.update, obj, **options)
        return written

    async def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.patch`."""
        written: Object[SpecT, StatusT] = await _call(
            self._client.patch, kind, name, patch, **options
        )
        return written

    async def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[ApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.apply`."""
        written: Object[SpecT, StatusT] = await _call(self._client.apply, obj, **options)
        return written

    async def delete(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[DeleteOptions]
    ) -> Object[SpecT, StatusT] | None:
        """See :meth:`Client.delete`."""
        left: Object[SpecT, StatusT] | None = await _call(
            self._client.delete, kind, name, **options
        )
        return left

    async def delete_collection(
        self, kind: Kind, **options: Unpack[DeleteCollectionOptions]
    ) -> None:
        """See :meth:`Client.delete_collection`."""
        await _call(self._client.delete_collection, kind, **options)

    async def modify(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        change: Change[SpecT, StatusT],
        *,
        namespace: str = "",
    ) -> Object[SpecT, StatusT]:
        """See :meth:`Client.modify`; ``change`` is called on the event loop."""
        steps = modify_steps(kind, name, change, namespace=namespace)
        outcome = await run_steps(steps, self._client, self._live)
        return outcome.object

    @property
    def status(self) -> AsyncSubresource:
        """The client for ``status``."""
        return self.subresource("status")

    def subresource(self, name: str) -> AsyncSubresource:
        """The client for a subresource, for example ``scale``, ``eviction`` or ``token``."""
        return AsyncSubresource(self._client.subresource(name))


@final
class AsyncSubresource:
    """The verbs on one subresource as coroutines; semantics as :class:`SubresourceClient`."""

    def __init__(self, inner: SubresourceLike) -> None:
        self._inner: Any = inner

    @property
    def name(self) -> str:
        """The subresource, for example ``status``."""
        name: str = self._inner.name
        return name

    async def get(
        self, kind: Kind[SpecT, StatusT], name: str, **options: Unpack[GetOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.get`."""
        found: Object[SpecT, StatusT] = await _call(self._inner.get, kind, name, **options)
        return found

    async def create(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceCreateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.create`."""
        made: Object[SpecT, StatusT] = await _call(self._inner.create, obj, **options)
        return made

    async def update(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceUpdateOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.update`."""
        written: Object[SpecT, StatusT] = await _call(self._inner.update, obj, **options)
        return written

    async def patch(
        self, kind: Kind[SpecT, StatusT], name: str, patch: Patch, **options: Unpack[PatchOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.patch`."""
        written: Object[SpecT, StatusT] = await _call(
            self._inner.patch, kind, name, patch, **options
        )
        return written

    async def apply(
        self, obj: AnyObject[SpecT, StatusT], **options: Unpack[SubresourceApplyOptions]
    ) -> Object[SpecT, StatusT]:
        """See :meth:`SubresourceClient.apply`."""
        written: Object[SpecT, StatusT] = await _call(self._inner.apply, obj, **options)
        return written


@final
class AsyncWatch(Generic[SpecT_co, StatusT_co]):
    """A watch as an async iterator of its events. One task iterates; it opens with the first event.

    The iteration ends when the server ends the watch, with :meth:`aclose`, and when the iterating
    task is cancelled, which cuts the connection at once. The watch reads events on demand: a slow
    consumer makes the server wait, and holds no thread. An event loop can wait for 256 watches at
    once; informers share one watch for each kind.

    Raises, while iterating:
        ApiError, DecodeError, TransportError: as :meth:`WatchStream.events`.
        RuntimeError: the loop waits for 256 watches already, or another task for this one.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self, client: Verbs, kind: Kind[SpecT_co, StatusT_co], options: WatchOptions
    ) -> None:
        self.kind = kind
        """What is watched."""
        self._client = client
        self._options = options
        self._stop = StopSignal()
        self._stream: WatchStream[SpecT_co, StatusT_co] | None = None
        self._lines: Any = iter(())
        self._is_read = False

    def __del__(self) -> None:
        # As a loop that is left with `break` leaves it.
        if (stop := getattr(self, "_stop", None)) is not None:
            stop.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the watch, and the iteration of a task that waits in it; twice is harmless."""
        self._stop.set()

    def __aiter__(self) -> AsyncIterator[WatchEvent[SpecT_co, StatusT_co]]:
        return self

    async def __anext__(self) -> WatchEvent[SpecT_co, StatusT_co]:
        """The next event."""
        while not self._stop.is_set():
            event = self._next_known()
            if event is not None:
                return event
            await self._read()
        raise StopAsyncIteration

    def _next_known(self) -> WatchEvent[SpecT_co, StatusT_co] | None:
        """The next of the events that were read; None when there are no more."""
        try:
            line = next(self._lines, None)
            return None if line is None or self._stream is None else self._stream.decoded(line)
        except DecodeError:
            raise
        except BaseException:
            self._stop.set()
            raise

    async def _read(self) -> None:
        """Read the next lines; their end, and an error, end the watch. A refusal does not."""
        threads = _threads().watches
        if self._is_read:
            raise RuntimeError(
                f"two tasks wait for one watch of {self.kind.qualified_name}: open one for each"
            )
        if threads.is_full:
            raise RuntimeError(
                f"the event loop waits for {WATCHES} watches already: use an informer, which many "
                "can share, for kinds that are watched all the time"
            )
        self._is_read = True
        try:
            lines = await _run_in(threads, self._next_lines, self._stop)
        except BaseException as error:
            is_closed = self._stop.is_set()  # by aclose, while it was opened
            self._stop.set()
            if not (is_closed and isinstance(error, RequestStopped)):
                raise
        else:
            if lines is None:
                self._stop.set()
            else:
                self._lines = iter(lines)
        finally:
            self._is_read = False

    def _next_lines(self) -> Any:
        """The next lines; None at the end. Opens the watch at first."""
        if self._stream is None:
            self._stream = self._client.watch(self.kind, **self._options)
            self._stream.close_when(self._stop)
        return next(iter(self._stream), None)
