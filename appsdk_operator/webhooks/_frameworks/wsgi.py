"""Webhooks as a WSGI application, for Flask, Django and their like."""

from __future__ import annotations

import http
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, final

from appsdk_operator.runtime import counted
from appsdk_operator.serving import Headers, HTTPRequest, HTTPResponse, text_response
from appsdk_operator.webhooks._frameworks.table import Table, WebhookTable, table_of

_PART: Final = 1 << 16
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]


def wsgi(webhooks: Table) -> WSGIWebhooks:
    """Webhooks as a WSGI application, to serve or to mount below any path.

    Serve the application over HTTPS, because API servers call nothing else. The paths of the
    webhooks begin at the mount point::

        hooks = Webhooks()
        webhook_for(hooks, WIDGET).validate(create=check).complete()
        flask.wsgi_app = DispatcherMiddleware(flask.wsgi_app, {"/hooks": webhooks.wsgi(hooks)})

    Handlers run in the thread in which the server calls the application; the server decides how
    many run at once. An ``async def`` handler gets its own event loop for each call. If a handler
    takes too long, there is no answer in its place: the API server gives up.

    Args:
        webhooks: the :class:`Webhooks`, or an object that has them, such as a WebhookServer.

    Raises:
        TypeError: ``webhooks`` has no webhooks.
    """
    return WSGIWebhooks(webhooks)


@final
class WSGIWebhooks:
    """A WSGI application that answers reviews, see :func:`wsgi`."""

    def __init__(self, webhooks: Table) -> None:
        """See :func:`wsgi`."""
        self._table: WebhookTable = table_of(webhooks)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        response = self._answer(environ)
        try:
            phrase = http.HTTPStatus(response.status).phrase
        except ValueError:
            phrase = "Unknown"
        fields = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            **response.headers,
        }
        start_response(f"{response.status} {phrase}", list(fields.items()))
        return [response.body]

    def _answer(self, environ: dict[str, Any]) -> HTTPResponse:
        method = environ["REQUEST_METHOD"]
        if method != "POST":
            text = f"405 {method} is not allowed here: reviews are POSTed"
            return text_response(405, text, Allow="POST")
        path = _path(environ)
        try:
            body = _read_body(environ, self._table.body_limit(path))
        except ValueError as error:
            return text_response(400, f"400 {error}")
        return self._table.answer(_request(environ, path, body))


def _read_body(environ: dict[str, Any], limit: int) -> bytes:
    """At most ``limit`` bytes of the body.

    Raises:
        ValueError: the length is not a number, or the client sent less.
    """
    text = environ.get("CONTENT_LENGTH") or ""
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError("the content length is not a number")
    if not text and not environ.get("wsgi.input_terminated"):
        return b""  # reading on would wait for ever
    wanted = min(int(text), limit) if text else limit
    source = environ["wsgi.input"]
    parts: list[bytes] = []
    left = wanted
    while left > 0:
        part: bytes = source.read(min(left, _PART))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    if left > 0 and text:
        raise ValueError(f"the body ends {counted(left, 'byte')} early")
    return b"".join(parts)


def _path(environ: dict[str, Any]) -> str:
    # WSGI's texts are bytes in disguise.
    return (
        str(environ.get("PATH_INFO") or "/").encode("latin-1", "replace").decode("utf-8", "replace")
    )


def _request(environ: dict[str, Any], path: str, body: bytes) -> HTTPRequest:
    fields = [
        (name[5:].replace("_", "-"), str(value))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    if environ.get("CONTENT_TYPE"):
        fields.append(("Content-Type", str(environ["CONTENT_TYPE"])))
    return HTTPRequest(
        method=environ["REQUEST_METHOD"],
        path=path,
        query_string=environ.get("QUERY_STRING") or "",
        headers=Headers(fields),
        body=body,
        peer=environ.get("REMOTE_ADDR") or "",
    )
