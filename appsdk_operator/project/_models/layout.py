"""Python expressions as text: literals of foreign data, and long expressions over several lines.

The layout is that of ruff and black: what is over several lines ends with a comma, so that it stays
so whatever the line length of a project is.
"""

from __future__ import annotations

import inspect
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from appsdk_operator.project._models.names import ModelError
from appsdk_operator.resource import without_markup

WIDTH: Final = 88
"""The longest line, but for texts that cannot be broken; the default of ruff and black."""
DOC_WIDTH: Final = WIDTH - 4
DEEPEST_VALUE: Final = 30
"""How deeply values may be nested, and lists in a type; Python parses 200 brackets, and pydantic's
import takes dozens of calls for each."""

# Letters that ruff counts otherwise than the Unicode data of Python say, with their columns.
_EXCEPTIONS: Final = (
    (
        0,
        re.compile(
            "[\u09be\u09d7\u0b3e\u0b57\u0bbe\u0bd7\u0cc0\u0cc2\u0cc7-\u0cc8\u0cca-\u0ccb\u0cd5-\u0cd6\u0d3e\u0d4e"
            "\u0d57\u0dcf\u0ddf\u1160-\u11ff\u1b35\u1b3b\u1b3d\u1b43\u3164\ua8fa\ud7b0-"
            "\ud7fb\uff9e-\uffa0\U000111c2-\U000111c3\U0001133e\U00011357\U000114b0"
            "\U000114bd\U000115af\U00011930\U0001193f\U00011941\U00011a84-\U00011a89"
            "\U00011d46]"
        ),
    ),
    (
        1,
        re.compile(
            "[\u0600-\u0604\u06dd\u2d7f\U000110bd\U000110cd\U0001171e\U00013430-\U00013438]"
        ),
    ),
    (
        2,
        re.compile(
            "[\u17a4\u2630-\u2637\u268a-\u268f\u4dc0-\u4dff\U0001d300-\U0001d356\U0001d360-"
            "\U0001d376]"
        ),
    ),
    (
        3,
        re.compile("[\u17d8]"),
    ),
)

# What an editor would not show as it is: control characters, and those that reorder text.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)


@attrs.frozen
class Text:
    """An expression on one line, and the names that it imports."""

    text: str
    names: tuple[tuple[str, str], ...] = ()
    """Module and name; an empty name imports the module itself."""


@attrs.frozen
class Ref:
    """The name of a generated class, which is decided last."""

    target: Any = attrs.field(eq=id)


@attrs.frozen
class Group:
    """A call, a subscript, a tuple, a list or a dict: ``head`` and what is in its brackets."""

    head: Node
    brackets: str
    items: tuple[tuple[str, Node], ...]
    """What stands before each item (``name=`` of an argument), and the item."""


@attrs.frozen
class OrNone:
    """``… | None``."""

    inner: Node


Node: TypeAlias = Text | Ref | Group | OrNone


def names_in(node: Node) -> Iterable[tuple[str, str]]:
    """The modules and names that an expression needs."""
    if isinstance(node, Text):
        yield from node.names
    elif isinstance(node, OrNone):
        yield from names_in(node.inner)
    elif isinstance(node, Group):
        yield from names_in(node.head)
        for _, item in node.items:
            yield from names_in(item)


def flat(node: Node) -> str:
    """An expression on one line."""
    if isinstance(node, Text):
        return node.text
    if isinstance(node, Ref):
        return str(node.target.name)
    if isinstance(node, OrNone):
        return f"{flat(node.inner)} | None"
    inside = ", ".join(before + flat(item) for before, item in node.items)
    if node.brackets == "()" and node.head == Text("") and len(node.items) == 1:
        inside += ","
    return f"{flat(node.head)}{node.brackets[0]}{inside}{node.brackets[1]}"


def written(before: str, node: Node, after: str = "", *, indent: int = 0) -> str:
    """An expression between two texts; over several lines if they are longer than a line.

    Args:
        before: what stands in front of it on its first line, the indentation included.
        node: the expression.
        after: what follows on its last line.
        indent: by how many spaces the lines after the first are indented.
    """
    line = before + flat(node) + after
    # A subscript with one item can be over several lines only if the item is.
    if columns(line) <= WIDTH or not _can_break(node):
        return line
    return broken(before, node, after, indent=indent)


