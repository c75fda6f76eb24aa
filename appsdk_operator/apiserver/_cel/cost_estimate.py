"""The upper bound of what an expression costs, given the size limits of a schema.

The numbers are those of cel-go and Kubernetes. They are part of the API: a definition whose rules
may cost too much is refused.
"""

from __future__ import annotations

import math
from typing import Final, final

import attrs

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

UNBOUNDED: Final = 2**64 - 1
"""The bound of a size or cost without a limit."""
RULE_COST_LIMIT: Final = 10_000_000
"""The most that one rule may cost."""
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_FORMAT_REGEX: Final = 128
_MAX_FORMAT: Final = 64
_NEW_LIST: Final = 11
_SCALARS: Final = ("bool", "double", "duration", "int", "timestamp", "uint")
_COMPARISONS: Final = ("_<_", "_<=_", "_>_", "_>=_")


def saturating_product(one: int, two: int) -> int:
    """The product, at most ``UNBOUNDED``."""
    return min(one * two, UNBOUNDED)


def _scaled(amount: int, factor: float) -> int:
    return UNBOUNDED if amount * factor >= UNBOUNDED else math.ceil(amount * factor)


def _integer(node: Node, otherwise: int) -> int:
    """The value of an integer literal, which counts as zero if it is negative."""
    if isinstance(node, Literal) and isinstance(node.value, int):
        return max(node.value, 0)
    return otherwise


def estimate_cost(root: Node, decl_type: DeclType) -> int:
    """The most that evaluation of the expression can cost; ``decl_type`` declares ``self``."""
    return _Estimate(decl_type).cost(root)


@final
@attrs.frozen
class _Entries:
    """The most that the keys and values of a list or map made by an expression can hold."""

    is_list: bool
    key: int
    value: int

    def joined(self, other: _Entries | None) -> _Entries | None:
        """The bounds of what is one or the other; None if those of the other are unknown."""
        if other is None:
            return None
        return _Entries(self.is_list, max(self.key, other.key), max(self.value, other.value))


@final
class _Path:
    """The steps from a variable to a value in the schema.

    Paths share their storage as cel-go's do, where a longer path is made by appending to a slice:
    while the storage has room, the step goes into it, and replaces the step that another path has
    put there. Sizes that are looked up afterwards are those of the replaced path.
    """

    __slots__ = ("_length", "_steps")

    def __init__(self, steps: list[str], length: int) -> None:
        """The first ``length`` of ``steps``, which may have room for more."""
        self._steps = steps
        self._length = length

    def below(self, step: str) -> _Path:
        """This path and one more step."""
        length, steps = self._length, self._steps
        if length == len(steps):
            steps = [*steps, *[""] * length]
        steps[length] = step
        return _Path(steps, length + 1)

    def declared(self, root: DeclType, *more: str) -> DeclType | None:
        """The type at the end of the path; the first step stands for ``root``."""
        found: DeclType | None = root
        for step in (*self._steps[1 : self._length], *more):
            if found is None:
                break
            match step:
                case "@items" | "@values":
                    found = found.element
                case "@keys":
                    found = found.key
                case _:
                    found = found.fields.get(step)
        return found


def _below(path: _Path | None, step: str) -> _Path:
    return _Path([step], 1) if path is None else path.below(step)


@final
@attrs.frozen
class _Local:
    """A variable of a loop, or the result that a loop collects."""

    path: _Path | None
    size: int | None = None
    entries: _Entries | None = None


