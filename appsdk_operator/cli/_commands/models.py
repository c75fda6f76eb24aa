"""Make typed classes from CustomResourceDefinitions and built-in kinds."""

from __future__ import annotations

import re
from pathlib import Path

import click

from appsdk_operator.cli._frame import command as make_command


@make_command(
    "models",
    examples=(
        "appsdk-operator models crds.yaml -o -",
        "appsdk-operator models crds.yaml --style msgspec -o widgets.py",
        "appsdk-operator models --builtin apps/v1/Deployment --builtin core/v1/Pod -o -",
    ),
)
@click.argument("crds", nargs=-1, metavar="[CRD.YAML]...")
@click.option(
    "--builtin",
    metavar="GROUP/VERSION/KIND",
    multiple=True,
    help="A built-in kind, core/v1/Pod; may be given several times.",
)
@click.option(
    "--style",
    type=click.Choice(["attrs", "dataclass", "msgspec", "pydantic"]),
    default="attrs",
    help="The library of the classes.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    help="The module to write; your edits in it stay. - prints it.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if FILE is not current.")
def command(
    crds: tuple[str, ...], builtin: tuple[str, ...], style: str, output: str, check: bool
) -> int:
    """Make a Python module of typed classes from CRDs, or from built-in kinds.

    The arguments are files of YAML or JSON, folders, or - for standard input. The module has a
    class for each spec, status and what is in them, and a Kind for each version.
    """
    from appsdk_operator.cli._output import Output
    from appsdk_operator.project import ModelError, builtin_models, models, read_crds

    if bool(crds) == bool(builtin):
        raise click.UsageError("give either files with CRDs, or kinds with --builtin")
    try:
        if builtin:
            from appsdk_operator.apiserver import builtin_schemas

            known = builtin_schemas.data()
            text = builtin_models(
                builtin,
                schemas=known.schemas,
                definitions=known.kinds,
                style=style,  # type: ignore[arg-type]
            )
        else:
            found = [crd for source in dict.fromkeys(crds) for crd in read_crds(source)]
            text = models(found, style=style)  # type: ignore[arg-type]
    except ModelError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot read {error.filename}: {error.strerror}") from error
    if output == "-":
        return Output("-", check).deliver({"models.py": text}, "models")
    path = Path(output)
    if not path.name.endswith(".py"):
        raise click.UsageError(
            f"-o {output}: give the file of a module, such as models.py, or - to print it"
        )
    # Each module has its own record: another one in the folder is not a file of this run.
    own = "".join(one if re.fullmatch("[a-z0-9]", one) else f"-{ord(one):x}-" for one in path.stem)
    return Output(str(path.parent), check).deliver({path.name: text}, f"models-{own}")
