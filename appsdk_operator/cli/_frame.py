"""What the commands share: how they are found, called, explained and completed."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, shell_complete

from appsdk_operator._version import __version__

PROGRAM: Final = "appsdk-operator"
_COMMANDS: Final = "appsdk_operator.cli._commands"
"""The package of the commands, each a module, which is imported when its command is called."""
_FOLDER: Final = Path(__file__).with_name("_commands")
COMPLETION_VARIABLE: Final = "_APPSDK_OPERATOR_COMPLETE"
"""The environment variable by which a shell asks for completions."""

_EXTRAS: Final = {
    "aiohttp": "testing",
    "click": "cli",
    "cryptography": "testing",
    "hypothesis": "testing",
    "pytest": "testing",
    "jinja2": "cli",
    "re2": "testing",
    "rich": "cli",
    "textual": "cli",
    "watchfiles": "cli",
}
"""The extra that brings a module."""

GROUPS: Final = {
    "Start": ("init", "run", "add"),
    "Develop": ("crds", "models", "check", "apiserver", "assets", "migrate", "update"),
    "Ship": ("manifests", "rbac"),
    "Operate": ("top", "retry", "pause", "resume", "uninstall"),
    "More": ("completion", "version"),
}
"""The commands by what one does with them, in the order of the help."""

_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "show_default": True}


_EXAMPLES: Final = (
    f"{PROGRAM} run --dev hello.py",
    f"{PROGRAM} init my-operator --group example.com --kind Widget",
    f"{PROGRAM} COMMAND --help",
)


class Command(click.Command):
    """A command whose help ends with examples."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on a line of its own, as one would type them."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(
    name: str, *, examples: tuple[str, ...], **attributes: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; its docstring is the help.

    Args:
        name: as it is typed.
        examples: whole command lines, at least one. A test runs each.
        **attributes: of :class:`click.Command`.
    """
    if not examples:
        raise ValueError(f"the command {name} needs an example")

    def make(function: Callable[..., Any]) -> Command:
        settings = {**_SETTINGS, **attributes.pop("context_settings", {})}
        made = click.command(name, cls=Command, context_settings=settings, **attributes)(function)
        made.examples = examples
        for parameter in made.params:
            if isinstance(parameter, click.Option) and parameter.envvar is not None:
                parameter.show_envvar = True
        return made

    return make


class Commands(click.Group):
    """The commands in a package: each module is imported when its command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the alphabet's order."""
        return sorted(
            module.name.replace("_", "-") for module in pkgutil.iter_modules([str(_FOLDER)])
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            click.ClickException: a package is not installed that it needs.
        """
        if cmd_name not in self.list_commands(ctx):
            return None
        module = f"{_COMMANDS}.{cmd_name.replace('-', '_')}"
        try:
            found = importlib.import_module(module).command
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}.command is {found!r}, which is not a click command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command as click does; the error names the nearest command, or all."""
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0][:1] != "-" and args[0] not in known:
            near = difflib.get_close_matches(args[0], known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(known)}"
            ctx.fail(f"no such command {args[0]!r}; {remedy}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin like this, without importing them; otherwise the options."""
        found = [
            CompletionItem(name, help=first_line(name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing them."""
        del ctx
        widest = max(map(len, (name for group in GROUPS.values() for name in group)))
        for title, names in GROUPS.items():
            with formatter.section(title):
                # The same column in each group.
                rows = [(name.ljust(widest), first_line(name)) for name in names]
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how to begin."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in _EXAMPLES:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def first_line(name: str) -> str:
    """The first line of the docstring of a command's module."""
    path = _FOLDER / f"{name.replace('-', '_')}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].rstrip(".")


@click.group(PROGRAM, cls=Commands, context_settings=_SETTINGS)
@click.version_option(__version__, message="%(version)s")
def program() -> None:
    """Tools for writing Kubernetes operators: make a project, run it, deploy it.

    Exit status: 0 for success, 1 for a failure or a finding, 2 for wrong arguments, 130 after
    Ctrl-C.
    """


def run(argv: Sequence[str]) -> int:
    """Run a command; see :func:`appsdk_operator.cli.main`."""
    asked = os.environ.get(COMPLETION_VARIABLE)
    try:
        if asked:
            return shell_complete(program, {}, PROGRAM, COMPLETION_VARIABLE, asked)
        with program.make_context(PROGRAM, list(argv)) as context:
            result = program.invoke(context)
            return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        raise SystemExit(exit_.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who read the output has gone, as `head` does; what is left is not to be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except click.UsageError as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        _missing(error).show()
        return 1


def _missing(error: ModuleNotFoundError) -> click.ClickException:
    """The error for a package that is not installed; what is none of the kit's is raised again."""
    extra = _EXTRAS.get(error.name or "")
    if extra is None:
        raise error
    return click.ClickException(
        f"this command needs {error.name}: install the extra '{extra}', for example with "
        f"pip install 'appsdk-operator[{extra}]', or '.[{extra}]' in a checkout"
    )
