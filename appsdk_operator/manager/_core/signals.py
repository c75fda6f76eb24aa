"""SIGINT and SIGTERM: the first stops gracefully, the second ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from appsdk_operator.runtime import StopSignal, get_logger

__all__ = ["SLICE", "check_main_thread", "stop_on_signals"]

_log = get_logger("appsdk_operator.manager")

SLICE = 0.5
"""Seconds for which the main thread may wait at a time while signals are handled: one that comes
just before a wait begins does not end that wait, and its handler would run only after it."""


def check_main_thread(whose: str) -> None:
    """Refuse to handle signals elsewhere than in the main thread, as Python does.

    Raises:
        ValueError: this is another thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError(
            f"handle_signals works in the main thread only: run the {whose} there, or set its "
            "stop signal yourself"
        )


@contextlib.contextmanager
def stop_on_signals(stop: StopSignal) -> Iterator[None]:
    """Set ``stop`` on the first SIGINT or SIGTERM, end the process on the second.

    What handled the signals before does so again afterwards. In the main thread only, which must
    not wait longer than :data:`SLICE` at a time.
    """
    numbers: list[int] = []
    # A bare lock, because its release is one step. This handler interrupts the main thread
    # anywhere, also where it holds a lock that a callback of the signal or a log needs: all that
    # is left to a thread that waits already.
    gate = threading.Lock()
    gate.acquire()

    def work() -> None:
        gate.acquire()
        if numbers:
            _log.info("signal %s: stopping", signal.Signals(numbers[0]).name)
            stop.set()

    def handle(number: int, _: object) -> None:
        if numbers:
            with contextlib.suppress(OSError):
                text = f"second signal {signal.Signals(number).name}: ending at once\n"
                os.write(2, text.encode())
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # The first process of a container is spared by signals without a handler.
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
            # None: a handler that was not set from Python, and cannot be set again from it.
            if handler is not None:
                signal.signal(number, handler)
        with contextlib.suppress(RuntimeError):  # one has come
            gate.release()
        setter.join()
