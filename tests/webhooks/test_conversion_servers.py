"""API servers that convert objects by a webhook of the kit: kubectl, lists, watches, informers."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.client import ApiError, Client, ClientConfig
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import install_webhooks, remove_webhooks, running
from appsdk_operator.webhooks import Webhooks, webhook_for
from tests.apiserver.kubectl_tools import run_kubectl
from tests.waiting import eventually
from tests.webhooks.conversion_parts import AlphaSpec, Lane, Spec, Widgets, certificates, widget

VALIDATING = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
needs_kubectl = [
    pytest.mark.programs,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]


@pytest.fixture
def widgets(lane: Lane) -> Widgets:
    """A kind of the test's own that the server serves."""
    made = Widgets.make()
    lane.install(made)
    return made


def test_a_definition_is_accepted_as_it_is(lane: Lane) -> None:
    """With the placeholder of the webhook, a service, and each version's flags."""
    widgets = Widgets.make()
    lane.client.create(widgets.crd(service=("default", "hooks"), storage=widgets.v1alpha1))
    spec = lane.crd(widgets)["spec"]
    assert spec["conversion"]["webhook"]["clientConfig"]["service"] == {
        "namespace": "default",
        "name": "hooks",
        "path": "/convert",
        "port": 443,
    }
    flags = [(one["name"], one["served"], one["storage"]) for one in spec["versions"]]
    assert flags == [("v1", True, False), ("v1alpha1", True, True), ("v2", True, False)]
    assert spec["versions"][1]["deprecationWarning"] == "use v1 of widgets"
    again = Widgets.make()
    lane.client.create(again.crd())
    lane.client.create(Widgets.make().crd(url="https://10.1.2.3/convert", ca=certificates().pem))


def test_each_version_reads_and_writes_the_same_object(lane: Lane, widgets: Widgets) -> None:
    client = lane.client
    old = client.create(widget(widgets.v1alpha1, "web", {"size": "3"}, labels={"a": "b"}))
    assert old.spec == AlphaSpec("3")
    hub = client.get(widgets.v1, "web", namespace="default")
    assert (hub.spec, hub.uid, dict(hub.labels)) == (Spec(3), old.uid, {"a": "b"})
    assert client.get(widgets.v2, "web", namespace="default")["spec"] == {"width": 3, "note": ""}
    draft = hub.mutable_copy()
    draft.spec = Spec(4, note="only in v1")
    client.update(draft)
    old = client.get(widgets.v1alpha1, "web", namespace="default")
    assert old.spec == AlphaSpec("4")
    assert "only in v1" in old.annotations[f"{widgets.group}/conversion-v1alpha1"]
    changed = old.mutable_copy()
    changed.spec = AlphaSpec("5")
    client.update(changed)
    hub = client.get(widgets.v1, "web", namespace="default")
    assert hub.spec == Spec(5, note="only in v1")
    assert not hub.annotations
    applied = widget(widgets.v1alpha1, "web", {"size": "6"})
    client.apply(applied, field_manager="old-client", force=True)
    assert client.get(widgets.v1, "web", namespace="default").spec == Spec(6, "only in v1")
    draft = client.get(widgets.v1alpha1, "web", namespace="default").mutable_copy()
    draft["status"] = {"ready": True}
    client.status.update(draft)
    hub = client.get(widgets.v1, "web", namespace="default")
    assert (hub.status.ready, hub.spec.size) == (True, 6)


def test_lists_convert_objects_of_all_stored_versions(lane: Lane) -> None:
    widgets = Widgets.make()
    client = lane.client
    for number, stored in enumerate((widgets.v1alpha1, widgets.v2, widgets.v1)):
        lane.install(widgets, storage=stored)
        for each in range(4):
            size = 10 * number + each
            client.create(widget(widgets.v1, f"w-{size:02}", Spec(size, note=f"n{size}")))
    assert set(lane.crd(widgets)["status"]["storedVersions"]) == {"v1", "v1alpha1", "v2"}
    sizes = [*range(4), *range(10, 14), *range(20, 24)]
    found = list(client.list(widgets.v1, namespace="default"))
    assert [one.spec for one in found] == [Spec(size, f"n{size}") for size in sizes]
    old = [one.spec.size for one in client.list(widgets.v1alpha1, namespace="default")]
    assert old == [str(size) for size in sizes]
    new = [one["spec"]["width"] for one in client.list(widgets.v2, namespace="default")]
    assert new == sizes
    paged = client.list_page(widgets.v1alpha1, namespace="default", limit=5)
    assert [one.spec.size for one in paged.items] == [str(size) for size in sizes[:5]]


