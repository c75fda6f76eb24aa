"""The string functions of cel-go's strings extension and of Kubernetes' regex library."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.apiserver._cel.overloads import Row
from appsdk_operator.apiserver._cel.values import (
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
)
from appsdk_operator.apiserver._values.go_pattern import GoPatternError, go_pattern
from appsdk_operator.apiserver._values.go_text import go_float, parse_integer


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise CelError(f"index out of range: {position}")
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if part and not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.find(part, start) if part else start


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    chars = list(text)
    if 0 < count < len(chars):
        return [*chars[: count - 1], "".join(chars[count - 1 :])]
    return chars


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= stop <= len(text):
        raise CelError(f"index out of range: {stop}")
    if start > stop:
        raise CelError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _ascii(text: str, *, upper: bool) -> str:
    return "".join((c.upper() if upper else c.lower()) if c.isascii() else c for c in text)


def _quote(text: str) -> str:
    escapes = dict(zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True))
    return '"' + "".join(f"\\{escapes[c]}" if c in escapes else c for c in text) + '"'


_SPACE: Final = (
    "".join(
        map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029])
    )
    + "\u202f\u205f\u3000"
)


# -- format --------------------------------------------------------------------------------


def _format(text: str, args: list[Any]) -> str:
    made: list[str] = []
    position = used = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "%":
            made.append(char)
            continue
        if text[position : position + 1] == "%":
            made.append("%")
            position += 1
            continue
        precision = None
        if text[position : position + 1] == ".":
            end = position + 1
            while text[end : end + 1].isdigit():
                end += 1
            precision, position = _precision(text[position + 1 : end]), end
        clause = text[position : position + 1]
        position += 1
        if not clause:
            raise CelError("could not parse formatting clause: unexpected end of string")
        if used >= len(args):
            raise CelError(f"index {used} out of range")
        made.append(_clause(clause, args[used], precision))
        used += 1
    return "".join(made)


def _precision(digits: str) -> int:
    found = parse_integer(digits or "0")
    if found is None or found > _MOST_PRECISE:
        raise CelError(f"precision must not be greater than {_MOST_PRECISE}")
    return found


_MOST_PRECISE: Final = 1000


def _clause(clause: str, value: Any, precision: int | None) -> str:
    integer = isinstance(value, int) and not isinstance(value, bool)
    match clause:
        case "s":
            return _shown(value)
        case "d" if integer:
            return str(int(value))
        case "d" if isinstance(value, float):
            return go_float(value)
        case "f" if integer or isinstance(value, float):
            return f"{float(value):.{6 if precision is None else precision}f}"
        case "e" if integer or isinstance(value, float):
            return f"{float(value):.{6 if precision is None else precision}e}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if integer:
            return f"{int(value):o}"
        case "x" | "X" if integer or isinstance(value, (str, bytes)):
            made = f"{value:x}" if isinstance(value, int) else _bytes(value).hex()
            return made.upper() if clause == "X" else made
        case "d" | "f" | "e" | "b" | "o" | "x" | "X":
            raise CelError(f"error during formatting: {_problem(clause)}")
        case _:
            raise CelError(
                "error during formatting: could not parse formatting clause: "
                f'unrecognized formatting clause "{clause}"'
            )


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _problem(clause: str) -> str:
    words = {
        "d": "decimal clause can only be used on integers",
        "f": "fixed-point clause can only be used on doubles",
        "e": "scientific clause can only be used on doubles",
        "b": "only integers and bools can be formatted as binary",
        "o": "octal clause can only be used on integers",
    }
    return words.get(clause, "only integers, byte buffers, and strings can be formatted as hex")


def _inner(value: Any) -> str:
    """Format a value inside of a list or map, where strings are quoted."""
    return _quote(value) if isinstance(value, str) else _shown(value)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return go_float(value)
        case bytes():
            return value.decode(errors="replace")
        case list():
            return f"[{', '.join(map(_inner, value))}]"
        case dict():
            inner = ", ".join(sorted(f"{_inner(k)}:{_inner(v)}" for k, v in value.items()))
            return f"{{{inner}}}"
        case TypeValue():
            return value.name
        case str() | int() | Uint() | Timestamp() | Duration():
            return str(value)
        case _:
            raise CelError(
                "error during formatting: string clause can only be used on strings, bools, "
                "bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            )


# -- regular expressions -------------------------------------------------------------------


def _found(text: str, pattern: str, limit: int = -1) -> list[str]:
    try:
        return go_pattern(pattern).find_all(text, limit)
    except GoPatternError as error:
        raise CelError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return next(iter(_found(text, pattern, 1)), "")


STRING_FUNCTIONS: Final[list[Row]] = [
    ("string_char_at_int", "string:charAt(int)->string", _char_at),
    ("string_index_of_string", "string:indexOf(string)->int", _index_of),
    ("string_index_of_string_int", "string:indexOf(string,int)->int", _index_of),
    ("string_last_index_of_string", "string:lastIndexOf(string)->int", _last_index_of),
    ("string_last_index_of_string_int", "string:lastIndexOf(string,int)->int", _last_index_of),
    ("list_join", "list<string>:join()->string", "".join),
    ("list_join_string", "list<string>:join(string)->string", lambda items, by: by.join(items)),
    ("string_lower_ascii", "string:lowerAscii()->string", lambda t: _ascii(t, upper=False)),
    ("string_upper_ascii", "string:upperAscii()->string", lambda t: _ascii(t, upper=True)),
    ("string_replace_string_string", "string:replace(string,string)->string", _replace),
    ("string_replace_string_string_int", "string:replace(string,string,int)->string", _replace),
    ("string_split_string", "string:split(string)->list<string>", _split),
    ("string_split_string_int", "string:split(string,int)->list<string>", _split),
    ("string_substring_int", "string:substring(int)->string", _substring),
    ("string_substring_int_int", "string:substring(int,int)->string", _substring),
    ("string_trim", "string:trim()->string", lambda text: text.strip(_SPACE)),
    ("strings_quote", "strings.quote(string)->string", _quote),
    ("string_format", "string:format(list<dyn>)->string", _format),
    ("string_find_string", "string:find(string)->string", _find),
    ("string_find_all_string", "string:findAll(string)->list<string>", _found),
    ("string_find_all_string_int", "string:findAll(string,int)->list<string>", _found),
]
