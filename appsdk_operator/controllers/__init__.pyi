from appsdk_operator.controllers import (
    until as until,
)
from appsdk_operator.controllers._builder import (
    BuilderError as BuilderError,
    ControllerBuilder as ControllerBuilder,
    ControllerHost as ControllerHost,
    controller_for as controller_for,
)
from appsdk_operator.controllers._engine.context import (
    ReconcileContext as ReconcileContext,
    reconcile_context as reconcile_context,
)
from appsdk_operator.controllers._engine.controller import (
    Controller as Controller,
)
from appsdk_operator.controllers._handlers import (
    HandlerFunctions as HandlerFunctions,
    for_object as for_object,
    for_owner as for_owner,
    map_objects as map_objects,
    with_low_priority_when_unchanged as with_low_priority_when_unchanged,
)
from appsdk_operator.controllers._helpers.conditions import (
    Condition as Condition,
    ConditionStatus as ConditionStatus,
    get_condition as get_condition,
    is_condition_true as is_condition_true,
    patch_conditions as patch_conditions,
    remove_condition as remove_condition,
    set_condition as set_condition,
)
from appsdk_operator.controllers._helpers.create_or_update import (
    OperationResult as OperationResult,
    apply as apply,
    create_or_patch as create_or_patch,
    create_or_update as create_or_update,
)
from appsdk_operator.controllers._helpers.finalizer_helper import (
    FinalizeErrors as FinalizeErrors,
    FinalizerRegistry as FinalizerRegistry,
    Finalizing as Finalizing,
    finalizing as finalizing,
)
from appsdk_operator.controllers._helpers.finalizer_error import (
    FinalizerError as FinalizerError,
)
from appsdk_operator.controllers._helpers.finalizers import (
    add_finalizer as add_finalizer,
    has_finalizer as has_finalizer,
    put_finalizer as put_finalizer,
    remove_finalizer as remove_finalizer,
    take_finalizer_off as take_finalizer_off,
)
from appsdk_operator.controllers._helpers.owners import (
    AlreadyOwnedError as AlreadyOwnedError,
    OwnerError as OwnerError,
    controller_of as controller_of,
    has_controller_reference as has_controller_reference,
    has_owner_reference as has_owner_reference,
    remove_controller_reference as remove_controller_reference,
    remove_owner_reference as remove_owner_reference,
    set_controller_reference as set_controller_reference,
    set_owner_reference as set_owner_reference,
)
from appsdk_operator.controllers._wait_for import (
    WaitStopped as WaitStopped,
    wait_for as wait_for,
)
from appsdk_operator.controllers._object_reconciler import (
    ObjectReconciler as ObjectReconciler,
    as_reconciler as as_reconciler,
)
from appsdk_operator.controllers._options import (
    ControllerOptions as ControllerOptions,
)
from appsdk_operator.controllers._predicates import (
    Predicate as Predicate,
    all_of as all_of,
    annotation_changed as annotation_changed,
    any_of as any_of,
    deletion_requested as deletion_requested,
    finalizers_changed as finalizers_changed,
    generation_changed as generation_changed,
    label_changed as label_changed,
    not_ as not_,
    resource_version_changed as resource_version_changed,
    status_changed as status_changed,
)
from appsdk_operator.controllers._protocols import (
    LOW_PRIORITY as LOW_PRIORITY,
    Handler as Handler,
    JoinableSource as JoinableSource,
    RequestQueue as RequestQueue,
    Source as Source,
    SyncingSource as SyncingSource,
)
from appsdk_operator.controllers._reconcile import (
    ReconcileFunction as ReconcileFunction,
    Reconciler as Reconciler,
    Request as Request,
    Result as Result,
    RetryAfter as RetryAfter,
    TerminalError as TerminalError,
)
from appsdk_operator.controllers._sources.channel import (
    ChannelClosed as ChannelClosed,
    ChannelSource as ChannelSource,
)
from appsdk_operator.controllers._sources.function import (
    FunctionSource as FunctionSource,
    PollingSource as PollingSource,
    TimerSource as TimerSource,
)
from appsdk_operator.controllers._sources.kind import (
    InformerSource as InformerSource,
    KindSource as KindSource,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.controllers._builder import (
    Draft as Draft,
)
from appsdk_operator.controllers._engine.failures import (
    retry_after_seconds as retry_after_seconds,
    sole_error as sole_error,
)
from appsdk_operator.controllers._engine.hot_loops import (
    HOT_CALLS as HOT_CALLS,
    HOT_TIME as HOT_TIME,
    HotLoops as HotLoops,
)
from appsdk_operator.controllers._handlers import (
    HandlerFunction as HandlerFunction,
)
from appsdk_operator.controllers._helpers.conditions import (
    is_condition_false as is_condition_false,
)
from appsdk_operator.controllers._helpers.create_or_update import (
    Written as Written,
)
from appsdk_operator.controllers._helpers.finalizer_helper import (
    FinalizeResult as FinalizeResult,
    FinalizingOutcome as FinalizingOutcome,
)
from appsdk_operator.controllers._helpers.finalizers import (
    MAX_FINALIZER_NAME as MAX_FINALIZER_NAME,
    Finalizers as Finalizers,
    check_finalizer as check_finalizer,
)
from appsdk_operator.controllers._helpers.guarded import (
    PatchAbandonedError as PatchAbandonedError,
    PatchClient as PatchClient,
    guarded_patch as guarded_patch,
    uid_guard as uid_guard,
)
from appsdk_operator.controllers._object_reconciler import (
    ObjectReconcileFunction as ObjectReconcileFunction,
)
from appsdk_operator.controllers._predicates import (
    EventFilter as EventFilter,
    as_predicates as as_predicates,
    event_predicates as event_predicates,
)
from appsdk_operator.controllers._reasons import (
    compact_reason as compact_reason,
)
from appsdk_operator.controllers._reconcile import (
    Outcome as Outcome,
    check_ignored_result as check_ignored_result,
)
from appsdk_operator.controllers._wrong_outcome import (
    wrong_outcome as wrong_outcome,
)