def test_what_cannot_be_converted_for_an_admission_webhook_is_an_internal_error(
    lane: Lane, widgets: Widgets
) -> None:
    rule = {
        "apiGroups": [widgets.group],
        "apiVersions": ["v1"],
        "resources": [widgets.v1.plural],
        "operations": ["CREATE"],
    }
    ca = base64.b64encode(certificates().pem).decode()
    webhook = {
        "name": "never.example.com",
        "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:1/never", "caBundle": ca},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    draft = MutableObject.new(VALIDATING, widgets.group, webhooks=[webhook])
    url = "https://127.0.0.1:1"
    installed = install_webhooks(lane.client, [draft], webhook_url=url, timeout=30.0)
    try:
        with pytest.raises(ApiError) as caught:
            lane.client.create(widget(widgets.v1alpha1, "bad", {"size": "many"}))
    finally:
        remove_webhooks(lane.client, installed, timeout=0)
    assert caught.value.status == 500
    assert caught.value.message.startswith(
        f"Internal error occurred: conversion webhook for {widgets.group}/v1alpha1, Kind=Widget "
    )


def test_informers_follow_each_version(lane: Lane, widgets: Widgets) -> None:
    client = lane.client
    client.create(widget(widgets.v1alpha1, "a", {"size": "1"}))
    kinds: list[Any] = [widgets.v1, widgets.v1alpha1, widgets.v2]
    informers = [Informer(kind, client, metrics=Metrics()) for kind in kinds]
    with contextlib.ExitStack() as exits:
        for informer in informers:
            exits.enter_context(running(informer))
        client.create(widget(widgets.v1, "b", Spec(2, note="x")))
        draft = client.get(widgets.v2, "a", namespace="default").mutable_copy()
        draft["spec"]["width"] = 7
        last = client.update(draft)
        eventually(lambda: all(len(each.store.list()) == 2 for each in informers))
        eventually(lambda: _at(informers, last))
        seen = [_specs(informer) for informer in informers]
    assert seen == [
        [{"size": 7, "note": ""}, {"size": 2, "note": "x"}],
        [{"size": "7"}, {"size": "2"}],
        [{"width": 7, "note": ""}, {"width": 2, "note": "x"}],
    ]


def _specs(informer: Informer) -> list[Any]:
    return [dict(obj["spec"]) for obj in sorted(informer.store.list(), key=lambda obj: obj.name)]


def _at(informers: list[Informer], last: Object) -> bool:
    found = [informer.store.get(last.name, "default") for informer in informers]
    return all(obj is not None and obj.resource_version == last.resource_version for obj in found)


def test_the_message_of_a_failure_reaches_the_client(
    lane: Lane, widgets: Widgets, caplog: pytest.LogCaptureFixture
) -> None:
    client = lane.client
    with pytest.raises(ApiError) as caught:
        client.create(widget(widgets.v1alpha1, "bad", {"size": "many"}))
    assert caught.value.status == 500
    assert caught.value.message == (
        f"conversion webhook for {widgets.group}/v1alpha1, Kind=Widget failed: Widget default/bad "
        "from v1alpha1 to v1: spec.size 'many' is no number"
    )
    refused = [each for each in caplog.records if "is refused" in each.getMessage()]
    assert [each.levelname for each in refused] == ["WARNING"]
    assert not refused[0].exc_info
    client.create(widget(widgets.v1, "bad", Spec(666)))
    with pytest.raises(ApiError) as caught:
        client.get(widgets.v1alpha1, "bad", namespace="default")
    assert caught.value.message == (
        f"conversion webhook for {widgets.group}/v1, Kind=Widget failed: Widget default/bad from "
        "v1 to v1alpha1: internal error occurred during conversion"
    )
    client.create(widget(widgets.v1, "fine", Spec(1)))
    with pytest.raises(ApiError, match="Widget default/bad from v1 to v1alpha1"):
        list(client.list(widgets.v1alpha1, namespace="default"))
    assert "hunter2" in caplog.text, "in the log"
    client.delete(widgets.v1, "bad", namespace="default")


