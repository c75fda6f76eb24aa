"""Translates kopf's handlers: their decorators, signatures and bodies."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import attrs

from appsdk_operator.cli._kopf.conditions import FILTERS, Filters, expressions_of
from appsdk_operator.cli._kopf.fields import value_at
from appsdk_operator.cli._kopf.kinds import Declared
from appsdk_operator.cli._kopf.names import (
    Function,
    Module,
    arguments,
    bindings,
    defaults,
    is_none,
    own_nodes,
)
from appsdk_operator.cli._kopf.rewriting import Rewriter, Scope, Words, in_one_statement
from appsdk_operator.cli._kopf.source import Source, positioned_children

CAUSES: Final = (
    "create", "update", "resume", "delete", "field", "event", "timer", "daemon", "index",
    "validate", "mutate", "startup", "cleanup", "probe", "login", "subhandler",
)  # fmt: skip
_WORDS: Final = {"create": "on_add", "resume": "on_sync", "delete": "on_delete"}
_WITH_RESULTS: Final = {"object", "mixed", "update", "field", "daemon", "event"}
"""The forms of functions whose returned value kopf writes to the status."""
_NOTHING: Final = {
    "retry": (
        "int",
        "0",
        "retry: a function does not get the number of its attempts; the policy in retry= does",
    ),
    "started": ("Any", "None", "started: a function does not get the time of its first attempt"),
    "runtime": ("Any", "None", "runtime: a function does not get the time since its first attempt"),
    "reason": ("str", '""', "reason: write a function for each cause"),
    "settings": ("Any", "None", "settings: give options to App(…)"),
    "activity": ("Any", "None", "activity: nothing in the kit corresponds"),
    "sslpeer": ("Any", "{}", "sslpeer: a webhook function does not get it"),
    "headers": ("Any", "{}", "headers: a webhook function does not get them"),
    "userinfo": ("Any", "{}", "userinfo: read admission_request().user"),
}
"""Arguments that nothing corresponds to: their type, a value in their place, and the reason."""
SELECTORS: Final = {"group", "version", "kind", "plural", "singular", "shortcut", "category"}
_IGNORED: Final = {
    "id", "cancellation_backoff", "cancellation_timeout", "cancellation_polling", "persistent",
    "registry", "optional", "param", "deleted",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Webhook:
    """A function of a webhook."""

    word: str
    """``validate`` or ``default``."""
    on: str
    """``create``, ``update`` or ``delete``; empty: creations and updates."""
    kind: str
    name: str
    returns: bool
    """Whether it returns warnings."""
    takes_old: bool
    is_async: bool


class Program(Words, Protocol):
    """What handlers ask of the program."""

    def kind_of(self, call: ast.Call) -> Declared:
        """The Kind that a decorator names."""
        ...

    def at_end(self, text: str) -> None:
        """Add statements to the end of the module."""
        ...

    def activity(self, cause: str, name: str, is_async: bool) -> None:
        """Note a function that runs at the start or the end."""
        ...

    def admission(self, webhook: Webhook) -> bool:
        """Note a webhook's function; whether it is to be decorated itself."""
        ...


@attrs.frozen
class Decorator:
    """One of kopf's decorators of a function."""

    cause: str
    call: ast.Call
    options: Mapping[str, ast.expr]


@attrs.frozen
class Outcome:
    """What became of a handler."""

    name: str
    line: int
    causes: tuple[str, ...]
    todos: tuple[str, ...]


def decorators_of(function: Function, module: Module) -> list[Decorator]:
    """The decorators of kopf on a function, the nearest last."""
    found = []
    for each in function.decorator_list:
        call = each if isinstance(each, ast.Call) else ast.Call(each, [], [])
        name = module.kopf_name(call.func)
        cause = name.removeprefix("on.")
        if cause in CAUSES and name in (cause, f"on.{cause}"):
            # None is the default of each.
            given = [k for k in call.keywords if not is_none(k.value)]
            options = {k.arg: k.value for k in given if k.arg is not None}
            found.append(Decorator(cause, call, options))
    return found


def keys_of_arbitrary(function: Function) -> list[str]:
    """What a function takes from its ``**kwargs``: ``kwargs["spec"]``, ``kwargs.get("spec")``."""
    name = function.args.kwarg.arg if function.args.kwarg else ""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        key: ast.AST | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            key = node.slice if node.value.id == name else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner = node.func.value
            if node.func.attr in ("get", "pop") and isinstance(owner, ast.Name):
                key = node.args[0] if owner.id == name else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.setdefault(key.value)
    named = {a.arg for a in arguments(function)}
    return [key for key in found if name and key not in named]


