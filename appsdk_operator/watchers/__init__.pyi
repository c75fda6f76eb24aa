from appsdk_operator.controllers import (
    PatchClient as PatchClient,
)
from appsdk_operator.watchers._dispatch.failures import (
    ErrorHandler as ErrorHandler,
    WatcherCall as WatcherCall,
)
from appsdk_operator.watchers._finalizers.names import (
    FinalizerSupplier as FinalizerSupplier,
    default_finalizer as default_finalizer,
    in_progress_finalizer as in_progress_finalizer,
)
from appsdk_operator.watchers._informers.owned import (
    RunnableInformer as RunnableInformer,
)
from appsdk_operator.watchers._informer_controller import (
    InformerController as InformerController,
)
from appsdk_operator.watchers._informers.kubernetes_informer import (
    KubernetesInformer as KubernetesInformer,
)
from appsdk_operator.watchers._list_map import (
    ListMap as ListMap,
)
from appsdk_operator.watchers._opinionated import (
    OpinionatedWatcher as OpinionatedWatcher,
)
from appsdk_operator.watchers._opinionated_reconciler import (
    OpinionatedReconciler as OpinionatedReconciler,
)
from appsdk_operator.watchers._reconciler import (
    KeyReconciler as KeyReconciler,
    ReconcileRequest as ReconcileRequest,
    ResourceReconciler as ResourceReconciler,
    SelectiveReconciler as SelectiveReconciler,
    SimpleReconciler as SimpleReconciler,
)
from appsdk_operator.watchers._retry import (
    RetryDequeuePolicy as RetryDequeuePolicy,
    default_retry_policy as default_retry_policy,
    keep_all_retries as keep_all_retries,
    opinionated_retry_dequeue_policy as opinionated_retry_dequeue_policy,
)
from appsdk_operator.watchers._watcher import (
    ResourceWatcher as ResourceWatcher,
    SelectiveWatcher as SelectiveWatcher,
    SimpleWatcher as SimpleWatcher,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.runtime import (
    ConstantBackoff as ConstantBackoff,
    ExponentialBackoff as ExponentialBackoff,
    RetryPolicy as RetryPolicy,
    TenacityRetry as TenacityRetry,
    never_retry as never_retry,
)
from appsdk_operator.watchers._retry import (
    RETRY_ANNOTATION as RETRY_ANNOTATION,
    is_asked_again as is_asked_again,
)
from appsdk_operator.watchers._checks import (
    check_calls as check_calls,
)
from appsdk_operator.watchers._finalizers.names import (
    JoinedFinalizer as JoinedFinalizer,
    finalizer_names as finalizer_names,
)
from appsdk_operator.watchers._finalizers.lifecycle import (
    FinalizerLifecycle as FinalizerLifecycle,
)
from appsdk_operator.watchers._finalizers.transitions import (
    goes_back as goes_back,
)
from appsdk_operator.watchers._records import (
    RECORD_SUFFIX as RECORD_SUFFIX,
    has_other_records as has_other_records,
    object_without_records as object_without_records,
    without_records as without_records,
)
from appsdk_operator.watchers._level_based import (
    CalledFunction as CalledFunction,
    FailedFunction as FailedFunction,
    SteadyCall as SteadyCall,
    SteadyFunction as SteadyFunction,
    Waiting as Waiting,
)
