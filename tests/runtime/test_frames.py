"""The frames of all threads."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from appsdk_operator.runtime import current_frames


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
