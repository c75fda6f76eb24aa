"""Controllers that start, fail and stop together."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import Manager, Operator, OperatorController
from appsdk_operator.manager._core.groups import Group
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ManualClock, Metrics, StillRunning, StopSignal
from appsdk_operator.watchers import InformerController, KubernetesInformer
from tests.runs import Run


@attrs.define(eq=False)
class Scripted:
    """A controller that does as it is told."""

    name: str = "scripted"
    error: BaseException | None = None
    """What it raises, at once or at the stop."""
    ends_by_itself: bool = False
    at_stop: Callable[[], Any] = lambda: None
    is_running: threading.Event = attrs.field(factory=threading.Event)
    has_ended: bool = False
    thread: str = ""

    def run(self, stop: StopSignal) -> None:
        self.thread = threading.current_thread().name
        self.is_running.set()
        if not self.ends_by_itself:
            stop.wait()
            self.at_stop()
        self.has_ended = True
        if self.error is not None:
            raise self.error


@pytest.fixture
def run() -> Iterator[Callable[..., Run]]:
    """Runs an operator with controllers, to the end of the test at most."""
    runs: list[Run] = []

    def start(*controllers: Any, **options: Any) -> Run:
        operator = Operator(**options)
        for controller in controllers:
            operator.add_controller(controller)
        runs.append(Run(operator).start())
        return runs[-1]

    yield start
    for started in runs:
        started.end()


def test_all_controllers_run_side_by_side_until_the_stop_which_is_no_error(run):
    controllers = [Scripted("a"), Scripted("b"), Scripted("c")]
    running = run(*controllers)
    for controller in controllers:
        assert controller.is_running.wait(10)
    assert running.end() == []
    assert all(controller.has_ended for controller in controllers)
    assert [c.thread for c in controllers] == ["operator/0-a", "operator/1-b", "operator/2-c"]


def test_the_first_error_stops_all_and_is_raised_after_the_others_ended(run):
    go_on = threading.Event()
    slow = Scripted("slow", at_stop=lambda: go_on.wait(10))
    failing = Scripted("failing", error=(error := ConnectionError("failed")), ends_by_itself=True)
    running = run(slow, failing)
    assert slow.is_running.wait(10)
    running.thread.join(0.05)
    assert running.thread.is_alive(), "it waits for the others"
    go_on.set()
    assert running.join() == [error]
    assert slow.has_ended
    assert not running.stop.is_set(), "the caller's signal is the caller's"


def test_several_errors_come_together_in_the_order_in_which_they_came(run):
    first = Scripted("first", error=ConnectionError("one"), ends_by_itself=True)
    second = Scripted("second", error=ValueError("two"))
    (raised,) = run(second, first).join()
    assert isinstance(raised, ExceptionGroup)
    assert list(map(str, raised.exceptions)) == ["one", "two"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_controller_that_wants_to_end_the_process_ends_the_operator(run, error):
    other = Scripted("other")
    (raised,) = run(other, Scripted("quits", error=error, ends_by_itself=True)).join()
    assert isinstance(raised, RuntimeError)
    assert raised.__cause__ is error
    assert "quits" in str(raised)
    assert other.has_ended


def test_a_controller_that_does_not_stop_is_named(run):
    go_on = threading.Event()
    stuck = Scripted("stuck", at_stop=lambda: go_on.wait(10))
    fine = Scripted("fine", ends_by_itself=True)
    running = run(stuck, fine, stop_timeout=0.05)
    assert stuck.is_running.wait(10)
    assert fine.is_running.wait(10)
    for thread in threading.enumerate():
        if thread.name == fine.thread:
            thread.join(10)
    (raised,) = running.end()
    go_on.set()
    assert isinstance(raised, TimeoutError)
    assert str(raised) == "still running 0.05 s after the stop: operator/0-stuck"


def test_the_time_for_the_stop_is_that_of_the_machine(run):
    go_on = threading.Event()
    stuck = Scripted("stuck", at_stop=lambda: go_on.wait(10))
    running = run(stuck, stop_timeout=0.05, clock=ManualClock())
    assert stuck.is_running.wait(10)
    (raised,) = running.end()
    go_on.set()
    assert isinstance(raised, StillRunning)


def test_an_error_and_a_stuck_controller_are_both_told(run):
    go_on = threading.Event()
    stuck = Scripted("stuck", at_stop=lambda: go_on.wait(10))
    failing = Scripted("failing", error=ValueError("failed"), ends_by_itself=True)
    running = run(stuck, failing, stop_timeout=0.05)
    (raised,) = running.join()
    go_on.set()
    assert isinstance(raised, ExceptionGroup)
    assert [type(error) for error in raised.exceptions] == [ValueError, StillRunning]


def test_a_thread_that_cannot_start_hides_no_stuck_controller(run, monkeypatch):
    go_on = threading.Event()
    stuck = Scripted("stuck", at_stop=lambda: go_on.wait(10))
    start = threading.Thread.start

    def start_others(thread):
        if thread.name == "operator/1-late":
            assert stuck.is_running.wait(10)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    (raised,) = run(stuck, Scripted("late"), stop_timeout=0.05).join()
    go_on.set()
    assert [type(error) for error in raised.exceptions] == [RuntimeError, StillRunning]


def test_an_error_says_which_controller_raised_it(run):
    (raised,) = run(Scripted("failing", error=ValueError("no"), ends_by_itself=True)).join()
    assert raised.__notes__ == ["raised by runnable 0-failing (group operator)"]


def test_a_controller_that_ends_early_is_warned_of_and_stops_nobody(run, caplog, eventually):
    other = Scripted("other")
    early = Scripted("early", ends_by_itself=True)
    running = run(early, other)
    assert other.is_running.wait(10)
    assert early.is_running.wait(10)
    eventually(lambda: "ended although nobody stopped it" in caplog.text)
    assert not other.has_ended
    assert running.end() == []
    assert "early" in caplog.text


def test_without_controllers_it_waits_for_the_stop(run):
    running = run()
    running.thread.join(0.02)
    assert running.thread.is_alive()
    assert running.end() == []


def test_a_stop_before_the_start_still_runs_and_ends_everybody():
    stop = StopSignal()
    stop.set()
    operator, controller = Operator(), Scripted()
    operator.add_controller(controller)
    operator.run(stop)
    assert controller.has_ended


def test_it_runs_once_and_takes_no_controller_after_that(run):
    running = run()
    running.end()
    with pytest.raises(RuntimeError, match="was run before: make a new one"):
        running.part.run(running.stop)
    with pytest.raises(RuntimeError, match="add it before run, or run it in a second operator"):
        running.part.add_controller(Scripted())


def test_nothing_is_left_at_the_callers_signal(run):
    stop = StopSignal()
    operator = Operator()
    operator.add_controller(Scripted(error=ValueError("failed"), ends_by_itself=True))
    with pytest.raises(ValueError, match="failed"):
        operator.run(stop)
    with pytest.raises(RuntimeError):
        operator.run(stop)
    assert not stop._callbacks


@pytest.mark.parametrize(
    ("controller", "remedy"),
    [
        (None, r"needs run\(stop\)"),
        (print, r"needs run\(stop\)"),
        (Scripted, r"is a class: add an instance, Scripted\("),
    ],
)
def test_what_is_no_controller_is_refused(controller, remedy):
    with pytest.raises(TypeError, match=remedy):
        Operator().add_controller(controller)


def test_options_out_of_bounds_are_refused():
    with pytest.raises(ValueError, match="stop_timeout=-1"):
        Operator(stop_timeout=-1)


@pytest.mark.parametrize("handle_signals", [False, True])
def test_the_stop_signal_of_its_controllers_waits_on_its_clock(handle_signals):
    clock = ManualClock()
    operator = Operator(clock=clock)
    waited = []

    class Waits:
        def run(self, stop: StopSignal) -> None:
            waited.append(stop._clock)

    operator.add_controller(Waits())
    operator.run(handle_signals=handle_signals)
    assert waited == [clock]


def test_signals_outside_of_the_main_thread_are_refused_before_anything_starts():
    operator, controller = Operator(), Scripted(ends_by_itself=True)
    operator.add_controller(controller)
    raised = []

    def run_it() -> None:
        try:
            operator.run(handle_signals=True)
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run_it)
    thread.start()
    thread.join(10)
    assert "main thread only" in raised[0]
    assert not controller.is_running.is_set()
    stop = StopSignal()
    stop.set()
    operator.run(stop)  # it was not used up


def test_an_informer_controller_and_another_operator_fit():
    assert isinstance(InformerController(metrics=Metrics()), OperatorController)
    assert isinstance(Operator(), OperatorController)
    inner, controller, stop = Operator(), Scripted(), StopSignal()
    inner.add_controller(controller)
    outer = Operator()
    outer.add_controller(inner)
    outer.add_controller(InformerController(metrics=Metrics()))
    thread = threading.Thread(target=outer.run, args=(stop,))
    thread.start()
    assert controller.is_running.wait(10)
    stop.set()
    thread.join(10)
    assert controller.has_ended


def test_a_keyboard_interrupt_stops_the_rest_and_goes_on(monkeypatch):
    waits = []
    wait_ended = Group.wait_ended

    def interrupted(group, *args, **options):
        waits.append(threading.current_thread())
        if len(waits) == 1:
            raise KeyboardInterrupt
        return wait_ended(group, *args, **options)

    monkeypatch.setattr(Group, "wait_ended", interrupted)
    operator = Operator()
    controllers = [Scripted("a"), Scripted("b", error=ValueError("less important"))]
    for controller in controllers:
        operator.add_controller(controller)
    with pytest.raises(KeyboardInterrupt):
        operator.run()
    assert all(controller.has_ended for controller in controllers)


class Short:
    """A controller that has nothing to do."""

    def run(self, stop: StopSignal) -> None:
        """Return at once."""


def test_the_run_is_over_when_every_controller_has_ended() -> None:
    operator = Operator()
    for _ in range(3):
        operator.add_controller(Short())
    operator.run()


def test_a_controller_is_added_once() -> None:
    operator, controller = Operator(), Short()
    operator.add_controller(controller)
    with pytest.raises(ValueError, match="added already: it runs once"):
        operator.add_controller(controller)


@pytest.mark.parametrize("stop", [True, threading.Event()])
def test_what_is_no_stop_signal_is_refused(stop: object) -> None:
    with pytest.raises(TypeError, match=r"make one with StopSignal\(\)"):
        Operator().run(stop)  # type: ignore[arg-type]


# What decides whether to go on.


def test_an_error_handler_may_decide_that_the_others_go_on(
    run: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    bad, good = Scripted("bad", ValueError("no"), ends_by_itself=True), Scripted("good")
    asked = threading.Event()

    def go_on(controller: OperatorController, error: Exception) -> bool:
        told.append((controller, str(error)))
        asked.set()
        return True

    running = run(bad, good, on_error=go_on)
    assert asked.wait(10)
    assert good.is_running.wait(10)
    assert running.thread.is_alive()
    assert running.end() == []
    assert told == [(bad, "no")]
    assert "goes on without it: no" in caplog.text


@pytest.mark.parametrize("is_managed", [False, True])
def test_the_line_of_the_end_has_the_seconds_of_the_stop_also_after_a_failure(
    caplog: pytest.LogCaptureFixture, *, is_managed: bool
) -> None:
    caplog.set_level("INFO", "appsdk_operator")
    clock = ManualClock()

    class Failing:
        name = "failing"

        def run(self, stop: StopSignal) -> None:
            clock.advance(146.0)
            raise ValueError("no")

    if is_managed:
        with (
            Client(ClientConfig(server="http://localhost")) as client,
            Manager(client, clock=clock, metrics=Metrics()) as manager,
        ):
            manager.add(Failing())
            with pytest.raises(ValueError, match="no"):
                manager.run(StopSignal())
    else:
        operator = Operator(clock=clock)
        operator.add_controller(Failing())
        with pytest.raises(ValueError, match="no"):
            operator.run(StopSignal())
    assert "has stopped, after 0 s" in caplog.text


def test_an_error_handler_that_says_false_stops_all(run: Callable[..., Run]) -> None:
    bad, good = Scripted("bad", ValueError("no"), ends_by_itself=True), Scripted("good")
    [error] = run(bad, good, on_error=lambda controller, error: False).join()
    assert str(error) == "no"
    assert good.has_ended


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda controller, error: 1 / 0, "division by zero"),
        (lambda controller, error: None, "on_error returned None: return True to go on"),
        (lambda controller, error: exec("raise SystemExit(3)"), r"on_error raised SystemExit\(3\)"),
    ],
)
def test_an_error_handler_that_fails_stops_all_and_is_raised_along(
    run: Callable[..., Run], handler: Any, text: str
) -> None:
    bad, good = Scripted("bad", ValueError("no"), ends_by_itself=True), Scripted("good")
    [group] = run(bad, good, on_error=handler).join()
    assert isinstance(group, ExceptionGroup)
    first, second = group.exceptions
    assert re.search(text, str(first))
    assert str(second) == "no"
    assert good.has_ended


def test_when_all_have_failed_and_it_goes_on_the_run_is_over(run: Callable[..., Run]) -> None:
    bad = [Scripted(str(number), ValueError("no"), ends_by_itself=True) for number in range(2)]
    assert run(*bad, on_error=lambda controller, error: True).join() == []


def test_what_a_controller_left_behind_is_named_at_the_end(run: Callable[..., Run]) -> None:
    threads = ["worker/0"]
    error = StillRunning("still running", running=lambda: threads)
    bad, good = Scripted("bad", error, ends_by_itself=True), Scripted("good")
    asked = threading.Event()
    running = run(bad, good, on_error=lambda *_: asked.set() or True)
    assert asked.wait(10)
    assert good.is_running.wait(10)
    [raised] = running.end()
    assert str(raised) == "still running 60 s after the stop: worker/0"
    assert isinstance(raised, StillRunning)
    assert raised.running() == ["worker/0"]
    threads.clear()
    assert raised.running() == []


def test_an_error_handler_is_not_asked_once_the_operator_stops(run: Callable[..., Run]) -> None:
    told: list[Any] = []
    late = Scripted("late", ValueError("at the end"))
    running = run(late, on_error=lambda *args: bool(told.append(args)) or True)
    assert late.is_running.wait(10)
    [error] = running.end()
    assert str(error) == "at the end"
    assert told == []


def test_an_error_handler_that_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="give a function of the controller and its error"):
        Operator(on_error=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("shop", r"Operator\('shop'\): .* Operator\(name='shop'\)$"),
        (Scripted("a"), r"Operator\(Scripted\(…\)\): .* add controllers with add_controller\(…\)$"),
    ],
)
def test_an_argument_without_a_name_is_refused_with_its_name(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Operator(given)  # type: ignore[call-arg]
    assert next(iter(inspect.signature(Operator).parameters)) == "name"


def test_an_informer_is_no_controller() -> None:
    client = Client(ClientConfig(server="http://127.0.0.1:1"), metrics=Metrics())
    informer = KubernetesInformer(kinds.core.v1.ConfigMap, client, metrics=Metrics())
    with pytest.raises(TypeError, match=r"is an informer.* InformerController\.add_informer"):
        Operator().add_controller(informer)
    client.close()
