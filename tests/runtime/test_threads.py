"""Threads that are owned and joined, and the event loop for ``async def`` callbacks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from appsdk_operator.runtime import LoopPart, LoopThread, ThreadGroup, settle, system_clock
from appsdk_operator.runtime._threading.threads import AwaitedCoroutine


def test_threads_are_named_after_their_group_and_are_no_daemons() -> None:
    group, seen = ThreadGroup("demo"), []
    thread = group.start("worker-1", lambda: seen.append(threading.current_thread().name))
    assert group.join() == []
    assert seen == ["demo/worker-1"]
    assert not thread.daemon


def test_what_a_thread_raises_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    group = ThreadGroup("demo")

    def fail() -> None:
        raise RuntimeError("broken worker")

    with caplog.at_level(logging.ERROR):
        group.start("w", fail)
        group.join()
    assert "thread demo/w failed" in caplog.text
    assert "broken worker" in caplog.text


def test_join_names_the_threads_that_still_run() -> None:
    group, end = ThreadGroup("demo"), threading.Event()
    group.start("stuck", end.wait)  # type: ignore[arg-type]
    group.start("quick", lambda: None).join()
    assert group.join(timeout=0.01) == ["demo/stuck"]
    end.set()
    assert group.join() == []


def test_join_waits_for_threads_that_are_started_meanwhile() -> None:
    group, seen = ThreadGroup("demo"), []

    def first() -> None:
        group.start("second", second)
        seen.append("first")

    def second() -> None:
        group.start("third", lambda: seen.append("third"))

    group.start("first", first)
    assert group.join() == []
    assert sorted(seen) == ["first", "third"]


def test_a_thread_may_join_its_own_group() -> None:
    group, results = ThreadGroup("demo"), []
    group.start("self", lambda: results.append(group.join()))
    group.join()
    assert results == [[]]


def test_a_long_lived_group_does_not_grow_with_the_threads_it_had() -> None:
    group = ThreadGroup("demo")
    for n in range(20):
        group.start(str(n), lambda: None).join()
    assert len(group._threads) == 1


def test_a_thread_that_cannot_be_started_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ThreadGroup("demo")

    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            group.start("x", lambda: None)
    assert group.join() == []


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("demo")
    yield loop
    loop.close()


async def double(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def test_a_loop_starts_no_thread_before_its_first_use(loop: LoopThread) -> None:
    assert "demo/loop" not in [t.name for t in threading.enumerate()]
    loop.run(double(1))
    assert "demo/loop" in [t.name for t in threading.enumerate()]


def test_run_returns_the_result_or_raises_the_error(loop: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("broken coroutine")

    assert loop.run(double(4)) == 8
    with pytest.raises(ValueError, match="broken coroutine"):
        loop.run(fail())
    assert loop.run(double(5)) == 10


def test_coroutines_of_several_threads_share_one_loop(loop: LoopThread) -> None:
    async def where() -> tuple[int, str]:
        return id(asyncio.get_running_loop()), threading.current_thread().name

    results = []
    threads = [threading.Thread(target=lambda: results.append(loop.run(where()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert results[0][1] == "demo/loop"


def test_context_variables_of_the_caller_are_seen_in_the_coroutine(loop: LoopThread) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")

    async def read() -> str:
        return request.get()

    loop.run(double(1))
    token = request.set("reconcile-7")
    try:
        assert loop.run(read()) == "reconcile-7"
    finally:
        request.reset(token)


def test_close_cancels_what_runs_and_lets_it_clean_up() -> None:
    loop, started, cleaned = LoopThread("demo"), threading.Event(), []

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    errors: list[BaseException] = []

    def run() -> None:
        try:
            loop.run(forever())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    loop.close()
    thread.join()
    assert [type(error) for error in errors] == [concurrent.futures.CancelledError]
    assert cleaned == [1]


def test_close_joins_the_threads_of_the_loops_executor() -> None:
    loop = LoopThread("demo")
    before = set(threading.enumerate())

    async def use_a_thread() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert loop.run(use_a_thread()).startswith("asyncio")
    loop.close()
    assert set(threading.enumerate()) <= before


def test_a_closed_loop_says_so_and_leaves_no_coroutine_behind() -> None:
    loop = LoopThread("demo")
    loop.run(double(1))
    loop.close()
    loop.close()
    with pytest.raises(concurrent.futures.CancelledError, match="was closed"):
        loop.run(double(1))
    unused = LoopThread("unused")
    unused.close()
    with pytest.raises(concurrent.futures.CancelledError, match="was closed"):
        unused.run(double(1))


def test_running_from_the_loops_own_thread_is_an_error_and_no_deadlock(loop: LoopThread) -> None:
    async def wrong() -> int:
        return loop.run(double(1))

    with pytest.raises(RuntimeError, match="await it instead"):
        loop.run(wrong())


class Later:
    """Awaitable, but no coroutine."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __await__(self) -> Generator[Any, None, int]:
        return double(self.n).__await__()


