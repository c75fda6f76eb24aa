"""Reconcile: bring the world in line with what objects ask for, whatever happened to them."""

from appsdk_operator.controllers import until as until
from appsdk_operator.controllers._conditions import Condition as Condition
from appsdk_operator.controllers._conditions import ConditionStatus as ConditionStatus
from appsdk_operator.controllers._conditions import get_condition as get_condition
from appsdk_operator.controllers._conditions import is_condition_false as is_condition_false
from appsdk_operator.controllers._conditions import is_condition_true as is_condition_true
from appsdk_operator.controllers._conditions import patch_conditions as patch_conditions
from appsdk_operator.controllers._conditions import remove_condition as remove_condition
from appsdk_operator.controllers._conditions import set_condition as set_condition
from appsdk_operator.controllers._context import ReconcileContext as ReconcileContext
from appsdk_operator.controllers._context import reconcile_context as reconcile_context
from appsdk_operator.controllers._controller import Controller as Controller
from appsdk_operator.controllers._create_or_update import OperationResult as OperationResult
from appsdk_operator.controllers._create_or_update import Written as Written
from appsdk_operator.controllers._create_or_update import apply as apply
from appsdk_operator.controllers._create_or_update import create_or_patch as create_or_patch
from appsdk_operator.controllers._create_or_update import create_or_update as create_or_update
from appsdk_operator.controllers._finalizers import FinalizerError as FinalizerError
from appsdk_operator.controllers._finalizers import add_finalizer as add_finalizer
from appsdk_operator.controllers._finalizers import has_finalizer as has_finalizer
from appsdk_operator.controllers._finalizers import put_finalizer as put_finalizer
from appsdk_operator.controllers._finalizers import remove_finalizer as remove_finalizer
from appsdk_operator.controllers._finalizers import take_finalizer_off as take_finalizer_off
from appsdk_operator.controllers._finalizing import FinalizeErrors as FinalizeErrors
from appsdk_operator.controllers._finalizing import FinalizeResult as FinalizeResult
from appsdk_operator.controllers._finalizing import FinalizerRegistry as FinalizerRegistry
from appsdk_operator.controllers._finalizing import Finalizing as Finalizing
from appsdk_operator.controllers._finalizing import FinalizingOutcome as FinalizingOutcome
from appsdk_operator.controllers._finalizing import finalizing as finalizing
from appsdk_operator.controllers._object_reconciler import (
    ObjectReconcileFunction as ObjectReconcileFunction,
)
from appsdk_operator.controllers._object_reconciler import ObjectReconciler as ObjectReconciler
from appsdk_operator.controllers._object_reconciler import as_reconciler as as_reconciler
from appsdk_operator.controllers._options import ControllerOptions as ControllerOptions
from appsdk_operator.controllers._owners import AlreadyOwnedError as AlreadyOwnedError
from appsdk_operator.controllers._owners import OwnerError as OwnerError
from appsdk_operator.controllers._owners import controller_of as controller_of
from appsdk_operator.controllers._owners import has_controller_reference as has_controller_reference
from appsdk_operator.controllers._owners import has_owner_reference as has_owner_reference
from appsdk_operator.controllers._owners import (
    remove_controller_reference as remove_controller_reference,
)
from appsdk_operator.controllers._owners import remove_owner_reference as remove_owner_reference
from appsdk_operator.controllers._owners import set_controller_reference as set_controller_reference
from appsdk_operator.controllers._owners import set_owner_reference as set_owner_reference
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
from appsdk_operator.controllers._wait_for import WaitStopped as WaitStopped
from appsdk_operator.controllers._wait_for import wait_for as wait_for

__all__ = [
    "LOW_PRIORITY",
    "AlreadyOwnedError",
    "Condition",
    "ConditionStatus",
    "Controller",
    "ControllerOptions",
    "EventFilter",
    "FinalizeErrors",
    "FinalizeResult",
    "FinalizerError",
    "FinalizerRegistry",
    "Finalizing",
    "FinalizingOutcome",
    "Handler",
    "JoinableSource",
    "ObjectReconcileFunction",
    "ObjectReconciler",
    "OperationResult",
    "Outcome",
    "OwnerError",
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
    "WaitStopped",
    "Written",
    "add_finalizer",
    "apply",
    "as_reconciler",
    "controller_of",
    "create_or_patch",
    "create_or_update",
    "finalizing",
    "get_condition",
    "has_controller_reference",
    "has_finalizer",
    "has_owner_reference",
    "is_condition_false",
    "is_condition_true",
    "patch_conditions",
    "put_finalizer",
    "reconcile_context",
    "remove_condition",
    "remove_controller_reference",
    "remove_finalizer",
    "remove_owner_reference",
    "set_condition",
    "set_controller_reference",
    "set_owner_reference",
    "take_finalizer_off",
    "until",
    "wait_for",
]
