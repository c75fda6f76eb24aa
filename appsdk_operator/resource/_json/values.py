"""Plain JSON values: copies, comparison and paths, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource._json.parts import MAX_LEVELS

Path = tuple[Any, ...]
"""The path to a value, as a pair of its container's path and the last step; ``()`` at the root."""

NAME_FIELDS: Final = ("name", "key", "type")
"""The usual fields of Kubernetes that tell an item of a list from its neighbours."""

_SCALARS: Final = (str, int, float, bool, type(None))
_DEEPEST: Final = 2 * MAX_LEVELS


def fields_of(value: Any) -> Any:
    """A typed value as a mapping of its fields; any other value unchanged."""
    if isinstance(value, (Mapping, list, tuple)):
        return value
    names = getattr(value, "__struct_encode_fields__", None)
    if names is not None:
        fields = getattr(value, "__struct_fields__", ())
        values = {name: getattr(value, f) for name, f in zip(names, fields, strict=True)}
        return {name: item for name, item in values.items() if item is not msgspec.UNSET}
    for listing in ("__attrs_attrs__", "__dataclass_fields__"):
        found = getattr(value, listing, None)
        if found is not None and not isinstance(value, type):
            names = list(found) if isinstance(found, Mapping) else [field.name for field in found]
            return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return value


def deep_copy(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy in plain dicts and lists; ``leaf`` converts values that are not JSON.

    The result of ``leaf`` is copied as well.

    Args:
        value: mappings, lists and tuples.
        leaf: called for each value that is neither one of these nor text, number, bool or None.

    Raises:
        RecursionError: a value contains itself, or is nested too deep.
    """
    holder: list[Any] = [value]
    pending: list[tuple[Any, int]] = [(holder, 0)]
    while pending:
        container, depth = pending.pop()
        if depth > _DEEPEST:
            raise RecursionError("a value contains itself, or is nested too deep")
        pairs = container.items() if type(container) is dict else enumerate(container)
        for key, item in pairs:
            kind = type(item)
            if kind in _SCALARS:
                continue
            # Most are plain: the checks for others take longer than the copy.
            if kind is dict or kind is list:
                item = item.copy()
            else:
                if not isinstance(item, (Mapping, list, tuple)):
                    item = leaf(item)
                # dict.copy and list.copy copy frozen containers without freezing their items.
                if isinstance(item, dict):
                    item = dict.copy(item)
                elif isinstance(item, Mapping):
                    item = dict(item)
                elif isinstance(item, list):
                    item = list.copy(item)
                elif isinstance(item, tuple):
                    item = list(item)
                else:
                    container[key] = item
                    continue
            container[key] = item
            pending.append((item, depth + 1))
    return holder[0]


def lists(value: Any) -> Any:
    """A copy of JSON values in plain dicts, and in lists in place of tuples."""
    return deep_copy(value, lambda item: item)


def walk(value: Any) -> Iterator[tuple[Any, Path]]:
    """``value`` and all values in it with their paths, containers before their contents."""
    pending: list[tuple[Any, Path]] = [(value, ())]
    while pending:
        found, path = pending.pop()
        yield found, path
        if isinstance(found, Mapping):
            children = [(child, (path, f".{key}")) for key, child in found.items()]
        elif isinstance(found, (list, tuple)):
            children = [(child, (path, f"[{index}]")) for index, child in enumerate(found)]
        else:
            continue
        pending.extend(reversed(children))


def path_text(path: Path, root: str = "$") -> str:
    """A path as text that begins with ``root``."""
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(step)
    return root + "".join(reversed(steps))


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values would be written alike, but for the order of keys.

    Neither 1 and 1.0 are the same, nor 0.0 and -0.0, nor 1 and true.
    """
    return _equal_by(one, other, _same_leaves)


def equal_numbers(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers by their value: 1 is 1.0, and neither is true."""
    return _equal_by(one, other, _equal_leaves)


def _same_leaves(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or one != other:
        return False
    return type(one) is not float or one.hex() == other.hex()


def _equal_leaves(one: Any, other: Any) -> bool:
    # To Python True is 1, to JSON it is not.
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _equal_by(one: Any, other: Any, equal_leaves: Callable[[Any, Any], bool]) -> bool:
    pending = [(one, other)]
    while pending:
        a, b = pending.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            pending.extend((a[key], b[key]) for key in a)
        elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            if len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif isinstance(a, (dict, list)) or isinstance(b, (dict, list)) or not equal_leaves(a, b):
            return False
    return True
