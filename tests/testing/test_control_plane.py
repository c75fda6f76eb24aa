"""The control plane's owner: with stand-ins for the programs what goes wrong, the rest for real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    Expired,
    Forbidden,
    TransportError,
)
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import RealClock
from appsdk_operator.testing import ControlPlane, ControlPlaneError, LoggedRequest
from appsdk_operator.testing._control_plane import control_plane
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
VARIABLES = ("KUBEBUILDER_ASSETS", "TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER")


def processes_of(folder: Path) -> list[str]:
    """The command lines of the processes that were started for a control plane in ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
        if entry.name.isdigit() and str(folder) in command:
            found.append(command)
    return found


# -- with stand-ins ------------------------------------------------------------------------------


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Makes shell scripts take the place of the programs."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)

    def make(etcd: str, server: str) -> Path:
        for name, script in (("etcd", etcd), ("kube-apiserver", server)):
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return tmp_path

    return make


def test_a_missing_program_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(FileNotFoundError, match="set KUBEBUILDER_ASSETS to the folder"):
        ControlPlane(assets=tmp_path).start()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"\(KUBEBUILDER_ASSETS\)"):
        ControlPlane().start()
    monkeypatch.setenv("TEST_ASSET_ETCD", str(tmp_path / "other"))
    with pytest.raises(FileNotFoundError, match=r"other \(TEST_ASSET_ETCD\)"):
        ControlPlane().start()


def test_a_server_that_ends_at_once_is_an_error_with_the_end_of_its_log(
    stand_ins: Callable[[str, str], Path],
) -> None:
    folder = stand_ins("exec sleep 60", "echo unknown flag: --of-tomorrow; exit 3")
    with pytest.raises(ControlPlaneError, match="kube-apiserver ended with status 3") as caught:
        ControlPlane(assets=folder).start()
    assert "unknown flag: --of-tomorrow" in str(caught.value)


