"""The standard library of CEL: operators, conversions, times."""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
import zoneinfo
from collections.abc import Callable
from typing import Any, Final

from appsdk_operator.apiserver._cel.overloads import Row
from appsdk_operator.apiserver._cel.values import (
    CelError,
    Duration,
    MapList,
    SetList,
    Timestamp,
    TypeValue,
    Uint,
    distinct,
    equal,
    int64,
    type_name,
    uint64,
)
from appsdk_operator.apiserver._values.go_pattern import GoPatternError, go_pattern
from appsdk_operator.apiserver._values.go_text import go_float, parse_integer


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(left) // abs(right)
    return int64(-quotient if (left < 0) != (right < 0) else quotient)


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    _divide(left, right)  # of which the quotient may be too large
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _divide_float(left: float, right: float) -> float:
    try:
        return left / right
    except ZeroDivisionError:
        sign = math.copysign(1, right)
        return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * sign


def _nonzero(action: Callable[[int, int], int], words: str) -> Callable[[int, int], Uint]:
    def call(left: int, right: int) -> Uint:
        if right == 0:
            raise CelError(words)
        return uint64(action(left, right))

    return call


def _add_lists(left: list[Any], right: list[Any]) -> list[Any]:
    if isinstance(left, MapList):
        replacements = {left.key(item): item for item in right if isinstance(item, dict)}
        left_keys = {left.key(item) for item in left}
        merged = [replacements.get(left.key(item), item) for item in left]
        return MapList(
            [*merged, *(i for i in right if left.key(i) not in left_keys)], left.key_names
        )
    if isinstance(left, SetList):
        return SetList(distinct([*left, *right]))
    return [*left, *right]


def _index(value: list[Any], position: Any) -> Any:
    if isinstance(position, float) and not position.is_integer():
        raise CelError(f"unsupported index value {go_float(position)} in list")
    if not 0 <= position < len(value):
        raise CelError(f"index out of bounds: {int(position)}")
    return value[int(position)]


def _lookup(value: dict[Any, Any], key: Any) -> Any:
    try:
        return value[key]
    except KeyError:
        shown = "true" if key is True else "false" if key is False else key
        raise CelError(f"no such key: {shown}") from None
    except TypeError:
        raise CelError("unsupported key type") from None


def _inside(item: Any, where: list[Any]) -> bool:
    if type(item) is str:
        return item in where
    return any(equal(item, other) for other in where)


def _matches(text: str, pattern: str) -> bool:
    """Whether the pattern matches anywhere in the text.

    Raises:
        CelError: the pattern does not compile.
    """
    try:
        return go_pattern(pattern).found_in(text)
    except GoPatternError as error:
        raise CelError(str(error)) from None


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        number = parse_integer(value)
        if number is None:
            raise CelError("type conversion error from 'string' to 'int'")
        return int64(number)
    if isinstance(value, Timestamp):
        return value.nanoseconds // 10**9
    if isinstance(value, Duration):
        return value.nanoseconds
    if isinstance(value, float) and not -(2.0**63) < value < 2.0**63:
        raise CelError("integer overflow")
    return int64(int(value))


def _to_uint(value: Any) -> Uint:
    if isinstance(value, str):
        number = parse_integer(value) if value[:1] not in ("+", "-") else None
        if number is None:
            raise CelError("type conversion error from 'string' to 'uint'")
        return uint64(number)
    return uint64(-1 if value < 0 else int(value))


# As Go's strconv.ParseFloat, without its hexadecimal numbers.
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?inf(?:inity)?|nan",
    re.IGNORECASE | re.ASCII,
)


def _to_double(value: Any) -> float:
    if not isinstance(value, str):
        return float(value)
    value = re.sub("(?<=[0-9])_(?=[0-9])", "", value)
    number = float(value) if _FLOAT.fullmatch(value) else math.inf
    if math.isinf(number) and "inf" not in value.lower():
        raise CelError("type conversion error from 'string' to 'double'")
    return number


def _to_bool(value: str) -> bool:
    if value in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise CelError("type conversion error from 'string' to 'bool'")


