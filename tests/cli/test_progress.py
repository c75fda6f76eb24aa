"""The line about a command that lasts."""

from __future__ import annotations

import io

import pytest

from appsdk_operator.cli._progress import Progress
from appsdk_operator.runtime import ManualClock


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_over_in_two_seconds_shows_nothing(is_terminal: bool) -> None:
    clock, stream = ManualClock(), Stream(is_terminal)
    with Progress("waiting", stream=stream, clock=clock):
        clock.block_until_waiting(1)
        clock.advance(1.9)
    assert stream.getvalue() == ""


def _ticks(clock: ManualClock, *steps: float) -> None:
    for step in steps:
        clock.block_until_waiting(1)
        clock.advance(step)
    clock.block_until_waiting(1)


def test_on_a_terminal_one_line_is_rewritten_and_removed() -> None:
    clock, stream = ManualClock(), Stream(True)
    with Progress("downloading it", stream=stream, clock=clock) as progress:
        _ticks(clock, 2.0)
        progress.detail = "1 of 2 MB"
        _ticks(clock, 1.0)
    clear = "\r\x1b[K"
    assert stream.getvalue() == (
        f"{clear}downloading it, 2 s …{clear}downloading it: 1 of 2 MB, 3 s …{clear}"
    )


def test_elsewhere_it_is_a_line_every_five_seconds() -> None:
    clock, stream = ManualClock(), Stream(False)
    with Progress("downloading it", stream=stream, clock=clock) as progress:
        _ticks(clock, 2.0)
        progress.detail = "1 of 2 MB"
        _ticks(clock, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert stream.getvalue() == (
        "downloading it, 2 s so far\ndownloading it: 1 of 2 MB, 7 s so far\n"
    )


def test_it_ends_with_the_block_also_after_an_error() -> None:
    clock, stream = ManualClock(), Stream(True)

    def fail() -> None:
        with Progress("it", stream=stream, clock=clock):
            _ticks(clock, 2.0)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_stream_that_is_closed_ends_no_command() -> None:
    clock, stream = ManualClock(), Stream(False)
    with Progress("it", stream=stream, clock=clock):
        clock.block_until_waiting(1)
        stream.close()
        clock.advance(2.0)
