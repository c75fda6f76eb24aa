"""Watchers: functions that are called for the events of objects, as in grafana-app-sdk.

An :class:`InformerController` connects informers with watchers by kind. The watchers of a kind run
one after another, in the order in which they were added. When one raises, its call is retried as
the :class:`RetryPolicy` says. An :class:`OpinionatedWatcher` adds a finalizer, so that it misses no
deletion, even if no process runs at the time.

A reconciler (:class:`ResourceReconciler`) is called like a watcher, but has one method for all
actions and may ask for another call. :meth:`InformerController.add_cache` takes events from the
informers of a shared cache.

Guarantees, for watchers and reconcilers:
    1. Events of one object come in resourceVersion order; for one event the watchers run in add
       order, the next one after the previous has returned.
    2. Calls for one object never overlap: neither two events nor an event and a retry.
    3. With one worker the order is global; with more, different objects are handled in parallel.
    4. A failing watcher does not keep the event from the others; its retry runs when it is due.
    5. When events stop and the handlers succeed, every watcher's last seen state is the store's.
    6. An OpinionatedWatcher never releases an object whose delete callback has not succeeded, never
       changes another finalizer, and calls add for each object at least once.

Caveats:
    * 5 needs a retry policy that does not give up, or a resync.
    * A callback that blocks occupies its worker; give the controller more workers.
"""

from appsdk_operator.cache import ResourceAction as ResourceAction
from appsdk_operator.controllers import FinalizerError as FinalizerError
from appsdk_operator.controllers import PatchClient as PatchClient
from appsdk_operator.watchers._failures import ErrorHandler as ErrorHandler
from appsdk_operator.watchers._finalizer_names import FinalizerSupplier as FinalizerSupplier
from appsdk_operator.watchers._finalizer_names import OperatorFinalizer as OperatorFinalizer
from appsdk_operator.watchers._finalizer_names import default_finalizer as default_finalizer
from appsdk_operator.watchers._finalizer_names import finalizer_names as finalizer_names
from appsdk_operator.watchers._finalizer_names import in_progress_finalizer as in_progress_finalizer
from appsdk_operator.watchers._informer_binding import RunnableInformer as RunnableInformer
from appsdk_operator.watchers._informer_controller import InformerController as InformerController
from appsdk_operator.watchers._kubernetes_informer import KubernetesInformer as KubernetesInformer
from appsdk_operator.watchers._list_map import ListMap as ListMap
from appsdk_operator.watchers._object_timer import ObjectTimer as ObjectTimer
from appsdk_operator.watchers._opinionated import OpinionatedWatcher as OpinionatedWatcher
from appsdk_operator.watchers._opinionated_reconciler import (
    OpinionatedReconciler as OpinionatedReconciler,
)
from appsdk_operator.watchers._pending_calls import WatcherCall as WatcherCall
from appsdk_operator.watchers._reconciler import KeyReconciler as KeyReconciler
from appsdk_operator.watchers._reconciler import ReconcileRequest as ReconcileRequest
from appsdk_operator.watchers._reconciler import ResourceReconciler as ResourceReconciler
from appsdk_operator.watchers._reconciler import SelectiveReconciler as SelectiveReconciler
from appsdk_operator.watchers._reconciler import SimpleReconciler as SimpleReconciler
from appsdk_operator.watchers._retry import ConstantBackoff as ConstantBackoff
from appsdk_operator.watchers._retry import ExponentialBackoff as ExponentialBackoff
from appsdk_operator.watchers._retry import RetryDequeuePolicy as RetryDequeuePolicy
from appsdk_operator.watchers._retry import RetryPolicy as RetryPolicy
from appsdk_operator.watchers._retry import TenacityRetry as TenacityRetry
from appsdk_operator.watchers._retry import default_retry_policy as default_retry_policy
from appsdk_operator.watchers._retry import keep_all_retries as keep_all_retries
from appsdk_operator.watchers._retry import never_retry as never_retry
from appsdk_operator.watchers._retry import (
    opinionated_retry_dequeue_policy as opinionated_retry_dequeue_policy,
)
from appsdk_operator.watchers._watcher import ResourceWatcher as ResourceWatcher
from appsdk_operator.watchers._watcher import SelectiveWatcher as SelectiveWatcher
from appsdk_operator.watchers._watcher import SimpleWatcher as SimpleWatcher

__all__ = [
    "ConstantBackoff",
    "ErrorHandler",
    "ExponentialBackoff",
    "FinalizerError",
    "FinalizerSupplier",
    "InformerController",
    "KeyReconciler",
    "KubernetesInformer",
    "ListMap",
    "OpinionatedReconciler",
    "OpinionatedWatcher",
    "PatchClient",
    "ReconcileRequest",
    "ResourceAction",
    "ResourceReconciler",
    "ResourceWatcher",
    "RetryDequeuePolicy",
    "RetryPolicy",
    "RunnableInformer",
    "SelectiveReconciler",
    "SelectiveWatcher",
    "SimpleReconciler",
    "SimpleWatcher",
    "TenacityRetry",
    "WatcherCall",
    "default_finalizer",
    "default_retry_policy",
    "in_progress_finalizer",
    "keep_all_retries",
    "never_retry",
    "opinionated_retry_dequeue_policy",
]
