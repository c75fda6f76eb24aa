"""The three-way merge of an object's states: one's own changes on top of those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from appsdk_operator.resource._json.values import same

_ABSENT: Final = object()
_KEYS: Final[Mapping[tuple[str, ...], str]] = {
    ("metadata", "finalizers"): "",
    ("metadata", "ownerReferences"): "uid",
    ("status", "conditions"): "type",
}
"""Lists that several clients write, and the field that tells their items apart; "": the text."""


class MergeClash(Exception):  # noqa: N818 - the name says what happened, as callers catch it
    """Both sides changed the same fields, in different ways."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths: tuple[str, ...] = tuple(paths)
        """The fields, for example ``spec.size`` or ``status.conditions['Ready']``."""


def merge_changes(base: Any, ours: Any, theirs: Any) -> Any:
    """``theirs`` with the changes that lead from ``base`` to ``ours``.

    Objects are merged field by field, and lists are replaced. Only finalizers, owner references and
    conditions are merged item by item. The result may share values with the arguments.

    Args:
        base: an object's earlier state, as plain JSON values.
        ours: a changed copy of it.
        theirs: another later state.

    Raises:
        MergeClash: a field differs between all three.

    >>> base = {"spec": {"size": 1, "color": "red"}}
    >>> merge_changes(base, {"spec": {"size": 2, "color": "red"}}, {"spec": {"size": 1}})
    {'spec': {'size': 2}}
    """
    clashes: list[str] = []
    merged = _merge((base, ours, theirs), (), clashes)
    if clashes:
        raise MergeClash(clashes)
    return merged


def _merge(three: Sequence[Any], path: tuple[str, ...], clashes: list[str]) -> Any:
    base, ours, theirs = three
    if same(ours, base) or same(ours, theirs):
        return theirs
    if same(theirs, base):
        return ours
    is_keyed = path in _KEYS
    if is_keyed:
        three = [_by_key(each, _KEYS[path]) for each in three]
    elif base is _ABSENT:
        three = ({}, ours, theirs)
    # One frame a level, because objects may be nested deep. An item with a key is one value.
    if path[:-1] in _KEYS or not all(isinstance(each, dict) for each in three):
        clashes.append(_text(path))
        return theirs
    base, ours, theirs = three
    merged = {}
    for name in dict.fromkeys((*theirs, *ours)):
        values = [each.get(name, _ABSENT) for each in three]
        value = _merge(values, (*path, name), clashes)
        if value is not _ABSENT:
            merged[name] = value
    return [*merged.values()] if is_keyed else merged


def _by_key(items: Any, key: str) -> dict[str, Any] | None:
    """The items of a list by their keys; None where a key is missing, or comes twice."""
    if items is _ABSENT:
        return {}
    if not isinstance(items, list):
        return None
    found = {}
    for item in items:
        name = item.get(key) if key and isinstance(item, dict) else item
        if not isinstance(name, str):
            return None
        found[name] = item
    return found if len(found) == len(items) else None


def _text(path: tuple[str, ...]) -> str:
    text = ""
    for index, step in enumerate(path):
        if path[:index] in _KEYS or not step.isidentifier():
            text += f"[{step!r}]"
        else:
            text += f".{step}" if text else step
    return text
