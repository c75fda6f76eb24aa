"""What is recorded of controller-runtime's webhooks belongs to the cases as they are."""

from __future__ import annotations

import pytest

from tests.webhooks.differential import lanes
from tests.webhooks.differential.scripts import all_scripts

VERSIONS = sorted(path.stem for path in lanes.RECORDED.glob("*.json"))


def test_cases_have_names_of_their_own() -> None:
    ids = [script.id for script in all_scripts()]
    assert len(ids) == len(set(ids)) > 140


@pytest.mark.parametrize("version", VERSIONS)
def test_each_case_is_recorded(version: str) -> None:
    number = tuple(map(int, version.split(".")))
    wanted = {each.id: each.digest for each in all_scripts() if each.since <= number}
    found = {name: digest for name, (digest, _) in lanes.recorded(version).items()}
    assert found == wanted, "record them: see the README beside this file"
