"""CEL values that JSON has no type for, and equality of values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._values import times


class CelError(Exception):
    """An evaluation that failed. The text is cel-go's."""


def no_such_overload() -> CelError:
    """The error of a call whose arguments match no overload."""
    return CelError("no such overload")


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


def int64(value: int) -> int:
    """Check that an integer fits 64 bits.

    Raises:
        CelError: it does not.
    """
    if not -(2**63) <= value < 2**63:
        raise CelError("integer overflow")
    return value


def uint64(value: int) -> Uint:
    """Make an unsigned integer of 64 bits.

    Raises:
        CelError: the value does not fit.
    """
    if not 0 <= value < 2**64:
        raise CelError("unsigned integer overflow")
    return Uint(value)


_SECOND: Final = 10**9
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST: Final = -62_135_596_800
_LAST: Final = 253_402_300_799


@final
@attrs.frozen(order=True)
class Duration:
    """A duration in nanoseconds.

    Raises:
        CelError: it does not fit 64 bits.
    """

    nanoseconds: int

    def __attrs_post_init__(self) -> None:
        if not -(2**63) <= self.nanoseconds < 2**63:
            raise CelError("integer overflow")

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parse a duration in Go's syntax.

        Raises:
            CelError: it is not a duration.
        """
        try:
            return cls(times.parse_duration(text))
        except ValueError as error:
            raise CelError(str(error)) from None

    def __str__(self) -> str:
        seconds = self.nanoseconds / _SECOND
        return f"{int(seconds)}s" if seconds.is_integer() else f"{seconds:.9f}".rstrip("0") + "s"


@final
@attrs.frozen(order=True)
class Timestamp:
    """A time in nanoseconds since the Unix epoch.

    Raises:
        CelError: it is not in the years 1 to 9999.
    """

    nanoseconds: int

    def __attrs_post_init__(self) -> None:
        if not _FIRST <= self.nanoseconds // _SECOND <= _LAST:
            raise CelError("timestamp overflow")

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Parse a time of RFC 3339.

        Raises:
            CelError: it is not a time.
        """
        try:
            return cls(times.parse_time(text))
        except ValueError as error:
            raise CelError(str(error)) from None

    def __str__(self) -> str:
        seconds, fraction = divmod(self.nanoseconds, _SECOND)
        text = (_EPOCH + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
        return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"

    def in_zone(self, zone: dt.tzinfo) -> dt.datetime:
        """The time in a zone, to the microsecond."""
        return (_EPOCH + dt.timedelta(microseconds=self.nanoseconds // 1000)).astimezone(zone)


@final
@attrs.frozen
class Optional:
    """A value that may be missing."""

    value: Any = None
    has_value: bool = True


NONE: Final = Optional(has_value=False)


@final
@attrs.frozen
class TypeValue:
    """A type as a value."""

    name: str


@final
class SetList(list[Any]):
    """A list of the list type ``set``: equality ignores the order."""

    __slots__ = ()


@final
class MapList(list[Any]):
    """A list of the list type ``map``: objects with key fields."""

    __slots__ = ("key_names",)

    def __init__(self, items: list[Any], key_names: tuple[str, ...]) -> None:
        """The items and the names of the key fields."""
        super().__init__(items)
        self.key_names = key_names

    def key(self, item: Any) -> str:
        """The key of an item."""
        return repr([item.get(name) for name in self.key_names])


@final
class NullsHidden(dict[str, Any]):
    """An object without its fields that are null, which rules cannot see.

    Equality counts them, as in Kubernetes.
    """

    __slots__ = ("nulls",)

    def __init__(self, fields: dict[str, Any]) -> None:
        """``fields`` with their nulls."""
        super().__init__({name: item for name, item in fields.items() if item is not None})
        self.nulls: int = len(fields) - len(self)


def type_name(value: Any) -> str:
    """The name of a value's type."""
    if value is None:
        return "null_type"
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return name
    return str(getattr(value, "type_name", "dyn"))


_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (Timestamp, "google.protobuf.Timestamp"),
    (Duration, "google.protobuf.Duration"),
    (Optional, "optional_type"),
    (TypeValue, "type"),
)
_NUMBERS: Final = (int, float)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal in CEL: numbers by value, others by type and value."""
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return isinstance(left, bool) == isinstance(right, bool) and left == right
    if isinstance(left, list) and isinstance(right, list):
        return _equal_lists(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return (
            left.keys() == right.keys()
            and getattr(left, "nulls", 0) == getattr(right, "nulls", 0)
            and all(equal(left[k], right[k]) for k in left)
        )
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.has_value == right.has_value and (
            not left.has_value or equal(left.value, right.value)
        )
    return type(left) is type(right) and bool(left == right)


def _equal_lists(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    key: Callable[[Any], str] | None = None
    for side in (left, right):
        if isinstance(side, MapList):
            key = side.key
    if key is not None:
        known = {key(item): item for item in right}
        return all(key(i) in known and equal(i, known[key(i)]) for i in left)
    if isinstance(left, SetList) or isinstance(right, SetList):
        known_items = Lookup(right)
        return all(item in known_items for item in left)
    return all(map(equal, left, right))


@final
class Lookup:
    """Values to look up by equality, without a look at each."""

    def __init__(self, items: list[Any]) -> None:
        """``items`` are the values so far."""
        self.items: list[Any] = []
        self._keys: set[Any] = set()
        self._others: list[Any] = []
        for item in items:
            self.add(item)

    def add(self, item: Any) -> None:
        """Add a value."""
        self.items.append(item)
        key = _key(item)
        if key is None:
            self._others.append(item)
        else:
            self._keys.add(key)

    def __contains__(self, item: Any) -> bool:
        key = _key(item)
        if key is None:
            return any(equal(item, other) for other in self.items)
        return key in self._keys or any(equal(item, other) for other in self._others)


def distinct(items: list[Any]) -> list[Any]:
    """The items without those that equal an earlier one."""
    known = Lookup([])
    for item in items:
        if item not in known:
            known.add(item)
    return known.items


def _key(value: Any) -> Any:
    """A value with the same equality that has a hash; None if there is none.

    Sets and maps among lists equal lists in another order, and NaN does not equal itself.
    """
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return value if value == value else None
    if isinstance(value, (SetList, MapList)):
        return None
    if isinstance(value, list):
        parts = tuple(map(_key, value))
        return None if None in parts else (list, parts)
    if isinstance(value, dict):
        fields = {(_key(name), _key(item)) for name, item in value.items()}
        if any(None in field for field in fields):
            return None
        return dict, getattr(value, "nulls", 0), frozenset(fields)
    if isinstance(value, Optional):
        inner = _key(value.value)
        return None if inner is None else (Optional, value.has_value, inner)
    return type(value), value
