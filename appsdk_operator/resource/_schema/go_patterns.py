"""Regular expressions of Python as those of Go, which API servers match patterns by."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_ESCAPE: Final = r"\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|0[0-7]{0,2}|[0-3][0-7]{2}|.)"
_TOKEN: Final = re.compile(
    rf"""{_ESCAPE}
    | \[\^?\]?(?:\\.|[^\]\\])*\]                           # a set
    | \((?:\?(?:P<[A-Za-z_]\w*>|[ims]*(?:-[ims]+)?:|.))?      # the beginning of a group
    | (?:[*+?]|\{{\d*,?\d*\}})[?+]?                           # a repetition
    | .""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_IN_SET: Final = re.compile(rf"\\[0-7]{{1,3}}|{_ESCAPE}|.", re.DOTALL)
_GLOBAL_FLAGS: Final = re.compile(r"\A(?:\(\?[aiLmsux]+\))+")
_MOST_REPEATS: Final = 1000
_LETTERS: Final = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}
# To Go these are of ASCII alone.
_UNICODE: Final = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}_", "s": r"\t-\r\x1c-\x20\x85\p{Z}"}


def go_pattern(
    pattern: str | re.Pattern[str], *, at_start: bool = False, at_end: bool = False
) -> tuple[str | None, bool]:
    """A regular expression of Python as one of Go, which matches no text that Python's does not.

    Some texts that only Python's matches are left out: those with a line break before a final
    ``$``, and with digits and letters for ``\\d`` and ``\\w`` that are not of ASCII.

    Args:
        pattern: the expression.
        at_start: whether it matches at the beginning of a text only.
        at_end: whether it matches up to the end only.

    Returns:
        The expression, None if Go has none; and whether it keeps that promise.
    """
    try:
        known = re.compile(pattern)
    except re.error:  # pydantic has the syntax of Rust, which is almost Go's
        return str(pattern), False
    flags = known.flags
    if flags & re.VERBOSE:
        return None, False
    made: list[str] = []
    # Of the letters that Go takes for the same, re.ASCII knows those of ASCII alone.
    folds = "i" if flags & re.ASCII else ""
    is_exact, depth, has_branches = not (folds and flags & re.IGNORECASE), 0, False
    # For each open group and the text itself: the repeats within, and those of the last item.
    inner, last = [1], 1
    for part in _TOKEN.findall(_GLOBAL_FLAGS.sub("", known.pattern)):
        go: str | None = part
        item = 1
        if part[0] == "[":
            opening = "[^" if part[1] == "^" else "["
            parts = [
                _go_escape(one, flags, opening) if one[1:] else (one.replace("[", r"\["), True)
                for one in _IN_SET.findall(part[len(opening) : -1])
            ]
            go = f"{opening}{''.join(one or '' for one, _ in parts)}]"
            is_exact &= all(is_kept for _, is_kept in parts)
        elif part[0] == "\\":
            go, is_kept = _go_escape(part, flags)
            is_exact &= is_kept
        elif part[0] == "(":
            depth += 1
            inner.append(1)
            if part[1:2] == "?" and (part[-1] not in ":>" or part == "(?>"):
                go = None
            is_exact &= not (folds and part[-1] == ":" and folds in part.partition("-")[0])
        elif part == ")":
            depth -= 1
            item = inner.pop()
        elif part == "|":
            has_branches |= depth == 0
        elif part[0] in "*+?" or (part[0] == "{" and len(part) > 1):
            go, count = _go_repetition(part)
            item = last * count
            inner[-1] = max(inner[-1], item)
        if go is None or item > _MOST_REPEATS:
            return None, False
        last = item
        inner[-1] = max(inner[-1], item)
        made.append(go)
    return _anchored(made, flags, at_start, at_end, has_branches), is_exact


def _anchored(made: list[str], flags: int, at_start: bool, at_end: bool, has_branches: bool) -> str:
    text = "".join(made)
    starts = not at_start or (made[:1] in (["^"], [r"\A"]) and not has_branches)
    ends = not at_end or (made[-1:] in (["$"], [r"\z"]) and not has_branches)
    # Lines have beginnings and ends, too.
    is_text = not flags & re.MULTILINE
    if not is_text and (at_start or at_end):
        text = (r"\A" if at_start else "") + f"(?:{text})" + (r"\z" if at_end else "")
    elif not (starts and ends):
        text = f"{'^' if at_start else ''}(?:{text}){'$' if at_end else ''}"
    letters = "".join(letter for flag, letter in _LETTERS.items() if flags & flag)
    return f"(?{letters}){text}" if letters else text


def _go_repetition(part: str) -> tuple[str | None, int]:
    """A repetition for Go, None if it has none, and how often it repeats at least or at most."""
    if part[0] != "{":
        return (None if part[1:] == "+" else part), 1
    least, comma, most = part[1:].rstrip("?+").rstrip("}").partition(",")
    if part[-1] == "+" or not (least or comma):
        return None, 1
    count = int(most or least or 0)
    return f"{{{least or 0}{comma}{most}}}{'?' * part.endswith('?')}", max(count, 1)


def _go_escape(part: str, flags: int, opening: str = "") -> tuple[str | None, bool]:
    """An escape for Go, None for a reference to a group; and whether it is not wider than Python's.

    Args:
        part: the backslash and what is behind it.
        flags: those of Python.
        opening: ``[`` or ``[^`` within a set.
    """
    name = part[1:]
    if name.lower() in _UNICODE and not flags & re.ASCII:
        wide = _UNICODE[name.lower()]
        if name.isupper():
            return (part, opening == "[^") if opening else (f"[^{wide}]", True)
        return (wide if opening == "[^" else part), True
    if name in ("b", "B") and not opening:
        return part, name == "b" and bool(flags & re.ASCII)
    if name in tuple("dwsDWSAafnrtvz"):
        return part, True
    if name == "Z":
        return r"\z", True
    character = name
    if name == "b":
        character = "\b"
    elif name[0] in "xuU":
        character = chr(int(name[1:], 16))
    elif name[0] == "N":
        character = unicodedata.lookup(name[2:-1])
    elif name.isdigit() and (opening or name[0] == "0" or len(name) == 3):
        character = chr(int(name, 8))
    elif name.isdigit():
        return None, False
    return re.escape(character), True
