"""Names of classes and fields from those on the wire."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection
from typing import Final


class ModelError(ValueError):
    """A CustomResourceDefinition or a name from which no class can be made; the text says why."""


_WORDS: Final = re.compile(
    r"[A-Z]+s(?![a-z])|[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+|[0-9]+[a-z]*(?![A-Za-z])|[0-9]+"
)
_LIBRARIES: Final = ("attrs", "dataclasses", "kinds", "msgspec", "pydantic")

FIELD_RESERVED: Final = frozenset(
    {
        *keyword.kwlist,
        *_LIBRARIES,
        # What the annotations of a class name: its own attributes would hide them.
        *("bool", "bytes", "dict", "float", "int", "list", "object", "property", "str", "tuple"),
        *("l", "mro", "self"),
    }
)
"""Names that a field cannot have."""

CLASS_RESERVED: Final = frozenset(
    {
        *keyword.kwlist,
        *dir(builtins),
        *("Annotated", "Any", "EmbeddedObject", "FieldName", "Final", "Format", "Immutable"),
        *("Int32", "Int64", "IntOrString", "Kind", "ListType", "Literal", "MapType", "Mapping"),
        *("PreserveUnknown", "Quantity", "Duration", "Rule", "Schema", "Scope", "Sequence"),
        *("Time", "TypeAlias", "Versions"),
    }
)
"""Names that a class cannot have, because the module uses them."""


def _words(name: str) -> list[str]:
    return _WORDS.findall(re.sub(r"[^A-Za-z0-9]+", " ", name))


def snake(name: str) -> str:
    """``max_size`` for ``maxSize``; what cannot be in a name becomes an underscore.

    >>> snake("maxSize"), snake("podIP"), snake("clusterIPs"), snake("x-kind"), snake("ipv4Only")
    ('max_size', 'pod_ip', 'cluster_ips', 'x_kind', 'ipv4_only')
    """
    found = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    found = re.sub(r"([A-Z]+)([A-Z][a-rt-z0-9]|[A-Z]s[a-z])", r"\1_\2", found)
    found = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", found)
    found = re.sub(r"_+", "_", found).lower()
    return f"field_{found}" if not found or found[0].isdigit() else found


def class_words(name: str) -> str:
    """``IssuerRef`` for ``issuerRef``; letters in a row stay as they are.

    >>> class_words("issuerRef"), class_words("pod-template"), class_words("HTTPRoute")
    ('IssuerRef', 'PodTemplate', 'HTTPRoute')
    """
    parts = re.sub(r"[^A-Za-z0-9]+", " ", name).split()
    found = "".join(part[:1].upper() + part[1:] for part in parts)
    return f"Field{found}" if not found or found[0].isdigit() else found


def constant(name: str) -> str:
    """``HTTP_ROUTE`` for ``HTTPRoute``."""
    return snake(name).upper()


def singular(name: str) -> str:
    """The name of one item of a list.

    >>> singular("ports"), singular("policies"), singular("addresses"), singular("status")
    ('port', 'policy', 'address', 'status')
    """
    lower = name.lower()
    if lower.endswith("ies") and len(name) > 4:
        return name[:-3] + "y"
    if lower.endswith(("sses", "xes", "ches", "shes")):
        return name[:-2]
    if lower.endswith("s") and not lower.endswith(("ss", "us", "is", "as")) and len(name) > 2:
        return name[:-1]
    return name


def unused(name: str, taken: Collection[str], separator: str = "_") -> str:
    """A name, with a number if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}{separator}{number}"
    return found
