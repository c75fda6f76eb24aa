"""Watchers: functions that react to what happens to objects, as in grafana-app-sdk.

An :class:`InformerController` ties informers to watchers by kind. Watchers of a kind run one after
another, in the order in which they were added; one that raises is called again as its
:class:`RetryPolicy` says. An :class:`OpinionatedWatcher` adds a finalizer, so that deletions are
not missed while nobody watches.

A reconciler (:class:`ResourceReconciler`) takes its place among the watchers: it has one method for
everything, and may ask to be called again. With :meth:`InformerController.add_cache` events come
from the informers of a cache that others share.

Guarantees, for watchers and reconcilers:
    1. Events of one object come in resourceVersion order; for one event the watchers run in add
       order, the next one after the previous has returned.
    2. Nothing runs twice at once for one object: not two events, not an event and a retry.
    3. With one worker, order is global; with more, different objects run side by side.
    4. A failing watcher keeps no other watcher from the event; its retry runs when it is due.
    5. When events stop and the handlers succeed, every watcher's last seen state is the store's.
    6. An OpinionatedWatcher never lets an object go whose delete callback has not succeeded, never
       touches a foreign finalizer, and calls add for each object at least once.

Caveats:
    * 5 needs a retry policy that does not give up, or a resync.
    * Callbacks that block hold up their worker; give the controller more workers.
"""

from appsdk_operator.cache import ResourceAction as ResourceAction
from appsdk_operator.controllers import FinalizerError as FinalizerError
from appsdk_operator.controllers import PatchClient as PatchClient
from appsdk_operator.watchers._failures import ErrorHandler as ErrorHandler
from appsdk_operator.watchers._finalizer_names import FinalizerSupplier as FinalizerSupplier
from appsdk_operator.watchers._finalizer_names import default_finalizer as default_finalizer
from appsdk_operator.watchers._finalizer_names import in_progress_finalizer as in_progress_finalizer
from appsdk_operator.watchers._informer_binding import RunnableInformer as RunnableInformer
from appsdk_operator.watchers._informer_controller import InformerController as InformerController
from appsdk_operator.watchers._kubernetes_informer import KubernetesInformer as KubernetesInformer
from appsdk_operator.watchers._list_map import ListMap as ListMap
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
