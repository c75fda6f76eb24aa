"""Webhooks: admission, conversion and authentication for an API server, and their certificates.

The API server sends a review, a JSON document, to a path of a :class:`WebhookServer` over HTTPS.
The webhook of this path answers it: it allows, denies or changes a request (admission), converts
objects between the versions of a kind (conversion), or says whose token it is (authentication).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.serving import CertificateFiles as CertificateFiles
    from appsdk_operator.serving import Certificates as Certificates
    from appsdk_operator.serving import KeyPair as KeyPair
    from appsdk_operator.serving import SelfSigned as SelfSigned
    from appsdk_operator.webhooks._admission.admission import Admission as Admission
    from appsdk_operator.webhooks._admission.handlers import AdmissionHandler as AdmissionHandler
    from appsdk_operator.webhooks._admission.handlers import Defaulter as Defaulter
    from appsdk_operator.webhooks._admission.handlers import Defaulting as Defaulting
    from appsdk_operator.webhooks._admission.handlers import MultiMutating as MultiMutating
    from appsdk_operator.webhooks._admission.handlers import MultiValidating as MultiValidating
    from appsdk_operator.webhooks._admission.handlers import Validating as Validating
    from appsdk_operator.webhooks._admission.handlers import ValidationResult as ValidationResult
    from appsdk_operator.webhooks._admission.handlers import Validator as Validator
    from appsdk_operator.webhooks._admission.requests import AdmissionRequest as AdmissionRequest
    from appsdk_operator.webhooks._admission.requests import (
        GroupVersionResource as GroupVersionResource,
    )
    from appsdk_operator.webhooks._admission.requests import Operation as Operation
    from appsdk_operator.webhooks._admission.requests import admission_request as admission_request
    from appsdk_operator.webhooks._admission.responses import AdmissionResponse as AdmissionResponse
    from appsdk_operator.webhooks._admission.responses import Denied as Denied
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
    from appsdk_operator.webhooks._certificates.managed import (
        ManagedCertificates as ManagedCertificates,
    )
    from appsdk_operator.webhooks._conversion.migration import MigrationError as MigrationError
    from appsdk_operator.webhooks._conversion.migration import (
        MigrationProgress as MigrationProgress,
    )
    from appsdk_operator.webhooks._conversion.migration import (
        migrate_stored_versions as migrate_stored_versions,
    )
    from appsdk_operator.webhooks._conversion.webhook import ConversionWebhook as ConversionWebhook
    from appsdk_operator.webhooks._frameworks.asgi import ASGIWebhooks as ASGIWebhooks
    from appsdk_operator.webhooks._frameworks.asgi import asgi as asgi
    from appsdk_operator.webhooks._frameworks.wsgi import WSGIWebhooks as WSGIWebhooks
    from appsdk_operator.webhooks._frameworks.wsgi import wsgi as wsgi
    from appsdk_operator.webhooks._install.configurations import RuleSource as RuleSource
    from appsdk_operator.webhooks._install.configurations import (
        webhook_configurations as webhook_configurations,
    )
    from appsdk_operator.webhooks._install.development import (
        DevelopmentServer as DevelopmentServer,
    )
    from appsdk_operator.webhooks._install.install import (
        install_configurations as install_configurations,
    )
    from appsdk_operator.webhooks._install.install import (
        remove_configurations as remove_configurations,
    )
    from appsdk_operator.webhooks._install.local_clusters import LOCAL_CONTEXTS as LOCAL_CONTEXTS
    from appsdk_operator.webhooks._install.local_clusters import allowed_context as allowed_context
    from appsdk_operator.webhooks._install.local_clusters import reach_of as reach_of
    from appsdk_operator.webhooks._install.probe import Probe as Probe
    from appsdk_operator.webhooks._rules import Selector as Selector
    from appsdk_operator.webhooks._rules import WebhookRule as WebhookRule
    from appsdk_operator.webhooks._rules import WebhookRuleOptions as WebhookRuleOptions
    from appsdk_operator.webhooks._server.builder import WebhookBuilder as WebhookBuilder
    from appsdk_operator.webhooks._server.builder import webhook_for as webhook_for
    from appsdk_operator.webhooks._server.options import (
        WebhookServerOptions as WebhookServerOptions,
    )
    from appsdk_operator.webhooks._server.server import WebhookServer as WebhookServer
    from appsdk_operator.webhooks._server.webhooks import WebhookHost as WebhookHost
    from appsdk_operator.webhooks._server.webhooks import Webhooks as Webhooks
    from appsdk_operator.webhooks._users import UserInfo as UserInfo

_MODULES: dict[str, tuple[str, ...]] = {
    "serving": ("CertificateFiles", "Certificates", "KeyPair", "SelfSigned"),
    "webhooks._certificates.managed": ("ManagedCertificates",),
    "webhooks._admission.admission": ("Admission",),
    "webhooks._admission.handlers": (
        "AdmissionHandler",
        "Defaulter",
        "Defaulting",
        "MultiMutating",
        "MultiValidating",
        "Validating",
        "ValidationResult",
        "Validator",
    ),
    "webhooks._admission.requests": (
        "AdmissionRequest",
        "GroupVersionResource",
        "Operation",
        "admission_request",
    ),
    "webhooks._admission.responses": (
        "AdmissionResponse",
        "Denied",
    ),
    "webhooks._server.builder": (
        "WebhookBuilder",
        "webhook_for",
    ),
    "webhooks._server.options": ("WebhookServerOptions",),
    "webhooks._server.server": ("WebhookServer",),
    "webhooks._server.webhooks": (
        "WebhookHost",
        "Webhooks",
    ),
    "webhooks._authentication.reviews": ("TokenReviewRequest", "TokenReviewResponse"),
    "webhooks._authentication.webhook": ("TokenReviewHandler", "TokenReviewWebhook"),
    "webhooks._conversion.migration": (
        "MigrationError",
        "MigrationProgress",
        "migrate_stored_versions",
    ),
    "webhooks._conversion.webhook": ("ConversionWebhook",),
    "webhooks._frameworks.asgi": ("ASGIWebhooks", "asgi"),
    "webhooks._frameworks.wsgi": ("WSGIWebhooks", "wsgi"),
    "webhooks._install.configurations": ("RuleSource", "webhook_configurations"),
    "webhooks._install.development": ("DevelopmentServer",),
    "webhooks._install.install": ("install_configurations", "remove_configurations"),
    "webhooks._rules": ("Selector", "WebhookRule", "WebhookRuleOptions"),
    "webhooks._users": ("UserInfo",),
}

_FOR_OTHER_ROOMS: dict[str, tuple[str, ...]] = {
    "webhooks._install.local_clusters": ("LOCAL_CONTEXTS", "allowed_context", "reach_of"),
    "webhooks._install.probe": ("Probe",),
}

_HOMES = homes(_MODULES, _FOR_OTHER_ROOMS)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
