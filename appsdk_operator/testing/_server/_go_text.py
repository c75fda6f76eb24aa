"""Values as Go prints them in messages, and Go's regular expressions for Python's matcher."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

__all__ = ["GO_TYPES", "GoPatternError", "go_float", "go_json", "go_pattern", "go_quote"]


GO_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}
"""What Go calls the types of decoded JSON, by ours."""


def go_float(value: float) -> str:
    """A float64 as ``%v`` prints it.

    >>> go_float(1.5), go_float(10.0), go_float(1e30)
    ('1.5', '10', '1e+30')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[repr(value)]
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent and 1e-4 <= abs(value) < 1e21:
        return digits.removesuffix(".0")
    if not exponent or 1e-4 <= abs(value) < 1e21:
        return f"{value:f}".rstrip("0").rstrip(".") if abs(value) >= 1e-4 else _small(value)
    sign, power = ("-" if exponent[0] == "-" else "+"), exponent.lstrip("+-")
    return f"{digits.removesuffix('.0')}e{sign}{power:0>2}"


def _small(value: float) -> str:
    mantissa, _, exponent = f"{value:e}".partition("e")
    shortest = f"{value!r}"
    if "e" in shortest:
        mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


def go_json(value: Any) -> str:
    """A value as Go's JSON encoder writes it: keys in order, no spaces."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if isinstance(value, dict):
        inner = ",".join(f"{go_json(key)}:{go_json(value[key])}" for key in sorted(value))
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(map(go_json, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        for char, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
            text = text.replace(char, escape)
    return text


def go_quote(text: str) -> str:
    """A string as ``%q`` prints it."""
    return json.dumps(text, ensure_ascii=False)


class GoPatternError(ValueError):
    """A pattern Go does not compile; the text is Go's."""

    def __init__(self, problem: str, part: str) -> None:
        """``part`` is what is wrong."""
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7F",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1F\\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
# The categories people use, with the scripts people use them for.
_CATEGORIES: Final = {
    "L": "A-Za-z\\xaa\\xb5\\xba\\xc0-\\xd6\\xd8-\\xf6\\xf8-\\u02c1\\u0370-\\u0373\\u0376-\\u037f"
    "\\u0386-\\u0481\\u048a-\\u0556\\u0561-\\u0587\\u05d0-\\u05ea\\u0620-\\u064a\\u0904-\\u0939"
    "\\u0e01-\\u0e30\\u1e00-\\u1fff\\u3041-\\u30ff\\u4e00-\\u9fff\\uac00-\\ud7a3",
    "Lu": "A-Z\\xc0-\\xd6\\xd8-\\xde\\u0391-\\u03ab\\u0410-\\u042f",
    "Ll": "a-z\\xdf-\\xf6\\xf8-\\xff\\u03b1-\\u03ce\\u0430-\\u045f",
    "N": "0-9\\xb2\\xb3\\xb9\\xbc-\\xbe\\u0660-\\u0669\\u0966-\\u096f",
    "Nd": "0-9\\u0660-\\u0669\\u0966-\\u096f",
    "P": "!-#%-*,-/:;?@\\[-\\]_{}\\xa1\\xa7\\xab\\xb6\\xb7\\xbb\\xbf\\u2010-\\u2027",
    "S": "$+<->^`|~\\xa2-\\xa6\\xa8\\xa9\\xac\\xae-\\xb1\\xb4\\xb8\\xd7\\xf7\\u20a0-\\u20bf"
    "\\u2190-\\u23ff\\u2600-\\u27bf\\U0001f300-\\U0001faff",
    "Z": " \\xa0\\u2000-\\u200a\\u2028\\u2029\\u3000",
}
_ESCAPES: Final = set("abfnrtvdDsSwWbBAzQEpPx01234567")
_GROUP: Final = re.compile(r"\?(?:P?<([A-Za-z_]\w*)>|([imsU]*(?:-[imsU]+)?)([:)]))")


