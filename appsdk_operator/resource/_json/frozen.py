"""Read-only dicts and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Never, NoReturn

from appsdk_operator.resource._json import values as json_values


class ReadOnlyError(TypeError):
    """An attempt to change an object, which threads and caches share."""


def raise_read_only(*_: object, **__: object) -> NoReturn:
    """Raise :class:`ReadOnlyError`, which says how to get a mutable copy."""
    raise ReadOnlyError(
        "this object is a read-only view, shared between threads and caches: take "
        "`copy = obj.mutable_copy()`, change the copy, and hand it to the client"
    )


def _missing_attribute_text(value: dict[str, Any], name: str) -> str:
    text = f"{type(value).__name__!r} object has no attribute {name!r}"
    if name.startswith("__"):  # Python itself looks these up
        return text
    key = name if name in value or camel_case(name) not in value else camel_case(name)
    return (
        f'{text}: it is plain JSON, read with keys: write ["{key}"] instead of .{name}; spec and '
        "status have attributes when their kind has types for them, Kind(…, spec=YourSpec), frozen "
        "attrs classes, dataclasses, msgspec structs or pydantic models"
    )


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class FrozenDict(dict[str, Any]):
    """A dict whose changing methods raise :class:`ReadOnlyError`.

    Its contents are frozen on access, since programs read little of a large object.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # type checkers refuse every call: no value is a Never
        # fmt: off
        def __setitem__(self, key: Never, value: Never, /) -> None: ...  # type: ignore[override]
        def __delitem__(self, key: Never, /) -> None: ...  # type: ignore[override]
        def __ior__(self, other: Never, /) -> None: ...  # type: ignore[override, misc]
        def clear(self: Never) -> None: ...  # type: ignore[misc]
        def pop(self, key: Never, /) -> None: ...  # type: ignore[override]
        def popitem(self: Never) -> None: ...  # type: ignore[misc, override]
        def setdefault(self, key: Never, /) -> None: ...  # type: ignore[override]
        def update(self, other: Never, /) -> None: ...  # type: ignore[override]
        # fmt: on
    else:
        __setitem__ = __delitem__ = __ior__ = raise_read_only
        clear = pop = popitem = setdefault = update = raise_read_only

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if type(value) is dict or type(value) is list:
            value = freeze(value)
            # Each access returns the same object.
            super().__setitem__(key, value)
        return value

    if not TYPE_CHECKING:  # type checkers report it themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_missing_attribute_text(self, name), name=name, obj=self)

    def get(self, key: str, default: Any = None) -> Any:
        """The value; ``default`` if absent."""
        if key not in self:
            return default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        # Overridden, because dict() and ** would otherwise bypass items() and copy unfrozen values.
        return super().__iter__()

    def values(self) -> Any:
        """The values."""
        _freeze_children(self)
        return super().values()

    def items(self) -> Any:
        """The items."""
        _freeze_children(self)
        return super().items()

    def __or__(self, other: Any) -> Any:
        _freeze_children(self)
        return super().__or__(other)

    def __ror__(self, other: Any) -> Any:
        _freeze_children(self)
        return super().__ror__(other)

    def copy(self) -> dict[str, Any]:
        """A mutable deep copy in plain dicts and lists."""
        copied: dict[str, Any] = json_values.lists(self)
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (self.copy(),)


class FrozenList(list[Any]):
    """A list whose changing methods raise :class:`ReadOnlyError`; as :class:`FrozenDict`."""

    __slots__ = ()

    if TYPE_CHECKING:
        # fmt: off
        def __setitem__(self, index: Never, value: Never, /) -> None: ...  # type: ignore[override]
        def __delitem__(self, index: Never, /) -> None: ...  # type: ignore[override]
        def __iadd__(self, other: Never, /) -> None: ...  # type: ignore[override, misc]
        def __imul__(self, count: Never, /) -> None: ...  # type: ignore[override, misc]
        def append(self, value: Never, /) -> None: ...
        def clear(self: Never) -> None: ...  # type: ignore[misc]
        def extend(self, other: Never, /) -> None: ...  # type: ignore[override]
        def insert(self, index: Never, value: Never, /) -> None: ...  # type: ignore[override]
        def pop(self, index: Never, /) -> None: ...  # type: ignore[override]
        def remove(self, value: Never, /) -> None: ...
        def reverse(self: Never) -> None: ...  # type: ignore[misc]
        def sort(self, key: Never, /) -> None: ...  # type: ignore[override]
        # fmt: on
    else:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = raise_read_only
        append = clear = extend = insert = pop = remove = raise_read_only
        reverse = sort = raise_read_only

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            _freeze_children(self)
            return super().__getitem__(index)
        value = super().__getitem__(index)
        if type(value) is dict or type(value) is list:
            value = freeze(value)
            list.__setitem__(self, index, value)
        return value

    def __iter__(self) -> Iterator[Any]:
        _freeze_children(self)
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        _freeze_children(self)
        return super().__reversed__()

    def __add__(self, other: Any) -> Any:
        _freeze_children(self)
        return super().__add__(other)

    def __mul__(self, count: Any) -> Any:
        _freeze_children(self)
        return super().__mul__(count)

    __rmul__ = __mul__

    def copy(self) -> list[Any]:
        """A mutable deep copy in plain dicts and lists."""
        copied: list[Any] = json_values.lists(self)
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> list[Any]:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (self.copy(),)


def freeze(value: Any) -> Any:
    """A JSON value in a frozen container; its contents are frozen on access."""
    kind = type(value)
    if kind is dict:
        return FrozenDict(value)
    if kind is list:
        return FrozenList(value)
    return value


def _freeze_children(value: FrozenDict | FrozenList) -> None:
    """Freeze the contents of a frozen container; harmless when repeated or concurrent."""
    if isinstance(value, FrozenDict):
        for key, item in dict.items(value):
            if type(item) is dict or type(item) is list:
                dict.__setitem__(value, key, freeze(item))
    else:
        for index, item in enumerate(list.__iter__(value)):
            if type(item) is dict or type(item) is list:
                list.__setitem__(value, index, freeze(item))


_FROZEN_ERRORS = ("FrozenInstanceError", "FrozenAttributeError", "FrozenError")
"""The errors of attrs and dataclasses, by name: neither need be imported."""


def explain_frozen(error: BaseException) -> None:
    """Add a note with the remedy to an error about a change of a frozen instance.

    The classes of spec and status are the user's, and their errors name no remedy. Other errors get
    no note.
    """
    if not isinstance(error, AttributeError):
        return
    # Not needed before, and most programs that read objects alone need nothing else of it.
    from appsdk_operator.runtime import add_note, safe_text, traceback_of

    text = safe_text(error)
    is_struct = text.startswith("immutable type")
    if not is_struct and type(error).__name__ not in _FROZEN_ERRORS:
        return
    trace = traceback_of(error)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # The frame of the class' setter, if it is written in Python.
    known = trace.tb_frame.f_locals if trace is not None and not is_struct else {}
    name = known.get("name", "field")
    target = known.get("self")
    if is_struct:
        function = "msgspec.structs.replace"
    elif hasattr(target, "__dataclass_fields__") or "dataclasses" in type(error).__module__:
        function = "dataclasses.replace"
    else:
        function = "attrs.evolve"
    what = type(target).__name__ if target is not None else "such a class"
    note = (
        f"{what} is frozen: make another value and assign it, "
        f"draft.spec = {function}(draft.spec, {name}=…)"
    )
    if note not in getattr(error, "__notes__", ()):
        add_note(error, note)
