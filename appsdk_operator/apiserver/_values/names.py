"""The syntax of names, label keys and label values, with Kubernetes' texts for violations."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

from appsdk_operator.apiserver._values.status import FieldError


class NameStyle(enum.Enum):
    """The syntax of an object's name."""

    SUBDOMAIN = "subdomain"
    LABEL = "label"
    SERVICE = "service"
    PATH_SEGMENT = "path"


_SUBDOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SERVICE: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_QUALIFIED})?"
_QUALIFIED_EXAMPLE: Final = (
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SERVICE_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_SERVICE}')"
)
_NAME_PART_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    f"with an alphanumeric character {_QUALIFIED_EXAMPLE}"
)
_KEY_TEXT: Final = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start "
    f"and end with an alphanumeric character {_QUALIFIED_EXAMPLE} with an optional DNS subdomain "
    "prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)
_STYLES: Final = {
    NameStyle.SUBDOMAIN: (re.compile(_SUBDOMAIN), 253, _SUBDOMAIN_TEXT),
    NameStyle.LABEL: (re.compile(_LABEL), 63, _LABEL_TEXT),
    NameStyle.SERVICE: (re.compile(_SERVICE), 63, _SERVICE_TEXT),
}
_QUALIFIED_RE: Final = re.compile(_QUALIFIED)
_VALUE_RE: Final = re.compile(_VALUE)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_PART_LIMIT: Final = 63


def name_problems(name: str, style: NameStyle) -> Iterator[str]:
    """The problems of an object's name."""
    if style is NameStyle.PATH_SEGMENT:
        if name in (".", ".."):
            yield f"may not be '{name}'"
        yield from (f"may not contain '{char}'" for char in "/%" if char in name)
        return
    pattern, limit, text = _STYLES[style]
    if len(name) > limit:
        yield f"must be no more than {limit} characters"
    if pattern.fullmatch(name):
        return
    if style is NameStyle.LABEL and _SUBDOMAIN_RE.fullmatch(name):
        yield "must not contain dots"
    else:
        yield text


def label_problems(text: str) -> list[str]:
    """The problems of ``text`` as a DNS-1035 label."""
    return list(name_problems(text, NameStyle.SERVICE))


def subdomain_problems(text: str) -> list[str]:
    """The problems of ``text`` as an RFC 1123 subdomain."""
    return list(name_problems(text, NameStyle.SUBDOMAIN))


def key_problems(key: str) -> Iterator[str]:
    """The problems of the key of a label or annotation, or of the name of a finalizer."""
    prefix, slash, name = key.partition("/")
    if not slash:
        name = key
    elif "/" in name:
        yield _KEY_TEXT
        return
    elif not prefix:
        yield "prefix part must be non-empty"
    elif len(prefix) > 253:
        yield "prefix part must be no more than 253 characters"
    elif not _SUBDOMAIN_RE.fullmatch(prefix):
        yield f"prefix part {_SUBDOMAIN_TEXT}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > _PART_LIMIT:
        yield f"name part must be no more than {_PART_LIMIT} bytes"
    if not _QUALIFIED_RE.fullmatch(name):
        yield _NAME_PART_TEXT


def value_problems(value: str) -> Iterator[str]:
    """The problems of the value of a label."""
    if len(value.encode()) > _PART_LIMIT:
        yield f"must be no more than {_PART_LIMIT} bytes"
    if not _VALUE_RE.fullmatch(value):
        yield _VALUE_TEXT


def validate_key(field: str, key: str, shown: str | None = None) -> Iterator[FieldError]:
    """The errors of a key in ``field``; ``shown`` is the key as the errors quote it."""
    for problem in key_problems(key):
        yield FieldError.invalid(field, key if shown is None else shown, problem)
