"""What can be installed as a CRD, and what is told to those who give something else."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from appsdk_operator.apiserver import Authority
from appsdk_operator.client import Client, ClientLike, Hooks, InterceptedClient, InternalError
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Versions,
    convert_parts,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.runtime import RealClock
from appsdk_operator.testing import APIServer, install_crds, install_webhooks
from tests.shared_plane import SharedPlane

CA = Authority(RealClock().time()).certificate

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


@pytest.mark.parametrize(
    ("crds", "remedy"),
    [
        ([WIDGET], r"is a Kind: give custom_resource_definition\(kind\)"),
        (WIDGET, r"give a list, \[custom_resource_definition\(kind\)\]"),
        ("crds/", r"give a list, \[…\]"),
        (Path("crds"), "give a list"),
    ],
)
def test_what_is_no_list_of_definitions_is_refused_with_the_remedy(crds: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        install_crds(None, crds)  # type: ignore[arg-type]


# -- webhooks ------------------------------------------------------------------------------------

KIND = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
URL = "https://127.0.0.1:9443"


def configuration(name: str = "check", **client_config: Any) -> MutableObject:
    """A configuration of one webhook."""
    webhook = {
        "name": "check.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client_config,
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["widgets"],
            }
        ],
    }
    return MutableObject(KIND, {"metadata": {"name": name}, "webhooks": [webhook]})


SERVICE = {"name": "operator", "namespace": "operators", "path": "/check"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def start(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Any]]:
    """What starts a server with nothing in it."""
    if request.param == "embedded":
        return APIServer
    shared: SharedPlane = request.getfixturevalue("shared_plane")
    return shared.lent


@pytest.fixture
def client(start: Callable[[], AbstractContextManager[Any]]) -> Iterator[Client]:
    with start() as server, Client(server.client_config()) as client:
        yield client


def test_a_kind_whose_webhook_does_not_answer_yet_is_installed_again_beside_its_objects(
    client: Client,
) -> None:
    old = Kind(group="example.com", version="v1alpha1", kind="Widget")
    same = convert_parts()
    crd = custom_resource_definition(Versions(WIDGET).older(old, up=same, down=same))
    install_crds(client, [crd])
    client.create(MutableObject.new(WIDGET, "a", namespace="default"))
    with pytest.raises(InternalError, match="conversion webhook"):
        client.list_page(old)
    assert install_crds(client, [crd]) == [WIDGET, old]


def test_what_somebody_else_changes_at_the_same_moment_is_installed_again(client: Client) -> None:
    changes: list[Any] = []

    def get(inner: ClientLike, kind: Kind, name: str, **options: Any) -> Any:
        found = inner.get(kind, name, **options)
        if len(changes) < 2:
            # As the server's own controllers write conditions, and others a caBundle.
            draft = found.mutable_copy()
            draft.labels["changed"] = str(len(changes))
            changes.append(inner.update(draft))
        return found

    hurried: Any = InterceptedClient(client, Hooks(get=get))
    crd = custom_resource_definition(WIDGET)
    for _ in range(2):
        assert install_crds(hurried, [crd]) == [WIDGET]
    assert len(changes) == 2
    changes.clear()
    for _ in range(2):
        install_webhooks(hurried, [configuration(service=SERVICE)], webhook_url=URL, webhook_ca=CA)
    assert len(changes) == 2
    assert client.get(KIND, "check").labels == {"changed": "1"}


def test_webhooks_come_from_objects_files_and_folders_and_lead_to_the_test(
    client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "webhooks.yaml"
    documents = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "operator"}},
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            **configuration("filed", service={**SERVICE, "path": None}).to_dict(),
        },
    ]
    file.write_text("---\n".join(yaml.safe_dump(document) for document in documents))
    given = configuration(service=SERVICE)
    for _ in range(2):  # the second time they are updated
        made = install_webhooks(
            client, [given, tmp_path, str(file)], webhook_url=URL, webhook_ca=CA
        )
        settled = [obj.to_dict()["webhooks"][0]["clientConfig"] for obj in made]
        bundle = base64.b64encode(CA).decode()
        assert settled == [
            {"url": f"{URL}/check", "caBundle": bundle},
            {"url": URL, "caBundle": bundle},
            {"url": URL, "caBundle": bundle},
        ]
    assert given["webhooks"][0]["clientConfig"] == {"service": SERVICE}

    widget = custom_resource_definition(WIDGET)
    widget["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": SERVICE}},
    }
    assert install_crds(client, [widget], webhook_url=URL, webhook_ca=CA) == [WIDGET]
    crd = client.get(kinds.apiextensions.v1.CustomResourceDefinition, "widgets.example.com")
    assert crd.to_dict()["spec"]["conversion"]["webhook"]["clientConfig"] == {
        "url": f"{URL}/check",
        "caBundle": base64.b64encode(CA).decode(),
    }


def test_a_webhook_with_an_address_of_its_own_keeps_it() -> None:
    with APIServer() as server, Client(server.client_config()) as client:
        given = configuration(url="https://example.com/check")
        (made,) = install_webhooks(client, [given], webhook_url=URL)
        assert made.to_dict()["webhooks"][0]["clientConfig"] == {"url": "https://example.com/check"}


@pytest.mark.parametrize(
    ("webhooks", "url", "error", "text"),
    [
        ([], "http://127.0.0.1:1", ValueError, "https:// only"),
        ([], f"{URL}/", ValueError, "without a path"),
        ("folder", URL, TypeError, "give a list"),
        ([MutableObject.new(WIDGET, "w", namespace="a")], URL, TypeError, "is not a webhook"),
        ([5], URL, TypeError, "a file or a folder"),
    ],
)
def test_what_is_no_webhook_configuration_is_refused(
    webhooks: Any, url: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        install_webhooks(None, webhooks, webhook_url=url)  # type: ignore[arg-type]


def test_a_folder_without_webhook_configurations_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds none of"):
        install_webhooks(None, [tmp_path], webhook_url=URL)  # type: ignore[arg-type]
