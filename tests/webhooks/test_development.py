"""Development against a cluster without a Service: installed at the start, removed at the end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator import Client, ClientConfig, Kind, Manager, kinds
from appsdk_operator.apiserver import kubeconfig, write_kubeconfig
from appsdk_operator.client import ApiError, Forbidden, MergePatch, NotFound
from appsdk_operator.resource import MutableObject, Object, Versions, custom_resource_definition
from appsdk_operator.runtime import Metrics, StopSignal, ThreadGroup
from appsdk_operator.testing import APIServer, FaultRule, install_crds, running
from appsdk_operator.webhooks import Admission, AdmissionResponse, Denied, WebhookRule, webhook_for
from appsdk_operator.webhooks import DevelopmentServer as _DevelopmentServer
from appsdk_operator.webhooks._install.install import (
    conversion_owner,
    install_conversion,
    restore_conversion,
)
from tests.webhooks.admission_parts import InterruptingClock

CONFIG_MAP = kinds.core.v1.ConfigMap
MUTATING = kinds.admissionregistration.v1.MutatingWebhookConfiguration
VALIDATING = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
CRD = kinds.apiextensions.v1.CustomResourceDefinition
WIDGET = Kind(group="example.com", version="v1", kind="Widget")
BETA = Kind(group="example.com", version="v1beta1", kind="Widget")
PROGRAM = Path(__file__).with_name("development_program.py")
TIMEOUT = 30.0


def DevelopmentServer(config: ClientConfig, name: str, **options: Any) -> _DevelopmentServer:  # noqa: N802
    """A server that is reached by loopback."""
    return _DevelopmentServer(config, name, **{"host": "127.0.0.1", **options})


@attrs.frozen
class Cluster:
    """A server in a kubeconfig, by a context of kind."""

    config: ClientConfig
    kubeconfig: Path
    server: Any


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def shared(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path: Path = tmp_path_factory.mktemp("development") / "kubeconfig"
    is_real = request.param == "real"
    lent = request.getfixturevalue("shared_plane").lent() if is_real else None
    with lent or APIServer(tls=True) as server:
        content = kubeconfig(server.url, server.ca_data, name="kind-test", token=server.token)
        write_kubeconfig(path, content)
        yield Cluster(server.client_config(), path, server)


@pytest.fixture
def cluster(shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("KUBECONFIG", str(shared.kubeconfig))
    return shared


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.config) as found:
        yield found
        for kind in (MUTATING, VALIDATING):
            for each in list(found.list(kind)):
                found.delete(kind, each.name)


def installed(client: Client) -> list[Object]:
    return [*client.list(MUTATING), *client.list(VALIDATING)]


def add_color(server: Any) -> None:
    """Default config maps that are colorful, and deny red ones."""

    def default(obj: MutableObject) -> None:
        obj.setdefault("data", {}).setdefault("color", "blue")

    def check(obj: Object) -> None:
        if obj.to_dict()["data"]["color"] == "red":
            raise Denied("red is no color")

    options: Any = {"object_selector": {"matchLabels": {"colorful": "yes"}}}
    builder = webhook_for(server, CONFIG_MAP)
    builder.default(default, **options).validate(create=check, **options).complete()


def create(client: Client, name: str, **data: str) -> dict[str, Any]:
    """Create a colorful config map by dry run, and return its data."""
    draft = MutableObject.new(CONFIG_MAP, name, namespace="default")
    draft.labels["colorful"] = "yes"
    if data:
        draft["data"] = data
    return dict(client.create(draft, dry_run=True).to_dict().get("data") or {})


def test_a_signal_handler_ends_the_wait_for_the_installation_of_its_own_thread(
    cluster: Cluster,
) -> None:
    clock = InterruptingClock()
    server, found = DevelopmentServer(cluster.config, "widgets", clock=clock), list[bool]()
    waiter = threading.Thread(
        target=lambda: found.append(server.wait_until_ready(clock.stop)), daemon=True
    )
    waiter.start()
    waiter.join(TIMEOUT)
    server.close()
    assert found == [False]


def test_webhooks_are_installed_while_it_runs(cluster: Cluster, client: Client) -> None:
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    assert not server.health().is_ready
    with running(server):
        assert server.health().is_ready, server.health()
        found = installed(client)
        assert [(each.kind.kind, each.name) for each in found] == [
            ("MutatingWebhookConfiguration", "colors-development"),
            ("ValidatingWebhookConfiguration", "colors-development"),
        ]
        for each in found:
            webhook = each.to_dict()["webhooks"][-1]
            assert webhook["clientConfig"]["url"].startswith(f"https://127.0.0.1:{server.port}/")
        assert create(client, "a") == {"color": "blue"}
        with pytest.raises(Forbidden, match="red is no color"):
            create(client, "a", color="red")
    assert installed(client) == []
    assert server.health().text == "the development webhook server has ended"


def test_a_manager_runs_it_in_one_line(cluster: Cluster, client: Client) -> None:
    server = DevelopmentServer(cluster.config, "colors")
    with Manager(cluster.config, webhook_server=server, metrics=Metrics()) as manager:
        add_color(manager)
        assert manager.addresses == {"webhooks": server.address}
        with running(manager):
            assert create(client, "a") == {"color": "blue"}
    assert installed(client) == []


def test_webhooks_that_are_added_later_are_installed(cluster: Cluster, client: Client) -> None:
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    with running(server):
        seen: list[str] = []

        def admit(request: Any) -> AdmissionResponse:
            seen.append(request.name)
            return AdmissionResponse.allowed()

        rule = WebhookRule(
            type="validating",
            path="/late",
            kinds=[kinds.core.v1.Secret],
            operations=["CREATE"],
        )
        server.webhooks.add("/late", Admission(admit), rule=rule)
        pause = threading.Event()
        secret = MutableObject.new(kinds.core.v1.Secret, "late", namespace="default")

        def is_asked() -> bool:
            client.create(secret, dry_run=True)
            return bool(seen)

        assert any(is_asked() or pause.wait(0.05) for _ in range(600))
        assert len(installed(client)) == 2
    assert installed(client) == []


def test_a_crd_is_converted_while_it_runs_and_as_before_afterwards(
    cluster: Cluster, client: Client
) -> None:
    def copy(old: Object, new: MutableObject) -> None:
        new["spec"] = {"size": old.to_dict()["spec"]["size"]}

    versions = Versions(WIDGET).older(BETA, up=copy, down=copy)
    definition = custom_resource_definition(versions, service=("widgets", "hooks"))
    before = definition.to_dict()["spec"]["conversion"]
    install_crds(client, [definition])
    server = DevelopmentServer(cluster.config, "widgets")
    webhook_for(server, WIDGET).convert(versions).complete()
    with running(server):
        conversion = client.get(CRD, "widgets.example.com").to_dict()["spec"]["conversion"]
        url = conversion["webhook"]["clientConfig"]["url"]
        assert url == f"https://127.0.0.1:{server.port}/convert"
        draft = MutableObject.new(BETA, "a", namespace="default", spec={"size": 1})
        client.create(draft)
        assert client.get(WIDGET, "a", namespace="default").to_dict()["spec"] == {"size": 1}
        client.delete(WIDGET, "a", namespace="default")
    stored = client.get(CRD, "widgets.example.com")
    client.delete(CRD, "widgets.example.com")
    after = stored.to_dict()["spec"]["conversion"]
    assert after["webhook"]["clientConfig"]["service"]["name"] == "hooks"
    assert after["strategy"] == before["strategy"]
    assert not [key for key in stored.annotations if "former" in key]


def test_the_conversion_before_a_killed_process_is_the_one_that_comes_back(
    cluster: Cluster, client: Client
) -> None:
    def copy(old: Object, new: MutableObject) -> None:
        """The same in both."""

    # A group of its own: a server takes its time to delete the CRD of another test.
    widget = Kind(group="example.net", version="v1", kind="Widget")
    beta = Kind(group="example.net", version="v1beta1", kind="Widget")
    versions = Versions(widget).older(beta, up=copy, down=copy)
    definition = custom_resource_definition(versions, service=("widgets", "hooks"))
    install_crds(client, [definition])
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    for owner, refusal in (
        (owner_text("janes-laptop", 7), "the conversion of CustomResourceDefinition widgets"),
        (owner_text(socket.gethostname(), child.pid), ""),
    ):
        # What a process of this owner has left.
        url = "https://127.0.0.1:1/convert"
        crd = client.get(CRD, "widgets.example.net")
        restore_conversion(client, widget, owner=owner_text("janes-laptop", 7))
        install_conversion(client, widget, {"url": url}, owner=owner)
        server = DevelopmentServer(cluster.config, "widgets")
        webhook_for(server, widget).convert(versions).complete()
        if refusal:
            with pytest.raises(RuntimeError, match=refusal):
                server.run(StopSignal())
            continue
        with running(server):
            conversion = client.get(CRD, crd.name).to_dict()["spec"]["conversion"]
            assert f":{server.port}/" in conversion["webhook"]["clientConfig"]["url"]
    stored = client.get(CRD, "widgets.example.net")
    client.delete(CRD, "widgets.example.net")
    service = stored.to_dict()["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert service["name"] == "hooks"


def test_a_kind_without_its_crd_says_what_to_install(cluster: Cluster, client: Client) -> None:
    other = Kind(group="example.org", version="v1", kind="Gadget")
    older = Kind(group="example.org", version="v1beta1", kind="Gadget")

    def copy(old: Object, new: MutableObject) -> None:
        """The same in both."""

    server = DevelopmentServer(cluster.config, "gadgets")
    add_color(server)
    webhook_for(server, other).convert(Versions(other).older(older, up=copy, down=copy)).complete()
    with pytest.raises(LookupError, match=r"no CustomResourceDefinition gadgets\.example\.org"):
        server.run(StopSignal())
    assert installed(client) == []


def leave(client: Client, kind: Kind, name: str, owner: str) -> None:
    """Install what a process of that owner would have left."""
    draft = MutableObject.new(kind, name, webhooks=[])
    draft.labels["appsdk-operator.io/temporary-webhooks"] = "colors-development"
    draft.annotations["appsdk-operator.io/owner"] = owner
    client.create(draft)


def owner_text(host: str, pid: int) -> str:
    return f'{{"host":"{host}","pid":{pid},"began":""}}'


def test_what_a_killed_process_has_left_is_replaced(cluster: Cluster, client: Client) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    dead = owner_text(socket.gethostname(), child.pid)
    leave(client, MUTATING, "colors-development", dead)
    leave(client, VALIDATING, "colors-former-name", dead)
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    with running(server):
        assert {each.name for each in installed(client)} == {"colors-development"}
        assert create(client, "a") == {"color": "blue"}
    assert installed(client) == []


def test_what_another_process_has_installed_is_left_alone(cluster: Cluster, client: Client) -> None:
    leave(client, MUTATING, "colors-development", owner_text("janes-laptop", 7))
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    with pytest.raises(RuntimeError, match=r"process 7 on janes-laptop, .* give take_over=True"):
        server.run(StopSignal())
    (left,) = installed(client)
    assert left.to_dict().get("webhooks", []) == []
    server = DevelopmentServer(cluster.config, "colors", take_over=True)
    add_color(server)
    with running(server):
        assert create(client, "a") == {"color": "blue"}
        # Jane takes them over in turn.
        for each in installed(client):
            changed = each.mutable_copy()
            changed.annotations["appsdk-operator.io/owner"] = owner_text("janes-laptop", 8)
            client.update(changed)
    assert len(installed(client)) == 2


def test_a_server_that_runs_is_stopped_by_its_close(cluster: Cluster, client: Client) -> None:
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    threads = ThreadGroup("server")
    threads.start("run", lambda: server.run(StopSignal()))
    assert server.wait_until_ready(StopSignal(), TIMEOUT)
    assert len(installed(client)) == 2
    server.close()
    server.close()
    assert not threads.join(TIMEOUT)
    assert installed(client) == []
    server.close()


def test_a_stop_before_the_start_installs_nothing(cluster: Cluster, client: Client) -> None:
    server = DevelopmentServer(cluster.config, "colors")
    add_color(server)
    stop = StopSignal()
    stop.set()
    server.run(stop)
    assert installed(client) == []
    with pytest.raises(RuntimeError, match="ran before"):
        server.run(StopSignal())


def test_a_cluster_that_is_not_one_of_development_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(PermissionError, match=r"its context is kind-test, .* contexts=\['kind-"):
        DevelopmentServer(cluster.config, "colors", contexts=["minikube"])
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(PermissionError, match="no kubeconfig has it"):
        DevelopmentServer(cluster.config, "colors")
    with pytest.raises(LookupError, match="give host="):
        DevelopmentServer(cluster.config, "colors", host="", unsafe_any_cluster=True)
    DevelopmentServer(cluster.config, "colors", unsafe_any_cluster=True).close()


@pytest.mark.parametrize("name", ["", "Colors", "a.b", "-a", "x" * 51])
def test_a_name_that_no_label_can_have_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(ValueError, match="name="):
        DevelopmentServer(cluster.config, name)


# -- failures, on the embedded server --------------------------------------------------------------


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    path = tmp_path / "kubeconfig"
    with APIServer() as server:
        write_kubeconfig(path, kubeconfig(server.url, b"", name="minikube"))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield Cluster(server.client_config(max_retries=0), path, server)


def test_what_was_installed_before_a_refusal_is_removed(faulty: Cluster) -> None:
    faulty.server.inject([FaultRule.answer(403, kind=VALIDATING, verb="patch")])
    server = DevelopmentServer(faulty.config, "colors")
    add_color(server)
    with pytest.raises(ApiError):
        server.run(StopSignal())
    with Client(faulty.config) as client:
        assert installed(client) == []


def test_a_storage_that_is_rebuilt_after_a_change_of_the_conversion_is_waited_for(
    faulty: Cluster, caplog: Any
) -> None:
    def copy(old: Object, new: MutableObject) -> None:
        """The same in both."""

    versions = Versions(WIDGET).older(BETA, up=copy, down=copy)
    busy = {"message": "storage is (re)initializing", "reason": "TooManyRequests"}
    with Client(faulty.config) as client:
        install_crds(client, [custom_resource_definition(versions, service=("widgets", "hooks"))])
    # More than there would be requests in half a second, if they were not waited out.
    faulty.server.inject(
        [
            FaultRule.answer(429, kind=WIDGET, verb="list", times=8, **busy),
            FaultRule.answer(429, kind=BETA, verb="watch", times=8, **busy),
        ]
    )
    server = DevelopmentServer(faulty.config, "widgets")
    webhook_for(server, WIDGET).convert(versions).complete()
    with running(server), Client(faulty.config) as client:
        client.watch(BETA).close()
        assert client.list_page(WIDGET, retry=False).items == []
    assert "cannot be read yet" not in caplog.text


def test_a_removal_that_fails_says_what_to_do(faulty: Cluster, caplog: Any) -> None:
    server = DevelopmentServer(faulty.config, "colors")
    add_color(server)
    with running(server):
        faulty.server.inject([FaultRule.answer(500, verb="delete")])
    assert "could not remove its webhooks" in caplog.text
    assert (
        "kubectl delete mutatingwebhookconfigurations/colors-development "
        "validatingwebhookconfigurations/colors-development" in caplog.text
    )


# -- whole processes -------------------------------------------------------------------------------


class Process:
    """The operator under development."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(cluster.kubeconfig), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        )

    def wait_until_ready(self) -> None:
        """Wait for its line."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.strip() == b"ready":
                return
        raise AssertionError(b"".join(said).decode())

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, and return the status and what it said."""
        if number is not None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, out.decode()


