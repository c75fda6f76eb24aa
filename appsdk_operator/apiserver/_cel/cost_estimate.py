"""The upper bound of what an expression costs, given the size limits of a schema.

The numbers are those of cel-go and Kubernetes. They are part of the API: a definition whose rules
may cost too much is refused.
"""

from __future__ import annotations

import math
from typing import Final, final

from appsdk_operator.apiserver._cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from appsdk_operator.apiserver._cel.types import DeclType, Type

__all__ = ["RULE_COST_LIMIT", "UNBOUNDED", "estimate_cost", "saturating_product"]

UNBOUNDED: Final = 2**64 - 1
"""The bound of a size or cost without a limit."""
RULE_COST_LIMIT: Final = 10_000_000
"""The most that one rule may cost."""
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_FORMAT_REGEX: Final = 128
_Local = tuple[DeclType | None, int | None]
_SCALARS: Final = ("bool", "double", "duration", "int", "timestamp", "uint")
_COMPARISONS: Final = ("_<_", "_<=_", "_>_", "_>=_")


def saturating_product(one: int, two: int) -> int:
    """The product, at most ``UNBOUNDED``."""
    return min(one * two, UNBOUNDED)


def _scaled(amount: int, factor: float) -> int:
    return UNBOUNDED if amount * factor >= UNBOUNDED else math.ceil(amount * factor)


def estimate_cost(root: Node, decl_type: DeclType) -> int:
    """The most that evaluation of the expression can cost; ``decl_type`` declares ``self``."""
    return _Estimate(decl_type).cost(root)


