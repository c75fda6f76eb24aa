"""What a reconcile's outcome asks for, one by one, on a clock that the test moves."""

from __future__ import annotations

import gc
import logging
import math
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import NotCachedError, NotFollowedError, NotSyncedError
from appsdk_operator.client import Conflict, TooManyRequests
from appsdk_operator.controllers import Request, Result, RetryAfter, TerminalError
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import ItemExponential, JSONFormatter, never_retry
from tests.controllers.controller_tools import Rig

FAIL = ConnectionError("no server")


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    yield made
    for rig in made:
        rig.close()


@pytest.fixture
def make(rigs: list[Rig]) -> Any:
    def make_rig(*plan: Any, **options: Any) -> Rig:
        rigs.append(Rig(*plan, **options).begin())
        return rigs[-1]

    return make_rig


def queued(rig: Rig) -> dict[str, Any]:
    """The one request that waits."""
    (entry,) = rig.controller.debug_snapshot()["planned"]
    return dict(entry)


# Success.


@pytest.mark.parametrize("outcome", [None, Result(), Result(priority=5)])
def test_a_success_leaves_nothing_behind(make: Any, outcome: Any) -> None:
    rig = make(outcome)
    rig.add("a")
    assert rig.work() == ["a"]
    assert rig.due_in is None
    assert rig.results() == {"success": 1}
    assert rig.controller.debug_snapshot()["failing"] == {}


def test_requeue_after_comes_back_then_and_is_not_rate_limited(make: Any) -> None:
    rig = make(Result(requeue_after=30.0), Result(requeue_after=30.0))
    rig.add("a")
    for _ in range(2):
        assert len(rig.work()) == 1
        assert rig.due_in == 30.0
        assert rig.after(29.9) == []
        rig.clock.advance(0.1)
    assert rig.work() == ["a"]
    assert rig.results() == {"requeue_after": 2, "success": 1}


def test_requeue_after_0_is_again_at_once_behind_those_that_wait(make: Any) -> None:
    rig = make(Result(requeue_after=0), Result(requeue_after=0.0, priority=-1))
    rig.add("a")
    rig.add("b")
    assert rig.work() == ["a", "b", "a", "b"]
    assert rig.due_in is None
    assert rig.results() == {"requeue_after": 2, "success": 2}


@pytest.mark.parametrize("wrong", [True, False, "5", 5j, [5]])
def test_requeue_after_is_a_number_of_seconds(wrong: Any) -> None:
    with pytest.raises(TypeError, match="give seconds as a number"):
        Result(requeue_after=wrong)


def test_an_event_brings_a_requeue_forward_and_there_is_one_run(make: Any) -> None:
    rig = make(Result(requeue_after=30.0))
    rig.add("a")
    rig.work()
    rig.add("a")
    assert rig.work() == ["a"]
    assert rig.due_in is None


# Failures.


def test_a_failure_is_retried_with_growing_delays_and_others_go_on(make: Any) -> None:
    rig = make(FAIL, None, FAIL, FAIL)
    rig.add("a")
    rig.add("b")
    assert rig.work() == ["a", "b"]
    assert rig.due_in == 1.0
    assert rig.after(1.0) == ["a"]
    assert rig.due_in == 2.0
    assert rig.after(2.0) == ["a"]
    assert rig.due_in == 4.0
    assert rig.results() == {"success": 1, "error": 3}
    assert rig.value("reconcile_errors_total") == 3
    assert rig.value("terminal_reconcile_errors_total") == 0
    assert rig.value("reconcile_panics_total") == 0
    assert rig.controller.debug_snapshot()["failing"] == {"a": 3}


def test_events_do_not_reset_the_delay_and_a_success_does(make: Any) -> None:
    rig = make(FAIL, FAIL, None, FAIL)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    assert rig.due_in == 2.0
    rig.add("a")
    rig.work()
    assert rig.due_in is None
    rig.add("a")
    rig.work()
    assert rig.due_in == 1.0


def test_a_requeue_resets_the_delay_too(make: Any) -> None:
    rig = make(FAIL, FAIL, Result(requeue_after=5.0), FAIL)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    rig.after(2.0)
    assert rig.due_in == 5.0
    rig.after(5.0)
    assert rig.due_in == 1.0


