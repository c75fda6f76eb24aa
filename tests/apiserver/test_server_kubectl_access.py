"""What kubectl says about access, unmodified and against the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from tests.apiserver.kubectl_tools import run_kubectl

KUBECTL = shutil.which("kubectl")

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")

Kubectl = Callable[..., str]


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer(tls=True, rbac=True) as running:
        yield running


@pytest.fixture
def kubectl(server: APIServer, tmp_path: Path) -> Kubectl:
    """Run kubectl as a user, the administrator when none is named; what it printed."""

    def run(*arguments: str, user: str = "", fails: bool = False) -> str:
        config = tmp_path / f"config-{user.replace(':', '-')}"
        if not config.exists():
            server.write_kubeconfig(config, user or None)
        done = run_kubectl(config, *arguments, fails=fails)
        return done.stderr + done.stdout if fails else done.stdout

    return run


def test_who_may_do_what(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    assert "no" in kubectl("auth", "can-i", "list", "pods", user="bob", fails=True)
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,configmaps")
    kubectl("create", "rolebinding", "reader", "--role=reader", "--user=bob")
    assert kubectl("auth", "can-i", "list", "pods", user="bob") == "yes\n"
    assert "no" in kubectl("auth", "can-i", "watch", "pods", user="bob", fails=True)
    assert "no" in kubectl("auth", "can-i", "list", "pods", "-n", "x", "--as=bob", fails=True)
    assert kubectl("auth", "can-i", "get", "/version", user="bob") == "yes\n"
    listed = kubectl("auth", "can-i", "--list", "--as=bob")
    assert "configmaps" in listed
    assert "[get list]" in listed
    assert kubectl("get", "configmaps", user="bob") == ""
    refused = kubectl("get", "secrets", user="bob", fails=True)
    assert (
        'Error from server (Forbidden): secrets is forbidden: User "bob" cannot list resource '
        '"secrets" in API group "" in the namespace "default"'
    ) in refused
    refused = kubectl("get", "pods", "--as=admin", user="bob", fails=True)
    assert 'User "bob" cannot impersonate' in refused


def test_who_somebody_is(kubectl: Kubectl) -> None:
    assert "alice" in kubectl("auth", "whoami", user="alice")
    told = kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo}", "--as=zoe")
    assert told == '{"groups":["system:authenticated"],"username":"zoe"}'


def test_a_service_account_gets_a_token(kubectl: Kubectl, server: Any, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "robot")
    account = "--serviceaccount=default:robot"
    kubectl("create", "clusterrolebinding", "robot", "--clusterrole=view", account)
    config = server.kubeconfig()
    config["users"][0]["user"] = {"token": kubectl("create", "token", "robot").strip()}
    path = tmp_path / "robot"
    path.write_text(json.dumps(config))
    assert "kube-system" in kubectl("get", "namespaces", f"--kubeconfig={path}")
    refused = kubectl("get", "secrets", f"--kubeconfig={path}", fails=True)
    assert 'User "system:serviceaccount:default:robot" cannot list' in refused
    short = kubectl("create", "token", "robot", "--duration=1s", fails=True)
    assert "may not specify a duration less than 10 minutes" in short


def test_the_server_says_its_version(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36." in kubectl("version")
    assert "widgets" not in kubectl("api-resources")
    assert kubectl("get", "--raw", "/readyz") == "ok"
