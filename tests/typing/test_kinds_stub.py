"""What type checkers know of the built-in kinds is what is in the table."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from appsdk_operator.resource import kinds

SCRIPT = Path(__file__).parents[2] / "hack/kinds_stub.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kinds_stub", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_what_the_script_makes_of_the_table(script: ModuleType) -> None:
    made = script.stub()
    assert script.STUB.read_text(encoding="utf-8") == made, "run: python hack/kinds_stub.py"


def test_the_stub_names_every_kind_once_for_each_version(script: ModuleType) -> None:
    named = [
        line.split(":")[0].strip() for line in script.stub().splitlines() if line.endswith(": Kind")
    ]
    assert sorted(named) == sorted(entry.kind.kind for entry in kinds.builtin_kinds())


def test_a_kind_that_is_not_in_the_table_is_refused_with_those_like_it() -> None:
    with pytest.raises(AttributeError, match="did you mean ConfigMap"):
        kinds.core.v1.ConfigMp  # type: ignore[attr-defined]  # noqa: B018