def test_the_attempt_counts_the_failures_in_a_row(make: Any) -> None:
    rig = make(FAIL, FAIL, None, FAIL)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    rig.after(2.0)
    rig.add("a")
    rig.work()
    assert [context.attempt for context in rig.script.contexts] == [0, 1, 2, 0]
    assert not any(context.is_last_attempt for context in rig.script.contexts)


def test_what_the_cache_follows_no_longer_is_done_and_what_lies_elsewhere_is_retried(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "appsdk_operator.controllers")
    widget = Kind(group="example.com", version="v1", kind="Widget")
    other = Kind(group="example.com", version="v1", kind="Other")
    left = NotFollowedError("gone", kind=widget, namespace="left")
    rig = make(FAIL, left, kind=widget)
    rig.add(Request("left", "a"))
    rig.work()
    rig.after(1.0)
    assert rig.due_in is None
    assert rig.results() == {"error": 1, "success": 1}
    assert rig.controller.debug_snapshot()["failing"] == {}
    assert "works again" not in caplog.text
    for error in (
        NotFollowedError("gone", kind=widget, namespace="elsewhere"),
        NotFollowedError("gone", kind=other, namespace="left"),
        NotFollowedError("gone"),
    ):
        rig = make(error, kind=widget)
        rig.add(Request("left", "a"))
        rig.work()
        assert rig.due_in == 1.0
        assert rig.results() == {"error": 1}


def test_a_copy_that_is_not_complete_yet_is_waited_for_and_counts_no_failure(make: Any) -> None:
    early = NotSyncedError("informer of secrets.v1: not synced yet")
    rig = make(FAIL, early, early, None)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    for _ in range(2):
        assert rig.due_in == 0.5
        rig.after(0.5)
    assert [context.attempt for context in rig.script.contexts] == [0, 1, 1, 1]
    assert rig.due_in is None


def test_a_terminal_error_is_not_retried_and_ends_the_series_of_failures(make: Any) -> None:
    rig = make(FAIL, TerminalError("no such color"), FAIL)
    rig.add("a")
    rig.work()
    assert rig.after(1.0) == ["a"]
    assert rig.due_in is None
    assert rig.results() == {"error": 2}
    assert rig.value("reconcile_errors_total") == 2
    assert rig.value("terminal_reconcile_errors_total") == 1
    # Unlike upstream nothing is kept: what comes later is a new series.
    assert rig.controller.debug_snapshot()["failing"] == {}
    rig.add("a")
    rig.work()
    assert rig.script.contexts[-1].attempt == 0
    assert rig.due_in == 1.0


def test_a_terminal_error_alone_in_a_group_is_terminal(make: Any) -> None:
    rig = make(ExceptionGroup("tasks", [ExceptionGroup("more", [TerminalError("no")])]))
    rig.add("a")
    rig.work()
    assert rig.due_in is None
    assert rig.value("terminal_reconcile_errors_total") == 1


def test_retry_after_neither_counts_towards_the_backoff_nor_resets_it(make: Any) -> None:
    rig = make(FAIL, RetryAfter(7.0, "still creating"), FAIL)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    assert rig.due_in == 7.0
    rig.after(7.0)
    assert rig.due_in == 2.0
    assert [context.attempt for context in rig.script.contexts] == [0, 1, 1]
    assert rig.results() == {"error": 3}
    assert rig.value("terminal_reconcile_errors_total") == 0


def test_retry_after_0_comes_back_at_once(make: Any) -> None:
    rig = make(RetryAfter(0))
    rig.add("a")
    assert rig.work() == ["a", "a"]


@pytest.mark.parametrize(
    ("asked", "waits"),
    [(0.5, 1.0), (20.0, 20.0), (None, 1.0), (1e9, 300.0), (math.inf, 300.0), (math.nan, 1.0)],
)
def test_an_api_error_waits_at_least_as_long_as_the_server_asked(
    make: Any, asked: float | None, waits: float
) -> None:
    rig = make(TooManyRequests("slow down", status=429, retry_after=asked), FAIL)
    rig.add("a")
    rig.work()
    assert rig.due_in == waits
    rig.after(waits)
    assert rig.due_in == 2.0  # it counted as a failure


# Giving up.