class OnceBothHaveBegun:
    """A clock on which a minute has passed once both stand-ins have said that they wait."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def time(self) -> float:
        return RealClock().time()

    def monotonic(self) -> float:
        said = ""
        with contextlib.suppress(RuntimeError):  # not started yet
            said = "".join(map(self._plane.log_tail, ("etcd", "kube-apiserver")))
        return 60.0 if said.count("waits") == 2 else 0.0


def test_a_server_that_never_gets_ready_is_an_error_after_the_timeout(
    stand_ins: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stand_ins("echo etcd waits; exec sleep 60", "echo server waits; exec sleep 60")
    plane = ControlPlane(assets=folder, start_timeout=20.0)
    monkeypatch.setattr(control_plane, "system_clock", OnceBothHaveBegun(plane))
    with pytest.raises(ControlPlaneError, match=r"not ready within 20 s") as caught:
        plane.start()
    assert "etcd waits" in str(caught.value)
    assert "server waits" in str(caught.value)


def test_a_taken_port_is_tried_again_with_others(stand_ins: Callable[[str, str], Path]) -> None:
    folder = stand_ins(
        "exec sleep 60",
        'for flag; do case $flag in --secure-port*) echo "$flag" >> "$(dirname "$0")/ports";; esac;'
        ' done; echo "listen tcp 127.0.0.1: bind: address already in use"; exit 1',
    )
    with pytest.raises(ControlPlaneError, match="address already in use"):
        ControlPlane(assets=folder).start()
    ports = (folder / "ports").read_text().split()
    assert len(ports) == 5
    assert len(set(ports)) > 1


def test_servers_that_ignore_a_polite_stop_are_killed(
    stand_ins: Callable[[str, str], Path],
) -> None:
    folder = stand_ins(*["trap '' TERM; while :; do sleep 60; done"] * 2)
    clock = RealClock()
    started = clock.monotonic()
    with pytest.raises(ControlPlaneError):
        ControlPlane(assets=folder, start_timeout=0.3, stop_timeout=0.3).start()
    assert clock.monotonic() - started < 30, "they sleep for a minute"
    assert eventually(lambda: not processes_of(folder))


def test_the_developers_own_etcd_variables_do_not_matter(
    stand_ins: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_QUOTA_BACKEND_BYTES", "1")
    folder = stand_ins("env | grep -c ETCD_; exit 1", "exec sleep 60")
    with pytest.raises(ControlPlaneError, match="etcd's log:\n0"):
        ControlPlane(assets=folder).start()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start_timeout": 0}, "start_timeout=0"),
        ({"stop_timeout": -1}, "stop_timeout=-1"),
        ({"token": ""}, "one word"),
        ({"token": "a,b"}, "one word"),
        ({"token": "a\nb"}, "one word"),
        ({"flags": {"--v": "4"}}, "without dashes"),
        ({"flags": {"v=4": ""}}, "without dashes"),
        ({"etcd_flags": {"-q": "1"}}, "without dashes"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ControlPlane(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, 4, ["a", 1]])
def test_flags_are_texts(value: object) -> None:
    with pytest.raises(TypeError, match="is not text"):
        ControlPlane(flags={"v": value})  # type: ignore[dict-item]


def test_flags_reach_both_programs_and_may_be_given_several_times(
    stand_ins: Callable[[str, str], Path],
) -> None:
    told = '"$(dirname "$0")/told"'
    etcd = f'echo "$@"; touch {told}; exec sleep 60'
    # It ends once the other one has told its flags.
    server = f'until [ -e {told} ]; do sleep 0.01; done; echo "$@"; exit 1'
    folder = stand_ins(etcd, server)
    flags = {"runtime-config": ["a=true", "b=true"], "authorization-mode": None}
    plane = ControlPlane(assets=folder, flags=flags, etcd_flags={"log-level": "debug"})
    with pytest.raises(ControlPlaneError) as caught:
        plane.start()
    for text in ("--log-level=debug", "--runtime-config=a=true --runtime-config=b=true"):
        assert text in str(caught.value)
    assert "--authorization-mode" not in str(caught.value)


def test_time_outs_come_from_the_environment_as_with_envtest(
    stand_ins: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stand_ins("exec sleep 60", "exec sleep 60")
    monkeypatch.setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "0.1s200ms")
    monkeypatch.setenv("KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT", "0s")
    with pytest.raises(ControlPlaneError, match=r"not ready within 0\.3 s"):
        ControlPlane(assets=folder).start()
    for wrong in ("20", "1 s", "s", "-1s", "0s"):
        monkeypatch.setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", wrong)
        with pytest.raises(ValueError, match="KUBEBUILDER_CONTROLPLANE_START_TIMEOUT"):
            ControlPlane()


def test_the_servers_may_speak_to_the_terminal(
    stand_ins: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = stand_ins("exec sleep 60", "echo here I am; exit 1")
    monkeypatch.setenv("KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT", "true")
    with pytest.raises(ControlPlaneError, match=r"ended with status 1 while starting$"):
        ControlPlane(assets=folder).start()
    assert "here I am" in capfd.readouterr().err


def test_what_needs_a_running_server_says_so() -> None:
    plane = ControlPlane(token="abc")
    with pytest.raises(RuntimeError, match="audit=True"):
        _ = plane.requests
    plane.stop()
    assert plane.token == "abc"
    for use in (lambda: plane.url, plane.kill, plane.restart, plane.compact, plane.log_tail):
        with pytest.raises(RuntimeError, match="was not started"):
            use()


# -- for real ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(audit=True) as plane:
        yield plane


@pytest.mark.real
def test_it_is_reached_as_the_embedded_server_is(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    plane.write_kubeconfig(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text()) == plane.kubeconfig()
    assert plane.start() is plane
    for config in (plane.client_config(), ClientConfig.from_kubeconfig(path)):
        assert config.server == plane.url
        with Client(config) as client:
            names = [namespace.name for namespace in client.list(kinds.core.v1.Namespace)]
            assert "default" in names
    assert "Bearer" not in repr(plane.client_config()) + plane.log_tail()
    with pytest.raises(ValueError, match="has no log"):
        plane.log_tail("kubelet")


@pytest.mark.real
def test_users_are_known_by_their_certificates_and_may_do_what_their_groups_may(
    plane: ControlPlane, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    plane.write_kubeconfig(path, "root", groups=["system:masters", "others"])
    with Client(ClientConfig.from_kubeconfig(path)) as root:
        assert list(root.list(CONFIG_MAP, namespace="kube-system"))
    with (
        Client(plane.client_config("alice", groups=["dev"])) as alice,
        pytest.raises(Forbidden, match='User "alice" cannot list'),
    ):
        list(alice.list(CONFIG_MAP, namespace="kube-system"))
    with pytest.raises(ValueError, match="one line of text"):
        plane.client_config("")
    with pytest.raises(ValueError, match="list of names"):
        plane.client_config("alice", groups="dev")


@pytest.mark.real
def test_requests_are_in_the_audit_log(plane: ControlPlane) -> None:
    with Client(plane.client_config(user_agent="me/1.0")) as client:
        client.create(MutableObject.new(CONFIG_MAP, "seen", namespace="default"))
        with pytest.raises(AlreadyExists):
            client.create(MutableObject.new(CONFIG_MAP, "seen", namespace="default"))
        with client.watch(CONFIG_MAP, namespace="default", timeout=1):
            pass

    def written() -> list[LoggedRequest]:
        return [request for request in plane.requests if request.user_agent == "me/1.0"]

    # The server writes a request down once it has ended there, which may be after it has for us.
    assert eventually(lambda: len(written()) == 3)
    found = written()
    assert [(r.user, r.verb, r.method, r.namespace, r.status) for r in found] == [
        ("admin", "create", "POST", "default", 201),
        ("admin", "create", "POST", "default", 409),
        ("admin", "watch", "GET", "default", 200),
    ]
    assert all(0 <= request.duration < 10 for request in found)
    assert found[0].path == "/api/v1/namespaces/default/configmaps"


@pytest.mark.real
def test_kubectl_is_run_against_it(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\ncat "${1#--kubeconfig=}"; cat; echo "$2"; test "$2" != fail\n')
    program.chmod(0o755)
    monkeypatch.setenv("TEST_ASSET_KUBECTL", str(program))
    said = plane.kubectl("get", stdin="from here")
    assert plane.url in said
    assert said.endswith("from hereget\n")
    with pytest.raises(ControlPlaneError, match="kubectl fail failed"):
        plane.kubectl("fail")


@pytest.mark.real
def test_what_was_stored_survives_a_kill_and_a_restart_on_the_same_port(
    plane: ControlPlane,
) -> None:
    url = plane.url
    with Client(plane.client_config(max_retries=0)) as client:
        draft = MutableObject.new(CONFIG_MAP, "kept", namespace="default", data={"a": "b"})
        made = client.create(draft)
        plane.kill()
        plane.kill()
        with pytest.raises(TransportError):
            client.get(CONFIG_MAP, "kept", namespace="default")
        plane.restart()
        assert plane.url == url
        assert client.get(CONFIG_MAP, "kept", namespace="default").uid == made.uid


@pytest.mark.real
def test_history_that_was_compacted_is_expired_after_a_restart_for_lists_and_watches(
    plane: ControlPlane,
) -> None:
    with Client(plane.client_config()) as client:
        for name in ("one", "two", "three"):
            client.create(MutableObject.new(CONFIG_MAP, name, namespace="default"))
        page = client.list_page(CONFIG_MAP, namespace="default", limit=1)
        client.delete(CONFIG_MAP, "one", namespace="default")
        plane.compact()
        plane.compact()
        # Up to Kubernetes 1.33 lists are expired at once; later ones have snapshots in memory.
        plane.restart()
        with pytest.raises(Expired):
            client.list_page(
                CONFIG_MAP, namespace="default", limit=1, continue_token=page.continue_token
            )
        with pytest.raises(Expired):
            watch_once(client, page.resource_version)


def watch_once(client: Client, resource_version: str) -> None:
    with client.watch(
        CONFIG_MAP, namespace="default", resource_version=resource_version, timeout=5
    ) as watch:
        next(watch.events())


@pytest.mark.real
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_no_process_and_no_file_outlives_a_test_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, threading\n"
        "from appsdk_operator.testing._control_plane.control_plane import ControlPlane\n"
        "plane = ControlPlane()\n"
        # Servers must not end with the thread that started them.
        "thread = threading.Thread(target=plane.start)\n"
        "thread.start(); thread.join()\n"
        "print(plane.url, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith(b"https://127.0.0.1:")
        assert len(processes_of(tmp_path)) == 3
        owner.send_signal(signal.SIGKILL)
    assert eventually(lambda: not processes_of(tmp_path))
    assert eventually(lambda: not list(tmp_path.iterdir()))


@pytest.mark.real
def test_stop_is_quick_and_leaves_nothing_also_with_a_watch_open() -> None:
    clock = RealClock()
    plane = ControlPlane().start()
    folder = plane._dir
    with Client(plane.client_config(max_retries=0)) as client:
        with client.watch(CONFIG_MAP) as watch:
            stopping = threading.Thread(target=plane.stop)
            started = clock.monotonic()
            stopping.start()
            with contextlib.suppress(TransportError):
                list(watch)
            stopping.join()
        assert clock.monotonic() - started < 30, "kube-apiserver waits a minute for watches"
    plane.stop()
    assert not folder.exists()
    assert not processes_of(folder)
