"""Writes the part of docs/cli.md that lists the commands, from the commands.

python hack/cli_page.py
python hack/cli_page.py --check
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from appsdk_operator.cli import _frame

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

START = "## Commands\n\n"
"""Where the part of the page begins that is made; what is above is written by hand."""


def commands() -> Iterator[tuple[str, str, _frame.Command]]:
    """Each command with its name and its line in the list."""
    with click.Context(_frame.program) as context:
        for name in _frame.program.list_commands(context):
            command = _frame.program.get_command(context, name)
            assert isinstance(command, _frame.Command)
            yield name, _frame.first_line(name), command


def page() -> str:
    """The whole page."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(START)
    parts = [before, START, "| command | does |\n|---|---|\n"]
    parts += [f"| [`{name}`](#{name}) | {line} |\n" for name, line, _ in commands()]
    for name, _, command in commands():
        parts.append(f"\n### {name}\n\n```console\n")
        parts += [f"$ {example}\n" for example in command.examples]
        parts.append(f"```\n\n{prose(command.help or '')}\n")
        parts += options(command)
        for inner in command.commands.values() if isinstance(command, click.Group) else ():
            parts.append(f"\n`{name} {inner.name}`: {prose(inner.help or '')}\n")
            parts += options(inner)
    return "".join(parts)


def options(command: click.Command) -> list[str]:
    """The table of a command's options."""
    rows = [
        f"| {cell(names(option))} | {cell(explained(option))} |\n"
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    return ["\n| option | |\n|---|---|\n", *rows] if rows else []


def prose(text: str) -> str:
    """The help of a command: paragraphs, and as code what click leaves as it is."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append(f"```text\n{paragraph.removeprefix(chr(8) + chr(10))}\n```")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def names(option: click.Option) -> str:
    """How an option is written."""
    written = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return written
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    return f"{written} {option.metavar or '|'.join(map(str, choices)) or option.type.name.upper()}"


def explained(option: click.Option) -> str:
    """What an option is for, its default and its environment variable."""
    extras = []
    default = option.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        extras.append(f"Default: `{default}`.")
    if option.envvar:
        extras.append(f"Environment: `{option.envvar}`.")
    return " ".join([option.help or "", *extras])


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*")


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not current")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        raise SystemExit("docs/cli.md is not current: run python hack/cli_page.py")


if __name__ == "__main__":
    main()
