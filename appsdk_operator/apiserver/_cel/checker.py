"""The type checker: gives each node of a syntax tree its type and reports problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from appsdk_operator.apiserver._cel.function_table import functions
from appsdk_operator.apiserver._cel.overloads import Overload
from appsdk_operator.apiserver._cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Problem,
    Select,
    walk,
)
from appsdk_operator.apiserver._cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    TYPE_NAMES,
    Substitution,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from appsdk_operator.apiserver._cel.values import CelError, Duration, Timestamp
from appsdk_operator.apiserver._values.go_pattern import GoPatternError, go_pattern

_LOGIC: Final = {
    "_&&_": "logical_and",
    "_||_": "logical_or",
    "@not_strictly_false": "not_strictly_false",
}


def check(root: Node, variables: Mapping[str, Type]) -> list[Problem]:
    """Set the type of every node and return the problems; ``variables`` maps names to types."""
    checker = _Checker(variables)
    checker.check(root)
    checker.resolve_types(root)
    problems = checker.problems
    if not problems:
        _check_literals(root, problems)
    return problems


@final
class _Checker:
    def __init__(self, variables: Mapping[str, Type]) -> None:
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._substitution = Substitution()
        self._functions = functions()
        self._problems: dict[Problem, None] = {}
        self._checked: set[int] = set()

    @property
    def problems(self) -> list[Problem]:
        """The problems so far, each once."""
        return list(self._problems)

    def resolve_types(self, node: Node) -> None:
        """Replace type variables in the types of all nodes by what was inferred for them."""
        for each in walk(node):
            each.type = self._substitution.resolve(each.type, unbound_as_dyn=True)

    def check(self, node: Node) -> Type:
        """Set and return the type of a node."""
        if id(node) in self._checked:
            return node.type
        self._checked.add(id(node))
        match node:
            case Literal():
                node.type = node.of
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case ListNode():
                node.type = self._list(node)
            case MapNode():
                node.type = self._map(node)
            case Comprehension():
                node.type = self._comprehension(node)
            case _:
                raise AssertionError(node)
        return node.type

    def _report(self, node: Node, message: str) -> Type:
        self._problems[Problem(node.position, message)] = None
        return ERROR

    def _lookup(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return type_of(TYPE_NAMES[name]) if name in TYPE_NAMES else None

    def _ident(self, node: Ident) -> Type:
        found = self._lookup(node.name.removeprefix("."))
        if found is not None:
            return found
        return self._report(node, f"undeclared reference to '{node.name}' (in container '')")

    def _qualified(self, node: Node) -> str:
        """The dotted name of a chain of field selections; ``""`` if it begins with a variable."""
        if isinstance(node, Ident):
            return "" if any(node.name in scope for scope in self._scopes) else node.name
        if isinstance(node, Select) and not node.test:
            prefix = self._qualified(node.operand)
            return f"{prefix}.{node.field}" if prefix else ""
        return ""

    def _select(self, node: Select) -> Type:
        name = self._qualified(node)
        if name in TYPE_NAMES and not node.test:
            return type_of(TYPE_NAMES[name])
        operand = self._substitution.resolve(self.check(node.operand))
        found = self._field(node, operand)
        return BOOL if node.test and found is not ERROR else found

    def _field(self, node: Select, operand: Type) -> Type:
        node.key = node.field
        if operand.name == "optional_type":
            inner = self._field(node, self._substitution.resolve(operand.params[0]))
            return inner if inner.name == "optional_type" else optional_of(inner)
        if operand.name == "map" and operand.params:
            return operand.params[1]
        if operand.kind == "object" and operand.decl_type is not None:
            found = operand.decl_type.fields.get(node.field)
            if found is None:
                return self._report(node, f"undefined field '{node.field}'")
            node.key = operand.decl_type.keys.get(node.field, node.field)
            return found.type
        if operand.name in ("dyn", "!error!") or operand.kind == "variable":
            return DYN
        return self._report(node, f"type '{operand}' does not support field selection")

    def _list(self, node: ListNode) -> Type:
        item: Type | None = None
        for index, part in enumerate(node.items):
            found = self.check(part)
            if index in node.optional:
                found = self._substitution.resolve(found)
                found = found.params[0] if found.name == "optional_type" else DYN
            item = self._joined_type(item, found, part)
        return list_of(item if item is not None else self._substitution.fresh_variable())

    def _map(self, node: MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for name, part, optional in node.entries:
            key = self._joined_type(key, self.check(name), name)
            found = self.check(part)
            if optional:
                found = self._substitution.resolve(found)
                found = found.params[0] if found.name == "optional_type" else DYN
            value = self._joined_type(value, found, part)
        return map_of(
            key if key is not None else self._substitution.fresh_variable(),
            value if value is not None else self._substitution.fresh_variable(),
        )

    def _joined_type(self, known: Type | None, found: Type, node: Node) -> Type:
        if known is None:
            return found
        if self._substitution.assign_all([known], [found]):
            return DYN if DYN in (known, found) else known
        wanted, given = self._substitution.resolve(known), self._substitution.resolve(found)
        self._report(node, f"expected type '{wanted}' but found '{given}'")
        return known

    # -- calls ------------------------------------------------------------------------------

    def _call(self, node: Call) -> Type:
        if node.target is not None:
            prefix = self._qualified(node.target)
            if prefix and f"{prefix}.{node.function}" in self._functions:
                node.function, node.target = f"{prefix}.{node.function}", None
        args = [*([node.target] if node.target is not None else []), *node.args]
        given = [self._substitution.resolve(self.check(arg)) for arg in args]
        special = self._operator(node, given)
        if special is not None:
            return special
        known = [
            overload
            for overload in self._functions.get(node.function, ())
            if overload.member == (node.target is not None)
        ]
        if node.function not in self._functions:
            return self._report(
                node, f"undeclared reference to '{node.function}' (in container '')"
            )
        return self._resolve(node, known, given)

    def _operator(self, node: Call, given: list[Type]) -> Type | None:
        """The type of an operator that is not a function: logic, conditional, optional access."""
        if node.function in _LOGIC:
            for arg, type_ in zip(node.args, given, strict=True):
                if not self._substitution.assign_all([BOOL], [type_]):
                    self._report(arg, f"expected type 'bool' but found '{type_}'")
            node.overloads = [_LOGIC[node.function]]
            return BOOL
        if node.function == "_?_:_":
            node.overloads = ["conditional"]
            if self._substitution.assign_all([BOOL], given[:1]) and self._substitution.assign_all(
                [given[1]], [given[2]]
            ):
                return DYN if DYN in given[1:] else given[1]
            return self._no_overload(node, given)
        if node.function in ("_?._", "_[?_]"):
            return self._optional_access(node, given)
        if node.function == "_[_]" and given and given[0].name == "optional_type":
            return self._optional_access(node, given)
        return None

    def _optional_access(self, node: Call, given: list[Type]) -> Type:
        operand = given[0]
        if operand.name == "optional_type":
            operand = self._substitution.resolve(operand.params[0])
        node.overloads = ["optional_part"]
        if node.function == "_?._":
            field = node.args[1]
            assert isinstance(field, Literal)
            select = Select(node.position, node.args[0], str(field.value))
            found = self._field(select, operand)
            field.value = select.key
            return found if found is ERROR else optional_of(found)
        if operand.name == "map" and operand.params:
            if self._substitution.assign_all([operand.params[0]], given[1:]):
                return optional_of(operand.params[1])
        elif operand.name == "list" and operand.params:
            if self._substitution.assign_all([INT], given[1:]):
                return optional_of(operand.params[0])
        elif operand.name == "dyn" or operand.kind == "variable":
            return optional_of(DYN)
        return self._no_overload(node, given)

    def _resolve(self, node: Call, known: list[Overload], given: list[Type]) -> Type:
        result: Type | None = None
        node.overloads = []
        for overload in known:
            names: dict[str, Type] = {}
            wanted = [self._substitution.instantiate(param, names) for param in overload.params]
            if not self._substitution.assign_all(wanted, given):
                continue
            node.overloads.append(overload.id)
            found = self._substitution.resolve(
                self._substitution.instantiate(overload.result, names)
            )
            result = found if result is None or result == found else DYN
        if result is None:
            return self._no_overload(node, given)
        return result

    def _no_overload(self, node: Call, given: list[Type]) -> Type:
        if ERROR in given:
            return ERROR
        shown = [str(self._substitution.resolve(type_, unbound_as_dyn=True)) for type_ in given]
        listed = f"({', '.join(shown)})"
        if node.target is not None:
            listed = f"{shown[0]}.({', '.join(shown[1:])})"
        return self._report(
            node, f"found no matching overload for '{node.function}' applied to '{listed}'"
        )

    # -- loops ------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension) -> Type:
        over = self._substitution.resolve(self.check(node.range))
        accumulated = self.check(node.init)
        scope: dict[str, Type] = {node.accumulator: accumulated}
        self._scopes.append(scope)
        scope.update(zip(node.variables, self._variable_types(node, over), strict=True))
        self._expect(node.condition, BOOL)
        self._expect(node.step, accumulated)
        for name in node.variables:
            scope.pop(name, None)
        result = self.check(node.result)
        self._scopes.pop()
        return self._substitution.resolve(result)

    def _variable_types(self, node: Comprehension, over: Type) -> list[Type]:
        two = len(node.variables) == 2
        if over.name == "list" and over.params:
            return [INT, over.params[0]] if two else [over.params[0]]
        if over.name == "map" and over.params:
            return list(over.params) if two else [over.params[0]]
        if over.name not in ("dyn", "!error!") and over.kind != "variable":
            self._report(
                node.range,
                f"expression of type '{over}' cannot be range of a comprehension (must be list, "
                "map, or dynamic)",
            )
        return [DYN] * len(node.variables)

    def _expect(self, node: Node, wanted: Type) -> None:
        found = self.check(node)
        if not self._substitution.assign_all([wanted], [found]):
            expected, given = self._substitution.resolve(wanted), self._substitution.resolve(found)
            self._report(node, f"expected type '{expected}' but found '{given}'")


def _check_literals(root: Node, problems: list[Problem]) -> None:
    """Report invalid string literals for patterns, durations and timestamps."""
    for call in walk(root):
        if isinstance(call, Call):
            arg = call.args[-1] if call.args else None
            if isinstance(arg, Literal) and isinstance(arg.value, str):
                _check_text(call, arg.value, arg, problems)


def _check_text(node: Call, text: str, arg: Literal, problems: list[Problem]) -> None:
    try:
        match node.function:
            case "matches":
                go_pattern(text)
            case "duration" if node.target is None:
                Duration.parse(text)
            case "timestamp" if node.target is None:
                Timestamp.parse(text)
            case _:
                return
    except (GoPatternError, CelError):
        problems.append(Problem(arg.position, f"invalid {node.function} argument"))
