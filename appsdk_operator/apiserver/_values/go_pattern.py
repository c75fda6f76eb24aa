"""Regular expressions of Go's regexp package, matched by RE2 in time linear in the text.

The servers' patterns (``pattern`` of a schema, ``matches`` and ``find`` of CEL) are Go's, whose
syntax is RE2's. Python's own matcher has another syntax, and a pattern such as ``^(a+)+$`` keeps
it, and the server with it, busy for ever.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, final

__all__ = ["GoPattern", "GoPatternError", "go_pattern"]


class GoPatternError(ValueError):
    """A pattern Go does not compile; the text is Go's."""

    def __init__(self, problem: str, part: str) -> None:
        """``part`` is what is wrong."""
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


_TOO_LARGE: Final = "pattern too large - compile failed"
# RE2 and Go name the same errors in other words.
_PROBLEMS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    _TOO_LARGE: "expression too large",
}
# What RE2 takes and Go does not: a single byte. It may stand in a quotation or behind a backslash.
_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)
# Bytes for a program and its states. What bounds a program bounds the time of each character.
_MEMORY: Final = 16 << 20
# Characters. Go refuses by the size of the program while it reads; RE2 would read on for minutes.
_LENGTH: Final = 10_000


@final
class GoPattern:
    """A compiled pattern. Safe for threads."""

    __slots__ = ("_regexp",)

    def __init__(self, pattern: str) -> None:
        """Compile it.

        Raises:
            GoPatternError: Go would not.
            ImportError: google-re2 is not installed.
        """
        if len(pattern) > _LENGTH:
            raise GoPatternError("expression too large", pattern)
        if any(found[1] == "C" for found in _ESCAPE.finditer(pattern)):
            raise GoPatternError("invalid escape sequence", "\\C")
        re2 = _engine()
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY
        options.never_capture = True
        try:
            self._regexp = re2.compile(pattern, options)
        except re2.error as error:
            problem, _, part = error.args[0].decode("utf-8", "replace").partition(": ")
            if problem == _TOO_LARGE:
                part = pattern
            elif part in ("(?<=", "(?<!"):
                # Go reads the name of a group here.
                problem, part = "invalid named capture", pattern[pattern.index(part) :]
            raise GoPatternError(_PROBLEMS.get(problem, problem), part) from None

    def found_in(self, text: str) -> bool:
        """Whether it matches any part of the text."""
        return self._regexp.search(text) is not None

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """The parts that it matches, in order; below 0 the limit is none."""
        found: list[str] = []
        end = -1
        for match in self._regexp.finditer(text):
            if len(found) == limit:
                break
            # As in Go, there is no empty match where the one before it ended.
            if match.end() > match.start() or match.start() != end:
                found.append(match[0])
            end = match.end()
        return found


def _engine() -> Any:
    """RE2, imported for the first pattern: most servers never see one."""
    try:
        import re2
    except ImportError as error:
        raise ImportError(
            "patterns of schemas and rules need google-re2, which is not installed: "
            "pip install 'appsdk-operator[testing]'"
        ) from error
    return re2


@functools.lru_cache(maxsize=512)
def go_pattern(pattern: str) -> GoPattern:
    """A pattern of Go's regexp package, compiled; the last ones are remembered.

    Raises:
        GoPatternError: it is none: what Perl has and Go lacks is refused as well.
    """
    return GoPattern(pattern)
