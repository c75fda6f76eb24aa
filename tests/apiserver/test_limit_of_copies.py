"""The bytes that the copies of one JSON patch may add."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from appsdk_operator.apiserver._registry.json_patches import apply_as_go
from appsdk_operator.resource import PatchError


def test_a_copy_beyond_the_limit_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"a": "x" * (4 << 20)}

    def decode(_: Any) -> Any:
        raise AssertionError("it is copied")

    monkeypatch.setattr(msgspec.json, "decode", decode)
    with pytest.raises(PatchError, match="Unable to complete the copy"):
        apply_as_go(document, [{"op": "copy", "from": "/a", "path": "/b"}])
