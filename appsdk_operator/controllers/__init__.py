"""Reconcile: bring the world in line with what objects ask for, whatever happened to them."""

from appsdk_operator.controllers._context import ReconcileContext as ReconcileContext
from appsdk_operator.controllers._context import reconcile_context as reconcile_context
from appsdk_operator.controllers._controller import Controller as Controller
from appsdk_operator.controllers._object_reconciler import (
    ObjectReconcileFunction as ObjectReconcileFunction,
)
from appsdk_operator.controllers._object_reconciler import ObjectReconciler as ObjectReconciler
from appsdk_operator.controllers._object_reconciler import as_reconciler as as_reconciler
from appsdk_operator.controllers._options import ControllerOptions as ControllerOptions
from appsdk_operator.controllers._protocols import LOW_PRIORITY as LOW_PRIORITY
from appsdk_operator.controllers._protocols import EventFilter as EventFilter
from appsdk_operator.controllers._protocols import Handler as Handler
from appsdk_operator.controllers._protocols import JoinableSource as JoinableSource
from appsdk_operator.controllers._protocols import RequestQueue as RequestQueue
from appsdk_operator.controllers._protocols import Source as Source
from appsdk_operator.controllers._protocols import SyncingSource as SyncingSource
from appsdk_operator.controllers._reconcile import Outcome as Outcome
from appsdk_operator.controllers._reconcile import ReconcileFunction as ReconcileFunction
from appsdk_operator.controllers._reconcile import Reconciler as Reconciler
from appsdk_operator.controllers._reconcile import Request as Request
from appsdk_operator.controllers._reconcile import Result as Result
from appsdk_operator.controllers._reconcile import RetryAfter as RetryAfter
from appsdk_operator.controllers._reconcile import TerminalError as TerminalError

__all__ = [
    "LOW_PRIORITY",
    "Controller",
    "ControllerOptions",
    "EventFilter",
    "Handler",
    "JoinableSource",
    "ObjectReconcileFunction",
    "ObjectReconciler",
    "Outcome",
    "ReconcileContext",
    "ReconcileFunction",
    "Reconciler",
    "Request",
    "RequestQueue",
    "Result",
    "RetryAfter",
    "Source",
    "SyncingSource",
    "TerminalError",
    "as_reconciler",
    "reconcile_context",
]
