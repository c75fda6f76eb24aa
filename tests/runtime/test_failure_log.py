"""How often failures are told: once with a traceback, then in lines, then in numbers."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest

from appsdk_operator.runtime import (
    FailureLog,
    ManualClock,
    failed_function,
    get_logger,
    user_traceback,
)


def error(make: Callable[[], Exception] = lambda: KeyError("a")) -> Exception:
    try:
        raise make()
    except Exception as raised:
        return raised


class Rig:
    """A log on a clock that the test moves."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.log = FailureLog(get_logger("appsdk_operator.test"), self.clock)
        self._caplog = caplog

    def fail(self, times: int = 1, whose: str = "f", **options: object) -> list[str]:
        """What is said of so many failures."""
        before = len(self._caplog.records)
        for _ in range(times):
            self.log.failed(error(), whose, "%s failed", whose, **options)  # type: ignore[arg-type]
        return [
            record.getMessage() + " (with traceback)" * (record.exc_info is not None)
            for record in self._caplog.records[before:]
        ]


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> Rig:
    return Rig(caplog)


def test_the_first_of_a_cause_has_its_traceback(rig: Rig) -> None:
    assert rig.fail() == ["f failed (with traceback)"]
    assert rig.fail() == ["f failed"]
    assert rig.fail(whose="g") == ["g failed (with traceback)"]
    rig.clock.advance(60)
    assert rig.fail() == ["f failed"]


def test_a_flood_is_a_few_lines_and_then_one_each_five_seconds(rig: Rig) -> None:
    assert len(rig.fail(10_000)) == 10
    for _ in range(3):
        rig.clock.advance(5)
        (line, *_) = rig.fail(10_000)
        assert line.startswith("f failed; and 99")
        assert line.endswith(" more like it within 5 s")


def test_no_failure_of_a_flood_is_lost_from_the_count(rig: Rig) -> None:
    lines = []
    for _ in range(1000):
        lines += rig.fail(7)
        rig.clock.advance(0.1)
    rig.clock.advance(5)
    lines += rig.fail()
    counted = sum(int(line.split(" and ")[1].split()[0]) for line in lines if " and " in line)
    assert counted + len(lines) == 7001
    assert len(lines) <= 10 + 7000 // 7 / 10 / 5 + 2


def test_failures_that_come_now_and_then_are_all_told(rig: Rig) -> None:
    lines = []
    for _ in range(100):
        lines += rig.fail()
        rig.clock.advance(1)
    assert len(lines) == 100


def test_a_cause_that_was_not_seen_for_long_is_new_again(rig: Rig) -> None:
    rig.fail(3)
    rig.clock.advance(600)
    assert rig.fail() == ["f failed (with traceback)"]


def test_at_the_end_what_was_only_counted_is_told(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.fail(25)
    caplog.clear()
    rig.log.flush()
    rig.log.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "f: 15 more failures with KeyError"
    ]


def test_causes_are_bounded(rig: Rig) -> None:
    for number in range(1000):
        rig.fail(whose=f"f{number}")
    assert len(rig.log._by_cause) == 200


def test_levels_that_are_off_cost_and_count_nothing(rig: Rig) -> None:
    assert rig.fail(level=logging.DEBUG) == []
    assert not rig.log._by_cause


def test_a_traceback_that_is_not_wanted_is_left_out(rig: Rig) -> None:
    assert rig.fail(with_traceback=False) == ["f failed"]


def test_an_error_without_a_traceback_is_told_too(rig: Rig) -> None:
    rig.log.failed(KeyError("never raised"), "f", "failed")
    assert user_traceback(KeyError()) is None
    assert failed_function(KeyError()) == ""


def test_an_error_of_the_kit_alone_keeps_its_traceback() -> None:
    from appsdk_operator.watchers import ConstantBackoff

    try:
        ConstantBackoff(-1)
    except ValueError as raised:
        inner = raised.with_traceback(raised.__traceback__.tb_next)  # type: ignore[union-attr]
    assert user_traceback(inner) is inner.__traceback__ is not None
    assert failed_function(inner) == ""


def test_one_object_has_a_line_a_second_and_no_failure_is_lost_from_the_count(rig: Rig) -> None:
    lines = rig.fail(5, about="a")
    assert lines == ["f failed (with traceback)"]
    assert rig.fail(2, about="b") == ["f failed"]
    for _ in range(100):
        rig.clock.advance(0.5)
        lines += rig.fail(2, about="a")
    rig.clock.advance(5)
    lines += rig.fail()
    counted = sum(int(line.split(" and ")[1].split()[0]) for line in lines if " and " in line)
    assert counted + len(lines) + 1 == 5 + 2 + 200 + 1
    assert len(lines) <= 52


# What fails now.


def test_what_works_again_is_logged_with_its_failures_and_their_time(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failing = rig.log.failing
    assert not failing.calls
    for _ in range(3):
        failing.failed(1, "uid-1", "open_shop", ConnectionError("away"))
        rig.clock.advance(14.0)
    assert failing.calls
    failing.succeeded(1, "uid-2", "Shop default/b")
    failing.succeeded(2, "uid-1", "Shop default/a")
    failing.succeeded(1, "uid-1", "Shop default/a")
    failing.succeeded(1, "uid-1", "Shop default/a")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "open_shop works again for Shop default/a, after 3 failures in 42 s"
    )
    assert record.__dict__["failures"] == 3
    assert not failing.calls


def test_while_several_fail_a_line_a_minute_says_how_many_and_why(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    failing = rig.log.failing
    failing.failed(0, "uid-0", "greet", KeyError("name"))
    assert caplog.messages == [], "one alone has its own lines"
    for second in range(120):
        rig.clock.advance(1.0)
        failing.failed(1, f"uid-{second % 17}", "open_shop", ConnectionError("away"))
    assert caplog.messages == [
        "17 objects fail: 17 ConnectionError in open_shop, 1 KeyError in greet",
        "17 objects fail: 17 ConnectionError in open_shop, 1 KeyError in greet",
    ]


def test_what_is_gone_fails_no_more_and_there_is_a_bound(rig: Rig) -> None:
    failing = rig.log.failing
    for called in (1, 2):
        failing.failed(called, "gone", "f", KeyError("a"))
    failing.forget(about="gone")
    assert not failing.calls
    failing.forget(about="gone")

    @dataclasses.dataclass(eq=False)
    class Order:
        number: int

        def __hash__(self) -> int:
            return self.number

        def __eq__(self, other: object) -> bool:
            return bool(self.number == other.number)

    for order in (Order(1), Order(2)):
        failing.failed(1, order, "f", KeyError("a"))
    failing.forget(about=Order(1))
    assert list(failing.calls) == [(1, Order(2))]
    failing.forget(called=1)
    assert not failing.calls
    for number in range(10_001):
        failing.failed(1, number, "f", KeyError("a"))
    assert len(failing.calls) == 10_000


def test_a_record_has_the_error_and_its_place_as_fields(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.fail(extra={"kind": "shops"})
    fields = caplog.records[0].__dict__
    assert (fields["kind"], fields["error_text"]) == ("shops", "KeyError: 'a'")
    assert fields["place"].startswith("test_failure_log.py:")
