"""The live page: a manager's state as HTML and JSON, and its changes as server-sent events."""

from __future__ import annotations

import importlib.resources
import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, final

from appsdk_operator.manager._servers import page
from appsdk_operator.runtime import Clock, StopSignal, safe_text
from appsdk_operator.serving import HTTPHandler, HTTPRequest, HTTPResponse, text_response

_MOST_CLIENTS: Final = 8
"""Browsers that follow at once; each has a thread of the server."""
_PERIOD: Final = 1.0
"""Seconds between two looks at the state for those who follow."""
_RETRY: Final = 2000
"""Milliseconds after which a browser connects again."""
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_LINKS: Final = {
    "State as JSON": "/debug/state.json",
    "Threads": "/debug/threads",
    "Memory": "/debug/memory",
    "Queues as JSON": "/debug/queues",
}


@final
class LivePage:
    """The handlers of the page; the state is read when somebody asks, at most once a period.

    Thread-safe.
    """

    def __init__(
        self,
        state: Callable[[], dict[str, Any]],
        timeline: Callable[[str, str, str | None], dict[str, Any]],
        *,
        clock: Clock,
    ) -> None:
        self._read_state = state
        self._read_timeline = timeline
        self._clock = clock
        # Held while the state is read, so that all who ask meanwhile share it.
        self._reading = threading.Lock()
        self._state: tuple[float, dict[str, Any]] | None = None
        self._counting = threading.Lock()
        self._clients = 0

    def pages(self) -> dict[str, HTTPHandler]:
        """The handlers by path."""
        return {
            "/": lambda _: HTTPResponse(status=307, headers={"Location": "/debug/"}),
            "/debug/": lambda request: self._page("overview", request),
            "/debug/object": self._object,
            "/debug/controller": lambda request: self._page("controller", request),
            "/debug/cause": lambda request: self._page("cause", request),
            "/debug/state.json": lambda _: json_response(self._read_state()),
            "/debug/object.json": self._object_json,
            "/debug/events": self._events,
            "/debug/page.css": lambda _: _asset("page.css", "text/css; charset=utf-8"),
            "/debug/page.js": lambda _: _asset("page.js", "text/javascript; charset=utf-8"),
        }

    def _page(self, view: str, request: HTTPRequest) -> HTTPResponse:
        state = self._shared_state()
        asked = page.Asked.of(view, request.query)
        operator = state["operator"]["name"]
        title = operator or "Operator"
        if view != "overview":
            title = asked.name if view == "controller" else " in ".join(asked.cause[2:4])
        text = page.document(asked, state, title=title, operator=operator, links=_LINKS)
        return _html(text)

    def _object(self, request: HTTPRequest) -> HTTPResponse:
        asked = page.Asked.of("object", request.query)
        if not asked.name:
            return _no_name()
        timeline = self._timeline(asked)
        name = f"{asked.namespace}/{asked.name}" if asked.namespace else asked.name
        kinds = {one["kind"] for one in timeline.get("copies", ())}
        kind = asked.kind or (kinds.pop() if len(kinds) == 1 else "")
        text = page.document(
            asked,
            timeline,
            title=f"{kind.partition('.')[0]} {name}".strip(),
            operator=timeline.get("operator", ""),
            links={"As JSON": f"/debug/object.json{asked.query}", **_LINKS},
        )
        return _html(text)

    def _object_json(self, request: HTTPRequest) -> HTTPResponse:
        asked = page.Asked.of("object", request.query)
        return json_response(self._timeline(asked)) if asked.name else _no_name()

    def _timeline(self, asked: page.Asked) -> dict[str, Any]:
        return self._read_timeline(asked.namespace, asked.name, asked.kind or None)

    def _events(self, request: HTTPRequest) -> HTTPResponse:
        with self._counting:
            if self._clients >= _MOST_CLIENTS:
                text = (
                    f"503 {_MOST_CLIENTS} others follow already: reload the page to see its state"
                )
                return text_response(503, text, **{"Retry-After": "5"})
            self._clients += 1
        view = request.query.get("view", [""])[0]
        if view not in ("controller", "cause"):
            view = "object" if request.query.get("name", [""])[0].strip() else "overview"
        asked = page.Asked.of(view, request.query)

        def read() -> Mapping[str, Any]:
            return self._timeline(asked) if view == "object" else self._shared_state()

        return HTTPResponse(
            stream=_Followed(self._follow(asked, read, request.stop), self._left),
            content_type="text/event-stream",
            headers=_HEADERS,
        )

    def _left(self) -> None:
        with self._counting:
            self._clients -= 1

    def _follow(
        self, asked: page.Asked, read: Callable[[], Mapping[str, Any]], stop: StopSignal
    ) -> Iterator[bytes]:
        """The panels that have changed, again and again."""
        yield f"retry: {_RETRY}\n\n".encode()
        shown: dict[str, str] = {}
        own = StopSignal(clock=self._clock)
        detach = stop.on_set(own.set)
        try:
            while not own.is_set():
                panels = page.panels_of(asked, read())
                changed = {name: text for name, text in panels.items() if shown.get(name) != text}
                shown = panels
                # A comment where nothing has changed: it finds out who has gone.
                data = f"event: panels\ndata: {json.dumps(changed)}\n\n" if changed else ": \n\n"
                yield data.encode()
                own.wait(_PERIOD)
        finally:
            detach()

    def _shared_state(self) -> dict[str, Any]:
        with self._reading:
            now = self._clock.monotonic()
            if self._state is None or now - self._state[0] >= _PERIOD / 2:
                self._state = now, self._read_state()
            return self._state[1]


@final
class _Followed(Iterator[bytes]):
    """The pieces of an answer, and what to do when it has ended, even before its first piece."""

    def __init__(self, pieces: Iterator[bytes], on_end: Callable[[], None]) -> None:
        self._pieces = pieces
        self._on_end: Callable[[], None] | None = on_end

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """End it."""
        on_end, self._on_end = self._on_end, None
        getattr(self._pieces, "close", lambda: None)()
        if on_end is not None:
            on_end()


def _html(text: str) -> HTTPResponse:
    return HTTPResponse(body=text.encode("utf-8", "replace"), content_type=_HTML, headers=_HEADERS)


def _no_name() -> HTTPResponse:
    return text_response(400, "400 which object? add ?namespace=…&name=…")


def json_response(value: object) -> HTTPResponse:
    """``value`` as JSON; what JSON does not have is text."""
    text = json.dumps(_plain(value), indent=1, default=safe_text, allow_nan=False)
    return HTTPResponse(body=f"{text}\n".encode(), content_type=_JSON, headers=_HEADERS)


def _plain(value: Any) -> Any:
    """``value`` with texts as keys, with the nearest numbers that JSON has for infinite ones, and
    null for NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(sys.float_info.max, value)
    if isinstance(value, Mapping):
        return {safe_text(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _asset(name: str, content_type: str) -> HTTPResponse:
    folder = importlib.resources.files("appsdk_operator.manager._servers") / "assets"
    return HTTPResponse(
        body=(folder / name).read_bytes(), content_type=content_type, headers=_HEADERS
    )
