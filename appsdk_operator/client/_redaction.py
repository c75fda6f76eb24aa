"""Redaction: texts of servers and proxies, made safe to show in errors and logs.

Debug proxies and error pages echo requests, with the token in them. So the texts are shown without
the credentials of this process, in one line, and cut.
"""

from __future__ import annotations

import binascii
import threading
import weakref
from collections.abc import Callable
from typing import Any, final
from urllib.parse import quote

from appsdk_operator.runtime import fork_safe

MASK = "<credentials removed>"
_MIN_LENGTH = 6  # a shorter secret is part of ordinary words
# A part of a credential of this length is removed, too: a text may have been cut within it. Each
# such part contains a whole block.
_RUN = 16
_BLOCK = 8
_MAX_SECRETS = 4  # the present token, and former ones that requests in flight still carry
_MAX_DEPTH = 6
_MAX_LENGTH = 16384

_lock = fork_safe(threading.Lock())
_registered: weakref.WeakSet[SentCredentials] = weakref.WeakSet()


@final
class SentCredentials:
    """The credentials that one client has sent, newest last. Thread-safe."""

    def __init__(self) -> None:
        """An empty set; :func:`redacted` knows all sets of the process."""
        self._last: str | None = None
        self._known: dict[str, tuple[str, ...]] = {}

    def add(self, authorization: str) -> None:
        """Remember the value of an ``Authorization`` or ``Proxy-Authorization`` header."""
        if authorization == self._last:
            return
        with _lock:
            _registered.add(self)
            self._known.pop(authorization, None)
            self._known[authorization] = _spellings(authorization)
            while len(self._known) > _MAX_SECRETS:
                del self._known[next(iter(self._known))]
            self._last = authorization

    def spellings(self) -> list[tuple[str, ...]]:
        """Each credential in all its spellings."""
        return list(self._known.values())


def redacted(text: str) -> str:
    """``text`` without the credentials of any client of this process."""
    if len(text) < _MIN_LENGTH:
        return text
    with _lock:
        spellings = {
            spelling
            for secrets in _registered
            for known in secrets.spellings()
            for spelling in known
        }
    for spelling in sorted(spellings, key=len, reverse=True):
        if len(text) >= min(len(spelling), _RUN):
            text = _masked(text, spelling)
    return text


def redacted_json(value: Any, *, depth: int = _MAX_DEPTH) -> Any:
    """A JSON value with all its texts redacted; levels below ``depth`` are cut."""
    match value:
        case str():
            return redacted(value)
        case dict() | list() if not depth:
            return "…"
        case dict():
            return {redacted(k): redacted_json(v, depth=depth - 1) for k, v in value.items()}
        case list():
            return [redacted_json(item, depth=depth - 1) for item in value]
        case _:
            return value


def display_text(text: str, *, limit: int) -> str:
    r"""A text as errors and log lines show it: redacted, escaped and cut.

    >>> display_text("a\nb\x1b[31m" + "c" * 20, limit=10)
    'a\\nb\\x1b[31mcc… (18 characters more)'
    """
    # Redact more than is shown: a credential at the limit must be found whole.
    clean = redacted(text[: limit + _MAX_LENGTH])
    more = len(clean) - limit + max(0, len(text) - limit - _MAX_LENGTH)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in clean[:limit])
    return f"{text}… ({more} characters more)" if more > 0 else text


def _spellings(authorization: str) -> tuple[str, ...]:
    """The secret parts of a header's value, also escaped as in HTML and URLs."""
    scheme, _, value = authorization.partition(" ")
    secrets = [authorization]
    if len(value) >= _MIN_LENGTH:
        secrets.append(value)
    if scheme.lower() == "basic":
        try:
            pair = binascii.a2b_base64(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            pair = ""
        secrets.append(pair)
        secrets.append(pair.partition(":")[2])
    found = [s for s in secrets if len(s) >= _MIN_LENGTH]
    found += [write(s) for s in found for write in _ESCAPES]
    return tuple(dict.fromkeys(found))


def _html_escaped(text: str) -> str:
    """As ``html.escape``, whose module brings the table of all names of characters along."""
    for plain, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(plain, f"&{name};")
    return text


_ESCAPES: tuple[Callable[[str], str], ...] = (_html_escaped, lambda s: quote(s, safe=""))


def _masked(text: str, secret: str) -> str:
    """``text`` without ``secret``, and without any part of it that is long enough."""
    if len(secret) < _RUN:
        return text.replace(secret, MASK)
    for start in range(0, len(secret) - _BLOCK + 1, _BLOCK):
        block, position = secret[start : start + _BLOCK], 0
        while (found := text.find(block, position)) >= 0:
            begin, end = found, found + _BLOCK
            left, right = start, start + _BLOCK
            while begin and left and text[begin - 1] == secret[left - 1]:
                begin, left = begin - 1, left - 1
            while end < len(text) and right < len(secret) and text[end] == secret[right]:
                end, right = end + 1, right + 1
            position = end
            if end - begin >= _RUN:
                text = text[:begin] + MASK + text[end:]
                position = begin + len(MASK)
    return text
