"""Packages whose names are imported on first use."""

from __future__ import annotations

import _ast  # what `ast` has of it, without the millisecond of importing that
import importlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Names(NamedTuple):
    """What a package offers: each name with the module that has it."""

    public: dict[str, str]
    unlisted: dict[str, str]
    """For the other packages of the kit."""


def names_of(package: str) -> Names:
    """The names that the stub of a package imports.

    Those after a string among the imports are for the other packages.
    """
    module = sys.modules[package]
    stub = f"{module.__file__}".removesuffix("c") + "i"
    source = module.__loader__.get_data(stub)  # type: ignore[union-attr]
    names = Names({}, {})
    table = names.public
    tree: Any = compile(source, stub, "exec", _ast.PyCF_ONLY_AST)
    for node in tree.body:
        if isinstance(node, _ast.ImportFrom):
            table.update((alias.name, f"{node.module}") for alias in node.names)
        else:
            table = names.unlisted
    return names


def room(package: str) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """``__all__``, ``__dir__`` and ``__getattr__`` (PEP 562) of a package, from its stub."""
    public, unlisted = names_of(package)
    homes = public | unlisted

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return importlib.import_module(f"{home}.{name}")
        # As `from home import name` does: it may be a module.
        value = getattr(__import__(home, fromlist=(name,)), name)
        setattr(sys.modules[package], name, value)
        return value

    return [*public], lambda: sorted(public), load
