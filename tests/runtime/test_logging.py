"""Log records as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from appsdk_operator.runtime import JSONFormatter


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


def test_what_json_does_not_know_is_written_as_text(
    lines: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = lines
    logger.info("x", extra={"thing": object, "numbers": {1, 2}, "not a number": float("nan")})
    fields = json.loads(stream.getvalue())
    assert fields["thing"] == "<class 'object'>"
    assert sorted(fields["numbers"]) == [1, 2]
