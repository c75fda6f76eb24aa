"""The overlay of typed values on plain JSON, which keeps fields that the type does not know."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from appsdk_operator.resource._json.values import NAME_FIELDS, equal_numbers, lists, same

_Read = Callable[[Any], Any]


def overlay(current: Any, known: Any, new: Any, read: _Read = lists, *, keeps: bool = True) -> Any:
    """``current`` with the changes from ``known`` to ``new``; fields in neither of them stay.

    A field that is absent from ``new`` alone is removed; a null is a value like others.

    Args:
        current: plain JSON values.
        known: what was read of it: a class may leave out, add, change and move items of lists.
        new: what is written.
        read: makes ``known`` of ``current``; default: such values were not read by a class.
        keeps: whether what is equal in ``known`` and ``new`` stays as it is in ``current``. It may
            be written there in another way; a class may depend on which.
    """
    if keeps and same(new, known):
        return current
    if isinstance(new, dict) and isinstance(current, dict):
        return _overlay_dict(current, known if isinstance(known, dict) else {}, new, read, keeps)
    # Plain items, as in sets, need no overlay.
    are_lists = isinstance(current, list) and isinstance(known, list)
    if are_lists and isinstance(new, list) and any(isinstance(i, (dict, list)) for i in new):
        return _overlay_list(current, known, new, read, keeps)
    return lists(new)


def _overlay_dict(
    current: dict[str, Any], known: dict[str, Any], new: dict[str, Any], read: _Read, keeps: bool
) -> dict[str, Any]:
    merged = {}
    for key, value in current.items():
        if key in new:
            if keeps and key in known and same(new[key], known[key]):
                merged[key] = value
            else:
                read_field = functools.partial(_read_field, read, current, key)
                merged[key] = overlay(value, known.get(key), new[key], read_field, keeps=keeps)
        elif key not in known:
            merged[key] = value
    for key, value in new.items():
        is_known = keeps and key in known and same(value, known[key])
        if key not in current and not is_known:
            merged[key] = lists(value)
    return merged


def _read_field(read: _Read, current: dict[str, Any], key: str, value: Any) -> Any:
    return read({**current, key: value})[key]


def _overlay_list(
    current: list[Any], known: list[Any], new: list[Any], read: _Read, keeps: bool
) -> list[Any]:
    read_item = _reader_of_items(read)
    origins: list[int | None] = list(range(len(known)))
    if len(current) != len(known) or not _agree(current, known):
        apart = [_read_apart(item, read_item) for item in current]
        origins = _matches(apart, known, in_place=False)
    hidden = _hidden_by_class(current, origins)
    made: list[Any] = []
    for item, index in zip(new, _matches(known, new), strict=True):
        origin = None if index is None else origins[index]
        if index is not None and origin is not None:
            made.append(overlay(current[origin], known[index], item, read_item, keeps=keeps))
        elif (stored := hidden.pop(_name(item, NAME_FIELDS[0]), None)) is not None:
            fields = {*item, *(key for one in known if isinstance(one, dict) for key in one)}
            seen = {key: value for key, value in stored.items() if key in fields}
            made.append(overlay(stored, seen, item, read_item, keeps=keeps))
        else:
            made.append(lists(item))
    return made


def _hidden_by_class(
    current: list[Any], origins: list[int | None]
) -> dict[Hashable, dict[str, Any]]:
    """The items that the class left out when it read the list, by their names.

    It may make an item of the same name itself.
    """
    read = set(origins)
    left = [one for index, one in enumerate(current) if index not in read]
    names = [_name(one, NAME_FIELDS[0]) for one in left]
    times = Counter(names)
    return {
        name: one
        for name, one in zip(names, left, strict=True)
        if name is not None and times[name] == 1
    }


def _agree(one: Any, other: Any) -> bool:
    """Whether all fields that both have are equal."""
    pending = [(one, other)]
    while pending:
        a, b = pending.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            pending.extend((a[key], b[key]) for key in a.keys() & b.keys())
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            pending.extend(zip(a, b, strict=True))
        elif not equal_numbers(a, b):
            return False
    return True


def _reader_of_items(read: _Read) -> _Read:
    """Reads an item as the only one of its list; None for one that the class leaves out."""

    @functools.cache
    def added() -> set[Hashable]:
        try:
            return {_text(one) for one in read([])}
        except Exception:  # it may refuse an empty list, with whatever its hooks raise
            return set()

    def read_item(item: Any) -> Any:
        found = [one for one in read([item]) if _text(one) not in added() or _agree(one, item)]
        parts = set(_parts(item))
        return max(found, key=lambda one: len(parts.intersection(_parts(one))), default=None)

    return read_item


def _read_apart(item: Any, read_item: _Read) -> Any:
    try:
        return read_item(item)
    except Exception:  # the class refuses a list of it alone
        return item


def _matches(known: list[Any], new: list[Any], *, in_place: bool = True) -> list[int | None]:
    """For each item of ``new`` the index of its former state in ``known``; None for a new item.

    An unchanged item is matched at any index, a changed one by its name; one without a name by the
    number of its unchanged fields, and with ``in_place`` at last by its index. The name is
    ``name``, or else ``key`` or ``type`` where that tells apart all items, as it does conditions.
    """
    by_name = [field for field in NAME_FIELDS if _tells_apart(field, known, new)]
    field = by_name[0] if by_name else NAME_FIELDS[0]
    unused = dict.fromkeys(range(len(known)))
    matches: list[int | None] = [None] * len(new)

    def match(position: int, index: int) -> None:
        matches[position] = index
        del unused[index]

    def match_equal(olds: list[Hashable], news: list[Hashable]) -> None:
        places = defaultdict(list)
        for index in reversed(unused):
            places[olds[index]].append(index)
        for position, one in enumerate(news):
            if one is not None and matches[position] is None and places.get(one):
                match(position, places[one].pop())

    texts, new_texts = ([_text(item) for item in items] for items in (known, new))
    names, new_names = ([_name(item, field) for item in items] for items in (known, new))
    for index, (one, other) in enumerate(zip(texts, new_texts, strict=False)):
        if one == other:
            match(index, index)
    match_equal(texts, new_texts)
    match_equal(names, new_names)
    places = defaultdict(list)
    for index in unused:
        for part in _parts(known[index]) if names[index] is None else ():
            places[part].append(index)
    for position, item in enumerate(new):
        if matches[position] is not None or new_names[position] is not None:
            continue
        common = Counter(i for part in _parts(item) for i in places.get(part, ()) if i in unused)
        if common:
            match(position, min(common, key=lambda i: (-common[i], i != position, i)))
        elif in_place and len(new) == len(known) and position in unused and names[position] is None:
            match(position, position)
    return matches


def _tells_apart(field: str, *lists: list[Any]) -> bool:
    """Whether all items of each list are objects with another text in this field."""
    for items in lists:
        names = [item.get(field) if isinstance(item, dict) else None for item in items]
        if not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
            return False
    return True


def _name(item: Any, field: str) -> Hashable:
    name = item.get(field) if isinstance(item, dict) else None
    return _text(name) if name else None


def _parts(item: Any) -> list[Hashable]:
    """The fields of an item with their values, without nulls."""
    if not isinstance(item, dict):
        return []
    return [(key, _text(value)) for key, value in item.items() if value is not None]


def _text(value: Any) -> Hashable:
    """The same for the same values alone; another each time for what is not JSON."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError, RecursionError):
        return object()
