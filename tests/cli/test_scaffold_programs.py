"""A project as it is made passes its own checks, and runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from appsdk_operator import Client, ClientConfig, MutableObject
from appsdk_operator.controllers import wait_for
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import system_clock

pytestmark = [pytest.mark.programs, pytest.mark.long, pytest.mark.timeout(400)]

SCRIPTS = Path(sys.executable).parent
BUCKET = Kind(group="storage.example.com", version="v1alpha1", kind="Bucket")
INIT = "appsdk-operator init bucket-operator --group storage.example.com"
WHEELS = "APPSDK_TEST_WHEELS"
"""A folder with a wheel of the kit: with it the test installs, by the network, what users do."""
ADDED = [
    "kind EphemeralVolumeClaim",  # a long name
    "kind TestRun --cluster-scoped",  # called as classes of tests are
    "webhook TestRun",
    "controller TestRun",
    "webhook Account",
    "controller Account",
    "controller StatefulSet",
    "controller Namespace",
]
PROPERTY = "test_it_is_done_after_conflicts_lost_answers_and_crashes"
CHECKS = [
    "ruff format --check .",
    "ruff check .",
    "mypy",
    f"pyright --pythonpath {sys.executable}",
    "appsdk-operator check bucket_operator:app",
]


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., str]:
    """Run a command in a folder below the test's; it has to succeed."""

    def run(line: str, folder: str = ".") -> str:
        done = subprocess.run(
            line.split(),
            cwd=tmp_path / folder,
            env=environment(tmp_path),
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def environment(home: Path, **more: str) -> dict[str, str]:
    # Programs of the tests' environment; nothing is installed.
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("KUBE", "PYTEST"))}
    return {**kept, "PATH": path, "HOME": str(home), **more}


def cpu_seconds_of_programs() -> float:
    """What the programs that have ended took of the processors."""
    times = os.times()
    return times.children_user + times.children_system


def test_a_whole_project_passes_its_own_checks_as_it_is_made(shell: Callable[..., str]) -> None:
    shell(f"{INIT} --kind Account")  # which comes before "app"
    for words in ADDED:
        shell(f"appsdk-operator add {words}", "bucket-operator")
    shell("appsdk-operator manifests bucket_operator:app", "bucket-operator")
    for check in CHECKS:
        shell(check, "bucket-operator")
    # Its property tests differ in nothing but the names: that of one kind is enough.
    once = [f"--deselect=tests/test_{name}.py::{PROPERTY}" for name in ("account", "test_run")]
    said = shell(f"python -m pytest -q -p no:cacheprovider {' '.join(once)}", "bucket-operator")
    assert " passed, 2 deselected" in said
    assert "failed" not in said


def test_a_project_without_a_kind_passes_its_own_checks(shell: Callable[..., str]) -> None:
    shell(INIT)
    for check in ["ruff format --check .", "ruff check .", "python -m pytest -q"]:
        shell(check, "bucket-operator")


BY_HAND = """

@app.validate(BUCKET)
def check(obj: Object[BucketSpec, BucketStatus]) -> None:
    assert obj.spec.size < 100
"""


def test_a_webhook_that_is_added_by_hand_is_served_to_the_tests(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    shell(f"{INIT} --kind Bucket --no-deploy")
    module = tmp_path / "bucket-operator/bucket_operator/bucket.py"
    module.write_text(module.read_text() + BY_HAND)
    said = shell("python -m pytest -q -p no:cacheprovider -k asks_for_is_done", "bucket-operator")
    assert "1 passed" in said


def test_two_minutes_lead_to_a_passing_test_and_an_operator_that_works(
    shell: Callable[..., str], tmp_path: Path
) -> None:
    began = cpu_seconds_of_programs()
    shell(f"{INIT} --kind Bucket")
    shell("python -m pytest -q -p no:cacheprovider", "bucket-operator")
    with subprocess.Popen(
        ["appsdk-operator", "run", "bucket_operator:app", "--dev"],
        cwd=tmp_path / "bucket-operator",
        env=environment(tmp_path, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as operator:
        try:
            assert operator.stdout is not None
            lines = [operator.stdout.readline()]
            while " has started" not in lines[-1]:
                lines.append(operator.stdout.readline())
                assert lines[-1], "".join(lines)
            (url,) = re.findall(r"a Kubernetes API is on (http://\S+)", "".join(lines))
            with Client(ClientConfig(server=url)) as client:
                draft = MutableObject.new(BUCKET, "a", namespace="default", spec={"size": 3})
                client.create(draft)
                wait_for(
                    client,
                    BUCKET,
                    "a",
                    lambda obj: obj.status == {"ready": True, "size": 3},
                    namespace="default",
                    timeout=60.0,
                )
            operator.send_signal(signal.SIGTERM)
            said, _ = operator.communicate(timeout=60)
        finally:
            operator.kill()
    assert operator.returncode == 0, said
    # On a machine that does nothing else no more time passes; others must not fail this test.
    assert cpu_seconds_of_programs() - began < 120


@pytest.mark.skipif(
    WHEELS not in os.environ,
    reason=f"it installs packages: set {WHEELS} to a folder with a wheel of the kit",
)
def test_two_minutes_are_enough_on_a_fresh_machine_with_all_that_pip_installs(
    tmp_path: Path,
) -> None:
    """Nothing but Python: a new environment, the kit, a project, its tests, the operator."""
    folder = tmp_path / "bucket-operator"
    scripts = tmp_path / "venv" / "bin"
    kept = {name: v for name, v in os.environ.items() if not name.startswith(("KUBE", "PYTEST"))}
    kept |= {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PIP_FIND_LINKS": os.environ[WHEELS],
        "PYTHONUNBUFFERED": "1",
    }
    began = system_clock.monotonic()
    for line, place in (
        (f"{sys.executable} -m venv venv", tmp_path),
        ("pip install --quiet --upgrade pip", tmp_path),
        ("pip install --quiet appsdk-operator[cli]", tmp_path),
        (f"{INIT} --kind Bucket", tmp_path),
        ("pip install --quiet -e . --group dev", folder),
        ("pytest -q", folder),
    ):
        # Found by the new environment's PATH, not by that of this process.
        name, *words = line.split()
        program = shutil.which(name, path=kept["PATH"]) or name
        subprocess.run([program, *words], cwd=place, env=kept, check=True, timeout=300)
    with subprocess.Popen(
        [scripts / "appsdk-operator", "run", "bucket_operator:app", "--dev"],
        cwd=folder,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as operator:
        try:
            assert operator.stdout is not None
            assert any(" has started, after " in line for line in operator.stdout)
            took = system_clock.monotonic() - began
            operator.send_signal(signal.SIGTERM)
            operator.communicate(timeout=60)
        finally:
            operator.kill()
    assert took < 120
