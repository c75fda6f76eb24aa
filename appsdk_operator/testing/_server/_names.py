"""The forms of names that Kubernetes asks for, and what is wrong with those that lack it."""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["NameStyle", "label_problems", "subdomain_problems"]


class NameStyle(enum.Enum):
    """What an object's name may look like."""

    SUBDOMAIN = "subdomain"
    LABEL = "label"
    SERVICE = "service"
    PATH_SEGMENT = "path"


_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)


def label_problems(text: str) -> list[str]:
    """What keeps ``text`` from being a DNS-1035 label."""
    return _problems(text, 63, _LABEL, _LABEL_TEXT)


def subdomain_problems(text: str) -> list[str]:
    """What keeps ``text`` from being an RFC 1123 subdomain."""
    return _problems(text, 253, _SUBDOMAIN, _SUBDOMAIN_TEXT)


def _problems(text: str, limit: int, pattern: str, words: str) -> list[str]:
    problems: list[str] = []
    if len(text) > limit:
        problems.append(f"must be no more than {limit} characters")
    if not re.fullmatch(pattern, text):
        problems.append(words)
    return problems
