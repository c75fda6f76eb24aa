"""Uninstalling: the order of the steps, and that nothing is left waiting for a finalizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from appsdk_operator import Client, Kind, MutableObject, NotFound, Object, kinds
from appsdk_operator.apiserver import APIServer
from appsdk_operator.app import App
from appsdk_operator.client import ClientConfig, InternalError
from appsdk_operator.controllers import take_finalizer_off, until, wait_for
from appsdk_operator.project import (
    ManifestOptions,
    UninstallAction,
    UninstallError,
    UninstallStep,
    manifests,
    uninstall,
)
from appsdk_operator.resource import custom_resource_definition
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import install_crds
from appsdk_operator.watchers import OpinionatedWatcher
from tests.project.operators import BUCKET, REGION, full, nothing, small
from tests.project.test_manifests_on_servers import THEIRS, kind_of

CRD = kinds.apiextensions.v1.CustomResourceDefinition
NAMESPACE = kinds.core.v1.Namespace
POD = kinds.core.v1.Pod
OWN = (
    "example.com/bucket-operator.v1.Bucket",
    "example.com/operator.v1.Bucket",
    "example.com/wip.bucket-operator.v1.Bucket",
    "bucket-operator.v1.Bucket.example.com",
    "wip.bucket-operator.v1.Bucket.example.com",
    "example.com/bucket-operator.v1alpha1.Bucket",
)
FOREIGN = "example.com/other-operator.v1.Bucket"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def config(request: pytest.FixtureRequest) -> Iterator[ClientConfig]:
    if request.param == "real":
        with request.getfixturevalue("shared_plane").lent() as plane:
            yield plane.client_config()
    else:
        with APIServer() as server:
            yield ClientConfig(server=server.url)


@pytest.fixture
def client(config: ClientConfig) -> Iterator[Client]:
    with Client(config, metrics=Metrics()) as found:
        yield found


def deployed(client: Client, app: App, options: ManifestOptions) -> list[tuple[Kind, str, str]]:
    """Apply the manifests, without webhooks that nobody answers; what was applied."""
    texts = manifests(app, options)
    objects = [
        each
        for path, text in sorted(texts.items())
        if path.startswith(("base/", "components/")) and "kustomization" not in path
        for each in yaml.safe_load_all(text)
    ]
    is_old = client.discovery.server_version().minor < 21
    objects = [each for each in objects if not (is_old and each["kind"] == "PodDisruptionBudget")]
    for name in {each["metadata"].get("namespace", "backups") for each in objects}:
        client.apply(MutableObject.new(NAMESPACE, name), field_manager="test")
    install_crds(
        client, [MutableObject(CRD, e) for e in objects if e["kind"] == "CustomResourceDefinition"]
    )
    found = []
    for each in objects:
        if each["kind"] not in ("Namespace", "CustomResourceDefinition"):
            client.apply(MutableObject(kind_of(each), each), field_manager="test")
        meta = each["metadata"]
        found.append((kind_of(each), meta["name"], meta.get("namespace", "")))
    return found


def is_there(client: Client, kind: Kind, name: str, namespace: str = "") -> bool:
    try:
        client.get(kind, name, namespace=namespace)
    except NotFound:
        return False
    return True


def bucket(client: Client, name: str, *finalizers: str) -> Object[Any, Any]:
    """A bucket whose deletion waits for finalizers."""
    draft = MutableObject.new(BUCKET, name, namespace="default", spec={"size": 1})
    draft["metadata"]["finalizers"] = list(finalizers)
    # A real API server takes a moment to see that a webhook is gone.
    for _ in range(200):
        with contextlib.suppress(InternalError):
            return client.create(draft)
        StopSignal().wait(0.05)
    return client.create(draft)


def without_webhooks(client: Client, app: App) -> None:
    """Take the configurations away, so that the test itself can write."""
    for kind in (
        kinds.admissionregistration.v1.MutatingWebhookConfiguration,
        kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
    ):
        client.delete(kind, app.name)


def test_everything_goes_in_an_order_that_leaves_nothing_stuck(client: Client) -> None:
    app, options = full(), ManifestOptions(namespace="gone")
    install_crds(client, [custom_resource_definition(kind) for kind in THEIRS])
    # Buckets are made while no webhook is asked, and one waits for its deletion.
    applied = deployed(client, app, options)
    hooks = [each for each in applied if "Webhook" in each[0].kind]
    without_webhooks(client, app)
    bucket(client, "waiting", *OWN)
    client.delete(BUCKET, "waiting", namespace="default")
    bucket(client, "young", OWN[0])
    # The API server asks the webhooks again, which nobody answers.
    again = [
        each
        for text in (manifests(app, options)["base/webhooks.yaml"],)
        for each in yaml.safe_load_all(text)
    ]
    for each in again:
        client.apply(MutableObject(kind_of(each), each), field_manager="test")
    planned = [*uninstall(client, app, options, dry_run=True)]
    assert all(is_there(client, *each) for each in applied)
    steps = []
    for step in uninstall(client, app, options, timeout=30):
        steps.append(step)
        if step.action is UninstallAction.CONVERT:
            assert client.get(CRD, step.name)["spec"]["conversion"] == {"strategy": "None"}
    assert [str(step) for step in steps] == [str(step) for step in planned]
    for kind, name, namespace in applied:
        assert is_there(client, kind, name, namespace) is (kind == NAMESPACE)
    assert order(steps) == [
        ("delete", "Deployment"),
        ("delete", "MutatingWebhookConfiguration"),
        ("delete", "ValidatingWebhookConfiguration"),
        ("convert", "CustomResourceDefinition"),
        ("release", "Bucket"),
        ("delete", "CustomResourceDefinition"),
    ]
    assert len(hooks) == 2
    released = {step.name: step.detail for step in steps if step.kind == BUCKET}
    assert set(released) == {"waiting", "young"}
    assert set(released["waiting"].split(", ")) == set(OWN)
    kinds_left = [step.kind.kind for step in steps[-4:]]
    assert kinds_left[-1] == "ServiceAccount"
    assert not [*uninstall(client, app, options)]


def order(steps: list[UninstallStep]) -> list[tuple[str, str]]:
    """The first steps, each sort of them once."""
    seen = dict.fromkeys((str(step.action), step.kind.kind) for step in steps)
    return list(seen)[:6]


def test_finalizers_of_others_stay_and_so_do_the_crds_if_asked(client: Client) -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    install_crds(client, app.crds())
    bucket(client, "shared", OWN[0], FOREIGN, "mine.example.com/own")
    extra = ["mine.example.com/own"]
    steps = [*uninstall(client, app, keep_crds=True, finalizers=extra)]
    assert [str(step) for step in steps] == [
        f"release  Bucket default/shared ({OWN[0]}, mine.example.com/own)"
    ]
    left = client.get(BUCKET, "shared", namespace="default")
    assert list(left.finalizers) == [FOREIGN]
    assert left["spec"] == {"size": 1}
    with pytest.raises(
        UninstallError, match="look for finalizers of other programs on its buckets"
    ):
        [*uninstall(client, app, timeout=0.5)]
    take_finalizer_off(client, client.get(BUCKET, "shared", namespace="default"), FOREIGN)
    wait_for(client, CRD, "buckets.example.com", until.deleted())
    assert not [*uninstall(client, app)]


def test_finalizers_of_reconcilers_go_if_they_are_named(client: Client) -> None:
    app = App("tidy-operator")
    app.own(REGION)
    app.object_reconciler(BUCKET)(nothing)
    app.object_reconciler(kinds.core.v1.ConfigMap)(nothing)
    install_crds(client, app.crds())
    mark = "mine.example.com/own"
    metadata = {"finalizers": [mark]}
    config_map = MutableObject.new(
        kinds.core.v1.ConfigMap, "tidy", namespace="default", metadata=metadata
    )
    client.create(config_map)
    client.create(MutableObject.new(REGION, "tidy", metadata=metadata))
    bucket(client, "tidy", mark)
    steps = [str(step) for step in uninstall(client, app, finalizers=[mark], timeout=30)]
    assert [step for step in steps if step.startswith("release")] == [
        f"release  Bucket default/tidy ({mark})",
        f"release  ConfigMap default/tidy ({mark})",
        f"release  Region tidy ({mark})",
    ]
    assert not is_there(client, CRD, "buckets.example.com")
    assert not is_there(client, CRD, "regions.example.com")
    client.delete(kinds.core.v1.ConfigMap, "tidy", namespace="default")


def test_what_the_manifests_did_not_make_stays(client: Client) -> None:
    client.apply(MutableObject.new(NAMESPACE, "small-operator"), field_manager="test")
    account = kinds.core.v1.ServiceAccount
    client.create(MutableObject.new(account, "small-operator", namespace="small-operator"))
    steps = [*uninstall(client, small())]
    assert [(step.action, step.kind) for step in steps] == [(UninstallAction.KEEP, account)]
    assert is_there(client, account, "small-operator", "small-operator")


def test_what_several_replicas_need_goes_although_nobody_says_how_many_there_were(
    client: Client,
) -> None:
    app = small()
    install_crds(client, [custom_resource_definition(kind) for kind in THEIRS])
    applied = deployed(client, app, ManifestOptions(namespace="many", replicas=2))
    lease = MutableObject.new(kinds.coordination.v1.Lease, app.name, namespace="many")
    client.create(lease)
    assert any(kind.kind == "RoleBinding" for kind, _, _ in applied)
    for _ in uninstall(client, app, ManifestOptions(namespace="many"), timeout=30):
        pass
    assert not is_there(client, kinds.coordination.v1.Lease, app.name, "many")
    assert [each for each in applied if is_there(client, *each)] == [(NAMESPACE, "many", "")]


@pytest.mark.parametrize(
    ("metadata", "key", "action"),
    [
        ({}, "tls.key", UninstallAction.KEEP),
        ({}, "ca.key", UninstallAction.DELETE),
        (
            {"annotations": {"cert-manager.io/certificate-name": "a"}},
            "tls.key",
            UninstallAction.DELETE,
        ),
    ],
)
def test_a_certificate_that_a_person_has_put_there_stays(
    client: Client, metadata: dict[str, Any], key: str, action: UninstallAction
) -> None:
    app = App("hook-operator")
    app.validate(BUCKET)(nothing)
    client.apply(MutableObject.new(NAMESPACE, app.name), field_manager="test")
    secret, name = kinds.core.v1.Secret, "hook-operator-webhooks-tls"
    draft = MutableObject.new(secret, name, namespace=app.name, metadata=metadata)
    draft["data"] = {key: "YQ=="}
    client.create(draft)
    steps = [*uninstall(client, app, timeout=30)]
    assert [(step.action, step.kind) for step in steps] == [(action, secret)]
    is_kept = action is UninstallAction.KEEP
    assert is_there(client, secret, name, app.name) is is_kept
    if is_kept:
        client.delete(secret, name, namespace=app.name)


def test_a_pod_that_does_not_end_stops_it_before_any_finalizer_goes(client: Client) -> None:
    app = App("slow-operator")
    app.on_add(REGION)(nothing)
    install_crds(client, app.crds())
    client.apply(MutableObject.new(NAMESPACE, "slow-operator"), field_manager="test")
    account = MutableObject.new(kinds.core.v1.ServiceAccount, "default", namespace="slow-operator")
    client.apply(account, field_manager="test")
    region = MutableObject.new(
        REGION, "north", metadata={"finalizers": ["example.com/slow-operator.v1.Region"]}
    )
    client.create(region)
    spec = {"containers": [{"name": "a", "image": "a"}]}
    labels = {"app.kubernetes.io/name": "slow-operator"}
    pod = MutableObject.new(POD, "p", namespace="slow-operator", spec=spec)
    pod.labels.update(labels)
    client.create(pod)
    with pytest.raises(UninstallError, match="Pod p still runs"):
        [*uninstall(client, app, timeout=0.3)]
    assert client.get(REGION, "north").finalizers
    client.delete(POD, "p", namespace="slow-operator", grace_period=0)
    steps = [str(step) for step in uninstall(client, app)]
    assert steps[0] == "release  Region north (example.com/slow-operator.v1.Region)"


def test_an_app_knows_the_finalizers_of_its_watchers(client: Client) -> None:
    app = full()
    names = app.finalizers()
    assert set(names) == {BUCKET, REGION}
    assert set(OWN) < set(names[BUCKET])
    assert FOREIGN not in names[BUCKET]
    other = App("dns", previous_names=["old-dns"])
    other.watch(BUCKET, OpinionatedWatcher(BUCKET, client, add=nothing, finalizer=lambda _: "a/b"))
    other.watch(REGION, lambda client: OpinionatedWatcher(REGION, client, add=nothing))
    assert other.finalizers()[BUCKET] == ("a/b", "a/wip.b")
    assert other.finalizers()[REGION][::2] == (
        "example.com/dns.v1.Region",
        "dns.v1.Region.example.com",  # the earlier spelling
        "example.com/old-dns.v1.Region",
        "old-dns.v1.Region.example.com",
    )


def test_a_kind_with_timers_alone_may_have_the_finalizer_of_an_earlier_release(
    client: Client,
) -> None:
    app = App("small-operator")
    app.own(REGION)
    app.every(60, REGION)(nothing)
    app.every(60)(lambda: None)
    install_crds(client, app.crds())
    mark = "example.com/small-operator.v1.Region"
    client.create(MutableObject.new(REGION, "north", metadata={"finalizers": [mark]}))
    steps = [str(step) for step in uninstall(client, app)]
    assert steps[0] == f"release  Region north ({mark})"
    assert not is_there(client, CRD, "regions.example.com")
