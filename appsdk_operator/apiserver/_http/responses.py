"""HTTP responses: common headers, YAML and gzip encoding, errors and warnings."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable
from typing import Any, Final, final

import msgspec
from aiohttp import hdrs, web

from appsdk_operator.apiserver._http.accepted_types import JSON, JSON_TYPES, YAML, preferred_type
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._values.go_text import is_control
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.resource import dump_yaml

# Clients that people use directly: they get indented JSON.
_BROWSERS_AND_CURL: Final = ("curl", "Wget", "Mozilla/5.0")
_ZIP_FROM: Final = 128 * 1024
_AUDIT_ID: Final = "Audit-Id"
_LONGEST_AUDIT_ID: Final = 64
_WARNINGS_SIZE: Final = 4096
_WARNING_SIZE: Final = 256


@final
class ResponseWriter:
    """Sets the common headers of responses and encodes their bodies."""

    def __init__(self) -> None:
        """All requests of one server have the same flow schema."""
        self._flow = {
            "X-Kubernetes-Pf-Flowschema-Uid": str(uuid.uuid4()),
            "X-Kubernetes-Pf-Prioritylevel-Uid": str(uuid.uuid4()),
        }

    def set_headers(self, request: HttpRequest, response: web.StreamResponse) -> None:
        """Set the common headers of a response that is not started yet."""
        headers = response.headers
        given = request.headers.get(_AUDIT_ID)
        headers[_AUDIT_ID] = given[:_LONGEST_AUDIT_ID] if given else str(uuid.uuid4())
        headers.setdefault(hdrs.CACHE_CONTROL, "no-cache, private")
        if request.user:
            headers.update(self._flow)
        add_warnings(response, request.warnings)

    def encode_body(self, request: HttpRequest, response: web.StreamResponse) -> None:
        """Encode the body of a complete response as the client prefers: YAML, indented, gzip."""
        self.set_headers(request, response)
        if not isinstance(response, web.Response):
            return
        body = response.body
        if not isinstance(body, bytes) or not body:
            return
        if response.headers.get(hdrs.CONTENT_TYPE) == JSON:
            accept = request.headers.get(hdrs.ACCEPT, "")
            if preferred_type(accept, (*JSON_TYPES, YAML)) == YAML:
                response.headers[hdrs.CONTENT_TYPE] = YAML
                body = response.body = dump_yaml(msgspec.json.decode(body)).encode()
            elif response.status == 406 or _wants_indented(request):
                body = response.body = msgspec.json.format(body, indent=2)
        encodings = request.headers.get(hdrs.ACCEPT_ENCODING, "").split(",")
        # As the real server, which knows no qualities here.
        if len(body) > _ZIP_FROM and "gzip" in map(str.strip, encodings):
            zipper = zlib.compressobj(1, wbits=31)
            response.headers[hdrs.CONTENT_ENCODING] = "gzip"
            response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
            response.body = zipper.compress(body) + zipper.flush()


def _wants_indented(request: HttpRequest) -> bool:
    if "pretty=" in request.query_string:
        return request.query.get("pretty") in ("1", "t", "T", "true", "True", "TRUE")
    return request.headers.get(hdrs.USER_AGENT, "").startswith(_BROWSERS_AND_CURL)


def add_warnings(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    """Add ``Warning`` headers, each once, and cut if they are long in sum."""
    for warning in cut_warnings(warnings):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(" " if is_control(char) else char for char in quoted)
        response.headers.add("Warning", f'299 - "{shown}"')


def cut_warnings(warnings: Iterable[str]) -> list[str]:
    """The warnings that the real server sends: each once, and not the empty ones.

    As long as they have 4096 characters in sum, they are sent as they are. Beyond that, each is cut
    at 256 characters, and no more are added once the cut ones have 4096.
    """
    found = [warning for warning in dict.fromkeys(warnings) if warning]
    size, whole = 0, 0
    for warning in found:
        size += len(warning)
        if size > _WARNINGS_SIZE:
            break
        whole += 1
    if whole == len(found):
        return found
    # The one that went beyond the limit is sent in any case.
    cut = [warning[:_WARNING_SIZE] for warning in found[: whole + 1]]
    size = sum(map(len, cut))
    for warning in found[whole + 1 :]:
        if size >= _WARNINGS_SIZE:
            break
        cut.append(warning[:_WARNING_SIZE])
        size += len(cut[-1])
    return cut


def json_response(value: Any, *, status: int = 200, content_type: str = JSON) -> web.Response:
    """A JSON response."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(value) + b"\n",
        headers={hdrs.CONTENT_TYPE: content_type},
    )


def text_response(body: str, *, status: int = 200) -> web.Response:
    """A plain text response."""
    return web.Response(status=status, text=body, headers={"X-Content-Type-Options": "nosniff"})


def page_not_found() -> web.Response:
    """404 without a ``Status``."""
    return text_response("404 page not found\n", status=404)


def status_response(error: StatusError) -> web.Response:
    """The response for an error: its ``Status``."""
    response = json_response(error.body(), status=error.code)
    add_warnings(response, error.warnings)
    seconds = error.retry_after
    if seconds is None:
        # The details of a webhook's denial may say it.
        seconds = (error.details or {}).get("retryAfterSeconds")
        seconds = seconds if isinstance(seconds, int) and seconds > 0 else None
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    if error.code == 413:
        # The rest of the body is not read.
        response.force_close()
    return response
