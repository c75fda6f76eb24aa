"""Modules of the ``kubernetes`` package, imported on first use and untyped."""

from __future__ import annotations

import importlib
from typing import Any


def package(module: str) -> Any:
    """A module of the package, for example ``config.kube_config``."""
    return importlib.import_module(f"kubernetes.{module}")