@pytest.mark.programs
@pytest.mark.parametrize("how", ["handled", "unhandled"])
def test_ctrl_c_removes_the_webhooks(cluster: Cluster, client: Client, how: str) -> None:
    process = Process(cluster, how)
    process.wait_until_ready()
    assert create(client, "a") == {"color": "blue"}
    status, said = process.end(signal.SIGINT)
    assert installed(client) == [], said
    assert status in (0, 130, -signal.SIGINT), said
    assert create(client, "b", color="green") == {"color": "green"}


@pytest.mark.programs
def test_an_operator_that_fails_removes_its_webhooks(cluster: Cluster, client: Client) -> None:
    process = Process(cluster, "fail")
    status, said = process.end()
    assert status != 0
    assert "this operator fails" in said
    assert installed(client) == [], said


@pytest.mark.programs
def test_a_killed_operator_is_followed_by_one_that_works(cluster: Cluster, client: Client) -> None:
    first = Process(cluster)
    first.wait_until_ready()
    first.end(signal.SIGKILL)
    assert len(installed(client)) == 2
    # Nothing answers any more.
    with pytest.raises(ApiError, match="failed calling webhook"):
        create(client, "a")
    second = Process(cluster)
    second.wait_until_ready()
    assert create(client, "a") == {"color": "blue"}
    _, said = second.end(signal.SIGTERM)
    assert installed(client) == [], said
    with pytest.raises(NotFound):
        client.get(MUTATING, "colors-development")