def form_of(causes: set[str]) -> str:
    """How a function of these causes is called; empty if it cannot be translated as one."""
    if causes <= {"create", "resume", "delete", "timer"}:
        return "object"
    for alone in (
        "update",
        "field",
        "daemon",
        "event",
        "index",
        "probe",
        "login",
        "mutate",
        "validate",
    ):
        if causes == {alone}:
            return alone
    if causes <= {"startup", "cleanup"}:
        return "activity"
    if causes <= {"create", "resume", "delete", "timer", "update", "field"}:
        return "mixed"
    return ""


class Handlers(Rewriter):
    """Rewrites the nodes of a module, its handlers included."""

    def __init__(self, source: Source, program: Program) -> None:
        super().__init__(source, program)
        self.program = program
        self.outcomes: list[Outcome] = []
        self._depth = 0

    # Finding them.

    def rewrite_classdef(self, node: ast.ClassDef) -> str:
        bases = [self.module.kopf_name(base) for base in node.bases]
        if {"TemporaryError", "HandlerRetryError"} & set(bases):
            self.todo(f"{node.name}: RetryAfter takes the seconds and then a message")
        self._depth += 1
        try:
            return self._spliced(node)
        finally:
            self._depth -= 1

    def rewrite_asyncfunctiondef(self, node: ast.AsyncFunctionDef) -> str | None:
        return self.rewrite_functiondef(node)

    def rewrite_functiondef(self, node: Function) -> str | None:
        decorators = decorators_of(node, self.module)
        if not decorators:
            return None
        outer, self.todos, self.found, before = self.found, [], [], self.todos
        causes = tuple(one.cause for one in decorators)
        try:
            text = self._handler(node, decorators)
        finally:
            mine, self.found = self.found, outer + self.found
        remarks, self.todos = self.todos, before
        indent = self.source.indent(self.source.span(node)[0])
        text = "".join(f"# TODO: {reason}\n{indent}" for reason in remarks) + text
        todos = tuple(dict.fromkeys(mine))
        self.outcomes.append(Outcome(node.name, node.lineno, causes, todos))
        return text

    def _untranslated(self, node: Function, reason: str) -> str:
        """The handler without kopf's decorators, which become comments, and with the reason."""
        start, end = self.source.span(node)
        indent = self.source.indent(start)
        calls = {id(one.call) for one in decorators_of(node, self.module)}
        at = self.source.offset(node.lineno, node.col_offset)
        head = []
        for each in node.decorator_list:
            name = self.module.kopf_name(each.func if isinstance(each, ast.Call) else each)
            text = f"@{self.source.segment(each)}"
            if id(each) in calls or name.removeprefix("on.") in CAUSES:
                lines = [f"# {line}".rstrip() for line in text.splitlines()]
                text = lines[0] + "".join(f"\n{indent}{line}" for line in lines[1:])
            head.append(text)
        comments = self.lost_comments(start, at, "\n".join(head))
        pieces = [
            piece for child in positioned_children(node) for piece in self._piece(child, node)
        ]
        body = self.splice(at, end, pieces)
        self.todos = []
        self.todo(reason)
        return f"\n{indent}".join([*comments, *head, body])

    def _piece(self, child: ast.AST, node: Function) -> list[tuple[int, int, str]]:
        if child in node.decorator_list:
            return []
        return [(*self.source.span(child), self.text(child))]

    def _handler(self, node: Function, decorators: Sequence[Decorator]) -> str:
        causes = {one.cause for one in decorators}
        if self._depth and node.args.args and node.args.args[0].arg in ("self", "cls"):
            return self._untranslated(node, "a method cannot be a handler: declare a function")
        if "subhandler" in causes:
            return self._untranslated(
                node, "a sub-handler: call each(items, function) in the outer function"
            )
        form = form_of(causes)
        if not form:
            names = ", ".join(sorted(causes))
            return self._untranslated(
                node, f"one function for {names}: write a function for each of them"
            )
        if form == "login":
            return self._login(node)
        written = _Written(self, node, decorators, form)
        return written.text()

    def _login(self, node: Function) -> str:
        calls = [self.module.kopf_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)]
        start, end = self.source.span(node)
        indent = self.source.indent(start)
        if any(name.startswith("login_") for name in calls) and len(node.body) <= 2:
            comments = [f"{one}\n{indent}" for one in self.source.comments(start, end)]
            return "".join(comments) + "# App.run() finds the cluster by itself, as kubectl does."
        return self._untranslated(
            node,
            "login: App.run() finds the cluster as kubectl does; for another one give a config "
            "to app.manager()",
        )


