"""Webhooks as an ASGI application, for FastAPI, Starlette, uvicorn and their like."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, final
from weakref import WeakKeyDictionary

from appsdk_operator.runtime import StopSignal, ThreadGroup, get_logger, settle_on
from appsdk_operator.runtime.validation import check_count
from appsdk_operator.serving import Headers, HTTPRequest, HTTPResponse, text_response
from appsdk_operator.webhooks._answers import waited
from appsdk_operator.webhooks._frameworks.table import Table, WebhookTable, table_of

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures


_log: Final = get_logger("appsdk_operator.webhooks")

_LOOK_AFTER: Final = 1.0
"""Seconds after which a thread that waits for a coroutine looks whether its loop still exists."""

T = TypeVar("T")
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def asgi(webhooks: Table, *, max_concurrent: int = 64) -> ASGIWebhooks:
    """Webhooks as an ASGI application, to serve or to mount below any path.

    Serve the application over HTTPS, because API servers call nothing else. The paths of the
    webhooks begin at the mount point::

        hooks = Webhooks()
        webhook_for(hooks, WIDGET).validate(create=check).complete()
        app = Starlette(routes=[Mount("/hooks", webhooks.asgi(hooks))])   # or FastAPI().mount(…)

    Each request with a plain handler gets a thread, so that no handler blocks the application's
    loop; ``async def`` handlers run on the application's loop. Handlers see the application's
    context variables. If the client disconnects, or the handler takes nearly as long as the API
    server waits, the request's stop signal is set and an ``async def`` handler is cancelled; in the
    second case the response is a failure that names the handler. The application follows ASGI's
    lifespan protocol, but does not need it.

    Args:
        webhooks: the :class:`Webhooks`, or an object that has them, such as a WebhookServer.
        max_concurrent: the most requests, and threads, at once; others wait. Default 64.

    Raises:
        TypeError, ValueError: ``webhooks`` has no webhooks, or ``max_concurrent`` is below 1.
    """
    return ASGIWebhooks(webhooks, max_concurrent=max_concurrent)


@final
class ASGIWebhooks:
    """An ASGI application that answers reviews, see :func:`asgi`."""

    def __init__(self, webhooks: Table, *, max_concurrent: int = 64) -> None:
        """See :func:`asgi`."""
        check_count("max_concurrent", max_concurrent, 1)
        self._table: WebhookTable = table_of(webhooks)
        self._max_concurrent = max_concurrent
        self._threads = ThreadGroup("asgi-webhooks")
        self._lock = threading.Lock()
        # A semaphore belongs to one loop; tests run an application on several.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow one lifespan."""
        if scope["type"] == "lifespan":
            await _follow_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer_http(scope, receive, send)
        else:  # a websocket
            await send({"type": "websocket.close", "code": 1000})

    async def _answer_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            text = f"405 {scope['method']} is not allowed here: reviews are POSTed"
            await _send(send, text_response(405, text, Allow="POST"))
            return
        import asyncio

        path = _path_below_mount(scope["path"], scope.get("root_path") or "")
        body = await _read_body(receive, self._table.body_limit(path))
        if body is None:
            return  # the client is gone
        request = _request(scope, path, body, StopSignal())
        gone = asyncio.ensure_future(_until_disconnected(receive))
        try:
            await self._answer_review(request, gone, send)
        finally:
            # Only now: some test clients let nobody cancel it before the answer.
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await gone

    async def _answer_review(
        self, request: HTTPRequest, gone: asyncio.Future[None], send: Send
    ) -> None:
        """Answer when it is its turn, or when its time is up, unless the client goes before."""
        import asyncio

        loop = asyncio.get_running_loop()
        began, limit = loop.time(), self._table.time_limit(request)
        slot = self._slot()
        is_queued = slot.locked()
        turn = asyncio.ensure_future(slot.acquire())
        try:
            if not await _is_first(turn, gone, limit) or (is_queued and gone.done()):
                await self._send_without(request, gone, send)
                return
            spent = loop.time() - began
            waited.set(spent)
            call = _Call(self._table.answer, request, loop)
            try:
                self._threads.start(request.path, call.answer)
                left = None if limit is None else limit - spent
                if not await _is_first(call.answered, gone, left) and (
                    gone.done() or request.claim_answer("time limit")
                ):
                    call.cancel()
                    await self._send_without(request, gone, send)
                else:
                    await _send(send, await call.answered)
                # Its thread has the slot until it has ended.
                await call.answered
            finally:
                call.cancel()
        finally:
            if not turn.cancel() and not turn.cancelled():
                slot.release()

    async def _send_without(
        self, request: HTTPRequest, gone: asyncio.Future[None], send: Send
    ) -> None:
        """Send the answer to a request that takes too long, unless the client is gone."""
        if gone.done():
            _log.info("the client of %s closed the connection before the answer", request.path)
        else:
            await _send(send, self._table.timed_out(request))

    def _slot(self) -> asyncio.Semaphore:
        import asyncio

        loop = asyncio.get_running_loop()
        with self._lock:
            slots = self._slots.get(loop)
            if slots is None:
                slots = self._slots[loop] = asyncio.Semaphore(self._max_concurrent)
        return slots


