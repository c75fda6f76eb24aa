"""Label and field selectors of a query, with the real server's error texts.

The selectors are those of the kit; a second parser finds the real server's text for an invalid one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from appsdk_operator.apiserver._values.names import key_problems, value_problems
from appsdk_operator.apiserver._values.status import FieldError, StatusError, bad_request
from appsdk_operator.resource import FieldSelector, LabelSelector, SelectorError

_TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!<>(),])|([^\s=!<>(),]+))")
_OPERATORS: Final = {"=", "==", "!=", "<", ">", "in", "notin"}
_FIRST: Final = "!, identifier, or 'end of string'"


def parse_labels(query: Mapping[str, str]) -> LabelSelector:
    """Parse the label selector of a query.

    Raises:
        StatusError: 400, it is not valid.
    """
    text = query.get("labelSelector", "")
    try:
        return LabelSelector.parse(text)
    except SelectorError as error:
        problem = _SelectorParser(text).problem() or f"unable to parse requirement: {error}"
        raise bad_request(problem) from None


def parse_fields(query: Mapping[str, str]) -> FieldSelector:
    """Parse the field selector of a query.

    Raises:
        StatusError: 400, it is not valid.
    """
    text = query.get("fieldSelector", "")
    for part in re.findall(r"(?:\\.|[^,\\]|\\$)+", text):
        found = re.match(r"([^=!]*)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        rest = re.sub(r"\\[\\,=]", "", found[3])
        if "\\" in rest:
            at = rest.index("\\")
            raise bad_request(
                f"invalid field selector: invalid escape sequence: {rest[at : at + 2]}"
            )
        if "=" in rest:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
        if not found[1]:
            raise bad_request("field label not supported: ")
    try:
        return FieldSelector.parse(text)
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None


class _SelectorParser:
    """A parser of label selectors that stops at the first error."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [a or b for a, b in _TOKEN.findall(text)]
        self._at = 0

    def problem(self) -> str:
        """The real server's error text; ``""`` if it finds no error."""
        while True:
            part = self._peek()
            if part in _OPERATORS - {"in", "notin"} or part in (",", "(", ")"):
                return f"found '{part}', expected: {_FIRST}"
            try:
                self._requirement()
            except StatusError as error:
                return f"unable to parse requirement: {error}"
            part = self._take()
            if not part:
                return ""
            if part != ",":
                return f"found '{part}', expected: ',' or 'end of string'"
            following = self._peek()
            if not following or following in ("=", "==", "!=", "<", ">", ",", "(", ")"):
                return f"found '{following}', expected: identifier after ','"

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        part = self._peek()
        self._at += 1
        return part

    def _requirement(self) -> None:
        negated = self._peek() == "!"
        if negated:
            self._take()
        key = self._take()
        if not key or key in ("=", "==", "!", "!=", "<", ">", ",", "(", ")"):
            raise bad_request(f"found '{key}', expected: identifier")
        _refuse("<nil>", key, key_problems(key))
        if negated or self._peek() in ("", ","):
            return
        operator = self._take()
        if operator not in _OPERATORS:
            raise bad_request(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else [self._value()]
        for at, value in enumerate(sorted(set(values))):
            if operator in ("<", ">") and not re.fullmatch(r"[-+]?\d+", value):
                what = "for 'Gt', 'Lt' operators, the value must be an integer"
                _refuse(f"values[{at}]", value, [what])
            _refuse(f"values[{at}][{key}]", value, value_problems(value))

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        part = self._take()
        if part in ("=", "==", "!", "!=", "<", ">", "(", ")"):
            raise bad_request(f"found '{part}', expected: identifier")
        return part

    def _values(self) -> list[str]:
        part = self._take()
        if part != "(":
            raise bad_request(f"found '{part}' expected: '('")
        found: list[str] = []
        while True:
            part = self._take()
            if part == ")":
                return [*found, ""] if not found or self._before() == "," else found
            if part == ",":
                if self._before() in ("(", ","):
                    found.append("")
                continue
            if not part or part in _OPERATORS - {"in", "notin"}:
                raise bad_request(f"found '{part}', expected: ',', ')' or identifier")
            found.append(part)
            if self._peek() not in (",", ")"):
                raise bad_request(f"found '{self._peek()}', expected: ',' or ')'")

    def _before(self) -> str:
        return self._tokens[self._at - 2]


def _refuse(field: str, value: str, problems: Iterable[str]) -> None:
    for problem in problems:
        raise bad_request(str(FieldError.invalid(field, value, problem)))
