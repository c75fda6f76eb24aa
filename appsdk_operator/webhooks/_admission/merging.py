"""One patch of those of several handlers, which all saw the same object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from appsdk_operator.resource import PatchError, apply_json_patch, json_diff, json_pointer

_ABSENT: Final = object()
_Operations = Sequence[Mapping[str, Any]]


class ConflictingPatches(Exception):  # noqa: N818 - what it is
    """Two handlers give one field different values."""


def merged_patch(base: Any, patches: Sequence[tuple[str, _Operations]]) -> _Operations:
    """The patch with the changes of all; each was made for ``base``.

    Maps are merged member by member, lists item by item as long as their items keep their places,
    with what is appended behind them.

    Args:
        base: the object as it was sent.
        patches: the name of each handler, with its operations.

    Raises:
        ConflictingPatches: two change one field differently; the text names it and the handlers.
        PatchError: a patch is wrong.
    """
    merged, before = base, ""
    for name, operations in patches:
        try:
            changed = apply_json_patch(base, operations)
        except PatchError:
            # It may be written for what those before it leave.
            changed = merged = apply_json_patch(merged, operations)
        else:
            try:
                merged = _merged(base, merged, changed, "")
            except ConflictingPatches as conflict:
                raise ConflictingPatches(
                    f"{before} and {name} change {conflict} differently: let only one of them "
                    "change it"
                ) from None
        before = f"{before}, {name}" if before else name
    joined = [each for _, operations in patches for each in operations]
    try:
        if not json_diff(apply_json_patch(base, joined), merged):
            return joined
    except PatchError:
        pass
    return json_diff(base, merged)


def _merged(base: Any, one: Any, other: Any, path: str) -> Any:
    """The changes from ``base`` to ``one`` and to ``other`` in one value."""
    if _is_same(one, other) or _is_same(base, other):
        return one
    if _is_same(base, one):
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        old = base if isinstance(base, dict) else {}
        merged = {}
        for key in {**old, **one, **other}:
            step = path + json_pointer([key])
            each = old.get(key, _ABSENT), one.get(key, _ABSENT), other.get(key, _ABSENT)
            value = _merged(*each, step)
            if value is not _ABSENT:
                merged[key] = value
        return merged
    if isinstance(one, list) and isinstance(other, list):
        places = base if isinstance(base, list) else []
        if _keeps_places(places, one) and _keeps_places(places, other):
            size = len(places)
            items = [
                _merged(*item, f"{path}/{index}")
                for index, item in enumerate(zip(places, one[:size], other[:size], strict=True))
            ]
            added = one[size:]
            for item in other[size:]:
                twins = [each for each in added if _name(each) == _name(item) is not None]
                if any(not _is_same(each, item) for each in twins):
                    break
                if not any(_is_same(each, item) for each in added):
                    added = [*added, item]
            else:
                return [*items, *added]
    raise ConflictingPatches(path or "the object")


def _is_same(one: Any, other: Any) -> bool:
    if one is _ABSENT or other is _ABSENT:
        return one is other
    return not json_diff(one, other)


def _keeps_places(old: list[Any], new: list[Any]) -> bool:
    """Whether each item of ``old`` is at its place in ``new``: unchanged, or with its name."""
    return len(new) >= len(old) and all(
        _is_same(before, after) or _name(before) == _name(after) is not None
        for before, after in zip(old, new, strict=False)
    )


def _name(item: Any) -> str | None:
    """What names an item of a list."""
    if not isinstance(item, dict):
        return None
    return next(
        (f"{key}={item[key]}" for key in ("name", "key", "type") if isinstance(item.get(key), str)),
        None,
    )
