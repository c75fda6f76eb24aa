"""client-go's discovery, dynamic informer, work queue and leader election."""

from __future__ import annotations

from pathlib import Path

import pytest

from appsdk_operator import Kind, kinds
from appsdk_operator.client import Client, MergePatch
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.testing import APIServer
from tests.foreign.conftest import PATIENCE, Program, Start

pytestmark = [pytest.mark.programs, pytest.mark.timeout(600)]

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = kinds.core.v1.ConfigMap
LEASE = kinds.coordination.v1.Lease


def widget(name: str, size: int) -> MutableObject:
    return MutableObject.new(WIDGET, name, namespace="default", spec={"size": size})


def sees(client: Client, name: str, size: int) -> Object:
    return wait_for(
        client,
        WIDGET,
        name,
        lambda obj: obj is not None and (obj.status or {}).get("seen") == size,
        namespace="default",
        timeout=PATIENCE,
    )


def test_an_operator_of_client_go_does_its_work_and_hands_it_over(
    client_go_operator: Path, kubeconfig: Path, start: Start, client: Client
) -> None:
    def replica(name: str) -> Program:
        config = str(kubeconfig)
        return start(str(client_go_operator), "--kubeconfig", config, "--identity", name)

    for number in range(20):
        client.create(widget(f"w{number}", number))
    first = replica("first")
    assert first.until("server").startswith("v1.")
    assert first.until("leader") == "first"
    assert first.until("synced") == 20
    second = replica("second")
    assert second.until("leader") == "first"
    for number in range(1, 20):
        sees(client, f"w{number}", number)
        kept = client.get(CONFIG_MAP, f"w{number}", namespace="default")
        assert kept["data"] == {"size": str(number)}

    client.patch(WIDGET, "w3", MergePatch({"spec": {"size": 33}}), namespace="default")
    sees(client, "w3", 33)
    client.create(widget("flaky", 5))
    sees(client, "flaky", 5)
    assert first.until("failed")["key"] == "default/flaky"
    client.delete(WIDGET, "w4", namespace="default")
    assert first.until("gone") == "w4"
    wait_for(client, CONFIG_MAP, "w4", until.deleted(), namespace="default", timeout=PATIENCE)

    first.stop()
    assert first.until("stopped") == "first"
    assert second.until("leader", lambda who: who == "second")
    assert second.until("synced") == 20
    client.patch(WIDGET, "w5", MergePatch({"spec": {"size": 55}}), namespace="default")
    sees(client, "w5", 55)
    lease = client.get(LEASE, "widget-operator", namespace="default")
    assert lease.spec["holderIdentity"] == "second"
    assert lease.spec["leaseTransitions"] >= 1


def test_a_watch_of_client_go_survives_a_restart_of_the_server(
    client_go_operator: Path, kubeconfig: Path, start: Start, client: Client, server: APIServer
) -> None:
    operator = start(str(client_go_operator), "--kubeconfig", str(kubeconfig), "--identity", "only")
    operator.until("synced")
    server.stop()
    server.start()
    client.create(widget("late", 1))
    sees(client, "late", 1)
