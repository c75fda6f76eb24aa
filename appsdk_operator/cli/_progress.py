"""Says what a command does while that lasts longer than two seconds."""

from __future__ import annotations

import sys
import threading
from typing import Final, Self, TextIO, final

from appsdk_operator.runtime import Clock, StopSignal, duration_text, system_clock

_SILENT_FOR: Final = 2.0
_ON_TERMINAL: Final = 1.0
_ELSEWHERE: Final = 5.0
"""Seconds between two lines where none can be rewritten."""
_CLEAR: Final = "\r\x1b[K"


@final
class Progress:
    """A line on standard error about what goes on in the block, and for how long.

    On a terminal it is one line, which is rewritten each second and removed in the end; elsewhere a
    line every five seconds. What takes less than two seconds shows nothing.

        with Progress("downloading kube-apiserver") as progress:
            progress.detail = "12 of 80 MB"
    """

    def __init__(self, what: str, *, stream: TextIO | None = None, clock: Clock | None = None):
        self.detail: str = ""
        """How far it is; any thread may set it."""
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock or system_clock
        self._is_terminal = self._stream.isatty()
        self._stop = StopSignal(clock=self._clock)
        self._thread = threading.Thread(target=self._run, name="progress")

    def __enter__(self) -> Self:
        self._began = self._clock.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause, has_line = _SILENT_FOR, False
        while not self._stop.wait(pause):
            has_line = True
            pause = _ON_TERMINAL if self._is_terminal else _ELSEWHERE
            detail = f": {self.detail}" if self.detail else ""
            seconds = duration_text(round(self._clock.monotonic() - self._began))
            text = f"{self._what}{detail}, {seconds}"
            self._write(f"{_CLEAR}{text} …" if self._is_terminal else f"{text} so far\n")
        if has_line and self._is_terminal:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stop.set()  # nobody reads it any more
