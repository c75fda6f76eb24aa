"""The boundary to user code: what it raises and returns."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.runtime import (
    as_exception,
    asked_delay,
    get_logger,
    group_members,
    guarded_call,
    with_class,
)
from appsdk_operator.runtime.validation import FALLBACK_DELAY
from tests.hostile_errors import HOSTILE_ERRORS, RaisesAtItsClass
from tests.hostile_values import MISBEHAVIOURS, NoTruth


def aside(function: Callable[[], Any]) -> Any:
    """What ``function`` returns, not in the main thread, for which exits are meant."""
    returned = list[Any]()
    thread = threading.Thread(target=lambda: returned.append(function()))
    thread.start()
    thread.join()
    return returned[0]


def test_an_error_whose_class_cannot_be_read_becomes_one_of_the_same_text() -> None:
    error = with_class(RaisesAtItsClass("the disk is full"))
    assert type(error) is RuntimeError
    assert f"{error}" == "RaisesAtItsClass: the disk is full, and its class cannot be read"
    try:
        raise RaisesAtItsClass("here")
    except Exception as raised:
        made = as_exception("it", raised)
    assert traceback.extract_tb(made.__traceback__)[-1].line == 'raise RaisesAtItsClass("here")'
    assert [type(each) for each in group_members(ExceptionGroup("", [RaisesAtItsClass()]))] == [
        RuntimeError
    ]
    fine = ValueError("fine")
    assert with_class(fine) is fine


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_guarded_call_goes_on_whatever_its_function_does(name: str) -> None:
    failures = list[Exception]()

    def failed(error: Exception) -> str:
        failures.append(error)
        return "otherwise"

    misbehaves = MISBEHAVIOURS[name]
    answer = aside(
        lambda: guarded_call("it", lambda _: misbehaves(), 1, failed=failed, check=lambda _: "done")
    )
    assert answer == ("otherwise" if failures else "done")
    assert bool(failures) == (name.startswith("raises") or name in UNUSABLE)
    assert all(isinstance(each, Exception) for each in failures)


UNUSABLE = {"returns a coroutine", "returns an awaitable that raises", "returns no attributes"}
"""What isinstance() cannot ask, or what nothing would await."""


def test_the_check_of_a_guarded_call_is_guarded_too() -> None:
    assert aside(lambda: guarded_call("it", NoTruth, failed=str, check=bool)) == "nobody may ask"


def test_a_ctrl_c_in_the_main_thread_is_the_programs_and_any_other_one_is_not() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def call() -> Any:
        return guarded_call("it", interrupt, failed=str)

    with pytest.raises(KeyboardInterrupt):
        call()
    assert aside(call) == "it raised KeyboardInterrupt()"


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_policy_that_misbehaves_delays_a_retry_for_ten_seconds(name: str) -> None:
    failures = list[Exception]()
    misbehaves = MISBEHAVIOURS[name]
    delay = aside(
        lambda: asked_delay(
            "retry", lambda *_: misbehaves(), ValueError(), 0, failed=failures.append
        )
    )
    assert delay == {"returns a decimal": 0.001, "returns true": 1.0}.get(name, FALLBACK_DELAY)
    assert len(failures) == (delay == FALLBACK_DELAY)


def test_a_policy_may_decide_for_no_retry() -> None:
    assert asked_delay("retry", lambda *_: None, ValueError(), 0, failed=print) is None


@pytest.mark.parametrize("name", HOSTILE_ERRORS)
@pytest.mark.parametrize("form", ["exception", "exc_info", "argument"])
def test_no_record_of_an_exception_is_lost(
    form: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = get_logger("appsdk_operator.test")

    def tell() -> None:
        error = HOSTILE_ERRORS[name]()
        try:
            raise error
        except BaseException as raised:
            if form == "exception":
                log.exception("told %d", 1)
            elif form == "exc_info":
                log.log(logging.ERROR, "told %d", 1, exc_info=(type(raised), raised, None))
            else:
                log.error("told %d: %s, %r", 1, raised, raised)

    aside(tell)
    assert "told 1" in caplog.text