def columns(text: str) -> int:
    """How wide a text is, as ruff counts: a letter of East Asia takes two columns."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(letter) for letter in text)


def _columns_of(letter: str) -> int:
    for columns_of_these, letters in _EXCEPTIONS:
        if letters.match(letter):
            return columns_of_these
    category = unicodedata.category(letter)
    if category == "Cn":  # not in this Python's Unicode, whose widths of these are not help
        return 2 if "\U00020000" <= letter <= "\U0003fffd" else 1
    if unicodedata.combining(letter) or category in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1


def broken(before: str, node: Node, after: str = "", *, indent: int = 0) -> str:
    """An expression over several lines, if it can be; see :func:`written`."""
    if not _can_break(node):
        return before + flat(node) + after
    if isinstance(node, OrNone):  # not in brackets, which it needs for its second line
        inner = indent + 4
        return f"{before}(\n{' ' * inner}{_broken(node, inner)}\n{' ' * indent}){after}"
    return before + _broken(node, indent) + after


def _can_break(node: Node) -> bool:
    if isinstance(node, OrNone):
        return _can_break(node.inner)
    if not isinstance(node, Group) or not node.items:
        return False
    return not _is_single(node) or _can_break(node.items[0][1])


def _is_single(node: Group) -> bool:
    """Whether a comma behind the only item would make it something else."""
    return node.brackets == "[]" and len(node.items) == 1 and node.head != Text("")


def _broken(node: Node, indent: int) -> str:
    if isinstance(node, OrNone):
        return f"{_broken(node.inner, indent)}\n{' ' * indent}| None"
    assert isinstance(node, Group)
    inner = indent + 4
    comma = "" if _is_single(node) else ","
    lines = []
    for before, item in node.items:
        line = before + flat(item) + comma
        if (_is_single(node) or columns(line) + inner > WIDTH) and _can_break(item):
            line = before + _broken(item, inner) + comma
        lines.append(f"{' ' * inner}{line}\n")
    return f"{flat(node.head)}{node.brackets[0]}\n{''.join(lines)}{' ' * indent}{node.brackets[1]}"


def string(text: str) -> str:
    """A literal of a text in one line, which is that text whatever is in it."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    escaped = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return quote + _UNSEEN.sub(_escape, escaped) + quote


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def literal(value: Any, *, level: int = 0) -> Node:
    """A JSON value as an expression.

    Raises:
        ModelError: it is not a JSON value, or nested so deeply that Python would not parse it.
    """
    if isinstance(value, str):
        return Text(string(value))
    if value is None or isinstance(value, (bool, int)):
        return Text(repr(value))
    if isinstance(value, float) and math.isfinite(value):
        return Text(repr(value))
    if level > DEEPEST_VALUE:
        raise ModelError(f"a default or an enum is nested more than {DEEPEST_VALUE} levels deep")
    inner = level + 1
    if isinstance(value, Mapping):
        items = ((f"{string(str(k))}: ", literal(v, level=inner)) for k, v in value.items())
        return Group(Text(""), "{}", tuple(items))
    if isinstance(value, (list, tuple)):
        return Group(Text(""), "[]", tuple(("", literal(item, level=inner)) for item in value))
    raise ModelError(f"{value!r} is not a JSON value")


def value_literal(values: Iterable[Any]) -> Node:
    """``Literal[…]`` of texts and numbers."""
    items = tuple(("", literal(value)) for value in values)
    return Group(Text("Literal", (("typing", "Literal"),)), "[]", items)


def plain_doc(text: str) -> str:
    """A description as lines that a docstring carries without change."""
    # A class whose docstring has markup would make a CRD with another description.
    text = without_markup(text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = inspect.cleandoc(text).split("\n")
    wrapped: list[str] = []
    rest = ""
    for line in lines:
        line = line.rstrip()
        # What did not fit goes on in the next line, if that goes on with the same sentence.
        if rest and re.match("[a-z(]", line):
            line = f"{rest} {line}"
        elif rest:
            wrapped.append(rest)
        # Quotes are before the first line; behind it, too, if it is the only one.
        quotes = 6 if len(lines) == 1 else 0 if wrapped else 3
        *fitting, rest = _wrapped(line, DOC_WIDTH - quotes)
        wrapped += fitting
        if not fitting or not rest:
            wrapped.append(rest)
            rest = ""
    return inspect.cleandoc("\n".join([*wrapped, rest]))


def _wrapped(line: str, width: int) -> list[str]:
    """A line in lines of at most ``width``; those that fit stay as they are."""
    found = []
    margin = line[: len(line) - len(line.lstrip(" "))]
    while columns(_escaped_doc(line)) > width:
        fitting = width + 1
        while columns(line[: fitting - 1]) > width:
            fitting -= 1
        at = line.rfind(" ", len(margin) + 1, fitting)
        if at < 0:
            at = line.find(" ", len(margin) + 1)
        head, rest = line[:at].rstrip(), line[at:].lstrip(" ")
        if at < 0 or not rest or not head.strip():
            break
        found.append(head)
        line = margin + rest
        width = DOC_WIDTH
    return [*found, line]


def _escaped_doc(line: str) -> str:
    escaped = line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return _UNSEEN.sub(_escape, escaped)


# A quotation mark at the end that no backslash of its own escapes.
_OPEN_QUOTE: Final = re.compile(r'(?<!\\)(?:\\\\)*"$')


def docstring(text: str, indent: int = 4) -> str:
    """A docstring with a description: lines wrapped, nothing in it ends the text or is code.

    Returns:
        Its lines with the indentation and a line break; ``""`` for an empty description.
    """
    lines = [_escaped_doc(line) for line in plain_doc(text).split("\n")]
    if lines == [""]:
        return ""
    margin = " " * indent
    if lines[0].startswith('"'):
        lines[0] = "\\" + lines[0]
    if _OPEN_QUOTE.search(lines[-1]):
        lines[-1] = lines[-1][:-1] + '\\"'
    if len(lines) == 1:
        return f'{margin}"""{lines[0]}"""\n'
    body = "\n".join(f"{margin}{line}".rstrip() if i else line for i, line in enumerate(lines))
    return f'{margin}"""{body}\n{margin}"""\n'
