"""The public names of each room: a new one is a decision, a missing one breaks somebody."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

NAMES = {
    "app": """
        App ExitStatus Permission RunOptions
    """,
    "cache": """
        BatchHandler Cache CacheOptions CacheRegistration CachedClient Delivery DeliveryKey
        Event EventHandler EventSource EventStream ForeignStream Handle Health IndexFunction
        Informer ListWatchClient Lister NamespaceOptions NotCachedError NotFollowedError
        NotSyncedError Overflow Registration ResourceAction Store Transform
        drop_managed_fields
    """,
    "client": """
        APIResource AlreadyExists ApiError BadRequest BadResponse Cause Client ClientConfig
        ClientError ClientLike ClientWrapper ConfigError Conflict ConnectFailed
        ConnectionLost Credentials Discovery DryRunClient Expired FieldOwnerClient
        FieldValidation Forbidden Gone Hooks Impersonation InterceptedClient InternalError
        Invalid JsonPatch MergePatch MethodNotAllowed NamespacedClient NoSuchKind
        NotAcceptable NotFound ObjectStore Patch Propagation ProxyFailed ReadTimeout Reader
        Request RequestEntityTooLarge RequestStopped ResponseTooLarge ServerError
        ServerTimeout ServerVersion ServiceUnavailable SpecStore StoreClient
        StrategicMergePatch SubresourceClient SubresourceLike SubresourceWrapper TLSFailed
        Timeout TooManyRequests TransportError Unauthorized UnsupportedMediaType WatchSilent
        WatchStream Writer WrongAnswer error_from_status from_model to_model
    """,
    "controllers": """
        AlreadyOwnedError BuilderError ChannelClosed ChannelSource Condition ConditionStatus
        Controller ControllerBuilder ControllerHost ControllerOptions EventFilter
        FinalizeErrors FinalizeResult FinalizerError FinalizerRegistry Finalizing
        FinalizingOutcome FunctionSource Handler HandlerFunction HandlerFunctions
        InformerSource JoinableSource KindSource LOW_PRIORITY ObjectReconcileFunction
        ObjectReconciler OperationResult Outcome OwnerError PollingSource Predicate
        ReconcileContext ReconcileFunction Reconciler Request RequestQueue Result RetryAfter
        Source SyncingSource TerminalError TimerSource WaitStopped Written add_finalizer
        all_of annotation_changed any_of apply as_reconciler controller_for controller_of
        create_or_patch create_or_update deletion_requested fields_changed
        finalizers_changed finalizing for_object for_owner generation_changed get_condition
        has_controller_reference has_finalizer has_owner_reference is_condition_false
        is_condition_true label_changed label_selector map_objects not_ patch_conditions
        put_finalizer reconcile_context remove_condition remove_controller_reference
        remove_finalizer remove_owner_reference resource_version_changed set_condition
        set_controller_reference set_owner_reference status_changed take_finalizer_off until
        wait_for with_low_priority_when_unchanged
    """,
    "manager": """
        AuthFilter CacheSetup CertificateFiles ClientSetup Cluster Elected Elector
        ElectorLike EventBroadcaster EventClient EventOptions EventRecorder FailureEvents Fence
        FencedClient HTTPFilter HTTPHandler HTTPLimits HTTPRequest HTTPResponse HTTPServer
        HealthCheck HealthChecks HealthServer HealthServerOptions LeaderElection
        LeaderElectionRunnable LeadershipLost LeaseClient Manager ManagerOptions
        MetricsServer MetricsServerOptions ObjectReference Operator OperatorController
        ProfileServer ProfileServerOptions ReadyRunnable Runnable RunnableGroup SHARDS_LABEL
        Shards TLSOptions WarmUpRunnable elector_config
    """,
    "project": """
        FileChange FileOutcome Finding GeneratedFiles Grants ManifestOptions ModelError
        ModelStyle Recording Roles UninstallAction UninstallError UninstallStep breaking_changes
        builtin_models dump_permissions helm_chart load_permissions manifests models read_crds
        roles uninstall
    """,
    "resource": """
        AnyObject ConversionError Converter DecodeError Duration EmbeddedObject
        EncodeError FieldError FieldName FieldPath FieldSelection FieldSelector Format
        Immutable Int32 Int64 IntOrString IntoObject JsonPatch Kind LabelSelection LabelSelector
        Lines ListPage ListType MapType MergePatch MetadataOnlyError MutableObject
        OMITTED Object ObjectKey ObjectWrapper OwnerReference Patch PatchError
        PatchTestFailed PreserveUnknown PrinterColumn Quantity ReadOnlyError Rule Schema Time
        Scale Scope SelectorError Spoke StrategicMergePatch Undecodable
        UndecodableEvent Versions WatchEvent WatchEventType WrongKindError
        apply_json_patch apply_merge_patch as_object convert_parts create_merge_patch
        custom_resource_definition decode_json decode_list decode_watch_event
        decode_watch_events dump_yaml encode_json field is_older_version load_yaml
        parse_time
    """,
    "runtime": """
        ActivityObserver CallOutcome CallRecord FailureCause RequestRecord present_call
        Clock FailureLog Family ForkedError ItemExponential ItemFastSlow JSONFormatter
        LocalHistogram LogFormat LoopThread ManualClock MaxOf Metrics Narrator OneProcess
        PREVIOUS_NAMES QueueItem QueueState RateLimiter RealClock SafeLogger Sample StillRunning
        StopSignal
        TextFormatter ThreadGroup TokenBucket UNNAMED WithMaxWait WorkQueue after_fork
        check_operator_name
        check_previous_names check_stop default_metrics failed_function fork_safe get_logger
        is_operator_name random_of settle setup_logging system_clock user_traceback
    """,
    "testing": """
        APIServer Access BrokenPromise Call ControlPlane ControlPlaneError Entry Fault
        FaultProxy FaultRule FaultSchedule Journal LoggedRequest MemoryServer
        MemoryView ModelServer Process Promise Replica Simulation Step World
        check_converged check_conversion check_exclusion check_object_order
        check_operator check_watcher_order install_crds install_webhooks
        remove_webhooks running
    """,
    "tracing": """
        TraceFields Tracing otlp_tracing
    """,
    "watchers": """
        ConstantBackoff ErrorHandler ExponentialBackoff FinalizerError FinalizerSupplier
        InformerController KeyReconciler KubernetesInformer ListMap OpinionatedReconciler
        OpinionatedWatcher PatchClient ReconcileRequest ResourceAction ResourceReconciler
        ResourceWatcher RetryDequeuePolicy RetryPolicy RunnableInformer SelectiveReconciler
        SelectiveWatcher SimpleReconciler SimpleWatcher TenacityRetry WatcherCall
        default_finalizer default_retry_policy in_progress_finalizer keep_all_retries
        never_retry opinionated_retry_dequeue_policy
    """,
    "webhooks": """
        ASGIWebhooks Admission AdmissionHandler AdmissionRequest AdmissionResponse
        CertificateFiles Certificates ConversionWebhook Defaulter Defaulting Denied
        DevelopmentServer GroupVersionResource KeyPair ManagedCertificates
        MigrationError MigrationProgress MultiMutating MultiValidating Operation
        RuleSource Selector SelfSigned TokenReviewHandler TokenReviewRequest
        TokenReviewResponse TokenReviewWebhook UserInfo Validating ValidationResult
        Validator WSGIWebhooks WebhookBuilder WebhookHost WebhookRule
        WebhookRuleOptions WebhookServer WebhookServerOptions Webhooks
        admission_request asgi install_configurations migrate_stored_versions
        remove_configurations webhook_configurations webhook_for wsgi
    """,
}


@pytest.mark.parametrize("room", NAMES)
def test_a_room_offers_these_names_and_no_others(room: str) -> None:
    offered = importlib.import_module(f"appsdk_operator.{room}").__all__
    assert sorted(offered) == sorted(NAMES[room].split())
    assert len(set(offered)) == len(offered)


@pytest.mark.parametrize("room", ["", *NAMES, "apiserver", "serving"])
def test_what_a_room_loads_when_it_is_used_is_what_editors_see(room: str) -> None:
    module = importlib.import_module(f"appsdk_operator.{room}".rstrip("."))
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    shown = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(shown) == set(vars(module).get("_HOMES", ()))
    for name, home in shown.items():
        assert getattr(module, name) is _at(home), name


def _at(path: str) -> object:
    package, _, name = path.rpartition(".")
    module = importlib.import_module(package)
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(path)
