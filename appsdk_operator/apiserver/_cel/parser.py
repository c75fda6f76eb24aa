"""The parser: from the text of an expression to a syntax tree, macros expanded."""

from __future__ import annotations

import re
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.macros import expand
from appsdk_operator.apiserver._cel.syntax_tree import (
    MAX_PROBLEMS,
    Call,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Problem,
    Select,
)
from appsdk_operator.apiserver._cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    NULL,
    STRING,
    UINT,
)
from appsdk_operator.apiserver._cel.values import Uint
from appsdk_operator.apiserver._values.go_text import parse_integer

_RESERVED: Final = {
    *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
    *("loop", "package", "namespace", "return", "var", "void", "while"),
}
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<text>(?:[rR][bB]?|[bB][rR]?)?(?:'''|\"\"\"|'|"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<op>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE,
)
_ESCAPES: Final = dict(zip("abfnrtv\\'\"`?", "\a\b\f\n\r\t\v\\'\"`?", strict=True))
_EXPECTED: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
_MAX_DEPTH: Final = 200
_MAX_LENGTH: Final = 100_000


class ParseError(ValueError):
    """A syntax error."""

    def __init__(self, *problems: Problem) -> None:
        """``problems`` say where and why."""
        super().__init__(problems[0].message)
        self.problems = list(problems)
        self.end = 0


@final
@attrs.frozen
class _Token:
    kind: str
    text: str
    position: int
    value: Any = None


def parse(source: str) -> Node:
    """Parse an expression into a tree without macros.

    Raises:
        ParseError: it has a syntax error, or more than 100,000 characters.
    """
    if len(source) > _MAX_LENGTH:
        message = (
            f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_LENGTH}"
        )
        raise ParseError(Problem(-1, message))
    problems: list[Problem] = []
    parser = _Parser(_tokens(source, problems))
    try:
        node = parser.expression()
        token = parser.token
        if token.kind != "end":
            raise _syntax_error(token, f"extraneous input '{token.text}' expecting <EOF>")
    except ParseError as error:
        raise ParseError(*problems, *error.problems) from None
    if problems:
        raise ParseError(*problems)
    return node


def _syntax_error(token: _Token, message: str) -> ParseError:
    return ParseError(Problem(token.position, f"Syntax error: {message}"))


def recursion_problem() -> Problem:
    """The problem of an expression that is nested too deeply."""
    return Problem(-1, "expression recursion limit exceeded: 250")


def _token_problem(position: int, text: str) -> Problem:
    return Problem(position, f"Syntax error: token recognition error at: '{text}'")


def _unterminated(position: int, text: str, end: int) -> ParseError:
    """The error of an unterminated literal; the scan continues at ``end``."""
    error = ParseError(_token_problem(position, text))
    error.end = end
    return error


def _tokens(source: str, problems: list[Problem]) -> list[_Token]:
    """Split the text into tokens; unknown characters go to ``problems``."""
    found: list[_Token] = []
    position = 0
    while position < len(source):
        if len(problems) > MAX_PROBLEMS:
            message = f"Syntax error: More than {MAX_PROBLEMS} syntax errors"
            raise ParseError(*problems[:MAX_PROBLEMS], Problem(problems[-1].position, message))
        match = _TOKEN.match(source, position)
        if match is None:
            problems.append(_token_problem(position, source[position]))
            position += 1
            continue
        kind = str(match.lastgroup)
        end = match.end()
        if kind == "text":
            try:
                value, end = _text(source, position, match[0], problems)
            except ParseError as error:
                problems += error.problems
                position = error.end
                continue
            found.append(_Token(kind, source[position:end], position, value))
        elif kind != "space":
            found.append(_Token(kind, match[0], position))
        position = end
    found.append(_Token("end", "<EOF>", len(source)))
    return found


def _text(
    source: str, start: int, opening: str, problems: list[Problem]
) -> tuple[str | bytes, int]:
    prefix = opening.rstrip("'\"").lower()
    quote = opening[len(prefix) :]
    position = start + len(opening)
    raw, binary = "r" in prefix, "b" in prefix
    parts: list[str | int] = []
    while not source.startswith(quote, position):
        if position >= len(source) or (len(quote) == 1 and source[position] in "\r\n"):
            raise _unterminated(start, source[start:position], position)
        if source[position] == "\\" and not raw:
            found = _ESCAPE.match(source, position + 1)
            if found is None:
                begun = _BEGUN_ESCAPE.match(source, position + 1)
                after = (begun.end() if begun else position) + 1
                raise _unterminated(start, source[start:after], after)
            position = found.end()
            if problem := _escape_problem(found[0], binary=binary):
                problems.append(Problem(start, problem))
            else:
                parts.append(_unescaped(found[0], binary=binary))
        else:
            parts.append(source[position])
            position += 1
            if raw and source[position - 1] == "\\" and position < len(source):
                parts.append(source[position])
                position += 1
    end = position + len(quote)
    if binary:
        made = (bytes([p]) if isinstance(p, int) else p.encode() for p in parts)
        return b"".join(made), end
    return "".join(str(part) for part in parts), end


_HEX: Final = "[0-9a-fA-F]"
_ESCAPE: Final = re.compile(
    rf"[abfnrtv\\'\"`?]|[xX]{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|[0-3][0-7]{{2}}"
)
_BEGUN_ESCAPE: Final = re.compile(rf"(?:[xX]{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|[0-3][0-7]?)?")


def _escape_problem(escape: str, *, binary: bool) -> str:
    if escape[0] not in "uU":
        return ""
    if binary:
        return "unable to unescape string"
    code = int(escape[1:], 16)
    return "invalid unicode code point" if code > 0x10FFFF or 0xD800 <= code < 0xE000 else ""


def _unescaped(escape: str, *, binary: bool) -> str | int:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    number = int(escape, 8) if escape[0] in "0123" else int(escape[1:], 16)
    return number if binary else chr(number)


@final
class _Parser:
    """A recursive descent parser over the tokens."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, text: str) -> bool:
        token = self.token
        if token.kind == "op" and token.text == text:
            self._next += 1
            return True
        return False

    def _advance(self) -> _Token:
        token = self.token
        self._next += 1
        return token

    def _expect(self, text: str) -> _Token:
        token = self.token
        if not self._accept(text):
            if token.kind == "end" and text in ")]}":
                raise _syntax_error(token, f"missing '{text}' at '<EOF>'")
            if text not in ")]}":
                raise _syntax_error(token, f"mismatched input '{token.text}' expecting '{text}'")
            raise _syntax_error(token, f"extraneous input '{token.text}' expecting '{text}'")
        return token

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ParseError(recursion_problem())
        node = self._logical("||", "_||_")
        token = self.token
        if self._accept("?"):
            first = self._logical("||", "_||_")
            self._expect(":")
            node = Call(token.position, "_?_:_", None, [node, first, self.expression()])
        self._depth -= 1
        return node

    def _logical(self, operator: str, function: str) -> Node:
        def operand() -> Node:
            return self._logical("&&", "_&&_") if operator == "||" else self._relation()

        terms, positions = [operand()], []
        while self.token.kind == "op" and self.token.text == operator:
            positions.append(self._advance().position)
            terms.append(operand())
        return _balanced(function, terms, positions)

    def _relation(self) -> Node:
        node = self._sum()
        while True:
            token = self.token
            named = token.kind == "name" and token.text == "in"
            if not named and token.text not in ("==", "!=", "<", "<=", ">", ">="):
                return node
            if token.kind not in ("op", "name"):
                return node
            self._advance()
            function = "@in" if named else f"_{token.text}_"
            node = Call(token.position, function, None, [node, self._sum()])

    def _sum(self) -> Node:
        node = self._product()
        while self.token.kind == "op" and self.token.text in "+-":
            token = self._advance()
            node = Call(token.position, f"_{token.text}_", None, [node, self._product()])
        return node

    def _product(self) -> Node:
        node = self._unary()
        while self.token.kind == "op" and self.token.text in "*/%":
            token = self._advance()
            node = Call(token.position, f"_{token.text}_", None, [node, self._unary()])
        return node

    def _unary(self) -> Node:
        token = self.token
        if token.kind == "op" and token.text in "!-":
            following = self._tokens[self._next + 1]
            if token.text == "-" and following.kind in ("int", "float"):
                return self._member()
            count = 0
            while self._accept(token.text):
                count += 1
            operand = self._member()
            if count % 2 == 0:
                return operand
            return Call(token.position, f"{token.text}_", None, [operand])
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            token = self.token
            if self._accept("."):
                optional = self._accept("?")
                name = self._name()
                opening = self.token
                if not optional and self._accept("("):
                    args = self._list(")")
                    node = expand(opening.position, name, node, args)
                elif optional:
                    field = Literal(token.position, name, STRING)
                    node = Call(token.position, "_?._", None, [node, field])
                else:
                    node = Select(token.position, node, name)
            elif self._accept("["):
                function = "_[?_]" if self._accept("?") else "_[_]"
                node = Call(token.position, function, None, [node, self.expression()])
                self._expect("]")
            else:
                return node

    def _name(self) -> str:
        token = self._advance()
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind != "name" or token.text in ("in", "true", "false", "null"):
            raise _syntax_error(token, f"no viable alternative at input '.{token.text}'")
        return token.text

    def _list(self, closing: str) -> list[Node]:
        items: list[Node] = []
        while not self._accept(closing):
            if items:
                self._expect(",")
                if closing == "]" and self._accept(closing):
                    break
            items.append(self.expression())
        return items

    def _primary(self) -> Node:
        token = self._advance()
        match token.kind:
            case "int" | "uint" | "float" | "text":
                return _literal(token, 1)
            case "name":
                return self._identifier_or_call(token, "")
            case "op":
                return self._operator_primary(token)
            case _:
                raise self._unexpected(token)

    def _unexpected(self, token: _Token) -> ParseError:
        return _syntax_error(token, f"mismatched input '{token.text}' expecting {_EXPECTED}")

    def _operator_primary(self, token: _Token) -> Node:
        match token.text:
            case "(":
                node = self.expression()
                self._expect(")")
                return node
            case "[":
                return self._list_literal(token)
            case "{":
                return self._map_literal(token)
            case ".":
                return self._identifier_or_call(self._advance(), ".")
            case "-" if self.token.kind in ("int", "float"):
                return _literal(self._advance(), -1, token.position)
            case _:
                raise self._unexpected(token)

    def _list_literal(self, token: _Token) -> Node:
        items: list[Node] = []
        optional: set[int] = set()
        while not self._accept("]"):
            if items:
                self._expect(",")
                if self._accept("]"):
                    break
            if self._accept("?"):
                optional.add(len(items))
            items.append(self.expression())
        return ListNode(token.position, items, frozenset(optional))

    def _map_literal(self, token: _Token) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._accept("}"):
            if entries:
                self._expect(",")
                if self._accept("}"):
                    break
            optional = self._accept("?")
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression(), optional))
        return MapNode(token.position, entries)

    def _identifier_or_call(self, token: _Token, dot: str) -> Node:
        constants = {"true": (True, BOOL), "false": (False, BOOL), "null": (None, NULL)}
        if token.text in constants:
            value, type_ = constants[token.text]
            return Literal(token.position, value, type_)
        if token.kind != "name" or token.text == "in":
            raise self._unexpected(token)
        if token.text in _RESERVED:
            raise ParseError(Problem(token.position, f"reserved identifier: {token.text}"))
        opening = self.token
        if self._accept("("):
            return expand(opening.position, token.text, None, self._list(")"))
        return Ident(token.position, dot + token.text)


def _literal(token: _Token, sign: int, position: int | None = None) -> Node:
    at = token.position if position is None else position
    if token.kind == "text":
        return Literal(at, token.value, BYTES if isinstance(token.value, bytes) else STRING)
    if token.kind == "float":
        return Literal(at, sign * float(token.text), DOUBLE)
    digits = token.text.rstrip("uU")
    hexadecimal = digits.startswith("0x")
    number = sign * (int(digits, 16) if hexadecimal else parse_integer(digits) or 0)
    if token.kind == "uint":
        if number >= 2**64:
            raise ParseError(Problem(at, "invalid uint literal"))
        return Literal(at, Uint(number), UINT)
    if not -(2**63) <= number < 2**63:
        raise ParseError(Problem(at, "invalid int literal"))
    return Literal(at, number, INT)


def _balanced(function: str, terms: list[Node], positions: list[int]) -> Node:
    """A balanced tree for a chain of one operator, as cel-go builds it."""
    if len(terms) == 1:
        return terms[0]
    middle = (len(positions)) // 2
    left = _balanced(function, terms[: middle + 1], positions[:middle])
    right = _balanced(function, terms[middle + 1 :], positions[middle + 1 :])
    return Call(positions[middle], function, None, [left, right])
