"""Regular expressions of Go's regexp package, matched by RE2 in time linear in the text.

``pattern`` in a schema and ``matches`` and ``find`` in CEL take Go's syntax, which is RE2's.
Python's ``re`` has another syntax, and backtracks: a pattern such as ``^(a+)+$`` would block the
server.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, final


class GoPatternError(ValueError):
    """A pattern that Go does not compile. The text is Go's."""

    def __init__(self, problem: str, part: str) -> None:
        """``part`` is the piece of the pattern that is wrong."""
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


_TOO_LARGE: Final = "pattern too large - compile failed"
# RE2's error texts, and Go's for the same error.
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
# ``\C``, a single byte, is an error in Go, but not inside ``\Q…\E`` or after a backslash.
_ESCAPE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)
# Bytes for a compiled pattern and its states, which also bounds the time spent per character.
_MEMORY: Final = 16 << 20
# Characters. Go stops while it parses a pattern that is too large; RE2 would parse for minutes.
_LENGTH: Final = 10_000


@final
class GoPattern:
    """A compiled pattern. Thread-safe."""

    __slots__ = ("_regexp",)

    def __init__(self, pattern: str) -> None:
        """Compile ``pattern``.

        Raises:
            GoPatternError: Go does not compile it.
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
                # Go parses the name of a group here.
                problem, part = "invalid named capture", pattern[pattern.index(part) :]
            raise GoPatternError(_PROBLEMS.get(problem, problem), part) from None

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in ``text``."""
        return self._regexp.search(text) is not None

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """All matches in order, at most ``limit`` of them; a negative limit means no limit."""
        found: list[str] = []
        end = -1
        for match in self._regexp.finditer(text):
            if len(found) == limit:
                break
            # As in Go, an empty match may not follow directly on another match.
            if match.end() > match.start() or match.start() != end:
                found.append(match[0])
            end = match.end()
        return found


def _engine() -> Any:
    """Import RE2 for the first pattern; most servers need none."""
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
    """Compile a pattern of Go's regexp package; the last 512 are cached.

    Raises:
        GoPatternError: Go does not compile it, for example because it uses a Perl extension.
    """
    return GoPattern(pattern)
