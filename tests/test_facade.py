"""What ``import appsdk_operator`` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import appsdk_operator
from appsdk_operator import (
    app,
    cache,
    client,
    controllers,
    manager,
    resource,
    runtime,
    testing,
    watchers,
    webhooks,
)

ROOMS = [app, cache, client, controllers, manager, resource, runtime, watchers, webhooks]

NAMES = [
    "AlreadyExists",
    "ApiError",
    "App",
    "Cache",
    "CacheOptions",
    "CachedClient",
    "ChannelSource",
    "Client",
    "ClientConfig",
    "ClientError",
    "Clock",
    "Cluster",
    "Conflict",
    "ConstantBackoff",
    "Controller",
    "ControllerOptions",
    "DecodeError",
    "Denied",
    "EncodeError",
    "Event",
    "EventHandler",
    "EventRecorder",
    "Expired",
    "ExponentialBackoff",
    "FieldSelector",
    "FinalizerError",
    "Forbidden",
    "Health",
    "HealthServerOptions",
    "Informer",
    "InformerController",
    "Invalid",
    "JSONFormatter",
    "JsonPatch",
    "Kind",
    "KubernetesInformer",
    "LabelSelector",
    "LeaderElection",
    "LeadershipLost",
    "ListMap",
    "ManagedCertificates",
    "Manager",
    "ManagerOptions",
    "ManualClock",
    "MergePatch",
    "Metrics",
    "MetricsServerOptions",
    "MutableObject",
    "NamespaceOptions",
    "NotCachedError",
    "NotFound",
    "Object",
    "ObjectKey",
    "Operator",
    "OpinionatedReconciler",
    "OpinionatedWatcher",
    "Overflow",
    "Predicate",
    "ReadOnlyError",
    "ReconcileRequest",
    "Reconciler",
    "Request",
    "ResourceAction",
    "ResourceWatcher",
    "Result",
    "RetryAfter",
    "RetryDequeuePolicy",
    "RetryPolicy",
    "Scope",
    "Shards",
    "SimpleReconciler",
    "SimpleWatcher",
    "StopSignal",
    "StrategicMergePatch",
    "TenacityRetry",
    "TerminalError",
    "TransportError",
    "Versions",
    "WatcherCall",
    "WebhookServer",
    "WorkQueue",
    "__version__",
    "controller_for",
    "create_or_update",
    "custom_resource_definition",
    "drop_managed_fields",
    "field",
    "finalizing",
    "generation_changed",
    "keep_all_retries",
    "kinds",
    "map_objects",
    "never_retry",
    "opinionated_retry_dequeue_policy",
    "reconcile_context",
    "set_condition",
    "set_controller_reference",
    "setup_logging",
    "until",
    "wait_for",
    "webhook_for",
]


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_the_facade_offers_these_names_and_no_others() -> None:
    assert sorted(appsdk_operator.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_of_the_facade_is_there_and_documented(name: str) -> None:
    value = getattr(appsdk_operator, name)
    if name != "__version__":
        assert value.__doc__


@pytest.mark.parametrize("name", testing.__all__)
def test_each_name_of_the_testing_room_is_there_and_documented(name: str) -> None:
    assert getattr(testing, name).__doc__


@pytest.mark.parametrize("room", ROOMS)
def test_each_name_of_a_room_is_there(room: ModuleType) -> None:
    assert set(room.__all__) <= set(dir(room))
    assert [name for name in room.__all__ if not hasattr(room, name)] == []


@pytest.mark.parametrize("module", [appsdk_operator, testing])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = module.Nonsense  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("kubernetes", "urllib3", "prometheus_client", "aiohttp", "msgspec", "asyncio", "h11")
    code = f"import sys, appsdk_operator; print(*(m for m in {heavy!r} if m in sys.modules))"
    assert run(code).strip() == ""


def test_requests_are_counted_without_loading_what_only_a_scrape_needs() -> None:
    code = (
        "import sys\n"
        "from appsdk_operator import Client, ClientConfig, TransportError, kinds\n"
        "with Client(ClientConfig(server='http://127.0.0.1:1', max_retries=0)) as client:\n"
        "    try:\n"
        "        client.get(kinds.core.v1.Node, 'a')\n"
        "    except TransportError:\n"
        "        print('prometheus_client' in sys.modules)"
    )
    assert run(code).strip() == "False"


def test_using_names_loads_nothing_that_only_some_programs_need() -> None:
    heavy = (
        "kubernetes",
        "prometheus_client",
        "aiohttp",
        "tenacity",
        "asyncio",
        "yaml",
        "ssl",
        "h11",
    )
    code = (
        "import sys, appsdk_operator as op\n"
        "[getattr(op, name) for name in op.__all__]\n"
        f"print(*(m for m in {heavy!r} if m in sys.modules))"
    )
    assert run(code).strip() == ""
