"""The client of an API server: verbs on kinds, watches with a limit on silence, one error tree.

A :class:`ClientConfig` holds the server's address and the credentials; :meth:`ClientConfig.load`
finds the one that this process is meant to use. A :class:`Client` sends requests with it:

    config = ClientConfig.load()
    with Client(config) as client:
        for pod in client.list(POD, namespace="default", label_selector={"app": "web"}):
            client.delete(POD, pod.name, namespace=pod.namespace, uid=pod.uid)

Objects are sent as :class:`~appsdk_operator.resource.Object` or
:class:`~appsdk_operator.resource.MutableObject` and come back as ``Object``. A watch is a
:class:`WatchStream`, which yields the raw lines of the events in batches; informers read it.
Wrappers change what a client does: :class:`NamespacedClient`, :class:`FieldOwnerClient`,
:class:`DryRunClient`, :class:`InterceptedClient`.

Guarantees:
    * No call waits without limit. Connections, handshakes and answers have time-outs, a watch
      without a byte for too long raises :class:`WatchSilent`, and a stop signal or
      :meth:`Client.close` ends every wait.
    * A request is retried only where that does no harm: reads; requests that the server refused
      before it began (429, 503 with ``Retry-After``, 401 once, with fresh credentials); requests
      that were never sent; and, after a lost connection, writes that the server refuses once the
      object has changed (an update with a resource version, a delete with a precondition) and
      applies.
    * Tokens, keys and certificates that rotate on disk are picked up.
    * TLS is verified unless ``unsafe_skip_tls_verify`` is set. Secrets and bodies are in no log
      and no repr. Answers have a maximum size.

Caveats:
    * The server may have carried out a write that raises a :class:`TransportError` with ``sent``.
    * The system's name resolver cannot be interrupted; it has time-outs of its own.
    * ``kubernetes`` is imported when a kubeconfig is read, and never otherwise.

Errors:
    :class:`ClientError` is the root. :class:`ApiError` and its subclasses are answers, named for
    their reason; :class:`TransportError` and its subclasses mean that there was none;
    :class:`ConfigError` means that the configuration or the credentials cannot be used.
"""

from typing import TYPE_CHECKING

