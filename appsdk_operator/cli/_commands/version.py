"""Print the version."""

from __future__ import annotations

import click

from appsdk_operator._version import __version__
from appsdk_operator.cli._frame import command as make_command


@make_command("version", examples=("appsdk-operator version",))
def command() -> None:
    """Print the version of the kit."""
    click.echo(__version__)
