"""Go's regular expressions, as schemas and rules use them."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

import appsdk_operator.apiserver
from appsdk_operator.apiserver._cel import expressions
from appsdk_operator.apiserver._cel.expressions import DYN
from appsdk_operator.apiserver._cel.schema_types import cel_converter
from appsdk_operator.apiserver._cel.values import Duration, Timestamp
from appsdk_operator.apiserver._values import quantity, string_formats, times
from appsdk_operator.apiserver._values.go_pattern import (
    GoPattern,
    GoPatternError,
    go_pattern,
)
from tests.hypothesis_profiles import scaled


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^a$", "a", "a\n"),
        (r"^\d+$", "12", "٣"),
        ("[[:alpha:]]+", "x", "1"),
        ("[[:^alpha:]]+", "1", "x"),
        (r"^\p{L}+$", "äж", "1"),
        (r"^\p{Greek}$", "λ", "l"),
        (r"a\z", "ba", "ab"),
        (r"^\Qa.b\E$", "a.b", "axb"),
        ("(?i)^A$", "a", "b"),
        ("^a(?i)b$", "aB", "AB"),
        ("(?U)^a+$", "aa", "b"),
        ("^a{2}$", "aa", "a"),
        ("^a{,2}$", "a{,2}", "a"),
        (r"^\x{e9}\07$", "é\a", "e7"),
        (r"^\\C\Q\C\E$", r"\C\C", "xx"),
        (r"^\pL{200}$", "a" * 200, "a"),
    ],
)
def test_patterns_are_those_of_go(pattern: str, matching: str, other: str) -> None:
    assert go_pattern(pattern).found_in(matching)
    assert not go_pattern(pattern).found_in(other)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[a-.]", "invalid character class range: `a-.`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("b(?<!a)", "invalid named capture: `(?<!a)`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\\\C", r"invalid escape sequence: `\C`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
        (r"(?:\PL{9}){99}" * 9, r"expression too large: `(?:\PL{9}){99}(?:"),
        (r"\pL" * 100_000, r"expression too large: `\pL"),
    ],
)
def test_patterns_go_does_not_know_are_refused_in_its_words(pattern: str, text: str) -> None:
    with pytest.raises(GoPatternError) as caught:
        go_pattern(pattern)
    assert str(caught.value).startswith("error parsing regexp: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)*$", "^(.*.*.*)*x$", "(?:a?){30}a{30}$"])
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    text = "a" * 100_000 + "!"
    assert not go_pattern(pattern).found_in(text)
    for function in ("matches", "find", "findAll"):
        program = expressions.compile(f"self.{function}({pattern!r})", {"self": DYN})
        assert not program.evaluate({"self": text})


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a*", "baab", ["", "aa", ""]),
        (r"\z", "ab", [""]),
        (r"\b", "é a", ["", ""]),
        ("", "éa", ["", "", ""]),
        ("(?:é|b)+", "aébcb", ["éb", "b"]),
    ],
)
def test_parts_are_found_as_go_finds_them(pattern: str, text: str, found: list[str]) -> None:
    assert go_pattern(pattern).find_all(text) == found
    assert go_pattern(pattern).find_all(text, 1) == found[:1]
    assert go_pattern(pattern).find_all(text, 0) == []


def test_without_the_engine_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ImportError, match=r"google-re2.*pip install 'appsdk-operator\[testing\]'"):
        GoPattern("a")


FORMATS = (
    *("bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "duration", "email"),
    *("hexcolor", "hostname", "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name"),
    *("k8s-short-name", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4"),
    "uuid5",
)


def _patterns() -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Whatever reads text by a pattern: the patterns of all modules, and the parsers."""
    package = appsdk_operator.apiserver
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(found.name)).items():
            # Signatures of functions are our own text.
            ours = name == "_SIGNATURE"
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and not ours:
                yield f"{found.name}.{name}", value.fullmatch
                yield f"{found.name}.{name}", value.match
    for name in FORMATS:
        yield name, lambda text, name=name: string_formats.is_valid(name, text)  # type: ignore[misc]
    yield from (
        (parse.__qualname__, parse)
        for parse in (
            *(quantity.canonical, times.parse_duration, times.normalize_time),
            *(string_formats.parse_duration, Duration.parse, Timestamp.parse),
        )
    )


def _seconds(read: Callable[[str], object], text: str) -> float:
    """The time of the processor that ``read`` takes."""
    began = time.thread_time()
    with contextlib.suppress(ValueError, expressions.CelError):
        read(text)
    return time.thread_time() - began


def test_what_reads_text_takes_time_linear_in_its_length() -> None:
    parts = ["1", "a", "A", "0", "-", ".", " ", "/", "@", ":", "(", "()", "\\", '"', "a.", "a-"]
    parts += [
        "1h",
        "1.",
        ".1",
        "a ",
        '"a" ',
        "a@",
        "%20",
        "[",
        "12 ",
        "é",
        "_",
        ",",
        "'",
        "1m ",
        "=",
    ]
    around = [("", ""), ("", "!"), ("", "x"), ("/", "^"), ("a", "\n"), ("http://", "!")]
    around += [("http://", "\n"), ("(", "x"), ('"', "!"), ("1", "1h!")]
    slow = []
    for name, read in _patterns():
        for part in parts:
            for start, end in around:
                text = start + part * (12_000 // len(part)) + end
                # A quadratic pattern takes seconds each time; the collector of garbage or a busy
                # machine may take one of the times.
                if all(_seconds(read, text) > 0.2 for _ in range(5)):
                    slow.append((name, part, start, end))
                    break
    assert not slow


@pytest.mark.parametrize(("name", "kind"), [("duration", Duration), ("date", Timestamp)])
@hypothesis.settings(max_examples=scaled(300))
@hypothesis.given(data=strategies.data())
def test_rules_read_whatever_has_the_format(
    name: str, kind: type, data: strategies.DataObject
) -> None:
    words = {
        "duration": r"[-+]?([0-9]{1,21}(\.[0-9]*)?[ ]?(ns|µs|ms|s|m|h|d|days?|weeks|x)[ ]?){1,3}",
        "date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    }[name]
    text = data.draw(strategies.from_regex(words, fullmatch=True))
    convert = cel_converter({"type": "string", "format": name})
    assert convert is not None
    # Python has no year 0, nor have rules.
    hypothesis.assume(not text.startswith("0000"))
    assert isinstance(convert(text), kind) is string_formats.is_valid(name, text)
