"""The permissions of an App: enough for all that it declares, and none too many."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError

import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App, Permission
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import Request, set_controller_reference
from appsdk_operator.manager import (
    AuthFilter,
    HealthServerOptions,
    LeaderElection,
    MetricsServerOptions,
)
from appsdk_operator.resource import Kind, MutableObject, Object, Scope
from appsdk_operator.runtime import Metrics, RealClock, StopSignal
from appsdk_operator.testing import APIServer, install_crds, running
from appsdk_operator.watchers import SimpleWatcher
from appsdk_operator.webhooks import (
    ManagedCertificates,
    WebhookServerOptions,
    webhook_configurations,
)

BUCKET = Kind(group="example.com", version="v1", kind="Bucket")
OLD = Kind(group="example.com", version="v1alpha1", kind="Bucket")
POOL = Kind(group="example.com", version="v1", kind="Pool", scope=Scope.CLUSTER)
CONFIG_MAP = kinds.core.v1.ConfigMap
RBAC = kinds.rbac.v1
USER = "bucket-operator"
SERVICE = ("default", "webhooks")
TIMEOUT = 50.0


class Done:
    """What the operator has done so far."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps: set[str] = set()

    def add(self, step: str) -> None:
        with self._changed:
            self._steps.add(step)
            self._changed.notify_all()

    @property
    def steps(self) -> set[str]:
        with self._changed:
            return set(self._steps)


STEPS = {"added", "deleted", "made", "looked", "read", "pool", "certificates", "metrics"}


def make_app(done: Done, namespaces: Sequence[str] | None = None) -> App:
    """An operator with each feature that needs a permission."""
    app = App(
        USER,
        namespaces=namespaces or None,
        leader_election=LeaderElection(
            id=USER, namespace="default", lease_duration=60.0, release_on_cancel=True
        ),
        metrics_server=MetricsServerOptions(address="127.0.0.1:0", filter_provider=AuthFilter),
        webhook_server=WebhookServerOptions(
            address="127.0.0.1:0",
            certificates=ManagedCertificates(
                SERVICE[1],
                "webhooks-tls",
                namespace=SERVICE[0],
                inject=[
                    (kinds.admissionregistration.v1.ValidatingWebhookConfiguration, USER),
                    (kinds.apiextensions.v1.CustomResourceDefinition, "buckets.example.com"),
                ],
            ),
        ),
    )

    @app.on_add(BUCKET)
    def added(bucket: Object) -> None:
        patch = MergePatch({"status": {"phase": "Ready"}})
        app.client.status.patch(BUCKET, bucket.name, patch, namespace=bucket.namespace)
        app.events.event(bucket, "Normal", "Added", "Add", "it was added")
        done.add("added")

    @app.on_delete(BUCKET)
    def deleted(bucket: Object) -> None:
        done.add("deleted")

    @app.reconciler(BUCKET, owns=[CONFIG_MAP])
    def reconcile(request: Request) -> None:
        with suppress(Exception):
            bucket = app.client.get(BUCKET, request.name, namespace=request.namespace)
            draft = MutableObject.new(CONFIG_MAP, request.name, namespace=request.namespace)
            set_controller_reference(bucket, draft)
            if not any(app.client.list(CONFIG_MAP, namespace=request.namespace)):
                app.client.create(draft)
            done.add("made")

    @app.every(3600, BUCKET)
    def look(bucket: Object) -> None:
        done.add("looked")

    @app.task
    def read(stop: StopSignal) -> None:
        app.live_client.get(kinds.core.v1.Node, "node")
        done.add("read")

    @app.validate(BUCKET, failure_policy="Ignore")
    def check(bucket: Object) -> None: ...

    @app.convert(OLD, BUCKET)
    def up(old: Object, new: MutableObject) -> None: ...

    @app.convert(BUCKET, OLD)
    def down(old: Object, new: MutableObject) -> None: ...

    def pool_added(pool: Object) -> None:
        app.client.status.patch(POOL, pool.name, MergePatch({"status": {"phase": "Ready"}}))
        app.events.event(pool, "Normal", "Added", "Add", "it was added")
        done.add("pool")

    app.watch(POOL, SimpleWatcher(add=pool_added))
    app.uses(kinds.core.v1.Node, verbs=["get"], names=["node"], reason="where it runs")
    return app


@pytest.fixture
def server() -> Iterator[APIServer]:
    app = make_app(Done())
    with APIServer(rbac=True) as server, Client(server.client_config()) as admin:
        install_crds(admin, app.crds(service=SERVICE))
        for each in webhook_configurations(app.webhooks, name=USER, service=SERVICE):
            admin.create(each)
        admin.create(MutableObject.new(kinds.core.v1.Node, "node"))
        admin.create(MutableObject.new(kinds.core.v1.Namespace, "red"))
        yield server


@pytest.fixture
def admin(server: APIServer) -> Iterator[Client]:
    with Client(server.client_config()) as client:
        yield client


def grant(admin: Client, permissions: Sequence[Permission], namespaces: Sequence[str]) -> None:
    """Give the operator these permissions, and no others."""
    places: dict[str, list[Any]] = {}
    for each in permissions:
        if each.is_cluster_wide:
            where = [""]
        elif each.namespace is not None:
            where = [each.namespace or "default"]
        else:
            where = list(namespaces) or [""]
        for place in where:
            places.setdefault(place, []).append(each.rule)
    for place, rules in places.items():
        role, binding = (
            (RBAC.Role, RBAC.RoleBinding) if place else (RBAC.ClusterRole, RBAC.ClusterRoleBinding)
        )
        admin.create(MutableObject.new(role, USER, namespace=place, rules=rules))
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role.kind, "name": USER}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
        admin.create(
            MutableObject.new(binding, USER, namespace=place, roleRef=reference, subjects=subjects)
        )