@final
class _Estimate:
    def __init__(self, decl_type: DeclType) -> None:
        self._root = decl_type
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, int] = {}
        self._entries: dict[int, _Entries] = {}
        self._costs: dict[int, int] = {}
        self._locals: dict[str, list[_Local]] = {}

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
        path = self._path(node)
        declared = path.declared(self._root) if path is not None else None
        if declared is not None:
            # The size stays, even if another path replaces steps of this one.
            size = self._sizes[id(node)] = declared.max_elements % 2**64
            return size
        if self._is_scalar(node.type):
            return 1
        local = self._local(node)
        return local.size if local is not None else None

    def _is_scalar(self, type_: Type) -> bool:
        if type_.name == "optional_type" and type_.params:
            return self._is_scalar(type_.params[0])
        return type_.name in _SCALARS

    def _local(self, node: Node) -> _Local | None:
        if isinstance(node, Ident):
            found = self._locals.get(node.name)
            return found[-1] if found else None
        return None

    def _entries_of(self, node: Node) -> _Entries | None:
        """The bounds of keys and values, if the expression makes the list or map."""
        if id(node) in self._entries:
            return self._entries[id(node)]
        local = self._local(node)
        return local.entries if local is not None else None

    def _set_entries(self, node: Node, entries: _Entries | None) -> None:
        if entries is not None:
            self._entries[id(node)] = entries

    def _path(self, node: Node) -> _Path | None:
        """The path of a value; None if the expression makes the value."""
        local = self._local(node)
        return self._paths.get(id(node)) if local is None else local.path

    # -- costs ------------------------------------------------------------------------------

    def cost(self, node: Node) -> int:
        """The most that evaluation of a node can cost."""
        known = self._costs.get(id(node))
        if known is None:
            known = self._costs[id(node)] = min(self._cost(node), UNBOUNDED)
        return known

    def _cost(self, node: Node) -> int:
        match node:
            case Ident(name=name):
                if self._local(node) is None:
                    # Every name that is not a loop variable counts as ``self``.
                    self._paths[id(node)] = _Path([name], 1)
                return 1
            case Select():
                return self._select(node)
            case ListNode(items=items):
                known = [self._cost_and_size(item) for item in items]
                most = max((size for _, size in known), default=0)
                self._entries[id(node)] = _Entries(is_list=True, key=1, value=most)
                return 10 + sum(cost for cost, _ in known)
            case MapNode(entries=entries):
                return self._map(node, entries)
            case Comprehension():
                return self._bind(node) if node.macro == "bind" else self._loop(node)
            case Call():
                return self._call(node)
            case _:
                return 0

    def _cost_and_size(self, node: Node) -> tuple[int, int]:
        cost = self.cost(node)
        return cost, self.size(node)

    def _map(self, node: MapNode, entries: list[tuple[Node, Node, bool]]) -> int:
        total, keys, values = 30, 0, 0
        for key, value, _optional in entries:
            total += self.cost(key) + self.cost(value)
            keys, values = max(keys, self.size(key)), max(values, self.size(value))
        self._entries[id(node)] = _Entries(is_list=False, key=keys, value=values)
        return total

    def _select(self, node: Select) -> int:
        total = self.cost(node.operand)
        if node.test:
            return total
        self._paths[id(node)] = _below(self._path(node.operand), node.field)
        type_ = node.operand.type
        return total + (type_.name == "map" or type_.kind == "object")

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _push_value(self, name: str, value: Node) -> None:
        """Add a variable that is bound to a value."""
        local = _Local(self._path(value), self._known_size(value), self._entries_of(value))
        self._push(name, local)

    def _copy_sizes(self, node: Node, source: Node) -> None:
        known = self._known_size(source)
        if known is not None:
            self._sizes[id(node)] = known
        self._set_entries(node, self._entries_of(source))

    def _bind(self, node: Comprehension) -> int:
        total = self.cost(node.range) + self.cost(node.init)
        self._push_value(node.accumulator, node.init)
        total += self.cost(node.result)
        self._locals[node.accumulator].pop()
        self._copy_sizes(node, node.result)
        return total

    def _loop(self, node: Comprehension) -> int:
        total = self.cost(node.range) + self.cost(node.init)
        self._push_value(node.accumulator, node.init)
        path, entries = self._path(node.range), self._entries_of(node.range)
        is_list = node.range.type.name == "list" if entries is None else entries.is_list
        sizes = (None, None) if entries is None else (entries.key, entries.value)
        keys, values = ("@indices", "@items") if is_list else ("@keys", "@values")
        steps = [(keys, sizes[0]), (values, sizes[1])]
        if len(node.variables) == 1:
            del steps[0 if is_list else 1]
        for name, (step, size) in zip(node.variables, steps, strict=True):
            self._push(name, _Local(_below(path, step), size))
        each = self.cost(node.condition) + self.cost(node.step)
        for name in node.variables:
            self._locals[name].pop()
        total += self.cost(node.result)
        self._locals[node.accumulator].pop()
        count = self.size(node.range)
        if isinstance(node.init, Literal):
            self._sizes[id(node)] = 1
        else:
            self._sizes[id(node)] = count
            self._set_entries(node, self._entries_of(node.step))
        return total + saturating_product(count, min(each, UNBOUNDED))

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            total = 1 + self.cost(node.args[0])
            self._copy_sizes(node, node.args[0])
            return total
        costs = [self._cost_and_size(arg)[0] for arg in node.args]
        total = self._cost_and_size(node.target)[0] if node.target is not None else 0
        if node.function == "_?_:_":
            return total + self._conditional(node, costs)
        own, size = self._function(node)
        if node.function == "_[_]" and {"index_list", "index_map"} & set(node.overloads):
            step = "@items" if "index_list" in node.overloads else "@values"
            self._paths[id(node)] = _below(self._path(node.args[0]), step)
            entries = self._entries_of(node.args[0])
            size = entries.value if entries is not None else None
        if size is None:
            size = self._known_size(node)
        if size is not None:
            self._sizes[id(node)] = size
        return total + own + sum(costs)

    def _joined_entries(self, one: Node, two: Node) -> _Entries | None:
        first = self._entries_of(one)
        return None if first is None else first.joined(self._entries_of(two))

    def _conditional(self, node: Call, costs: list[int]) -> int:
        first, second = node.args[1:]
        self._set_entries(node, self._joined_entries(first, second))
        self._sizes[id(node)] = max(self.size(first), self.size(second))
        return costs[0] + max(costs[1:])

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
        self._set_entries(node, self._joined_entries(*node.args))
        return (1 if node.overloads == ["add_list"] else _scaled(size, _TRAVERSAL)), size

    def _comparison(self, node: Call) -> tuple[int, int | None]:
        one, two = node.args
        own = _scaled(min(self.size(one), self.size(two)), _TRAVERSAL)
        if node.function == "_==_" and one.type.kind == "opaque" and one.type == two.type:
            match one.type.name:
                case "kubernetes.NamedFormat":
                    return _scaled(_MAX_FORMAT, _TRAVERSAL), None
                case "kubernetes.URL":
                    known = self._known_size(two)
                    return _scaled(1 if known is None else known, _TRAVERSAL), None
                case _:
                    return 1, None
        if node.function not in _COMPARISONS:
            return own, None
        sized = sum(overload.endswith(("_string", "_bytes")) for overload in node.overloads)
        # Of several overloads, the most expensive one counts.
        return max(own if sized else 1, 1 if sized < len(node.overloads) else 0), None

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
                count = limit.value % 2**64 if isinstance(limit, Literal) else size
                return _scaled(size, 2 * _TRAVERSAL), count
            case "join":
                made = saturating_product(size, self._item_size(target))
                if node.args:
                    made += saturating_product(self.size(node.args[0]), max(size - 1, 0))
                made = min(made, UNBOUNDED)
                return _scaled(made, _TRAVERSAL), made
            case "slice" | "flatten" | "reverse" | "distinct" | "sort" if (
                target.type.name == "list"
            ):
                return self._new_list(node, target, size)
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

    def _new_list(self, node: Call, target: Node, size: int) -> tuple[int, int]:
        """The cost of a method that makes a list, and the size that cel-go takes for its result."""
        factor = 1.0
        match node.function:
            case "slice":
                size = (_integer(node.args[1], size) - _integer(node.args[0], 0)) % 2**64
            case "flatten" if node.args:
                factor = _integer(node.args[0], UNBOUNDED)
            case "distinct" | "sort":
                size = saturating_product(size, size)
                factor = 2.0
                texts = target.type.params and target.type.params[0].name in ("string", "bytes")
                if node.function == "sort" and texts:
                    factor += _TRAVERSAL
            case _:
                pass
        return min(_scaled(size, factor) + _NEW_LIST, UNBOUNDED), size

    def _list_method(self, target: Node, size: int) -> int:
        if target.type.name != "list" or not target.type.params:
            return _scaled(size, _TRAVERSAL)
        each = 1
        if target.type.params[0].name in ("string", "bytes"):
            each = min(each + _scaled(self._item_size(target), _TRAVERSAL), UNBOUNDED)
        return saturating_product(size, each)

    def _item_size(self, target: Node) -> int:
        """The most that an item of a list can hold, if the list comes from the schema."""
        path = self._path(target)
        item = path.declared(self._root, "@items") if path is not None else None
        return UNBOUNDED if item is None else item.max_elements % 2**64

    def _replaced(self, node: Call, size: int) -> int:
        old, new = node.args[0], node.args[1]
        shortest = self._shortest(old)
        longest = self.size(new)
        if shortest == 0:
            return min(saturating_product(min(size + 1, UNBOUNDED), longest) + size, UNBOUNDED)
        if longest <= shortest:
            return size
        return saturating_product(math.ceil(size / shortest), longest)

    def _shortest(self, node: Node) -> int:
        """The least characters of a text."""
        match node:
            case Literal():
                return len(node.value)
            case Call(function="_?_:_", args=[_, one, two]):
                return min(self._shortest(one), self._shortest(two))
            case Call(function="_+_", args=[one, two]):
                return self._shortest(one) + self._shortest(two)
            case _:
                return 0

    def _global(self, node: Call) -> tuple[int, int | None]:
        size = self.size(node.args[0]) if node.args else 0
        match node.function:
            case "lists.range":
                count = _integer(node.args[0], UNBOUNDED)
                return min(count + _NEW_LIST, UNBOUNDED), count
            case "sets.contains" | "sets.intersects" | "sets.equivalent":
                pairs = saturating_product(size, self.size(node.args[1]))
                times = 2 if node.function == "sets.equivalent" else 1
                return min(saturating_product(pairs, times) + 1, UNBOUNDED), None
            case "url" | "jsonpatch.escapeKey":
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
