"""The tables of options, checks and faults have a row for each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.manager import OWN_READY_CHECKS, LeaderElection, ManagerOptions
from appsdk_operator.testing import FaultRule
from appsdk_operator.webhooks import WebhookRuleOptions, WebhookServerOptions

DOCS = Path(__file__).parents[2] / "docs"


def fields(options: type) -> list[str]:
    return [field.name for field in attrs.fields(options)]


def faults() -> list[str]:
    made = vars(FaultRule).items()
    return [name for name, value in made if isinstance(value, classmethod) and name[0] != "_"]


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("manager.md", fields(ManagerOptions)),
        ("manager.md", OWN_READY_CHECKS),
        ("controllers.md", fields(ControllerOptions)),
        ("leader-election.md", fields(LeaderElection)),
        ("webhooks.md", WebhookRuleOptions.__annotations__),
        ("webhooks.md", fields(WebhookServerOptions)),
        ("testing.md", faults()),
    ],
)
def test_each_has_a_row(file: str, names: Iterable[str]) -> None:
    text = (DOCS / file).read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`\.?([\w-]+)", cell)}
    named |= {name for cell in first_cells for name in re.findall(r"`FaultRule\.(\w+)", cell)}
    assert [name for name in names if name not in named] == []