@final
class _Call:
    """One call of blocking webhooks in a thread, for a coroutine that awaits its answer.

    It is the runner of ``async def`` handlers (:func:`settle_on`): they run on the loop of the
    application while the thread waits for them.
    """

    def __init__(
        self,
        function: Callable[[HTTPRequest], HTTPResponse],
        request: HTTPRequest,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._function = function
        self._request = request
        self._loop = loop
        self._context = contextvars.copy_context()
        self._is_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self.answered: asyncio.Future[HTTPResponse] = loop.create_future()

    def answer(self) -> None:
        """Answer the request; called in the thread."""
        try:
            with settle_on(self):
                response = self._context.run(self._function, self._request)
        except BaseException:
            # Webhooks answer the errors of handlers; this is one of their own.
            if not self._is_cancelled:
                _log.exception("%s could not be answered", self._request.path)
            response = text_response(500, "500 internal error")
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._deliver, response)

    def _deliver(self, response: HTTPResponse) -> None:
        if not self.answered.done():
            self.answered.set_result(response)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop; called in the thread.

        Raises:
            concurrent.futures.CancelledError: the client is gone, or the loop ends.
            RuntimeError: the loop was closed.
        """
        import asyncio

        tracked = self._tracked(coroutine)
        try:
            future = asyncio.run_coroutine_threadsafe(tracked, self._loop)
            return self._result_of(future)
        finally:
            # Neither has begun if the loop was closed before.
            tracked.close()
            coroutine.close()

    async def _tracked(self, coroutine: Coroutine[Any, Any, T]) -> T:
        import asyncio

        if self._is_cancelled:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        try:
            return await coroutine
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end the application.
            raise RuntimeError(f"the handler raised {error!r}") from error
        finally:
            self._task = None

    def _result_of(self, future: concurrent.futures.Future[T]) -> T:
        while True:
            try:
                return future.result(_LOOK_AFTER)
            except TimeoutError:
                if future.done():
                    raise  # the handler's own
                if self._loop.is_closed():
                    raise RuntimeError("the application's event loop was closed") from None

    def cancel(self) -> None:
        """Have the handler end: set its stop signal, or cancel it if it is ``async def``.

        Called on the loop.
        """
        self._is_cancelled = True
        self._request.stop.set()
        if self._task is not None:
            self._task.cancel()


def _request(scope: Scope, path: str, body: bytes, stop: StopSignal) -> HTTPRequest:
    fields = [(name.decode("latin-1"), text.decode("latin-1")) for name, text in scope["headers"]]
    client = scope.get("client")
    return HTTPRequest(
        method=scope["method"],
        path=path,
        query_string=(scope.get("query_string") or b"").decode("latin-1"),
        headers=Headers(fields),
        body=body,
        peer=str(client[0]) if client else "",
        stop=stop,
    )


def _path_below_mount(path: str, root: str) -> str:
    """The path without the mount point, which servers and frameworks leave in it or take off."""
    root = root.rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :] or "/"
    return path or "/"


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """At most ``limit`` bytes of the body; None if the client went away before it was complete."""
    parts: list[bytes] = []
    size = 0
    while size < limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body") or b""
        parts.append(part[: limit - size])
        size += len(part)
        if not message.get("more_body"):
            break
    return b"".join(parts)


async def _is_first(
    awaited: asyncio.Future[Any], gone: asyncio.Future[None], left: float | None
) -> bool:
    """Whether it is done before the client goes and ``left`` seconds have passed."""
    import asyncio

    timeout = None if left is None else max(0.0, left)
    await asyncio.wait([awaited, gone], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    return awaited.done()


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # the rest of a body that is too large


async def _send(send: Send, response: HTTPResponse) -> None:
    fields = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        **response.headers,
    }
    headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in fields.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _follow_lifespan(receive: Receive, send: Send) -> None:
    """Say that there is nothing to start and nothing to stop."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
