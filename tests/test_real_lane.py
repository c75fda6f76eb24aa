"""Which tests on the real control plane are part of a run, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import planes

pytestmark = pytest.mark.programs

FILE = "tests/apiserver/test_server_conversion.py"


def collected(*options: str, **variables: str) -> tuple[int, list[str]]:
    """The status of pytest, and the lines that it writes about a file with one real test."""
    names = ("KUBEBUILDER_ASSETS", "TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER", "PYTEST_ADDOPTS")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *options, FILE],
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_without_a_control_plane_they_are_left_out_and_the_head_says_so() -> None:
    status, lines = collected("-v")
    assert status == 0
    assert "real control plane: none, its tests are left out; see make control-plane" in lines
    assert not [line for line in lines if "_real_" in line]
    assert "(1 deselected)" in lines[-1]


def test_with_one_they_come_first() -> None:
    _, everything = collected("-m", "real", KUBEBUILDER_ASSETS="/some/where")
    _, lines = collected(KUBEBUILDER_ASSETS="/some/where")
    assert "::" in everything[0]
    assert lines[0] == everything[0]
    assert sum("::" in line for line in lines) > 1


def test_where_they_are_required_a_run_without_one_fails_before_any_test() -> None:
    status, lines = collected("--require-real")
    assert status == 4
    assert "--require-real: KUBEBUILDER_ASSETS is not set, see make control-plane" in "".join(lines)


CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def real():
    print("starts", flush=True)
    yield
    print("ends", flush=True)
"""
SHARING = """
import pytest

@pytest.fixture(scope="module")
def depends(real):
    print("made", flush=True)
    yield
    print("removed", flush=True)

@pytest.mark.real
@pytest.mark.parametrize("number", [1, 2])
def test_real(depends, number):
    print("real", number)

def test_other():
    print("other")

@pytest.mark.real
def test_late(real):
    print("late")
"""


def test_a_shared_control_plane_ends_when_the_next_test_needs_none(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    (planted / "conftest.py").write_text(CONFTEST)
    (planted / "test_sharing.py").write_text(SHARING)
    (tmp_path / "test_elsewhere.py").write_text("def test_elsewhere():\n    print('elsewhere')\n")
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qs", "-p", "tests.planes", "planted", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    words = [line.strip(".") for line in done.stdout.splitlines()]
    assert [word for word in words if word and "passed" not in word] == [
        *("starts", "made", "real 1", "real 2", "removed", "ends"),
        *("other", "starts", "late", "ends", "elsewhere"),
    ]


@pytest.fixture(scope="session")
def shared_plane() -> str:
    return "a control plane"


def test_those_of_this_run_are_noted_when_they_start(
    shared_plane: str, request: pytest.FixtureRequest
) -> None:
    (noted, _), *_ = request.session.stash[planes.RUNNING]
    assert noted.argname == "shared_plane"
