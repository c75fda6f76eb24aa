"""SIGINT and SIGTERM: the first stops gracefully, the second ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from appsdk_operator.runtime import Clock, ManualClock, StopSignal, ThreadGroup, system_clock

_SLICE = 0.5


def longest_wait(clock: Clock) -> float | None:
    """The longest single wait of this thread, in seconds of ``clock``; None without a limit.

    The main thread has one: a signal right before a wait does not interrupt it, so its handler,
    with or without ``handle_signals``, runs only after the wait.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return _SLICE if is_main and not isinstance(clock, ManualClock) else None


def wait_until_set(stop: StopSignal, clock: Clock) -> None:
    """Wait until ``stop``, whose waits use ``clock``, is set; the main thread handles signals."""
    while not stop.wait(longest_wait(clock)):
        pass


def run_with_signals(
    run: Callable[[StopSignal], None],
    stop: StopSignal | None,
    *,
    note: Callable[[str], object],
    threads: str,
    clock: Clock,
) -> None:
    """Call ``run(stop)`` in another thread, so that the main thread can handle signals at any time.

    Args:
        run: what to call, with a signal that ``stop``, SIGINT and SIGTERM set.
        stop: ends the run, too; None without one.
        note: called with the name of the signal that stops it.
        threads: the prefix of the thread's name.
        clock: the clock of the signal's waits where there is no ``stop``.

    Raises:
        BaseException: what ``run`` raised.
    """
    own = stop.child() if stop is not None else StopSignal(clock=clock)
    ended = StopSignal(clock=system_clock)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            run(own)
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    group = ThreadGroup(threads)
    with stop_on_signals(own, note):
        group.start("run", work)
        try:
            wait_until_set(ended, system_clock)
        finally:
            own.set()
    group.join()
    if raised:
        raise raised[0]


def check_main_thread(whose: str) -> None:
    """Check that this is the main thread, the only one in which Python handles signals.

    Raises:
        ValueError: it is not.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            f"handle_signals works in the main thread only: run the {whose} there, or set its "
            "stop signal yourself"
        )


@contextlib.contextmanager
def stop_on_signals(stop: StopSignal, note: Callable[[str], object]) -> Iterator[None]:
    """Set ``stop`` on the first SIGINT or SIGTERM, end the process on the second.

    ``note`` is called with the name of the first one before that, in a thread of its own.

    Afterwards the former handlers are restored. For the main thread only, whose single waits must
    not be longer than :func:`longest_wait`.
    """
    numbers: list[int] = []
    # The handler interrupts the main thread anywhere, perhaps while that holds a lock which logging
    # or a stop callback needs. So it only releases a bare lock, in one step, and another thread,
    # which waits for the lock, logs and sets the signal.
    gate = threading.Lock()
    gate.acquire()

    def work() -> None:
        gate.acquire()
        if numbers:
            note(signal.Signals(numbers[0]).name)
            stop.set()

    def handle(number: int, _: object) -> None:
        if numbers:
            with contextlib.suppress(OSError):
                text = f"second signal {signal.Signals(number).name}: ending at once\n"
                os.write(2, text.encode())
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # The kernel ignores signals without a handler for the first process of a container.
            os._exit(128 + number)
        numbers.append(number)
        gate.release()

    setter = threading.Thread(target=work, name="operator/signal")
    setter.start()
    before: dict[int, Any] = {}
    try:
        for caught in (signal.SIGINT, signal.SIGTERM):
            before[caught] = signal.signal(caught, handle)
        yield
    finally:
        for number, handler in before.items():
            # None: the handler was not set from Python, and cannot be restored from there.
            if handler is not None:
                signal.signal(number, handler)
        with contextlib.suppress(RuntimeError):  # a signal has released it
            gate.release()
        setter.join()
