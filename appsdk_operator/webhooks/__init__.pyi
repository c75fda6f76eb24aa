from appsdk_operator.serving import (
    CertificateFiles as CertificateFiles,
    Certificates as Certificates,
    SelfSigned as SelfSigned,
)
from appsdk_operator.webhooks._admission.admission import (
    Admission as Admission,
)
from appsdk_operator.webhooks._admission.handlers import (
    AdmissionHandler as AdmissionHandler,
    Defaulter as Defaulter,
    Defaulting as Defaulting,
    MultiMutating as MultiMutating,
    MultiValidating as MultiValidating,
    Validating as Validating,
    Validator as Validator,
)
from appsdk_operator.webhooks._admission.requests import (
    AdmissionRequest as AdmissionRequest,
    Operation as Operation,
    admission_request as admission_request,
)
from appsdk_operator.webhooks._admission.responses import (
    AdmissionResponse as AdmissionResponse,
    Denied as Denied,
)
from appsdk_operator.webhooks._authentication.reviews import (
    TokenReviewRequest as TokenReviewRequest,
    TokenReviewResponse as TokenReviewResponse,
)
from appsdk_operator.webhooks._authentication.webhook import (
    TokenReviewHandler as TokenReviewHandler,
    TokenReviewWebhook as TokenReviewWebhook,
)
from appsdk_operator.webhooks._certificates.managed import (
    ManagedCertificates as ManagedCertificates,
)
from appsdk_operator.webhooks._conversion.migration import (
    MigrationError as MigrationError,
    migrate_stored_versions as migrate_stored_versions,
)
from appsdk_operator.webhooks._conversion.webhook import (
    ConversionWebhook as ConversionWebhook,
)
from appsdk_operator.webhooks._frameworks.asgi import (
    asgi as asgi,
)
from appsdk_operator.webhooks._frameworks.wsgi import (
    wsgi as wsgi,
)
from appsdk_operator.webhooks._install.configurations import (
    webhook_configurations as webhook_configurations,
)
from appsdk_operator.webhooks._install.development import (
    DevelopmentServer as DevelopmentServer,
)
from appsdk_operator.webhooks._install.install import (
    install_configurations as install_configurations,
    remove_configurations as remove_configurations,
)
from appsdk_operator.webhooks._rules import (
    WebhookRule as WebhookRule,
)
from appsdk_operator.webhooks._server.builder import (
    WebhookBuilder as WebhookBuilder,
    webhook_for as webhook_for,
)
from appsdk_operator.webhooks._server.options import (
    WebhookServerOptions as WebhookServerOptions,
)
from appsdk_operator.webhooks._server.server import (
    WebhookServer as WebhookServer,
)
from appsdk_operator.webhooks._server.webhooks import (
    WebhookHost as WebhookHost,
    Webhooks as Webhooks,
)
from appsdk_operator.webhooks._users import (
    UserInfo as UserInfo,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.serving import (
    KeyPair as KeyPair,
)
from appsdk_operator.webhooks._admission.handlers import (
    ValidationResult as ValidationResult,
)
from appsdk_operator.webhooks._admission.requests import (
    GroupVersionResource as GroupVersionResource,
)
from appsdk_operator.webhooks._conversion.migration import (
    MigrationProgress as MigrationProgress,
)
from appsdk_operator.webhooks._frameworks.asgi import (
    ASGIWebhooks as ASGIWebhooks,
)
from appsdk_operator.webhooks._frameworks.wsgi import (
    WSGIWebhooks as WSGIWebhooks,
)
from appsdk_operator.webhooks._install.configurations import (
    CONFIGURATION_KINDS as CONFIGURATION_KINDS,
    RuleSource as RuleSource,
)
from appsdk_operator.webhooks._install.install import (
    despite_conflicts as despite_conflicts,
)
from appsdk_operator.webhooks._install.local_clusters import (
    LOCAL_CONTEXTS as LOCAL_CONTEXTS,
    allowed_context as allowed_context,
    reach_of as reach_of,
)
from appsdk_operator.webhooks._install.probe import (
    Probe as Probe,
    write_until_obeyed as write_until_obeyed,
)
from appsdk_operator.webhooks._rules import (
    Selector as Selector,
    WebhookRuleOptions as WebhookRuleOptions,
)
