"""Runs a function in a forked child, as a test's own process does it."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable

# The filters of warnings are the process', not the thread's.
_filters = threading.Lock()


def in_child(use: Callable[[], object], *, seconds: int = 60) -> str:
    """What ``use`` returns in a child, as text; its traceback when it raises.

    A child that hangs is killed after ``seconds`` and gives the lines where its thread stands.
    """
    reading, writing = os.pipe()
    with _filters, warnings.catch_warnings():
        # That a process with threads forks is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.register(signal.SIGALRM, file=writing, all_threads=False, chain=True)
            signal.alarm(seconds)
            os.close(reading)
            try:
                text = str(use())
            except BaseException:
                text = traceback.format_exc()
            os.write(writing, text.encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(pid, 0)
    return text or f"the child ended without a word, with status {status}"