def test_it_ends_soon_when_its_api_server_has_ended_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with APIServer() as server:
        hooks = DevelopmentServer(server.client_config(), "colors", unsafe_any_cluster=True)
        add_color(hooks)
        stop, threads = StopSignal(), ThreadGroup("test")
        threads.start("hooks", lambda: hooks.run(stop))
        assert hooks.wait_until_ready(stop, TIMEOUT)
    caplog.set_level(logging.DEBUG, "appsdk_operator.client")
    stop.set()
    assert not threads.join(TIMEOUT)
    # With all of a client's retries it took 12 seconds.
    tries = [each for each in caplog.records if each.getMessage().startswith("trying again")]
    assert len(tries) == 1
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "could not remove its webhooks" in record.getMessage()
    assert "Connection refused" in record.getMessage()


@pytest.mark.parametrize("text", ["", "{", "5", "[" * 100_000])
def test_a_note_that_is_none_about_a_former_conversion_is_ignored(text: str) -> None:
    note = {"appsdk-operator.io/former-conversion": text}
    with APIServer() as server, Client(server.client_config()) as client:
        install_crds(client, [custom_resource_definition(WIDGET)])
        patch = MergePatch({"metadata": {"annotations": note}})
        client.patch(CRD, WIDGET.qualified_name, patch)
        assert conversion_owner(client, WIDGET) == ""
