"""An App as a program: options, environment, log and exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import Kind, kinds
from appsdk_operator.app import App, ExitStatus, RunOptions
from appsdk_operator.app._run import log_running
from appsdk_operator.client import ClientConfig
from appsdk_operator.manager import LeaderElection, MetricsServerOptions, ProfileServerOptions
from appsdk_operator.testing import APIServer

PROGRAM = """\
import sys
from appsdk_operator import App, kinds

app = App("bucket-operator")

@app.on_add(kinds.core.v1.ConfigMap)
def made(obj):
    print("made", obj.name, flush=True)

{more}

app.run()
print("after", flush=True)
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with APIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield tmp_path / "kubeconfig"


def start(kubeconfig: Path | str, more: str = "", **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(more=more)],
        env={**os.environ, "KUBECONFIG": str(kubeconfig), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(f"it ended without {text!r}: {lines}")


@pytest.mark.programs
def test_a_program_says_that_it_works_and_returns_after_a_signal(kubeconfig: Path) -> None:
    with start(kubeconfig, APPSDK_LOG_FORMAT="json") as process:
        records = [json.loads(line) for line in lines_until(process, " has started")]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == ExitStatus.STOPPED, err
    assert "after" in out
    assert {record["operator"] for record in records} == {"bucket-operator"}
    messages = [record["message"] for record in records]
    assert "bucket-operator watches configmaps in all namespaces" in messages
    assert messages[-1].endswith(": 1 controller with 8 workers")


@pytest.mark.programs
def test_a_failure_ends_the_program_with_status_1(kubeconfig: Path) -> None:
    more = "@app.task\ndef fails(stop): raise ConnectionError('no storage')"
    with start(kubeconfig, more) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == ExitStatus.FAILED
    assert "bucket-operator failed" in err
    assert "no storage" in err
    assert "after" not in out


def test_the_end_names_the_calls_that_hold_the_process(caplog: pytest.LogCaptureFixture) -> None:
    began, may_end = threading.Event(), threading.Event()

    def hangs() -> None:
        began.set()
        may_end.wait()

    names = ("bucket-operator/task/hangs", "another/task/hangs")
    threads = [threading.Thread(target=hangs, name=name) for name in names]
    for thread in threads:
        thread.start()
    began.wait()
    log_running("bucket-operator")
    may_end.set()
    for thread in threads:
        thread.join()
    [record] = caplog.records
    assert "or at the next signal: bucket-operator/task/hangs at " in record.getMessage()
    assert "hangs (test_run.py:" in record.getMessage()
    assert "another" not in record.getMessage()
    caplog.clear()
    log_running("bucket-operator")
    assert not caplog.records


@pytest.mark.programs
@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"KUBECONFIG": "/nowhere"}, "/nowhere"),
        ({"APPSDK_LOG_LEVEL": "loud"}, "APPSDK_LOG_LEVEL: log_level='loud'"),
        ({"APPSDK_LEADER_ELECTION": "true"}, "LeaderElection(namespace="),
        ({"APPSDK_METRICS_ADDRESS": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_used_is_status_2_with_one_line(
    kubeconfig: Path, environ: dict[str, str], text: str
) -> None:
    with start(environ.pop("KUBECONFIG", kubeconfig), **environ) as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == ExitStatus.NOT_STARTED
    [line] = err.splitlines()
    assert "bucket-operator was not started" in line
    assert text in line


def test_options_come_from_the_environment_unless_they_are_given() -> None:
    environ = {
        "APPSDK_NAMESPACES": "red, green",
        "APPSDK_LEADER_ELECTION": "no",
        "APPSDK_LOG_LEVEL": "DEBUG",
        "APPSDK_PROBE_ADDRESS": ":8081",
        "APPSDK_METRICS_ADDRESS": "",
    }
    options = RunOptions.from_environment(environ, log_level="error")
    assert options == RunOptions(
        namespaces=("red", "green"), leader_election=False, log_level="error", probe_address=":8081"
    )
    assert RunOptions.from_environment({"APPSDK_NAMESPACES": "*"}).namespaces == ()


@pytest.mark.parametrize(
    "environ",
    [
        {"APPSDK_LEADER_ELECTION": "perhaps"},
        {"APPSDK_LOG_FORMAT": "xml"},
    ],
)
def test_a_variable_that_cannot_be_used_is_named(environ: dict[str, str]) -> None:
    [name] = environ
    with pytest.raises(ValueError, match=name):
        RunOptions.from_environment(environ)


def manager_options(app: App, **given: Any) -> Any:
    from appsdk_operator.app._run import changes_of

    changes = changes_of(app, RunOptions(**given))
    with app.manager(ClientConfig(server="http://127.0.0.1:1"), **changes) as manager:
        return manager.options


def test_options_of_the_program_override_those_of_the_app() -> None:
    app = App(
        "bucket-operator",
        namespaces=["red"],
        leader_election=LeaderElection(id="other", namespace="system", retry_period=1.0),
        metrics_server=MetricsServerOptions(address="127.0.0.1:0", max_scrapes=2),
    )
    app.uses(kinds.core.v1.Pod)
    same = manager_options(app)
    assert list(same.cache.namespaces) == ["red"]
    assert same.leader_election.id == "other"
    other = manager_options(app, namespaces=[], leader_election=False, metrics_address="0")
    assert list(other.cache.namespaces) == []
    assert other.leader_election is None
    assert other.metrics_server == MetricsServerOptions(address="0", max_scrapes=2)
    moved = manager_options(app, leader_election_namespace="elsewhere")
    assert moved.leader_election == LeaderElection(
        id="other", namespace="elsewhere", retry_period=1.0
    )
    shown = manager_options(app, debug_address="127.0.0.1:0")
    assert shown.profile_server == ProfileServerOptions(address="127.0.0.1:0")
    assert same.profile_server is None
    with pytest.raises(ValueError, match="give filter_provider=AuthFilter"):
        manager_options(app, debug_address=":6060")
    plain = manager_options(App("plain"), leader_election=True, leader_election_namespace="default")
    assert plain.leader_election == LeaderElection(id="plain", namespace="default")


def test_with_a_service_the_operator_makes_the_certificates_of_its_webhooks() -> None:
    app = App("bucket-operator")
    old, new = (Kind(group="example.com", version=v, kind="Bucket") for v in ("v1alpha1", "v1"))
    app.validate(new)(lambda bucket: None)
    app.convert(old, new)(lambda old, new: None)
    app.convert(new, old)(lambda old, new: None)
    options = manager_options(app, webhook_service="system/hooks", webhook_address="127.0.0.1:0")
    certificates = options.webhook_server.certificates
    assert certificates.namespace == "system"
    assert certificates.role_rules()[0]["resourceNames"] == ["hooks-tls"]
    assert [rule["resourceNames"] for rule in certificates.cluster_role_rules()] == [
        ["bucket-operator"],
        ["buckets.example.com"],
    ]
    twice = App("bucket-operator", webhook_server=options.webhook_server)
    with pytest.raises(ValueError, match="certificates of its own"):
        manager_options(twice, webhook_service="system/hooks")
