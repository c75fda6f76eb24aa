"""An HTTP request, with the server's notes for the request log and the response."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import HttpVersion, HttpVersion10, web

from appsdk_operator.apiserver._fault_rules import FaultRule, RequestFacts


class HttpRequest(web.BaseRequest):
    """An HTTP request, with notes of the server."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Made by the HTTP server."""
        super().__init__(*args, **options)
        self.protocol_version: HttpVersion = self._version
        """The version that its head has; what the parser makes of a head without one is 0.9."""
        if self._version.major != 1:
            # That of the answer, of which a client of HTTP 1 can read the head.
            self._version = HttpVersion10
        self.began: float = self._loop.time()
        """When it arrived, by the clock of the event loop."""
        self.facts: RequestFacts | None = None
        """Verb and resource; None before they are known, and for paths that are not resource."""
        self.rules: tuple[FaultRule, ...] = ()
        """The fault rules that apply to it."""
        self.released: asyncio.Event | None = None
        """Set when these rules are cleared; None while there are none."""
        self.user = ""
        """The authenticated or impersonated username; empty before authentication."""
        self.warnings: list[str] = []
        """Warnings for the response."""
        self.is_logged = False
        """Whether it is in the request log already."""
