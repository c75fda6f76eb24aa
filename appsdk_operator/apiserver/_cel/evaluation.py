"""Evaluation: turns a checked syntax tree into nested functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.apiserver._cel.function_table import functions
from appsdk_operator.apiserver._cel.overloads import Overload, dispatch, guarded
from appsdk_operator.apiserver._cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    children,
)
from appsdk_operator.apiserver._cel.types import TYPE_NAMES
from appsdk_operator.apiserver._cel.values import (
    NONE,
    CelError,
    Optional,
    TypeValue,
    no_such_overload,
)

Env = dict[str, Any]
Evaluator = Callable[[Env], Any]
"""From the variables to the value. Raises :class:`CelError` if the evaluation fails."""

COST_VARIABLE: Final = "@cost"
"""The name under which the variables hold the cost: a list of units spent and the limit."""


def base_cost(root: Node) -> int:
    """The cost of one evaluation without the iterations of its loops."""
    known: dict[int, int] = {}

    def cost(node: Node) -> int:
        if id(node) in known:
            return known[id(node)]
        own = 0 if isinstance(node, Literal) else 1
        if isinstance(node, ListNode):
            own = 10
        elif isinstance(node, MapNode):
            own = 30
        counted = (node.range,) if isinstance(node, Comprehension) else children(node)
        known[id(node)] = made = own + sum(map(cost, counted))
        return made

    return cost(root)


def evaluator(node: Node) -> Evaluator:
    """The function that evaluates a checked node."""
    match node:
        case Literal(value=value):
            return lambda _env: value
        case Ident():
            return _ident(node)
        case Select():
            return _select(node)
        case ListNode():
            return _list(node)
        case MapNode():
            return _map(node)
        case Comprehension():
            return _comprehension(node)
        case Call(macro=macro) if macro:
            return _of_optional(node)
        case Call():
            return _call(node)
        case _:
            raise AssertionError(node)


def _ident(node: Ident) -> Evaluator:
    name = node.name.removeprefix(".")
    if node.type.name == "type" and name in TYPE_NAMES:
        value = TypeValue(name)
        return lambda _env: value

    def evaluate(env: Env) -> Any:
        try:
            return env[name]
        except KeyError:
            raise CelError(f"no such attribute(s): {name}") from None

    return evaluate


def _dotted(node: Node) -> str:
    if isinstance(node, Select):
        return f"{_dotted(node.operand)}.{node.field}"
    return node.name if isinstance(node, Ident) else ""


def _select(node: Select) -> Evaluator:
    name = _dotted(node)
    if node.type.name == "type" and name in TYPE_NAMES:
        found = TypeValue(name)
        return lambda _env: found
    operand, key, test = evaluator(node.operand), node.key or node.field, node.test

    def evaluate(env: Env) -> Any:
        value = operand(env)
        if isinstance(value, dict):
            if test:
                return key in value
            try:
                return value[key]
            except KeyError:
                raise CelError(f"no such key: {key}") from None
        if isinstance(value, Optional):
            inner = value.value
            found = value.has_value and isinstance(inner, dict) and key in inner
            if test:
                return found
            return Optional(inner[key]) if found else NONE
        raise no_such_overload()

    return evaluate


def _list(node: ListNode) -> Evaluator:
    items = [evaluator(item) for item in node.items]
    optional = node.optional
    if not optional:
        return lambda env: [item(env) for item in items]

    def evaluate(env: Env) -> Any:
        made: list[Any] = []
        for index, item in enumerate(items):
            value = item(env)
            if index not in optional:
                made.append(value)
            elif value.has_value:
                made.append(value.value)
        return made

    return guarded(evaluate)


def _map(node: MapNode) -> Evaluator:
    entries = [(evaluator(key), evaluator(value), opt) for key, value, opt in node.entries]

    def evaluate(env: Env) -> Any:
        made: dict[Any, Any] = {}
        for key, value, optional in entries:
            name, found = key(env), value(env)
            if name in made:
                raise CelError(f"insert failed: key {name} already exists")
            if not optional:
                made[name] = found
            elif found.has_value:
                made[name] = found.value
        return made

    return guarded(evaluate)


# -- calls ---------------------------------------------------------------------------------


def _call(node: Call) -> Evaluator:
    args = [evaluator(arg) for arg in node.args]
    match node.function:
        case "_&&_":
            return _logic(args[0], args[1], decides=False)
        case "_||_":
            return _logic(args[0], args[1], decides=True)
        case "_?_:_":
            return _conditional(*args)
        case "@not_strictly_false":
            return _not_strictly_false(args[0])
        case "_?._" | "_[?_]":
            return _optional_access(args[0], args[1])
        case "_[_]" if node.overloads == ["optional_part"]:
            return _optional_access(args[0], args[1])
        case _:
            return _function(node, args)


def _function(node: Call, args: list[Evaluator]) -> Evaluator:
    parts = [*([evaluator(node.target)] if node.target is not None else []), *args]
    chosen = [o for o in functions()[node.function] if o.id in node.overloads]
    given = [*([node.target] if node.target is not None else []), *node.args]
    call = chosen[0].call if _is_static(chosen, given) else dispatch(chosen)
    if len(parts) == 1:
        one = parts[0]
        return lambda env: call(one(env))
    if len(parts) == 2:
        first, second = parts
        return lambda env: call(first(env), second(env))
    return lambda env: call(*[part(env) for part in parts])


def _is_static(chosen: list[Overload], given: list[Node]) -> bool:
    """Whether the static types alone decide the overload."""
    return len(chosen) == 1 and all(
        arg.type.name != "dyn" or param.kind == "variable" or param.name == "dyn"
        for arg, param in zip(given, chosen[0].params, strict=True)
    )


def _logic(left: Evaluator, right: Evaluator, *, decides: bool) -> Evaluator:
    """``&&`` and ``||``: a deciding side wins even if the other side fails."""

    def evaluate(env: Env) -> Any:
        failed: CelError | None = None
        for side in (left, right):
            try:
                value = side(env)
            except CelError as error:
                failed = failed or error
                continue
            if value is decides:
                return decides
            if not isinstance(value, bool):
                failed = failed or no_such_overload()
        if failed is not None:
            raise failed
        return not decides

    return evaluate


def _conditional(condition: Evaluator, first: Evaluator, second: Evaluator) -> Evaluator:
    def evaluate(env: Env) -> Any:
        value = condition(env)
        return first(env) if _boolean(value) else second(env)

    return evaluate


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no_such_overload()
    return value


def _of_optional(node: Call) -> Evaluator:
    """``optMap`` and ``optFlatMap``. The target, which occurs twice, is evaluated once."""
    made = node.args[1]
    if node.macro == "optMap":
        assert isinstance(made, Call)
        made = made.args[0]
    assert isinstance(made, Comprehension)
    assert isinstance(made.init, Call)
    assert made.init.target is not None
    target, name, body = evaluator(made.init.target), made.accumulator, evaluator(made.result)
    wraps = node.macro == "optMap"

    def evaluate(env: Env) -> Any:
        value = target(env)
        if not isinstance(value, Optional):
            raise no_such_overload()
        if not value.has_value:
            return NONE
        found = body({**env, name: value.value})
        return Optional(found) if wraps else found

    return evaluate


def _not_strictly_false(arg: Evaluator) -> Evaluator:
    def evaluate(env: Env) -> Any:
        try:
            return arg(env) is not False
        except CelError:
            return True

    return evaluate


def _optional_access(operand: Evaluator, key: Evaluator) -> Evaluator:
    def evaluate(env: Env) -> Any:
        value = operand(env)
        if isinstance(value, Optional):
            if not value.has_value:
                return NONE
            value = value.value
        name = key(env)
        if isinstance(value, list):
            return Optional(value[name]) if 0 <= name < len(value) else NONE
        if not isinstance(value, dict):
            raise no_such_overload()
        return Optional(value[name]) if name in value else NONE

    return guarded(evaluate)


# -- loops ---------------------------------------------------------------------------------


def _comprehension(node: Comprehension) -> Evaluator:
    over = evaluator(node.range)
    unit = base_cost(node.step) + base_cost(node.condition)
    variables = node.variables
    run = _LOOPS[node.macro](node)

    def evaluate(env: Env) -> Any:
        where = over(env)
        items: list[tuple[Any, ...]]
        if isinstance(where, list):
            items = list(enumerate(where)) if len(variables) == 2 else [(w,) for w in where]
        elif isinstance(where, dict):
            items = list(where.items()) if len(variables) == 2 else [(w,) for w in where]
        else:
            raise no_such_overload()
        scope = dict(env)
        cost = env.get(COST_VARIABLE)

        def iterations() -> Any:
            for item in items:
                if cost is not None:
                    cost[0] += unit
                    if cost[0] > cost[1]:
                        raise CelError("operation cancelled: actual cost limit exceeded")
                scope.update(zip(variables, item, strict=True))
                yield item, scope

        return run(iterations())

    return guarded(evaluate)


Iterations = Any


def _body(node: Comprehension) -> tuple[Evaluator | None, Evaluator]:
    """The filter and the body that the macro was given."""
    step = node.step
    condition = None
    if isinstance(step, Call) and step.function == "_?_:_":
        condition, step = evaluator(step.args[0]), step.args[1]
    assert isinstance(step, Call)
    part = step.args[-1]
    if isinstance(part, ListNode):
        part = part.items[0]
    return condition, evaluator(part)


def _quantifier(node: Comprehension, *, decides: bool) -> Callable[[Iterations], Any]:
    _, body = _body(node)

    def run(iterations: Iterations) -> Any:
        failed: CelError | None = None
        for _item, scope in iterations:
            try:
                value = body(scope)
            except CelError as error:
                if str(error).startswith("operation cancelled"):
                    raise
                failed = failed or error
                continue
            if value is decides:
                return decides
            if not isinstance(value, bool):
                failed = failed or no_such_overload()
        if failed is not None:
            raise failed
        return not decides

    return run


def _exists_one(node: Comprehension) -> Callable[[Iterations], Any]:
    assert isinstance(node.step, Call)
    body = evaluator(node.step.args[0])
    return lambda iterations: sum(_boolean(body(scope)) for _item, scope in iterations) == 1


def _collect(node: Comprehension) -> Callable[[Iterations], Any]:
    condition, body = _body(node)
    if condition is None:
        return lambda iterations: [body(scope) for _item, scope in iterations]
    test = condition
    return lambda iterations: [body(scope) for _item, scope in iterations if _boolean(test(scope))]


def _collect_map(node: Comprehension) -> Callable[[Iterations], Any]:
    condition, body = _body(node)
    is_entry = node.macro == "transformMapEntry"

    def run(iterations: Iterations) -> Any:
        made: dict[Any, Any] = {}
        for item, scope in iterations:
            if condition is not None and not _boolean(condition(scope)):
                continue
            value = body(scope)
            for key, entry in value.items() if is_entry else ((item[0], value),):
                if key in made:
                    raise CelError(f"insert failed: key {key} already exists")
                made[key] = entry
        return made

    return run


_LOOPS: Final[dict[str, Callable[[Comprehension], Callable[[Iterations], Any]]]] = {
    "all": lambda node: _quantifier(node, decides=False),
    "exists": lambda node: _quantifier(node, decides=True),
    "exists_one": _exists_one,
    "existsOne": _exists_one,
    "map": _collect,
    "filter": _collect,
    "transformList": _collect,
    "transformMap": _collect_map,
    "transformMapEntry": _collect_map,
}