@functools.lru_cache(maxsize=2048)
def go_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of Go's regexp package, compiled.

    Raises:
        GoPatternError: it is none: what Perl has and Go lacks is refused as well.
    """
    translated = _translate(pattern)
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError) as error:
        raise GoPatternError(str(error), pattern) from None


def _translate(pattern: str) -> str:
    made: list[str] = []
    position, depth, length = 0, 0, len(pattern)
    repeatable = False
    while position < length:
        char = pattern[position]
        start = position
        if char == "\\":
            text, position = _escape(pattern, position, in_class=False)
            made.append(text)
            repeatable = True
        elif char == "[":
            text, position = _class(pattern, position)
            made.append(text)
            repeatable = True
        elif char == "(":
            depth += 1
            text, position, closed = _group(pattern, position)
            depth -= closed
            made.append(text)
            repeatable = False
        elif char == ")":
            if not depth:
                raise GoPatternError("unexpected )", pattern)
            depth -= 1
            made.append(char)
            position += 1
            repeatable = True
        elif char in "*+?" or (char == "{" and _repeat(pattern, position)):
            if not repeatable:
                raise GoPatternError("missing argument to repetition operator", char)
            position = _quantifier(pattern, position)
            after = pattern[position : position + 1]
            if after and (after in "*+" or (after == "?" and pattern[position - 1] == "?")):
                bad = pattern[start : position + 1]
                raise GoPatternError("invalid nested repetition operator", bad)
            made.append(pattern[start:position])
            repeatable = True
        else:
            made.append({"$": r"\Z", "{": r"\{", "}": r"\}"}.get(char, char))
            position += 1
            repeatable = char != "|"
    if depth:
        raise GoPatternError("missing closing )", pattern)
    return "".join(made)


def _repeat(pattern: str, position: int) -> bool:
    return re.match(r"\{\d+(,\d*)?\}", pattern[position:]) is not None


def _quantifier(pattern: str, position: int) -> int:
    if pattern[position] == "{":
        end = pattern.index("}", position) + 1
        bounds = [int(b) for b in pattern[position + 1 : end - 1].split(",") if b]
        if max(bounds) > 1000 or (len(bounds) == 2 and bounds[0] > bounds[1]):
            raise GoPatternError("invalid repeat count", pattern[position:end])
        position = end
    else:
        position += 1
    return position + (pattern[position : position + 1] == "?")


def _group(pattern: str, position: int) -> tuple[str, int, int]:
    """The opening of a group, what follows it, and whether it is closed already."""
    if pattern[position + 1 : position + 2] != "?":
        return "(", position + 1, 0
    found = _GROUP.match(pattern, position + 1)
    if found is None:
        part = pattern[position : position + 3]
        if part in ("(?P", "(?<") and pattern[position + 3 : position + 4] not in ("=", "!"):
            raise GoPatternError("invalid named capture", pattern[position:])
        if part == "(?<":
            part = pattern[position : position + 4]
        raise GoPatternError("invalid or unsupported Perl syntax", part)
    if found[1]:
        return f"(?P<{found[1]}>", found.end(), 0
    flags = found[2].replace("U", "")
    if found[3] == ")":
        # Flags for the rest of the group: Python knows them at the start of a pattern only, and
        # that is where people write them.
        return (f"(?{flags})" if position == 0 else ""), found.end(), 1
    return f"(?{flags}:", found.end(), 0


def _escape(pattern: str, position: int, *, in_class: bool) -> tuple[str, int]:
    if position + 1 >= len(pattern):
        raise GoPatternError("trailing backslash at end of expression", "")
    char = pattern[position + 1]
    after = position + 2
    if char == "Q" and not in_class:
        end = pattern.find("\\E", after)
        literal = pattern[after : end if end >= 0 else len(pattern)]
        return f"(?:{re.escape(literal)})", end + 2 if end >= 0 else len(pattern)
    if char in "pP":
        return _category(pattern, position, in_class=in_class)
    if char == "z":
        return r"\Z", after
    if char == "x" and pattern[after : after + 1] == "{":
        end = pattern.find("}", after)
        return re.escape(chr(int(pattern[after + 1 : end], 16))), end + 1
    if char.isalnum() and char.isascii() and char not in _ESCAPES:
        raise GoPatternError("invalid escape sequence", f"\\{char}")
    if char in "123456789" and not in_class:
        raise GoPatternError("invalid escape sequence", f"\\{char}")
    return (f"\\{char}" if char.isascii() else char), after


def _category(pattern: str, position: int, *, in_class: bool) -> tuple[str, int]:
    negated = pattern[position + 1] == "P"
    after = position + 2
    if pattern[after : after + 1] == "{":
        end = pattern.find("}", after)
        name, after = pattern[after + 1 : end], end + 1
    else:
        name, after = pattern[after : after + 1], after + 1
    if name.startswith("^"):
        name, negated = name[1:], not negated
    members = _CATEGORIES.get(name)
    if members is None:
        if not re.fullmatch(r"[CLMNPSZ][a-z]?|[A-Z][a-z]+", name):
            raise GoPatternError("invalid character class range", pattern[position:after])
        members = r"\x00"
    if in_class:
        return members, after
    return f"[{'^' if negated else ''}{members}]", after


def _class(pattern: str, position: int) -> tuple[str, int]:
    made = ["["]
    start = position
    position += 1
    if pattern[position : position + 1] == "^":
        made.append("^")
        position += 1
    first = True
    while position < len(pattern):
        char = pattern[position]
        if char == "]" and not first:
            return "".join([*made, "]"]), position + 1
        if char == "[" and pattern[position + 1 : position + 2] == ":":
            end = pattern.find(":]", position)
            name = pattern[position + 2 : end]
            if end < 0 or name.lstrip("^") not in _POSIX:
                raise GoPatternError("invalid character class range", pattern[position : end + 2])
            made.append(_POSIX[name.lstrip("^")])
            position = end + 2
        elif char == "\\":
            text, position = _escape(pattern, position, in_class=True)
            made.append(text)
        else:
            high = re.match(r"(.)-([^\]\\])", pattern[position:])
            if high and high[1] > high[2]:
                raise GoPatternError("invalid character class range", high[0])
            made.append(f"\\{char}" if char in "[]&~|" else char)
            position += 1
        first = False
    raise GoPatternError("missing closing ]", pattern[start:])
