from appsdk_operator._version import (
    __version__ as __version__,
)
from appsdk_operator.app import (
    App as App,
    Live as Live,
    each as each,
)
from appsdk_operator.cache import (
    ResourceAction as ResourceAction,
)
from appsdk_operator.client import (
    AlreadyExists as AlreadyExists,
    ApiError as ApiError,
    Client as Client,
    ClientConfig as ClientConfig,
    ClientError as ClientError,
    Conflict as Conflict,
    Expired as Expired,
    Forbidden as Forbidden,
    Invalid as Invalid,
    NotFound as NotFound,
    TransportError as TransportError,
)
from appsdk_operator.controllers import (
    Reconciler as Reconciler,
    Request as Request,
    Result as Result,
    RetryAfter as RetryAfter,
    TerminalError as TerminalError,
    controller_for as controller_for,
    create_or_update as create_or_update,
    set_condition as set_condition,
    set_controller_reference as set_controller_reference,
)
from appsdk_operator.manager import (
    Manager as Manager,
    Operator as Operator,
)
from appsdk_operator.resource import (
    DecodeError as DecodeError,
    JsonPatch as JsonPatch,
    Kind as Kind,
    LabelSelector as LabelSelector,
    MergePatch as MergePatch,
    MutableObject as MutableObject,
    Object as Object,
    Scope as Scope,
    annotation as annotation,
    custom_resource_definition as custom_resource_definition,
    field as field,
    kinds as kinds,
    labels as labels,
)
from appsdk_operator.runtime import (
    ConstantBackoff as ConstantBackoff,
    ExponentialBackoff as ExponentialBackoff,
    RetryPolicy as RetryPolicy,
    StopSignal as StopSignal,
    current_stop as current_stop,
    setup_logging as setup_logging,
)
from appsdk_operator.watchers import (
    InformerController as InformerController,
    KubernetesInformer as KubernetesInformer,
    OpinionatedWatcher as OpinionatedWatcher,
    ResourceWatcher as ResourceWatcher,
    RetryDequeuePolicy as RetryDequeuePolicy,
    SimpleWatcher as SimpleWatcher,
)
from appsdk_operator.webhooks import (
    Denied as Denied,
)
