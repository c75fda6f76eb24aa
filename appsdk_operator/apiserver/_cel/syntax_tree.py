"""The syntax tree of CEL expressions, and problems at positions of their text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.types import DYN, Type

MAX_PROBLEMS: Final = 100
"""The most problems of an expression that are reported, as in cel-go."""


@final
@attrs.frozen
class Problem:
    """A problem at a position of an expression; -1 stands for none."""

    position: int
    message: str


def format_problems(source: str, problems: list[Problem]) -> str:
    """Format the first problems as cel-go does, each with its line of the expression."""
    texts: list[str] = []
    shown = problems[:MAX_PROBLEMS]
    for problem in sorted(shown, key=lambda problem: problem.position):
        if problem.position < 0:
            texts.append(f"ERROR: <input>:-1:0: {problem.message}")
            continue
        start = source.rfind("\n", 0, problem.position) + 1
        end = source.find("\n", start)
        line = source[start : end if end >= 0 else len(source)].replace("\t", " ")
        number, column = source.count("\n", 0, problem.position) + 1, problem.position - start
        texts.append(
            f"ERROR: <input>:{number}:{column + 1}: {problem.message}\n"
            f" | {line}\n | {'.' * column}^"
        )
    if len(problems) > len(shown):
        texts.append(f"{len(problems) - len(shown)} more errors were truncated")
    return "\n".join(texts)


@attrs.define(eq=False)
class Node:
    """A node of the tree. The checker sets its type."""

    position: int
    type: Type = attrs.field(default=DYN, init=False)


@final
@attrs.define(eq=False)
class Literal(Node):
    """A literal."""

    value: Any
    of: Type


@final
@attrs.define(eq=False)
class Ident(Node):
    """An identifier."""

    name: str


@final
@attrs.define(eq=False)
class Select(Node):
    """A field selection; ``test`` for ``has()``, which asks only whether the field is set."""

    operand: Node
    field: str
    test: bool = False
    key: str = attrs.field(default="", init=False)


@final
@attrs.define(eq=False)
class Call(Node):
    """A call of a function, an operator or a method."""

    function: str
    target: Node | None
    args: list[Node]
    macro: str = ""
    """The macro that expanded to it, if evaluation treats it specially."""
    overloads: list[str] = attrs.field(factory=list, init=False)


@final
@attrs.define(eq=False)
class ListNode(Node):
    """A list literal; ``optional`` holds the positions of ``?`` items."""

    items: list[Node]
    optional: frozenset[int] = frozenset()


@final
@attrs.define(eq=False)
class MapNode(Node):
    """A map literal: keys, values, and whether each entry is optional."""

    entries: list[tuple[Node, Node, bool]]


@final
@attrs.define(eq=False)
class Comprehension(Node):
    """A loop over a list or map, to which macros expand."""

    macro: str
    variables: tuple[str, ...]
    range: Node
    accumulator: str
    init: Node
    condition: Node
    step: Node
    result: Node


def children(node: Node) -> Iterator[Node]:
    """The child nodes of a node."""
    match node:
        case Select(operand=operand):
            yield operand
        case Call(target=target, args=args):
            if target is not None:
                yield target
            yield from args
        case ListNode(items=items):
            yield from items
        case MapNode(entries=entries):
            for key, value, _optional in entries:
                yield key
                yield value
        case Comprehension():
            yield from (node.range, node.init, node.condition, node.step, node.result)
        case _:
            pass


def walk(root: Node) -> Iterator[Node]:
    """All nodes of a tree, each once: macros let several nodes share one child."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(children(node))
