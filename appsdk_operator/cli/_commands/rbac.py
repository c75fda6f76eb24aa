"""Make and check the roles of an App, and record what its tests need."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click

from appsdk_operator.cli import _frame
from appsdk_operator.cli._load import target_argument
from appsdk_operator.cli._output import Output, output_options
from appsdk_operator.cli._permissions import in_words
from appsdk_operator.project import RECORD_FILE, Grants, added_permissions, load_permissions, roles

if TYPE_CHECKING:
    from appsdk_operator.app import App, Permission


_OPTION = "--appsdk-kube-rbac-record"


@final
class _Group(_frame.Command, click.Group):
    """Commands of which ``roles`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, with ``roles`` where no command is named."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["roles", *args]
        return click.Group.parse_args(self, ctx, args)


command = _Group(
    "rbac",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    help="""Make and check the roles of an App, and record what its tests need.

    The rules are those that follow from the App's declarations, and those that its tests needed
    besides, if they were recorded. Each has its reasons as comments.
    """,
)
command.examples = (
    "appsdk-operator rbac bucket_operator:app -o deploy/rbac",
    "appsdk-operator rbac record -- pytest tests",
    "appsdk-operator rbac check bucket_operator:app",
)


def _record_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--record",
        metavar="FILE",
        default=RECORD_FILE,
        help="File of what the tests needed.",
    )(function)


def _add(
    name: str, *examples: str, **attributes: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        command.add_command(_frame.command(name, examples=examples, **attributes)(function))
        return function

    return add


@_add("roles", "appsdk-operator rbac bucket_operator:app -o -")
@target_argument
@click.option("-n", "--namespace", metavar="NAME", help="Namespace. Default: the App's name.")
@_record_option
@output_options("deploy/rbac")
def make(app: App, namespace: str | None, record: str, output: Output) -> int:
    """Make service account, roles and bindings; the default command.

    TARGET is module:app, or the path of a file. If there is a record, its permissions are added.
    """
    try:
        recorded = _load(record) if Path(record).exists() else ()
        made = roles(app, namespace=namespace or app.name, recorded=recorded)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    return output.deliver(made.texts(), "rbac")


@_add(
    "record",
    "appsdk-operator rbac record",
    "appsdk-operator rbac record -- pytest tests -n4",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@_record_option
@click.argument("arguments", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def record(record: str, arguments: tuple[str, ...]) -> int:
    """Run tests, and record the permissions that the operator needs in them.

    COMMAND is pytest with its arguments, or a program that runs pytest. The command records the
    requests of the fixtures kube_config and kube_manager. It has the exit status of the tests.
    """
    line = list(arguments or ("pytest",))
    file = Path(record).absolute()
    before = file.stat().st_mtime_ns if file.exists() else None
    options = f"{os.environ.get('PYTEST_ADDOPTS', '')} {_OPTION}={shlex.quote(str(file))}".strip()
    try:
        done = subprocess.run(  # noqa: S603 - the user's own
            line, check=False, env={**os.environ, "PYTEST_ADDOPTS": options}
        )
    except OSError as error:
        raise click.ClickException(f"{shlex.join(line)} cannot be run: {error}") from error
    after = file.stat().st_mtime_ns if file.exists() else None
    if after == before:
        raise click.ClickException(
            f"{shlex.join(line)} did not write {record}: it must run pytest, with the kit "
            "installed, and must not set PYTEST_ADDOPTS"
        )
    return done.returncode


@_add(
    "check",
    "appsdk-operator rbac check bucket_operator:app",
    "appsdk-operator rbac check bucket_operator:app --roles deploy --strict",
)
@target_argument
@click.option(
    "--roles",
    "paths",
    metavar="PATH",
    multiple=True,
    default=("deploy",),
    help="YAML file with roles and bindings, or a folder of them; may be given several times.",
)
@_record_option
@click.option("--strict", is_flag=True, help="Fail as well if a role allows what nothing needs.")
def check(app: App, paths: tuple[str, ...], record: str, strict: bool) -> int:
    """Compare your roles with the declarations of the App and the record of its tests.

    The exit status is 1 if the roles lack a permission. The command also lists the permissions that
    no test has used. If the App declares such a permission, the list has the reason.
    """
    try:
        recorded = _load(record)
        grants = Grants.load(*paths, account=app.name)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    try:
        declared = app.permissions()
        # What is declared for the own namespace is recorded in that of a test.
        besides = roles(app, namespace=app.name, recorded=recorded).besides
        explained = [*declared, *added_permissions(app)]
    except (TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    missing = grants.missing([*declared, *besides], namespaces=app.namespaces)
    unused = grants.unused(recorded)
    needless = grants.unused([*explained, *recorded])
    for each in missing:
        click.echo(f"missing: {in_words(each)}: {'; '.join(each.reasons)}")
    for each in unused:
        why = _reasons(each, explained)
        click.echo(f"unused:  {in_words(each)}, by {', '.join(each.reasons)}{why}")
    if not missing:
        click.echo("the roles allow all that is declared and was recorded")
    return int(bool(missing) or (strict and bool(needless)))


def _load(record: str) -> tuple[Permission, ...]:
    try:
        return load_permissions(record)
    except FileNotFoundError as error:
        raise click.ClickException(
            f"there is no {record}: write it with appsdk-operator rbac record -- pytest"
        ) from error
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _reasons(permission: Permission, declared: Iterable[Permission]) -> str:
    reasons = [
        reason
        for each in declared
        if set(each.resources) & set(permission.resources)
        and set(each.groups) & set(permission.groups)
        and set(each.verbs) & set(permission.verbs)
        for reason in each.reasons
    ]
    return f"; declared: {'; '.join(dict.fromkeys(reasons))}" if reasons else ""
