"""Names in a module: which are kopf's, what they are bound to, and which are free."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import attrs

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


@attrs.frozen
class Module:
    """What is known of a module before it is translated."""

    aliases: Mapping[str, str]
    """What the local names of kopf's things mean: ``{"kopf": "kopf", "on": "kopf.on"}``."""
    constants: Mapping[str, ast.expr]
    """The values that module-level names are bound to, once."""
    functions: Mapping[str, Function]
    """The functions of the module by name, but no methods."""
    classes: Mapping[str, ast.ClassDef]
    """The classes of the module by name."""
    bound: frozenset[str]
    """The names that are bound at its top."""
    used: frozenset[str]
    """Every name that occurs in it."""
    imports: Mapping[str, tuple[str, str]]
    """What is imported from another module: module and name, by local name."""

    @classmethod
    def of(cls, tree: ast.Module) -> Module:
        """What is known of a module."""
        aliases: dict[str, str] = {}
        imports: dict[str, tuple[str, str]] = {}
        functions: dict[str, Function] = {}
        classes: dict[str, ast.ClassDef] = {}
        methods: set[int] = set()
        for node in ast.walk(tree):  # a class before its methods
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
                methods.update(id(each) for each in node.body)
            elif isinstance(node, ast.Import):
                for one in node.names:
                    if one.name == "kopf" or one.name.startswith("kopf."):
                        aliases[one.asname or "kopf"] = one.name if one.asname else "kopf"
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for one in node.names:
                    imports[one.asname or one.name] = module, one.name
                    if module == "kopf" or module.startswith("kopf."):
                        aliases[one.asname or one.name] = f"{module}.{one.name}"
            elif (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and id(node) not in methods
            ):
                functions.setdefault(node.name, node)
        return cls(
            aliases=aliases,
            constants=_constants(tree),
            functions=functions,
            classes=classes,
            bound=frozenset(bindings(tree.body)),
            used=frozenset(_identifiers(tree)),
            imports=imports,
        )

    def kopf_name(self, node: ast.AST) -> str:
        """The name within kopf of an expression, ``on.create``; empty if it has none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return ""
        whole = ".".join((self.aliases[node.id], *reversed(parts)))
        return whole.removeprefix("kopf").removeprefix(".")


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    several: set[str] = set()
    for node in tree.body:
        value = getattr(node, "value", None)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.expr):
                if target.id in found:
                    several.add(target.id)
                found[target.id] = value
    return {name: value for name, value in found.items() if name not in several}


def _identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def arguments(function: Function | ast.Lambda) -> Iterator[ast.arg]:
    """All arguments of a function, in their order."""
    given = function.args
    yield from (*given.posonlyargs, *given.args)
    if given.vararg:
        yield given.vararg
    yield from given.kwonlyargs
    if given.kwarg:
        yield given.kwarg


def defaults(function: Function | ast.Lambda) -> dict[str, ast.expr]:
    """The defaults of a function's arguments."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    found = dict(zip((a.arg for a in reversed(positional)), reversed(given.defaults), strict=False))
    keyword = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return found | {a.arg: value for a, value in keyword if value is not None}


def is_none(node: ast.AST) -> bool:
    """Whether it is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def bindings(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind in their own scope."""
    for node in body:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        if not isinstance(node, _SCOPES):
            yield from bindings(ast.iter_child_nodes(node))


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of the scopes in it."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_SCOPES[:4],)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def shadowed(node: ast.AST) -> frozenset[str]:
    """The names that a scope within a function binds for itself."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return frozenset((*(a.arg for a in arguments(node)), *bindings(node.body)))
    if isinstance(node, ast.Lambda):
        return frozenset(a.arg for a in arguments(node))
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return frozenset(bindings(each.target for each in node.generators))
    return frozenset()


def free_name(wanted: str, taken: frozenset[str] | set[str]) -> str:
    """A name that nothing has: the wanted one, or with a ``_`` after it."""
    while wanted in taken:
        wanted += "_"
    return wanted
