"""Paths of fields as Python expressions."""

from __future__ import annotations

from collections.abc import Sequence


def value_at(subject: str, path: Sequence[str]) -> str:
    """The value at a path of an object, None where it has none.

    Args:
        subject: the object, as an expression.
        path: the keys.
    """
    root, *rest = path
    if root == "metadata" and rest and rest[0] in ("labels", "annotations"):
        found = f"{subject}.{rest.pop(0)}"
        needs_default = False
    elif root == "metadata":
        found, needs_default = f"{subject}.metadata", False
    elif root == "spec":
        found, needs_default = f"{subject}.spec", False
    elif root == "status":
        found, needs_default = f"{subject}.status", True
    else:
        found, needs_default = f'{subject}.get("{root}")', True
    for key in rest:
        found = f'({found} or {{}}).get("{key}")' if needs_default else f'{found}.get("{key}")'
        needs_default = True
    return found


def dotted(path: Sequence[str]) -> str | None:
    """The path as the kit writes it; None if a key has a dot."""
    return None if any("." in key for key in path) else ".".join(path)
