"""What a running operator needs of its environment: no package of an extra."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appsdk_operator import Client, ClientConfig, MutableObject, kinds
from appsdk_operator.testing import APIServer

PROGRAM = """\
import sys

ABSENT = {
    "aiohttp", "certifi", "cryptography", "dateutil", "h11", "hypothesis", "jinja2", "kubernetes",
    "pydantic", "pytest", "re2", "requests", "six", "textual", "urllib3", "watchfiles", "websocket",
}

class Nothing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"no {name}", name=name)

assert not ABSENT & set(sys.modules)
sys.meta_path.insert(0, Nothing())

import urllib.request

from appsdk_operator import App, ClientConfig, StopSignal, kinds
from appsdk_operator.client import ConfigError, to_model
from appsdk_operator.manager import HealthServerOptions, LeaderElection, MetricsServerOptions

app = App("lean")
stop = StopSignal()


@app.on_update(kinds.core.v1.ConfigMap)
def changed(old, new):
    pass


@app.on_add(kinds.core.v1.ConfigMap)
def made(obj):
    for name, path in (("health", "healthz"), ("health", "readyz"), ("metrics", "metrics")):
        with urllib.request.urlopen(f"http://{manager.addresses[name]}/{path}") as answer:
            assert answer.status == 200
            text = answer.read().decode()
    assert f'leader_election_master_status{{name="lean"}} 1' in text
    try:
        to_model(obj, "V1ConfigMap")
    except ModuleNotFoundError as error:
        print("made", obj.name, manager.leader, error, flush=True)
    stop.set()


manager = app.manager(
    ClientConfig.load(sys.argv[1]),
    leader_election=LeaderElection(id="lean", namespace="default", identity="one"),
    metrics_server=MetricsServerOptions(address="127.0.0.1:0"),
    health_server=HealthServerOptions(address="127.0.0.1:0"),
)
manager.run(stop)
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with APIServer() as server:
        path = tmp_path / "kubeconfig"
        server.write_kubeconfig(path)
        with Client(ClientConfig.from_kubeconfig(path)) as client:
            client.create(MutableObject.new(kinds.core.v1.ConfigMap, "first", namespace="default"))
        yield path


@pytest.mark.programs
def test_an_operator_runs_leads_and_serves_without_the_packages_of_extras(kubeconfig: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(kubeconfig)],
        env={**os.environ, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = "to_model(obj, 'V1ConfigMap') needs the package kubernetes: pip install"
    assert f"made first one {said} 'appsdk-operator[kubernetes]'" in done.stdout, done.stderr
