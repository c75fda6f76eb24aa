"""A finalizer that another client puts on right before the operator's write stays."""

from __future__ import annotations

import pytest

from appsdk_operator.app import App
from appsdk_operator.controllers._helpers import finalizers
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import BrokenPromise, check_operator

THING = Kind(group="example.com", version="v1", kind="Thing")


def guarded() -> App:
    app = App("thing-operator")

    @app.on_add(THING)
    @app.on_delete(THING)
    def nothing(_: Object) -> None: ...

    return app


REPLAY = ["race hold a", "create a {}", "wait 0"]


def test_it_stays_in_a_history_with_that_race() -> None:
    check_operator(guarded(), replay=REPLAY)


def test_a_patch_without_its_tests_is_found_by_that_race_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finalizers, "_guards", finalizers.uid_guard)
    check_operator(guarded(), replay=["hold a", *REPLAY[1:]])
    with pytest.raises(BrokenPromise, match="finalizer safety"):
        check_operator(guarded(), replay=REPLAY)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_search_finds_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finalizers, "_guards", finalizers.uid_guard)
    with pytest.raises(BrokenPromise, match="finalizer safety") as raised:
        check_operator(guarded(), seed=seed, max_examples=200)
    assert "race " in str(raised.value)
