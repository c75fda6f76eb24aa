"""Descriptions of classes and their fields: docstrings, those under attributes included."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import textwrap
from collections.abc import Hashable

__all__ = ["attribute_docstrings", "class_description"]


def class_description(cls: type) -> str:
    """The docstring of a class; ``""`` if it has none of its own, or one that a library made."""
    if issubclass(cls, enum.Enum):
        return ""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):  # a dataclass's own
        return ""
    return inspect.cleandoc(text)


@functools.cache
def attribute_docstrings(cls: Hashable) -> dict[str, str]:
    """The docstrings under the attributes of a class and its bases, by attribute.

    Empty where there is no source, as in a shell.
    """
    found: dict[str, str] = {}
    for base in reversed(getattr(cls, "__mro__", ())):
        if base.__module__ not in ("builtins", "typing"):
            found.update(_of_source(base))
    return found


def _of_source(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef)), [])
    found = {}
    for one, following in itertools.pairwise(body):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            found[one.target.id] = inspect.cleandoc(following.value.value)
    return found
