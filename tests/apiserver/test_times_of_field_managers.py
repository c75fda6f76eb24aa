"""Times in ``metadata.managedFields`` stay where nothing else has changed."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.apiserver._managed_fields import entries


def an_object(value: Any, time: str) -> dict[str, Any]:
    return {"metadata": {"managedFields": [{"manager": "a", "time": time}]}, "spec": {"a": value}}


@pytest.mark.parametrize(
    ("before", "after", "time"),
    [(1, 1, "old"), (1, 2, "new"), (1, True, "new"), (0, False, "new"), (1, 1.0, "new")],
)
def test_a_value_of_another_type_is_a_change(before: Any, after: Any, time: str) -> None:
    new = an_object(after, "new")
    entries.discard_time_changes(new, an_object(before, "old"))
    assert new["metadata"]["managedFields"][0]["time"] == time
