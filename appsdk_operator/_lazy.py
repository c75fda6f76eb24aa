"""What is imported or made on first use: the names of packages, and regular expressions."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any, AnyStr, cast


def names_of(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """The names that the stub of a package imports, each as ``name as name``.

    Returns:
        The public names, each with the module that has it, and those after a string among the
        imports, which are for the other packages.
    """
    module = sys.modules[package]
    stub = f"{module.__file__}".removesuffix("c") + "i"
    source = module.__loader__.get_data(stub)  # type: ignore[union-attr]
    public: dict[str, str] = {}
    unlisted: dict[str, str] = {}
    table, home = public, ""
    # By line: a parser takes longer than the imports of a small package.
    for line in source.decode().splitlines():
        if line.startswith("from "):
            home, _, line = line[5:].partition(" import ")
        elif line.startswith('"'):
            table = unlisted
        name, found, _ = line.strip().partition(" as ")
        if found:
            table[name] = home
    return public, unlisted


_HOMES: dict[str, dict[str, str]] = {}


def if_loaded(package: str, name: str) -> tuple[type[Any], ...]:
    """A class of a package for ``isinstance``, without importing it.

    Empty while nobody has imported the class: there is no instance yet.

    Raises:
        KeyError: the package, which is imported, has no such name.
    """
    homes = _HOMES.get(package)
    found = None if homes is None else getattr(sys.modules.get(homes[name]), name, None)
    return (found,) if found else ()


def room(package: str) -> tuple[list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """``__all__``, ``__dir__`` and ``__getattr__`` (PEP 562) of a package, from its stub."""
    public, unlisted = names_of(package)
    homes = _HOMES[package] = public | unlisted

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


class _LazyPattern:
    """A regular expression whose compilation waits for its first use."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._made_of = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._made_of), name)
        setattr(self, name, found)
        return found


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As ``re.compile``, for expressions that most processes never use: compiled on first use.

    Their methods are all that it has.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
