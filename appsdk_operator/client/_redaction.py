"""What servers and proxies write, made fit for errors and logs: without our credentials, in one
line and short.

A server that echoes the request, as debug proxies and error pages do, would otherwise put the token
into every log.
"""

from __future__ import annotations

import base64
import binascii
import html
import threading
import weakref
from collections.abc import Callable
from typing import Any, final
from urllib.parse import quote

from appsdk_operator.runtime import fork_safe

__all__ = ["SentCredentials", "display_text", "redacted", "redacted_json"]

MASK = "<credentials removed>"
_MIN_LENGTH = 6  # what is shorter is a word of many texts
# A run of a credential as long as this is taken out also where the rest of it was cut off. Each
# such run holds a whole block.
_RUN = 16
_BLOCK = 8
_MAX_SECRETS = 4  # the present token, and those before it that may still be under way
_MAX_DEPTH = 6
_MAX_LENGTH = 16384

_lock = fork_safe(threading.Lock())
_registered: weakref.WeakSet[SentCredentials] = weakref.WeakSet()


@final
class SentCredentials:
    """The credentials that one client sends, newest last. Thread-safe."""

    def __init__(self) -> None:
        """None yet."""
        self._last: str | None = None
        self._known: dict[str, tuple[str, ...]] = {}
        with _lock:
            _registered.add(self)

    def add(self, authorization: str) -> None:
        """Remember the value of an ``Authorization`` or ``Proxy-Authorization`` header."""
        if authorization == self._last:
            return
        with _lock:
            self._known.pop(authorization, None)
            self._known[authorization] = _spellings(authorization)
            while len(self._known) > _MAX_SECRETS:
                del self._known[next(iter(self._known))]
            self._last = authorization

    def spellings(self) -> list[tuple[str, ...]]:
        """How each of them may be written."""
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
    """The same for each text in a JSON value; what is nested deeper than the API does is cut."""
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
    r"""What an error or a log line shows of ``text``: redacted, escaped and cut.

    >>> display_text("a\nb\x1b[31m" + "c" * 20, limit=10)
    'a\\nb\\x1b[31mcc… (18 characters more)'
    """
    # A little more than is shown, so that no credential is cut before it is found.
    kept = redacted(text[: limit + _MAX_LENGTH])
    more = len(kept) - limit + max(0, len(text) - limit - _MAX_LENGTH)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in kept[:limit])
    return f"{text}… ({more} characters more)" if more > 0 else text


def _spellings(authorization: str) -> tuple[str, ...]:
    """What of a header's value is secret, also as pages and addresses write it."""
    scheme, _, value = authorization.partition(" ")
    secrets = [authorization]
    if len(value) >= _MIN_LENGTH:
        secrets.append(value)
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            pair = ""
        secrets.append(pair)
        secrets.append(pair.partition(":")[2])
    found = [s for s in secrets if len(s) >= _MIN_LENGTH]
    found += [write(s) for s in found for write in _ESCAPES]
    return tuple(dict.fromkeys(found))


_ESCAPES: tuple[Callable[[str], str], ...] = (html.escape, lambda s: quote(s, safe=""))


def _masked(text: str, secret: str) -> str:
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
