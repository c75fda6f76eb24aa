"""What logs, errors and debug pages show: never the content of objects; and odd texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appsdk_operator.controllers import ChannelSource, for_object, map_objects
from appsdk_operator.runtime import Metrics
from tests.controllers.controller_tools import Rig
from tests.controllers.test_event_pipeline import Feed, created

SECRET: dict[str, Any] = {"kind": "Secret", "data": {"password": "aHVudGVyMg=="}}


class Odd:
    """Something whose text fails."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_what_a_reconciler_returns_by_mistake_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(SECRET).begin()
    rig.add("a")
    rig.work()
    assert "returned dict: return None when all is done" in caplog.text
    assert "aHVudGVyMg" not in caplog.text
    rig.close()


def test_what_a_map_function_returns_by_mistake_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = Feed(map_objects(lambda _: json.dumps(SECRET)))  # type: ignore[arg-type, return-value]
    feed.put(created("a"))
    assert "returned str: return a list of requests" in caplog.text
    assert "aHVudGVyMg" not in caplog.text + feed.feed.text()


def test_what_is_pushed_by_mistake_is_not_shown() -> None:
    source: ChannelSource[Any] = ChannelSource(for_object(), metrics=Metrics())
    with pytest.raises(TypeError, match="a dict cannot be pushed") as caught:
        source.push(SECRET)  # type: ignore[arg-type]
    assert "aHVudGVyMg" not in str(caught.value)


def test_a_request_and_a_reason_whose_texts_fail_break_no_log_and_no_debug_page() -> None:
    rig = Rig(OSError("no")).begin()
    request = Odd()
    rig.add(request, reason=Odd())
    rig.add(Odd(), after=5.0, reason=Odd())
    assert json.dumps(rig.controller.debug_snapshot())
    assert rig.work() == [request]
    assert rig.due_in == pytest.approx(1.0)
    rig.close()


def test_an_error_without_a_text_may_be_a_reason() -> None:
    class Mute(Exception):  # noqa: N818 - it is what it does
        def __str__(self) -> str:
            raise ValueError("no text")

    rig = Rig().begin()
    rig.add("a", reason=Mute())
    assert rig.work() == ["a"]
    assert rig.script.contexts[0].reasons == ("Mute: <Mute whose text failed: ValueError>",)
    rig.close()


def test_a_limiter_that_never_lets_anything_come_back_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Never:
        def when(self, item: Any) -> float:
            return float("inf")

        def forget(self, item: Any) -> None: ...

        def failures(self, item: Any) -> int:
            return 0

    rig = Rig(OSError("no"), rate_limiter=Never).begin()
    rig.add("a")
    rig.work()
    assert rig.due_in == pytest.approx(10.0)
    assert "the rate limiter failed: ValueError: rate_limiter returned inf" in caplog.text
    rig.close()
