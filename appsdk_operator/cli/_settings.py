"""The settings of commands in ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click


def settings(command: str, known: Collection[str]) -> dict[str, Any]:
    """The table ``[tool.appsdk-operator.COMMAND]`` of ``pyproject.toml`` in the current folder.

    Args:
        command: the name of the command.
        known: the names of its settings, with underscores; the file may write dashes.

    Returns:
        The values by their names, with underscores; none without file or table.

    Raises:
        click.ClickException: the file cannot be read, or has something else than known settings.
    """
    path = Path("pyproject.toml")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error
    try:
        whole = content.get("tool", {}).get("appsdk-operator", {})
        found = {key.replace("-", "_"): value for key, value in whole.get(command, {}).items()}
    except AttributeError as error:
        raise click.ClickException(
            f"{path}: tool.appsdk-operator.{command} is not a table: write it as "
            f"[tool.appsdk-operator.{command}]"
        ) from error
    # The project's own, which 'init' has written next to the tables of commands.
    if "kit" in known and "kit" in whole:
        found.setdefault("kit", whole["kit"])
    for key in found:
        if key not in known:
            names = ", ".join(sorted(name.replace("_", "-") for name in known))
            raise click.ClickException(
                f"{path}: [tool.appsdk-operator.{command}] has the unknown setting "
                f"{key.replace('_', '-')}: use {names}"
            )
    return found
