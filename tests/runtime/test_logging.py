"""Log records as JSON, and loggers that never raise."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import appsdk_operator
from appsdk_operator.runtime import JSONFormatter, SafeLogger, TextFormatter, get_logger
from appsdk_operator.runtime._logs import loggers as logging_module
from tests.hypothesis_profiles import scaled


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger = logging.Logger("appsdk_operator.test")  # noqa: LOG001 - one that nobody else knows
    logger.addHandler(handler)
    yield logger, stream
    handler.close()


def test_a_record_is_one_line_with_its_own_fields(
    lines: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = lines
    logger.warning("two\nlines of %s", "text", extra={"kind": "pods.v1", "attempt": 2})
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "WARNING",
        "logger": "appsdk_operator.test",
        "message": "two\nlines of text",
        "kind": "pods.v1",
        "attempt": 2,
    }


def test_an_exception_is_part_of_the_line(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = lines
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("failed", stack_info=True)
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert "ValueError: broken" in fields["exception"]
    assert "test_logging.py" in fields["stack"]


class Mute:
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


def _circle() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
"""Any text, also with surrogates, as ``os.fsdecode`` makes them."""
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        TEXTS,
        st.binary(max_size=8),
        st.builds(Mute),
        st.builds(_circle),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(TEXTS, st.integers(), st.none(), st.tuples(TEXTS)), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


@given(message=TEXTS, thing=VALUES, error=TEXTS)
@settings(max_examples=scaled(300))
def test_a_record_is_written_in_each_format_whatever_is_in_it(
    message: str, thing: object, error: str
) -> None:
    for formatter in (JSONFormatter(), TextFormatter(), TextFormatter(color=True)):
        raw = io.BytesIO()
        handler = logging.StreamHandler(io.TextIOWrapper(raw, "utf-8", write_through=True))
        handler.setFormatter(formatter)
        try:
            raise ValueError(error)
        except ValueError:
            record = logging.makeLogRecord(
                {
                    "name": "shop",
                    "levelname": "INFO",
                    "levelno": logging.INFO,
                    "msg": "%s",
                    "args": (message,),
                    "thing": thing,
                    "exc_info": sys.exc_info(),
                }
            )
        handler.acquire()
        try:
            # As emit() does, which would tell of a failure on standard error alone.
            handler.stream.write(handler.format(record))
        finally:
            handler.release()
            handler.close()
        if isinstance(formatter, JSONFormatter):
            fields = json.loads(raw.getvalue())
            assert fields["message"] == message
            assert "thing" in fields


def test_what_json_does_not_know_is_written_as_text(
    lines: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = lines
    logger.info("x", extra={"thing": object, "numbers": {1, 2}, "not a number": float("nan")})
    fields = json.loads(stream.getvalue())
    assert fields["thing"] == "<class 'object'>"
    assert sorted(fields["numbers"]) == [1, 2]


class Broken(logging.Handler):
    """A handler, or a filter, with a bug."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self.error

    def filter(self, record: logging.LogRecord) -> bool:
        raise self.error


class Silent(logging.Handler):
    """A handler that works, until its filter does not."""

    def emit(self, record: logging.LogRecord) -> None:
        pass


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What standard error was told."""
    monkeypatch.setattr(logging_module, "_reported", set())
    return lambda: capsys.readouterr().err


@pytest.fixture
def safe() -> Iterator[SafeLogger]:
    log = get_logger("appsdk_operator.test.safe")
    yield log
    for handler in list(log.logger.handlers):
        log.logger.removeHandler(handler)
        handler.close()
    for each in list(log.logger.filters):
        log.logger.removeFilter(each)


def break_logging(log: SafeLogger, how: str, error: BaseException) -> None:
    broken = Broken(error)
    if how == "filter":
        log.logger.addFilter(broken)
    elif how == "handler":
        log.logger.addHandler(broken)
    elif how == "handler's filter":
        silent = Silent()
        silent.addFilter(broken)
        log.logger.addHandler(silent)


@pytest.mark.parametrize("how", ["filter", "handler", "handler's filter"])
@pytest.mark.parametrize("method", ["debug", "info", "warning", "error", "exception", "critical"])
def test_whatever_filters_and_handlers_raise_a_call_does_not(
    safe: SafeLogger, told: Callable[[], str], how: str, method: str
) -> None:
    safe.logger.setLevel(logging.DEBUG)
    break_logging(safe, how, ZeroDivisionError("a bug"))
    for _ in range(3):
        getattr(safe, method)("something happened to %s", "it", extra={"kind": "pods"})
    text = told()
    assert text.count("ZeroDivisionError: a bug") == 1, "once of each kind"
    assert "filter or handler of logger appsdk_operator.test.safe" in text


def test_a_closed_standard_error_is_no_failure_of_who_logs(
    safe: SafeLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    safe.logger.addHandler(logging.StreamHandler())
    stream.close()
    with pytest.raises(ValueError, match="closed file"):
        safe.logger.error("the standard library's own call")
    safe.error("ours")


def test_nothing_is_written_where_logging_is_to_keep_quiet(
    safe: SafeLogger, told: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    break_logging(safe, "handler", ZeroDivisionError("a bug"))
    safe.error("something")
    assert told() == ""


@pytest.mark.parametrize(
    ("message", "args", "expected"),
    [
        ("%(a)s of %(b)d", ({"a": "x", "b": 2},), "x of 2"),
        ("%s", ({"a": 1},), "{'a': 1}"),
        ("%s", ({},), "{}"),
        ("%s %d", (object(), True), None),
    ],
)
def test_arguments_are_those_of_logging(
    caplog: pytest.LogCaptureFixture, message: str, args: tuple[object, ...], expected: str | None
) -> None:
    get_logger("appsdk_operator.runtime").warning(message, *args)
    (record,) = caplog.records
    assert record.getMessage() == (message % args if expected is None else expected)


def test_ctrl_c_in_a_handler_reaches_the_main_thread_and_no_other(
    safe: SafeLogger, told: Callable[[], str]
) -> None:
    break_logging(safe, "handler", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        safe.error("in the main thread")
    ended: list[bool] = []

    def work() -> None:
        safe.error("in another one")
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended
    assert "KeyboardInterrupt" in told()


def test_a_record_says_who_logged_it_with_all_fields(
    safe: SafeLogger, caplog: pytest.LogCaptureFixture
) -> None:
    bound = SafeLogger(safe.logger, {"controller": "c", "kind": "pods"})
    try:
        raise KeyError("no")
    except KeyError:
        bound.exception("failed with %d", 5, extra={"kind": "nodes"})
    (record,) = caplog.records
    assert record.getMessage() == "failed with 5"
    assert (record.funcName, record.filename) == (
        "test_a_record_says_who_logged_it_with_all_fields",
        "test_logging.py",
    )
    assert (record.controller, record.kind) == ("c", "nodes")  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_every_room_logs_so_that_nothing_propagates() -> None:
    root = Path(appsdk_operator.__file__).parent
    direct = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func.value) == "logging" and node.func.attr in (
                *("getLogger", "log", "debug", "info", "warning", "error", "exception"),
            ):
                direct.append(f"{path.relative_to(root)}: {ast.unparse(node)}")
    allowed = {
        "runtime/_logs/loggers.py: logging.getLogger(name)",
        # The log of a program.
        "runtime/_logs/setup.py: logging.getLogger()",
        # They listen.
        "testing/_pytest/kube_test.py: logging.getLogger('appsdk_operator')",
        "testing/_world/check_operator.py: logging.getLogger('appsdk_operator')",
    }
    assert set(direct) <= allowed, "use runtime.get_logger"
