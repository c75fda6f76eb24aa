"""SIGINT and SIGTERM: the first stops gracefully, the second ends the process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

from appsdk_operator.runtime import StopSignal

__all__ = ["SLICE", "check_main_thread", "stop_on_signals"]

_log = logging.getLogger("appsdk_operator.manager")

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
    is_first = True
    setters: list[threading.Thread] = []

    def handle(number: int, _: object) -> None:
        nonlocal is_first
        if not is_first:
            _log.warning("second signal %s: ending at once", signal.Signals(number).name)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # The first process of a container is spared by signals without a handler.
            os._exit(128 + number)
        is_first = False
        _log.info("signal %s: stopping", signal.Signals(number).name)
        # In a thread of its own: this handler interrupts the main thread anywhere, also where it
        # holds a lock that a callback of the signal needs.
        setter = threading.Thread(target=stop.set, name="operator/signal")
        setters.append(setter)
        setter.start()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for setter in setters:
            setter.join()
        for number, handler in before.items():
            # None: a handler that was not set from Python, and cannot be set again from it.
            if handler is not None:
                signal.signal(number, handler)
