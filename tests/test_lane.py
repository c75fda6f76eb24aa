"""A rare failure is told and does not hide: ``hack/lane.py`` on planted tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

LANE = Path(__file__).parents[1] / "hack/lane.py"

Lane = Callable[..., tuple[int, str, str]]

ALWAYS = """
def test_always():
    assert 1 == 2
"""
EVERY_OTHER_TIME = """
from pathlib import Path

def test_every_other_time():
    with Path("times").open("a") as file:
        file.write("x")
    assert Path("times").stat().st_size % 2 == 0
"""
IN_COMPANY = """
import pytest

BEFORE = []

@pytest.mark.parametrize("name", ["some/path[0]::a b", "c"])
def test_in_company(name):
    BEFORE.append(name)
    assert BEFORE == [name], "\\udcff"
"""
PASSES = """
def test_passes():
    pass
"""


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    """Runs the lane on planted tests: its status, what it wrote, and the file of its lines."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # Nothing that the planted tests do not need: pytest starts again and again.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # It tells planted tests whether they are in company.
    environment.pop("PYTEST_XDIST_WORKER", None)
    environment.pop("PYTEST_ADDOPTS", None)

    def run(*arguments: str, **files: str) -> tuple[int, str, str]:
        (tmp_path / "planted").mkdir()
        for name, text in files.items():
            (tmp_path / f"planted/test_{name}.py").write_text(textwrap.dedent(text))
        done = subprocess.run(
            [
                sys.executable,
                LANE,
                "--flaky-file",
                "found/flaky",
                "-p",
                "xdist",
                *arguments,
                "planted",
            ],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=250,
        )
        flaky = tmp_path / "found/flaky"
        return done.returncode, done.stdout, flaky.read_text() if flaky.exists() else ""

    return run


def test_a_lane_without_a_failure_is_green(lane: Lane) -> None:
    status, output, flaky = lane("-n", "2", passes=PASSES)
    assert (status, flaky) == (0, "")
    assert "1 passed" in output.splitlines()[-1]


def test_a_test_that_always_fails_is_red(lane: Lane) -> None:
    status, output, flaky = lane("-n", "2", always=ALWAYS, passes=PASSES)
    assert (status, flaky) == (1, "")
    assert "planted/test_always.py::test_always fails by itself as well, in run 1 of 11" in output
    assert output.count("assert 1 == 2") >= 2


def test_a_test_that_fails_every_other_time_is_red(lane: Lane) -> None:
    status, output, flaky = lane("-n", "2", every_other=EVERY_OTHER_TIME)
    assert (status, flaky) == (1, "")
    assert "test_every_other_time fails by itself as well, in run 2 of 11" in output


def test_a_test_that_fails_in_company_alone_is_told(lane: Lane) -> None:
    status, output, flaky = lane(company=IN_COMPANY, passes=PASSES)
    assert status == 0, output
    assert "1 failed, 2 passed" in output
    told = flaky.splitlines()
    assert told[0] == "== FLAKY: planted/test_company.py::test_in_company[c] (1 of 12), no seed"
    assert any("assert BEFORE == [name]" in line for line in told)
    assert output.endswith(flaky)


def test_workers_send_ids_of_any_characters_and_what_hypothesis_says(lane: Lane) -> None:
    # Importing Hypothesis twelve times takes longer than all the rest.
    planted = """
        import os, pytest

        @pytest.mark.parametrize("name", ["some/path[0]::a b"])
        def test_property(name):
            if "PYTEST_XDIST_WORKER" in os.environ:
                error = ValueError("number=100 \\udcff")
                error.add_note("Failing test case: test_property(\\n    number=100,\\n)\\n")
                error.add_note("You can add @reproduce_failure('6.1', b'AEFk') to your test")
                raise error
    """
    arguments = ("-n", "2", "--dist", "worksteal")
    status, output, flaky = lane(*arguments, property=planted)
    assert status == 0, output
    first, *rest = flaky.splitlines()
    start = "== FLAKY: planted/test_property.py::test_property[some/path[0]::a b] (1 of 12), "
    assert first.startswith(start)
    assert "@reproduce_failure(" in first
    assert any("Failing test case: test_property(" in line for line in rest)


def test_one_red_test_makes_the_lane_red_whatever_the_others_are(lane: Lane) -> None:
    status, output, flaky = lane(also_always=ALWAYS, company=IN_COMPANY)
    assert (status, flaky) == (1, "")
    assert "test_always fails by itself as well" in output


CRASH = """
import os, signal

def test_crash():
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""
FOUR = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_four(number):
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""
IN_COLLECTION = "import os\nassert 'PYTEST_XDIST_WORKER' not in os.environ\n"
WARNING = """
import os, warnings

def test_warning():
    if "PYTEST_XDIST_WORKER" in os.environ:
        warnings.warn("old", DeprecationWarning)
"""
GROUPED_WARNING = """
import os

def test_warning():
    if "PYTEST_XDIST_WORKER" in os.environ:
        raise ExceptionGroup("two", [ValueError(), ExceptionGroup("one", [UserWarning("old")])])
"""
UNRAISABLE = """
import os

class Leaking:
    def __del__(self):
        raise ValueError("late")

def test_leaking():
    if "PYTEST_XDIST_WORKER" in os.environ:
        Leaking()
"""
LEFT = """
import os, pytest

@pytest.fixture
def clean():
    yield
    assert "PYTEST_XDIST_WORKER" not in os.environ, "threads left running"

def test_left(clean):
    pass
"""


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        (FOUR, "4 tests failed, which is more than 3"),
        (IN_COLLECTION, "planted/test_planted.py cannot be collected"),
        (WARNING, "test_planted.py::test_warning gives a warning"),
        (GROUPED_WARNING, "test_planted.py::test_warning gives a warning"),
        (UNRAISABLE, "test_planted.py::test_leaking gives a warning"),
        (LEFT, "test_planted.py::test_left leaves something behind"),
        (CRASH, "has ended"),
    ],
)
def test_what_is_more_than_a_rare_failure_is_red_at_once(
    lane: Lane, planted: str, reason: str
) -> None:
    status, output, flaky = lane("-n", "2", planted=planted)
    assert status != 0, output
    assert flaky == ""
    last = output.splitlines()[-1]
    assert last.startswith("== no rare failure: ")
    assert reason in last


def test_a_warning_that_fails_no_test_is_red_as_well(lane: Lane) -> None:
    planted = """
        import pytest, warnings

        @pytest.mark.filterwarnings("always")
        def test_warning():
            warnings.warn("old", DeprecationWarning)
    """
    status, output, _ = lane("-n", "2", planted=planted)
    assert status == 1
    assert "test_warning gives a warning: old" in output.splitlines()[-1]


def test_no_test_at_all_and_wrong_arguments_are_red(lane: Lane) -> None:
    status, output, _ = lane("-k", "planted", passes="")
    assert status == 5
    assert "pytest ended with status 5" in output


def test_a_test_that_is_skipped_by_itself_does_not_pass(lane: Lane) -> None:
    planted = """
        import os, pytest

        def test_company():
            if "PYTEST_XDIST_WORKER" not in os.environ:
                pytest.skip("alone")
            raise ValueError
    """
    status, output, flaky = lane("-n", "2", planted=planted)
    assert (status, flaky) == (1, "")
    assert "test_company fails by itself as well, in run 1 of 11" in output
