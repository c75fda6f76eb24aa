"""The macros of CEL, expanded into comprehensions and tests."""

from __future__ import annotations

from typing import Final

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
)
from appsdk_operator.apiserver._cel.types import BOOL, INT

_ACCUMULATOR: Final = "@result"
_LOOPS: Final = ("all", "exists", "exists_one", "existsOne", "map", "filter")
_TRANSFORMS: Final = ("transformList", "transformMap", "transformMapEntry")
_TWO_VARIABLES: Final = {
    *((name, 3) for name in ("all", "exists", "existsOne", "exists_one")),
    *((name, count) for name in _TRANSFORMS for count in (3, 4)),
}


class MacroError(ValueError):
    """A macro with invalid arguments."""

    def __init__(self, problem: Problem) -> None:
        """``problem`` says where and why."""
        super().__init__(problem.message)
        self.problem = problem


def expand(position: int, name: str, target: Node | None, args: list[Node]) -> Node:
    """The call, or its expansion if it calls a macro."""
    count = len(args)
    if target is None:
        if name == "has" and count == 1:
            return _has(position, args[0])
    elif (name in _LOOPS and count == 2) or (name == "map" and count == 3):
        return _loop(position, name, target, (_variable(args[0]),), args[1:])
    elif (name, count) in _TWO_VARIABLES:
        names = (_variable(args[0]), _variable(args[1]))
        return _loop(position, name, target, names, args[2:])
    elif name in ("optMap", "optFlatMap") and count == 2:
        return _of_optional(position, name, target, _variable(args[0]), args[1])
    return Call(position, name, target, args)


def _has(position: int, arg: Node) -> Node:
    if isinstance(arg, Select) and not arg.test:
        return Select(position, arg.operand, arg.field, test=True)
    raise MacroError(Problem(arg.position, "invalid argument to has() macro"))


def _variable(arg: Node) -> str:
    if isinstance(arg, Ident) and not arg.name.startswith("."):
        return arg.name
    raise MacroError(Problem(arg.position, "argument must be a simple name"))


def _loop(
    position: int, name: str, target: Node, variables: tuple[str, ...], args: list[Node]
) -> Node:
    def accumulator() -> Node:
        return Ident(position, _ACCUMULATOR)

    def call(function: str, *parts: Node) -> Node:
        return Call(position, function, None, list(parts))

    condition: Node = Literal(position, True, BOOL)
    result = accumulator()
    init: Node
    match name:
        case "all":
            init = Literal(position, True, BOOL)
            condition = call("@not_strictly_false", accumulator())
            step = call("_&&_", accumulator(), args[0])
        case "exists":
            init = Literal(position, False, BOOL)
            condition = call("@not_strictly_false", call("!_", accumulator()))
            step = call("_||_", accumulator(), args[0])
        case "exists_one" | "existsOne":
            init = Literal(position, 0, INT)
            more = call("_+_", accumulator(), Literal(position, 1, INT))
            step = call("_?_:_", args[0], more, accumulator())
            result = call("_==_", accumulator(), Literal(position, 1, INT))
        case "transformMap" | "transformMapEntry":
            init = MapNode(position, [])
            made = [accumulator(), args[-1]]
            if name == "transformMap":
                made.insert(1, Ident(position, variables[0]))
            step = call("cel.@mapInsert", *made)
        case _:
            init = ListNode(position, [])
            item = Ident(position, variables[0]) if name == "filter" else args[-1]
            step = call("_+_", accumulator(), ListNode(position, [item]))
    filters = args[:1] if name == "filter" else args[:-1]
    if filters and name in ("filter", "map", *_TRANSFORMS):
        step = call("_?_:_", filters[0], step, accumulator())
    return Comprehension(
        position, name, variables, target, _ACCUMULATOR, init, condition, step, result
    )


def _of_optional(position: int, name: str, target: Node, variable: str, arg: Node) -> Node:
    """Expand ``optMap`` and ``optFlatMap``: bind the value of an optional, if it has one.

    The target occurs twice in the expansion, as in cel-go, whose costs count it twice. It is one
    node: in a chain of n macros copies would make 2**n.
    """
    bound: Node = Comprehension(
        position,
        "bind",
        ("#unused",),
        ListNode(position, []),
        variable,
        Call(position, "value", target, []),
        Literal(position, False, BOOL),
        Ident(position, variable),
        arg,
    )
    if name == "optMap":
        bound = Call(position, "optional.of", None, [bound])
    none = Call(position, "optional.none", None, [])
    has_value = Call(position, "hasValue", target, [])
    return Call(position, "_?_:_", None, [has_value, bound, none], macro=name)
