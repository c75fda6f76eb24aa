"""The formats of texts that expressions can ask for by name."""

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
    """The check of what comes before a generated suffix: a dash at its end is in the middle."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text[-1] == "-" else text)


def _as_schemas_have_it(name: str, problem: str) -> _Check:
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
    "uri": _as_schemas_have_it("uri", "invalid URI for request"),
    "uuid": _as_schemas_have_it("uuid", "does not match the UUID format"),
    "byte": _as_schemas_have_it("byte", "invalid base64"),
    "date": _as_schemas_have_it("date", "invalid date"),
    "datetime": _as_schemas_have_it("datetime", "invalid datetime"),
}
"""What is wrong with texts, by the names of the formats."""