def test_the_last_attempt_knows_it_and_then_it_is_given_up(make: Any) -> None:
    rig = make(FAIL, FAIL, FAIL, FAIL, max_attempts=3)
    rig.add("a")
    rig.work()
    rig.after(1.0)
    rig.after(2.0)
    contexts = rig.script.contexts
    assert [context.is_last_attempt for context in contexts] == [False, False, True]
    assert rig.due_in is None
    assert rig.value("terminal_reconcile_errors_total") == 1
    assert rig.value("reconcile_errors_total") == 3
    assert rig.controller.debug_snapshot()["failing"] == {}
    rig.add("a")
    assert rig.work() == ["a"]
    assert (contexts[-1].attempt, contexts[-1].is_last_attempt) == (0, False)
    assert rig.due_in == 1.0


def test_retry_after_on_the_last_attempt_is_still_retried(make: Any) -> None:
    rig = make(RetryAfter(3.0), FAIL, max_attempts=1)
    rig.add("a")
    rig.work()
    assert rig.due_in == 3.0
    rig.after(3.0)
    assert rig.due_in is None
    assert rig.value("terminal_reconcile_errors_total") == 1


def test_attempts_count_also_with_a_limiter_that_counts_nothing(make: Any) -> None:
    class Constant:
        def when(self, item: Any) -> float:
            return 3.0

        def forget(self, item: Any) -> None:
            pass

        def failures(self, item: Any) -> int:
            return 0

    rig = make(FAIL, FAIL, rate_limiter=Constant, max_attempts=2)
    rig.add("a")
    rig.work()
    assert rig.due_in == 3.0
    rig.after(3.0)
    assert rig.due_in is None


# Priorities.


@pytest.mark.parametrize(
    ("outcome", "priority", "wait"),
    [
        (FAIL, 7, 1.0),
        (RetryAfter(2.0), 7, 2.0),
        (Result(requeue_after=2.0), 7, 2.0),
        (Result(requeue_after=2.0, priority=3), 3, 2.0),
        (Result(requeue_after=2.0, priority=0), 0, 2.0),
    ],
)
def test_the_priority_is_kept_unless_the_result_says_another(
    make: Any, outcome: Any, priority: int, wait: float
) -> None:
    rig = make(outcome)
    rig.add("a", priority=7)
    rig.work()
    assert (queued(rig)["priority"], queued(rig)["due_in"]) == (priority, wait)
    assert rig.script.contexts[0].priority == 7


def test_a_source_that_says_no_priority_means_0(make: Any) -> None:
    rig = make()
    for name, priority in (("low", -100), ("none", None), ("high", 5)):
        rig.add(name, priority=priority)
    assert rig.work() == ["high", "none", "low"]


# Bugs.

BUGS = [
    AssertionError("never"),
    TypeError("no"),
    AttributeError("no"),
    NameError("no"),
    ZeroDivisionError("no"),
    KeyError("spec"),
    IndexError("no"),
    RecursionError("too deep"),
    NotImplementedError("later"),
    SystemExit(1),
    GeneratorExit(),
    ExceptionGroup("tasks", [ConnectionError("no"), KeyError("spec")]),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)
def test_a_bug_is_counted_and_retried_like_a_failure(make: Any, bug: BaseException) -> None:
    rig = make(bug)
    rig.add("a")
    rig.add("b")
    assert rig.work() == ["a", "b"]
    assert rig.due_in == 1.0
    assert rig.value("reconcile_panics_total") == 1
    assert rig.value("reconcile_errors_total") == 1


@pytest.mark.parametrize(
    "failure",
    [FAIL, ValueError("bad"), RuntimeError("x"), OSError("x"), NotCachedError("no informer")],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failure_that_is_no_bug_is_not_counted_as_one(make: Any, failure: Exception) -> None:
    rig = make(failure, recover_exceptions=False)
    rig.add("a")
    assert rig.work() == ["a"]
    assert rig.value("reconcile_panics_total") == 0


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)
def test_a_bug_is_raised_and_counted_when_it_is_not_recovered(
    make: Any, bug: BaseException
) -> None:
    rig = make(bug, recover_exceptions=False)
    rig.add("a")
    with pytest.raises(type(bug)) as caught:
        rig.work()
    assert caught.value is bug
    assert rig.value("reconcile_panics_total") == 1
    assert rig.value("reconcile_errors_total") == 1
    assert rig.due_in is None


