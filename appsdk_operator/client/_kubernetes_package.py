"""Modules of the ``kubernetes`` package, imported on first use and untyped."""

from __future__ import annotations

import importlib
from typing import Any

NEEDED = "needs the package kubernetes: pip install 'appsdk-operator[kubernetes]'"
"""Said of what asks for the package where it is not installed."""


def package(module: str, user: str) -> Any:
    """A module of the package, for example ``config.kube_config``.

    Args:
        module: its name without that of the package.
        user: what needs it, for the text of the error.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        return importlib.import_module(f"kubernetes.{module}")
    except ModuleNotFoundError as error:
        if f"{error.name}".partition(".")[0] != "kubernetes":
            raise
        raise ModuleNotFoundError(f"{user} {NEEDED}", name=error.name) from None