class _Written:
    """Writes one handler anew."""

    def __init__(
        self, handlers: Handlers, node: Function, decorators: Sequence[Decorator], form: str
    ) -> None:
        self.handlers = handlers
        self.program = handlers.program
        self.node = node
        self.decorators = decorators
        self.form = form
        self.source = handlers.source
        start, _ = self.source.span(node)
        self.indent = self.source.indent(start)
        self.is_async = isinstance(node, ast.AsyncFunctionDef)
        self.names = [*(a.arg for a in arguments(node)), *keys_of_arbitrary(node)]
        self.bound = set(bindings(node.body))
        """Its variables: also an argument that a function in it declares as ``nonlocal``."""
        for each in ast.walk(node):
            self.bound |= {*each.names} if isinstance(each, ast.Nonlocal) else set()
        self.preamble: list[str] = []
        self.after: list[str] = []
        self.wrappers: dict[str, list[str]] = {}
        """By their decorator, functions that call the handler."""
        self.is_of_new_objects = form == "field" and not any(
            {"old", "new"} & set(one.options) for one in decorators
        )
        """Whether it is called for new objects, too, which have no old value."""
        self.lines: list[str] = []
        self.returns = any(
            isinstance(each, ast.Return) and each.value is not None and not is_none(each.value)
            for each in own_nodes(node)
        )
        self.result = self._result() if self.returns and form in _WITH_RESULTS else ""
        self.absent: dict[str, tuple[str, str, str]] = {}
        self.scope = self._scope()

    def todo(self, reason: str) -> None:
        self.handlers.todo(reason)

    def word(self, name: str, module: str = "appsdk_operator") -> str:
        return self.program.word(name, module)

    def _free(self, wanted: str, *, mine: bool = False) -> str:
        taken = (
            self.bound if mine else self.bound | {a for a in self.names if a not in ("old", "new")}
        )
        used = {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name)} - {"old", "new"}
        while wanted in taken | used:
            wanted += "_"
        return wanted

    # What names mean.

    def _scope(self) -> Scope:
        app = self.program.app
        self.parameters: list[tuple[str, str]] = []
        changes = {"old", "new", "diff"} & set(self.names)
        scope = Scope(
            is_lifespan=self.form == "activity",
            is_async=self.is_async,
            edits=True,
            result=self.result,
            outcome=self._outcome(),
            last=self.node.body[-1],
        )
        any_object = self.word("Object")
        if self.form in ("object", "event", "index"):
            scope.subject = self._free("obj")
            self.parameters.append((scope.subject, any_object))
        elif self.form in ("mixed", "validate"):
            scope.subject = self._free("obj")
            self.parameters.append((scope.subject, any_object))
            if changes:
                scope.old = self._free("old")
                self.parameters.append((scope.old, f"{any_object} | None = None"))
        elif self.form == "update":
            names = ("before", "after") if self._gets_values(changes) else ("old", "new")
            scope.old, scope.subject = map(self._free, names)
            self.parameters += [(scope.old, any_object), (scope.subject, any_object)]
        elif self.form == "field":
            scope.old, scope.subject = self._free("before"), self._free("after")
            optional = " | None" * self.is_of_new_objects
            self.parameters += [
                (scope.old, f"{any_object}{optional}"), (scope.subject, any_object),
            ]  # fmt: skip
        elif self.form == "daemon":
            live, scope.stop = self._free("live"), self._free("stop")
            scope.subject = f"{live}.object"
            self.parameters += [
                (live, self.word("Live")), (scope.stop, self.word("StopSignal")),
            ]  # fmt: skip
        elif self.form == "mutate":
            scope.draft = scope.subject = self._free("draft")
            scope.edits = False
            self.parameters.append((scope.draft, self.word("MutableObject")))
        if scope.subject:
            scope.expressions = expressions_of(scope.subject, app)
        scope.expressions["logger"] = "logger"
        if self.node.args.kwarg:
            scope.arbitrary = self.node.args.kwarg.arg
        self._fill(scope)
        return scope

    def _outcome(self) -> str | None:
        if self.form not in ("validate", "mutate"):
            return None
        return "warnings" if self.form == "validate" and "warnings" in self.names else ""

    def _fill(self, scope: Scope) -> None:
        self._fill_changes(scope)
        if "patch" in self.names and scope.subject:
            scope.expressions["patch"] = scope.draft or self._free("draft")
        if scope.stop:
            scope.expressions["stopped"] = scope.stop
        causes = {one.cause for one in self.decorators}
        if len(causes) == 1 and causes <= {"create", "update", "delete", "resume"}:
            scope.expressions["reason"] = f'"{next(iter(causes))}"'
        params = {
            self.source.segment(o.options["param"]): o.options["param"]
            for o in self.decorators
            if "param" in o.options
        }
        if len(params) == 1:
            [(text, node)] = params.items()
            is_one = isinstance(node, (ast.Constant, ast.Name, ast.Attribute))
            scope.expressions["param"] = text if is_one else f"({text})"
        optional = defaults(self.node)
        for name in self.names:
            if name in scope.expressions or name == scope.arbitrary:
                continue
            self._fill_other(scope, name, optional)
        # Variables that are called as an argument of kopf is, which the function does not take.
        variables = {*self.bound, *bindings(self.source.tree.body)} - {*self.names, "logger"}
        scope.expressions = {k: v for k, v in scope.expressions.items() if k not in variables}
        taken = {*keys_of_arbitrary(self.node)}
        for name in self.names:
            if name in self.bound and name in scope.expressions:
                expression = scope.expressions.pop(name)
                if name == "body" and scope.subject:
                    expression = f"{expression}.to_dict()"
                if name in taken and name in ("patch", "stopped", "memo"):
                    continue  # a variable of that name is not translated
                if name in taken and name == "logger":
                    self.word("logging", "")
                    expression = "logging.getLogger(__name__)"
                if name in taken:
                    scope.of_arbitrary[name] = expression
                elif name != expression and name not in self.absent:
                    self.preamble.append(f"{name} = {expression}")

    def _gets_values(self, changes: Collection[str]) -> bool:
        """Whether ``old``, ``new`` and ``diff`` are those of a field."""
        if self.form == "update":
            return bool(changes) and "field" in self.decorators[0].options
        return self.form == "field" and bool(changes)

    def _fill_changes(self, scope: Scope) -> None:
        wanted = {"old", "new", "diff"} & set(self.names)
        if self._gets_values(wanted):
            path = self._filters(self.decorators[0]).path
            if not path:
                return
            one = value_at(scope.old, path)
            one = f"{one} if {scope.old} else None" if self.is_of_new_objects else one
            self.preamble += [f"old = {one}", f"new = {value_at(scope.subject, path)}"]
            scope.expressions |= {"old": "old", "new": "new"}
            if "diff" in wanted:
                scope.expressions["diff"] = f"{self.program.helper('changes')}(old, new)"
        elif self.form in ("update", "mixed", "validate"):
            scope.expressions |= {"old": scope.old, "new": scope.subject}
            if "diff" in wanted:
                helper = self.program.helper("changes")
                scope.expressions["diff"] = f"{helper}({scope.old}, {scope.subject})"

    def _fill_other(self, scope: Scope, name: str, optional: Mapping[str, ast.expr]) -> None:
        if self.form in ("validate", "mutate") and name in ("dryrun", "operation", "subresource"):
            request = self.word("admission_request", "appsdk_operator.webhooks")
            attribute = {"dryrun": "dry_run"}.get(name, name)
            line = f"{name} = request.{attribute} if (request := {request}()) else "
            self.preamble.append(line + ("False" if name == "dryrun" else '""'))
            scope.expressions[name] = name
        elif name == "warnings" and self.form == "validate":
            self.preamble.append("warnings: list[str] = []")
            scope.expressions[name] = name
        elif self.form == "event" and name in ("event", "type"):
            if len(self.parameters) == 1:
                self.parameters.append((self._free("action", mine=True), "str"))
            action = self.parameters[-1][0]
            if name == "type":
                scope.expressions["type"] = action
            else:
                self.preamble.append(
                    f"{name}: dict[str, {self.word('Any', 'typing')}] = "
                    f'{{"type": {action}, "object": {scope.subject}.to_dict()}}'
                )
                scope.expressions[name] = name
        elif name in _NOTHING:
            self._missing(scope, name, *_NOTHING[name])
        elif name in optional:
            value = in_one_statement(self.source.segment(optional[name]))
            self.preamble.append(f"{name} = {value}")
            scope.expressions[name] = name
        elif name == "memo":
            self._missing(
                scope,
                name,
                "Any",
                "{}",
                "memo: the kit has no memo for the operator: use a variable",
            )
        elif name == "param":
            self._missing(
                scope,
                name,
                "Any",
                "None",
                "param: the decorators have different ones: write a function for each",
            )
        else:
            self._missing(
                scope, name, "Any", "{}",
                f"{name}: if it is an index, read it with app.client.list(KIND, "
                "field_selector={…})",
            )  # fmt: skip

    def _missing(self, scope: Scope, name: str, type_: str, value: str, reason: str) -> None:
        """A value in place of an argument that nothing corresponds to."""
        scope.expressions[name] = name
        self.absent[name] = type_, value, reason

    def _absent_lines(self) -> list[str]:
        """Values in place of the arguments that nothing corresponds to, where they are used."""
        found = []
        for name, (type_, value, reason) in self.absent.items():
            if name in self.scope.uses or name in self.bound:
                type_ = self.word("Any", "typing") if type_ == "Any" else type_
                self.handlers.found.append(reason)
                found.append(f"{name}: {type_} = {value}  # TODO: {reason}")
        return found

    # The whole.

    def text(self) -> str:
        """The function with what has to stand around it."""
        body = self._body()
        for decorator in self.decorators:
            self._decorate(decorator)
        start, _ = self.source.span(self.node)
        header_end = self.source.header_end(self.node)
        header = self._header()
        others = self._other_decorators()
        lines = [*self.lines, *others, header]
        comments = self.handlers.lost_comments(start, header_end, "\n".join(lines))
        head = f"\n{self.indent}".join([*comments, *lines])
        gap = "\n\n" if self.indent else "\n\n\n"
        wrappers = [
            "\n".join(f"{self.indent}{line}" for line in one) for one in self.wrappers.values()
        ]
        tail = "".join(f"{gap}{text}" for text in (*wrappers, *self.after))
        return f"{head}{body}{tail}"

    def _header(self) -> str:
        node = self.node
        parameters = ", ".join(f"{name}: {type_}" for name, type_ in self.parameters)
        returns = ""
        if self.form == "validate" and "warnings" in self.names:
            returns = " -> list[str]"
        elif node.returns is not None and self.result:
            returns = " -> None"
        elif node.returns is not None:
            returns = f" -> {self.handlers.text(node.returns)}"
        return f"{'async ' * self.is_async}def {node.name}({parameters}){returns}:"

    def _other_decorators(self) -> list[str]:
        calls = {id(one.call) for one in self.decorators}
        module = self.handlers.module
        found = []
        for each in self.node.decorator_list:
            name = module.kopf_name(each.func if isinstance(each, ast.Call) else each)
            if id(each) in calls or name.removeprefix("on.") in CAUSES:
                continue
            text = self.handlers.text(each)
            self.todo(
                f"@{text} now wraps a function with the arguments "
                f"({', '.join(n for n, _ in self.parameters)})"
            )
            found.append(f"@{text}")
        return found

    def _body(self) -> str:
        """The text from the header's colon to the end of the function."""
        node, handlers = self.node, self.handlers
        header_end, (_, end) = self.source.header_end(node), self.source.span(node)
        outer, handlers.todos = handlers.todos, []
        with handlers.entered(self.scope):
            pieces = handlers.block_of(node)
        handlers.todos = outer + handlers.todos
        preamble = [*self._delay(), *self._guards(), *self._absent_lines(), *self.preamble]
        first_start, first_end = self.source.span(node.body[0])
        inner = self.source.indent(first_start)
        if not self.source.begins_line(first_start):  # the body is on the header's line
            inner = f"{self.indent}    "
            lines = "".join(f"{line}\n{inner}" for line in preamble)
            pieces.append((header_end, first_start, f"\n{inner}{lines}"))
        elif preamble:
            at = first_end if ast.get_docstring(node, clean=False) is not None else header_end
            line_end = self.source.text.find("\n", at)
            at = min(line_end, end) if line_end >= 0 else end
            pieces.append((at, at, "".join(f"\n{inner}{line}" for line in preamble)))
        text = handlers.splice(header_end, end, pieces)
        if self.scope.outcome and not isinstance(node.body[-1], ast.Return):
            text += f"\n{inner}return {self.scope.outcome}"
        return text

    def _delay(self) -> list[str]:
        delay = self.decorators[0].options.get("initial_delay") if self.form == "daemon" else None
        if delay is None:
            return []
        seconds = self.handlers.text(delay)
        if isinstance(delay, ast.Lambda):
            self.todo("initial_delay: it is a function: wait in the function's body")
            return []
        if self.is_async:
            self.word("asyncio", "")
            return [f"await asyncio.sleep({seconds})"]
        return [f"if {self.scope.stop}.wait({seconds}):", "    return"]

    def _guards(self) -> list[str]:
        """The filters of webhooks, which have no ``where=``."""
        if self.form not in ("validate", "mutate"):
            return []
        found = []
        for decorator in self.decorators:
            test = self._tests(decorator, self.scope.subject)
            if test:
                value = " []" if "warnings" in self.names else ""
                found += [f"if not ({test}):", f"    return{value}"]
        return found

    # Decorators.

    def _filters(self, decorator: Decorator) -> Filters:
        options = {k: v for k, v in decorator.options.items() if k in FILTERS}
        is_update = decorator.cause in ("update", "field")
        return Filters(self.handlers, options, is_update=is_update)

    def _tests(self, decorator: Decorator, subject: str = "obj", action: str = '""') -> str:
        """The decorator's filters as one expression."""
        options = {k: v for k, v in decorator.options.items() if k in FILTERS}
        filters = Filters(self.handlers, options, as_tests=True)
        event = f'{{"type": {action}, "object": {subject}.to_dict()}}'
        if self.form == "event":
            filters.further = {"type": action, "event": event}
        return filters.test(subject)

    def _decorate(self, decorator: Decorator) -> None:
        cause = decorator.cause
        if any(k.arg is None for k in decorator.call.keywords):
            self.todo("**options of the decorator: write them out")
        if cause in ("startup", "cleanup"):
            self._check_options(decorator, set())
            if self.indent:
                self.todo(
                    f"a nested function for {cause}: call it in a function with @app.lifespan"
                )
            else:
                self.program.activity(cause, self.node.name, self.is_async)
            return
        if cause == "probe":
            self._probe()
            return
        kind = self.program.kind_of(decorator.call)
        if kind.reason:
            self.todo(kind.reason)
        getattr(self, f"_on_{cause}", self._on_object)(decorator, kind.expression)

    def _options(
        self, decorator: Decorator, known: set[str], *, is_change: bool = False
    ) -> list[str]:
        """The options that all decorators have."""
        self._check_options(decorator, known)
        filters = self._filters(decorator)
        found = []
        if where := filters.where():
            found.append(f"where={where}")
        if is_change and (when := filters.when() or self._default_when()):
            found.append(f"when={when}")
        if retry := self._retry(decorator):
            found.append(f"retry={retry}")
        return found

    def _default_when(self) -> str:
        """For functions that look at labels or annotations, whose changes are updates to kopf."""
        used = {each.id for each in ast.walk(self.node) if isinstance(each, ast.Name)}
        looked_at = {"labels", "annotations", "diff"} & set(self.names) & used
        if not looked_at:
            return ""
        field = self.word("field")
        paths = ("spec", "metadata.labels", "metadata.annotations")
        return " | ".join(f'{field}("{path}").changed' for path in paths)

    def _result(self) -> str:
        """The field of the status to which kopf writes what the function returns: its id."""
        given = next((o.options["id"] for o in self.decorators if "id" in o.options), None)
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            return given.value
        if given is not None:
            self.todo("id=: name the field of the status that takes the returned value")
        return self.node.name

    def _check_options(self, decorator: Decorator, known: set[str]) -> None:
        general = {"errors", "timeout", "retries", "backoff"}
        for name, value in decorator.options.items():
            if name == "cooldown":
                continue
            if name not in (known | general | _IGNORED | SELECTORS | set(FILTERS)):
                self.todo(f"{name}={self.source.segment(value)}: nothing in the kit corresponds")
        if "deleted" in decorator.options:
            self.todo("deleted=: the kit does not call on_sync for an object that is being deleted")

    def _retry(self, decorator: Decorator) -> str:
        options = decorator.options
        errors = options.get("errors")
        mode = self.handlers.module.kopf_name(errors).rpartition(".")[2] if errors else ""
        if mode == "PERMANENT":
            return self.word("never_retry", "appsdk_operator.watchers")
        if mode == "IGNORED":
            self.todo("errors=IGNORED: catch the errors in the function")
        backoff = self.handlers.text(options["backoff"]) if "backoff" in options else "60"
        retries, timeout = options.get("retries"), options.get("timeout")
        if (retries or timeout) and any(map(self._is_temporary_error, ast.walk(self.node))):
            self.todo("RetryAfter: limits of attempts and time do not count it, as kopf's do")
        if timeout is not None:
            return self._tenacity(backoff, retries, timeout)
        if retries is not None:
            number = retries.value if isinstance(retries, ast.Constant) else None
            if number == 1:
                return self.word("never_retry", "appsdk_operator.watchers")
            limit = self.handlers.text(retries)
            return f"{self.word('ConstantBackoff')}({backoff}, max_calls={limit})"
        if "backoff" in options:
            return f"{self.word('ConstantBackoff')}({backoff})"
        return ""

    def _is_temporary_error(self, node: ast.AST) -> bool:
        return self.handlers.module.kopf_name(node) in ("TemporaryError", "HandlerRetryError")

    def _tenacity(self, backoff: str, retries: ast.expr | None, timeout: ast.expr) -> str:
        tenacity = self.word("tenacity", "")
        policy = self.word("TenacityRetry", "appsdk_operator.watchers")
        stop = f"{tenacity}.stop_after_delay({self.handlers.text(timeout)})"
        if retries is not None:
            stop += f" | {tenacity}.stop_after_attempt({self.handlers.text(retries)})"
        return f"{policy}(stop={stop}, wait={tenacity}.wait_fixed({backoff}))"

    def _line(self, word: str, arguments: Sequence[str]) -> None:
        line = _wrapped(f"@{self.program.app}.{word}", arguments, self.indent)
        if line not in self.lines:
            self.lines.append(line)

    def _declare(self, word: str, options: Sequence[str]) -> None:
        """Decorate the function, or one that calls it where it takes an old object as well."""
        if self.form == "mixed" and self.scope.old:
            self._wrapper(word, options[0], options[1:])
        else:
            self._line(word, options)

    def _on_object(self, decorator: Decorator, kind: str) -> None:
        if decorator.cause == "delete" and "optional" in decorator.options:
            self._watch(decorator, kind, ["delete"])
            return
        options = self._options(decorator, set())
        self._declare(_WORDS[decorator.cause], [kind, *options])

    def _on_timer(self, decorator: Decorator, kind: str) -> None:
        known = {"interval", "idle", "initial_delay", "sharp"}
        options = self._options(decorator, known)
        text = {k: self.handlers.text(v) for k, v in decorator.options.items() if k in known}
        if "sharp" in text and text["sharp"] != "False":
            self.todo("sharp=: the interval begins at the end of a call")
        if "interval" not in text:
            self.todo("a timer without an interval: give one to every")
        if isinstance(decorator.options.get("initial_delay"), ast.Lambda):
            self.todo("initial_delay: it is a function: give seconds to first_after")
            text.pop("initial_delay")
        words = {"idle": "idle", "initial_delay": "first_after"}
        more = [f"{word}={text[name]}" for name, word in words.items() if name in text]
        self._declare("every", [text.get("interval", "60"), kind, *options, *more])

    def _on_daemon(self, decorator: Decorator, kind: str) -> None:
        options = self._options(decorator, {"initial_delay"})
        self._line("background", [kind, *options])

    def _on_update(self, decorator: Decorator, kind: str) -> None:
        options = self._options(decorator, set(), is_change=True)
        if self.form == "mixed":
            self._wrapper("on_update", kind, options)
        else:
            self._line("on_update", [kind, *options])

    def _on_field(self, decorator: Decorator, kind: str) -> None:
        options = self._options(decorator, set(), is_change=True)
        if self.form == "mixed":
            self._wrapper("on_update", kind, options)
            return
        if not self.is_of_new_objects:
            self._line("on_update", [kind, *options])
            return
        self._wrapper("on_update", kind, options)
        filters = {k: v for k, v in decorator.options.items() if k in FILTERS}
        is_plain = "value" not in filters and len(self.decorators) == 1
        path = self._filters(decorator).path if is_plain else ""
        if path:  # not with where=: a field that appears later is a change
            del filters["field"]
        where = Filters(self.handlers, filters).where()
        rest = [one for one in options if not one.startswith(("where=", "when="))]
        test = f"{value_at('obj', path)} is not None" if path else ""
        self._wrapper("on_add", kind, [*([f"where={where}"] if where else []), *rest], test)

    def _wrapper(self, word: str, kind: str, options: Sequence[str], test: str = "") -> None:
        """A function of its own that calls the handler for one cause."""
        name = f"{self.node.name}_{word}"
        line = _wrapped(f"@{self.program.app}.{word}", [kind, *options], self.indent)
        if word in self.wrappers:  # one more kind, or timer
            self.wrappers[word].insert(-2, line)
            return
        while name in self.program.module.bound:
            name += "_"
        any_object = self.word("Object")
        if word == "on_update":
            parameters = f"old: {any_object}, new: {any_object}"
            given = {"field": "old, new"}.get(self.form, "new, old" if self.scope.old else "new")
        else:
            parameters, given = f"obj: {any_object}", "None, obj" if self.form == "field" else "obj"
        self.wrappers[word] = [
            line,
            f"{'async ' * self.is_async}def {name}({parameters}) -> None:",
            *([f"    if {test}:"] if test else []),
            f"    {'    ' * bool(test)}{'await ' * self.is_async}{self.node.name}({given})",
        ]

    def _on_event(self, decorator: Decorator, kind: str) -> None:
        self._check_options(decorator, set())
        self._watch(decorator, kind, ["add", "update", "delete"])

    def _watch(self, decorator: Decorator, kind: str, which: Sequence[str]) -> None:
        """Raw events: a watcher."""
        name, app = self.node.name, self.program.app
        takes_action = len(self.parameters) > 1
        actions = {"add": '"ADDED"', "update": '"MODIFIED"', "delete": '"DELETED"'}
        words = []
        for each in which:
            test = self._tests(decorator, action=actions[each])
            call = f"{name}(obj{', ' + actions[each] if takes_action else ''})"
            call = f"{call} if {test} else None" if test else call
            head = "lambda old, obj" if each == "update" else "lambda obj"
            is_plain = not takes_action and not test and each != "update"
            words.append(f"{each}={name}" if is_plain else f"{each}={head}: {call}")
        watcher = self.word("SimpleWatcher")
        text = f"{self.indent}{app}.watch({kind}, {watcher}({', '.join(words)}))"
        if len(text) > 100:
            inner = "".join(f"\n{self.indent}        {one}," for one in words)
            inner = f"{watcher}({inner}\n{self.indent}    )"
            lines = [f"{app}.watch(", f"    {kind},", f"    {inner},", ")"]
            text = "\n".join(f"{self.indent}{line}" for line in lines)
        self.after.append(text)

    def _on_index(self, decorator: Decorator, kind: str) -> None:
        self._check_options(decorator, set())
        self.todo(
            "the keys of an index are strings: return strings, and read it with list(…, "
            "field_selector=…)"
        )
        name = self.node.name
        test = self._tests(decorator)
        keys = f"[str(key) for key in {name}(obj) or ()]"
        value = f"{keys} if {test} else []" if test else keys
        if self.is_async:
            self.todo("an index function cannot be async")
        self.after.append(
            f'{self.indent}{self.program.app}.index({kind}, "{name}", lambda obj: {value})'
        )

    def _on_validate(self, decorator: Decorator, kind: str) -> None:
        self._admission(decorator, kind, "validate")

    def _on_mutate(self, decorator: Decorator, kind: str) -> None:
        self._admission(decorator, kind, "default")

    def _admission(self, decorator: Decorator, kind: str, word: str) -> None:
        known = {"operations", "operation", "subresource", "side_effects", "ignore_failures"}
        self._check_options(decorator, known)
        options = decorator.options
        given = options.get("operations", options.get("operation"))
        on = ""
        if given is not None and word == "validate":
            values = given.elts if isinstance(given, (ast.Set, ast.List, ast.Tuple)) else [given]
            names = {str(v.value) for v in values if isinstance(v, ast.Constant)}
            on = (
                {"CREATE": "create", "UPDATE": "update", "DELETE": "delete"}.get(
                    next(iter(names)), ""
                )
                if len(names) == 1
                else ""
            )
            if not on and not names <= {"CREATE", "UPDATE"}:
                self.todo(f"operations={self.source.segment(given)}: give the operation with on=")
        elif given is not None:
            self.todo("operations=: a defaulter is called for creations and updates")
        if "subresource" in options:
            self.todo("subresource=: serve it with app.webhook(path, …)")
        more = [f'on="{on}"'] if on else []
        ignored = options.get("ignore_failures")
        is_ignored = isinstance(ignored, ast.Constant) and ignored.value is True
        if is_ignored:
            more.append('failure_policy="Ignore"')
        returns = "warnings" in self.names
        webhook = Webhook(
            word=word,
            on=on,
            kind=kind,
            name=self.node.name,
            returns=returns,
            takes_old=len(self.parameters) > 1,
            is_async=self.is_async,
        )
        if self.program.admission(webhook):
            self._line(word, [kind, *more])
        elif is_ignored:
            self.todo(
                f"ignore_failures=: {word}_… below calls this function, and its failures are not "
                "ignored"
            )

    def _probe(self) -> None:
        if not self.returns:
            self.lines.append(f"@{self.program.app}.check")
            return
        self.todo("a check has no value, it passes or fails: show values in metrics")
        name = self.node.name
        lines = [
            f"@{self.program.app}.check",
            f"{'async ' * self.is_async}def {name}_check() -> None:",
            f"    {'await ' * self.is_async}{name}()",
        ]
        self.after.append("\n".join(self.indent + line for line in lines))


def _wrapped(head: str, arguments: Sequence[str], indent: str) -> str:
    """A decorator, on several lines if it is long."""
    text = f"{head}({', '.join(arguments)})"
    if len(indent) + len(text) <= 100:
        return text
    inner = "".join(f"\n{indent}    {one}," for one in arguments)
    return f"{head}({inner}\n{indent})"
