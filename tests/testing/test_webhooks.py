"""Webhooks of a test: installed from a server, objects and files, in force at once, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import Client, ClientConfig, kinds
from appsdk_operator.client import Forbidden
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.serving import SelfSigned
from appsdk_operator.testing import (
    APIServer,
    install_webhooks,
    remove_webhooks,
    running,
)
from appsdk_operator.webhooks import (
    Denied,
    Webhooks,
    WebhookServer,
    webhook_configurations,
    webhook_for,
)

CONFIG_MAP = kinds.core.v1.ConfigMap
MUTATING = kinds.admissionregistration.v1.MutatingWebhookConfiguration
VALIDATING = kinds.admissionregistration.v1.ValidatingWebhookConfiguration


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param(
            "real",
            marks=pytest.mark.real,
        ),
    ],
)
def config(request: pytest.FixtureRequest) -> Iterator[ClientConfig]:
    is_real = request.param == "real"
    shared = request.getfixturevalue("shared_plane").lent() if is_real else None
    with shared or APIServer() as server:
        yield server.client_config()


@pytest.fixture
def client(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as found:
        yield found


@pytest.fixture
def hooks() -> Iterator[WebhookServer]:
    """A server that denies config maps with a secret, and runs."""

    def check(new: Object) -> None:
        if "secret" in (new.to_dict().get("data") or {}):
            raise Denied("no secrets here")

    server = WebhookServer("127.0.0.1:0", certificates=SelfSigned("b.a.svc"))
    webhook_for(server, CONFIG_MAP).validate(create=check).complete()
    with running(server):
        yield server


def create(client: Client, *keys: str) -> Object:
    draft = MutableObject.new(CONFIG_MAP, "a", namespace="default", data=dict.fromkeys(keys, "1"))
    return client.create(draft, dry_run=True)


def assert_in_force(client: Client) -> None:
    create(client, "public")
    with pytest.raises(Forbidden, match="denied the request: no secrets here"):
        create(client, "secret")


def test_the_webhooks_of_a_server_are_in_force_at_once_and_gone_at_once(
    client: Client, hooks: WebhookServer
) -> None:
    for _ in range(3):
        (installed,) = install_webhooks(client, hooks)
        assert_in_force(client)
        assert installed.name == "test-webhooks"
        assert len(installed.to_dict()["webhooks"]) == 1
        remove_webhooks(client, [installed])
        create(client, "secret")
    remove_webhooks(client, [installed])


def test_configurations_for_production_are_pointed_to_a_server(
    client: Client, hooks: WebhookServer, tmp_path: Path
) -> None:
    (production,) = webhook_configurations(hooks, name="production", service=("a", "b"))
    (tmp_path / "webhooks.yaml").write_text(production.to_yaml(), encoding="utf-8")
    for given in ([production], [tmp_path], [tmp_path / "webhooks.yaml"]):
        installed = install_webhooks(client, given, server=hooks)
        assert_in_force(client)
        remove_webhooks(client, installed)
        create(client, "secret")


def test_webhooks_are_updated(client: Client, hooks: WebhookServer) -> None:
    (first,) = install_webhooks(client, hooks)
    hooks.add("/late", lambda request: None)  # type: ignore[arg-type,return-value]
    (second,) = install_webhooks(client, hooks)
    assert (first.uid, first.name) == (second.uid, second.name)
    assert_in_force(client)
    remove_webhooks(client, [second])


def test_a_configuration_of_a_type_without_webhooks_goes_and_those_of_others_stay(
    client: Client, hooks: WebhookServer
) -> None:
    defaults = Webhooks()
    webhook_for(defaults, kinds.core.v1.Secret).default(lambda draft: None).complete()
    both = Webhooks()
    webhook_for(both, kinds.core.v1.Secret).default(lambda draft: None).validate(
        create=lambda new: None
    ).complete()
    of_another = MutableObject.new(VALIDATING, "other-webhooks", webhooks=[])
    client.create(of_another)
    first = install_webhooks(client, both, server=hooks)
    assert len(first) == 2
    [second] = install_webhooks(client, defaults, server=hooks)
    assert second.kind == MUTATING
    assert [each.name for each in client.list(VALIDATING)] == ["other-webhooks"]
    # Nor do configurations of this name that were not made of rules.
    [third] = install_webhooks(client, defaults, server=hooks, name="other-webhooks", timeout=0)
    assert [each.name for each in client.list(VALIDATING)] == ["other-webhooks"]
    remove_webhooks(client, [second, third, of_another])


def test_an_installation_that_does_not_wait_is_there_at_once(
    client: Client, hooks: WebhookServer
) -> None:
    (installed,) = install_webhooks(client, hooks, timeout=0)
    assert client.get(VALIDATING, "test-webhooks").uid == installed.uid
    remove_webhooks(client, [installed], timeout=0)
    assert not list(client.list(VALIDATING))


def test_a_line_says_so_if_the_server_does_not_run_yet(
    client: Client, hooks: WebhookServer, caplog: pytest.LogCaptureFixture
) -> None:
    remove_webhooks(client, install_webhooks(client, hooks, timeout=0), timeout=0)
    assert not caplog.records
    server = WebhookServer("127.0.0.1:0", certificates=SelfSigned("b.a.svc"))
    webhook_for(server, CONFIG_MAP).validate(create=lambda _: None).complete()
    remove_webhooks(client, install_webhooks(client, server, timeout=0), timeout=0)
    server.close()
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert "the webhook server has not been started yet: until it runs, writes" in said


def test_webhooks_without_a_server_need_its_address() -> None:
    nobody: Any = None
    with pytest.raises(TypeError, match="has no server: give it with server=, or its address"):
        install_webhooks(nobody, Webhooks())


def test_a_service_of_the_embedded_server_can_be_set_while_it_runs(hooks: WebhookServer) -> None:
    (production,) = webhook_configurations(
        hooks, name="production", service=("a", "b"), ca=getattr(hooks.certificates, "pem", b"")
    )
    with APIServer() as server, Client(server.client_config()) as client:
        client.create(production)
        with pytest.raises(Exception, match='service "b" not found'):
            create(client, "public")
        server.set_service("a/b", hooks.url)
        assert_in_force(client)
        for service, url in (("b", hooks.url), ("/b", hooks.url), ("a/b", "http://127.0.0.1:1")):
            with pytest.raises(ValueError, match=r"service=|url="):
                server.set_service(service, url)


class Lagging:
    """A client of a server that obeys a configuration only after some requests, as a real one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.lag = 0
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create(self, obj: MutableObject, **options: Any) -> Any:
        """Create, as if there were no webhooks as long as it lags."""
        if obj.kind == CONFIG_MAP:
            self.asked += 1
            if self.lag:
                self.lag -= 1
                return obj
        return self._client.create(obj, **options)


def test_the_wait_is_for_a_server_that_obeys_late(hooks: WebhookServer) -> None:
    with APIServer() as server, Client(server.client_config()) as client:
        lagging: Any = Lagging(client)
        lagging.lag = 3
        installed = install_webhooks(lagging, hooks)
        assert lagging.asked == 4
        lagging.lag = 2
        remove_webhooks(lagging, installed)
        assert lagging.asked == 7
        assert not list(client.list(VALIDATING))
        lagging.lag = 10**6
        with pytest.raises(TimeoutError, match=r"does not obey Validating.* after 0\.2 s"):
            install_webhooks(lagging, hooks, timeout=0.2)
        [left] = client.list(VALIDATING)
        [webhook] = left.to_dict()["webhooks"]
        assert webhook["name"] == "validate.configmaps.core"  # and no probe
