"""Clusters on the developer's machine: how they reach it, and whose leftovers they hold."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import appsdk_operator
from appsdk_operator.client import contexts_of
from appsdk_operator.resource import dump_yaml
from appsdk_operator.webhooks._install.local_clusters import (
    LOCAL_CONTEXTS,
    Reach,
    allowed_context,
    docker_gateway,
    reach_by,
    reach_of,
)
from appsdk_operator.webhooks._install.owners import Owner


@pytest.mark.parametrize(
    ("context", "platform", "host", "address"),
    [
        ("kind-kind", "linux", "172.18.0.1", "172.18.0.1:0"),
        ("kind-kind", "darwin", "host.docker.internal", "127.0.0.1:0"),
        ("k3d-dev", "linux", "host.k3d.internal", ":0"),
        ("minikube", "linux", "host.minikube.internal", ":0"),
        ("docker-desktop", "darwin", "host.docker.internal", "127.0.0.1:0"),
        ("rancher-desktop", "darwin", "host.rancher-desktop.internal", ":0"),
    ],
)
def test_each_tool_has_a_name_for_this_machine(
    context: str, platform: str, host: str, address: str
) -> None:
    found = reach_of(context, gateway=lambda network: "172.18.0.1", platform=platform)
    assert found == Reach(host, address)


def test_kinds_network_can_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setenv("KIND_EXPERIMENTAL_DOCKER_NETWORK", "mine")

    def gateway(network: str) -> str:
        asked.append(network)
        return "10.1.0.1"

    reach_of("kind-a", gateway=gateway, platform="linux")
    assert asked == ["mine"]


def test_another_cluster_needs_a_host() -> None:
    with pytest.raises(LookupError, match="'prod' reaches this machine: give host="):
        reach_of("prod")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:0"),
        ("localhost", "127.0.0.1:0"),
        ("::1", "127.0.0.1:0"),
        ("10.0.0.7", ":0"),
        ("laptop.example.com", ":0"),
    ],
)
def test_a_host_of_ones_own_is_listened_for(host: str, address: str) -> None:
    assert reach_by(host) == Reach(host, address)


def fake_docker(folder: Path, output: str, status: int = 0, error: str = "") -> str:
    program = folder / "docker"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['network', 'inspect', 'kind']\n"
        f"sys.stdout.write({output!r})\nsys.stderr.write({error!r})\nsys.exit({status})\n"
    )
    program.chmod(0o755)
    return str(program)


def test_docker_says_the_gateway_of_its_network(tmp_path: Path) -> None:
    output = (
        '[{"Name":"kind","IPAM":{"Config":[{"Subnet":"fc00:f853::/64","Gateway":"fc00:f853::1"},'
        '{"Subnet":"172.18.0.0/16"},{"Subnet":"172.19.0.0/16","Gateway":"172.19.0.1"}]}}]'
    )
    assert docker_gateway("kind", program=fake_docker(tmp_path, output)) == "172.19.0.1"


@pytest.mark.parametrize("output", ["", "{}", "[]", '[{"IPAM":{"Config":null}}]', "null", "[1]"])
def test_an_answer_without_a_gateway_is_an_error_that_asks_for_the_host(
    tmp_path: Path, output: str
) -> None:
    with pytest.raises(LookupError, match="has no IPv4 gateway: give host="):
        docker_gateway("kind", program=fake_docker(tmp_path, output))


def test_no_docker_and_no_network_are_errors_that_ask_for_the_host(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"there is no program no-docker .*: give host="):
        docker_gateway("kind", program="no-docker")
    program = fake_docker(tmp_path, "[]", 1, "Error: No such network: kind\n")
    with pytest.raises(LookupError, match="No such network: kind: give host="):
        docker_gateway("kind", program=program)


def test_only_contexts_of_development_are_allowed() -> None:
    assert allowed_context(["prod", "kind-a"], LOCAL_CONTEXTS, "https://x") == "kind-a"
    assert allowed_context(["prod"], ["pr*"], "https://x") == "prod"
    with pytest.raises(PermissionError, match=r"its context is prod, .* give contexts=\['prod'\]"):
        allowed_context(["prod"], LOCAL_CONTEXTS, "https://x")
    with pytest.raises(PermissionError, match=r"no kubeconfig has it, .* unsafe_any_cluster=True"):
        allowed_context([], LOCAL_CONTEXTS, "https://x")


def test_the_list_of_contexts_is_that_of_the_pytest_plugin() -> None:
    folder = Path(appsdk_operator.__file__).parent
    text = (folder / "testing" / "_pytest" / "plugin.py").read_text(encoding="utf-8")
    assert ", ".join(f'"{context}"' for context in LOCAL_CONTEXTS) in text


def test_the_contexts_of_a_server_are_found_in_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file(name: str, current: str, **contexts: str) -> Path:
        path = tmp_path / name
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": current,
            "clusters": [
                {"name": f"c-{context}", "cluster": {"server": server}}
                for context, server in contexts.items()
            ],
            "contexts": [
                {"name": context, "context": {"cluster": f"c-{context}", "user": "u"}}
                for context in contexts
            ],
        }
        path.write_bytes(dump_yaml(content).encode())
        return path

    one = file("one", "kind-b", a="https://127.0.0.1:1", prod="https://prod.example.com")
    two = file("two", "x", **{"kind-b": "https://127.0.0.1:1/", "a": "https://elsewhere"})
    monkeypatch.setenv("KUBECONFIG", f"{one}{os.pathsep}{two}{os.pathsep}{tmp_path / 'none'}")
    # The first file counts, and the current context comes first.
    assert contexts_of("https://127.0.0.1:1") == ["kind-b", "a"]
    assert contexts_of("https://prod.example.com/") == ["prod"]
    assert contexts_of("https://elsewhere") == []
    assert contexts_of("https://elsewhere", str(two)) == ["a"]
    assert contexts_of("https://elsewhere", str(tmp_path / "none")) == []


# -- owners ----------------------------------------------------------------------------------------


def test_a_process_that_runs_is_not_gone() -> None:
    own = Owner.current()
    assert Owner.parse(str(own)) == own
    assert not own.is_gone


def test_a_process_that_has_ended_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert attrs.evolve(Owner.current(), pid=child.pid).is_gone


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process began")
def test_another_process_with_the_same_number_is_another() -> None:
    assert attrs.evolve(Owner.current(), began="1").is_gone


def test_nobody_knows_of_a_process_on_another_machine() -> None:
    elsewhere = Owner(f"not-{socket.gethostname()}", 1, "1")
    assert not elsewhere.is_gone


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "{}", "[]", "null", "[" * 100_000),
        '{"host":"a","pid":"x"}',
        '{"host":"a","pid":Infinity,"began":""}',
    ],
)
def test_what_is_no_owner_is_none(text: str) -> None:
    assert Owner.parse(text) is None
