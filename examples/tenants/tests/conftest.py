"""What the tests share: an account service of their own, and the operator on a server."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from appsdk_operator import Client, ClientConfig, Manager, MergePatch, NotFound
from appsdk_operator.runtime import Metrics
from appsdk_operator.webhooks import WebhookServer

from tenants_operator.accounts import UnavailableError
from tenants_operator.app import accounts, app
from tenants_operator.grant import GRANT
from tenants_operator.tenant import TENANT


@pytest.fixture(autouse=True)
def _own_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account service without accounts."""
    monkeypatch.setattr(accounts, "path", tmp_path / "accounts.sqlite")


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the next calls of the account service meet: ``down``, ``answer lost`` or ``""``."""
    faults: list[str] = []
    transaction = accounts.transaction

    @contextlib.contextmanager
    def unreliable(operation: str) -> Generator[sqlite3.Connection]:
        try:
            fault = faults.pop(0)
        except IndexError:
            fault = ""
        if fault == "down":
            raise UnavailableError("the account service does not answer")
        with transaction(operation) as database:
            yield database
        if fault == "answer lost":
            raise UnavailableError("the account service has not answered")

    monkeypatch.setattr(accounts, "transaction", unreliable)
    return faults


@pytest.fixture
def name() -> str:
    """The name of a tenant that no other test has: tenants are in no namespace."""
    return f"red-{secrets.token_hex(3)}"


@pytest.fixture
def _no_tenants_are_left(kube_client: Client) -> Iterator[None]:
    """Delete tenants, which do not go with the namespace of the test."""
    yield
    # Their finalizers, too: the operator does not run any more.
    release = MergePatch({"metadata": {"finalizers": None}})
    for kind in (GRANT, TENANT):
        for each in kube_client.list(kind):
            # The server may be about to delete it, with the namespace of its tenant.
            with contextlib.suppress(NotFound):
                kube_client.patch(kind, each.name, release, namespace=each.namespace)
                kube_client.delete(kind, each.name, namespace=each.namespace)


@pytest.fixture
def operator(
    kube_config: ClientConfig,
    kube_crds: Callable[..., Any],
    kube_run: Callable[[Manager], Any],
    kube_webhooks: WebhookServer,
    _no_tenants_are_left: None,
) -> Manager:
    """The operator, on the embedded API server or on the one that ``--kube`` names."""
    kube_crds(*app.crds())
    manager = app.manager(
        kube_config,
        leader_election=None,
        metrics=Metrics(),
        webhook_server=kube_webhooks,
    )
    kube_run(manager)
    return manager