def test_what_is_not_awaitable_settles_to_itself_and_starts_no_loop(loop: LoopThread) -> None:
    with loop.bound():
        assert settle(None) is None
        assert settle(5) == 5
        assert settle(double) is double
    assert loop._loop is None


def test_awaitables_settle_on_the_loop_that_the_thread_is_bound_to(loop: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    with loop.bound():
        assert settle(where()) == "demo/loop"
        assert settle(double(3)) == 6
        assert settle(Later(6)) == 12


def test_outside_of_any_loop_awaitables_settle_on_one_of_their_own() -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert settle(where()) == threading.current_thread().name
    assert settle(Later(2)) == 4


def test_within_a_coroutine_awaitables_settle_on_another_loop(loop: LoopThread) -> None:
    """As when an async reconciler calls a helper with a function that is async, too."""
    about = contextvars.ContextVar[str]("about")

    async def inner(number: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return (number, about.get()) if not number else settle(inner(number - 1))

    async def outer() -> Any:
        about.set("this call")
        return settle(inner(2))

    assert loop.run(outer()) == (0, "this call")
    assert asyncio.run(outer()) == (0, "this call")

    async def fail() -> None:
        raise KeyError("its own")

    async def call() -> None:
        settle(fail())

    with pytest.raises(KeyError, match="its own"):
        loop.run(call())


def test_a_binding_is_the_threads_own_and_ends_with_its_block(loop: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    other = LoopThread("other")
    with loop.bound():
        with other.bound():
            assert settle(where()) == "other/loop"
        assert settle(where()) == "demo/loop"
        results: list[str] = []
        thread = threading.Thread(target=lambda: results.append(settle(where())), name="free")
        thread.start()
        thread.join()
        assert results == ["free"]
    other.close()
    assert settle(where()) == threading.current_thread().name


def test_errors_of_awaitables_reach_the_caller(loop: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("async")

    with loop.bound(), pytest.raises(KeyError, match="async"):
        settle(fail())


def test_settling_on_a_closed_loop_leaves_no_coroutine_behind() -> None:
    loop = LoopThread("demo")
    loop.close()
    coroutine = double(1)
    with loop.bound(), pytest.raises(concurrent.futures.CancelledError, match="was closed"):
        settle(coroutine)
    # Closed, or this would be a warning, and with that an error.
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_the_time_out_of_a_join_is_for_all_threads_together() -> None:
    group = ThreadGroup("stuck")
    release = threading.Event()

    def wait() -> None:
        release.wait()

    for number in range(20):
        group.start(f"{number}", wait)
    began = system_clock.monotonic()
    names = group.join(0.1)
    took = system_clock.monotonic() - began
    release.set()
    assert group.join(10) == []
    assert len(names) == 20
    assert took < 1.0, "not 20 times the time-out"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_a_coroutine_that_would_end_the_program_ends_neither_the_loop_nor_who_waits(
    error: BaseException,
) -> None:
    async def end() -> None:
        raise error

    async def work() -> int:
        return 1

    loop = LoopThread("test")
    try:
        with pytest.raises(RuntimeError, match=type(error).__name__):
            loop.run(end())
        assert loop.run(work()) == 1
    finally:
        loop.close()


@pytest.mark.parametrize("end", ["exit", "interrupt", "stop"])
def test_a_task_of_a_coroutine_ends_neither_the_loop_nor_who_waits(end: str) -> None:
    async def fail() -> None:
        if end == "stop":
            asyncio.get_running_loop().stop()
        else:
            raise SystemExit(1) if end == "exit" else KeyboardInterrupt

    async def begin() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    loop = LoopThread("test")
    loop.run(begin())
    assert loop.run(work()) == 1
    assert loop.close(10) == []


def test_a_task_that_exits_at_its_cancellation_leaves_nobody_waiting() -> None:
    loop, begun, outcomes = LoopThread("test"), threading.Barrier(4), []

    async def exit_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise SystemExit(1)

    async def hold() -> None:
        task = asyncio.get_running_loop().create_task(exit_when_cancelled())
        await asyncio.sleep(0)
        await asyncio.to_thread(begun.wait, 10)
        await task

    def run() -> None:
        try:
            loop.run(hold())
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(10)
    assert loop.close(10) == []
    for thread in threads:
        thread.join(10)
    assert len(outcomes) == 3


def test_who_waits_for_a_loop_that_breaks_is_told_and_the_next_call_has_another_one() -> None:
    loop, begun, outcomes = LoopThread("test"), threading.Event(), []

    async def hold() -> None:
        begun.set()
        await asyncio.Event().wait()

    def run() -> None:
        try:
            loop.run(hold())
        except concurrent.futures.CancelledError as error:
            outcomes.append(error)

    async def work() -> int:
        return 1

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(10)
    assert loop._loop is not None
    tasks = asyncio.all_tasks(loop._loop)
    broken = loop._loop
    broken._selector.select = None  # type: ignore[attr-defined]
    broken.call_soon_threadsafe(lambda: None)
    thread.join(10)
    assert len(outcomes) == 1
    assert loop.run(work()) == 1
    assert loop.close(10) == []
    for task in tasks:  # nobody cancels them any more
        task.get_coro().close()  # type: ignore[union-attr]
        task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["thread", "descriptors"])
def test_a_loop_that_cannot_be_started_once_is_started_by_the_next_call(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = LoopThread("test")

    async def work() -> int:
        return 1

    def refuse(*_: object) -> None:
        raise OSError("Too many open files") if what == "descriptors" else RuntimeError(what)

    with monkeypatch.context() as patch:
        if what == "thread":
            patch.setattr(threading.Thread, "start", refuse)
        else:
            patch.setattr(asyncio, "new_event_loop", refuse)
        first = work()
        with pytest.raises((RuntimeError, OSError)):
            loop.run(first)
        assert inspect.getcoroutinestate(first) == inspect.CORO_CLOSED
    assert loop.run(work()) == 1
    assert loop.close(10) == []


def test_a_coroutine_that_is_handed_over_while_the_loop_closes_leaves_no_warning() -> None:
    loop = LoopThread("busy")
    is_busy, go_on = threading.Event(), threading.Event()
    outcomes: list[BaseException] = []

    async def hold() -> None:
        is_busy.set()
        assert go_on.wait(10)

    async def never_begun() -> None:
        raise AssertionError

    def run(coroutine: Any) -> None:
        try:
            loop.run(coroutine)
        except concurrent.futures.CancelledError as error:
            outcomes.append(error)

    first = threading.Thread(target=run, args=(hold(),))
    first.start()
    assert is_busy.wait(10)
    coroutine = never_begun()
    second = threading.Thread(target=run, args=(coroutine,))
    second.start()
    assert loop._loop is not None
    while not loop._loop._ready:  # type: ignore[attr-defined]
        pass  # until it lines up behind the first one
    loop.close(0.0)
    go_on.set()
    assert loop.close(10.0) == []
    first.join(10)
    second.join(10)
    assert len(outcomes) == 1
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_a_group_tells_its_owner_what_ended_a_thread() -> None:
    failures: list[Exception] = []
    group = ThreadGroup("g", on_failure=failures.append)

    def fail(error: BaseException) -> None:
        raise error

    group.start("one", lambda: fail(KeyError("a"))).join()
    group.start("two", lambda: fail(SystemExit(3))).join()
    group.start("three", lambda: None).join()
    assert group.join(10) == []
    assert [type(error) for error in failures] == [KeyError, RuntimeError]
    assert str(failures[1]) == "thread g/two raised SystemExit(3)"


def test_a_loop_outlives_logging_that_raises(loop: LoopThread) -> None:
    """What a loop has to say goes to the logger of asyncio, which is as the program made it."""

    class BrokenFilter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ZeroDivisionError("a bug of the program")

    async def complain() -> None:
        import asyncio

        asyncio.get_running_loop().call_exception_handler({"message": "nobody looked"})

    async def answer() -> int:
        return 5

    broken, logger = BrokenFilter(), logging.getLogger("asyncio")
    logger.addFilter(broken)
    try:
        loop.run(complain())
    finally:
        logger.removeFilter(broken)
    assert loop.run(answer()) == 5


# Parts of a loop.


def started(part: LoopPart, coroutine: Any, group: ThreadGroup, seen: list[Any]) -> None:
    """Run it in a thread; what comes of it is added to ``seen``."""

    def run() -> None:
        try:
            seen.append(part.run(coroutine))
        except BaseException as error:
            seen.append(type(error))

    group.start("caller", run)


def test_a_part_of_a_loop_ends_alone_and_takes_no_more(loop: LoopThread) -> None:
    group, seen, others = ThreadGroup("demo"), [], []
    mine, other = LoopPart(loop), LoopPart(loop)
    ready, gate = [threading.Event() for _ in range(4)], []

    async def wait(number: int) -> str:
        if number == 3:
            gate.append(asyncio.Event())
        ready[number].set()
        try:
            await (gate[0].wait() if number == 3 else asyncio.Event().wait())
        except asyncio.CancelledError:
            seen.append(number)
            raise
        return "done"

    for number in range(3):
        started(mine, wait(number), group, seen)
        assert ready[number].wait(10.0)
    started(other, wait(3), group, others)
    assert ready[3].wait(10.0)
    assert mine.close() == []
    assert [each for each in seen if isinstance(each, int)] == [0, 1, 2]
    coroutine = double(2)
    with pytest.raises(concurrent.futures.CancelledError, match="has stopped"):
        mine.run(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert other.run(double(4)) == 8
    assert others == []
    loop.run(_set(gate[0]))
    assert group.join() == []
    assert others == ["done"]
    assert seen[-1] is concurrent.futures.CancelledError


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_a_part_names_the_loop_while_a_coroutine_ignores_its_cancellation(loop: LoopThread) -> None:
    group, seen, part = ThreadGroup("demo"), [], LoopPart(loop)
    ready, gate = threading.Event(), []

    async def ignore() -> str:
        gate.append(asyncio.Event())
        ready.set()
        while not gate[0].is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate[0].wait()
        return "at last"

    started(part, ignore(), group, seen)
    assert ready.wait(10.0)
    assert part.close(0.01) == ["demo/loop"]
    assert part.close(0.0) == ["demo/loop"]
    loop.run(_set(gate[0]))
    assert part.close() == []
    assert group.join() == []
    assert seen == ["at last"]


def test_a_thread_is_lent_once_and_only_while_its_coroutine_waits(loop: LoopThread) -> None:
    seen: list[str] = []

    def lend() -> Any:
        seen.append("lent")
        return lambda: seen.append("taken back")

    part = LoopPart(loop, lend=lend)

    async def at_once() -> str:
        seen.append("called")
        return "x"

    async def fail(pause: float) -> None:
        for _ in range(3):
            await asyncio.sleep(pause)
        raise ValueError("broken")

    assert part.run(at_once()) == "x"
    assert seen == ["called"]
    with pytest.raises(ValueError, match="broken"):
        part.run(fail(0.01))
    assert seen == ["called", "lent", "taken back"]
    part = LoopPart(loop, lend=lambda: seen.append("refused"))
    with pytest.raises(ValueError, match="broken"):
        part.run(fail(0.01))
    assert seen[3:] == ["refused"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_a_coroutine_raises_to_end_the_program_ends_no_loop(
    loop: LoopThread, error: BaseException
) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises((RuntimeError, GeneratorExit)):
        loop.run(fail())
    assert loop.run(double(3)) == 6


def test_a_coroutine_that_is_cancelled_before_it_begins_never_runs(loop: LoopThread) -> None:
    async def running_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    ran: list[int] = []

    async def note() -> None:
        ran.append(1)

    coroutine = note()
    awaited = AwaitedCoroutine(coroutine, loop.run(running_loop()), tells_when_waiting=False)
    awaited.cancel()
    awaited.schedule()
    assert awaited.changed.wait(10.0)
    assert awaited.has_ended()
    with pytest.raises(concurrent.futures.CancelledError):
        awaited.outcome()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert ran == []


def test_the_error_of_a_task_factory_reaches_who_waits(loop: LoopThread) -> None:
    def refuse(loop: asyncio.AbstractEventLoop, coroutine: Any, **_: Any) -> Any:
        coroutine.close()
        raise RuntimeError("no task for you")

    async def choose(factory: Any) -> None:
        asyncio.get_running_loop().set_task_factory(factory)

    async def answer() -> int:
        return 1

    loop.run(choose(refuse))
    with pytest.raises(RuntimeError, match="no task for you"):
        loop.run(answer())
