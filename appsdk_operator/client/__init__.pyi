from appsdk_operator.client._api.aio import (
    AsyncClient as AsyncClient,
    AsyncSubresource as AsyncSubresource,
    AsyncWatch as AsyncWatch,
)
from appsdk_operator.client._api.client import (
    Client as Client,
)
from appsdk_operator.client._api.discovery import (
    Discovery as Discovery,
    NoSuchKind as NoSuchKind,
)
from appsdk_operator.client._api.client_like import (
    ClientLike as ClientLike,
)
from appsdk_operator.client._api.edit import (
    Edit as Edit,
)
from appsdk_operator.client._api.object_store import (
    ObjectStore as ObjectStore,
    SpecStore as SpecStore,
    StoreClient as StoreClient,
)
from appsdk_operator.client._api.options import (
    FieldValidation as FieldValidation,
)
from appsdk_operator.client._api.protocols import (
    Change as Change,
    Reader as Reader,
    Writer as Writer,
)
from appsdk_operator.client._api.subresource import (
    SubresourceClient as SubresourceClient,
)
from appsdk_operator.client._auth.config import (
    ClientConfig as ClientConfig,
)
from appsdk_operator.client._auth.credentials import (
    Credential as Credential,
)
from appsdk_operator.client._auth.credentials import (
    Credentials as Credentials,
)
from appsdk_operator.client._auth.impersonation import (
    Impersonation as Impersonation,
)
from appsdk_operator.client._errors import (
    AlreadyExists as AlreadyExists,
    ApiError as ApiError,
    BadRequest as BadRequest,
    BadResponse as BadResponse,
    ClientError as ClientError,
    ConfigError as ConfigError,
    Conflict as Conflict,
    ConnectFailed as ConnectFailed,
    ConnectionLost as ConnectionLost,
    Expired as Expired,
    Forbidden as Forbidden,
    Gone as Gone,
    InternalError as InternalError,
    Invalid as Invalid,
    MethodNotAllowed as MethodNotAllowed,
    NotAcceptable as NotAcceptable,
    NotFound as NotFound,
    ProxyFailed as ProxyFailed,
    ReadTimeout as ReadTimeout,
    RequestEntityTooLarge as RequestEntityTooLarge,
    RequestStopped as RequestStopped,
    ResponseTooLarge as ResponseTooLarge,
    ServerError as ServerError,
    ServerTimeout as ServerTimeout,
    ServiceUnavailable as ServiceUnavailable,
    TLSFailed as TLSFailed,
    Timeout as Timeout,
    TooManyRequests as TooManyRequests,
    TransportError as TransportError,
    Unauthorized as Unauthorized,
    UnsupportedMediaType as UnsupportedMediaType,
    WatchSilent as WatchSilent,
    WrongAnswer as WrongAnswer,
    error_from_status as error_from_status,
)
from appsdk_operator.client._kubernetes_models import (
    from_model as from_model,
    to_model as to_model,
)
from appsdk_operator.client._transport.watch import (
    WatchStream as WatchStream,
)
from appsdk_operator.client._wrappers.dry_run import (
    DryRunClient as DryRunClient,
)
from appsdk_operator.client._wrappers.field_owner import (
    FieldOwnerClient as FieldOwnerClient,
)
from appsdk_operator.client._wrappers.interceptor import (
    Hooks as Hooks,
    InterceptedClient as InterceptedClient,
)
from appsdk_operator.client._wrappers.namespaced import (
    NamespacedClient as NamespacedClient,
)
from appsdk_operator.client._wrappers.wrapper import (
    ClientWrapper as ClientWrapper,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.client._api.discovery import (
    APIResource as APIResource,
    ServerVersion as ServerVersion,
)
from appsdk_operator.client._api.edits import (
    SERVER_FIELDS as SERVER_FIELDS,
    modify_steps as modify_steps,
    run_steps as run_steps,
)
from appsdk_operator.client._api.options import (
    ATTEMPTS as ATTEMPTS,
    GetOptions as GetOptions,
    ListOptions as ListOptions,
    Propagation as Propagation,
)
from appsdk_operator.client._api.pagination import (
    PaginationGuard as PaginationGuard,
)
from appsdk_operator.client._api.protocols import (
    SubresourceLike as SubresourceLike,
)
from appsdk_operator.client._api.request_builders import (
    check_object as check_object,
)
from appsdk_operator.client._auth.config import (
    credentials_of as credentials_of,
)
from appsdk_operator.client._auth.kubeconfig import (
    contexts_of as contexts_of,
)
from appsdk_operator.client._errors import (
    Cause as Cause,
)
from appsdk_operator.client._request import (
    Request as Request,
)
from appsdk_operator.client._transport.metrics import (
    UNPARSEABLE as UNPARSEABLE,
    WATCH_ERRORS as WATCH_ERRORS,
    WATCH_EVENTS as WATCH_EVENTS,
)
from appsdk_operator.client._transport.cancelling import (
    present_stop as present_stop,
    requests_end_with as requests_end_with,
)
from appsdk_operator.client._transport.contact import (
    ANSWER_WITHIN as ANSWER_WITHIN,
    ContactWatch as ContactWatch,
    ServerContact as ServerContact,
)
from appsdk_operator.client._transport.proxy import (
    proxy_for as proxy_for,
)
from appsdk_operator.client._transport.tls import (
    TLSContexts as TLSContexts,
)
from appsdk_operator.client._transport.write_guard import (
    checked_before_write as checked_before_write,
)
from appsdk_operator.client._wrappers.call import (
    Call as Call,
    Forward as Forward,
    ResultT as ResultT,
)
from appsdk_operator.client._api.live import (
    Getter as Getter,
    live_reader as live_reader,
)
from appsdk_operator.resource import (
    JsonPatch as JsonPatch,
    MergePatch as MergePatch,
    Patch as Patch,
    StrategicMergePatch as StrategicMergePatch,
)
