"""Controllers: reconcilers that bring the world in line with what objects specify.

A reconciler gets the *key* of an object, not *what happened* to it: it reads the present state and
does what is missing. So events can be merged, missed and repeated without harm, and a failure is
corrected by the next call. If each event matters, use :mod:`appsdk_operator.watchers` instead.

An event takes these steps. A source (a cached kind, a channel, a timer) delivers it; predicates
filter it; a handler turns it into requests. The queue merges the requests of one object, holds them
until they are due, and passes them to workers by priority. A worker calls the reconciler, and the
result decides on the next call:

* None, or ``Result()``: done, until the next event;
* ``Result(requeue_after=seconds)``: after that time, or earlier at the next event;
* an exception: after a delay that grows with each failure;
* ``RetryAfter(seconds)``: after that time; the delay does not grow;
* ``TerminalError``: no retry, until the next event.

>>> from appsdk_operator.controllers import Controller, Request, Result
>>> def reconcile(request: Request) -> Result:
...     print("look at", request)
...     return Result(requeue_after=60.0)
>>> class Once:
...     def start(self, queue, stop):
...         queue.add(Request("default", "web"), reason="example")
>>> controller = Controller("example", reconcile)
>>> controller.watch(Once())
>>> controller.process_next()  # a program calls run(stop), or adds it to a Manager
look at default/web
True
>>> controller.close()

Guarantees:
    * Reconciles of one request never overlap, with any number of workers.
    * A request is reconciled until that succeeds, is given up (``max_attempts``) or fails
      terminally; one that is added meanwhile is reconciled once more.
    * No reconcile starts before every source has added its initial requests.
    * No request is reconciled before it is due, and none waits for another one's backoff.

Caveats:
    * A reconciler must be idempotent: it may be called again after a half-done try.
    * A constant stream of requests with a high priority delays those with a lower one.
    * Plain Python code cannot be interrupted: at a deadline or a stop a reconciler has to check
      ``reconcile_context().stop``.
    * A read from a cache may be older than the reconciler's last write, unless it reads through
      the manager's client.

Errors: an error of a reconciler is logged, counted and retried. :meth:`Controller.run` ends with an
error when a source fails or does not sync in time, when threads outlive the stop, and with
``recover_exceptions=False`` at a bug in a reconciler. Constructors refuse wrong options.
"""

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