from appsdk_operator._lazy import loader
from appsdk_operator.client._api.client import Client as Client
from appsdk_operator.client._api.discovery import APIResource as APIResource
from appsdk_operator.client._api.discovery import Discovery as Discovery
from appsdk_operator.client._api.discovery import NoSuchKind as NoSuchKind
from appsdk_operator.client._api.discovery import ServerVersion as ServerVersion
from appsdk_operator.client._api.object_store import ObjectStore as ObjectStore
from appsdk_operator.client._api.object_store import SpecStore as SpecStore
from appsdk_operator.client._api.object_store import StoreClient as StoreClient
from appsdk_operator.client._api.options import ApplyOptions as ApplyOptions
from appsdk_operator.client._api.options import DeleteCollectionOptions as DeleteCollectionOptions
from appsdk_operator.client._api.options import DeleteOptions as DeleteOptions
from appsdk_operator.client._api.options import FieldValidation as FieldValidation
from appsdk_operator.client._api.options import ListOptions as ListOptions
from appsdk_operator.client._api.options import PatchOptions as PatchOptions
from appsdk_operator.client._api.options import Propagation as Propagation
from appsdk_operator.client._api.options import SubresourceApplyOptions as SubresourceApplyOptions
from appsdk_operator.client._api.options import SubresourceCreateOptions as SubresourceCreateOptions
from appsdk_operator.client._api.options import SubresourceUpdateOptions as SubresourceUpdateOptions
from appsdk_operator.client._api.options import WriteOptions as WriteOptions
from appsdk_operator.client._api.pagination import PaginationGuard as PaginationGuard
from appsdk_operator.client._api.protocols import ClientLike as ClientLike
from appsdk_operator.client._api.protocols import Reader as Reader
from appsdk_operator.client._api.protocols import SubresourceLike as SubresourceLike
from appsdk_operator.client._api.protocols import Writer as Writer
from appsdk_operator.client._api.request_builders import check_object as check_object
from appsdk_operator.client._api.subresource import SubresourceClient as SubresourceClient
from appsdk_operator.client._auth.config import ClientConfig as ClientConfig
from appsdk_operator.client._auth.config import credentials_of as credentials_of
from appsdk_operator.client._auth.credentials import Credentials as Credentials
from appsdk_operator.client._auth.impersonation import Impersonation as Impersonation
from appsdk_operator.client._errors import AlreadyExists as AlreadyExists
from appsdk_operator.client._errors import ApiError as ApiError
from appsdk_operator.client._errors import BadRequest as BadRequest
from appsdk_operator.client._errors import BadResponse as BadResponse
from appsdk_operator.client._errors import Cause as Cause
from appsdk_operator.client._errors import ClientError as ClientError
from appsdk_operator.client._errors import ConfigError as ConfigError
from appsdk_operator.client._errors import Conflict as Conflict
from appsdk_operator.client._errors import ConnectFailed as ConnectFailed
from appsdk_operator.client._errors import ConnectionLost as ConnectionLost
from appsdk_operator.client._errors import Expired as Expired
from appsdk_operator.client._errors import Forbidden as Forbidden
from appsdk_operator.client._errors import Gone as Gone
from appsdk_operator.client._errors import InternalError as InternalError
from appsdk_operator.client._errors import Invalid as Invalid
from appsdk_operator.client._errors import MethodNotAllowed as MethodNotAllowed
from appsdk_operator.client._errors import NotAcceptable as NotAcceptable
from appsdk_operator.client._errors import NotFound as NotFound
from appsdk_operator.client._errors import ProxyFailed as ProxyFailed
from appsdk_operator.client._errors import ReadTimeout as ReadTimeout
from appsdk_operator.client._errors import RequestEntityTooLarge as RequestEntityTooLarge
from appsdk_operator.client._errors import RequestStopped as RequestStopped
from appsdk_operator.client._errors import ResponseTooLarge as ResponseTooLarge
from appsdk_operator.client._errors import ServerError as ServerError
from appsdk_operator.client._errors import ServerTimeout as ServerTimeout
from appsdk_operator.client._errors import ServiceUnavailable as ServiceUnavailable
from appsdk_operator.client._errors import Timeout as Timeout
from appsdk_operator.client._errors import TLSFailed as TLSFailed
from appsdk_operator.client._errors import TooManyRequests as TooManyRequests
from appsdk_operator.client._errors import TransportError as TransportError
from appsdk_operator.client._errors import Unauthorized as Unauthorized
from appsdk_operator.client._errors import UnsupportedMediaType as UnsupportedMediaType
from appsdk_operator.client._errors import WatchSilent as WatchSilent
from appsdk_operator.client._errors import WrongAnswer as WrongAnswer
from appsdk_operator.client._errors import error_from_status as error_from_status
from appsdk_operator.client._kubernetes_models import from_model as from_model
from appsdk_operator.client._kubernetes_models import to_model as to_model
from appsdk_operator.client._request import Request as Request
from appsdk_operator.client._transport.metrics import UNPARSEABLE as UNPARSEABLE
from appsdk_operator.client._transport.metrics import WATCH_ERRORS as WATCH_ERRORS
from appsdk_operator.client._transport.metrics import WATCH_EVENTS as WATCH_EVENTS
from appsdk_operator.client._transport.proxy import proxy_for as proxy_for
from appsdk_operator.client._transport.watch import WatchStream as WatchStream
from appsdk_operator.client._transport.write_guard import (
    checked_before_write as checked_before_write,
)
from appsdk_operator.client._wrappers.dry_run import DryRunClient as DryRunClient
from appsdk_operator.client._wrappers.field_owner import FieldOwnerClient as FieldOwnerClient
from appsdk_operator.client._wrappers.interceptor import Hooks as Hooks
from appsdk_operator.client._wrappers.interceptor import InterceptedClient as InterceptedClient
from appsdk_operator.client._wrappers.namespaced import NamespacedClient as NamespacedClient
from appsdk_operator.client._wrappers.wrapper import ClientWrapper as ClientWrapper
from appsdk_operator.client._wrappers.wrapper import SubresourceWrapper as SubresourceWrapper
from appsdk_operator.resource import JsonPatch as JsonPatch
from appsdk_operator.resource import MergePatch as MergePatch
from appsdk_operator.resource import Patch as Patch
from appsdk_operator.resource import StrategicMergePatch as StrategicMergePatch

# The first loads what a client without a kubeconfig does without, the second ssl.
if TYPE_CHECKING:
    from appsdk_operator.client._auth.kubeconfig import contexts_of as contexts_of
    from appsdk_operator.client._transport.tls import TLSContexts as TLSContexts

_HOMES = {
    "TLSContexts": "appsdk_operator.client._transport.tls",
    "contexts_of": "appsdk_operator.client._auth.kubeconfig",
}

# Names that are imported above but not listed here are for the other rooms of the kit.
__all__ = [
    "APIResource",
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "BadResponse",
    "Cause",
    "Client",
    "ClientConfig",
    "ClientError",
    "ClientLike",
    "ClientWrapper",
    "ConfigError",
    "Conflict",
    "ConnectFailed",
    "ConnectionLost",
    "Credentials",
    "Discovery",
    "DryRunClient",
    "Expired",
    "FieldOwnerClient",
    "FieldValidation",
    "Forbidden",
    "Gone",
    "Hooks",
    "Impersonation",
    "InterceptedClient",
    "InternalError",
    "Invalid",
    "JsonPatch",
    "MergePatch",
    "MethodNotAllowed",
    "NamespacedClient",
    "NoSuchKind",
    "NotAcceptable",
    "NotFound",
    "ObjectStore",
    "Patch",
    "Propagation",
    "ProxyFailed",
    "ReadTimeout",
    "Reader",
    "Request",
    "RequestEntityTooLarge",
    "RequestStopped",
    "ResponseTooLarge",
    "ServerError",
    "ServerTimeout",
    "ServerVersion",
    "ServiceUnavailable",
    "SpecStore",
    "StoreClient",
    "StrategicMergePatch",
    "SubresourceClient",
    "SubresourceLike",
    "SubresourceWrapper",
    "TLSFailed",
    "Timeout",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "UnsupportedMediaType",
    "WatchSilent",
    "WatchStream",
    "Writer",
    "WrongAnswer",
    "error_from_status",
    "from_model",
    "to_model",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = loader(__name__, _HOMES)
