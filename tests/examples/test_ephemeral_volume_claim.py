"""The operator of kopf's tutorial: claims follow their owners, with the role of its manifests.

No storage controller runs on either server, so the tests bind the claims themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from appsdk_operator import (
    Client,
    ClientConfig,
    MergePatch,
    MutableObject,
    Object,
    TerminalError,
    cli,
    kinds,
)
from appsdk_operator.client import Invalid
from appsdk_operator.controllers import has_owner_reference, until, wait_for
from appsdk_operator.project import ManifestOptions, manifests
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, install_crds, running
from examples.ephemeral_volume_claim import EVC, PVC, Spec, Status, app, provide

EXAMPLE = Path(__file__).parents[2] / "examples/ephemeral_volume_claim.py"
CRD = kinds.apiextensions.v1.CustomResourceDefinition
EVENT = kinds.events.v1.Event
STORAGE_CLASS = kinds.storage.v1.StorageClass
OPERATOR, NAMESPACE = "ephemeral-volumes", "default"


@attrs.frozen
class Lane:
    """A server on which roles decide, with the operator's manifests applied."""

    admin: Client
    operator: ClientConfig
    collects_garbage: bool

    def claim(self, name: str, is_done: Callable[[Object[Any, Any]], bool]) -> Object[Any, Any]:
        """The claim, once it is so."""
        return wait_for(self.admin, PVC, name, is_done, namespace=NAMESPACE)

    def bind(self, name: str) -> None:
        """Do what the controllers of a cluster do: give the claim a volume."""
        volume = MergePatch({"spec": {"volumeName": f"volume-of-{name}"}})
        self.admin.patch(PVC, name, volume, namespace=NAMESPACE)
        bound = MergePatch({"status": {"phase": "Bound"}})
        self.admin.status.patch(PVC, name, bound, namespace=NAMESPACE)


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def configs(request: pytest.FixtureRequest) -> Iterator[tuple[ClientConfig, ClientConfig, bool]]:
    """The administrator and the operator of a server, and whether it collects garbage."""
    is_real = request.param == "real"
    account = f"system:serviceaccount:{OPERATOR}:{OPERATOR}"
    shared = request.getfixturevalue("shared_plane").lent() if is_real else None
    with shared or APIServer(rbac=True) as server:
        if is_real:
            config = server.client_config(account, groups=["system:serviceaccounts"])
        else:
            config = server.client_config(token=server.token_for(account))
        with Client(server.client_config(), metrics=Metrics()) as admin:
            deploy(admin)
        yield server.client_config(), config, not is_real


@pytest.fixture
def lane(configs: tuple[ClientConfig, ClientConfig, bool]) -> Iterator[Lane]:
    config, operator, collects_garbage = configs
    with Client(config, metrics=Metrics()) as admin:
        yield Lane(admin, operator, collects_garbage)


def deploy(admin: Client) -> None:
    """Apply the manifests of the example, as kubectl would, beside a storage class that grows."""
    known = {(each.kind.api_version, each.kind.kind): each.kind for each in kinds.builtin_kinds()}
    metadata = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    grows = MutableObject.new(STORAGE_CLASS, "grows", metadata=metadata)
    grows["provisioner"], grows["allowVolumeExpansion"] = "example.com/none", True
    admin.create(grows)
    texts = manifests(app, ManifestOptions(target=f"{EXAMPLE.name}:app"))
    objects = [
        each
        for path, text in texts.items()
        if path.startswith("base/") and "kustomization" not in path
        for each in yaml.safe_load_all(text)
    ]
    objects.sort(key=lambda each: each["kind"] != "Namespace")
    for each in objects:
        kind = known.get((each["apiVersion"], each["kind"]))
        if each["kind"] == "CustomResourceDefinition":
            install_crds(admin, [MutableObject(CRD, each)])
        elif kind is not None:
            admin.apply(MutableObject(kind, each), field_manager="kubectl")


