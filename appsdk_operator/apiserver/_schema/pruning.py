"""What comes in is fitted to its schema: unknown fields and nulls go, defaults are filled in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["EMBEDDED", "PRESERVE", "Fit", "compiled", "has_defaults"]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_OF_AN_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata"})
_BIG: Final = 2**63

Fit = Callable[[Any, str, list[str]], None]
"""From a dict or list, its path and the unknown fields to add to; the value is changed in place."""


def has_defaults(schema: Mapping[str, Any]) -> bool:
    """Whether the schema says anywhere what a missing field is to be."""
    if schema.get("default") is not None:
        return True
    children = list((schema.get("properties") or {}).values())
    children += [schema.get("items"), schema.get("additionalProperties")]
    return any(has_defaults(child) for child in children if isinstance(child, Mapping))


def compiled(schema: Mapping[str, Any], *, root: bool = False, defaults: bool = True) -> Fit:
    """The function that fits objects to ``schema``.

    Args:
        schema: the schema.
        root: whether it is that of a whole resource.
        defaults: whether to fill them in.
    """
    preserve = bool(schema.get(PRESERVE))
    properties = schema.get("properties") or {}
    embedded = root or bool(schema.get(EMBEDDED))
    children = {
        name: _Child(child, compiled(child, defaults=defaults), defaults=defaults)
        for name, child in properties.items()
        if not (embedded and name in _OF_AN_OBJECT)
    }
    additional = schema.get("additionalProperties")
    other: _Child | None = None
    if isinstance(additional, Mapping):
        other = _Child(additional, compiled(additional, defaults=defaults), defaults=defaults)
    elif additional is not None and not preserve:
        other = _Child({"nullable": True}, _drop_all, defaults=False)
    kept = _OF_AN_OBJECT if embedded else frozenset()
    missing = tuple(
        (name, child.default, child.nullable)
        for name, child in children.items()
        if child.default is not None
    )
    fit_list = _list_fit(schema, preserve=preserve, defaults=defaults)

    def fit(value: Any, path: str, dropped: list[str]) -> None:
        if type(value) is list:
            fit_list(value, path, dropped)
            return
        for name, default, nullable in missing:
            if name not in value or (value[name] is None and not nullable):
                value[name] = copy.deepcopy(default)
        gone: list[str] = []
        for name, item in value.items():
            child = children.get(name, other)
            if child is None or name in kept:
                if not preserve and name not in kept:
                    gone.append(name)
                    dropped.append(f"{path}.{name}" if path else name)
                continue
            kind = type(item)
            if kind is dict or kind is list:
                child.fit(item, f"{path}.{name}" if path else name, dropped)
            elif item is None:
                if not child.nullable:
                    if child.default is None:
                        gone.append(name)
                    else:
                        value[name] = copy.deepcopy(child.default)
            elif kind is float or kind is int:
                value[name] = _number(item)
        for name in gone:
            del value[name]

    return fit


class _Child:
    """What a field of an object may be."""

    __slots__ = ("default", "fit", "nullable")

    def __init__(self, schema: Mapping[str, Any], fit: Fit, *, defaults: bool) -> None:
        self.fit = fit
        self.default = schema.get("default") if defaults else None
        self.nullable = bool(schema.get("nullable"))


def _number(value: float) -> float:
    """A number as Go keeps it: 3.0 is an integer once it was stored, 2**63 is none."""
    if type(value) is float:
        return int(value) if value.is_integer() and -_BIG <= value < _BIG else value
    return value if -_BIG <= value < _BIG else float(value)


def _list_fit(schema: Mapping[str, Any], *, preserve: bool, defaults: bool) -> Fit:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return _nothing if preserve else _drop_all
    fit_item = compiled({**items, PRESERVE: True} if preserve else items, defaults=defaults)
    default = items.get("default") if defaults else None
    nullable = bool(items.get("nullable"))

    def fit(value: list[Any], path: str, dropped: list[str]) -> None:
        for index, item in enumerate(value):
            kind = type(item)
            if kind is dict or kind is list:
                fit_item(item, f"{path}[{index}]", dropped)
            elif item is None:
                if default is not None and not nullable:
                    value[index] = copy.deepcopy(default)
            elif kind is float or kind is int:
                value[index] = _number(item)

    return fit


def _nothing(_value: Any, _path: str, _dropped: list[str]) -> None:
    """Everything may stay."""


def _drop_all(value: Any, path: str, dropped: list[str]) -> None:
    """No field is known."""
    if isinstance(value, dict):
        dropped += [f"{path}.{name}" if path else name for name in value]
        value.clear()
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                _drop_all(item, f"{path}[{index}]", dropped)