@final
class _Estimate:
    def __init__(self, decl_type: DeclType) -> None:
        self._root = decl_type
        self._declarations: dict[int, DeclType | None] = {}
        self._sizes: dict[int, int] = {}
        self._entry_sizes: dict[int, tuple[int, int]] = {}
        self._locals: list[tuple[str, DeclType | None, int | None, Node | None]] = []

    # -- sizes ------------------------------------------------------------------------------

    def size(self, node: Node) -> int:
        """The most characters, bytes, items or entries of a value."""
        known = self._known_size(node)
        return UNBOUNDED if known is None else known

    def _known_size(self, node: Node) -> int | None:
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        match node:
            case Literal(value=str() | bytes()):
                return len(node.value)
            case Literal():
                return 1
            case ListNode(items=items):
                return len(items)
            case MapNode(entries=entries):
                return len(entries)
            case _:
                pass
        declaration = self._declaration(node)
        if declaration is not None:
            return declaration.max_elements
        if self._is_scalar(node.type):
            return 1
        local = self._local(node)
        return local[2] if local is not None else None

    def _is_scalar(self, type_: Type) -> bool:
        if type_.name == "optional_type" and type_.params:
            return self._is_scalar(type_.params[0])
        return type_.name in _SCALARS

    def _local(self, node: Node) -> tuple[str, DeclType | None, int | None, Node | None] | None:
        if isinstance(node, Ident):
            for local in reversed(self._locals):
                if local[0] == node.name:
                    return local
        return None

    def _declaration(self, node: Node) -> DeclType | None:
        """The declared type of a value, from the schema."""
        if isinstance(node, Ident):
            local = self._local(node)
            if local is not None:
                return local[1]
            # Like Kubernetes, treat every name that is not a loop variable as ``self``.
            return self._root
        return self._declarations.get(id(node))

    def _entry_size(self, node: Node) -> tuple[int, int] | None:
        """The most that keys and values of a list or map made by the expression can hold."""
        if id(node) in self._entry_sizes:
            return self._entry_sizes[id(node)]
        local = self._local(node)
        if local is not None and local[3] is not None:
            return self._entry_sizes.get(id(local[3]))
        return None

    # -- costs ------------------------------------------------------------------------------

    def cost(self, node: Node) -> int:
        """The most that evaluation of a node can cost."""
        return min(self._cost(node), UNBOUNDED)

    def _cost(self, node: Node) -> int:
        match node:
            case Ident():
                return 1
            case Select():
                return self._select(node)
            case ListNode(items=items):
                total = 10 + sum(map(self.cost, items))
                self._entry_sizes[id(node)] = (1, max(map(self.size, items), default=0))
                return total
            case MapNode(entries=entries):
                total = 30 + sum(self.cost(k) + self.cost(v) for k, v, _ in entries)
                self._entry_sizes[id(node)] = (
                    max((self.size(key) for key, _, _ in entries), default=0),
                    max((self.size(value) for _, value, _ in entries), default=0),
                )
                return total
            case Comprehension():
                return self._bind(node) if node.macro == "bind" else self._loop(node)
            case Call():
                return self._call(node)
            case _:
                return 0

    def _select(self, node: Select) -> int:
        total = self.cost(node.operand)
        if node.test:
            return total
        declaration = self._declaration(node.operand)
        self._declarations[id(node)] = (
            declaration.fields.get(node.field) if declaration is not None else None
        )
        type_ = node.operand.type
        return total + (type_.name in ("map", "dyn") or type_.kind == "object")

    def _bind(self, node: Comprehension) -> int:
        total = self.cost(node.range) + self.cost(node.init)
        local = (
            node.accumulator,
            self._declaration(node.init),
            self._known_size(node.init),
            node.init,
        )
        self._locals.append(local)
        total += self.cost(node.result)
        self._locals.pop()
        known = self._known_size(node.result)
        if known is not None:
            self._sizes[id(node)] = known
        return total

    def _loop(self, node: Comprehension) -> int:
        total = self.cost(node.range) + self.cost(node.init)
        depth = len(self._locals)
        size = self._known_size(node.init)
        self._locals.append((node.accumulator, None, size, node.init))
        declaration, entry = self._declaration(node.range), self._entry_size(node.range)
        is_list = node.range.type.name == "list"
        key: _Local = (None, entry[0] if entry else None)
        value: _Local = (declaration.element if declaration else None, entry[1] if entry else None)
        if not is_list and declaration is not None:
            key = (declaration.key, key[1])
        chosen = (key, value) if len(node.variables) == 2 else (value if is_list else key,)
        for name, (where, count) in zip(node.variables, chosen, strict=True):
            self._locals.append((name, where, count, None))
        each = self.cost(node.condition) + self.cost(node.step)
        del self._locals[depth + 1 :]
        total += self.cost(node.result)
        self._locals.pop()
        count = self.size(node.range)
        if isinstance(node.init, Literal):
            self._sizes[id(node)] = 1
        else:
            self._sizes[id(node)] = count
            step_entry = self._entry_size(node.step)
            if step_entry is not None:
                self._entry_sizes[id(node)] = step_entry
        return total + saturating_product(count, min(each, UNBOUNDED))

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            total = 1 + self.cost(node.args[0])
            known = self._known_size(node.args[0])
            if known is not None:
                self._sizes[id(node)] = known
            return total
        costs = [self.cost(arg) for arg in node.args]
        total = self.cost(node.target) if node.target is not None else 0
        if node.function == "_?_:_":
            return total + self._conditional(node, costs)
        own, size = self._function(node)
        if node.function == "_[_]":
            declaration = self._declaration(node.args[0])
            self._declarations[id(node)] = declaration.element if declaration is not None else None
            entry = self._entry_size(node.args[0])
            size = entry[1] if entry is not None else None
        if size is None:
            size = self._known_size(node)
        if size is not None:
            self._sizes[id(node)] = size
        return total + own + sum(costs)

    def _conditional(self, node: Call, costs: list[int]) -> int:
        first, second = self._entry_size(node.args[1]), self._entry_size(node.args[2])
        if first is not None and second is not None:
            self._entry_sizes[id(node)] = (max(first[0], second[0]), max(first[1], second[1]))
        self._sizes[id(node)] = max(self.size(node.args[1]), self.size(node.args[2]))
        return costs[0] + max(costs[1], costs[2])

    def _function(self, node: Call) -> tuple[int, int | None]:
        """The cost of the call itself, and the size of its result if known."""
        name, args, target = node.function, node.args, node.target
        if name in ("_&&_", "_||_"):
            return 0, None
        if name == "_+_":
            return self._plus(node)
        if name in ("_==_", "_!=_", *_COMPARISONS):
            return self._comparison(node)
        if name == "@in" and "in_list" in node.overloads:
            return self.size(args[1]), None
        if name in ("startsWith", "endsWith"):
            return _scaled(self.size(args[0]), _TRAVERSAL), None
        if name == "contains" and target is not None:
            one, two = (_scaled(self.size(n), _TRAVERSAL) for n in (target, args[0]))
            return saturating_product(one, two), None
        if name in ("matches", "find", "findAll") and target is not None:
            own = saturating_product(
                _scaled(min(self.size(target) + 1, UNBOUNDED), _TRAVERSAL),
                _scaled(self.size(args[0]), _REGEX),
            )
            return own, self.size(target) if name != "matches" else None
        if target is not None:
            return self._method(node, target)
        return self._global(node)

    def _plus(self, node: Call) -> tuple[int, int | None]:
        if not {"add_string", "add_bytes", "add_list"} & set(node.overloads):
            return 1, None
        size = min(self.size(node.args[0]) + self.size(node.args[1]), UNBOUNDED)
        first, second = self._entry_size(node.args[0]), self._entry_size(node.args[1])
        if first is not None and second is not None:
            self._entry_sizes[id(node)] = (max(first[0], second[0]), max(first[1], second[1]))
        return (1 if node.overloads == ["add_list"] else _scaled(size, _TRAVERSAL)), size

    def _comparison(self, node: Call) -> tuple[int, int | None]:
        one, two = node.args
        if one.type.name in ("net.IP", "net.CIDR") or (
            one.type.kind == "opaque" and one.type == two.type
        ):
            return 1, None
        if node.function in _COMPARISONS and one.type.name not in ("string", "bytes", "dyn"):
            return 1, None
        return _scaled(min(self.size(one), self.size(two)), _TRAVERSAL), None

    def _method(self, node: Call, target: Node) -> tuple[int, int | None]:
        size = self.size(target)
        match node.function:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf":
                return self._list_method(target, size), None
            case "lowerAscii" | "upperAscii" | "substring" | "trim":
                return _scaled(size, _TRAVERSAL), size
            case "replace":
                return _scaled(size, 2 * _TRAVERSAL), self._replaced(node, size)
            case "split":
                limit = node.args[1] if len(node.args) > 1 else None
                count = limit.value if isinstance(limit, Literal) else size
                return _scaled(size, 2 * _TRAVERSAL), count
            case "join":
                declaration = self._declaration(target)
                item = (
                    declaration.element.max_elements
                    if declaration and declaration.element
                    else UNBOUNDED
                )
                made = saturating_product(size, item)
                if node.args:
                    made += saturating_product(self.size(node.args[0]), max(size - 1, 0))
                made = min(made, UNBOUNDED)
                return _scaled(made, _TRAVERSAL), made
            case "validate":
                text = _scaled(self.size(node.args[0]), _TRAVERSAL)
                return _scaled(text, _FORMAT_REGEX * _REGEX), None
            case "format":
                return _scaled(size, _TRAVERSAL), None
            case "containsIP" | "containsCIDR":
                own = 4 if node.function == "containsIP" else 7
                if node.args[0].type.name == "string":
                    own += _scaled(self.size(node.args[0]), _TRAVERSAL)
                return own, None
            case _:
                return 1, None

    def _list_method(self, target: Node, size: int) -> int:
        if target.type.name != "list" or not target.type.params:
            return _scaled(size, _TRAVERSAL)
        each = 1
        if target.type.params[0].name in ("string", "bytes"):
            declaration = self._declaration(target)
            item = (
                declaration.element.max_elements
                if declaration and declaration.element
                else UNBOUNDED
            )
            each = min(each + _scaled(item, _TRAVERSAL), UNBOUNDED)
        return saturating_product(size, each)

    def _replaced(self, node: Call, size: int) -> int:
        old, new = node.args[0], node.args[1]
        shortest = self._shortest(old)
        longest = self.size(new)
        if shortest == 0:
            return min(saturating_product(min(size + 1, UNBOUNDED), longest) + size, UNBOUNDED)
        if longest <= shortest:
            return size
        return saturating_product(math.ceil(size / shortest), longest)

    @staticmethod
    def _shortest(node: Node) -> int:
        return len(node.value) if isinstance(node, Literal) else 0

    def _global(self, node: Call) -> tuple[int, int | None]:
        size = self.size(node.args[0]) if node.args else 0
        match node.function:
            case "url":
                return _scaled(size, _TRAVERSAL), size
            case "ip.isCanonical":
                return _scaled(size, 2 * _TRAVERSAL), None
            case "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver":
                return _scaled(size, _TRAVERSAL), None
            case "isSemver":
                return _scaled(size, _TRAVERSAL), None
            case "bytes" if "string_to_bytes" in node.overloads:
                return _scaled(size, _TRAVERSAL), saturating_product(size, 4)
            case "string" if "bytes_to_string" in node.overloads:
                return _scaled(size, _TRAVERSAL), size
            case "strings.quote":
                return _scaled(size, _TRAVERSAL), min(size * 2 + 2, UNBOUNDED)
            case _:
                return 1, None
