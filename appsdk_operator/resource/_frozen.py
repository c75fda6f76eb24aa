"""Dicts and lists that can be read like any other, but not changed."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["FrozenDict", "FrozenList", "ReadOnlyError", "freeze", "thaw"]


class ReadOnlyError(TypeError):
    """Somebody tried to change an object that is shared between threads and caches."""


def refuse(*_: object, **__: object) -> NoReturn:
    """Raise the error that says how to get a copy that can be changed."""
    raise ReadOnlyError(
        "this object is a read-only view, shared between threads and caches: take "
        "`copy = obj.mutable_copy()`, change the copy, and hand it to the client"
    )


class FrozenDict(dict[str, Any]):
    """A dict whose changing methods raise :class:`ReadOnlyError`."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = refuse
    clear = pop = popitem = setdefault = update = refuse

    def copy(self) -> dict[str, Any]:
        """A changeable deep copy, of plain dicts and lists."""
        copied: dict[str, Any] = thaw(self)
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (self.copy(),)


class FrozenList(list[Any]):
    """A list whose changing methods raise :class:`ReadOnlyError`."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse
    append = clear = extend = insert = pop = remove = refuse
    reverse = sort = refuse

    def copy(self) -> list[Any]:
        """A changeable deep copy, of plain dicts and lists."""
        copied: list[Any] = thaw(self)
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> list[Any]:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (self.copy(),)


def freeze(value: Any) -> Any:
    """The same JSON value in frozen containers."""
    kind = type(value)
    if kind is dict:
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if kind is list:
        return FrozenList([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """The same JSON value in plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value