class TestKubectl:
    """kubectl, which knows nothing of webhooks."""

    pytestmark = needs_kubectl

    @pytest.fixture
    def config(self, lane: Lane, tmp_path: Path) -> Path:
        path = tmp_path / "config"
        lane.server.write_kubeconfig(path)
        return path

    def test_it_gets_applies_and_edits_in_each_version(
        self, lane: Lane, widgets: Widgets, config: Path
    ) -> None:
        old = {
            "apiVersion": f"{widgets.group}/v1alpha1",
            "kind": "Widget",
            "metadata": {"name": "web"},
            "spec": {"size": "3"},
        }
        done = run_kubectl(config, "apply", "-f", "-", stdin=old)
        assert "widget." + widgets.group + "/web created" in done.stdout
        assert "Warning: use v1 of widgets" in done.stderr
        shown = run_kubectl(config, "get", f"widgets.v1alpha1.{widgets.group}")
        assert shown.stdout.split() == ["NAME", "SIZE", "web", "3"]
        got = run_kubectl(config, "get", f"widgets.v2.{widgets.group}", "web", "-o", "json")
        assert json.loads(got.stdout)["spec"] == {"width": 3, "note": ""}
        run_kubectl(
            config, "patch", f"widgets.v1.{widgets.group}", "web", "--type=merge",
            "-p", '{"spec": {"note": "by v1"}}',
        )  # fmt: skip
        old["spec"] = {"size": "8"}
        assert "configured" in run_kubectl(config, "apply", "-f", "-", stdin=old).stdout
        got = run_kubectl(config, "get", f"widgets.v1.{widgets.group}", "web", "-o", "json")
        assert json.loads(got.stdout)["spec"] == {"size": 8, "note": "by v1"}
        assert "unchanged" in run_kubectl(config, "apply", "-f", "-", stdin=old).stdout

    def test_its_user_sees_why_a_conversion_failed(
        self, lane: Lane, widgets: Widgets, config: Path
    ) -> None:
        bad = {
            "apiVersion": f"{widgets.group}/v1alpha1",
            "kind": "Widget",
            "metadata": {"name": "bad"},
            "spec": {"size": "many"},
        }
        done = run_kubectl(config, "create", "-f", "-", stdin=bad, fails=True)
        assert (
            "Widget default/bad from v1alpha1 to v1: spec.size 'many' is no number" in done.stderr
        )


def test_the_builder_adds_versions_to_one_webhook() -> None:
    webhooks = Webhooks(metrics=Metrics())
    one, other = Widgets.make(), Widgets.make()
    for widgets in (one, other):
        webhook_for(webhooks, widgets.v1).convert(widgets.versions).complete()
    assert webhooks.paths == ("/convert",)
    assert webhooks.conversions == (("/convert", one.versions), ("/convert", other.versions))
    with pytest.raises(ValueError, match="is converted already"):
        webhook_for(webhooks, one.v1).convert(one.versions).complete()


def test_a_review_of_thousands_of_objects_is_answered(embedded_lane: Lane) -> None:
    """It has 10 MB, more than admission webhooks read."""
    lane, widgets = embedded_lane, Widgets.make()
    lane.webhook.add(widgets.versions)
    objects = [widget(widgets.v1, f"w-{n}", Spec(n, note="x" * 1_900)).data for n in range(5_000)]
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "1", "desiredAPIVersion": widgets.v2.api_version, "objects": objects},
    }
    config = ClientConfig(server=lane.hooks.url, ca_data=certificates().pem)
    with Client(config, metrics=Metrics()) as client:
        answer = client.request("POST", "/convert", body=json.dumps(body).encode())
    response = json.loads(answer)["response"]
    assert response["result"]["status"] == "Success"
    widths = [obj["spec"]["width"] for obj in response["convertedObjects"]]
    assert widths == list(range(5_000))
