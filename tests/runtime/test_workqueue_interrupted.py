"""A queue whose main thread a signal handler interrupts: it shuts it down, or is Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.runtime import ManualClock, Metrics, WorkQueue

PATIENCE = 10.0


class Interrupting:
    """A clock during whose reading a signal handler runs, once: the queue reads it inside."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.handler: Callable[[], None] | None = None
        self.time = clock.time
        self.wait = clock.wait

    def monotonic(self) -> float:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return self._clock.monotonic()


@pytest.fixture
def clock() -> Interrupting:
    return Interrupting(ManualClock())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def queue(clock: Interrupting, metrics: Metrics) -> WorkQueue[str]:
    made = WorkQueue[str]("q", clock=clock, metrics=metrics)
    made.add("ready")
    made.add("waiting", after=60.0)
    return made


def in_thread(do: Callable[[], Any]) -> list[Any]:
    """What it returns, empty if it hangs."""
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(do()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return outcomes


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize(
    "do",
    [
        lambda queue: queue.add("new"),
        lambda queue: queue.add_all(["new", "ready"]),
        lambda queue: queue.tickets(3) and None,
        lambda queue: len(queue) and None,
        lambda queue: queue.done("in work"),
    ],
    ids=["add", "add_all", "tickets", "len", "done"],
)
def test_it_neither_hangs_nor_hands_out_what_was_dropped(
    queue: WorkQueue[str], clock: Interrupting, metrics: Metrics, do: Any, drain: bool
) -> None:
    queue.add("in work", priority=1)
    item = queue.try_get()
    assert item is not None
    assert item.key == "in work"
    clock.handler = lambda: queue.shut_down(drain=drain)
    assert in_thread(lambda: do(queue)) == [None]
    if "in work" in queue._state.locked:
        queue.done("in work")
    handed_out = []
    while found := in_thread(queue.get)[0]:
        handed_out.append(found.key)
        queue.done(found.key)
    assert set(handed_out) <= ({"ready", "new"} if drain else set())
    assert ("ready" in handed_out) == drain
    assert (len(queue), queue.waiting) == (0, 0)
    assert queue.wait_idle(0.0)
    assert "workqueue_depth" not in metrics.render()


def test_who_sleeps_wakes_and_the_metrics_go_with_the_last_one(
    queue: WorkQueue[str], clock: Interrupting, metrics: Metrics
) -> None:
    assert queue.try_get() is not None
    queue.done("ready")
    outcomes: list[Any] = []
    sleeper = threading.Thread(target=lambda: outcomes.append(queue.get()))
    sleeper.start()
    clock._clock.block_until_waiting(1)
    clock.handler = queue.shut_down
    queue.add("new", after=1.0)
    sleeper.join(PATIENCE)
    assert outcomes == [None]
    assert "workqueue_depth" not in metrics.render()


class OnlyWith:
    """A lock that can be taken by ``with`` alone."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


def test_the_main_thread_takes_the_lock_by_with_so_that_ctrl_c_does_not_keep_it() -> None:
    # After acquire() has returned, Ctrl-C may come before the next statement.
    assert threading.current_thread() is threading.main_thread()
    queue = WorkQueue[str]("q", clock=ManualClock())
    queue._lock = OnlyWith(queue._lock)  # type: ignore[assignment]
    queue.add("a")
    queue.add("b")
    item = queue.get()
    assert item is not None
    item = queue.done_and_get(item.key)
    assert item is not None
    assert item.key == "b"