def evc(lane: Lane, name: str, **labels: str) -> Object[Spec, Status]:
    draft = MutableObject.new(EVC, name, namespace=NAMESPACE, spec=Spec(size="1Gi"))
    draft.labels.update(labels)
    return lane.admin.create(draft)


def size(claim: Object[Any, Any]) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


@contextlib.contextmanager
def operator(lane: Lane) -> Iterator[None]:
    """The operator, as its own service account."""
    with app.manager(lane.operator, metrics=Metrics()) as manager, running(manager):
        yield


def test_it_has_at_most_55_lines_and_passes_the_check_of_the_command_line() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 55
    assert cli.main(["check", str(EXAMPLE)]) == 0


def test_a_claim_is_made_and_grows_and_its_labels_follow(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    with operator(lane):
        owner = evc(lane, "data", app="shop", tier="gold")
        claim = lane.claim("data", lambda it: it.labels == {"app": "shop", "tier": "gold"})
        assert size(claim) == "1Gi"
        assert has_owner_reference(owner, claim)
        wait_for(
            lane.admin, EVC, "data", lambda it: it.status == Status("data"), namespace=NAMESPACE
        )

        lane.bind("data")
        larger = MergePatch({"spec": {"size": "2Gi"}})
        lane.admin.patch(EVC, "data", larger, namespace=NAMESPACE)
        lane.claim("data", lambda it: size(it) == "2Gi")
        fewer = MergePatch({"metadata": {"labels": {"app": "bar", "tier": None}}})
        lane.admin.patch(EVC, "data", fewer, namespace=NAMESPACE)
        lane.claim("data", lambda it: it.labels == {"app": "bar"})

        lane.admin.delete(EVC, "data", namespace=NAMESPACE)
        wait_for(lane.admin, EVC, "data", until.deleted(), namespace=NAMESPACE)
        if lane.collects_garbage:
            wait_for(lane.admin, PVC, "data", until.deleted(), namespace=NAMESPACE)
    assert not [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert "the account needs" not in caplog.text


def test_what_changed_while_it_was_down_is_made_up_for(lane: Lane) -> None:
    with operator(lane):
        evc(lane, "while-down")
        lane.claim("while-down", until.exists())
        wait_for(
            lane.admin,
            EVC,
            "while-down",
            lambda it: it.status == Status("while-down") and it.annotations,
            namespace=NAMESPACE,
        )
    lane.bind("while-down")
    change = MergePatch({"spec": {"size": "3Gi"}, "metadata": {"labels": {"app": "shop"}}})
    lane.admin.patch(EVC, "while-down", change, namespace=NAMESPACE)
    with operator(lane):
        lane.claim("while-down", lambda it: size(it) == "3Gi" and it.labels == {"app": "shop"})


def test_a_size_that_the_claim_cannot_have_is_an_event_and_tried_again(lane: Lane) -> None:
    with operator(lane):
        owner = evc(lane, "unbound")
        lane.claim("unbound", until.exists())
        draft = owner.mutable_copy()
        draft.spec = Spec(size="2Gi")
        with pytest.raises(Invalid, match="immutable after creation"):
            provide(draft.freeze())
    (refused,) = [
        each["note"]
        for each in lane.admin.list(EVENT, namespace=NAMESPACE)
        if (each["regarding"]["name"], each["reason"]) == ("unbound", "Refused")
    ]
    assert refused.startswith("2Gi: ")


def test_the_claim_of_somebody_else_stays_theirs(lane: Lane) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    theirs = lane.admin.create(MutableObject.new(PVC, "theirs", namespace=NAMESPACE, spec=spec))
    owner = evc(lane, "theirs", app="shop")
    refused = pytest.raises(TerminalError, match="somebody else's")
    with app.manager(lane.operator, metrics=Metrics()), refused:
        provide(owner)
    lane.admin.delete(EVC, "theirs", namespace=NAMESPACE)
    assert lane.admin.get(PVC, "theirs", namespace=NAMESPACE) == theirs
