"""What importing the kit loads: counted, so that a busy machine has no part in it.

``python hack/import_figures.py`` counts in fresh processes and fails where a figure is more than
2 % above that of ``import_figures.json``; with ``--write`` it writes the file. A commit that raises
a figure says why.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = Path(__file__).with_suffix(".json")
TOLERANCE: Final = 0.02
PROGRAMS: Final = {
    "Client": "from appsdk_operator import Client",
    "watchers": "from appsdk_operator import Client, InformerController, Kind, SimpleWatcher",
    "Manager": "from appsdk_operator import Client, Kind, Manager, controller_for",
    "App": "from appsdk_operator import App, Kind",
    "APIServer": "from appsdk_operator.testing import APIServer",
    "check_operator": "from appsdk_operator.testing import check_operator",
}
"""What operators and their tests import, by the name of its figures."""
_COUNT: Final = """
import json, sys
own = [each for name, each in sys.modules.items() if name.partition(".")[0] == "appsdk_operator"]
classes = [
    value for each in own for value in vars(each).values()
    if isinstance(value, type) and value.__module__ == each.__name__
]
print(json.dumps({
    "files": [each.__file__ for each in own],
    "attrs classes": sum("__attrs_attrs__" in vars(each) for each in classes),
    "other modules": len(sys.modules) - len(own),
}))
"""
"""What a process loaded: the modules of the kit, its classes that attrs made, which are as slow to
make as thirty structs each, and the modules of others."""
_DEPENDS_ON: Final = {
    "bytes of bytecode": {"python"},
    "other modules": {"python", "attrs", "msgspec"},
}
"""What of the environment decides a figure, besides the kit."""


def measured() -> dict[str, dict[str, int]]:
    """The figures of each program."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = {}
    for name, program in PROGRAMS.items():
        command = [sys.executable, "-c", program + _COUNT]
        done = subprocess.run(
            command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        figures = json.loads(done.stdout)
        files = figures.pop("files")
        size = sum(map(_bytecode_size, files))
        found[name] = {"modules": len(files), "bytes of bytecode": size, **figures}
    return found


@functools.cache
def _bytecode_size(file: str) -> int:
    """Without docstrings and comments, which are to be written freely."""
    pending: list[object] = [compile(Path(file).read_bytes(), "", "exec", optimize=2)]
    size = 0
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            size += len(code.co_code)
            pending += code.co_consts
    return size


def environment() -> dict[str, str]:
    """What some figures depend on."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in ("attrs", "msgspec")},
    }


def raised(
    known: Mapping[str, Mapping[str, int]],
    found: Mapping[str, Mapping[str, int]],
    *,
    differing: Collection[str] = (),
) -> list[str]:
    """The figures that are more than :data:`TOLERANCE` above the known ones, as text.

    Args:
        known: the figures of the file.
        found: the figures now.
        differing: what of the environment is not as it was; figures that depend on it are not
            compared.
    """
    return [
        f"importing {name}: {was:,} {what} were {now:,} now, at most {bound(was):,}"
        for name, figures in known.items()
        for what, was in figures.items()
        if (now := found[name][what]) > bound(was)
        and _DEPENDS_ON.get(what, set()).isdisjoint(differing)
    ]


def differing(of: Mapping[str, str]) -> set[str]:
    """What of the environment is not as ``of`` has it."""
    return {name for name, version in environment().items() if version != of.get(name)}


def bound(figure: int) -> int:
    """The most that passes."""
    return int(figure * (1 + TOLERANCE))


def is_kept(tell: Callable[[str], object]) -> bool:
    """Whether importing the kit loads no more than the file says."""
    found = measured()
    content = json.loads(FILE.read_text())
    for name, figures in found.items():
        counts = ", ".join(f"{value:,} {what}" for what, value in figures.items())
        tell(f"importing {name}: {counts}")
    problems = raised(content["figures"], found, differing=differing(content["of"]))
    for problem in problems:
        tell(problem)
    if problems:
        tell(
            "import what is needed when it is needed, or raise the figures with "
            "hack/import_figures.py --write in a commit that says why"
        )
    return not problems


def main() -> int:
    """Compare, or write the file."""
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(json.dumps({"of": environment(), "figures": measured()}, indent=2) + "\n")
        return 0
    return 0 if is_kept(print) else 1


if __name__ == "__main__":
    sys.exit(main())
