"""JSONPath for printer columns, in the dialect of client-go's ``jsonpath``.

The dialect has quirks that clients see: spaces between the parts of a path mean nothing, a
comparison of different types fails, and so does an index that a list does not have.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, final

Step = Callable[[list[Any]], list[Any]]
"""Evaluates a part of a path: from the values found so far to those that it selects in them."""

_TERMINATORS: Final = frozenset(" \t\r\n.,[]$@{}")
_KEY: Final = re.compile(r"'([^']*)'")
_SLICE: Final = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON: Final = re.compile(r"([^!<>=]++)([!<>=]++)(.+)")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+)")
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|)"
)
_ESCAPED: Final = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))
_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class _SyntaxError(ValueError):
    """A path that client-go does not parse."""


class _EvaluationError(Exception):
    """A path that cannot be evaluated for a value."""

    def __init__(self, found: list[Any]) -> None:
        """``found`` is what had been selected before: it counts for a test of existence."""
        super().__init__("the path cannot be evaluated")
        self.found = found


def is_valid(path: str) -> bool:
    """Whether ``path`` has the syntax of a JSONPath."""
    try:
        _compiled(path)
    except _SyntaxError:
        return False
    return True


def find(value: Any, path: str) -> list[Any]:
    """All values that ``path`` selects in ``value``; none when it cannot be evaluated."""
    try:
        # A brace in the path begins another action; the first one decides, if none fails.
        first, *_others = [_run(steps, [value]) for steps in _compiled(path)]
    except (_SyntaxError, _EvaluationError):
        return []
    return first


@functools.lru_cache(maxsize=1024)
def _compiled(path: str) -> tuple[tuple[Step, ...], ...]:
    return _Parser(f"{{{path}}}").template()


def _action(text: str) -> tuple[Step, ...]:
    return _Parser(f"{{{text}}}").template()[0]


def _run(steps: tuple[Step, ...], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


@final
class _Parser:
    """Parses one template: text and actions in braces."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps: list[Step] = []
        self._ends_recursive = False

    def template(self) -> tuple[tuple[Step, ...], ...]:
        """The actions of the template, at least one for a text that begins with a brace."""
        actions = []
        while (begin := self._text.find("{", self._at)) >= 0:
            self._at = begin + 1
            self._steps = []
            while not self._text.startswith("}", self._at):
                self._part()
            self._at += 1
            actions.append(tuple(self._steps))
        return tuple(actions)

    def _next(self) -> str:
        """The next character; empty at the end."""
        found = self._text[self._at : self._at + 1]
        self._at += 1
        return found

    def _until_terminator(self) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in _TERMINATORS:
            self._at += 1
        return self._text[begin : self._at]

    def _part(self) -> None:
        recursive, self._ends_recursive = self._ends_recursive, False
        if self._text.startswith("[?(", self._at):
            self._filter()
        elif self._text.startswith("..", self._at):
            if recursive:
                raise _SyntaxError("invalid multiple recursive descent")
            self._at += 2
            self._steps.append(_everything)
            self._ends_recursive = True
            following = self._text[self._at : self._at + 1]
            if following == "_" or following.isalpha() or following.isdigit():
                self._ends_recursive = False
                self._field()
        else:
            self._simple_part(recursive)

    def _simple_part(self, recursive: bool) -> None:
        char = self._next()
        if char in ("", "\r", "\n"):
            raise _SyntaxError("unclosed action")
        if char in " @$":
            self._ends_recursive = recursive
        elif char == "[":
            self._array()
        elif char in "\"'":
            self._quoted(char)
        elif char == ".":
            self._field()
        elif char in "+-" or char.isdigit():
            self._number(char)
        elif char == "_" or char.isalpha():
            self._identifier(char)
        else:
            raise _SyntaxError(f"unrecognized character in action: {char}")

    def _field(self) -> None:
        name = ""
        while True:
            name += self._until_terminator_or_escape()
            if not self._text.startswith("\\", self._at):
                break
            name += self._text[self._at + 1 : self._at + 2].replace("\\", "")
            self._at += 2
        self._steps.append(_members if name == "*" else _field(name))

    def _until_terminator_or_escape(self) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in _TERMINATORS:
            if self._text[self._at] == "\\":
                break
            self._at += 1
        return self._text[begin : self._at]

    def _identifier(self, first: str) -> None:
        name = first + self._until_terminator()
        if name in ("true", "false"):
            self._steps.append(_constant(name == "true"))
        else:
            # Loops, which a column does not have, and words that mean nothing.
            self._steps.append(_fail)

    def _number(self, first: str) -> None:
        begin = self._at - 1
        while self._text[self._at : self._at + 1] == "." or (
            self._text[self._at : self._at + 1].isdigit()
        ):
            self._at += 1
        text = self._text[begin : self._at]
        if _INTEGER.fullmatch(text):
            self._steps.append(_constant(int(text)))
        elif _FLOAT.fullmatch(text):
            self._steps.append(_constant(float(text)))
        else:
            raise _SyntaxError(f"cannot parse number {text}, which begins with {first}")

    def _quoted(self, quote: str) -> None:
        begin = self._at - 1
        while (char := self._next()) != quote or self._text[self._at - 2] == "\\":
            if char in ("", "\n"):
                raise _SyntaxError("unterminated quoted string")
        text = _unquoted(self._text[begin + 1 : self._at - 1], quote)
        self._steps.append(lambda _values: [text])

    def _array(self) -> None:
        end = self._text.find("]", self._at)
        text = self._text[self._at : end]
        if end < 0 or "\n" in text:
            raise _SyntaxError("unterminated array")
        self._at = end + 1
        if "," in text:
            parts = [_action(f"[{part.strip(' ')}]") for part in text.split(",")]
            self._steps.append(_union(parts))
        elif (key := _KEY.fullmatch(text)) is not None:
            self._steps += _action(f".{key[1]}")
        elif (bounds := _SLICE.fullmatch(":" if text == "*" else text)) is not None:
            self._steps.append(_slice(*bounds.groups()))
        else:
            raise _SyntaxError(f"invalid array index {text}")

    def _filter(self) -> None:
        self._at += 3
        begin = self._at
        quote, closed = "", False
        while (char := self._next()) != ")" or bool(quote) != closed:
            if char in ("", "\n"):
                raise _SyntaxError("unterminated filter")
            if char in "\"'":
                if not quote:
                    quote = char
                elif char == quote and self._text[self._at - 2] != "\\":
                    closed = True
        text = self._text[begin : self._at - 1]
        if self._next() != "]":
            raise _SyntaxError("unclosed array expect ]")
        compared = _COMPARISON.fullmatch(text)
        if compared is None:
            self._steps.append(_existing(_action(text)))
        else:
            self._steps.append(_compared(_action(compared[1]), compared[2], _action(compared[3])))


