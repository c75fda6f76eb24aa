"""Translates the modules of a kopf operator into those of an App."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, final

import attrs

from appsdk_operator.cli._kopf.handlers import (
    SELECTORS,
    Handlers,
    Outcome,
    Webhook,
    decorators_of,
    form_of,
)
from appsdk_operator.cli._kopf.kinds import Declared, Kinds, known_of_crds
from appsdk_operator.cli._kopf.names import Function, Module, bindings, free_name
from appsdk_operator.cli._kopf.source import Source

SHARED: Final = "operator_app"
"""The module of the App of an operator in several files."""

NO_MODULE: Final = "this file cannot be imported, because its name is not an identifier"
_SETTINGS: Final = {
    "admission": "webhook_server=WebhookServerOptions(…) of App, and App.run's --webhook-service",
    "background": "the kit stops background functions and waits for them",
    "batching.worker_limit": "App(workers=…)",
    "execution.max_workers": "App(workers=…)",
    "networking": "ClientSetup(…), as App(client=…)",
    "peering": "App(leader_election=True)",
    "persistence": "App(adopt=Kopf(prefix=…, finalizer=…)) takes over the objects of kopf",
    "posting": "only app.events records Events",
    "process": "App(graceful_shutdown_timeout=…)",
    "queueing.worker_limit": "App(workers=…)",
    "scanning": "the kit looks for a kind when it needs it",
    "watching": "watches have time-outs of their own",
}
_NEEDS_NOTHING: Final = (
    "background",
    "networking",
    "persistence",
    "posting",
    "scanning",
    "watching",
)

_HELPERS: Final = {
    "add_owner": '''\
def {name}(owner: {Object}, children: {Any}) -> None:
    """Make ``owner`` the controller of a child, or of several, as dicts."""
    for child in children if isinstance(children, (list, tuple)) else [children]:
        group, _, version = child.get("apiVersion", "v1").rpartition("/")
        kind = {Kind}(group=group, version=version, kind=child.get("kind", "Child"))
        {set_controller_reference}(owner, {MutableObject}(kind, child))
''',
    "adopt": '''\
def {name}(owner: {Object}, children: {Any}) -> None:
    """Give children the namespace, the labels and a name of ``owner``, which controls them."""
    for child in children if isinstance(children, (list, tuple)) else [children]:
        metadata = child.setdefault("metadata", {{}})
        if owner.namespace:
            metadata.setdefault("namespace", owner.namespace)
        if "name" not in metadata:
            metadata.setdefault("generateName", f"{{owner.name}}-")
        metadata["labels"] = {{**owner.labels, **metadata.get("labels", {{}})}}
        {add_owner}(owner, child)
''',
    "add_labels": '''\
def {name}(children: {Any}, labels: {Mapping}[str, str]) -> None:
    """Add labels to a child, or to several, as dicts; those that they have stay."""
    for child in children if isinstance(children, (list, tuple)) else [children]:
        metadata = child.setdefault("metadata", {{}})
        metadata["labels"] = {{**labels, **metadata.get("labels", {{}})}}
''',
    "changes": '''\
def {name}(old: {Any}, new: {Any}, path: tuple[str, ...] = ()) -> list[tuple[{Any}, ...]]:
    """The differences as (operation, path, old, new); of objects without status and metadata."""
    if isinstance(new, {Object}):
        old = _essence(old) if old is not None else None
        new = _essence(new)
    if old == new:
        return []
    if isinstance(old, {Mapping}) and isinstance(new, {Mapping}):
        keys = dict.fromkeys((*old, *new))
        return [one for key in keys for one in {name}(old.get(key), new.get(key), (*path, key))]
    operation = "add" if old is None else "remove" if new is None else "change"
    return [(operation, path, old, new)]


def _essence(obj: {Object}) -> dict[str, {Any}]:
    found = {{key: obj[key] for key in obj if key not in _NO_ESSENCE}}
    return {{**found, "metadata": {{"labels": obj.labels, "annotations": obj.annotations}}}}


_NO_ESSENCE = ("apiVersion", "kind", "metadata", "status")
''',
}
"""Functions that a translated module may need, with the words that they use."""


@attrs.frozen
class Todo:
    """A place of the translated program that a person has to look at."""

    path: str
    line: int
    reason: str


@attrs.frozen
class Migration:
    """A translated program."""

    texts: Mapping[str, str]
    """The modules by their path."""
    handlers: Sequence[tuple[str, Outcome]]
    """The handlers, each with the path of its module."""
    todos: Sequence[Todo]
    """The TODOs of the translated modules, in order."""


def migrate(
    sources: Mapping[str, str],
    crds: Iterable[Mapping[str, Any]] = (),
    *,
    name: str = "",
    folder: str = "",
) -> Migration:
    """Translate the modules of a kopf operator.

    Args:
        sources: the text of each module by its path, relative to a folder that all are in.
        crds: CustomResourceDefinitions of its kinds.
        name: the name of the App; default: one like the first path's.
        folder: the name of the folder of the paths.

    Raises:
        SyntaxError: a module is not Python; ``filename`` says which.
    """
    parsed: dict[str, tuple[Source, Module]] = {}
    for path, text in sources.items():
        try:
            source = Source(text)
        except SyntaxError as error:
            error.filename = path
            raise
        parsed[path] = source, Module.of(source.tree)
    with_handlers = [
        path for path, (source, module) in parsed.items() if _has_handlers(source, module)
    ]
    shared = SHARED if len(with_handlers) > 1 else ""
    crds = list(crds)
    name = name or _name_of([f"{folder}/{path}" for path in with_handlers or sources])
    kinds = Kinds(
        known_of_crds(crds), lambda word: any(word in module.bound for _, module in parsed.values())
    )
    translated = {
        path: _Translated(path, source, module, kinds, name, shared, parsed)
        for path, (source, module) in parsed.items()
    }
    texts = {path: one.text() for path, one in translated.items()}
    if shared:
        texts[f"{SHARED}.py"] = _shared_module(name, kinds, with_handlers)
    for path, text in texts.items():
        compile(text, path, "exec", dont_inherit=True)  # what it writes is Python, always
    reasons = {reason for one in translated.values() for reason in one.rewriter.found}
    reasons |= {f"{NO_MODULE}: {path}" for path in with_handlers}
    reasons |= {one.todo for one in kinds.declared.values() if one.todo}
    return Migration(
        texts=texts,
        handlers=[
            (path, each) for path, one in translated.items() for each in one.rewriter.outcomes
        ],
        todos=[todo for path, text in texts.items() for todo in _todos(path, text, reasons)],
    )


def _has_handlers(source: Source, module: Module) -> bool:
    functions = (
        n for n in ast.walk(source.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return any(decorators_of(one, module) for one in functions)


def _todos(path: str, text: str, reasons: set[str]) -> list[Todo]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        _, marker, reason = line.partition("# TODO: ")
        if marker and reason in reasons:
            found.append(Todo(path, number, reason))
    return found


def _name_of(paths: Sequence[str]) -> str:
    path = PurePath(paths[0]) if paths else PurePath("operator")
    common = (
        "app",
        "example",
        "handlers",
        "main",
        "operator",
        "operator_app",
        "__init__",
        "__main__",
    )
    named = [path.stem, *(parent.name for parent in path.parents)]
    name = next((one for one in named if one and one not in common), "my-operator")
    cleaned = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    return cleaned or "my-operator"


def _dotted(path: str) -> str:
    parts = list(PurePath(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def _shared_module(name: str, kinds: Kinds, modules: Sequence[str]) -> str:
    lines = [f'"""The App of {name}: its kinds, and the modules whose functions it has."""', ""]
    words = ["App", *(["Kind"] if kinds.declared else [])]
    declarations = list(kinds.declared.values())
    if any("Scope." in one.declaration for one in declarations):
        words.append("Scope")
    lines += [f"from appsdk_operator import {', '.join(words)}", "", f'app = App("{name}")']
    for one in declarations:
        lines += [f"# TODO: {one.todo}"] if one.todo else []
        lines.append(one.declaration)
    lines += ["", "# They declare their functions with the App."]
    for path in modules:
        module = _dotted(path)
        if all(part.isidentifier() for part in module.split(".")):
            lines.append(f"import {module}  # noqa: E402, F401")
        else:
            lines.append(f"# TODO: {NO_MODULE}: {path}")
    return "\n".join(lines) + "\n"


@final
class _Translated:
    """One module on its way."""

    def __init__(
        self,
        path: str,
        source: Source,
        module: Module,
        kinds: Kinds,
        name: str,
        shared: str,
        modules: Mapping[str, tuple[Source, Module]],
    ) -> None:
        self.path = path
        self.source = source
        self.module = module
        self.app = free_name("app", module.used)
        self.rewriter = _ModuleRewriter(source, self)
        self._kinds = kinds
        self._name = name
        self._shared = shared
        self._modules = modules
        self._words: dict[tuple[str, str], str] = {}
        self._helpers: dict[str, str] = {}
        self._used_kinds: dict[str, Declared] = {}
        self._end: list[str] = []
        self._activities: list[tuple[str, str, bool]] = []
        self._admissions: dict[tuple[str, str], list[Webhook]] = {}
        self.app_options: dict[str, str] = {}
        self._calls = self._handler_calls()
        self._several = self._several_webhooks()

    # What the rewriter asks.

    def word(self, name: str, module: str = "appsdk_operator") -> str:
        """The local name of an import."""
        known = self.module.imports.get(name)
        if known == (module, name) or (not module and name in self.module.bound):
            return name
        if (module, name) not in self._words:
            is_filter = name in ("labels", "annotation", "field")
            taken = self.module.bound if is_filter else self.module.used - self._own_types()
            local = name if not module else free_name(name, set(taken))
            self._words[module, name] = local
        return self._words[module, name]

    def _own_types(self) -> set[str]:
        """Names of kopf's that its import has bound, and that go with it."""
        return set(self.module.aliases)

    def helper(self, name: str) -> str:
        """The local name of a helper."""
        if name not in self._helpers:
            self._helpers[name] = free_name(name, self.module.used)
            if name == "adopt":
                self.helper("add_owner")
        return self._helpers[name]

    def function_of(self, node: ast.expr) -> Function | None:
        """The function that an expression calls, if a module of the program has it."""
        if isinstance(node, ast.Name):
            for module in self._origins(node.id):
                if node.id in module.functions:
                    return module.functions[node.id]
                if node.id in module.classes:
                    return self._method(module, node.id, "__init__")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            for module in self._origins(node.value.id):
                if node.value.id in module.classes:
                    return self._method(module, node.value.id, node.attr)
        return None

    def _origins(self, name: str) -> Sequence[Module]:
        """The modules in which a name of this module may be defined."""
        if name not in self.module.imports:
            return [self.module]
        origin = self.module.imports[name][0].lstrip(".")
        return [
            other
            for path, (_, other) in self._modules.items()
            if not origin or _dotted(path).endswith(origin)
        ]

    def _method(self, module: Module, class_name: str, name: str) -> Function | None:
        """A method of a class or of those that it inherits from, as far as they are known."""
        waiting = [class_name]
        modules = [module, *(other for _, other in self._modules.values())]
        for one in waiting:
            found = next((m.classes[one] for m in modules if one in m.classes), None)
            for each in found.body if found else ():
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == name:
                    return each
            bases = [
                base.id for base in (found.bases if found else ()) if isinstance(base, ast.Name)
            ]
            waiting += [base for base in bases if base not in waiting]
        return None

    def call_of_handler(self, name: str) -> str:
        """The arguments of a handler of this module."""
        return self._calls.get(name, "")

    def kind_of(self, call: ast.Call) -> Declared:
        """The Kind that a decorator names."""
        given = [*call.args, *(k.value for k in call.keywords if k.arg in SELECTORS)]
        unknown = next((one for one in given if not self._is_known_at_the_app(one)), None)
        if unknown is None:
            found = self._kinds.find(call, self._literal_text, self._value)
        else:
            found = self._kinds.unknown(self.source.segment(unknown))
        if found.declaration:
            self._used_kinds[found.expression] = found
        elif found.expression.startswith("kinds."):
            local = self.word("kinds")
            return attrs.evolve(found, expression=found.expression.replace("kinds", local, 1))
        return found

    def at_end(self, text: str) -> None:
        """Add to the end of the module."""
        self._end.append(text)

    def activity(self, cause: str, name: str, is_async: bool) -> None:
        """Note a function of the lifespan."""
        self._activities.append((cause, name, is_async))

    def admission(self, webhook: Webhook) -> bool:
        """Note a webhook's function; whether it is to be decorated itself."""
        takes_change = webhook.takes_old or webhook.on == "update"
        if (webhook.word, webhook.kind) not in self._several and not takes_change:
            return True
        self._admissions.setdefault((webhook.word, webhook.kind), []).append(webhook)
        return False

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a constant's name stands for."""
        if isinstance(node, ast.Name):
            if node.id in self.module.constants:
                return self.module.constants[node.id]
            other, name = self._imported(node.id)
            if other is not None and isinstance(other.constants.get(name), ast.Constant):
                return other.constants[name]
        return node

    def _imported(self, local: str) -> tuple[Module | None, str]:
        """The translated module from which a name comes, and its name there."""
        module, name = self.module.imports.get(local, ("", ""))
        for path, (_, other) in self._modules.items():
            if module and _dotted(path).endswith(module.lstrip(".")) and name in other.constants:
                return other, name
        return None, name

    # Values.

    def _literal_text(self, node: ast.AST) -> str:
        value = self._value(node)
        if isinstance(value, str) and not self._is_bound_at_the_app(node):
            return repr(value)
        return self.source.segment(node)

    def _is_known_at_the_app(self, node: ast.expr) -> bool:
        """Whether a selector can be written where the App and its kinds are declared."""
        is_special = isinstance(node, (ast.Lambda, ast.Starred)) or self.module.kopf_name(node)
        if is_special or self._value(node) is not None:
            return True
        return self._is_bound_at_the_app(node)

    def _is_bound_at_the_app(self, node: ast.AST) -> bool:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if self._shared:
            return not names
        body = self.source.tree.body
        above = itertools.takewhile(lambda statement: not self._declares(statement), body)
        return names <= {*bindings(above), *dir(builtins)}

    def _value(self, node: ast.AST, depth: int = 0) -> Any:
        """The value of a constant expression, of other modules too; None if it is not constant."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Tuple, ast.List)):
            values = [self._value(each, depth) for each in node.elts]
            return None if None in values else values
        if isinstance(node, ast.Name) and depth < 5:
            if node.id in self.module.constants:
                return self._value(self.module.constants[node.id], depth + 1)
            other, name = self._imported(node.id)
            if other is not None:
                return self._value(other.constants[name], depth + 1)
        return None

    def _handler_calls(self) -> dict[str, str]:
        found = {}
        for name, function in self.module.functions.items():
            causes = {one.cause for one in decorators_of(function, self.module)}
            form = form_of(causes) if causes else ""
            if form in ("object", "mixed"):
                found[name] = "obj"
            elif form == "update":
                found[name] = "old, new"
        return found

    def _several_webhooks(self) -> set[tuple[str, str]]:
        count: dict[tuple[str, str], int] = {}
        for function in self.module.functions.values():
            for one in decorators_of(function, self.module):
                if one.cause in ("validate", "mutate"):
                    word = "default" if one.cause == "mutate" else "validate"
                    key = word, self.kind_of(one.call).expression
                    count[key] = count.get(key, 0) + 1
        return {key for key, number in count.items() if number > 1}

    # The whole.

    def text(self) -> str:
        """The translated module."""
        first = next((s for s in self.source.tree.body if self._declares(s)), None)
        body = self.rewriter.module_text(first, self._prelude)
        end = [*self._end, *self._webhook_functions(), *self._lifespan()]
        tail = "".join(f"\n\n\n{text}" for text in end)
        return self._placed(body, tail)

    def _placed(self, body: str, tail: str) -> str:
        """The module with its tail, which stands above ``if __name__ == "__main__":``."""
        if not tail:
            return body
        source = Source(body)
        program = next((one for one in source.tree.body if _is_program(one)), None)
        if program is None:
            return f"{body.rstrip()}{tail}\n"
        at, _ = source.span(program)
        return f"{body[:at].rstrip()}{tail}\n\n\n{body[at:]}"

    def _declares(self, statement: ast.stmt) -> bool:
        return any(
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and bool(decorators_of(node, self.module))
            for node in ast.walk(statement)
        )

    def imports(self) -> tuple[list[str], list[str]]:
        """The import statements that the module needs: of the standard library, and others."""
        by_module: dict[str, list[str]] = {}
        for (module, name), local in self._words.items():
            by_module.setdefault(module, []).append(name if name == local else f"{name} as {local}")
        plain = [f"import {name}" for name in sorted(by_module.pop("", []))]
        standard = [one for one in plain if one != "import tenacity"]
        kit = [one for one in plain if one == "import tenacity"]
        for module, names in sorted(by_module.items()):
            (kit if _is_kit(module) else standard).append(_import_of(module, sorted(names)))
        return standard, kit

    def _prelude(self) -> str:
        """What stands before the first handler: helpers, the App, and its kinds."""
        parts = [self._helper_text(name) for name in _HELPERS if name in self._helpers]
        lines = []
        if self._needs_logger():
            lines.append("logger = logging.getLogger(__name__)")
            self.word("logging", "")
        if self._shared:
            for one in self._used_kinds.values():
                self.word(one.expression, self._shared)
            self._words[self._shared, "app"] = self.app
        else:
            options = "".join(f", {key}={value}" for key, value in self.app_options.items())
            lines.append(f'{self.app} = {self.word("App")}("{self._name}"{options})')
            for one in self._used_kinds.values():
                declaration = one.declaration.replace(" = Kind(", f" = {self.word('Kind')}(")
                if "Scope." in declaration:
                    declaration = declaration.replace("Scope.", f"{self.word('Scope')}.")
                lines += [f"# TODO: {one.todo}"] if one.todo else []
                lines.append(declaration)
        text = "\n".join(lines)
        helpers = "".join(f"\n\n{part}" for part in parts)
        return f"{text}\n{helpers}\n\n" if text or parts else ""

    def _needs_logger(self) -> bool:
        return self.rewriter.uses_logger and "logger" not in self.module.bound

    def _helper_text(self, name: str) -> str:
        words = {
            word: self.word(word)
            for word in ("Object", "Kind", "MutableObject", "set_controller_reference")
            if f"{{{word}}}" in _HELPERS[name]
        }
        for word, module in (("Any", "typing"), ("Mapping", "collections.abc")):
            if f"{{{word}}}" in _HELPERS[name]:
                words[word] = self.word(word, module)
        words |= {each: self.helper(each) for each in _HELPERS if f"{{{each}}}" in _HELPERS[name]}
        return _HELPERS[name].format(name=self._helpers[name], **words)

    def _webhook_functions(self) -> list[str]:
        """One function for each webhook that several of kopf's handlers make."""
        found = []
        for (word, kind), webhooks in self._admissions.items():
            differ = any(one.takes_old or one.on in ("create", "update") for one in webhooks)
            for on in ("create", "update") if differ else ("",):
                meant = [one for one in webhooks if one.on in ("", on)]
                found.append(self._webhook_function(word, kind, on, meant))
            if deletions := [one for one in webhooks if one.on == "delete"]:
                found.append(self._webhook_function(word, kind, "delete", deletions))
        return [one for one in found if one]

    def _webhook_function(self, word: str, kind: str, on: str, webhooks: Sequence[Webhook]) -> str:
        if not webhooks:
            return ""
        short = re.sub(r"\W", "_", kind.rpartition(".")[2]).lower()
        name = free_name(f"{word}_{on + '_' if on else ''}{short}", self.module.used)
        if word == "default":
            parameters = f"draft: {self.word('MutableObject')}"
        elif on == "update":
            parameters = f"old: {self.word('Object')}, new: {self.word('Object')}"
        else:
            parameters = f"obj: {self.word('Object')}"
        given = "new" if on == "update" else parameters.partition(":")[0]
        returns = any(one.returns for one in webhooks)
        prefix = "async " if any(one.is_async for one in webhooks) else ""
        options = f', on="{on}"' if on else ""
        lines = [f"@{self.app}.{word}({kind}{options})"]
        lines.append(f"{prefix}def {name}({parameters}) -> {'list[str]' if returns else 'None'}:")
        lines += ["    warnings: list[str] = []"] if returns else []
        for one in webhooks:
            arguments = f"{given}, old" if one.takes_old and on == "update" else given
            call = f"{'await ' * one.is_async}{one.name}({arguments})"
            lines.append(f"    {'warnings += ' * one.returns}{call}")
        lines += ["    return warnings"] if returns else []
        return "\n".join(lines)

    def _lifespan(self) -> list[str]:
        if not self._activities:
            return []
        is_async = any(one for *_, one in self._activities)
        kind = "AsyncIterator" if is_async else "Iterator"
        self.word(kind, "collections.abc")
        name = free_name("lifespan", self.module.used)
        lines = [f"@{self.app}.lifespan", f"{'async ' * is_async}def {name}() -> {kind}[None]:"]
        calls = {
            cause: [
                f"    {'await ' * one}{name}()"
                for each, name, one in self._activities
                if each == cause
            ]
            for cause in ("startup", "cleanup")
        }
        lines += calls["startup"] + ["    yield"] + calls["cleanup"]
        return ["\n".join(lines)]


