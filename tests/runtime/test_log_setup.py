"""Log records on a terminal, in a file and in a pod."""

from __future__ import annotations

import functools
import io
import json
import logging
from collections.abc import Iterator

import pytest

from appsdk_operator import setup_logging
from appsdk_operator.resource import Kind, Object, load_yaml
from appsdk_operator.runtime import (
    FailureLog,
    JSONFormatter,
    ManualClock,
    TextFormatter,
    get_logger,
)

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was before at the end."""
    found = logging.getLogger()
    level = found.level
    yield found
    for handler in list(found.handlers):
        if isinstance(handler, logging.NullHandler) or _is_ours(handler):
            found.removeHandler(handler)
            handler.close()
    found.setLevel(level)


def _is_ours(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("appsdk_operator.")


def lines_of(stream: io.StringIO, *messages: str, **options: object) -> list[str]:
    root = logging.getLogger()
    root.handlers[:] = filter(_is_ours, root.handlers)  # those of pytest go
    assert setup_logging(stream=stream, **{"environ": {}, **options})  # type: ignore[arg-type]
    for message in messages:
        get_logger("appsdk_operator.test").info(message)
    return stream.getvalue().splitlines()


def test_a_pod_gets_json_and_all_else_gets_text() -> None:
    assert json.loads(lines_of(io.StringIO(), "hello", environ=POD)[0])["message"] == "hello"
    assert lines_of(io.StringIO(), "hello")[0].endswith(" INFO    appsdk_operator.test: hello")
    (line,) = lines_of(Terminal(), "hello", environ=POD)
    assert line.endswith("\x1b[32mINFO   \x1b[0m hello"), "somebody looks at it with kubectl exec"


@pytest.mark.parametrize(
    ("environ", "has_color"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_a_terminal_gets_color_unless_its_user_does_not_want_it(
    environ: dict[str, str], has_color: bool
) -> None:
    (line,) = lines_of(Terminal(), "hello", environ=environ)
    assert ("\x1b[" in line) == has_color


def test_a_format_that_was_asked_for_is_used_everywhere() -> None:
    assert json.loads(lines_of(Terminal(), "hello", format="json")[0])["message"] == "hello"
    assert "INFO" in lines_of(io.StringIO(), "hello", format="text", environ=POD)[0][:40]


def test_the_level_counts() -> None:
    assert lines_of(io.StringIO(), "hello", level="warning") == []
    with pytest.raises(ValueError, match="level='loud': use debug, info"):
        setup_logging(level="loud")
    with pytest.raises(ValueError, match="format='xml': use auto, text, json"):
        setup_logging("xml")  # type: ignore[arg-type]


def test_a_second_call_replaces_the_first_and_handlers_of_the_program_stay(
    root: logging.Logger,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    lines_of(first, "one")
    assert len(lines_of(second, "two")) == 1
    assert "two" not in first.getvalue()
    root.handlers[:] = [own] = [logging.NullHandler()]
    assert not setup_logging()
    assert root.handlers == [own]


def test_each_line_of_json_has_the_name_of_the_operator() -> None:
    (line,) = lines_of(io.StringIO(), "hello", format="json", operator="shop")
    assert json.loads(line)["operator"] == "shop"


@pytest.mark.parametrize("color", [True, False])
def test_a_text_of_the_cluster_forges_no_line_and_commands_no_terminal(color: bool) -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "INFO", "levelno": 20, "msg": "said %s"}
    )
    record.args = ("x\nERROR all is lost\r\x1b[2J\x9b2J",)
    text = TextFormatter(color=color).format(record)
    first, second = text.splitlines()
    assert first.endswith("said x")
    assert second == "    ERROR all is lost\\r\\x1b[2J\\x9b2J"


@pytest.mark.parametrize("color", [True, False])
def test_a_text_of_the_cluster_in_an_error_forges_no_line_either(color: bool) -> None:
    error = ValueError("no color red\nERROR all is lost\x1b[2J")
    record = logging.makeLogRecord({"name": "shop", "levelno": 40, "msg": "failed"})
    record.exc_info = (ValueError, error, None)
    record.stack_info = "Stack\nERROR of all"
    first, *below = TextFormatter(color=color).format(record).replace("\x1b[2m", "").splitlines()
    assert "failed" in first
    assert all(line.startswith("    ") for line in below)
    assert "    ERROR all is lost\\x1b[2J" in "\n".join(below)


def test_a_record_about_an_object_names_it_once() -> None:
    def line(message: str) -> str:
        fields = {"namespace": "red", "object": "a"}
        record = logging.makeLogRecord({"name": "shop", "msg": message, **fields})
        return TextFormatter().format(record)

    assert line("resized").endswith("shop: resized  [red/a]")
    assert line("resized red/a").endswith("shop: resized red/a")


# Tracebacks.


def refuses(*_: object) -> None:
    raise ConnectionError("no storage")


def failed(function: object) -> BaseException:
    """The error of a function that the kit called, with frames of the kit on both sides."""
    from appsdk_operator.runtime import environment, settle

    async def waits() -> None:
        with environment():
            function()  # type: ignore[operator]

    try:
        settle(waits())
    except Exception as error:
        return error
    raise AssertionError


def decodes_badly() -> None:
    kind = Kind(group="", version="v1", kind="Thing")
    Object.from_dict({"apiVersion": "v1"}, kind)


def reads_bad_yaml() -> None:
    load_yaml("a: [")


@pytest.mark.parametrize("formatter", [TextFormatter, JSONFormatter])
@pytest.mark.parametrize("function", [refuses, decodes_badly, reads_bad_yaml])
def test_a_traceback_has_the_users_frames_unless_all_are_asked_for(
    formatter: type, function: object
) -> None:
    error = failed(function)
    record = logging.makeLogRecord({"name": "shop", "msg": "failed"})
    record.exc_info = (type(error), error, error.__traceback__)
    mine, whole = formatter().format(record), formatter(whole_tracebacks=True).format(record)
    assert "test_log_setup.py" in mine
    for other in ("/appsdk_operator/runtime/", "/asyncio/"):
        assert other not in mine
        assert other in whole
    assert "/yaml/" not in mine


def test_causes_of_an_error_are_cut_as_well() -> None:
    def chains() -> None:
        try:
            decodes_badly()
        except Exception as error:
            raise RuntimeError("no thing") from error

    error = failed(chains)
    record = logging.makeLogRecord({"name": "shop", "msg": "failed"})
    record.exc_info = (type(error), error, error.__traceback__)
    text = TextFormatter().format(record)
    assert "direct cause" in text
    assert "/appsdk_operator/resource/" not in text


def test_an_error_of_the_kit_alone_keeps_its_frames() -> None:
    with pytest.raises(ValueError, match="format=") as raised:
        setup_logging("xml")  # type: ignore[arg-type]
    trace = raised.value.__traceback__
    assert trace is not None
    record = logging.makeLogRecord({"name": "shop", "msg": "failed"})
    record.exc_info = (ValueError, raised.value, trace.tb_next)
    assert "/appsdk_operator/runtime/" in TextFormatter().format(record)


def test_at_debug_a_failure_has_the_whole_traceback() -> None:
    for level, has_kit in (("info", False), ("debug", True)):
        stream = io.StringIO()
        lines_of(stream, level=level)
        log = FailureLog(get_logger("appsdk_operator.test"), ManualClock())
        log.failed(failed(functools.partial(refuses)), "f", "f failed")
        assert ("/appsdk_operator/runtime/" in stream.getvalue()) == has_kit