def _unquoted(text: str, quote: str) -> str:
    """A quoted text, whose escapes are Go's."""

    def replaced(match: re.Match[str]) -> str:
        plain, *numbers = match.groups()
        if plain is not None and (plain not in "\"'" or plain == quote):
            return _ESCAPED[plain]
        for number, base in zip(numbers, (16, 16, 16, 8), strict=True):
            if number is not None and int(number, base) <= 0x10FFFF:
                return chr(int(number, base))
        raise _SyntaxError("invalid syntax")

    # Each quote inside is escaped: an unescaped one ends the text.
    return _ESCAPE.sub(replaced, text)


def _constant(value: Any) -> Step:
    return lambda values: [value] * len(values)


def _fail(values: list[Any]) -> list[Any]:
    raise _EvaluationError(values)


def _field(name: str) -> Step:
    def step(values: list[Any]) -> list[Any]:
        return [value[name] for value in values if isinstance(value, dict) and name in value]

    return step


def _inside(value: Any) -> list[Any]:
    """The members of a value; those of a text are its bytes, as in Go."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return list(value.encode()) if isinstance(value, str) else []


def _members(values: list[Any]) -> list[Any]:
    return [member for value in values for member in _inside(value)]


def _everything(values: list[Any]) -> list[Any]:
    return [found for value in values for found in _descend(value)]


def _descend(value: Any) -> Iterator[Any]:
    members = _inside(value)
    if members:
        yield value
    for member in members:
        yield from _descend(member)


def _slice(first: str, second: str | None, third: str | None) -> Step:
    begin = int(first) if first not in ("", "-") else None
    end = (second or "")[1:]
    step = int(third[1:]) if third is not None and len(third) > 1 else 1
    if "-" in (first, end) or third == ":-":
        raise _SyntaxError("array index - is not a number")

    def bounds(length: int) -> tuple[int, int]:
        low = begin or 0
        if second is None:
            # One element; the one after the last from the end is the first.
            high = low + 1
            high = high + length if high <= 0 else high
        else:
            high = length if end == "" else int(end)
            high = high + length if high < 0 else high
        return (low + length if low < 0 else low), high

    def found(values: list[Any]) -> list[Any]:
        result: list[Any] = []
        for value in values:
            if value is None:
                continue
            if not isinstance(value, list):
                raise _EvaluationError(values)
            low, high = bounds(len(value))
            if low == high:
                return result
            if not 0 <= low < len(value) or not low <= high <= len(value) or step <= 0:
                raise _EvaluationError(values)
            result += value[low:high:step]
        return result

    return found


def _union(parts: list[tuple[Step, ...]]) -> Step:
    def step(values: list[Any]) -> list[Any]:
        try:
            return [found for part in parts for found in _run(part, values)]
        except _EvaluationError:
            raise _EvaluationError(values) from None

    return step


def _items(values: list[Any]) -> Iterator[Any]:
    """The items of lists."""
    for value in values:
        if not isinstance(value, list):
            raise _EvaluationError(values)
        yield from value


def _existing(path: tuple[Step, ...]) -> Step:
    def exists(item: Any) -> bool:
        try:
            return bool(_run(path, [item]))
        except _EvaluationError as error:
            return bool(error.found)

    return lambda values: [item for item in _items(values) if exists(item)]


def _compared(left: tuple[Step, ...], operator: str, right: tuple[Step, ...]) -> Step:
    def passes(item: Any) -> bool:
        lefts = _one_at_most(_run(left, [item]))
        rights = _one_at_most(_run(right, [item])) if lefts else []
        return bool(rights) and _holds(lefts[0], operator, rights[0])

    def step(values: list[Any]) -> list[Any]:
        try:
            return [item for item in _items(values) if passes(item)]
        except _EvaluationError:
            raise _EvaluationError(values) from None

    return step


def _one_at_most(values: list[Any]) -> list[Any]:
    if len(values) > 1:
        raise _EvaluationError(values)
    return values


def _holds(left: Any, operator: str, right: Any) -> bool:
    """Compare two values of one type: numbers, texts, or booleans for equality."""
    comparable = type(left) is type(right) and isinstance(left, (bool, int, float, str))
    if comparable and operator in ("==", "!="):
        return bool((left == right) is (operator == "=="))
    compare = _ORDERED.get(operator)
    if not comparable or compare is None or isinstance(left, bool):
        raise _EvaluationError([])
    return compare(left, right)
