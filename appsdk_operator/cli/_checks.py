"""What ``appsdk-operator check`` looks at; a further check is a function in ``CHECKS``."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appsdk_operator.cli import _frame
from appsdk_operator.cli._permissions import in_words

if TYPE_CHECKING:
    from appsdk_operator.app import App


_DEPLOY: Final = "deploy"
_TARGET: Final = re.compile(r'^CMD \["run", "([^"]+)"\]$', re.MULTILINE)

CheckFunction = Callable[["App", str], Iterator[str]]
"""Yields a text for each problem of the App that the command line calls by the second argument; it
says what to do. The current folder is the project's."""


class NotCheckedError(Exception):
    """A check that does not apply, or cannot be made; the text says why."""


def _declarations(app: App, _: str) -> Iterator[str]:
    """Whether what the App declares fits together."""
    parts: dict[str, Callable[[], object]] = {
        "its CRDs": app.crds,
        "its webhooks": lambda: app.webhooks,
        "its permissions": app.permissions,
    }
    for name, make in parts.items():
        try:
            make()
        except (TypeError, ValueError) as error:
            yield f"{name}: {error}"


def _schemas(app: App, _: str) -> Iterator[str]:
    """Whether an API server takes the CRDs: structural schemas, rules, columns."""
    from appsdk_operator.client import ApiError

    try:
        from appsdk_operator.testing import MemoryServer

        server = MemoryServer()
    except ImportError as error:
        raise NotCheckedError(str(error)) from error
    try:
        crds = app.crds(url="https://localhost/convert", ca=b"")
    except (TypeError, ValueError) as error:
        raise NotCheckedError("its CRDs cannot be made") from error
    client = server.client()
    for crd in crds:
        try:
            client.create(crd)
        except ApiError as error:
            yield f"{crd.name}: {error}"


def _manifests(_: App, target: str) -> Iterator[str]:
    """Whether ``manifests`` would change what it has made, and kustomize finds all of it."""
    from appsdk_operator.resource import load_yaml

    made = Path(_DEPLOY, ".appsdk-operator/manifests/Dockerfile.base")
    # The files have the target that they were made for, which names the same App in other words.
    found = _TARGET.search(made.read_text(encoding="utf-8")) if made.is_file() else None
    target = found[1] if found is not None else target
    yield from _by_command(_DEPLOY, "manifests", ["manifests", target, "--check"])
    for path in sorted(Path(_DEPLOY).rglob("kustomization.yaml")):
        try:
            (found,) = load_yaml(path.read_text(encoding="utf-8"))
            named = [*map(str, found.get("resources") or ())]
        except (AttributeError, TypeError, ValueError) as error:
            yield f"{path} cannot be read: {error}"
            continue
        for each in named:
            is_file = each.endswith((".yaml", ".yml")) and "://" not in each
            if is_file and not (path.parent / each).exists():
                yield (
                    f"{path} names the file {each}, which does not exist: create the file, or "
                    "delete the line"
                )


def _crds(_: App, target: str) -> Iterator[str]:
    """Whether ``crds`` would change what it has made."""
    yield from _by_command("deploy/crds", "crds", ["crds", target, "--check"])


def _roles(app: App, _: str) -> Iterator[str]:
    """Whether the roles in deploy allow what is declared, and what the tests needed."""
    from appsdk_operator.project import RECORD_FILE, Grants, load_permissions, roles

    if not Path(_DEPLOY).is_dir():
        raise NotCheckedError(f"there is no folder {_DEPLOY}")
    try:
        grants = Grants.load(_DEPLOY, account=app.name)
    except (OSError, ValueError) as error:
        raise NotCheckedError(str(error)) from error
    try:
        recorded = load_permissions(RECORD_FILE) if Path(RECORD_FILE).exists() else ()
        declared = app.permissions()
        besides = roles(app, namespace=app.name, recorded=recorded).besides
    except (OSError, TypeError, ValueError) as error:
        yield str(error)
        return
    for each in grants.missing([*declared, *besides], namespaces=app.namespaces):
        yield (
            f"the roles in {_DEPLOY} lack {in_words(each)}: {'; '.join(each.reasons)}\n"
            f"add it, or run 'appsdk-operator manifests' again"
        )


def _by_command(folder: str, generator: str, words: list[str]) -> Iterator[str]:
    """What a command says that checks the files of a generator in a folder."""
    if not (Path(folder) / ".appsdk-operator" / generator).is_dir():
        raise NotCheckedError(f"{folder} has no files of 'appsdk-operator {generator}'")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = _frame.run(words)
    if status:
        yield f"run 'appsdk-operator {generator} {words[1]}'\n{said.getvalue().rstrip()}"


CHECKS: Final[Mapping[str, CheckFunction]] = {
    "declarations": _declarations,
    "schemas": _schemas,
    "deploy": _manifests,
    "crds": _crds,
    "roles": _roles,
}
"""The checks by name, in their order."""
