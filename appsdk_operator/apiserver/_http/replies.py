"""Answers as HTTP: what is the same whoever makes them."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable
from typing import Any, Final, final

import msgspec
from aiohttp import hdrs, web

from appsdk_operator.apiserver._http.http_request import Exchange
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.resource import dump_yaml

__all__ = ["JSON", "Replies", "as_json", "failure", "no_page", "text", "warn"]

JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_JSON_TYPES: Final = (JSON, "application/*", "*/*")
# What people type into, who would rather have lines.
_PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")
_ZIP_FROM: Final = 128 * 1024
_AUDIT_ID: Final = "Audit-Id"
_LONGEST_AUDIT_ID: Final = 64


@final
class Replies:
    """Gives answers the form and the headers that go with every request."""

    def __init__(self) -> None:
        """All requests of one server are in one flow."""
        self._flow = {
            "X-Kubernetes-Pf-Flowschema-Uid": str(uuid.uuid4()),
            "X-Kubernetes-Pf-Prioritylevel-Uid": str(uuid.uuid4()),
        }

    def dress(self, request: Exchange, response: web.StreamResponse) -> None:
        """Set the headers of an answer that was not begun yet."""
        headers = response.headers
        given = request.headers.get(_AUDIT_ID)
        headers[_AUDIT_ID] = given[:_LONGEST_AUDIT_ID] if given else str(uuid.uuid4())
        headers.setdefault(hdrs.CACHE_CONTROL, "no-cache, private")
        if request.user:
            headers.update(self._flow)
        warn(response, request.warnings)

    def finish(self, request: Exchange, response: web.StreamResponse) -> None:
        """Give an answer that is complete the form the client prefers."""
        self.dress(request, response)
        if not isinstance(response, web.Response):
            return
        body = response.body
        if not isinstance(body, bytes) or not body:
            return
        if response.headers.get(hdrs.CONTENT_TYPE) == JSON:
            if _prefers_yaml(request.headers.get(hdrs.ACCEPT, "")):
                response.headers[hdrs.CONTENT_TYPE] = _YAML
                body = response.body = dump_yaml(msgspec.json.decode(body)).encode()
            elif response.status == 406 or _wants_lines(request):
                body = response.body = msgspec.json.format(body, indent=2)
        if len(body) > _ZIP_FROM and "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            zipper = zlib.compressobj(1, wbits=31)
            response.headers[hdrs.CONTENT_ENCODING] = "gzip"
            response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
            response.body = zipper.compress(body) + zipper.flush()


def _wants_lines(request: Exchange) -> bool:
    if "pretty=" in request.query_string:
        return request.query.get("pretty") in ("1", "t", "T", "true", "True", "TRUE")
    return request.headers.get(hdrs.USER_AGENT, "").startswith(_PEOPLE)


def _prefers_yaml(accept: str) -> bool:
    if "yaml" not in accept:
        return False
    for part in accept.split(","):
        media_type = part.partition(";")[0].strip()
        if media_type == _YAML:
            return True
        if media_type in _JSON_TYPES:
            return False
    return False


def warn(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Tell the client what it should know besides the answer, each thing once."""
    for told in dict.fromkeys(warnings):
        quoted = told.replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(char if char.isprintable() else " " for char in quoted)
        response.headers.add("Warning", f'299 - "{shown}"')


def as_json(value: Any, *, status: int = 200, content_type: str = JSON) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(value) + b"\n",
        headers={hdrs.CONTENT_TYPE: content_type},
    )


def text(told: str, *, status: int = 200) -> web.Response:
    """An answer in words."""
    return web.Response(status=status, text=told, headers={"X-Content-Type-Options": "nosniff"})


def no_page() -> web.Response:
    """404 without a ``Status``."""
    return text("404 page not found\n", status=404)


def failure(error: StatusError) -> web.Response:
    """The ``Status`` of an error."""
    response = as_json(error.body(), status=error.code)
    warn(response, error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 413:
        # What is left of the body is not worth reading.
        response.force_close()
    return response
