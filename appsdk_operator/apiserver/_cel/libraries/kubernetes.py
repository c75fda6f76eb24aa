"""Kubernetes' functions for lists, sets, optionals, quantities, formats and versions."""

from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Callable
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._cel.libraries.network import NETWORK_FUNCTIONS
from appsdk_operator.apiserver._cel.overloads import Row, is_parseable
from appsdk_operator.apiserver._cel.values import (
    NONE,
    CelError,
    Duration,
    Lookup,
    Optional,
    Timestamp,
    Uint,
    distinct,
    equal,
    int64,
    uint64,
)
from appsdk_operator.apiserver._values import names, string_formats
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.names import NameStyle
from appsdk_operator.apiserver._values.quantity import QuantityError, amount

# -- lists ---------------------------------------------------------------------------------


def _is_sorted(items: list[Any]) -> bool:
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _sum(items: list[Any], zero: Any) -> Any:
    match zero:
        case Duration():
            return Duration(sum(item.nanoseconds for item in items))
        case Uint():
            return uint64(sum(map(int, items)))
        case _:
            total = sum(items, zero)
            return int64(total) if isinstance(total, int) else total


def _extreme(pick: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise CelError(f"{name} called on empty list")
        return pick(items)

    return call


def _index_of(items: list[Any], wanted: Any) -> int:
    return next((i for i, item in enumerate(items) if equal(item, wanted)), -1)


def _last_index_of(items: list[Any], wanted: Any) -> int:
    for index in range(len(items) - 1, -1, -1):
        if equal(items[index], wanted):
            return index
    return -1


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


# As many cost units as one evaluation has.
_MAX_RANGE: Final = 1_000_000


def _range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    made: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            made += _flatten(item, depth - 1)
        else:
            made.append(item)
    return made


_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _list_rows() -> list[Row]:
    rows: list[Row] = []
    zeros = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
    for kind in _COMPARABLE:
        items = f"list<{kind}>"
        rows += [
            (f"list_{kind}_is_sorted_bool", f"{items}:isSorted()->bool", _is_sorted),
            (f"list_{kind}_max_{kind}", f"{items}:max()->{kind}", _extreme(max, "max")),
            (f"list_{kind}_min_{kind}", f"{items}:min()->{kind}", _extreme(min, "min")),
            (f"list_{kind}_sort", f"{items}:sort()->{items}", sorted),
        ]
        if kind in zeros:
            add = functools.partial(_sum, zero=zeros[kind])
            rows.append((f"list_{kind}_sum_{kind}", f"{items}:sum()->{kind}", add))
    return [
        *rows,
        ("list_a_index_of_int", "list<A>:indexOf(A)->int", _index_of),
        ("list_a_last_index_of_int", "list<A>:lastIndexOf(A)->int", _last_index_of),
        ("list_slice", "list<A>:slice(int,int)->list<A>", _slice),
        ("list_flatten", "list<list<A>>:flatten()->list<A>", _flatten),
        ("list_flatten_int", "list<dyn>:flatten(int)->list<dyn>", _flatten),
        ("lists_range", "lists.range(int)->list<int>", _range),
        ("list_reverse", "list<A>:reverse()->list<A>", lambda items: items[::-1]),
        ("list_distinct", "list<A>:distinct()->list<A>", distinct),
        ("sets_contains", "sets.contains(list<A>,list<A>)->bool", _set_contains),
        (
            "sets_equivalent",
            "sets.equivalent(list<A>,list<A>)->bool",
            lambda one, two: _set_contains(one, two) and _set_contains(two, one),
        ),
        (
            "sets_intersects",
            "sets.intersects(list<A>,list<A>)->bool",
            lambda one, two: any(map(Lookup(one).__contains__, two)),
        ),
    ]


def _set_contains(one: list[Any], two: list[Any]) -> bool:
    return all(map(Lookup(one).__contains__, two))


# -- optionals -----------------------------------------------------------------------------


def _value(optional: Optional) -> Any:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _non_zero(value: Any) -> Optional:
    return Optional(value) if value or isinstance(value, Timestamp) else NONE


_OPTIONALS: Final[list[Row]] = [
    ("optional_of", "optional.of(A)->opt<A>", Optional),
    ("optional_ofNonZeroValue", "optional.ofNonZeroValue(A)->opt<A>", _non_zero),
    ("optional_none", "optional.none()->opt<A>", lambda: NONE),
    ("optional_value", "opt<A>:value()->A", _value),
    ("optional_hasValue", "opt<A>:hasValue()->bool", lambda optional: optional.has_value),
    ("optional_or_optional", "opt<A>:or(opt<A>)->opt<A>", lambda a, b: a if a.has_value else b),
    ("optional_orValue_value", "opt<A>:orValue(A)->A", lambda a, b: a.value if a.has_value else b),
]


# -- quantities ----------------------------------------------------------------------------


@final
@functools.total_ordering
@attrs.frozen(eq=False)
class Quantity:
    """A quantity, such as ``1.5Gi`` or ``200m``."""

    amount: decimal.Decimal
    type_name = "kubernetes.Quantity"

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse a quantity.

        Raises:
            CelError: it is not a quantity.
        """
        try:
            return cls(amount(text))
        except QuantityError as error:
            raise CelError(str(error)) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount == other.amount

    def __lt__(self, other: Quantity) -> bool:
        return bool(self.amount < other.amount)

    def __hash__(self) -> int:
        return hash(self.amount)

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer of 64 bits."""
        integral = self.amount == self.amount.to_integral_value()
        return integral and -(2**63) <= self.amount < 2**63

    def as_integer(self) -> int:
        """The quantity as an integer.

        Raises:
            CelError: it is not an integer of 64 bits.
        """
        if not self.is_integer:
            raise CelError("cannot convert value to integer")
        return int(self.amount)


# More than any sum of quantities has.
_DIGITS: Final = 2_000


def _compare(one: Any, two: Any) -> int:
    return int(one > two) - int(one < two)


def _plus(one: Quantity, other: Quantity | int, sign: int = 1) -> Quantity:
    amount = other.amount if isinstance(other, Quantity) else decimal.Decimal(other)
    with decimal.localcontext(prec=_DIGITS):
        return Quantity(one.amount + sign * amount)


_QUANTITIES: Final[list[Row]] = [
    ("string_to_quantity", "quantity(string)->Quantity", Quantity.parse),
    ("is_quantity_string", "isQuantity(string)->bool", is_parseable(Quantity.parse)),
    ("quantity_sign", "sign(Quantity)->int", lambda q: _compare(q.amount, 0)),
    (
        "quantity_is_greater_than",
        "Quantity:isGreaterThan(Quantity)->bool",
        lambda one, two: one > two,
    ),
    ("quantity_is_less_than", "Quantity:isLessThan(Quantity)->bool", lambda one, two: one < two),
    ("quantity_compare_to", "Quantity:compareTo(Quantity)->int", _compare),
    ("quantity_get_float", "Quantity:asApproximateFloat()->double", lambda q: float(q.amount)),
    ("quantity_get_int", "Quantity:asInteger()->int", Quantity.as_integer),
    ("quantity_is_integer", "Quantity:isInteger()->bool", lambda q: q.is_integer),
    ("quantity_add", "Quantity:add(Quantity)->Quantity", _plus),
    ("quantity_add_int", "Quantity:add(int)->Quantity", _plus),
    ("quantity_sub", "Quantity:sub(Quantity)->Quantity", lambda a, b: _plus(a, b, -1)),
    ("quantity_sub_int", "Quantity:sub(int)->Quantity", lambda a, b: _plus(a, b, -1)),
]


# -- named formats, versions ---------------------------------------------------------------


_Check = Callable[[str], list[str]]


def _short(text: str) -> list[str]:
    return list(names.name_problems(text, NameStyle.LABEL))


def _before_suffix(check: _Check) -> _Check:
    """The check of a name prefix, to which a suffix is generated: it may end with a dash."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text[-1] == "-" else text)


def _schema_format(name: str, problem: str) -> _Check:
    return lambda text: [] if string_formats.is_valid(name, text) else [problem]


_NAMED_FORMATS: Final[dict[str, _Check]] = {
    "dns1123Label": _short,
    "dns1123Subdomain": names.subdomain_problems,
    "dns1035Label": names.label_problems,
    "qualifiedName": lambda text: list(names.key_problems(text)),
    "dns1123LabelPrefix": _before_suffix(_short),
    "dns1123SubdomainPrefix": _before_suffix(names.subdomain_problems),
    "dns1035LabelPrefix": _before_suffix(names.label_problems),
    "labelValue": lambda text: list(names.value_problems(text)),
    "uri": _schema_format("uri", "invalid URI for request"),
    "uuid": _schema_format("uuid", "does not match the UUID format"),
    "byte": _schema_format("byte", "invalid base64"),
    "date": _schema_format("date", "invalid date"),
    "datetime": _schema_format("datetime", "invalid datetime"),
}
"""The functions that list the problems of a string, by format."""


@final
@attrs.frozen
class NamedFormat:
    """A named format that strings can be validated against."""

    name: str
    type_name = "kubernetes.NamedFormat"

    def validate(self, text: str) -> Optional:
        """The problems of a string as an optional list; none if it is valid."""
        problems = _NAMED_FORMATS[self.name](text)
        return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    return Optional(NamedFormat(name)) if name in _NAMED_FORMATS else NONE


def _format_rows() -> list[Row]:
    rows: list[Row] = [
        ("format-validate", "Format:validate(string)->opt<list<string>>", NamedFormat.validate),
        ("format-named", "format.named(string)->opt<Format>", _named),
    ]
    rows += [
        (f"format.{name}", f"format.{name}()->Format", lambda name=name: NamedFormat(name))
        for name in _NAMED_FORMATS
    ]
    return rows


_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


@final
@functools.total_ordering
@attrs.frozen(eq=False)
class Semver:
    """A semantic version."""

    numbers: tuple[int, int, int]
    pre: str = ""
    type_name = "kubernetes.Semver"

    @classmethod
    def parse(cls, text: str, normalize: bool = False) -> Semver:
        """Parse a version; ``normalize`` allows a leading ``v`` and missing parts.

        Raises:
            CelError: it is not a version.
        """
        if normalize:
            text = text.removeprefix("v")
            parts = [*text.split("."), "0", "0"][:3] if text.count(".") < 2 else [text]
            text = ".".join(re.sub(r"^0+(?=\d)", "", part) for part in parts)
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise CelError("No Major.Minor.Patch elements found")
        return cls(
            (
                parse_integer(found[1]) or 0,
                parse_integer(found[2]) or 0,
                parse_integer(found[3]) or 0,
            ),
            found[4] or "",
        )

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key: a release after its pre-releases."""
        parts = tuple(
            (1, 0, part) if (number := parse_integer(part)) is None else (0, number, "")
            for part in self.pre.split(".")
        )
        return (*self.numbers, not self.pre, parts if self.pre else ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.rank == other.rank

    def __lt__(self, other: Semver) -> bool:
        return self.rank < other.rank

    def __hash__(self) -> int:
        return hash(self.rank)


_VERSIONS: Final[list[Row]] = [
    ("string_to_semver", "semver(string)->Semver", Semver.parse),
    ("string_bool_to_semver", "semver(string,bool)->Semver", Semver.parse),
    ("is_semver_string", "isSemver(string)->bool", is_parseable(Semver.parse)),
    (
        "is_semver_string_bool",
        "isSemver(string,bool)->bool",
        lambda text, normalize: is_parseable(lambda t: Semver.parse(t, normalize))(text),
    ),
    ("semver_is_greater_than", "Semver:isGreaterThan(Semver)->bool", lambda one, two: one > two),
    ("semver_is_less_than", "Semver:isLessThan(Semver)->bool", lambda one, two: one < two),
    ("semver_compare_to", "Semver:compareTo(Semver)->int", _compare),
    ("semver_major", "Semver:major()->int", lambda version: version.numbers[0]),
    ("semver_minor", "Semver:minor()->int", lambda version: version.numbers[1]),
    ("semver_patch", "Semver:patch()->int", lambda version: version.numbers[2]),
]

KUBERNETES_FUNCTIONS: Final[list[Row]] = [
    *_list_rows(),
    *_OPTIONALS,
    *_QUANTITIES,
    *NETWORK_FUNCTIONS,
    *_format_rows(),
    *_VERSIONS,
]