def _to_string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return go_float(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
        case _:
            return str(value)


def _to_timestamp(value: Any) -> Timestamp:
    if isinstance(value, int):
        return Timestamp(value * 10**9)
    return value if isinstance(value, Timestamp) else Timestamp.parse(value)


def _to_duration(value: Any) -> Duration:
    if isinstance(value, int):
        return Duration(value)
    return value if isinstance(value, Duration) else Duration.parse(value)


def _zone(name: str) -> dt.tzinfo:
    if name in ("", "UTC"):
        return dt.UTC
    try:
        if ":" in name:
            signed = name if name[0] in "+-" else f"+{name}"
            return dt.datetime.strptime(signed, "%z").tzinfo or dt.UTC
        return zoneinfo.ZoneInfo(name)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise CelError(f"unknown time zone {name}") from None


_PARTS: Final[dict[str, Callable[[dt.datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}
_SPANS: Final = {
    "getHours": 3600 * 10**9,
    "getMinutes": 60 * 10**9,
    "getSeconds": 10**9,
    "getMilliseconds": 10**6,
}


def _time_rows() -> list[Row]:
    rows: list[Row] = []
    for name, part in _PARTS.items():
        rows += [
            (
                f"timestamp_to_{name}",
                f"timestamp:{name}()->int",
                lambda time, part=part: part(time.in_zone(dt.UTC)),
            ),
            (
                f"timestamp_to_{name}_with_tz",
                f"timestamp:{name}(string)->int",
                lambda time, zone, part=part: part(time.in_zone(_zone(zone))),
            ),
        ]
    for name, unit in _SPANS.items():
        rows.append(
            (
                f"duration_to_{name}",
                f"duration:{name}()->int",
                lambda span, unit=unit: int(span.nanoseconds / unit),
            )
        )
    return rows


def _comparisons() -> list[Row]:
    rows: list[Row] = []
    words = {"<": "less", "<=": "less_equals", ">": "greater", ">=": "greater_equals"}
    actions: dict[str, Callable[[Any, Any], bool]] = {
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
    kinds = {
        "bool": "bool",
        "int": "int64",
        "uint": "uint64",
        "double": "double",
        "string": "string",
        "bytes": "bytes",
        "timestamp": "timestamp",
        "duration": "duration",
    }
    numbers = ("int", "uint", "double")
    for sign, word in words.items():
        rows += [
            (f"{word}_{id_}", f"_{sign}_({kind},{kind})->bool", actions[sign])
            for kind, id_ in kinds.items()
        ]
        rows += [
            (f"{word}_{kinds[one]}_{kinds[two]}", f"_{sign}_({one},{two})->bool", actions[sign])
            for one in numbers
            for two in numbers
            if one != two
        ]
    return rows


def _plus(value: Any, span: Any) -> Any:
    kind = Timestamp if isinstance(value, Timestamp) or isinstance(span, Timestamp) else Duration
    return kind(value.nanoseconds + span.nanoseconds)


def _minus(value: Any, other: Any) -> Any:
    kind = Timestamp if isinstance(value, Timestamp) and isinstance(other, Duration) else Duration
    return kind(value.nanoseconds - other.nanoseconds)


def _type_of(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


STANDARD_FUNCTIONS: Final[list[Row]] = [
    ("equals", "_==_(A,A)->bool", equal),
    ("not_equals", "_!=_(A,A)->bool", lambda a, b: not equal(a, b)),
    ("add_int64", "_+_(int,int)->int", lambda a, b: int64(a + b)),
    ("add_uint64", "_+_(uint,uint)->uint", lambda a, b: uint64(int(a) + int(b))),
    ("add_double", "_+_(double,double)->double", operator.add),
    ("add_string", "_+_(string,string)->string", operator.add),
    ("add_bytes", "_+_(bytes,bytes)->bytes", operator.add),
    ("add_list", "_+_(list<A>,list<A>)->list<A>", _add_lists),
    ("add_duration_duration", "_+_(duration,duration)->duration", _plus),
    ("add_timestamp_duration", "_+_(timestamp,duration)->timestamp", _plus),
    ("add_duration_timestamp", "_+_(duration,timestamp)->timestamp", _plus),
    ("subtract_int64", "_-_(int,int)->int", lambda a, b: int64(a - b)),
    ("subtract_uint64", "_-_(uint,uint)->uint", lambda a, b: uint64(int(a) - int(b))),
    ("subtract_double", "_-_(double,double)->double", operator.sub),
    ("subtract_timestamp_timestamp", "_-_(timestamp,timestamp)->duration", _minus),
    ("subtract_timestamp_duration", "_-_(timestamp,duration)->timestamp", _minus),
    ("subtract_duration_duration", "_-_(duration,duration)->duration", _minus),
    ("multiply_int64", "_*_(int,int)->int", lambda a, b: int64(a * b)),
    ("multiply_uint64", "_*_(uint,uint)->uint", lambda a, b: uint64(int(a) * int(b))),
    ("multiply_double", "_*_(double,double)->double", operator.mul),
    ("divide_int64", "_/_(int,int)->int", _divide),
    ("divide_uint64", "_/_(uint,uint)->uint", _nonzero(operator.floordiv, "division by zero")),
    ("divide_double", "_/_(double,double)->double", _divide_float),
    ("modulo_int64", "_%_(int,int)->int", _modulo),
    ("modulo_uint64", "_%_(uint,uint)->uint", _nonzero(operator.mod, "modulus by zero")),
    ("negate_int64", "-_(int)->int", lambda a: int64(-a)),
    ("negate_double", "-_(double)->double", operator.neg),
    ("logical_not", "!_(bool)->bool", operator.not_),
    ("index_list", "_[_](list<A>,int)->A", _index),
    ("index_map", "_[_](map<A,B>,A)->B", _lookup),
    ("in_list", "@in(A,list<A>)->bool", _inside),
    ("in_map", "@in(A,map<A,B>)->bool", lambda key, where: key in where),
    ("matches", "matches(string,string)->bool", _matches),
    ("matches_string", "string:matches(string)->bool", _matches),
    ("contains_string", "string:contains(string)->bool", lambda text, part: part in text),
    ("starts_with_string", "string:startsWith(string)->bool", str.startswith),
    ("ends_with_string", "string:endsWith(string)->bool", str.endswith),
    *(
        (f"size_{kind}", f"size({param})->int", len)
        for kind, param in (
            ("string", "string"),
            ("bytes", "bytes"),
            ("list", "list<A>"),
            ("map", "map<A,B>"),
        )
    ),
    *(
        (f"{kind}_size", f"{param}:size()->int", len)
        for kind, param in (
            ("string", "string"),
            ("bytes", "bytes"),
            ("list", "list<A>"),
            ("map", "map<A,B>"),
        )
    ),
    *(
        (f"{kind}_to_int64", f"int({kind})->int", _to_int)
        for kind in ("int", "uint", "double", "string", "timestamp", "duration")
    ),
    *((f"{kind}_to_uint64", f"uint({kind})->uint", _to_uint) for kind in ("uint", "int", "double")),
    ("string_to_uint64", "uint(string)->uint", _to_uint),
    *(
        (f"{kind}_to_double", f"double({kind})->double", _to_double)
        for kind in ("double", "int", "uint", "string")
    ),
    *(
        (f"{kind}_to_string", f"string({kind})->string", _to_string)
        for kind in ("string", "bool", "int", "uint", "double", "timestamp", "duration")
    ),
    ("bytes_to_string", "string(bytes)->string", _to_string),
    ("string_to_bytes", "bytes(string)->bytes", str.encode),
    ("bytes_to_bytes", "bytes(bytes)->bytes", lambda value: value),
    ("bool_to_bool", "bool(bool)->bool", lambda value: value),
    ("string_to_bool", "bool(string)->bool", _to_bool),
    ("string_to_timestamp", "timestamp(string)->timestamp", _to_timestamp),
    ("int64_to_timestamp", "timestamp(int)->timestamp", _to_timestamp),
    ("timestamp_to_timestamp", "timestamp(timestamp)->timestamp", _to_timestamp),
    ("string_to_duration", "duration(string)->duration", _to_duration),
    ("int64_to_duration", "duration(int)->duration", _to_duration),
    ("duration_to_duration", "duration(duration)->duration", _to_duration),
    ("to_dyn", "dyn(A)->dyn", lambda value: value),
    ("type", "type(A)->type<A>", _type_of),
    ("map_insert", "cel.@mapInsert(map<A,B>,A,B)->map<A,B>", lambda m, k, v: {**m, k: v}),
    ("map_insert_map", "cel.@mapInsert(map<A,B>,map<A,B>)->map<A,B>", lambda m, n: {**m, **n}),
    *_comparisons(),
    *_time_rows(),
]
