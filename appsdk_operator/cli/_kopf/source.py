"""Python source by positions: spans of nodes, comments, headers, and the fields of f-strings."""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Generator, Iterator
from typing import Final, TypeAlias

_LITERAL: Final = re.compile(r"(?P<prefix>[A-Za-z]{0,2})(?P<quote>'''|\"\"\"|'|\")")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


class Source:
    """The text of a module, or of an expression, with its tree.

    Args:
        text: the text.

    Raises:
        SyntaxError: it is not Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in io.StringIO(text):  # unlike splitlines, not at form feeds and U+2028
            self._starts.append(self._starts[-1] + len(line))
        self._tokens: list[tuple[int, int, tokenize.TokenInfo]] | None = None

    def offset(self, line: int, column: int) -> int:
        """The place in the text of a line, from 1 on, and a column in bytes."""
        start = self._starts[line - 1]
        encoded = self.text[start : self._starts[line]].encode()
        return start + len(encoded[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, with its decorators."""
        place: ast.expr = node  # type: ignore[assignment]  # whatever has a position
        start = self.offset(place.lineno, place.col_offset)
        for decorator in getattr(node, "decorator_list", [])[:1]:
            at = self.offset(decorator.lineno, decorator.col_offset)
            start = self.text.rindex("@", 0, at)
        end = self.offset(place.end_lineno or 0, place.end_col_offset or 0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            end = self._after_comments(end, len(self.indent(start)))
        return start, end

    def _after_comments(self, end: int, indent: int) -> int:
        """The place after the comments below a function that belong to its body."""
        at = self.text.find("\n", end) + 1
        while at:
            until = self.text.find("\n", at)
            line = self.text[at : until if until >= 0 else len(self.text)]
            if line.strip() and not (
                line.lstrip().startswith("#") and len(line) - len(line.lstrip()) > indent
            ):
                break
            if line.strip():
                end = at + len(line.rstrip())
            at = until + 1
        return end

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def line_start(self, offset: int) -> int:
        """Where the line of a place begins."""
        return self._starts[bisect.bisect_right(self._starts, offset) - 1]

    def indent(self, offset: int) -> str:
        """The spaces with which the line of a place begins."""
        before = self.text[self.line_start(offset) : offset]
        return before[: len(before) - len(before.lstrip())]

    def begins_line(self, offset: int) -> bool:
        """Whether only spaces stand before a place on its line."""
        return not self.text[self.line_start(offset) : offset].strip()

    def tokens(self, start: int, end: int) -> Iterator[tuple[int, int, tokenize.TokenInfo]]:
        """The tokens in a part of the text, with their places."""
        if self._tokens is None:
            self._tokens = []
            # Tokens count in characters, nodes in bytes.
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                (line, column), (end_line, end_column) = token.start, token.end
                if line > len(self._starts) or end_line > len(self._starts):
                    continue
                places = self._starts[line - 1] + column, self._starts[end_line - 1] + end_column
                self._tokens.append((*places, token))
        for token_start, token_end, token in self._tokens:
            if start <= token_start and token_end <= end:
                yield token_start, token_end, token

    def comments(self, start: int, end: int) -> list[str]:
        """The comments in a part of the text."""
        found = self.tokens(start, end)
        return [token.string for *_, token in found if token.type == tokenize.COMMENT]

    def is_shared_line(self, offset: int) -> bool:
        """Whether a statement follows on the line of the one that ends here."""
        return self.text[offset:].partition("\n")[0].lstrip().startswith(";")

    def header_end(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """The place after the colon of a function's header."""
        start = self.offset(function.lineno, function.col_offset)
        depth = 0
        for _, end, token in self.tokens(start, len(self.text)):
            if token.type == tokenize.OP:
                depth += (token.string in _CLOSING) - (token.string in _CLOSING.values())
                if token.string == ":" and depth == 0:
                    return end
        raise AssertionError("a function without a colon")

    def indented(self, text: str, by: str) -> str:
        """A text of statements with more indentation, but for the insides of long strings."""
        inside: set[int] = set()
        depth: list[int] = []
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                name = tokenize.tok_name[token.type]
                if name == "STRING":
                    inside.update(range(token.start[0] + 1, token.end[0] + 1))
                elif name.endswith("STRING_START"):
                    depth.append(token.start[0])
                elif name.endswith("STRING_END"):
                    inside.update(range(depth.pop() + 1, token.end[0] + 1))
        except (tokenize.TokenError, IndentationError):
            pass
        lines = list(io.StringIO(text))
        return "".join(
            line if number in inside or not line.strip() else by + line
            for number, line in enumerate(lines, 1)
        )


def positioned_children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right below one that have a position."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from positioned_children(child)


def string_fields(text: str) -> Iterator[tuple[int, int, str]]:
    """The expressions in the fields of f-strings, and the quote of their literal.

    The positions of nodes in f-strings are wrong before Python 3.12.

    Args:
        text: one literal, or several side by side.
    """
    at = 0
    while at < len(text):
        literal = _LITERAL.match(text, at)
        if literal is None:  # space, a comment, a backslash
            at = text.index("\n", at) if text[at] == "#" else at + 1
            continue
        at = yield from _fields_of_literal(text, literal)


_Fields: TypeAlias = Generator[tuple[int, int, str], None, int]


def _fields_of_literal(text: str, literal: re.Match[str]) -> _Fields:
    """The fields of one literal; the place after it."""
    quote, prefix = literal["quote"], literal["prefix"].lower()
    at = literal.end()
    while not text.startswith(quote, at):
        if text.startswith("\\N{", at) and "r" not in prefix:  # the name of a character
            at = text.index("}", at) + 1
        elif text[at] == "\\" and ("r" not in prefix or text[at + 1] in quote):
            at += 2
        elif "f" not in prefix or text[at] not in "{}" or text[at] == text[at + 1 : at + 2]:
            at += 2 if "f" in prefix and text[at] in "{}" else 1
        elif text[at] == "{":
            at = yield from _field(text, at + 1, quote)
        else:
            at += 1
    return at + len(quote)


def _field(text: str, start: int, quote: str) -> _Fields:
    """The field that begins here, and those in its format; the place after its brace."""
    at, closing = start, [""]
    while closing[-1] or not (
        text[at] in "}:"
        or (text[at] in "!=" and text[at + 1] != "=" and text[at - 1] not in "=!<>")
    ):
        if text[at] in _CLOSING:
            closing.append(_CLOSING[text[at]])
        elif text[at] == closing[-1]:
            closing.pop()
        elif text[at] in "'\"":
            nested = _LITERAL.match(text, at)
            assert nested is not None
            at = text.index(nested["quote"], nested.end()) + len(nested["quote"]) - 1
        at += 1
    yield start, at, quote[0]
    while text[at] not in "}:":
        at += 1
    if text[at] == ":":
        at += 1
        while text[at] != "}":
            at = (yield from _field(text, at + 1, quote)) if text[at] == "{" else at + 1
    return at + 1
