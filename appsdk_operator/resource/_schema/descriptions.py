"""Descriptions of classes and their fields: docstrings, those under attributes included."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Final

_DOCTEST: Final = re.compile(r"^ *>>> ", re.MULTILINE)
# Not the fences of Markdown, which have three.
_LITERAL: Final = re.compile(r"(?<!`)``(?!`)([^`]+)``(?!`)")
_ROLE: Final = re.compile(r"(?<![\w:`]):(?:[a-z]+:){1,2}`(?P<text>[^`<]+?)(?: *<[^`>]*>)?`")


def class_description(cls: type) -> str:
    """The docstring of a class up to its first doctest, which is for readers of the code.

    Empty if it has none of its own, or one that a library made.
    """
    if issubclass(cls, enum.Enum):
        return ""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):  # a dataclass's own
        return ""
    return without_markup(_DOCTEST.split(inspect.cleandoc(text), maxsplit=1)[0].rstrip())


def without_markup(text: str) -> str:
    """A docstring for people who use kubectl: without the markup of reStructuredText.

    A literal is in single backticks, as in the descriptions of Kubernetes. A role shows its text,
    or the last part of its target.
    """

    def role(found: re.Match[str]) -> str:
        shown = found["text"].removeprefix("!")
        return shown.rpartition(".")[2] if shown.startswith("~") else shown

    return _ROLE.sub(role, _LITERAL.sub(r"`\1`", text))


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


def _of_source(cls: type) -> Mapping[str, str]:
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    if module is None or path is None:
        return {}
    try:
        found = Path(path).stat()
        state = (found.st_mtime_ns, found.st_size)
    except OSError:  # in an archive
        state = (0, 0)
    return _of_module(cls.__module__, path, state).get(cls.__qualname__, {})


@functools.lru_cache(maxsize=32)
def _of_module(
    name: str,
    path: str,  # noqa: ARG001 - as the state, for a module that is loaded again
    state: tuple[int, int],  # noqa: ARG001
) -> Mapping[str, Mapping[str, str]]:
    """The docstrings under attributes by the class's qualified name, of all classes of a module.

    All at once: :func:`inspect.getsource` of a class parses the whole module for each.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found: dict[str, Mapping[str, str]] = {}
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        node, prefix = pending.pop()
        if isinstance(node, ast.ClassDef):
            found[prefix + node.name] = _under_attributes(node.body)
            prefix += f"{node.name}."
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            prefix += f"{node.name}.<locals>."
        inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, _WITH_CLASSES)]
        # Of two classes of one name the later one stays, as when the module runs.
        pending += [(one, prefix) for one in reversed(inner)]
    return found


_WITH_CLASSES: Final = (
    *(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.Try, ast.With, ast.For),
    *(ast.While, ast.ExceptHandler),
)


def _under_attributes(body: list[ast.stmt]) -> Mapping[str, str]:
    found = {}
    for one, following in itertools.pairwise(body):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            found[one.target.id] = without_markup(inspect.cleandoc(following.value.value))
    return found
