"""The names of fields in paths and rules: those of Python, and those on the wire.

A path may be written by a reader of the class, whose field is ``max_size``, where objects have
``maxSize``. What looks at objects takes either name; what API servers get is refused with the right
one.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from appsdk_operator.resource._kind import Kind

_PART: Final = re.compile(r"\.?[^.\[\]]+|\[[^\]]*\]")
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_CHAIN: Final = re.compile(r"(?<![\w.])(self|oldSelf|object|oldObject)((?:\.\??[A-Za-z_]\w*)+)")


def wire_steps(kind: Kind, steps: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The steps of a path from the top of the object, with the names of fields on the wire.

    A name that is already a name on the wire, or that no class has, stays as it is.
    """
    view = {"spec": kind.spec, "status": kind.status}.get(str(steps[0])) if steps else None
    return steps if view is None else _below(view, kind.rename, steps)


def wire_path(kind: Kind, path: str) -> str:
    """A path as text with the names of fields on the wire: ``spec.jobs[0].maxSize``."""
    parts = _PART.findall(path)
    if "".join(parts) != path:
        return path
    steps = tuple(
        (int(part[1:-1]) if part[1:-1].isdigit() else part[1:-1])
        if part.startswith("[")
        else part.lstrip(".")
        for part in parts
    )
    named = wire_steps(kind, steps)
    return "".join(
        part if old == new else f"{'.' * part.startswith('.')}{new}"
        for part, old, new in zip(parts, steps, named, strict=True)
    )


def check_wire_path(what: str, kind: Kind, path: str) -> None:
    """Refuse a path for API servers that has Python's names.

    Raises:
        ValueError: the text has the path with the names on the wire.
    """
    named = wire_path(kind, path)
    if named != path:
        raise ValueError(f"{what}: {path!r} has Python's name of a field: write {named!r}")


def check_expression(what: str, kind: Kind, expression: str) -> None:
    """Refuse an expression about whole objects that has Python's names.

    Raises:
        ValueError: the text says what to write.
    """
    for variable, names in _chains(expression):
        _refuse_other(what, variable, names, wire_steps(kind, names))


def check_wire_rule(what: str, view: Any, rename: str | None, expression: str) -> None:
    """Refuse an expression about a value of a type that has Python's names.

    Raises:
        ValueError: the text says what to write.
    """
    for variable, names in _chains(expression):
        named = _below(view, rename, (variable, *names))[1:]
        _refuse_other(what, variable, names, named)


def _chains(expression: str) -> list[tuple[str, tuple[str, ...]]]:
    found = _CHAIN.findall(_TEXT.sub("''", expression))
    return [(variable, tuple(names.replace("?", "")[1:].split("."))) for variable, names in found]


def _refuse_other(
    what: str, variable: str, names: tuple[str, ...], named: tuple[str | int, ...]
) -> None:
    if named != names:
        old, new = (".".join(map(str, (variable, *steps))) for steps in (names, named))
        raise ValueError(f"{what}: {old} has Python's name of a field: write {new}")


def _below(view: Any, rename: str | None, steps: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return _named(view, rename, steps)
    except (NameError, TypeError):  # of a class that is not complete yet, or cannot be hashed
        return steps


@functools.lru_cache(maxsize=4096)
def _named(view: Any, rename: str | None, steps: tuple[Any, ...]) -> tuple[Any, ...]:
    from appsdk_operator.resource._typed.class_fields import (
        alternatives,
        array_items,
        class_fields,
        class_of,
        is_typed_dict,
        mapping_types,
    )
    from appsdk_operator.resource._typed.renaming import STYLES
    from appsdk_operator.resource._typed.spec_types import has_fields

    style = None if rename is None else STYLES[rename]
    found = [steps[0]]
    views: list[Any] = [view]
    for step in steps[1:]:
        known: dict[str, list[Any]] = {}
        own: dict[Any, Any] = {}
        inner: list[Any] = []
        for one in (each for view in views for each in alternatives(view)):
            if pair := mapping_types(one):
                inner.append(pair[1])
            elif array := array_items(one):
                inner += array[0]
            elif has_fields(class_of(one)) or is_typed_dict(one):
                for field in class_fields(one):
                    wire = field.wire_name(style)
                    known.setdefault(wire, []).append(field.type)
                    own.setdefault(field.name, wire)
        name = own.get(step, step) if step not in known and not inner else step
        found.append(name)
        views = known.get(name, inner)
    return tuple(found)
