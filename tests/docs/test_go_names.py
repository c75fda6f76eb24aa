"""The names of grafana-app-sdk's operator package and of controller-runtime have a place here."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/go-names.md"

# The exported names of the package at v0.9.10, with their exported methods and fields.
MEMBERS = {
    "Operator": ["AddController", "Run"],
    "Controller": ["Run"],
    "InformerController": [
        "AddInformer",
        "AddWatcher",
        "RemoveWatcher",
        "RemoveAllWatchersForResource",
        "Run",
        "ErrorHandler",
        "RetryPolicy",
        "RetryDequeuePolicy",
    ],
    "Informer": ["AddEventHandler", "Run"],
    "KubernetesBasedInformer": [
        "AddEventHandler",
        "Run",
        "Schema",
        "ErrorHandler",
        "SharedIndexInformer",
    ],
    "ResourceWatcher": ["Add", "Update", "Delete"],
    "SimpleWatcher": ["AddFunc", "UpdateFunc", "DeleteFunc", "Add", "Update", "Delete"],
    "OpinionatedWatcher": [
        "AddFunc",
        "UpdateFunc",
        "DeleteFunc",
        "SyncFunc",
        "Add",
        "Update",
        "Delete",
        "Wrap",
    ],
    "ListMap": [
        "AddItem",
        "AddItems",
        "ItemAt",
        "KeySize",
        "Keys",
        "Size",
        "Range",
        "RangeAll",
        "RemoveItem",
        "RemoveItems",
        "RemoveItemAt",
        "RemoveKey",
    ],
}
OTHERS = [
    "New",
    "NewInformerController",
    "ErrInformerAlreadyAdded",
    "NewKubernetesBasedInformer",
    "NewKubernetesBasedInformerWithFilters",
    "EmptyLabelFilters",
    "ListWatchClient",
    "KubernetesCompatibleWatch",
    "ResourceObjectWrapper",
    "ConvertableIntoResourceObject",
    "NewOpinionatedWatcher",
    "NewOpinionatedWatcherWithFinalizer",
    "FinalizerSupplier",
    "DefaultFinalizerSupplier",
    "PatchClient",
    "RetryPolicy",
    "ExponentialBackoffRetryPolicy",
    "DefaultRetryPolicy",
    "RetryDequeuePolicy",
    "OpinionatedRetryDequeuePolicy",
    "ResourceAction",
    "ResourceActionCreate",
    "ResourceActionUpdate",
    "ResourceActionDelete",
    "NewListMap",
]
# What a program uses of the packages resource and k8s.
RESOURCE = [
    "resource.Schema",
    "resource.Object",
    "resource.Identifier",
    "resource.PatchRequest",
    "resource.Store",
    "resource.TypedStore",
    "resource.SimpleStore",
    "resource.Kind",
    "resource.StaticMetadata",
    "resource.CommonMetadata",
    "resource.Client",
    "resource.NamespacedClient",
    "resource.ClientGenerator",
    "resource.DiscoveryClient",
    "resource.UpdateObject",
    "k8s.ClientRegistry",
    "k8s.NewClientRegistry",
    "k8s.ClientConfig",
    "k8s.DefaultClientConfig",
    "k8s.Client",
    "k8s.SchemalessClient",
    "k8s.DynamicPatcher",
    "k8s.DiscoveryClient",
    "k8s.ResourceManager",
    "k8s.ServerResponseError",
]
LATER = [
    "ResourceActionResync",
    "Informer.WaitForSync",
    "InformerController.RemoveInformer",
    "InformerControllerConfig",
    "InformerOptions",
    "ConcurrentInformer",
    "InProgressFinalizerSupplier",
    "OpinionatedWatcherConfig",
    "FinalizerOperationError",
    "ListWatchOptions",
    "LoadOperatorRestConfig",
    "Reconciler",
    "Reconciler.Reconcile",
    "ReconcileRequest",
    "ReconcileResult",
    "ReconcileAction",
    "SimpleReconciler",
    "TypedReconciler",
    "OpinionatedReconciler",
    "NewOpinionatedReconciler",
    "OpinionatedReconciler.Wrap",
    "InformerController.AddReconciler",
    "InformerController.RemoveReconciler",
    "InformerController.RemoveAllReconcilersForResource",
]
# The words of controller-runtime that a program is written with, by package.
CONTROLLER_RUNTIME = [
    "builder.ControllerManagedBy",
    "builder.TypedControllerManagedBy",
    "builder.Builder",
    "builder.Builder.For",
    "builder.Builder.Owns",
    "builder.Builder.Watches",
    "builder.Builder.WatchesMetadata",
    "builder.Builder.WatchesRawSource",
    "builder.Builder.WithEventFilter",
    "builder.Builder.WithOptions",
    "builder.Builder.WithLogConstructor",
    "builder.Builder.Named",
    "builder.Builder.Complete",
    "builder.Builder.Build",
    "builder.WithPredicates",
    "builder.OnlyMetadata",
    "builder.MatchEveryOwner",
    "controller.Controller",
    "controller.New",
    "controller.NewUnmanaged",
    "controller.Controller.Watch",
    "controller.Controller.Start",
    "controller.Options",
    "controller.Options.MaxConcurrentReconciles",
    "controller.Options.CacheSyncTimeout",
    "controller.Options.RecoverPanic",
    "controller.Options.NeedLeaderElection",
    "controller.Options.RateLimiter",
    "controller.Options.ReconciliationTimeout",
    "controller.Options.EnableWarmup",
    "controller.Options.SkipNameValidation",
    "config.Controller",
    "config.Controller.GroupKindConcurrency",
    "reconcile.Reconciler",
    "reconcile.Func",
    "reconcile.ObjectReconciler",
    "reconcile.AsReconciler",
    "reconcile.Request",
    "reconcile.Result",
    "reconcile.Result.RequeueAfter",
    "reconcile.Result.Priority",
    "reconcile.TerminalError",
    "controller.ReconcileIDFromContext",
    "log.FromContext",
    "event.CreateEvent",
    "event.UpdateEvent",
    "event.DeleteEvent",
    "event.GenericEvent",
    "handler.EventHandler",
    "handler.EnqueueRequestForObject",
    "handler.EnqueueRequestForOwner",
    "handler.OnlyControllerOwner",
    "handler.EnqueueRequestsFromMapFunc",
    "handler.Funcs",
    "handler.WithLowPriorityWhenUnchanged",
    "handler.LowPriority",
    "predicate.Predicate",
    "predicate.Funcs",
    "predicate.NewPredicateFuncs",
    "predicate.ResourceVersionChangedPredicate",
    "predicate.GenerationChangedPredicate",
    "predicate.AnnotationChangedPredicate",
    "predicate.LabelChangedPredicate",
    "predicate.LabelSelectorPredicate",
    "predicate.And",
    "predicate.Or",
    "predicate.Not",
    "source.Source",
    "source.SyncingSource",
    "source.Kind",
    "source.Informer",
    "source.Channel",
    "source.WithBufferSize",
    "source.Func",
    "workqueue.PriorityQueue",
    "workqueue.TypedRateLimiter",
    "client.Client",
    "client.New",
    "client.Reader",
    "client.NewDryRunClient",
    "client.NewNamespacedClient",
    "client.WithFieldOwner",
    "interceptor.NewClient",
    "interceptor.Funcs",
    "client.MergeFrom",
    "client.StrategicMergeFrom",
    "client.RawPatch",
    "client.Apply",
    "client.SubResourceClient",
    "client.StatusWriter",
    "client.IgnoreNotFound",
    "config.GetConfig",
    "manager.Manager",
    "manager.New",
    "manager.Options",
    "manager.Manager.Add",
    "manager.Manager.Start",
    "manager.Manager.Elected",
    "manager.Manager.AddHealthzCheck",
    "manager.Manager.AddReadyzCheck",
    "manager.Manager.AddMetricsServerExtraHandler",
    "manager.Manager.GetClient",
    "manager.Manager.GetAPIReader",
    "manager.Manager.GetCache",
    "manager.Manager.GetEventRecorder",
    "manager.Manager.GetWebhookServer",
    "manager.Manager.GetControllerOptions",
    "manager.Runnable",
    "manager.RunnableFunc",
    "manager.LeaderElectionRunnable",
    "manager.Server",
    "cluster.Cluster",
    "signals.SetupSignalHandler",
    "leaderelection.Options",
    "healthz.Checker",
    "controllerutil.CreateOrUpdate",
    "controllerutil.CreateOrPatch",
    "controllerutil.OperationResult",
    "controllerutil.SetControllerReference",
    "controllerutil.SetOwnerReference",
    "controllerutil.RemoveControllerReference",
    "controllerutil.RemoveOwnerReference",
    "controllerutil.HasControllerReference",
    "controllerutil.HasOwnerReference",
    "controllerutil.WithBlockOwnerDeletion",
    "controllerutil.AlreadyOwnedError",
    "controllerutil.AddFinalizer",
    "controllerutil.RemoveFinalizer",
    "controllerutil.ContainsFinalizer",
    "finalizer.Finalizers",
]
NAMES = [
    *MEMBERS,
    *(f"{owner}.{member}" for owner, members in MEMBERS.items() for member in members),
    *OTHERS,
    *RESOURCE,
    *LATER,
    *CONTROLLER_RUNTIME,
]


def rows() -> list[tuple[str, str, str]]:
    """The Go name, the Python name and the remark of each row of the page."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \| (.*?) ?\|$", text, re.MULTILINE)


def look_up(path: str) -> Any:
    """What a dotted path leads to."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise LookupError(path)


def test_the_page_has_a_row_for_each_go_name_and_no_others() -> None:
    assert sorted(go for go, _, _ in rows()) == sorted(NAMES)


def test_every_table_line_of_the_page_was_read() -> None:
    lines = re.findall(r"^\| `", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == len(rows())


def arguments() -> list[tuple[str, str]]:
    """The callable and the name of each argument that a row speaks of."""
    return [
        (python, argument)
        for _, python, remark in rows()
        if remark.startswith("argument")
        for argument in re.findall(r"`(\w+)`", remark.partition(";")[0])
    ]


@pytest.mark.parametrize("python", sorted({python for _, python, _ in rows()}))
def test_the_python_name_is_there_and_documented(python: str) -> None:
    found = look_up(python)
    # Aliases of types cannot carry a docstring, and that of __len__ is the language's.
    if (inspect.isclass(found) or inspect.isroutine(found)) and not python.endswith("__"):
        assert found.__doc__


@pytest.mark.parametrize(("python", "argument"), arguments())
def test_the_argument_of_which_a_row_speaks_is_taken(python: str, argument: str) -> None:
    assert argument in inspect.signature(look_up(python)).parameters
