"""A kit for writing Kubernetes operators.

The names that a program usually needs are here; each is documented in its package. The packages,
lowest first: :mod:`~appsdk_operator.runtime` (clock, stop signal, work queue, metrics),
:mod:`~appsdk_operator.resource` (kinds and objects), :mod:`~appsdk_operator.client` (requests to an
API server), :mod:`~appsdk_operator.cache` (informers and a local copy),
:mod:`~appsdk_operator.controllers` (reconcilers), :mod:`~appsdk_operator.watchers` (callbacks for
events), :mod:`~appsdk_operator.webhooks` (defaults, validation, conversion, certificates),
:mod:`~appsdk_operator.manager` (start, stop, leader election, health),
:mod:`~appsdk_operator.app` (a whole operator as one value), and :mod:`~appsdk_operator.testing` (an
API server for tests).

Each name is imported on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import loader
from appsdk_operator._version import __version__

if TYPE_CHECKING:
    from appsdk_operator.app import App as App
    from appsdk_operator.cache import Cache as Cache
    from appsdk_operator.cache import CachedClient as CachedClient
    from appsdk_operator.cache import CacheOptions as CacheOptions
    from appsdk_operator.cache import Event as Event
    from appsdk_operator.cache import EventHandler as EventHandler
    from appsdk_operator.cache import Health as Health
    from appsdk_operator.cache import Informer as Informer
    from appsdk_operator.cache import NamespaceOptions as NamespaceOptions
    from appsdk_operator.cache import NotCachedError as NotCachedError
    from appsdk_operator.cache import Overflow as Overflow
    from appsdk_operator.cache import ResourceAction as ResourceAction
    from appsdk_operator.cache import drop_managed_fields as drop_managed_fields
    from appsdk_operator.client import AlreadyExists as AlreadyExists
    from appsdk_operator.client import ApiError as ApiError
    from appsdk_operator.client import Client as Client
    from appsdk_operator.client import ClientConfig as ClientConfig
    from appsdk_operator.client import ClientError as ClientError
    from appsdk_operator.client import Conflict as Conflict
    from appsdk_operator.client import Expired as Expired
    from appsdk_operator.client import Forbidden as Forbidden
    from appsdk_operator.client import Invalid as Invalid
    from appsdk_operator.client import JsonPatch as JsonPatch
    from appsdk_operator.client import MergePatch as MergePatch
    from appsdk_operator.client import NotFound as NotFound
    from appsdk_operator.client import StrategicMergePatch as StrategicMergePatch
    from appsdk_operator.client import TransportError as TransportError
    from appsdk_operator.controllers import ChannelSource as ChannelSource
    from appsdk_operator.controllers import Controller as Controller
    from appsdk_operator.controllers import ControllerOptions as ControllerOptions
    from appsdk_operator.controllers import Predicate as Predicate
    from appsdk_operator.controllers import Reconciler as Reconciler
    from appsdk_operator.controllers import Request as Request
    from appsdk_operator.controllers import Result as Result
    from appsdk_operator.controllers import RetryAfter as RetryAfter
    from appsdk_operator.controllers import TerminalError as TerminalError
    from appsdk_operator.controllers import controller_for as controller_for
    from appsdk_operator.controllers import create_or_update as create_or_update
    from appsdk_operator.controllers import finalizing as finalizing
    from appsdk_operator.controllers import generation_changed as generation_changed
    from appsdk_operator.controllers import map_objects as map_objects
    from appsdk_operator.controllers import reconcile_context as reconcile_context
    from appsdk_operator.controllers import set_condition as set_condition
    from appsdk_operator.controllers import set_controller_reference as set_controller_reference
    from appsdk_operator.controllers import until as until
    from appsdk_operator.controllers import wait_for as wait_for
    from appsdk_operator.manager import Cluster as Cluster
    from appsdk_operator.manager import EventRecorder as EventRecorder
    from appsdk_operator.manager import HealthServerOptions as HealthServerOptions
    from appsdk_operator.manager import LeaderElection as LeaderElection
    from appsdk_operator.manager import LeadershipLost as LeadershipLost
    from appsdk_operator.manager import Manager as Manager
    from appsdk_operator.manager import ManagerOptions as ManagerOptions
    from appsdk_operator.manager import MetricsServerOptions as MetricsServerOptions
    from appsdk_operator.manager import Operator as Operator
    from appsdk_operator.manager import Shards as Shards
    from appsdk_operator.resource import DecodeError as DecodeError
    from appsdk_operator.resource import EncodeError as EncodeError
    from appsdk_operator.resource import FieldSelector as FieldSelector
    from appsdk_operator.resource import Kind as Kind
    from appsdk_operator.resource import LabelSelector as LabelSelector
    from appsdk_operator.resource import MutableObject as MutableObject
    from appsdk_operator.resource import Object as Object
    from appsdk_operator.resource import ObjectKey as ObjectKey
    from appsdk_operator.resource import ReadOnlyError as ReadOnlyError
    from appsdk_operator.resource import Scope as Scope
    from appsdk_operator.resource import Versions as Versions
    from appsdk_operator.resource import custom_resource_definition as custom_resource_definition
    from appsdk_operator.resource import field as field
    from appsdk_operator.resource import kinds as kinds
    from appsdk_operator.runtime import Clock as Clock
    from appsdk_operator.runtime import JSONFormatter as JSONFormatter
    from appsdk_operator.runtime import ManualClock as ManualClock
    from appsdk_operator.runtime import Metrics as Metrics
    from appsdk_operator.runtime import StopSignal as StopSignal
    from appsdk_operator.runtime import WorkQueue as WorkQueue
    from appsdk_operator.runtime import setup_logging as setup_logging
    from appsdk_operator.watchers import ConstantBackoff as ConstantBackoff
    from appsdk_operator.watchers import ExponentialBackoff as ExponentialBackoff
    from appsdk_operator.watchers import FinalizerError as FinalizerError
    from appsdk_operator.watchers import InformerController as InformerController
    from appsdk_operator.watchers import KubernetesInformer as KubernetesInformer
    from appsdk_operator.watchers import ListMap as ListMap
    from appsdk_operator.watchers import OpinionatedReconciler as OpinionatedReconciler
    from appsdk_operator.watchers import OpinionatedWatcher as OpinionatedWatcher
    from appsdk_operator.watchers import ReconcileRequest as ReconcileRequest
    from appsdk_operator.watchers import ResourceWatcher as ResourceWatcher
    from appsdk_operator.watchers import RetryDequeuePolicy as RetryDequeuePolicy
    from appsdk_operator.watchers import RetryPolicy as RetryPolicy
    from appsdk_operator.watchers import SimpleReconciler as SimpleReconciler
    from appsdk_operator.watchers import SimpleWatcher as SimpleWatcher
    from appsdk_operator.watchers import TenacityRetry as TenacityRetry
    from appsdk_operator.watchers import WatcherCall as WatcherCall
    from appsdk_operator.watchers import keep_all_retries as keep_all_retries
    from appsdk_operator.watchers import never_retry as never_retry
    from appsdk_operator.watchers import (
        opinionated_retry_dequeue_policy as opinionated_retry_dequeue_policy,
    )
    from appsdk_operator.webhooks import Denied as Denied
    from appsdk_operator.webhooks import ManagedCertificates as ManagedCertificates
    from appsdk_operator.webhooks import WebhookServer as WebhookServer
    from appsdk_operator.webhooks import webhook_for as webhook_for

_ROOMS = {
    "app": ("App",),
    "cache": (
        "Cache",
        "CacheOptions",
        "CachedClient",
        "Event",
        "EventHandler",
        "Health",
        "Informer",
        "NamespaceOptions",
        "NotCachedError",
        "Overflow",
        "ResourceAction",
        "drop_managed_fields",
    ),
    "client": (
        "AlreadyExists",
        "ApiError",
        "Client",
        "ClientConfig",
        "ClientError",
        "Conflict",
        "Expired",
        "Forbidden",
        "Invalid",
        "JsonPatch",
        "MergePatch",
        "NotFound",
        "StrategicMergePatch",
        "TransportError",
    ),
    "controllers": (
        "ChannelSource",
        "Controller",
        "ControllerOptions",
        "Predicate",
        "Reconciler",
        "Request",
        "Result",
        "RetryAfter",
        "TerminalError",
        "controller_for",
        "create_or_update",
        "finalizing",
        "generation_changed",
        "map_objects",
        "reconcile_context",
        "set_condition",
        "set_controller_reference",
        "until",
        "wait_for",
    ),
    "manager": (
        "Cluster",
        "EventRecorder",
        "HealthServerOptions",
        "LeaderElection",
        "LeadershipLost",
        "Manager",
        "ManagerOptions",
        "MetricsServerOptions",
        "Operator",
        "Shards",
    ),
    "resource": (
        "DecodeError",
        "EncodeError",
        "FieldSelector",
        "Kind",
        "LabelSelector",
        "MutableObject",
        "Object",
        "ObjectKey",
        "ReadOnlyError",
        "Scope",
        "Versions",
        "custom_resource_definition",
        "field",
    ),
    "runtime": (
        "Clock",
        "JSONFormatter",
        "ManualClock",
        "Metrics",
        "StopSignal",
        "WorkQueue",
        "setup_logging",
    ),
    "watchers": (
        "ConstantBackoff",
        "ExponentialBackoff",
        "FinalizerError",
        "InformerController",
        "KubernetesInformer",
        "ListMap",
        "OpinionatedReconciler",
        "OpinionatedWatcher",
        "ReconcileRequest",
        "ResourceWatcher",
        "RetryDequeuePolicy",
        "RetryPolicy",
        "SimpleReconciler",
        "SimpleWatcher",
        "TenacityRetry",
        "WatcherCall",
        "keep_all_retries",
        "never_retry",
        "opinionated_retry_dequeue_policy",
    ),
    "webhooks": (
        "Denied",
        "ManagedCertificates",
        "WebhookServer",
        "webhook_for",
    ),
}
_HOMES = {name: f"{__name__}.{room}" for room, names in _ROOMS.items() for name in names}
_HOMES["kinds"] = f"{__name__}.resource.kinds"

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
