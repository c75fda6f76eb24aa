"""The frames of all threads."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from appsdk_operator.runtime import current_frames
from appsdk_operator.runtime._logs.tracebacks import awaiting_place


@pytest.mark.parametrize("is_enabled", [True, False])
def test_frames_are_read_while_nothing_is_collected(
    monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    """A finalizer that lets another thread run would hold up each thread that starts."""
    read, seen = sys._current_frames, []

    def look() -> object:
        seen.append(gc.isenabled())
        return read()

    monkeypatch.setattr(sys, "_current_frames", look)
    if not is_enabled:
        gc.disable()
    try:
        assert threading.get_ident() in current_frames()
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
    assert seen == [False]


class Remote:
    """A client with an attribute for each remote name."""

    def __getattr__(self, name: str) -> Remote:
        return Remote()

    def __await__(self) -> Any:
        return self

    def __next__(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_an_awaited_object_may_have_any_attributes() -> None:
    async def fetch() -> None:
        await Remote()

    async def reconcile() -> None:
        await fetch()

    running = reconcile()
    running.send(None)
    place = awaiting_place(running)
    running.close()
    assert place.startswith("test_an_awaited_object_may_have_any_attributes.fetch (test_frames.py:")
