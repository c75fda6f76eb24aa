"""The command that asks an operator to try again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appsdk_operator import Client, ClientConfig, MutableObject, cli, kinds
from appsdk_operator.apiserver import APIServer

CONFIG_MAP, NODE = kinds.core.v1.ConfigMap, kinds.core.v1.Node
ASKED = "appsdk-operator.io/retry-at"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of the cluster that the kubeconfig names."""
    path = tmp_path / "config"
    with APIServer() as server:
        server.write_kubeconfig(path)
        monkeypatch.setenv("KUBECONFIG", str(path))
        with Client(ClientConfig.load(str(path))) as client:
            client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
            yield client


def test_the_time_is_written_to_the_object(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = set()
    for kind in ("configmap", "cm", "ConfigMap"):
        assert cli.main(["retry", kind, "a"]) == 0
        asked.add(client.get(CONFIG_MAP, "a", namespace="default").annotations[ASKED])
    assert len(asked) == 3
    assert all("T" in each and each.endswith("+00:00") for each in asked)
    assert "retries failed calls for ConfigMap default/a" in capsys.readouterr().out
    client.create(MutableObject.new(NODE, "n"))
    assert cli.main(["retry", "nodes", "n", "-n", "ignored"]) == 0
    assert ASKED in client.get(NODE, "n").annotations


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["configmap", "b"], "b"),
        (["configmap", "a", "-n", "nowhere"], "nowhere"),
        (["bucket", "a"], "the server serves no 'bucket'"),
        (["configmap", "a", "--context", "other"], "other"),
    ],
)
def test_what_is_not_there_is_said(
    client: Client, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["retry", *arguments]) == 1
    assert text in capsys.readouterr().err
