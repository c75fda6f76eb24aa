"""What has a method ``run(stop)``, or is a function of the signal, run in a thread of its own."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

import attrs

from appsdk_operator.runtime import StopSignal


@attrs.define(slots=False, eq=False)
class Run:
    """A part that runs aside from :meth:`start` on, and what it raised.

    For tests that look at how it ends; others take :func:`appsdk_operator.testing.running`.
    """

    part: Any
    stop: StopSignal = attrs.field(factory=StopSignal)
    raised: list[BaseException] = attrs.field(factory=list)
    thread: threading.Thread = attrs.field(init=False)

    patience: ClassVar[float] = 20.0
    """Seconds that it has to end."""

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name="under test")

    def _run(self) -> None:
        try:
            getattr(self.part, "run", self.part)(self.stop)
        except BaseException as error:
            self.raised.append(error)

    def start(self) -> Self:
        self.thread.start()
        return self

    def join(self) -> list[BaseException]:
        """Wait for its end; what it raised."""
        self.thread.join(self.patience)
        assert not self.thread.is_alive(), getattr(
            self.part, "debug_snapshot", self.part.__repr__
        )()
        return self.raised

    def end(self) -> list[BaseException]:
        """Stop it, and wait for its end; what it raised. Nothing if it was not started."""
        self.stop.set()
        return self.join() if self.thread.ident is not None else []
