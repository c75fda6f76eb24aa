"""Webhooks: admission, conversion and authentication for an API server, and their certificates.

The API server sends a review, a JSON document, to a path of a :class:`WebhookServer` over HTTPS.
The webhook of this path answers it: it allows, denies or changes a request (admission), converts
objects between the versions of a kind (conversion), or says whose token it is (authentication).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.webhooks._authentication.reviews import (
        TokenReviewRequest as TokenReviewRequest,
    )
    from appsdk_operator.webhooks._authentication.reviews import (
        TokenReviewResponse as TokenReviewResponse,
    )
    from appsdk_operator.webhooks._authentication.webhook import (
        TokenReviewHandler as TokenReviewHandler,
    )
    from appsdk_operator.webhooks._authentication.webhook import (
        TokenReviewWebhook as TokenReviewWebhook,
    )
    from appsdk_operator.webhooks._frameworks.asgi import ASGIWebhooks as ASGIWebhooks
    from appsdk_operator.webhooks._frameworks.asgi import asgi as asgi
    from appsdk_operator.webhooks._frameworks.wsgi import WSGIWebhooks as WSGIWebhooks
    from appsdk_operator.webhooks._frameworks.wsgi import wsgi as wsgi
    from appsdk_operator.webhooks._rules import Selector as Selector
    from appsdk_operator.webhooks._rules import WebhookRule as WebhookRule
    from appsdk_operator.webhooks._rules import WebhookRuleOptions as WebhookRuleOptions
    from appsdk_operator.webhooks._users import UserInfo as UserInfo

_MODULES: dict[str, tuple[str, ...]] = {
    "webhooks._authentication.reviews": ("TokenReviewRequest", "TokenReviewResponse"),
    "webhooks._authentication.webhook": ("TokenReviewHandler", "TokenReviewWebhook"),
    "webhooks._frameworks.asgi": ("ASGIWebhooks", "asgi"),
    "webhooks._frameworks.wsgi": ("WSGIWebhooks", "wsgi"),
    "webhooks._rules": ("Selector", "WebhookRule", "WebhookRuleOptions"),
    "webhooks._users": ("UserInfo",),
}

_HOMES = homes(_MODULES)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
