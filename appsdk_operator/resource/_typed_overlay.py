"""The overlay of typed values on plain JSON, which keeps fields that the type does not know."""

from __future__ import annotations

from typing import Any

from appsdk_operator.resource._json_values import NAME_FIELDS, lists, same

__all__ = ["overlay"]


def overlay(current: Any, known: Any, new: Any) -> Any:
    """``current`` with the changes from ``known`` to ``new``; fields in neither of them stay.

    A field that is absent from ``new`` alone is removed; a null is a value like others.
    """
    if same(new, known):
        return current
    if isinstance(new, dict) and isinstance(current, dict):
        return _overlay_dict(current, known if isinstance(known, dict) else {}, new)
    if isinstance(new, list) and isinstance(current, list) and isinstance(known, list):
        return [
            lists(item)
            # Plain items, as in sets, need no overlay.
            if index is None or not isinstance(item, (dict, list))
            else overlay(current[index], known[index], item)
            for item, index in zip(new, _matches(known, new), strict=True)
        ]
    return lists(new)


def _overlay_dict(
    current: dict[str, Any], known: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    merged = {}
    for key, value in current.items():
        if key in new:
            if key in known and same(new[key], known[key]):
                merged[key] = value
            else:
                merged[key] = overlay(value, known.get(key), new[key])
        elif key not in known:
            merged[key] = value
    for key, value in new.items():
        is_known = key in known and same(value, known[key])
        if key not in current and not is_known:
            merged[key] = lists(value)
    return merged


def _matches(known: list[Any], new: list[Any]) -> list[int | None]:
    """For each item of ``new`` the index of its former state in ``known``; None for a new item.

    An unchanged item is matched at any index, a changed one by its name; one without a name by the
    number of its unchanged fields, and at last by its index. The name is ``name``, or else ``key``
    or ``type`` where that tells apart all items, as it does conditions.
    """
    by_name = [field for field in NAME_FIELDS if _tells_apart(field, known, new)]
    name_field = by_name[0] if by_name else NAME_FIELDS[0]

    def name_of(item: Any) -> Any:
        return item.get(name_field) if isinstance(item, dict) else None

    def have_one_name(one: Any, other: Any) -> bool:
        return bool(name_of(other)) and same(name_of(one), name_of(other))

    unused = dict.fromkeys(range(len(known)))
    matches: list[int | None] = [None] * len(new)

    def match(position: int, index: int | None) -> None:
        if index is not None:
            matches[position] = index
            del unused[index]

    for position, item in enumerate(new):
        if position in unused and same(known[position], item):
            match(position, position)
    for are_alike in (same, have_one_name):
        for position, item in enumerate(new):
            if matches[position] is None:
                match(position, next((i for i in unused if are_alike(known[i], item)), None))
    for position, item in enumerate(new):
        if matches[position] is None and not name_of(item):
            nameless = [i for i in unused if not name_of(known[i])]
            best = max(nameless, key=lambda i: _common(known[i], item, i == position), default=None)
            in_place = len(new) == len(known) and position in nameless
            if best is not None and _common(known[best], item, False) > 0:
                match(position, best)
            elif in_place:
                match(position, position)
    return matches


def _tells_apart(field: str, *lists: list[Any]) -> bool:
    """Whether all items of each list are objects with another text in this field."""
    for items in lists:
        names = [item.get(field) if isinstance(item, dict) else None for item in items]
        if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
            return False
    return True


def _common(known: Any, item: Any, is_in_place: bool) -> float:
    if not isinstance(known, dict) or not isinstance(item, dict):
        return 0.0
    common = sum(
        1 for key, value in item.items() if value is not None and same(known.get(key), value)
    )
    return common + (0.5 if is_in_place else 0.0)
