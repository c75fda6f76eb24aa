"""Names of the room are light: servers load what they serve with when they are made."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "cryptography", "hypothesis", "kubernetes", "pytest", "re2")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["APIServer", "World", "Simulation", "check_operator", "running"])
def test_a_name_loads_no_server(name: str) -> None:
    code = (
        f"import sys\nfrom appsdk_operator.testing import {name}\n"
        f"print(*(m for m in {HEAVY!r} if m in sys.modules))\n"
        "print(*(m for m in sys.modules if m.startswith('appsdk_operator.apiserver._core')))"
    )
    assert run(code) == ""


@pytest.mark.parametrize("missing", ["aiohttp", "cryptography"])
@pytest.mark.parametrize("name", ["APIServer", "World", "check_operator"])
def test_a_name_says_which_extra_is_missing(name: str, missing: str) -> None:
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\n"
        "try:\n"
        f"    from appsdk_operator.testing import {name}\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    assert run(code) == f"{name} needs {missing}: pip install 'appsdk-operator[testing]'"