def _is_setting(statement: ast.stmt) -> bool:
    """Whether it is an assignment to kopf's settings, of which only comments are left."""
    root: ast.AST | None = statement.targets[0] if isinstance(statement, ast.Assign) else None
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    return isinstance(root, ast.Name) and root.id == "settings"


def _is_program(statement: ast.stmt) -> bool:
    """Whether it is ``if __name__ == "__main__":``, however it is spelled."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_kit(module: str) -> bool:
    return module.partition(".")[0] in ("appsdk_operator", SHARED)


def _import_of(module: str, names: Sequence[str]) -> str:
    text = f"from {module} import {', '.join(names)}"
    if len(text) <= 100:
        return text
    return f"from {module} import (\n" + "".join(f"    {one},\n" for one in names) + ")"


class _ModuleRewriter(Handlers):
    """Rewrites what stands around handlers: imports, settings, and where the App is declared."""

    def __init__(self, source: Source, translated: _Translated) -> None:
        super().__init__(source, translated)
        self._translated = translated
        self._is_only_settings = False
        self.uses_logger = False

    def meaning(self, name: str) -> str | None:
        found = super().meaning(name)
        if found == "logger":
            self.uses_logger = True
        return found

    def module_text(self, first: ast.stmt | None, prelude: Any) -> str:
        """The translated module, without its end."""
        source = self.source
        texts: list[tuple[int, int, str]] = []
        imports: list[tuple[int, int, ast.Import | ast.ImportFrom]] = []
        first_start = None
        for statement in source.tree.body:
            start, end = source.span(statement)
            if isinstance(statement, (ast.Import, ast.ImportFrom)) and self._is_kopf(statement):
                imports.append((start, end, statement))
                continue
            text = self.text(statement)
            if statement is first:
                first_start = len(texts)
            texts.append((start, end, text))
        self._translated._lifespan()  # noqa: SLF001 - for its imports
        if first_start is not None:
            at = self._above_comments(texts[first_start][0])
            texts.append((at, at, prelude()))
        without = [*texts, *((start, end, "pass") for start, end, _ in imports)]
        tree = ast.parse(self.splice(0, len(source.text), without))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        standard, kit = self._translated.imports()
        statements = (one for one in source.tree.body if not _is_future(one))
        is_import = (ast.Import, ast.ImportFrom)
        first_import = next((one for one in statements if isinstance(one, is_import)), None)
        if standard and first_import is not None and first_import is not imports[0][2]:
            at = source.span(first_import)[0]
            texts.append((at, at, "".join(f"{line}\n" for line in standard)))
        elif standard:
            kit = [*standard, "", *kit]
        needed = "\n".join(kit)
        for number, (start, end, statement) in enumerate(imports):
            kept = self._kept(statement, used)
            lines = [one for one in (kept, needed if number == 0 else "") if one]
            if not lines:
                end = min(end + 1, len(source.text)) if source.begins_line(start) else end
            texts.append((start, end, "\n".join(lines)))
        return self.splice(0, len(source.text), texts)

    def _above_comments(self, start: int) -> int:
        """The place above the comments that stand right above a statement."""
        text = self.source.text
        at = self.source.line_start(start)
        while at:
            before = self.source.line_start(at - 1)
            if not text[before:at].lstrip().startswith("#"):
                break
            at = before
        return at

    def _is_kopf(self, statement: ast.Import | ast.ImportFrom) -> bool:
        if isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            return not statement.level and (module == "kopf" or module.startswith("kopf."))
        return any(one.name == "kopf" or one.name.startswith("kopf.") for one in statement.names)

    def _kept(self, statement: ast.Import | ast.ImportFrom, used: set[str]) -> str:
        """What is left of an import of kopf."""

        def is_left(one: ast.alias) -> bool:
            is_kopf = isinstance(statement, ast.ImportFrom) or one.name.partition(".")[0] == "kopf"
            return not is_kopf or (one.asname or one.name.partition(".")[0]) in used

        names = [
            f"{one.name} as {one.asname}" if one.asname else one.name
            for one in statement.names
            if is_left(one)
        ]
        if not names:
            return ""
        origin = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
        return f"{origin}import {', '.join(names)}"

    # Imports that are not at the top.

    def rewrite_import(self, node: ast.Import) -> str | None:
        return "pass" if self._is_kopf(node) and len(node.names) == 1 else None

    def rewrite_importfrom(self, node: ast.ImportFrom) -> str | None:
        return "pass" if self._is_kopf(node) else None

    # Settings.

    def rewrite_assign(self, node: ast.Assign) -> str | None:
        return self._setting(node, node.targets[0]) or super().rewrite_assign(node)

    def _setting(self, node: ast.stmt, target: ast.expr) -> str | None:
        path: list[str] = []
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            if isinstance(target, ast.Attribute):
                path.insert(0, target.attr)
            target = target.value
        is_settings = isinstance(target, ast.Name) and target.id == "settings"
        if not path or not is_settings or "settings" not in self.scope.expressions:
            return None
        name = ".".join(path)
        reason = next(
            (v for k, v in _SETTINGS.items() if name == k or name.startswith(f"{k}.")), ""
        )
        start, _ = self.source.span(node)
        indent = self.source.indent(start)
        old = "\n".join(
            f"{indent}# {line.strip()}" for line in self.source.segment(node).splitlines()
        )
        if name.split(".")[0] in _NEEDS_NOTHING and "worker_limit" not in name:
            return f"# kopf's settings.{name}: {reason}.\n{old}{self._filler(indent)}"
        value = getattr(node, "value", None)
        if reason.startswith("App(workers") and isinstance(value, ast.Constant) and value.value:
            self._translated.app_options["workers"] = repr(value.value)
            return f"# kopf's settings.{name}: it is App(workers=…).\n{old}{self._filler(indent)}"
        if name == "peering.standalone":
            return f"# kopf's settings.{name}: there is no peering.\n{old}{self._filler(indent)}"
        reason = f"settings.{name}: {reason or 'nothing in the kit corresponds'}"
        self.todo(reason)
        return f"{old.lstrip()}{self._filler(indent)}"

    def _filler(self, indent: str) -> str:
        """What a block needs that has nothing but comments."""
        return f"\n{indent}pass" if self._is_only_settings else ""

    def block(self, statements: Sequence[ast.stmt]) -> list[tuple[int, int, str]]:
        before = self._is_only_settings
        self._is_only_settings = all(_is_setting(one) for one in statements)
        try:
            return super().block(statements)
        finally:
            self._is_only_settings = before
