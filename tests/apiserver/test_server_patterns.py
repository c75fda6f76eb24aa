"""Go's regular expressions, as schemas and rules use them."""

from __future__ import annotations

import sys

import pytest

from appsdk_operator.apiserver._cel import expressions
from appsdk_operator.apiserver._cel.expressions import DYN
from appsdk_operator.apiserver._values.go_pattern import (
    GoPattern,
    GoPatternError,
    go_pattern,
)


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
