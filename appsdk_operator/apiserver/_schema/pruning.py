"""Pruning and defaulting: drop unknown fields and nulls, fill in defaults."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
_BIG: Final = 2**63

Pruner = Callable[[Any, str, list[str]], None]
"""Called with a dict or list to change in place, its path, and the unknown fields to extend."""


def has_defaults(schema: Mapping[str, Any]) -> bool:
    """Whether the schema has a default anywhere."""
    if schema.get("default") is not None:
        return True
    children = list((schema.get("properties") or {}).values())
    children += [schema.get("items"), schema.get("additionalProperties")]
    return any(has_defaults(child) for child in children if isinstance(child, Mapping))


def compile_pruner(
    schema: Mapping[str, Any], *, root: bool = False, defaults: bool = True
) -> Pruner:
    """Compile the function that prunes and defaults objects of ``schema``.

    Args:
        schema: the schema.
        root: whether it is the schema of a whole object.
        defaults: whether to fill in defaults.
    """
    preserve = bool(schema.get(PRESERVE))
    properties = schema.get("properties") or {}
    embedded = root or bool(schema.get(EMBEDDED))
    children = {
        name: _FieldPruner(child, compile_pruner(child, defaults=defaults), defaults=defaults)
        for name, child in properties.items()
        if not (embedded and name in _OBJECT_FIELDS)
    }
    additional = schema.get("additionalProperties")
    other: _FieldPruner | None = None
    if isinstance(additional, Mapping):
        other = _FieldPruner(
            additional, compile_pruner(additional, defaults=defaults), defaults=defaults
        )
    elif additional is not None and not preserve:
        other = _FieldPruner({"nullable": True}, _drop_all, defaults=False)
    preserved = _OBJECT_FIELDS if embedded else frozenset()
    defaulted = {
        name: child.default for name, child in children.items() if child.default is not None
    }
    prune_list = _list_pruner(schema, preserve=preserve, defaults=defaults)

    def prune(value: Any, path: str, dropped: list[str]) -> None:
        if type(value) is list:
            prune_list(value, path, dropped)
            return
        for name, default in defaulted.items():
            if name not in value:
                value[name] = copy.deepcopy(default)
        removed: list[str] = []
        for name, item in value.items():
            child = children.get(name, other)
            if child is None or name in preserved:
                if not preserve and name not in preserved:
                    removed.append(name)
                    dropped.append(f"{path}.{name}" if path else name)
                continue
            if item is None and not child.nullable:
                if child.default is None:
                    removed.append(name)
                    continue
                item = value[name] = copy.deepcopy(child.default)
            kind = type(item)
            if kind is dict or kind is list:
                child.prune(item, f"{path}.{name}" if path else name, dropped)
            elif kind is float or kind is int:
                value[name] = _go_number(value[name])
        for name in removed:
            del value[name]

    return prune


class _FieldPruner:
    """The pruner of a field, its default, and whether it may be null."""

    __slots__ = ("default", "nullable", "prune")

    def __init__(self, schema: Mapping[str, Any], prune: Pruner, *, defaults: bool) -> None:
        self.prune = prune
        self.default = schema.get("default") if defaults else None
        self.nullable = bool(schema.get("nullable"))


def _go_number(value: Any) -> int | float:
    """A number as Go stores it: 3.0 becomes an integer, 2**63 a float."""
    if type(value) is float:
        return int(value) if value.is_integer() and -_BIG <= value < _BIG else value
    return value if -_BIG <= value < _BIG else float(value)


def _list_pruner(schema: Mapping[str, Any], *, preserve: bool, defaults: bool) -> Pruner:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return _keep_all if preserve else _drop_all
    prune_item = compile_pruner({**items, PRESERVE: True} if preserve else items, defaults=defaults)
    default = items.get("default") if defaults else None
    nullable = bool(items.get("nullable"))

    def prune(value: list[Any], path: str, dropped: list[str]) -> None:
        for index, item in enumerate(value):
            if item is None and default is not None and not nullable:
                item = value[index] = copy.deepcopy(default)
            kind = type(item)
            if kind is dict or kind is list:
                prune_item(item, f"{path}[{index}]", dropped)
            elif kind is float or kind is int:
                value[index] = _go_number(value[index])

    return prune


def _keep_all(_value: Any, _path: str, _dropped: list[str]) -> None:
    """Drop nothing."""


def _drop_all(value: Any, path: str, dropped: list[str]) -> None:
    """Drop all fields."""
    if isinstance(value, dict):
        dropped += [f"{path}.{name}" if path else name for name in value]
        value.clear()
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                _drop_all(item, f"{path}[{index}]", dropped)