@pytest.mark.parametrize("bug", [KeyError("spec"), SystemExit(3)])
def test_a_bug_that_is_not_recovered_ends_the_run(bug: BaseException) -> None:
    rig = Rig(bug, recover_exceptions=False, max_concurrent_reconciles=3)
    rig.controller.watch(rig.tap)
    rig.tap.requests = ("a",)
    rig.start()
    (error,) = rig.join()
    assert error is bug or error.__cause__ is bug
    assert isinstance(error, Exception)
    assert rig.value("reconcile_panics_total") == 1
    assert not rig.controller.health().is_ready


def test_ctrl_c_goes_to_whoever_runs_a_step_by_hand(make: Any) -> None:
    rig = make(KeyboardInterrupt())
    rig.add("a")
    with pytest.raises(KeyboardInterrupt):
        rig.work()
    rig.add("a")
    assert rig.work() == ["a"]  # nothing is stuck


@pytest.mark.parametrize("returned", [True, 5, {"requeue_after": 3}, "done", Result])
def test_what_is_no_result_is_an_error_that_says_what_to_return(
    make: Any, returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make(returned)
    rig.add("a")
    rig.work()
    assert rig.due_in == 1.0
    assert rig.value("reconcile_panics_total") == 1
    assert "return None when all is done, Result(requeue_after=seconds)" in caplog.text


def test_an_awaitable_that_gives_no_result_is_the_same_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def reconcile(request: Any) -> Any:
        return 5

    rig = Rig(reconciler=reconcile).begin()
    rig.add("a")
    rig.controller.process_next()
    assert "returned int: return None" in caplog.text
    rig.close()


# A rate limiter with a bug.


class BrokenLimiter:
    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def when(self, item: Any) -> float:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return float(self.outcome)

    def forget(self, item: Any) -> None:
        raise KeyError(item)

    def failures(self, item: Any) -> int:
        return 0


@pytest.mark.parametrize("outcome", [KeyError("a"), SystemExit(3), -1.0, float("nan")])
def test_a_limiter_that_fails_loses_no_request(
    make: Any, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make(FAIL, rate_limiter=lambda: BrokenLimiter(outcome))
    rig.add("a")
    rig.work()
    assert rig.due_in == 10.0
    assert "the rate limiter failed" in caplog.text
    assert rig.after(10.0) == ["a"]
    assert rig.results() == {"error": 1, "success": 1}
    assert "forget() of the rate limiter failed for a" in caplog.text


@pytest.mark.parametrize("option", ["rate_limiter", "retry"])
def test_what_fails_for_many_requests_has_one_traceback_and_ten_lines(
    make: Any, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = {
        "rate_limiter": lambda: BrokenLimiter(KeyError("a")),
        "retry": Asked(*[KeyError("a")] * 50),
    }
    rig = make(*[ValueError("no")] * 50, **{option: failing[option]})
    for number in range(50):
        rig.add(str(number))
    rig.work()
    what = {"rate_limiter": "the rate limiter failed", "retry": "the retry policy failed"}[option]
    told = [each for each in caplog.records if what in each.getMessage()]
    assert len(told) == 10
    assert [bool(each.exc_info) for each in told] == [True] + [False] * 9
    rig.add("0")
    rig.after(10.0)  # when the retries succeed, so that forget() of the limiter fails
    told = [each for each in caplog.records if "forget() of the" in each.getMessage()]
    assert len(told) == (10 if option == "rate_limiter" else 0)


def test_ctrl_c_in_a_limiter_or_in_the_seconds_of_an_error_reaches_the_main_thread(
    make: Any,
) -> None:
    class Interrupted(RetryAfter):
        @property
        def seconds(self) -> float:
            raise KeyboardInterrupt

        @seconds.setter
        def seconds(self, _: float) -> None:
            pass

    limited = make(FAIL, rate_limiter=lambda: BrokenLimiter(KeyboardInterrupt()))
    for rig in (limited, make(Interrupted(1.0))):
        rig.add("a")
        with pytest.raises(KeyboardInterrupt):
            rig.work()


# Logs, and what is kept.


def test_a_failure_is_logged_with_fields_for_search(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from appsdk_operator.controllers import Request
    from appsdk_operator.resource import Kind

    kind = Kind(group="apps", version="v1", kind="Deployment")
    rig = make(FAIL, Conflict("changed", status=409), kind=kind)
    rig.add(Request("default", "web"), reason="the spec changed")
    rig.work()
    rig.after(1.0)
    first, second = (r for r in caplog.records if r.name == "appsdk_operator.controllers")
    context = rig.script.contexts[1]
    wanted = {
        "controller": rig.controller.name,
        "kind": "Deployment.apps",
        "namespace": "default",
        "object": "web",
        "reconcile_id": context.id,
        "attempt": 1,
        "reasons": ["retry 1 after ConnectionError (first: the spec changed)"],
    }
    assert {name: getattr(second, name) for name in wanted} == wanted
    assert second.levelno == logging.ERROR
    assert "next try in 2 s" in second.getMessage()
    assert "Traceback" in JSONFormatter().format(first)


def test_other_requests_are_logged_as_text(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    rig = make(TerminalError("no"))
    rig.add(("tenant", 5))
    rig.work()
    (record,) = caplog.records
    assert record.__dict__["request"] == "('tenant', 5)"
    assert "not tried again" in record.getMessage()


def test_retry_after_is_no_error_in_the_log(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = make(RetryAfter(5.0, "still creating"))
    rig.add("a")
    rig.work()
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert "asks to be called again for a: RetryAfter: still creating" in record.getMessage()
    assert record.getMessage().endswith("; next try in 5 s")


def test_on_demand_the_log_says_why_a_reconcile_begins(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "appsdk_operator.controllers")
    rig = make()
    rig.add("a", reason="the spec changed")
    rig.add("b")
    rig.work()
    assert "reconcile of a begins: the spec changed" in caplog.text
    assert "reconcile of b begins: no reason given" in caplog.text


def test_a_failure_keeps_nothing_of_the_failed_call_alive(make: Any) -> None:
    class Big:
        pass

    rig = make()
    refs: list[weakref.ref[Any]] = []

    def fail(_: Any) -> None:
        big = Big()
        refs.append(weakref.ref(big))
        if len(refs) == 1:
            raise ConnectionError("no server")

    rig.script.during = fail
    logging.getLogger("appsdk_operator.controllers").setLevel(logging.CRITICAL)
    gc.disable()
    try:
        rig.add("a")
        rig.work()
        rig.script.contexts.clear()
        assert refs[0]() is None
    finally:
        gc.enable()
        logging.getLogger("appsdk_operator.controllers").setLevel(logging.NOTSET)


def test_times_are_those_of_the_clock(make: Any) -> None:
    rig = make()
    rig.script.during = lambda _: rig.clock.advance(0.3)
    rig.add("a")
    rig.work()
    name, controller = "controller_runtime_reconcile_time_seconds", rig.controller.name
    assert rig.metrics.value(f"{name}_sum", controller=controller) == pytest.approx(0.3)
    assert rig.metrics.value(f"{name}_bucket", controller=controller, le="0.25") == 0
    assert rig.metrics.value(f"{name}_bucket", controller=controller, le="0.35") == 1


def test_the_default_limiter_spreads_those_that_failed_together() -> None:
    rig = Rig(*[FAIL] * 50, rate_limiter=ItemExponential).begin()
    for number in range(50):
        rig.add(number)
    logging.disable()
    try:
        rig.work()
    finally:
        logging.disable(logging.NOTSET)
    delays = {entry["due_in"] for entry in rig.controller.debug_snapshot()["planned"]}
    assert len(delays) == 50
    assert all(0.005 <= delay <= 0.0055 for delay in delays)
    rig.close()


def test_a_bug_that_ends_the_controller_is_not_counted_as_given_up(make: Any) -> None:
    rig = make(KeyError("spec"), recover_exceptions=False, max_attempts=1)
    rig.add("a")
    with pytest.raises(KeyError):
        rig.work()
    assert rig.value("terminal_reconcile_errors_total") == 0


def test_a_flood_of_failures_is_counted_and_shows_no_frame_of_the_kit(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make(*1000 * [ConnectionError("no server")])
    for number in range(100):
        rig.add(f"r{number}")
    rig.work()
    said = [record for record in caplog.records if " failed for " in record.message]
    assert len(said) == 10
    assert [record.exc_info is not None for record in said] == [True, *9 * [False]]
    assert said[0].exc_info is not None
    frames = traceback.extract_tb(said[0].exc_info[2])
    assert not [frame.filename for frame in frames if "/appsdk_operator/" in frame.filename]
    caplog.clear()
    rig.controller.close()
    assert "90 more failures with ConnectionError" in caplog.text


# Retry policies.


class Asked:
    """A retry policy that writes down what it is asked, and answers as planned."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.questions: list[tuple[str, int]] = []

    def __call__(self, error: Exception, attempt: int) -> float | None:
        self.questions.append((str(error), attempt))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return None if answer is None else float(answer)


def test_a_retry_policy_is_asked_with_the_error_and_the_attempt(make: Any) -> None:
    policy = Asked(5.0, 7.0, 0.0)
    rig = make(*[ValueError(text) for text in "abc"], retry=policy)
    rig.add("a")
    rig.work()
    assert rig.due_in == 5.0
    rig.after(5.0)
    assert rig.due_in == 7.0
    rig.after(7.0)
    assert policy.questions == [("a", 0), ("b", 1), ("c", 2)]
    assert [context.attempt for context in rig.script.contexts] == [0, 1, 2, 3]
    assert rig.results() == {"error": 3, "success": 1}
    rig.script.plan.append(ValueError("d"))
    policy.answers.append(1.0)
    rig.add("a")
    rig.work()
    assert policy.questions[-1] == ("d", 0), "a success begins anew"


def test_a_request_that_the_policy_gives_up_is_shown_until_an_event_repeats_it(make: Any) -> None:
    rig = make(ValueError("no such color"), retry=never_retry)
    rig.add("a")
    rig.work()
    assert rig.due_in is None
    assert rig.value("terminal_reconcile_errors_total") == 1
    gauge = "controller_requests_given_up"
    assert rig.metrics.value(gauge, controller=rig.controller.name) == 1
    health = rig.controller.health()
    assert health.is_ready
    assert "given up until the next event: a (ValueError: no such color)" in health.text
    assert health.text.endswith(health.note.partition(": ")[2])
    (call,) = rig.controller.activity.failures()
    assert call.outcome == "given up"
    rig.add("a")
    rig.work()
    assert rig.metrics.value(gauge, controller=rig.controller.name) == 0
    assert rig.controller.health().note == ""


def test_of_very_many_requests_that_are_given_up_the_first_are_forgotten(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appsdk_operator.controllers._engine.runner._MOST_GIVEN_UP", 2)
    rig = make(*[TerminalError("no such job")] * 4)
    for request in "abcd":
        rig.add(request)
    rig.work()
    gauge = "controller_requests_given_up"
    assert rig.metrics.value(gauge, controller=rig.controller.name) == 2
    assert "given up until the next event: c (TerminalError" in rig.controller.health().text


def test_a_policy_is_not_asked_of_what_says_itself_when_it_is_called_again(make: Any) -> None:
    policy = Asked()
    rig = make(RetryAfter(30.0), TerminalError("no"), retry=policy)
    rig.add("a")
    rig.work()
    assert rig.due_in == 30.0
    rig.after(30.0)
    assert rig.due_in is None
    assert policy.questions == []


def test_with_a_policy_a_success_resets_the_delays_of_rate_limited_requests(make: Any) -> None:
    rig = make(retry=never_retry)
    rig.add("b")
    rig.work()
    for _ in range(20):
        assert rig.tap.queue.add_rate_limited("a") < 0.01
        assert rig.after(0.01) == ["a"]


def test_a_failure_that_an_event_brought_early_is_no_attempt_for_a_policy(make: Any) -> None:
    policy = Asked(60.0, None)
    rig = make(*[ValueError("no")] * 3, retry=policy)
    rig.add("a")
    rig.work()
    rig.clock.advance(20.0)
    rig.add("a")
    rig.work()
    assert rig.due_in == 40.0
    rig.after(40.0)
    assert policy.questions == [("no", 0), ("no", 1)]
    assert rig.due_in is None


@pytest.mark.parametrize("answer", [KeyError("x"), float("nan"), -1.0, float("inf")])
def test_a_policy_that_fails_does_not_end_the_retries(
    make: Any, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make(ValueError("no"), retry=Asked(answer))
    rig.add("a")
    rig.work()
    assert rig.due_in == 10.0
    name = (
        "KeyError: 'x'" if isinstance(answer, KeyError) else f"ValueError: retry returned {answer}"
    )
    assert f"the retry policy failed: {name}" in caplog.text


def test_a_policy_gets_an_exception_whatever_was_raised(make: Any) -> None:
    seen: list[Exception] = []

    def policy(error: Exception, attempt: int) -> float:
        seen.append(error)
        return 1.0

    rig = make(SystemExit(3), retry=policy)
    rig.add("a")
    rig.work()
    assert [type(error) for error in seen] == [RuntimeError]
