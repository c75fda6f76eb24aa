"""What the applications need of the webhooks that they carry."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

from appsdk_operator.serving import HTTPRequest, HTTPResponse


@runtime_checkable
class WebhookTable(Protocol):
    """Webhooks by path."""

    def body_limit(self, path: str, /) -> int:
        """The largest body that is read for a path."""
        ...

    def time_limit(self, request: HTTPRequest, /) -> float | None:
        """Seconds after which ``timed_out`` answers the request; None for no limit."""
        ...

    def timed_out(self, request: HTTPRequest, /) -> HTTPResponse:
        """The answer to a request whose handler takes too long."""
        ...

    def answer(self, request: HTTPRequest, /) -> HTTPResponse:
        """The answer of the webhook at the request's path."""
        ...


class _Host(Protocol):
    @property
    def webhooks(self) -> WebhookTable:
        """Its webhooks."""
        ...


Table: TypeAlias = "WebhookTable | _Host"


def table_of(webhooks: Any) -> WebhookTable:
    """The webhooks of what was given: those themselves, or those of a server or another host.

    Raises:
        TypeError: it has none.
    """
    found = webhooks if isinstance(webhooks, WebhookTable) else getattr(webhooks, "webhooks", None)
    if isinstance(webhooks, type) or not isinstance(found, WebhookTable):
        raise TypeError(
            f"webhooks={webhooks!r} has no webhooks: give Webhooks() that has some, or a "
            "WebhookServer"
        )
    return found
