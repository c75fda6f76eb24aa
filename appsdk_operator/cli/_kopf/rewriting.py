"""Rewrites expressions and statements, by the source around what changes."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import attrs

from appsdk_operator.cli._kopf.names import (
    Function,
    Module,
    arguments,
    defaults,
    is_none,
    shadowed,
)
from appsdk_operator.cli._kopf.source import Source, positioned_children, string_fields

_LOOSE: Final = (ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Starred)
"""Expressions that bind their parts less closely than a comparison."""
BODY_PARTS: Final = ("name", "namespace", "uid", "labels", "annotations")
_MAPPING: Final = ("clear", "get", "items", "keys", "pop", "setdefault", "update", "values")
TYPES: Final = {
    "Annotations": "Mapping[str, str]",
    "Body": "Object",
    "BodyEssence": "Object",
    "DaemonStopped": "StopSignal",
    "SyncDaemonStopperChecker": "StopSignal",
    "AsyncDaemonStopperChecker": "StopSignal",
    "ConnectionInfo": "Any",
    "Diff": "Any",
    "DiffItem": "Any",
    "DiffOperation": "str",
    "Headers": "Mapping[str, str]",
    "Index": "Mapping",
    "Labels": "Mapping[str, str]",
    "Logger": "logging.Logger",
    "Memo": "dict[str, Any]",
    "Meta": "Mapping[str, Any]",
    "OperatorSettings": "Any",
    "ObjectLogger": "logging.Logger",
    "Patch": "MutableObject",
    "RawEvent": "dict[str, Any]",
    "RawBody": "dict[str, Any]",
    "Spec": "Mapping[str, Any]",
    "Status": "Mapping[str, Any]",
    "UserInfo": "dict[str, Any]",
}
"""Types of kopf, and what stands for them."""
_OF_A_LINE: Final = re.compile(r"#\s*(type: ignore|noqa|fmt: skip|pylint:|pyright:)")
"""Comments about a line, which are meaningless where it is gone."""
_ERRORS: Final = {
    "TemporaryError": "RetryAfter",
    "HandlerRetryError": "RetryAfter",
    "PermanentError": "TerminalError",
    "HandlerFatalError": "TerminalError",
    "AdmissionError": "Denied",
}


_TEMPORARY: Final = ("TemporaryError", "HandlerRetryError")


class Words(Protocol):
    """What the rewriter asks of the program."""

    module: Module
    app: str

    def word(self, name: str, module: str = "appsdk_operator") -> str:
        """The local name of something that the translated module imports."""
        ...

    def helper(self, name: str) -> str:
        """The local name of a helper function that the translated module has."""
        ...

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a constant's name stands for; other expressions as they are."""
        ...

    def function_of(self, node: ast.expr) -> Function | None:
        """The function that an expression calls, if a translated module has it."""
        ...

    def call_of_handler(self, name: str) -> str:
        """The arguments of a translated function: ``obj``, ``old, new``; empty if it is not one."""
        ...


@attrs.define(kw_only=True)
class Scope:
    """What a translated function's names mean."""

    expressions: dict[str, str] = attrs.field(factory=dict)
    """Expressions in place of kopf's arguments."""
    subject: str = ""
    """The object, as an expression."""
    old: str = ""
    """The old object, or nothing."""
    draft: str = ""
    """The draft that the function is called with; else its changes are edits."""
    edits: bool = False
    """Whether ``patch`` becomes an edit."""
    stop: str = ""
    """The stop signal."""
    is_async: bool = False
    """Whether it is an ``async def``."""
    result: str = ""
    """The field of the status that takes what the function returns."""
    outcome: str | None = None
    """What it returns in the place of a value that kopf ignores; None: it returns as before."""
    arbitrary: str = ""
    """The name of the ``**kwargs``."""
    of_arbitrary: dict[str, str] = attrs.field(factory=dict)
    """Expressions in place of items of the ``**kwargs`` of which a variable has the name."""
    is_lifespan: bool = False
    """Whether it is called at the start or the end of the program."""
    last: ast.stmt | None = None
    """The last statement of its body."""
    uses: set[str] = attrs.field(factory=set)
    """Arguments of kopf that were met."""


