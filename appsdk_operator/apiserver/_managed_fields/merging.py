"""Merge of an applied configuration into a live object, and the type check of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from appsdk_operator.apiserver._managed_fields import field_sets
from appsdk_operator.apiserver._managed_fields.shapes import DEDUCED, ListShape, MapShape, Shape
from appsdk_operator.apiserver._managed_fields.typed_values import ItemError, item_element
from appsdk_operator.apiserver._values.go_text import GO_TYPES, go_quote


class TypedError(ValueError):
    """A value that does not have the type of its schema. The text is the real server's."""


# -- merge ---------------------------------------------------------------------------------


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """Merge an applied value into the live one; for leaves the applied value wins.

    A merge removes nothing: null, ``{}`` and ``[]`` do not clear live values. Items of a list keep
    their position unless the applied items have another order.
    """
    form = shape.form_of(applied)
    if form == "scalar":
        return applied
    if form == "list":
        assert shape.list is not None
        if not shape.list.associative or not (live or applied):
            return applied
        return _merge_lists(
            live if isinstance(live, list) else [],
            applied if isinstance(applied, list) else [],
            shape.list,
        )
    before = live if isinstance(live, dict) else {}
    after = applied if isinstance(applied, dict) else {}
    if shape.map is None or shape.map.atomic or not (before or after):
        return applied
    merged = dict(before)
    for name, value in after.items():
        if name in before:
            merged[name] = merge(before[name], value, shape.map.child(name) or DEDUCED)
        else:
            merged[name] = value
    return merged


def _merge_lists(live: list[Any], applied: list[Any], rules: ListShape) -> list[Any]:
    """Merge the items by identity: live ones keep their position, applied ones their order."""
    live_elements = _elements(live, rules)
    applied_elements = _elements(applied, rules)
    # Live items that share an identity are not merged.
    live_items: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        live_items[element] = None if element in live_items else item
    applied_items = dict(zip(applied_elements, applied, strict=True))
    anchors = iter([element for element in applied_elements if element in live_items])
    anchor = next(anchors, None)
    done: set[str] = set()
    merged: list[Any] = []
    live_at = applied_at = 0
    while live_at < len(live_elements) or applied_at < len(applied_elements):
        element = live_elements[live_at] if live_at < len(live_elements) else ""
        if element and element not in applied_items:
            merged.append(live[live_at])
            live_at += 1
            continue
        has_applied = applied_at < len(applied_elements)
        if (
            element
            and has_applied
            and anchor
            and element not in (applied_elements[applied_at], anchor)
        ):
            # The applied order has it later.
            live_at += 1
            continue
        if element and (
            element in done or (has_applied and element == applied_elements[applied_at])
        ):
            live_at += 1
        if has_applied:
            chosen = applied_elements[applied_at]
            done.add(chosen)
            item = applied_items[chosen]
            live_item = live_items.get(chosen)
            merged.append(
                item if chosen not in live_items else merge(live_item, item, rules.element)
            )
            applied_at += 1
            if chosen == anchor:
                anchor = next(anchors, None)
    return merged


def _elements(items: list[Any], rules: ListShape) -> list[str]:
    found: list[str] = []
    for index, item in enumerate(items):
        try:
            found.append(item_element(rules, item))
        except ItemError:
            found.append(f"i:{index}")
    return found


# -- type check ----------------------------------------------------------------------------


def check(value: Any, shape: Shape, *, duplicates: bool = False) -> None:
    """Check that a value has the types of its shape.

    Args:
        value: the value.
        shape: the shape.
        duplicates: whether items of a list may share an identity.

    Raises:
        TypedError: it has not; the text names each path.
    """
    problems = [
        f"{path}: {text}" if path else text
        for path, text in _check(value, shape, duplicates=duplicates)
    ]
    if problems:
        raise TypedError(problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems]))


def _check(value: Any, shape: Shape, *, duplicates: bool) -> Iterator[tuple[str, str]]:
    form = shape.form_of(value)
    if form == "scalar":
        problem = _scalar_problem(value, shape.scalar)
        if problem:
            yield "", problem
    elif value is None:
        return
    elif form == "list":
        if isinstance(value, list) and shape.list is not None:
            yield from _check_list(value, shape.list, duplicates=duplicates)
        else:
            yield "", f"expected list, got {_go_pointer(value)}"
    elif isinstance(value, dict) and shape.map is not None:
        yield from _check_map(value, shape.map, duplicates=duplicates)
    else:
        yield "", f"expected map, got {_go_pointer(value)}"


def _check_map(
    value: dict[str, Any], rules: MapShape, *, duplicates: bool
) -> Iterator[tuple[str, str]]:
    for name in sorted(value):
        child = rules.child(name)
        if child is None:
            yield f".{name}", "field not declared in schema"
            return
        for path, text in _check(value[name], child, duplicates=duplicates):
            yield f".{name}{path}", text


def _check_list(
    items: list[Any], rules: ListShape, *, duplicates: bool
) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        element = f"i:{index}"
        if rules.associative:
            try:
                element = item_element(rules, item)
            except ItemError as error:
                yield "", f"element {index}: {error}"
                return
            if element in seen and not duplicates:
                yield "", f"duplicate entries for key {field_sets.element_text(element)}"
            seen.add(element)
        for path, text in _check(item, rules.element, duplicates=duplicates):
            yield f"{field_sets.element_text(element)}{path}", text


def _scalar_problem(value: Any, scalar: str) -> str:
    if value is None:
        return ""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if scalar == "numeric" and not number:
        return f"expected numeric (int or float), got {GO_TYPES[type(value)]}"
    if scalar == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if scalar == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {_go_pointer(value)}"
    if scalar == "untyped" and isinstance(value, (dict, list)):
        return f"expected any scalar, got {_go_pointer(value)}"
    return ""


def _go_pointer(value: Any) -> str:
    """Format a value as Go prints a pointer to it."""
    return f"&{{{_go_plain(value)}}}"


def _go_plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_plain(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_plain, value))}]"
    return "<nil>" if value is None else str(value)


def _go_syntax(value: Any) -> str:
    """Format a value as Go source."""
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}":{_go_syntax(value[key])}' for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    return "interface {}(nil)" if value is None else _go_plain(value)
