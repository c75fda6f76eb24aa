"""The named formats of Kubernetes' format library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from appsdk_operator.apiserver._values import names, string_formats
from appsdk_operator.apiserver._values.names import NameStyle

__all__ = ["NAMED_FORMATS"]

_Check = Callable[[str], list[str]]


def _short(text: str) -> list[str]:
    return list(names.name_problems(text, NameStyle.LABEL))


def _before_suffix(check: _Check) -> _Check:
    """The check of a name prefix, to which a suffix is generated: it may end with a dash."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text[-1] == "-" else text)


def _schema_format(name: str, problem: str) -> _Check:
    return lambda text: [] if string_formats.is_valid(name, text) else [problem]


NAMED_FORMATS: Final[dict[str, _Check]] = {
    "dns1123Label": _short,
    "dns1123Subdomain": names.subdomain_problems,
    "dns1035Label": names.label_problems,
    "qualifiedName": lambda text: list(names.key_problems(text)),
    "dns1123LabelPrefix": _before_suffix(_short),
    "dns1123SubdomainPrefix": _before_suffix(names.subdomain_problems),
    "dns1035LabelPrefix": _before_suffix(names.label_problems),
    "labelValue": lambda text: list(names.value_problems(text)),
    "uri": _schema_format("uri", "invalid URI for request"),
    "uuid": _schema_format("uuid", "does not match the UUID format"),
    "byte": _schema_format("byte", "invalid base64"),
    "date": _schema_format("date", "invalid date"),
    "datetime": _schema_format("datetime", "invalid datetime"),
}
"""The functions that list the problems of a string, by format."""