# Imported when they are used: programs with watchers use few of them.
if TYPE_CHECKING:
    from appsdk_operator.controllers import until as until
    from appsdk_operator.controllers._builder import BuilderError as BuilderError
    from appsdk_operator.controllers._builder import ControllerBuilder as ControllerBuilder
    from appsdk_operator.controllers._builder import ControllerHost as ControllerHost
    from appsdk_operator.controllers._builder import Draft as Draft
    from appsdk_operator.controllers._builder import controller_for as controller_for
    from appsdk_operator.controllers._engine.context import ReconcileContext as ReconcileContext
    from appsdk_operator.controllers._engine.context import reconcile_context as reconcile_context
    from appsdk_operator.controllers._engine.controller import Controller as Controller
    from appsdk_operator.controllers._engine.failures import (
        retry_after_seconds as retry_after_seconds,
    )
    from appsdk_operator.controllers._engine.failures import sole_error as sole_error
    from appsdk_operator.controllers._engine.hot_loops import HotLoops as HotLoops
    from appsdk_operator.controllers._field_paths import FieldPath as FieldPath
    from appsdk_operator.controllers._field_paths import is_same_json as is_same_json
    from appsdk_operator.controllers._handlers import HandlerFunction as HandlerFunction
    from appsdk_operator.controllers._handlers import HandlerFunctions as HandlerFunctions
    from appsdk_operator.controllers._handlers import for_object as for_object
    from appsdk_operator.controllers._handlers import for_owner as for_owner
    from appsdk_operator.controllers._handlers import map_objects as map_objects
    from appsdk_operator.controllers._handlers import (
        with_low_priority_when_unchanged as with_low_priority_when_unchanged,
    )
    from appsdk_operator.controllers._helpers.conditions import Condition as Condition
    from appsdk_operator.controllers._helpers.conditions import ConditionStatus as ConditionStatus
    from appsdk_operator.controllers._helpers.conditions import get_condition as get_condition
    from appsdk_operator.controllers._helpers.conditions import (
        is_condition_false as is_condition_false,
    )
    from appsdk_operator.controllers._helpers.conditions import (
        is_condition_true as is_condition_true,
    )
    from appsdk_operator.controllers._helpers.conditions import patch_conditions as patch_conditions
    from appsdk_operator.controllers._helpers.conditions import remove_condition as remove_condition
    from appsdk_operator.controllers._helpers.conditions import set_condition as set_condition
    from appsdk_operator.controllers._helpers.create_or_update import (
        OperationResult as OperationResult,
    )
    from appsdk_operator.controllers._helpers.create_or_update import Written as Written
    from appsdk_operator.controllers._helpers.create_or_update import apply as apply
    from appsdk_operator.controllers._helpers.create_or_update import (
        create_or_patch as create_or_patch,
    )
    from appsdk_operator.controllers._helpers.create_or_update import (
        create_or_update as create_or_update,
    )
    from appsdk_operator.controllers._helpers.finalizer_helper import (
        FinalizeErrors as FinalizeErrors,
    )
    from appsdk_operator.controllers._helpers.finalizer_helper import (
        FinalizeResult as FinalizeResult,
    )
    from appsdk_operator.controllers._helpers.finalizer_helper import (
        FinalizerRegistry as FinalizerRegistry,
    )
    from appsdk_operator.controllers._helpers.finalizer_helper import Finalizing as Finalizing
    from appsdk_operator.controllers._helpers.finalizer_helper import (
        FinalizingOutcome as FinalizingOutcome,
    )
    from appsdk_operator.controllers._helpers.finalizer_helper import finalizing as finalizing
    from appsdk_operator.controllers._helpers.finalizers import (
        MAX_FINALIZER_NAME as MAX_FINALIZER_NAME,
    )
    from appsdk_operator.controllers._helpers.finalizers import FinalizerError as FinalizerError
    from appsdk_operator.controllers._helpers.finalizers import Finalizers as Finalizers
    from appsdk_operator.controllers._helpers.finalizers import add_finalizer as add_finalizer
    from appsdk_operator.controllers._helpers.finalizers import check_finalizer as check_finalizer
    from appsdk_operator.controllers._helpers.finalizers import has_finalizer as has_finalizer
    from appsdk_operator.controllers._helpers.finalizers import put_finalizer as put_finalizer
    from appsdk_operator.controllers._helpers.finalizers import remove_finalizer as remove_finalizer
    from appsdk_operator.controllers._helpers.finalizers import (
        take_finalizer_off as take_finalizer_off,
    )
    from appsdk_operator.controllers._helpers.guarded import PatchClient as PatchClient
    from appsdk_operator.controllers._helpers.owners import AlreadyOwnedError as AlreadyOwnedError
    from appsdk_operator.controllers._helpers.owners import OwnerError as OwnerError
    from appsdk_operator.controllers._helpers.owners import controller_of as controller_of
    from appsdk_operator.controllers._helpers.owners import (
        has_controller_reference as has_controller_reference,
    )
    from appsdk_operator.controllers._helpers.owners import (
        has_owner_reference as has_owner_reference,
    )
    from appsdk_operator.controllers._helpers.owners import (
        remove_controller_reference as remove_controller_reference,
    )
    from appsdk_operator.controllers._helpers.owners import (
        remove_owner_reference as remove_owner_reference,
    )
    from appsdk_operator.controllers._helpers.owners import (
        set_controller_reference as set_controller_reference,
    )
    from appsdk_operator.controllers._helpers.owners import (
        set_owner_reference as set_owner_reference,
    )
    from appsdk_operator.controllers._helpers.wait_for import WaitStopped as WaitStopped
    from appsdk_operator.controllers._helpers.wait_for import wait_for as wait_for
    from appsdk_operator.controllers._object_reconciler import (
        ObjectReconcileFunction as ObjectReconcileFunction,
    )
    from appsdk_operator.controllers._object_reconciler import ObjectReconciler as ObjectReconciler
    from appsdk_operator.controllers._object_reconciler import as_reconciler as as_reconciler
    from appsdk_operator.controllers._options import ControllerOptions as ControllerOptions
    from appsdk_operator.controllers._predicates import Predicate as Predicate
    from appsdk_operator.controllers._predicates import all_of as all_of
    from appsdk_operator.controllers._predicates import annotation_changed as annotation_changed
    from appsdk_operator.controllers._predicates import any_of as any_of
    from appsdk_operator.controllers._predicates import as_predicates as as_predicates
    from appsdk_operator.controllers._predicates import deletion_requested as deletion_requested
    from appsdk_operator.controllers._predicates import fields_changed as fields_changed
    from appsdk_operator.controllers._predicates import finalizers_changed as finalizers_changed
    from appsdk_operator.controllers._predicates import generation_changed as generation_changed
    from appsdk_operator.controllers._predicates import label_changed as label_changed
    from appsdk_operator.controllers._predicates import label_selector as label_selector
    from appsdk_operator.controllers._predicates import not_ as not_
    from appsdk_operator.controllers._predicates import (
        resource_version_changed as resource_version_changed,
    )
    from appsdk_operator.controllers._predicates import status_changed as status_changed
    from appsdk_operator.controllers._protocols import LOW_PRIORITY as LOW_PRIORITY
    from appsdk_operator.controllers._protocols import EventFilter as EventFilter
    from appsdk_operator.controllers._protocols import Handler as Handler
    from appsdk_operator.controllers._protocols import JoinableSource as JoinableSource
    from appsdk_operator.controllers._protocols import RequestQueue as RequestQueue
    from appsdk_operator.controllers._protocols import Source as Source
    from appsdk_operator.controllers._protocols import SyncingSource as SyncingSource
    from appsdk_operator.controllers._reasons import compact_reason as compact_reason
    from appsdk_operator.controllers._reconcile import Outcome as Outcome
    from appsdk_operator.controllers._reconcile import ReconcileFunction as ReconcileFunction
    from appsdk_operator.controllers._reconcile import Reconciler as Reconciler
    from appsdk_operator.controllers._reconcile import Request as Request
    from appsdk_operator.controllers._reconcile import Result as Result
    from appsdk_operator.controllers._reconcile import RetryAfter as RetryAfter
    from appsdk_operator.controllers._reconcile import TerminalError as TerminalError
    from appsdk_operator.controllers._reconcile import check_ignored_result as check_ignored_result
    from appsdk_operator.controllers._sources.channel import ChannelClosed as ChannelClosed
    from appsdk_operator.controllers._sources.channel import ChannelSource as ChannelSource
    from appsdk_operator.controllers._sources.function import FunctionSource as FunctionSource
    from appsdk_operator.controllers._sources.function import PollingSource as PollingSource
    from appsdk_operator.controllers._sources.function import TimerSource as TimerSource
    from appsdk_operator.controllers._sources.kind import InformerSource as InformerSource
    from appsdk_operator.controllers._sources.kind import KindSource as KindSource
    from appsdk_operator.controllers._wrong_outcome import wrong_outcome as wrong_outcome

