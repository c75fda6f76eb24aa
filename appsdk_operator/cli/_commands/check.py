"""Check what an operator declares, and whether its generated files are current."""

from __future__ import annotations

import textwrap

import click

from appsdk_operator.cli import _frame


@_frame.command(
    "check",
    examples=(
        "appsdk-operator check bucket_operator:app",
        "appsdk-operator check bucket_operator/app.py",
    ),
)
@click.argument("target")
def command(target: str) -> int:
    """Check the operator TARGET, without a cluster: module:app, or file.py:app.

    \b
    declarations  the declarations of the App fit together
    schemas       an API server accepts its CRDs; needs the extra 'testing'
    deploy        'manifests' would change nothing in deploy, and kustomize finds its files
    crds          'crds' would change nothing in deploy/crds
    roles         the roles in deploy allow the App's requests, and those of rbac-record.yaml

    The command skips a check if deploy has no files for it. The exit status is 1 if there is a
    problem. Each problem says what to do.
    """
    from appsdk_operator.cli._checks import CHECKS, NotCheckedError
    from appsdk_operator.cli._load import load_app

    app = load_app(target)
    failed = False
    for name, check in CHECKS.items():
        try:
            problems = list(check(app, target))
        except NotCheckedError as skipped:
            click.echo(f"skipped  {name}: {skipped}")
            continue
        click.echo(f"{'FAILED' if problems else 'ok':7}  {name}")
        for problem in problems:
            click.echo(textwrap.indent(problem, " " * 9))
        failed = failed or bool(problems)
    return int(failed)
