"""The debug server: the live page of what an operator does, stacks, memory and profiles."""

from __future__ import annotations

import collections
import gc
import ipaddress
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import attrs

from appsdk_operator.client import ClientLike
from appsdk_operator.manager._servers.endpoint_server import (
    EndpointOptions,
    EndpointServer,
    HTTPFilter,
)
from appsdk_operator.runtime import Clock, StopSignal, current_frames, present_clock
from appsdk_operator.serving import (
    HTTPHandler,
    HTTPLimits,
    HTTPRequest,
    HTTPResponse,
    HTTPServer,
    check_address,
    check_hosts,
    parse_address,
    text_response,
)

if TYPE_CHECKING:
    from appsdk_operator.manager._servers.live_page import LivePage
    from appsdk_operator.serving import TLSOptions

_MAX_DEPTH: Final = 200
_TOP: Final = 30
_MAX_STACKS: Final = 100_000
_PAGES: Final = """\
/debug/                         what the operator does, live, for a browser
/debug/state.json               the same as JSON
/debug/object.json?name=a       what is known of one object; with namespace= and kind=
/debug/threads                  the stack of each thread
/debug/queues                   what the controllers are busy with, as JSON
/debug/memory                   the garbage collector's counts; allocations if tracemalloc is on
/debug/profile?seconds=10       samples of all threads, as collapsed stacks for a flame graph
"""


@attrs.frozen(kw_only=True)
class ProfileServerOptions(EndpointOptions):
    """Options of a :class:`ProfileServer`.

    The pages show names of objects and paths of files to everyone who reaches the port, and
    profiling costs time. So keep the server on loopback and use ``kubectl port-forward``, or give
    ``filter_provider=AuthFilter``.

    Raises:
        ValueError: the address is not a loopback address, and there is neither a filter nor
            ``unsafe_open``.
    """

    address: str = attrs.field(default="127.0.0.1:6060", validator=check_address)
    """``host:port``; default ``127.0.0.1:6060``, which only this machine reaches. ``""`` or
    ``"0"``: no server."""
    tls: TLSOptions | None = None
    """Serve HTTPS; ``TLSOptions()`` makes a self-signed certificate. Default: plain HTTP."""
    filter_provider: Callable[[ClientLike], HTTPFilter] | None = None
    """Makes a filter for all pages from a client of the cluster, for example :class:`AuthFilter`,
    which asks the API server. Default: everyone who reaches the port may read."""
    unsafe_open: bool = False
    """Whether other addresses than loopback are allowed without a filter; default False."""
    allowed_hosts: Collection[str] = attrs.field(default=(), validator=check_hosts)
    """Host names, without the port, that a ``Host`` header may have, in addition to ``localhost``,
    IP addresses and the host of ``address``. Requests with another host get 403, which keeps out
    web pages in a browser on this machine (DNS rebinding). Default: none."""
    max_seconds: float = 60.0
    """The longest profile that a client may ask for; default 60 seconds."""
    interval: float = 0.01
    """Seconds between two samples of a profile; default 0.01."""
    shutdown_timeout: float = 5.0
    """Seconds at a stop for pages that are being answered; default 5. Profiles end at once."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        is_open = self.is_enabled and self.filter_provider is None and not self.unsafe_open
        if is_open and not _is_loopback(parse_address(self.address)[0]):
            raise ValueError(
                f"address={self.address!r} would show the debug pages to everyone: use "
                f"127.0.0.1:{parse_address(self.address)[1]} and kubectl port-forward, or give "
                "filter_provider=AuthFilter; unsafe_open=True allows it"
            )
        if not self.max_seconds > 0 or not self.interval > 0:
            raise ValueError("max_seconds and interval must be more than 0 seconds")


@final
class ProfileServer(EndpointServer):
    """Serves the live page, stacks, memory and profiles below ``/debug``, read-only.

    The page at ``/debug/`` follows the operator by server-sent events, for at most eight browsers
    at once, and is complete without JavaScript. The constructor binds the port. It is a runnable:
    :meth:`run` serves until its stop signal is set. Thread-safe.

    >>> server = ProfileServer(ProfileServerOptions(address="127.0.0.1:0"))
    >>> server.close()

    Raises:
        OSError: the address cannot be bound.
        ValueError: the options switch the server off, or need a client and there is none.
    """

    name: ClassVar[str] = "profile"

    def __init__(
        self,
        options: ProfileServerOptions | None = None,
        *,
        snapshot: Callable[[], Any] = dict,
        state: Callable[[], dict[str, Any]] | None = None,
        timeline: Callable[[str, str, str | None], dict[str, Any]] | None = None,
        client: ClientLike | None = None,
        limits: HTTPLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A server of this process.

        Args:
            options: the address and the options of profiles.
            snapshot: returns the value for ``/debug/queues``, for example
                ``manager.debug_snapshot``; values that JSON cannot carry are shown as text.
                Default: an empty object.
            state: returns the state for the live page, ``manager.debug_state``; default: no live
                page.
            timeline: returns what is known of one object, ``manager.debug_timeline``.
            client: the client for ``filter_provider``.
            limits: limits for clients.
            clock: the clock of profiles and time-outs.
        """
        options = options or ProfileServerOptions()
        clock = present_clock(clock)
        self._live: LivePage | None = None
        if state is not None:
            from appsdk_operator.manager._servers import live_page

            self._live = live_page.LivePage(state, timeline or _no_timeline, clock=clock)
        self._options = options
        self._snapshot = snapshot
        self._clock = clock
        # One at a time: two would measure each other.
        self._profiling = threading.Lock()
        super().__init__(
            options,
            tls=options.tls,
            limits=limits,
            # A filter asks for a credential, which no web page has.
            hosts=None if options.filter_provider is not None else options.allowed_hosts,
            clock=clock,
            filter_provider=options.filter_provider,
            client=client,
        )
        if self._live is not None:
            self._server.purpose = f"the live page is on {self.url}/debug/"

    def _add_routes(self, server: HTTPServer) -> None:
        pages: dict[str, HTTPHandler] = {
            "/debug": lambda _: HTTPResponse(body=_PAGES.encode()),
            "/debug/threads": lambda _: HTTPResponse(body=_encoded(_threads())),
            "/debug/queues": self._queues,
            "/debug/memory": lambda _: HTTPResponse(body=_memory().encode()),
            "/debug/profile": self._profile,
        }
        if self._live is not None:
            pages |= self._live.pages()
            pages["/debug"] = _listing_or_page
        for path, page in pages.items():
            server.add_handler(path, self._filter(page))

    def _queues(self, _: HTTPRequest) -> HTTPResponse:
        from appsdk_operator.manager._servers.live_page import json_response

        return json_response(self._snapshot())

    def _profile(self, request: HTTPRequest) -> HTTPResponse:
        limit = self._options.max_seconds
        text = request.query.get("seconds", ["10"])[0]
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= limit:
            return text_response(400, f"400 seconds={text!r}: use more than 0, up to {limit:g}")
        if not self._profiling.acquire(blocking=False):
            return text_response(429, "429 a profile is being taken: try again when it is done")
        try:
            stacks = self._sample(seconds, request.stop)
        finally:
            self._profiling.release()
        lines = [f"{stack} {count}\n" for stack, count in sorted(stacks.items())]
        return HTTPResponse(body=_encoded("".join(lines)))

    def _sample(self, seconds: float, stop: StopSignal) -> collections.Counter[str]:
        stacks: collections.Counter[str] = collections.Counter()
        # With this server's clock, which the given signal may not have.
        own = StopSignal(clock=self._clock)
        detach = stop.on_set(own.set)
        own_id = threading.get_ident()
        end = self._clock.monotonic() + seconds
        try:
            while True:
                names = {thread.ident: thread.name for thread in threading.enumerate()}
                for ident, frame in current_frames().items():
                    if ident != own_id and len(stacks) < _MAX_STACKS:
                        stacks[_collapsed_stack(names.get(ident, "?"), frame)] += 1
                left = end - self._clock.monotonic()
                if left <= 0 or own.wait(min(self._options.interval, left)):
                    return stacks
        finally:
            detach()


