"""An App with what its Deployment says, as the account and with the roles of its manifests."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import pytest

from appsdk_operator import App, Client, Kind, MergePatch, MutableObject, Object, kinds
from appsdk_operator.app import RunOptions
from appsdk_operator.app._run import changes_of
from appsdk_operator.client import Forbidden
from appsdk_operator.controllers import wait_for
from appsdk_operator.project import ManifestOptions, manifests
from appsdk_operator.resource import Versions, load_yaml
from appsdk_operator.testing import APIServer, running
from appsdk_operator.webhooks import Denied

NAMESPACE = "bucket-operator"
KINDS = {(each.kind.api_version, each.kind.kind): each.kind for each in kinds.builtin_kinds()}


@attrs.frozen
class Spec:
    size: int = 1


BUCKET, OLD = (
    Kind(group="example.com", version=version, kind="Bucket", spec=Spec)
    for version in ("v1", "v1alpha1")
)


def bucket_operator() -> App:
    """An operator that validates, converts and writes a status."""
    app = App("bucket-operator")

    def same(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None:
        new.spec = old.spec

    app.own(Versions(BUCKET).older(OLD, up=same, down=same))
    app.uses(BUCKET, verbs=["patch"], subresources=["status"], reason="says that it is done")

    @app.validate(BUCKET)
    def check(bucket: Object[Spec]) -> None:
        if bucket.spec.size < 0:
            raise Denied("no size")

    @app.on_add(BUCKET)
    def make(bucket: Object[Spec]) -> None:
        status = MergePatch({"status": {"done": True}})
        app.client.status.patch(BUCKET, bucket.name, status, namespace=bucket.namespace)

    return app


def test_managed_certificates_are_made_by_what_the_deployment_says(
    free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = bucket_operator()
    objects = [
        MutableObject(KINDS[each["apiVersion"], each["kind"]], each)
        for path, text in manifests(app, ManifestOptions(certificates="managed")).items()
        if path.startswith("base/") and "kustomization" not in path
        for each in load_yaml(text)
    ]
    (deployment,) = [each for each in objects if each.kind.kind == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each["value"] for each in container["env"]}
    service = f"{NAMESPACE}/{told['APPSDK_WEBHOOK_SERVICE']}"
    address = f"127.0.0.1:{free_port}"
    with (
        APIServer(rbac=True, services={service: f"https://{address}"}) as server,
        Client(server.client_config()) as client,
    ):
        for each in sorted(objects, key=lambda each: each.kind.kind != "Namespace"):
            client.create(each)
        user = f"system:serviceaccount:{NAMESPACE}:{app.name}"
        options = RunOptions(
            webhook_service=service,  # with the namespace that a pod finds out
            webhook_address=address,
            metrics_address="0",
            probe_address="0",
        )
        config = server.client_config(token=server.token_for(user))
        with running(app.manager(config, **changes_of(app, options))):
            client.create(MutableObject.new(OLD, "a", namespace="default", spec=Spec(3)))
            done = {"done": True}
            wait_for(client, BUCKET, "a", lambda it: it.get("status") == done, namespace="default")
            with pytest.raises(Forbidden, match="no size"):
                client.create(MutableObject.new(OLD, "b", namespace="default", spec=Spec(-1)))
    refused = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert not [each.getMessage() for each in refused if "the account needs" in each.getMessage()]
