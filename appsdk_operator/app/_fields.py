"""The check of a field's path against the class or schema of its kind."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from appsdk_operator.app._declarations import Declarations, Index, Owned, is_builtin
from appsdk_operator.controllers import FieldPath
from appsdk_operator.resource import Kind, custom_resource_definition, field_selector_of

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


def check_field(path: FieldPath, kind: Kind[Any, Any], owned: Sequence[Owned]) -> None:
    """Check that objects of ``kind`` can have the field.

    Args:
        path: the field.
        kind: the kind.
        owned: the kinds whose CRDs the app has so far, perhaps with schemas.

    Raises:
        ValueError: neither the class nor the schema has it; the text has the nearest name.
    """
    schema: Any = _schema_of(kind, owned)
    where = ""
    for step in path.steps_of(kind):
        if not isinstance(schema, Mapping) or schema.get(_OPEN):
            return
        if isinstance(step, int):
            schema, where = schema.get("items"), f"{where}[{step}]"
            continue
        known = schema.get("properties")
        other = schema.get("additionalProperties")
        if known and step in known:
            schema = known[step]
        elif isinstance(other, Mapping) or other is True:
            schema = other
        elif known or schema.get("type") not in (None, "object"):
            raise ValueError(_unknown(path, kind, where, step, list(known or ())))
        else:
            return
        if step == "metadata" and not where:
            return
        where = f"{where}.{step}" if where else step


def check_index(index: Index, declared: Declarations) -> None:
    """Check that an index can be made, and asked for.

    Raises:
        ValueError: there is one, or the kind cannot have the field.
    """
    path = index.path
    field_selector_of({path: "value"}, "path")
    if path in ("metadata.name", "metadata.namespace"):
        raise ValueError(f"index({index.kind}, {path!r}): every cache answers that: leave it out")
    if any((each.kind, each.path) == (index.kind, path) for each in declared.indexes):
        raise ValueError(
            f"index({index.kind}, {path!r}) is declared twice: use it, or choose another path"
        )
    check_indexed_field(index, declared.owned)


def check_indexed_field(index: Index, owned: Sequence[Owned]) -> None:
    """Check that objects of the kind can have the field of an index without a function.

    Raises:
        ValueError: as :func:`check_field`, or it is no dotted path.
    """
    if index.function is not None:
        return
    if not all(index.path.split(".")) or set(index.path) & set("[]'\""):
        raise ValueError(
            f"path={index.path!r}: write names with dots between them, spec.nodeName, or give a "
            "function of the object"
        )
    check_field(FieldPath(index.path), index.kind, owned)


def _unknown(path: FieldPath, kind: Kind[Any, Any], where: str, step: str, known: list[str]) -> str:
    folded = {name.lower().replace("_", ""): name for name in known}
    near = difflib.get_close_matches(step.lower().replace("_", ""), folded, 1, 0.5)
    hint = f", did you mean {folded[near[0]]!r}?" if near else "."
    names = f" There are {', '.join(sorted(known))}" if known else " It is no object"
    owner = where if "." in where or "[" in where else f"{where} of {kind}" if where else str(kind)
    return f"field={str(path)!r}: {owner} has no field {step!r}{hint}{names}"


def _schema_of(kind: Kind[Any, Any], owned: Sequence[Owned]) -> Any:
    """The schema of the kind's version; None where there is none."""
    if is_builtin(kind):
        return None
    found = next((each for each in owned if kind in each.kinds), Owned(kind=kind))
    given: Any = found.kind
    try:
        crd = custom_resource_definition(given, **found.options).to_dict()
    except (NameError, TypeError, ValueError):
        # A class of which no CRD can be made, or none yet: the error comes when it is made.
        return None
    schemas = {each["name"]: each["schema"] for each in crd["spec"]["versions"]}
    return schemas.get(kind.version, {}).get("openAPIV3Schema")
