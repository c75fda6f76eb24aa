"""A request with what the server notes about it while it is answered."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from appsdk_operator.apiserver._fault_rules import FaultRule, RequestFacts

__all__ = ["HttpRequest"]


class HttpRequest(web.BaseRequest):
    """An HTTP request and the server's notes about it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Made by the HTTP server."""
        super().__init__(*args, **options)
        self.began: float = self._loop.time()
        """When it arrived, by the clock of the loop."""
        self.facts: RequestFacts | None = None
        """What it asks for; None until that is known, and for what is no resource."""
        self.rules: tuple[FaultRule, ...] = ()
        """The fault rules that befall it."""
        self.user = ""
        """Who asks, as far as the server knows."""
        self.warnings: list[str] = []
        """What the client is told besides the answer."""
        self.is_noted = False
        """Whether it is in the log of requests."""
