"""The check of filters' and indexes' paths against the CRDs of an App."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from appsdk_operator.app._declarations import (
    Declarations,
    FunctionOptions,
    Index,
    Owned,
    Reconciling,
)
from appsdk_operator.resource import (
    FieldPath,
    FilterExpression,
    Kind,
    check_fields,
    field,
    field_selector_of,
)


def check_filters(options: FunctionOptions, kind: Kind[Any, Any], owned: Sequence[Owned]) -> None:
    """Check that objects of ``kind`` can have the fields of a function's filters.

    Args:
        options: the function's options.
        kind: the kind.
        owned: the kinds whose CRDs the app has so far, perhaps with schemas.

    Raises:
        ValueError: neither the class nor the schema has a field; the text has the nearest name.
    """
    for option, expression in (("where", options.where), ("when", options.when)):
        if expression is not None:
            _check(option, expression, kind, owned)


def check_event_filters(declared: Reconciling, owned: Sequence[Owned]) -> None:
    """The same for the filters of a reconciler's events."""
    for option, each in declared.filters:
        _check(option, each, declared.kind, owned)
    for followed in (*declared.owned, *(each for each, _ in declared.watched)):
        for option, each in followed.filters:
            _check(option, each, followed.kind, owned)


def check_result(path: FieldPath, kind: Kind[Any, Any], owned: Sequence[Owned]) -> None:
    """The same for the field that a result is written to."""
    _check("result", path.exists, kind, owned)


def _check(
    option: str, expression: FilterExpression, kind: Kind[Any, Any], owned: Sequence[Owned]
) -> None:
    found = next((each for each in owned if kind in each.kinds), Owned(kind=kind))
    check_fields(option, expression, kind, found.kind, found.options)


def check_index(index: Index, declared: Declarations) -> None:
    """Check that an index can be made, and asked for.

    Raises:
        ValueError: there is one, or the kind cannot have the field.
    """
    path = index.path
    field_selector_of({path: "value"}, "path")
    if path in ("metadata.name", "metadata.namespace"):
        raise ValueError(
            f"index({index.kind}, {path!r}): every cache has this index already: leave it out"
        )
    if any((each.kind, each.path) == (index.kind, path) for each in declared.indexes):
        raise ValueError(
            f"index({index.kind}, {path!r}) is declared twice: use it, or choose another path"
        )
    check_indexed_field(index, declared.owned)


def check_indexed_field(index: Index, owned: Sequence[Owned]) -> None:
    """Check that objects of the kind can have the field of an index without a function.

    Raises:
        ValueError: as :func:`check_filters`, or it is not a dotted path.
    """
    if index.function is not None:
        return
    if not all(index.path.split(".")) or set(index.path) & set("[]'\""):
        raise ValueError(
            f"path={index.path!r}: write names with dots between them, spec.nodeName, or give a "
            "function of the object"
        )
    _check("index", field(index.path).exists, index.kind, owned)