class Refusals(logging.Handler):
    """What the log says of requests that were refused."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.getMessage()} {error}"
        if "cannot " in text and "forbidden" in text.lower():
            self.texts.append(text)


def run(server: APIServer, admin: Client, app: App, done: Done, namespace: str) -> list[str]:
    """Have the operator do everything that it can; returns what was refused."""
    config = ClientConfig(server=server.url, token=server.token_for(USER), max_retries=0)
    refusals = Refusals()
    logger = logging.getLogger("appsdk_operator")
    logger.addHandler(refusals)
    certificates = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
    metrics = Metrics()
    try:
        manager = app.manager(
            config, metrics=metrics, health_server=HealthServerOptions(address="127.0.0.1:0")
        )
        with suppress(Exception), running(manager, wait=False):
            admin.create(MutableObject.new(BUCKET, "a", namespace=namespace, spec={}))
            admin.create(MutableObject.new(POOL, "pool", spec={}))
            until(lambda: bool(refusals.texts) or done.steps >= {"added", "made", "looked"})
            admin.delete(BUCKET, "a", namespace=namespace)

            def is_all() -> bool:
                configuration = admin.get(certificates, USER)
                if configuration["webhooks"][0]["clientConfig"].get("caBundle"):
                    done.add("certificates")
                if scraped(manager.addresses["metrics"], server.token_for("prometheus")):
                    done.add("metrics")
                return bool(refusals.texts) or done.steps == STEPS

            until(is_all)
    except Exception as error:
        refusals.texts.append(str(error))
    finally:
        logger.removeHandler(refusals)
    return refusals.texts


def scraped(address: str, token: str) -> bool:
    request = urllib.request.Request(
        f"http://{address}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            return True
    except HTTPError as error:
        error.close()
        return error.code == 403  # it knows the user


def until(check: Callable[[], bool]) -> None:
    clock = RealClock()
    deadline = clock.monotonic() + TIMEOUT
    while not check() and clock.monotonic() < deadline:
        StopSignal().wait(0.02)


@pytest.mark.parametrize(
    "namespaces", [(), ("red",), ("re*",)], ids=["everywhere", "in one namespace", "by a pattern"]
)
def test_an_operator_with_each_feature_needs_no_other_permissions(
    server: APIServer, admin: Client, namespaces: Sequence[str]
) -> None:
    done = Done()
    app = make_app(done, namespaces)
    grant(admin, app.permissions(), app.namespaces)
    assert run(server, admin, app, done, "red") == []
    assert done.steps == STEPS


ALL = make_app(Done(), ["red"]).permissions()
# This one is asked for by OwnerReferencesPermissionEnforcement alone, which is off by default.
NEEDED = [each for each in ALL if each.resources != ("buckets/finalizers",)]


@pytest.mark.parametrize("missing", NEEDED, ids=lambda each: f"{each.resources[0]}-{each.verbs[0]}")
def test_without_any_one_permission_an_error_names_what_is_missing(
    server: APIServer, admin: Client, missing: Permission
) -> None:
    grant(admin, [each for each in ALL if each is not missing], ["red"])
    done = Done()
    refused = run(server, admin, make_app(done, ["red"]), done, "red")
    assert refused, done.steps
    assert any(missing.resources[0] in text for text in refused), refused


def test_an_operator_of_patterns_that_may_not_follow_namespaces_says_which_rule_is_missing(
    server: APIServer, admin: Client
) -> None:
    app = make_app(Done(), ["red", "team-*"])
    known = [each for each in app.permissions() if each.resources != ("namespaces",)]
    grant(admin, known, app.namespaces)
    refused = run(server, admin, app, Done(), "red")
    assert any(
        "the account needs verbs 'list' and 'watch' on namespaces in the whole cluster" in text
        for text in refused
    ), refused


def test_permissions_are_the_same_each_time_and_each_has_its_reasons() -> None:
    assert make_app(Done(), ["red"]).permissions() == ALL
    assert all(each.reasons for each in ALL)


def test_what_is_allowed_everywhere_is_not_listed_for_single_namespaces() -> None:
    events = [each for each in make_app(Done()).permissions() if each.resources == ("events",)]
    assert [each.namespace for each in events] == [None]


@pytest.mark.parametrize(
    ("remember", "reason"),
    [
        (False, "a finalizer of an earlier release is taken off buckets"),
        (True, "functions mark the buckets that they handle"),
    ],
)
def test_a_kind_with_updates_alone_is_written_for_what_the_app_remembers_or_had_set(
    remember: bool, reason: str
) -> None:
    app = App("bucket-operator", remember=remember)
    app.on_update(BUCKET)(lambda old, new: None)
    (found,) = [each for each in app.permissions() if each.resources == ("buckets",)]
    assert set(found.verbs) == {"get", "list", "watch", "patch"}
    assert found.reasons == ("watchers get the events of buckets", reason)


def test_next_to_a_background_function_updates_add_no_reason() -> None:
    app = App("bucket-operator", remember=False)
    app.on_update(BUCKET)(lambda old, new: None)
    app.background(BUCKET, name="follow")(lambda live, stop: None)
    (found,) = [each for each in app.permissions() if each.resources == ("buckets",)]
    assert [each for each in found.reasons if "finalizer" in each or "mark" in each] == [
        "a finalizer on buckets is there until follow has ended"
    ]
