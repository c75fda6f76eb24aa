"""The examples in the help of each command, typed as they are.

They run in an empty folder, but for what ``PREPARED`` puts there for a command. Those of ``STAYS``
run until Ctrl-C; those of ``ON_A_CLUSTER`` have an API server.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import click
import pytest

from appsdk_operator import (
    Client,
    ClientConfig,
    Kind,
    MutableObject,
    cli,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.apiserver import APIServer
from appsdk_operator.app import Permission
from appsdk_operator.cli import _frame
from appsdk_operator.cli._assets import Item, Store, this_platform
from appsdk_operator.project import dump_permissions, roles
from tests.cli.mirror import archive, write_mirror

pytestmark = [pytest.mark.programs, pytest.mark.timeout(400)]

PATIENCE = 300.0
UNSET = ("KUBECONFIG", "XDG_DATA_HOME")
STAYS = {"apiserver", "run"}
ON_A_CLUSTER = {"pause", "resume", "retry", "uninstall"}
ON_AN_OPERATOR = {"top"}
"""Those that read from an operator, and that tests/cli/test_top.py runs."""


def crds(folder: Path) -> None:
    """A file with a CustomResourceDefinition."""
    widget = Kind(group="example.com", version="v1", kind="Widget")
    (folder / "crds.yaml").write_text(custom_resource_definition(widget).to_yaml())


def operator(folder: Path) -> None:
    """An operator."""
    (folder / "bucket_operator.py").write_text(
        'from appsdk_operator import App\n\napp = App("bucket-operator")\n'
    )


def app_and_release(folder: Path) -> None:
    """An App, and its CRDs as they were released."""
    lines = (
        "import attrs",
        "from appsdk_operator import App, Kind, custom_resource_definition",
        "@attrs.frozen",
        "class Spec:",
        "    size: int = 0",
        "WIDGET = Kind(group='example.com', version='v1', kind='Widget', spec=Spec)",
        "app = App('widgets')",
        "app.own(WIDGET)",
    )
    (folder / "operator_app.py").write_text("\n".join(lines))
    spec = attrs.make_class("Spec", {"size": attrs.field(default=0, type=int)}, frozen=True)
    widget = Kind(group="example.com", version="v1", kind="Widget", spec=spec)
    (folder / "released.yaml").write_text(custom_resource_definition(widget).to_yaml())


def operator_with_tests(folder: Path) -> None:
    """An operator that touches nothing, its tests, a record of them, and a role."""
    operator(folder)
    (folder / "tests").mkdir()
    (folder / "tests/test_nothing.py").write_text("def test_nothing(kube_config): ...\n")
    pods = Permission(groups=[""], resources=["pods"], verbs=["get"])
    (folder / "rbac-record.yaml").write_text(dump_permissions([pods]))
    events = Permission(groups=["events.k8s.io"], resources=["events"], verbs=["create", "patch"])
    made = roles([pods, events], name="bucket-operator", namespace="bucket-operator")
    (folder / "deploy").mkdir()
    for path, text in made.texts().items():
        (folder / "deploy" / path).write_text(text)


def project(folder: Path) -> None:
    """A project with a kind."""
    words = "init bucket-operator --group storage.example.com --kind Bucket --no-deploy -o"
    assert cli.main([*words.split(), str(folder)]) == 0


def mirror(folder: Path) -> None:
    """A mirror of two versions, of which one is installed."""
    platform = this_platform()
    write_mirror(folder / "releases", ["1.29.0", "1.36.1"], f"{platform.os}-{platform.arch}")
    (folder / "releases/envtest.tar.gz").write_bytes(archive("1.36.1"))
    store = Store(folder / ".local/share/kubebuilder-envtest")
    with (folder / "releases/envtest.tar.gz").open("rb") as file:
        store.add(Item((1, 36, 1), platform), file)


def kopf_operator(folder: Path) -> None:
    """An operator with kopf, and its CRD."""
    crds(folder)
    lines = (
        "import kopf",
        "@kopf.on.create('widgets')",
        "def make(name, **_):",
        "    print(name)",
    )
    (folder / "handlers.py").write_text("\n".join(lines))


def leases(folder: Path) -> None:
    """The Leases of operators, on the cluster."""
    with Client(ClientConfig.load(folder / ".kube" / "config")) as client:
        for namespace in ("bucket-operator", "buckets"):
            client.create(MutableObject.new(kinds.core.v1.Namespace, namespace))
            lease = kinds.coordination.v1.Lease
            client.create(MutableObject.new(lease, "bucket-operator", namespace=namespace))


def bucket(folder: Path) -> None:
    """A bucket in two namespaces of the cluster."""
    kind = Kind(group="storage.example.com", version="v1", kind="Bucket")
    with Client(ClientConfig.load(folder / ".kube/config")) as client:
        client.create(custom_resource_definition(kind))
        client.create(MutableObject.new(kinds.core.v1.Namespace, "storage"))
        for namespace in ("storage", "default"):
            client.create(MutableObject.new(kind, "photos", namespace=namespace))


PREPARED: dict[str, Callable[[Path], None]] = {
    "add": project,
    "apiserver": crds,
    "assets": mirror,
    "check": project,
    "crds": app_and_release,
    "manifests": operator,
    "migrate": kopf_operator,
    "pause": leases,
    "rbac": operator_with_tests,
    "models": crds,
    "uninstall": operator,
    "resume": leases,
    "retry": bucket,
    "run": operator,
    "update": project,
}


def examples() -> list[tuple[str, str]]:
    """The commands with each of their examples."""
    found = []
    with click.Context(_frame.program) as context:
        for name in _frame.program.list_commands(context):
            command = _frame.program.get_command(context, name)
            assert isinstance(command, _frame.Command)
            if name in ON_AN_OPERATOR:
                continue
            found += [(name, example) for example in command.examples]
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[None]:
    """An API server, which the kubeconfig of the test's home names."""
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    with APIServer() as server:
        server.write_kubeconfig(path)
        yield


@pytest.mark.parametrize(("name", "example"), examples())
def test_the_example_of_a_command_runs(
    name: str, example: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name in ON_A_CLUSTER:
        request.getfixturevalue("cluster")
    if name in PREPARED:
        PREPARED[name](tmp_path)
    scripts = Path(sys.executable).parent
    kept = {key: value for key, value in os.environ.items() if key not in UNSET}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{scripts}{os.pathsep}{kept['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    line = f"exec {example}" if name in STAYS else example
    with subprocess.Popen(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            if name in STAYS:
                assert process.stdout is not None
                assert process.stdout.readline(), f"{shlex.quote(example)} said nothing"
                process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, printed
    assert "Traceback" not in printed
