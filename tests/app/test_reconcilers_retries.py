"""When a failed reconciler of an App is called again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from appsdk_operator import (
    App,
    ConstantBackoff,
    Kind,
    Object,
    Request,
    TerminalError,
)
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.runtime import ItemExponential, never_retry
from appsdk_operator.testing import World

DISK = Kind(group="example.com", version="v1", kind="Disk")
POLICY = ConstantBackoff(10.0, max_calls=3)
OTHER = ConstantBackoff(100.0, max_calls=5)


def delays(app: App, options: ControllerOptions | None, *, by_request: bool) -> list[float]:
    """Seconds between the calls of a reconciler that fails, for an hour."""
    found: list[float] = []
    worlds: list[World] = []

    def fail(_: Object[Any, Any] | Request) -> None:
        found.append(worlds[0].clock.monotonic())
        raise ConnectionError("the disk does not answer")

    declare = app.reconciler if by_request else app.object_reconciler
    declare(DISK, options=options)(fail)
    with World(app) as world:
        worlds.append(world)
        world.create("a", {})
        world.run(3600.0)
    return [round(after - before) for before, after in itertools.pairwise(found)]


@pytest.mark.parametrize("by_request", [False, True])
@pytest.mark.parametrize(
    ("of_app", "of_reconciler", "expected"),
    [
        ({"retry_policy": POLICY}, None, [10, 10]),
        ({"retry_policy": POLICY}, ControllerOptions(max_concurrent_reconciles=2), [10, 10]),
        ({"retry_policy": never_retry}, None, []),
        ({"retry_policy": POLICY}, ControllerOptions(retry=OTHER), [100] * 4),
        (
            {
                "retry_policy": POLICY,
                "controller_options": ControllerOptions(retry=OTHER),
            },
            None,
            [100] * 4,
        ),
        # What a reconciler says of its retries goes before all that the App says of them.
        ({"retry_policy": never_retry}, ControllerOptions(max_attempts=3), [0, 0]),
        (
            {"retry_policy": never_retry},
            ControllerOptions(rate_limiter=lambda: ItemExponential(base=1000.0, jitter=0)),
            [1000] * 3,
        ),
        (
            {
                "retry_policy": never_retry,
                "controller_options": ControllerOptions(
                    rate_limiter=lambda: ItemExponential(base=1000.0, jitter=0)
                ),
            },
            None,
            [1000] * 3,
        ),
    ],
)
def test_a_failed_reconciler_is_called_again_as_the_apps_policy_says(
    of_app: dict[str, Any],
    of_reconciler: ControllerOptions | None,
    expected: list[float],
    *,
    by_request: bool,
) -> None:
    assert delays(App("disks", **of_app), of_reconciler, by_request=by_request) == expected


def test_without_a_policy_the_controllers_default_holds() -> None:
    found = delays(App("disks"), None, by_request=False)
    assert found[:6] == [0] * 6
    assert len(found) > 15


def test_a_terminal_error_is_not_retried_whatever_the_policy_says() -> None:
    calls: list[str] = []
    app = App("disks", retry_policy=ConstantBackoff(10.0))

    @app.object_reconciler(DISK)
    def fail(disk: Object[Any, Any]) -> None:
        calls.append(disk.name)
        raise TerminalError("no such disk")

    with World(app) as world:
        world.create("a", {})
        world.run(3600.0)
    assert calls == ["a"]
