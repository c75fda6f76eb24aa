"""What SIGINT and SIGTERM do to an operator's process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

from appsdk_operator.manager import RunnableGroup
from appsdk_operator.manager._core.groups import Group
from appsdk_operator.manager._core.lifecycle import Lifecycle
from appsdk_operator.manager._core.runnable import Placement, RunnableFunction
from appsdk_operator.manager._core.signals import longest_wait, wait_until_set
from appsdk_operator.runtime import ManualClock, RealClock, StopSignal
from tests.manager.lifecycle_parts import FakeElector, Journal

PROGRAM = """
import signal, sys, threading
from appsdk_operator.manager import Operator

{before}
# A shell's background jobs ignore SIGINT, and these tests may run in one.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Controller:
    def run(self, stop):
        print("running", flush=True)
        stop.wait()
        print("stopping", flush=True)
        {at_stop}
        print("stopped", flush=True)

before = {{number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}}
operator = Operator()
operator.add_controller(Controller())
operator.run(handle_signals={handle_signals})
assert before == {{number: signal.getsignal(number) for number in before}}, "handlers restored"
left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
assert not left, left
print("ended", flush=True)
"""


class Process:
    """An operator's process and its output, line by line."""

    def __init__(self, *, before: str, at_stop: str, handle_signals: bool) -> None:
        options = {"before": before, "at_stop": at_stop, "handle_signals": handle_signals}
        text = textwrap.dedent(PROGRAM).format(**options)
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def make(*, before: str = "", at_stop: str = "pass", handle_signals: bool = True) -> Process:
        started.append(Process(before=before, at_stop=at_stop, handle_signals=handle_signals))
        assert started[-1].line() == "running"
        return started[-1]

    yield make
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_gracefully_with_status_0(start, number):
    process = start()
    process.send(number)
    assert [process.line() for _ in range(3)] == ["stopping", "stopped", "ended"]
    status, errors = process.end()
    assert (status, errors) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_at_once(start, number):
    process = start(at_stop="threading.Event().wait(60)")
    process.send(signal.SIGTERM)
    assert process.line() == "stopping"
    process.send(number)
    status, _ = process.end()
    assert status == -number


def test_without_being_asked_it_leaves_signals_alone(start):
    process = start(handle_signals=False)
    process.send(signal.SIGTERM)
    status, _ = process.end()
    assert status == -signal.SIGTERM


def test_ctrl_c_without_being_asked_stops_the_controllers_and_goes_on(start):
    process = start(handle_signals=False)
    process.send(signal.SIGINT)
    assert [process.line() for _ in range(2)] == ["stopping", "stopped"]
    status, errors = process.end()
    assert status in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors


def test_the_log_says_which_signal_stops_it(start):
    process = start(before="import logging; logging.basicConfig(level='INFO')")
    process.send(signal.SIGTERM)
    status, errors = process.end()
    assert status == 0
    assert "the operator is stopping: SIGTERM; running calls have 60 s to end" in errors


class RecordingClock(RealClock):  # type: ignore[misc]
    """A clock that notes the limit of each wait, and ends the second one's cause."""

    def __init__(self, stop: StopSignal) -> None:
        self.stop = stop
        self.limits: list[float | None] = []

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.limits.append(timeout)
        if len(self.limits) == 2:
            self.stop.set()


@pytest.mark.parametrize(("is_main", "limit"), [(True, 0.5), (False, None)])
def test_the_main_thread_waits_in_slices_so_that_no_signal_is_missed(is_main, limit):
    stop = StopSignal()
    clock = RecordingClock(stop)
    child = StopSignal(clock=clock).child(stop)
    if is_main:
        wait_until_set(child, clock)
    else:
        thread = threading.Thread(target=wait_until_set, args=(child, clock))
        thread.start()
        thread.join(10)
    assert stop.is_set()
    assert clock.limits[0] == (limit and pytest.approx(limit, abs=0.1))


def test_a_manual_clock_gets_no_deadline_from_a_wait_of_the_main_thread():
    assert longest_wait(RealClock()) == 0.5
    assert longest_wait(ManualClock()) is None


def test_the_wait_for_the_end_of_a_group_is_sliced_too():
    hurry = StopSignal()
    clock, go_on = RecordingClock(hurry), threading.Event()
    group = Group("others", on_failure=lambda *_: None, clock=clock)
    runnable = RunnableFunction(lambda stop: go_on.wait(10))
    group.add(runnable, Placement(group=RunnableGroup.OTHERS, run=runnable.run))
    group.launch()
    assert group.wait_ended(hurry=hurry) == [runnable.name]
    assert clock.limits == [0.5, 0.5]
    go_on.set()
    group.join(10)


def test_the_wait_for_a_group_to_be_ready_is_sliced_too():
    halt = StopSignal()
    clock, go_on = RecordingClock(halt), threading.Event()
    group = Group("caches", on_failure=lambda *_: None, clock=clock)
    runnable = RunnableFunction(lambda stop: None)
    placement = Placement(
        group=RunnableGroup.CACHES,
        run=runnable.run,
        wait_until_ready=lambda stop, timeout: go_on.wait(10),
    )
    group.add(runnable, placement)
    assert not group.start(halt)
    assert clock.limits == [0.5, 0.5]
    go_on.set()
    group.join(10)


def test_the_wait_of_a_standby_for_its_lead_is_sliced_too():
    stop = StopSignal()
    clock = RecordingClock(stop)
    Lifecycle(elector=FakeElector(Journal()), clock=clock).run(stop)
    assert clock.limits == [pytest.approx(0.5, abs=0.1)] * 2