_MODULES = {
    "controllers.until": ("until",),
    "controllers._builder": (
        "BuilderError",
        "ControllerBuilder",
        "ControllerHost",
        "controller_for",
    ),
    "controllers._sources.channel": (
        "ChannelClosed",
        "ChannelSource",
    ),
    "controllers._helpers.conditions": (
        "Condition",
        "ConditionStatus",
        "get_condition",
        "is_condition_false",
        "is_condition_true",
        "patch_conditions",
        "remove_condition",
        "set_condition",
    ),
    "controllers._engine.context": (
        "ReconcileContext",
        "reconcile_context",
    ),
    "controllers._engine.controller": ("Controller",),
    "controllers._helpers.create_or_update": (
        "OperationResult",
        "Written",
        "apply",
        "create_or_patch",
        "create_or_update",
    ),
    "controllers._helpers.finalizers": (
        "FinalizerError",
        "add_finalizer",
        "has_finalizer",
        "put_finalizer",
        "remove_finalizer",
        "take_finalizer_off",
    ),
    "controllers._helpers.finalizer_helper": (
        "FinalizeErrors",
        "FinalizeResult",
        "FinalizerRegistry",
        "Finalizing",
        "FinalizingOutcome",
        "finalizing",
    ),
    "controllers._sources.function": (
        "FunctionSource",
        "PollingSource",
        "TimerSource",
    ),
    "controllers._handlers": (
        "HandlerFunction",
        "HandlerFunctions",
        "for_object",
        "for_owner",
        "map_objects",
        "with_low_priority_when_unchanged",
    ),
    "controllers._sources.kind": (
        "InformerSource",
        "KindSource",
    ),
    "controllers._object_reconciler": (
        "ObjectReconcileFunction",
        "ObjectReconciler",
        "as_reconciler",
    ),
    "controllers._options": ("ControllerOptions",),
    "controllers._helpers.owners": (
        "AlreadyOwnedError",
        "OwnerError",
        "controller_of",
        "has_controller_reference",
        "has_owner_reference",
        "remove_controller_reference",
        "remove_owner_reference",
        "set_controller_reference",
        "set_owner_reference",
    ),
    "controllers._predicates": (
        "Predicate",
        "all_of",
        "annotation_changed",
        "any_of",
        "deletion_requested",
        "fields_changed",
        "finalizers_changed",
        "generation_changed",
        "label_changed",
        "label_selector",
        "not_",
        "resource_version_changed",
        "status_changed",
    ),
    "controllers._protocols": (
        "LOW_PRIORITY",
        "EventFilter",
        "Handler",
        "JoinableSource",
        "RequestQueue",
        "Source",
        "SyncingSource",
    ),
    "controllers._reconcile": (
        "Outcome",
        "ReconcileFunction",
        "Reconciler",
        "Request",
        "Result",
        "RetryAfter",
        "TerminalError",
    ),
    "controllers._helpers.wait_for": (
        "WaitStopped",
        "wait_for",
    ),
}
# Not part of the public surface.
_FOR_OTHER_ROOMS = {
    "controllers._builder": ("Draft",),
    "controllers._engine.failures": ("retry_after_seconds", "sole_error"),
    "controllers._engine.hot_loops": ("HotLoops",),
    "controllers._field_paths": ("FieldPath", "is_same_json"),
    "controllers._predicates": ("as_predicates",),
    "controllers._helpers.finalizers": (
        "Finalizers",
        "MAX_FINALIZER_NAME",
        "check_finalizer",
    ),
    "controllers._helpers.guarded": ("PatchClient",),
    "controllers._reconcile": ("check_ignored_result",),
    "controllers._reasons": ("compact_reason",),
    "controllers._wrong_outcome": ("wrong_outcome",),
}
_HOMES = homes(_MODULES, _FOR_OTHER_ROOMS)

__all__ = [*homes(_MODULES)]  # noqa: PLE0604 - strings, all of them

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
