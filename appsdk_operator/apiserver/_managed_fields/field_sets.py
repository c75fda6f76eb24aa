"""Sets of field paths, in the form of ``fieldsV1``, and their algebra.

A set is a tree of dicts whose keys are path elements as Kubernetes writes them: ``f:<name>`` for a
field, ``k:<keys>`` for the list item with these key fields, ``v:<value>`` for an item of a set,
``i:<index>`` for any other item. A node without children is a member of the set; a node with
children is a member if it has the child ``"."``. The tree is the JSON of ``fieldsV1`` itself.

The functions do not change their arguments, and their results may share nodes with them.
The semantics are those of structured-merge-diff's ``fieldpath``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from appsdk_operator.apiserver._values.go_text import go_quote

FieldSet: TypeAlias = dict[str, Any]
"""A set, or one node of it."""
Path: TypeAlias = tuple[str, ...]
"""Path elements from the root of the object."""

SELF: Final = "."

_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode
_GO_ESCAPES: Final = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_KINDS: Final = "fkvi"


def key_element(fields: Mapping[str, Any]) -> str:
    """The path element of a list item with these key fields."""
    return f"k:{_go_json(fields)}"


def value_element(value: Any) -> str:
    """The path element of an item of a set."""
    return f"v:{_go_json(value)}"


def _go_json(value: Any) -> str:
    if isinstance(value, dict):
        value = {name: _whole(item) for name, item in value.items()}
    text: str = _encode(_whole(value)).decode()
    for char, escape in _GO_ESCAPES.items():
        if char in text:
            text = text.replace(char, escape)
    return text


def _whole(value: Any) -> Any:
    """Write 1.0 as 1: both are the same key."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# -- the algebra ---------------------------------------------------------------------------


def is_member(node: FieldSet) -> bool:
    """Whether a node is a member itself, besides nodes below it."""
    return not node or SELF in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The members of either set."""
    if one is other or not other:
        return one
    return _union_node(one, other) if one else other


def _union_node(one: FieldSet, other: FieldSet) -> FieldSet:
    if one is other:
        return one
    if not one or not other:
        children = one or other
        return {SELF: {}, **children} if children else {}
    merged = {**one}
    for element, node in other.items():
        mine = merged.get(element)
        merged[element] = node if mine is None else _union_node(mine, node)
    return merged


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The members of both sets."""
    return _intersect(one, other) or {} if one and other else {}