class Rewriter:
    """Rewrites the nodes of a module.

    Args:
        source: the module.
        words: what the program provides.
    """

    def __init__(self, source: Source, words: Words) -> None:
        self.source = source
        self.words = words
        self.module = words.module
        self.scope = self._scope_around = Scope()
        self.todos: list[str] = []
        """Reasons that await a statement to stand above."""
        self.found: list[str] = []
        """All reasons so far."""
        self._known_arbitrary: dict[int, ast.AST] = {}
        """The uses of the ``**kwargs`` that are dealt with, or have a TODO."""
        self._quote = '"'
        self._in_string = False
        self._outer_indent = ""
        """The indentation of the statement whose block is rewritten."""

    # The frame.

    def text(self, node: ast.AST) -> str:
        """The translated source of a node."""
        own = self._replaced(node)
        if own is None:
            with self._within(node):
                own = self._spliced(node)
        if isinstance(node, ast.stmt):
            own = self._with_remarks(node, own)
        return own

    def todo(self, reason: str) -> None:
        """Put a TODO above the statement that is being rewritten."""
        if reason not in self.todos:
            self.todos.append(reason)
        self.found.append(reason)

    def operand(self, node: ast.expr) -> str:
        """The translated source of an expression that is compared with something."""
        text = self.text(node)
        is_loose = isinstance(node, _LOOSE) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        )
        return f"({text})" if is_loose else in_one_statement(text)

    def quoted(self, text: str) -> str:
        """A text literal, which may be part of an f-string."""
        quote = "'" if self._quote == '"' and self._in_string else '"'
        return f"{quote}{text}{quote}"

    def _replaced(self, node: ast.AST) -> str | None:
        rewrite = getattr(self, f"rewrite_{type(node).__name__.lower()}", None)
        found: str | None = rewrite(node) if rewrite is not None else None
        return found

    def _spliced(self, node: ast.AST) -> str:
        start, end = self.source.span(node)
        return self.splice(start, end, self._pieces(node))

    def splice(self, start: int, end: int, pieces: Sequence[tuple[int, int, str]]) -> str:
        """The source from start to end, with other texts for parts of it."""
        out, at = [], start
        for piece_start, piece_end, text in sorted(pieces):
            out.append(self.source.text[at:piece_start])
            out.append(text)
            at = piece_end
        out.append(self.source.text[at:end])
        return "".join(out)

    def _pieces(self, node: ast.AST) -> list[tuple[int, int, str]]:
        blocks = {
            id(statement): block
            for name in ("body", "orelse", "finalbody")
            if isinstance(block := getattr(node, name, None), list)
            for statement in block
        }
        cases = {id(one): case for case in getattr(node, "cases", ()) for one in case.body}
        blocks |= {statement: case.body for statement, case in cases.items()}
        pieces: list[tuple[int, int, str]] = []
        done: set[int] = set()
        for child in positioned_children(node):
            block = blocks.get(id(child))
            if block is None:
                pieces.append((*self.source.span(child), self._text_in(node, child)))
            elif id(block) not in done:
                done.add(id(block))
                case = cases.get(id(child))
                around = node if case is None else case.pattern
                outer, self._outer_indent = self._outer_indent, self._indent_of(around)
                pieces += self.block(block)
                self._outer_indent = outer
        return pieces

    def _text_in(self, node: ast.AST, child: ast.AST) -> str:
        """The text of a part; some parts of a scope are not in it."""
        if not any(child is each for each in _outside(node)):
            return self.text(child)
        inner, self.scope = self.scope, self._scope_around
        try:
            return self.text(child)
        finally:
            self.scope = inner

    def _indent_of(self, node: ast.AST) -> str:
        return self.source.indent(self.source.span(node)[0]) if hasattr(node, "lineno") else ""

    def block_of(self, function: Function) -> list[tuple[int, int, str]]:
        """The translated statements of a function."""
        outer, self._outer_indent = self._outer_indent, self._indent_of(function)
        try:
            return self.block(function.body)
        finally:
            self._outer_indent = outer

    def block(self, statements: Sequence[ast.stmt]) -> list[tuple[int, int, str]]:
        """The translated statements of a block: those that change the patch become edits."""
        pieces: list[tuple[int, int, str]] = []
        run: list[ast.stmt] = []
        for statement in statements:
            if self._is_edit(statement):
                run.append(statement)
                continue
            if run:
                pieces.append(self._edit(run))
                run = []
            pieces.append((*self.source.span(statement), self.text(statement)))
        if run:
            pieces.append(self._edit(run))
        return pieces

    def _with_remarks(self, node: ast.stmt, text: str) -> str:
        start, _ = self.source.span(node)
        if not self.source.begins_line(start):
            return text  # above the statement around it
        indent = self.source.indent(start)
        remarks = [f"# TODO: {reason}\n{indent}" for reason in self.todos]
        self.todos = []
        return "".join(remarks) + text

    def lost_comments(self, start: int, end: int, text: str) -> list[str]:
        """The comments in a part of the source that a text for it has not."""
        return [
            one
            for one in self.source.comments(start, end)
            if one not in text and not _OF_A_LINE.match(one)
        ]

    # Scopes.

    @contextlib.contextmanager
    def _within(self, node: ast.AST) -> Iterator[None]:
        own = shadowed(node)
        hidden = own & self.scope.expressions.keys()
        before = self.scope
        around, self._scope_around = self._scope_around, before
        if hidden:
            kept = {k: v for k, v in before.expressions.items() if k not in hidden}
            self.scope = attrs.evolve(self.scope, expressions=kept)
        if self.scope.arbitrary in own:
            self.scope = attrs.evolve(self.scope, arbitrary="")
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_async = isinstance(node, ast.AsyncFunctionDef)
            self.scope = attrs.evolve(self.scope, result="", outcome=None, is_async=is_async)
        try:
            yield
        finally:
            self.scope, self._scope_around = before, around

    @contextlib.contextmanager
    def entered(self, scope: Scope) -> Iterator[Scope]:
        """Rewrite with the names of a function."""
        before, self.scope = self.scope, scope
        try:
            yield scope
        finally:
            self.scope = before

    def meaning(self, name: str) -> str | None:
        """The expression for one of kopf's arguments, if it is one here."""
        found = self.scope.expressions.get(name)
        if found is not None:
            self.scope.uses.add(name)
        return found

    def _is_argument(self, node: ast.AST, name: str) -> bool:
        """Whether it is one of kopf's arguments, for which there is something else."""
        if not isinstance(node, ast.Name) or node.id != name:
            return False
        return self.scope.expressions.get(name, name) != name

    # Expressions.

    def rewrite_joinedstr(self, node: ast.JoinedStr) -> str:
        start, end = self.source.span(node)
        text = self.source.text[start:end]
        pieces = []
        for at, until, quote in string_fields(text):
            expression = text[at:until]
            if not expression.strip():
                continue
            outer, before, was_in = self.source, self._quote, self._in_string
            self.source, self._quote, self._in_string = Source(f"({expression})"), quote, True
            try:
                tree = self.source.tree.body[0]
                assert isinstance(tree, ast.Expr)
                where, to = self.source.span(tree.value)
                new = self.splice(0, len(expression) + 2, [(where, to, self.text(tree.value))])
            finally:
                self.source, self._quote, self._in_string = outer, before, was_in
            new = new[1:-1]
            if quote in new and quote not in expression:  # an f-string ends at its quote
                new = new.replace(quote, "'" if quote == '"' else '"')
            pieces.append((at, until, new))
        out, at = [], 0
        for piece_start, piece_end, piece in pieces:
            if piece_start < at:
                continue  # within the format of another
            out += [text[at:piece_start], piece]
            at = piece_end
        return "".join([*out, text[at:]])

    def rewrite_name(self, node: ast.Name) -> str | None:
        if not isinstance(node.ctx, ast.Load):
            return None
        if kopf := self.module.kopf_name(node):
            return self._kopf_thing(kopf)
        if node.id == self.scope.arbitrary and id(node) not in self._known_arbitrary:
            self.todo(f"{node.id}: a function gets an object, and no other arguments")
        found = self.meaning(node.id)
        if found is None:
            return None
        if node.id == "body" and self.scope.subject and found == self.scope.subject:
            return f"{found}.to_dict()"
        if node.id == "stopped" and self.scope.stop:
            return f"{self.scope.stop}.is_set()"
        return found

    def rewrite_attribute(self, node: ast.Attribute) -> str | None:
        if kopf := self.module.kopf_name(node):
            return self._kopf_thing(kopf)
        value, name = node.value, node.attr
        if self._is_argument(value, "body") and self.scope.subject:
            return self._of_body(name)
        if self._is_argument(value, "meta") and name in (*BODY_PARTS, "creation_timestamp"):
            self.meaning("meta")
            return f"{self._subject}.{name}"
        if self._key_of_body(value) == "metadata" and name in BODY_PARTS:
            self.meaning("body")
            return f"{self._subject}.{name}"
        if self._is_argument(value, "memo") and name not in _MAPPING:
            return f"{self.meaning('memo')}[{self.quoted(name)}]"
        if self._is_argument(value, "stopped") and self.scope.stop:
            self.meaning("stopped")
            if name == "reason":
                self.todo("stopped.reason: a stop signal has no reason")
            if name == "wait" and self.scope.is_async:
                name = "wait_async"
            return f"{self.scope.stop}.{name}"
        if isinstance(value, ast.Attribute) and self._is_argument(value.value, "patch"):
            if value.attr in ("meta", "metadata") and name in ("labels", "annotations"):
                return f"{self.meaning('patch')}.{name}"
            return None
        if self._is_argument(value, "patch"):
            return self._of_patch(name)
        return None

    @property
    def _subject(self) -> str:
        return self.scope.draft or self.scope.subject

    def _of_body(self, name: str) -> str:
        self.meaning("body")
        if name in ("metadata", "meta"):
            return f"{self._subject}.metadata"
        if name == "status":
            return f"({self._subject}.status or {{}})"
        if name in ("spec", "get", *BODY_PARTS):
            return f"{self._subject}.{name}"
        return f"{self._subject}.to_dict().{name}"

    def _of_patch(self, name: str) -> str:
        draft = self.meaning("patch")
        if name == "status":
            return f"{draft}[{self.quoted('status')}]"
        if name in ("meta", "metadata"):
            return f"{draft}.metadata"
        if name == "fns":
            self.todo("patch.fns: change the draft itself")
        return f"{draft}.{name}"

    def rewrite_subscript(self, node: ast.Subscript) -> str | None:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            if self._is_argument(node.value, "body"):
                self.meaning("body")
                return f"{self._subject}[{self.text(node.slice)}]"
            return None
        value = node.value
        if self._is_argument(value, "body"):
            if key in ("metadata", "spec", "status"):
                return self._of_body(key)
            self.meaning("body")
            return f"{self._subject}[{self.text(node.slice)}]"
        if self._is_argument(value, "patch") and key in ("status", "spec", "metadata"):
            return self._of_patch(key)
        if self._is_argument(value, "meta") and key in BODY_PARTS:
            self.meaning("meta")
            return f"{self._subject}.{key}"
        inner = self._key_of_body(value)
        if inner == "metadata" and key in BODY_PARTS:
            self.meaning("body")
            return f"{self._subject}.{key}"
        if isinstance(value, ast.Name) and value.id == self.scope.arbitrary:
            if (found := self._of_arbitrary(key)) is not None:
                return found
            self._known_arbitrary[id(value)] = value
            self.todo(f"{value.id}[{key!r}]: a function gets no other arguments")
        return None

    def _key_of_body(self, node: ast.AST) -> str:
        if isinstance(node, ast.Subscript) and self._is_argument(node.value, "body"):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            return str(key)
        if isinstance(node, ast.Attribute) and self._is_argument(node.value, "body"):
            return "metadata" if node.attr == "meta" else node.attr
        return ""

    def rewrite_call(self, node: ast.Call) -> str | None:
        if kopf := self.module.kopf_name(node.func):
            return self._kopf_call(kopf, node)
        function = node.func
        if isinstance(function, ast.Name):
            if function.id == "dict" and node.args and self._is_argument(node.args[0], "body"):
                self.meaning("body")
                return f"{self._subject}.to_dict()"
            if self.words.call_of_handler(function.id):
                return self._call_of_handler(function.id, node)
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            is_get = function.attr in ("get", "pop") and node.args
            if is_get and function.value.id == self.scope.arbitrary:
                first = node.args[0]
                key = first.value if isinstance(first, ast.Constant) else None
                found = self._of_arbitrary(key) if isinstance(key, str) else None
                if found is not None:
                    return found
        known = self.words.function_of(function)
        if known is not None:
            return self._call_of_own(known, node)
        self._check_expansion(node)
        return None

    def _of_arbitrary(self, key: str) -> str | None:
        """The expression for an item of the ``**kwargs``, if it is one of kopf's arguments."""
        if key in self.scope.of_arbitrary:
            self.scope.uses.add(key)
            return self.scope.of_arbitrary[key]
        return (
            self.rewrite_name(ast.Name(key, ast.Load())) if key in self.scope.expressions else None
        )

    def _check_expansion(self, node: ast.Call) -> None:
        arbitrary = self.scope.arbitrary
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg is None and isinstance(value, ast.Name) and value.id == arbitrary:
                self._known_arbitrary[id(value)] = value
                self.todo(
                    f"**{value.id}: a function gets an object, so pass the arguments that are "
                    "needed"
                )

    def _call_of_handler(self, name: str, node: ast.Call) -> str:
        wanted = self.words.call_of_handler(name)
        given = [k for k in node.keywords if k.arg is not None]
        is_plain = not node.args and all(
            isinstance(k.value, ast.Name) and k.value.id == k.arg for k in given
        )
        if not self.scope.subject or not is_plain:
            self.todo(f"{name} takes ({wanted}) now")
            self._check_expansion(node)
            return self._spliced(node)
        places = {"obj": self.scope.subject, "new": self.scope.subject, "old": self.scope.old}
        found = [places.get(one, "") for one in wanted.split(", ")]
        if not all(found):
            self.todo(f"{name} takes ({wanted}) now")
            return self._spliced(node)
        return f"{name}({', '.join(found)})"

    def _call_of_own(self, function: Function, node: ast.Call) -> str | None:
        """A call of a function of the module: it may get the body, and ``**kwargs``."""
        pieces: list[tuple[int, int, str]] = []
        for keyword in node.keywords:
            if keyword.arg is None:
                self._known_arbitrary[id(keyword.value)] = keyword.value
        for arg in (*node.args, *(k.value for k in node.keywords)):
            if self._is_argument(arg, "body") and self.scope.subject:
                self.meaning("body")
                pieces.append((*self.source.span(arg), self._subject))
            elif self._is_argument(arg, "stopped") and self.scope.stop:
                self.meaning("stopped")
                pieces.append((*self.source.span(arg), self.scope.stop))
            else:
                pieces.append((*self.source.span(arg), self.text(arg)))
        arbitrary = [
            k for k in node.keywords
            if k.arg is None and isinstance(k.value, ast.Name)
            and k.value.id == self.scope.arbitrary
        ]  # fmt: skip
        if arbitrary and self.scope.arbitrary and _passes_on(function):
            self._check_expansion(node)
        elif arbitrary and self.scope.arbitrary:
            given = {k.arg for k in node.keywords} | {
                a.arg for a, _ in zip(arguments(function), node.args, strict=False)
            }
            filled = self.filled(function, given)
            start, end = self.source.span(arbitrary[0])
            pieces = [one for one in pieces if not start <= one[0] < end]
            # A comma may be left where nothing is filled in, which Python allows but after nothing.
            if not filled and not node.args and len(node.keywords) == 1:
                return f"{self.text(node.func)}()"
            pieces.append((start, end, ", ".join(filled) or "**{}"))
        return self.splice(*self.source.span(node), pieces)

    def filled(self, function: Function | ast.Lambda, given: set[str | None]) -> list[str]:
        """Keywords for the arguments of a function that takes kopf's."""
        found = []
        optional = defaults(function)
        named = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        named = [name for name in named if name not in ("self", "cls")]
        for name in named:
            if name in given:
                continue
            if name in self.scope.expressions:
                is_body = name == "body" and self.scope.subject
                found.append(f"{name}={self._subject if is_body else self.meaning(name)}")
            elif name not in optional:
                self.todo(f"{getattr(function, 'name', 'the function')} needs {name}")
        return found

    # Statements.

    def rewrite_return(self, node: ast.Return) -> str | None:
        """A returned value: kopf writes it to the status, or ignores it."""
        if self.scope.outcome is not None:
            return self._ignored_return(node, self.scope.outcome)
        if not self.scope.result or node.value is None or is_none(node.value):
            return None
        start, _ = self.source.span(node)
        indent = self.source.indent(start)
        value = in_one_statement(self.text(node.value))
        if not self.source.begins_line(start):
            self.todo("the returned value: write it with app.edit")
            return None
        draft = self.scope.expressions.get("patch", "draft")
        lines = [
            f"{self.edit_head()} as {draft}:",
            f'    {draft}["status"]["{self.scope.result}"] = {value}',
        ]
        if node is not self.scope.last:
            lines.append("return")
        return f"\n{indent}".join(lines)

    def _ignored_return(self, node: ast.Return, outcome: str) -> str | None:
        own = f"return {outcome}".rstrip()
        if node.value is None or is_none(node.value):
            return own if outcome else None
        start, _ = self.source.span(node)
        value = self._spliced(node).removeprefix("return").lstrip(" \\\n")
        between = f"\n{self.source.indent(start)}" if self.source.begins_line(start) else "; "
        return f"{value}{between}{own}"

    def rewrite_assign(self, node: ast.Assign) -> str | None:
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Subscript):
            return None
        if self._is_argument(target.value, "patch"):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if key in ("spec", "status"):
                draft = self.meaning("patch")
                value = self.text(node.value)
                part = '["status"]' if key == "status" else f'.setdefault("{key}", {{}})'
                return f"{draft}{part}.update({value})"
            self.todo("patch is a merge patch in kopf: assign the fields of the draft")
        elif (
            is_none(node.value)
            and self._root(target) == "patch"
            and "patch" in self.scope.expressions
        ):
            return f"{self.text(target.value)}.pop({self.text(target.slice)}, None)"
        return None

    @staticmethod
    def _root(node: ast.AST) -> str:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""

    def _is_edit(self, statement: ast.stmt) -> bool:
        if not self.scope.edits or self.scope.expressions.get("patch", "patch") == "patch":
            return False
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if not _uses(statement, "patch"):
            return False
        if isinstance(statement, ast.For):
            return True  # one edit, not one for each item
        blocks = [
            child
            for name in ("body", "orelse", "finalbody", "handlers", "cases")
            for child in getattr(statement, name, [])
        ]
        if not blocks:
            return True
        inner = {id(node) for block in blocks for node in ast.walk(block)}
        return any(
            isinstance(node, ast.Name) and node.id == "patch" and id(node) not in inner
            for node in ast.walk(statement)
        )

    def _edit(self, statements: Sequence[ast.stmt]) -> tuple[int, int, str]:
        start, end = self.source.span(statements[0])[0], self.source.span(statements[-1])[1]
        own, self.todos = self.todos, []
        before, self.scope.edits = self.scope.edits, False
        pieces = [(*self.source.span(one), self.text(one)) for one in statements]
        self.scope.edits = before
        text = self.splice(start, end, pieces)
        remarks, self.todos = self.todos, own
        self.todos += remarks
        head = f"{self.edit_head()} as {self.meaning('patch')}:"
        lead = ""
        indent = self.source.indent(start)
        if not self.source.begins_line(start):  # after the colon of what is around it
            if self.source.text[:start].rstrip().endswith(";") or self.source.is_shared_line(end):
                self.todo("patch: put these statements into a block, with app.edit(obj) as draft")
                return start, end, text
            indent = f"{self._outer_indent}    "
            lead = f"\n{indent}"
            start -= len(self.source.text[:start]) - len(self.source.text[:start].rstrip(" "))
        inner = self.source.indented(f"{indent}{text}", "    ")
        return start, end, f"{lead}{head}\n{inner}"

    def edit_head(self) -> str:
        """The beginning of an edit of the object."""
        prefix = "async " * self.scope.is_async
        return f"{prefix}with {self.words.app}.edit({self.scope.subject})"

    # kopf.

    def _kopf_thing(self, name: str) -> str | None:
        if name in _ERRORS:
            return self._error(name)
        name = name.rpartition(".")[2] if name.startswith("_") else name
        if name.startswith("DiffOperation."):
            return self.quoted(name.rpartition(".")[2].lower())
        if name in TYPES:
            for needed in ("Any", "Mapping"):
                if needed in TYPES[name]:
                    self.words.word(needed, "typing" if needed == "Any" else "collections.abc")
            if TYPES[name] == "logging.Logger":
                self.words.word("logging", "")
            if TYPES[name] in ("Object", "MutableObject", "StopSignal"):
                return self.words.word(TYPES[name])
            return TYPES[name]
        if name:
            self.todo(f"nothing in the kit corresponds to kopf.{name}")
        return None

    def rewrite_raise(self, node: ast.Raise) -> str | None:
        """An error that is raised as a class: ``RetryAfter`` needs its seconds."""
        if node.exc is None or self.module.kopf_name(node.exc) not in _TEMPORARY:
            return None
        name = self._error("TemporaryError")
        pieces = [(*self.source.span(node.exc), f"{name}(60)")]
        if node.cause is not None:
            pieces.append((*self.source.span(node.cause), self.text(node.cause)))
        return self.splice(*self.source.span(node), pieces)

    def _error(self, name: str) -> str:
        return self.words.word(_ERRORS[name])

    def _kopf_call(self, name: str, node: ast.Call) -> str | None:
        if name in _TEMPORARY:
            return self._temporary(name, node)
        if name in ("PermanentError", "HandlerFatalError", "AdmissionError"):
            texts = [self.text(each) for each in (*node.args, *node.keywords)]
            return f"{self._error(name)}({', '.join(texts)})"
        if name in ("event", "info", "warn", "exception") and self.scope.subject:
            return self._event(name, node)
        if name in (
            "adopt",
            "append_owner_reference",
            "label",
            "harmonize_naming",
            "adjust_namespace",
        ):
            return self._hierarchy(name, node)
        if name == "run" and not node.args:
            return f"{self.words.app}.run()"
        if name == "Memo":
            texts = [self.text(each) for each in (*node.args, *node.keywords)]
            return f"dict({', '.join(texts)})"
        if name in ("configure", "set_default_lifecycle"):
            return None
        if name:
            self.todo(f"nothing in the kit corresponds to kopf.{name}")
            return self._spliced_without(node, node.func)
        return None

    def _spliced_without(self, node: ast.AST, untouched: ast.AST) -> str:
        pieces = [
            (*self.source.span(child), self.text(child))
            for child in positioned_children(node)
            if child is not untouched
        ]
        return self.splice(*self.source.span(node), pieces)

    def _temporary(self, name: str, node: ast.Call) -> str:
        given = {k.arg: self.text(k.value) for k in node.keywords}  # None: of **options
        args = [self.text(each) for each in node.args]
        delay = given.pop("delay", args.pop(1) if len(args) > 1 else "60")
        message = args[0] if args else ""
        if self.scope.is_lifespan:
            self.todo(
                "an error at the start ends the operator, which does not call the function again"
            )
        if None in given or any(isinstance(one, ast.Starred) for one in node.args):
            self.todo("RetryAfter takes the seconds and then a message: write them out")
        words = [delay if delay != "None" else "0", *([message] if message else [])]
        return f"{self._error(name)}({', '.join(words)})"

    def _event(self, name: str, node: ast.Call) -> str | None:
        given: dict[str | None, ast.expr] = {k.arg: k.value for k in node.keywords}
        order = ("objs", "type", "reason", "message")
        if name != "event":
            order = ("objs", "reason", "message", "exc")
        given |= dict(zip(order, node.args, strict=False))
        subject = given.get("objs")
        if subject is None or None in given:
            self.todo(f"kopf.{name}: record the event with app.events")
            return None
        about = self._subject if self._is_argument(subject, "body") else self.text(subject)
        if self._is_argument(subject, "body"):
            self.meaning("body")
        else:
            self.todo(f"kopf.{name}: give app.events an Object or an ObjectReference")
        kind = '"Normal"' if name == "info" else '"Warning"'
        if name == "event":
            literal = given.get("type")
            kind = self.text(literal) if literal is not None else '"Normal"'
            value = literal.value if isinstance(literal, ast.Constant) else None
            if value not in ("Normal", "Warning"):
                self.todo(f"kopf.{name}: use the type 'Normal' or 'Warning'")
                self.words.word("Any", "typing")
                kind = f"{kind}"
        reason = self.text(given["reason"]) if "reason" in given else '"Handled"'
        message = self.text(given["message"]) if "message" in given else '""'
        if name == "exception":
            self.words.word("sys", "")
            error = self.text(given["exc"]) if "exc" in given else "sys.exc_info()[1]"
            message = f'{message} + f" {{{error}}}"' if message != '""' else f"str({error})"
        return f"{self.words.app}.events.event({about}, {kind}, {reason}, {reason}, {message})"

    def _hierarchy(self, name: str, node: ast.Call) -> str | None:
        helper = {"adopt": "adopt", "append_owner_reference": "add_owner", "label": "add_labels"}
        if name not in helper:
            self.todo(f"kopf.{name}: set the child's metadata yourself")
            return None
        options = {k.arg: k.value for k in node.keywords}
        if not node.args or set(options) - {"owner", "labels"}:
            self.todo(f"kopf.{name}: set the owner with set_controller_reference(owner, child)")
            return None
        owner = options.get(
            "owner", node.args[1] if name != "label" and len(node.args) > 1 else None
        )
        about = self._subject
        if owner is not None and not self._is_argument(owner, "body"):
            about = self.text(owner)
            self.todo(f"kopf.{name}: the owner must be an Object")
        elif owner is not None:
            self.meaning("body")
        if not about and name != "label":
            self.todo(f"kopf.{name}: give the owner, an Object")
            about = "None"
        children = self.text(node.args[0])
        if name == "label":
            labels = options.get("labels", node.args[1] if len(node.args) > 1 else None)
            wanted = self.text(labels) if labels is not None else f"{about}.labels"
            return f"{self.words.helper('add_labels')}({children}, {wanted})"
        return f"{self.words.helper(helper[name])}({about}, {children})"


def in_one_statement(text: str) -> str:
    """An expression for the right side of an assignment: in parentheses if it needs them.

    The text of an expression lacks the parentheses around it, which may have held its lines
    together.
    """
    try:
        is_whole = len(ast.parse(f"_ = {text}").body) == 1
    except SyntaxError:
        is_whole = False
    return text if is_whole else f"({text})"


def _outside(node: ast.AST) -> Iterator[ast.AST | None]:
    """The parts of a scope that are evaluated around it: defaults, what is iterated first."""
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield node.generators[0].iter
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from (*node.args.defaults, *node.args.kw_defaults)
        yield from getattr(node, "decorator_list", ())


def _passes_on(function: Function) -> bool:
    """Whether a function uses its ``**kwargs``."""
    name = function.args.kwarg.arg if function.args.kwarg else ""
    return any(_uses(each, name) for each in function.body)


def _uses(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))
