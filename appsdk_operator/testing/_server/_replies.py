"""Answers as HTTP: headers and bodies that are the same whoever makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from appsdk_operator.testing._server._status import StatusError

__all__ = ["JSON", "as_json", "failure", "no_page", "warn", "warning"]

JSON: Final = "application/json"


def warning(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{"".join(char if char.isprintable() else " " for char in quoted)}"'


def warn(response: web.Response, warnings: Iterable[str]) -> None:
    for text in dict.fromkeys(warnings):
        response.headers.add("Warning", warning(text))


def as_json(value: Any, *, status: int = 200, content_type: str = JSON) -> web.Response:
    return web.Response(
        status=status,
        body=msgspec.json.encode(value),
        headers={hdrs.CONTENT_TYPE: content_type},
    )


def no_page() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


def failure(error: StatusError) -> web.Response:
    response = as_json(error.body(), status=error.code)
    warn(response, error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 413:
        # What is left of the body is not worth reading.
        response.force_close()
    return response