def _intersect(one: FieldSet, other: FieldSet) -> FieldSet | None:
    """The common members of two nodes; None if there are none."""
    common: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is not None and element != SELF:
            found = _intersect(node, theirs)
            if found is not None:
                common[element] = found
    return _node(common, member=is_member(one) and is_member(other))


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The members of ``one`` that are not in ``other``; members below those stay."""
    return _subtract(one, other) or {} if one and other else one


def _subtract(one: FieldSet, other: FieldSet) -> FieldSet | None:
    left: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if element == SELF:
            continue
        remaining = node if theirs is None else _subtract(node, theirs)
        if remaining is not None:
            left[element] = remaining
    return _node(left, member=is_member(one) and not is_member(other))


def difference_below(one: FieldSet, other: FieldSet) -> FieldSet:
    """The members of ``one`` that are neither in ``other`` nor below a member of it."""
    return _subtract_below(one, other) or {} if one and other else one


def _subtract_below(one: FieldSet, other: FieldSet) -> FieldSet | None:
    left: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if element == SELF or (theirs is not None and is_member(theirs)):
            continue
        remaining = node if theirs is None else _subtract_below(node, theirs)
        if remaining is not None:
            left[element] = remaining
    return _node(left, member=is_member(one))


def _node(children: FieldSet, *, member: bool) -> FieldSet | None:
    if children:
        return {SELF: {}, **children} if member else children
    return {} if member else None


def has(fields: FieldSet, path: Path) -> bool:
    """Whether the field at ``path`` is a member."""
    node: FieldSet | None = fields
    for element in path:
        if not node:
            return False
        node = node.get(element)
    return node is not None and bool(path) and is_member(node)


def attach(fields: FieldSet, path: Path, node: FieldSet) -> None:
    """Add a node at ``path`` to a set, in place."""
    at = fields
    last = len(path) - 1
    for index, element in enumerate(path):
        below = at.get(element)
        if index == last:
            at[element] = node if below is None else _union_node(below, node)
            return
        if below is None:
            below = at[element] = {}
        elif not below:
            below = at[element] = {SELF: {}}
        at = below


# -- order and text ------------------------------------------------------------------------


def paths(fields: FieldSet) -> Iterator[Path]:
    """The sorted paths of the members; those of a node before those below it."""
    yield from _paths(fields, ())


def _paths(fields: FieldSet, prefix: Path) -> Iterator[Path]:
    elements = [element for element in sorted(fields, key=order_of) if element != SELF]
    for element in elements:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from _paths(fields[element], (*prefix, element))


def ordered(fields: FieldSet, *, by_text: bool) -> FieldSet:
    """The same set with its elements in the order in which the real server writes them.

    Args:
        fields: the set.
        by_text: the order of custom resources, whose JSON keys are sorted as text. Built-in
            kinds have fields, keys and values in this order, and numbers by size.
    """
    key = None if by_text else order_of
    return {
        element: ordered(fields[element], by_text=by_text) for element in sorted(fields, key=key)
    }


def order_of(element: str) -> tuple[Any, ...]:
    """The sort key of a path element among its siblings."""
    kind, text = element[:1], element[2:]
    if kind == "f":
        return (0, text)
    if kind == "k":
        keys = _decode(text)
        return (1, tuple((name, _rank(keys[name])) for name in sorted(keys)))
    if kind == "v":
        return (2, _rank(_decode(text)))
    return (-1, text) if element == SELF else (3, int(text))


def _rank(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, (int, float)):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (3, repr(value))


def path_text(path: Path) -> str:
    """Format a path as messages do: ``.spec.ports[port=80,protocol="TCP"].name``."""
    return "".join(map(element_text, path))


def element_text(element: str) -> str:
    """Format a path element as messages do."""
    kind, text = element[:1], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = _decode(text)
        return "[" + ",".join(f"{name}={_value_text(keys[name])}" for name in sorted(keys)) + "]"
    return f"[={_value_text(_decode(text))}]" if kind == "v" else f"[{text}]"


def _value_text(value: Any) -> str:
    return go_quote(value) if isinstance(value, str) else str(msgspec.json.encode(value).decode())


# -- sets from clients ---------------------------------------------------------------------


def parse(given: Any) -> FieldSet:
    """Parse a set from a client, with its elements in canonical form.

    As on the real server, elements of an unknown kind are dropped.

    Raises:
        ValueError: it is not a set of fields.
    """
    if not isinstance(given, dict):
        raise ValueError("a set of fields must be an object")
    fields: FieldSet = {}
    for element, below in given.items():
        if element == SELF:
            fields[SELF] = {}
            continue
        if len(element) < 2 or element[1] != ":":
            raise ValueError(f"missing colon: {element}")
        node = parse(below)
        if element[0] in _KINDS:
            known = _canonical(element)
            mine = fields.get(known)
            fields[known] = node if mine is None else _union_node(mine, node)
    # A member without children is an empty node.
    return {} if list(fields) == [SELF] else fields


def _canonical(element: str) -> str:
    kind, text = element[0], element[2:]
    if kind == "f":
        return element
    if kind == "i":
        return f"i:{int(text)}"
    try:
        value = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"malformed path element: {element}") from None
    if kind == "v":
        return value_element(value)
    if not isinstance(value, dict):
        raise ValueError(f"malformed path element: {element}")
    return key_element(value)
