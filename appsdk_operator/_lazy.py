"""Packages whose names are imported on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["homes", "loader"]


def homes(*tables: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The module of each name, from tables of the names in the modules of this package."""
    return {
        name: f"appsdk_operator.{module}"
        for table in tables
        for module, names in table.items()
        for name in names
    }


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` (PEP 562) that takes each name from the module in ``homes``."""

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home)
        value = getattr(module, name, module)
        setattr(sys.modules[package], name, value)
        return value

    return load
