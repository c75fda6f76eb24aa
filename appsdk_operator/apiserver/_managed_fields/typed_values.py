"""Operations on values with shapes: field sets, comparison, removal and extraction.

Pure functions of JSON values and shapes. The semantics are those of structured-merge-diff's
``typed``, including its oddities, which clients see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from appsdk_operator.apiserver._managed_fields import field_sets
from appsdk_operator.apiserver._managed_fields.field_sets import SELF, FieldSet, Path
from appsdk_operator.apiserver._managed_fields.shapes import DEDUCED, ListShape, MapShape, Shape


class ItemError(ValueError):
    """A list item without an identity."""


def item_element(rules: ListShape, item: Any) -> str:
    """The path element of an item of an associative list.

    Raises:
        ItemError: the item has no identity.
    """
    if rules.keys:
        return _keyed_element(rules, item)
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return field_sets.value_element(item)


def _keyed_element(rules: ListShape, item: Any) -> str:
    if item is None:
        raise ItemError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ItemError("associative list with keys may not have non-map elements")
    fields = rules.element.map
    found: dict[str, Any] = {}
    for name in rules.keys:
        if name in item:
            found[name] = item[name]
        elif fields is not None and (default := fields.default(name)) is not None:
            found[name] = default
    if not found:
        shown = " ".join(f'"{name}"' for name in rules.keys)
        raise ItemError(
            f"associative list with keys has an element that omits all key fields [{shown}] "
            "(and doesn't have default values for any key fields)"
        )
    return field_sets.key_element(found)


def items_by_element(rules: ListShape, items: list[Any]) -> dict[str, list[Any]]:
    """The items by path element; items without an identity are dropped."""
    found: dict[str, list[Any]] = {}
    for item in items:
        try:
            element = item_element(rules, item)
        except ItemError:
            continue
        found.setdefault(element, []).append(item)
    return found


def _child(rules: MapShape, name: str) -> Shape:
    # Only objects that were never validated have undeclared fields.
    return rules.child(name) or DEDUCED


# -- field sets ----------------------------------------------------------------------------


def field_set(value: Any, shape: Shape) -> FieldSet:
    """The fields that an apply of a value owns: its leaves, items and map keys."""
    return _fields_below(value, shape)[1]


def _fields_below(value: Any, shape: Shape) -> tuple[bool, FieldSet]:
    """Whether the value itself is a member, and the members below it."""
    form = shape.form_of(value)
    if form == "scalar":
        return True, {}
    if form == "list":
        assert shape.list is not None
        if not shape.list.associative:
            return True, {}
        return False, _fields_of_list(value, shape.list) if isinstance(value, list) else {}
    rules = shape.map
    if rules is None or rules.atomic:
        return True, {}
    found: FieldSet = {}
    for name, item in (value or {}).items() if isinstance(value, dict) else ():
        member, below = _fields_below(item, _child(rules, name))
        member = member or item is None or item == {} or not rules.declares(name)
        if below:
            found[f"f:{name}"] = {SELF: {}, **below} if member else below
        elif member:
            found[f"f:{name}"] = {}
    return False, found


def _fields_of_list(items: list[Any], rules: ListShape) -> FieldSet:
    found: FieldSet = {}
    for element, matching in items_by_element(rules, items).items():
        below = _fields_below(matching[0], rules.element)[1] if len(matching) == 1 else {}
        found[element] = {SELF: {}, **below} if below else {}
    return found


def all_fields(value: Any, shape: Shape) -> FieldSet:
    """The node of an added or removed value with everything below it."""
    form = shape.form_of(value)
    if form == "scalar" or not value:
        return {}
    if form == "list":
        rules = shape.list
        assert rules is not None
        if not rules.associative or not isinstance(value, list):
            return {}
        node: FieldSet = {SELF: {}}
        for element, matching in sorted(items_by_element(rules, value).items()):
            node[element] = all_fields(matching[0], rules.element) if len(matching) == 1 else {}
        return node
    fields = shape.map
    if fields is None or fields.atomic or not isinstance(value, dict):
        return {}
    node = {SELF: {}}
    for name in sorted(value):
        node[f"f:{name}"] = all_fields(value[name], _child(fields, name))
    return node


# -- comparison ----------------------------------------------------------------------------


@final
class Comparison:
    """The fields removed, modified and added between two values."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        """No differences."""
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}
        self.added: FieldSet = {}

    @property
    def changed(self) -> FieldSet:
        """The fields that the author of the second value has set."""
        return field_sets.union(self.modified, self.added)


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Compare ``old`` and ``new``."""
    found = Comparison()
    _compare(old, new, shape, (), found)
    return found