def _listing_or_page(request: HTTPRequest) -> HTTPResponse:
    """The list of pages for scripts; browsers are sent to the live page."""
    if "text/html" in (request.headers.get("accept") or ""):
        return HTTPResponse(status=307, headers={"Location": "/debug/"})
    return HTTPResponse(body=_PAGES.encode())


def _no_timeline(*_: object) -> dict[str, Any]:
    return {}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _collapsed_stack(name: str, frame: FrameType | None) -> str:
    calls: list[str] = []
    while frame is not None and len(calls) < _MAX_DEPTH:
        code = frame.f_code
        calls.append(f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}".replace(";", ":"))
        frame = frame.f_back
    # A line break would begin another stack.
    return ";".join([" ".join(name.replace(";", ":").splitlines()), *reversed(calls)])


def _encoded(text: str) -> bytes:
    """As UTF-8; the names of threads and the paths of files may have what it cannot encode."""
    return text.encode("utf-8", "replace")


def _threads() -> str:
    frames = current_frames()
    parts = []
    for thread in sorted(threading.enumerate(), key=lambda thread: thread.name):
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "  ended\n"
        parts.append(f"thread {thread.name}\n{stack}")
    return "\n".join(parts)


def _memory() -> str:
    import tracemalloc  # takes ten times as long to load as this module

    lines = [
        f"objects tracked by the garbage collector, by generation: {gc.get_count()}",
        *(f"generation {number}: {stats}" for number, stats in enumerate(gc.get_stats())),
        f"interpreter: {sys.getallocatedblocks()} blocks of memory",
    ]
    if not tracemalloc.is_tracing():
        lines.append("allocations: unknown; start Python with -X tracemalloc to see them")
        return "\n".join([*lines, ""])
    now, peak = tracemalloc.get_traced_memory()
    lines.append(f"allocations: {now} bytes now, {peak} at most; the largest:")
    top = tracemalloc.take_snapshot().statistics("lineno")[:_TOP]
    return "\n".join([*lines, *map(str, top), ""])