def equal_values(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0, but not true."""
    if one != other:
        return False
    if isinstance(one, dict):
        return all(equal_values(item, other[name]) for name, item in one.items())
    if isinstance(one, list):
        return all(map(equal_values, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _compare(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
    if equal_values(old, new):
        return
    forms = {shape.form_of(old), shape.form_of(new)}
    # With two different forms both comparisons report.
    for form in forms:
        if form == "scalar":
            field_sets.attach(found.modified, path, {})
        elif form == "list":
            assert shape.list is not None
            _compare_lists(old, new, shape.list, path, found)
        else:
            _compare_maps(old, new, shape.map, path, found)


def _compare_maps(
    old: Any, new: Any, rules: MapShape | None, path: Path, found: Comparison
) -> None:
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    if rules is None or rules.atomic or not (before or after):
        field_sets.attach(found.modified, path, {})
        return
    for name, value in before.items():
        at = (*path, f"f:{name}")
        if name in after:
            _compare(value, after[name], _child(rules, name), at, found)
        else:
            field_sets.attach(found.removed, at, all_fields(value, _child(rules, name)))
    for name, value in after.items():
        if name not in before:
            at = (*path, f"f:{name}")
            field_sets.attach(found.added, at, all_fields(value, _child(rules, name)))


def _compare_lists(old: Any, new: Any, rules: ListShape, path: Path, found: Comparison) -> None:
    before = old if isinstance(old, list) else []
    after = new if isinstance(new, list) else []
    if not rules.associative or not (before or after):
        field_sets.attach(found.modified, path, {})
        return
    ours, theirs = items_by_element(rules, before), items_by_element(rules, after)
    for element in {**ours, **theirs}:
        _compare_items(
            ours.get(element, []), theirs.get(element, []), rules.element, (*path, element), found
        )


def _compare_items(
    old: list[Any], new: list[Any], shape: Shape, path: Path, found: Comparison
) -> None:
    """Compare the items of an identity; duplicates count as one leaf."""
    if len(old) <= 1 and len(new) <= 1:
        if not old:
            field_sets.attach(found.added, path, all_fields(new[0], shape))
        elif not new:
            field_sets.attach(found.removed, path, all_fields(old[0], shape))
        else:
            _compare(old[0], new[0], shape, path, found)
    elif len(old) >= 2 and len(new) >= 2:
        if not equal_values(old, new):
            field_sets.attach(found.modified, path, {})
    elif len(old) >= 2:
        if new:
            field_sets.attach(found.added, path, all_fields(new[0], shape))
        field_sets.attach(found.removed, path, {})
    else:
        if old:
            field_sets.attach(found.removed, path, all_fields(old[0], shape))
        field_sets.attach(found.added, path, {})


# -- parts of a value ----------------------------------------------------------------------


def remove(value: Any, fields: FieldSet, shape: Shape) -> Any:
    """Remove the fields and items of a set from a value; None for a value that becomes empty."""
    if not fields:
        return value
    form = shape.form_of(value)
    if form == "scalar":
        return value
    if form == "list":
        assert shape.list is not None
        return _remove_items(value, fields, shape.list) if isinstance(value, list) else None
    rules = shape.map
    if not isinstance(value, dict) or rules is None or rules.atomic:
        return None
    remaining: dict[str, Any] = {}
    for name, item in value.items():
        node = fields.get(f"f:{name}")
        if node is None:
            remaining[name] = item
        elif not field_sets.is_member(node):
            remaining[name] = remove(item, node, _child(rules, name))
    return remaining or None


def _remove_items(items: list[Any], fields: FieldSet, rules: ListShape) -> Any:
    if not rules.associative:
        return None
    remaining: list[Any] = []
    for item, element in _with_elements(items, rules):
        node = fields.get(element)
        if node is None:
            remaining.append(item)
        elif not field_sets.is_member(node):
            remaining.append(remove(item, node, rules.element))
    return remaining or None


def extract(value: Any, fields: FieldSet, shape: Shape) -> Any:
    """Extract the fields and items of a set, with the key fields of the items."""
    form = shape.form_of(value)
    if form == "scalar" or not value:
        return value
    if form == "list":
        rules = shape.list
        if rules is None or not rules.associative:
            return value
        return [
            extract(item, _with_keys(fields[element], rules, item), rules.element)
            for item, element in _with_elements(value, rules)
            if element in fields
        ]
    fields_of = shape.map
    if fields_of is None or fields_of.atomic:
        return value
    return {
        name: extract(item, fields[f"f:{name}"], _child(fields_of, name))
        for name, item in value.items()
        if f"f:{name}" in fields
    }


def _with_keys(node: FieldSet, rules: ListShape, item: Any) -> FieldSet:
    names = rules.keys if isinstance(item, dict) else ()
    return {**{f"f:{name}": {} for name in names if name in item}, **node}


def _with_elements(items: list[Any], rules: ListShape) -> Iterator[tuple[Any, str]]:
    for item in items:
        try:
            yield item, item_element(rules, item)
        except ItemError:
            yield item, _NOWHERE


_NOWHERE: Final = "i:-1"
