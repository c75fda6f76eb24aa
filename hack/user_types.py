"""Type checks what users type: the README, the pages, the examples, and the types that they see.

Each python block of a page becomes a module of a project of its own, which imports from the blocks
before it what it uses. mypy and pyright check the project as a user's editor does, with their
defaults; the cases in tests/typing/cases, which assert types and mistakes that must be found, and
the operators in examples/cronjob and examples/tenants are checked strictly. At last pyright tells
whether every public name of the package is typed.

    python hack/user_types.py
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import subprocess
import symtable
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = Path(sys.executable).parent
CASES = ROOT / "tests/typing/cases"

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ERROR = re.compile(r"(?:^| )error: ")
SAVED = re.compile(r"[Ss]ave (?:this|it) as `([\w./]+\.py)`[^\n]*\n+\Z")

# What `mypy --strict` means, for modules that are not strict themselves. The kit's own modules, and
# those of others, have the options of pyproject.toml in all projects, so that they are checked once
# and then read from the cache.
KIT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
MORE_CODES = ", ".join(KIT["enable_error_code"])
MYPY_OF_ALL = f"""\
[mypy]
strict = true
python_version = {KIT["python_version"]}
warn_unreachable = true
enable_error_code = {MORE_CODES}

[mypy-{",".join(KIT["overrides"][0]["module"])}]
ignore_missing_imports = true
"""
# A page fills its empty lists in callbacks, of which mypy, unlike pyright, does not learn the type.
MYPY_OF_PAGES = """
[mypy-{modules}]
disable_error_code = var-annotated, has-type, {codes}
disallow_any_generics = false
disallow_subclassing_any = false
disallow_untyped_calls = false
disallow_untyped_defs = false
disallow_incomplete_defs = false
check_untyped_defs = false
disallow_untyped_decorators = false
warn_unused_ignores = false
warn_return_any = false
warn_unreachable = false
strict_equality = false
implicit_reexport = true
extra_checks = false
"""
PYRIGHT = """{
  "executionEnvironments": [
    {"root": "cases", "reportUnnecessaryTypeIgnoreComment": "error"},
    {"root": "users"}
  ],
  "strict": ["cases/cronjob", "cases/tenants_operator"]
}"""


def blocks_of(page: Path) -> Iterator[tuple[int, str, str]]:
    """Line, text, and the file that the reader is told to make, of each python block."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        before = text[: found.start()]
        saved = SAVED.search(before)
        yield before.count("\n") + 2, found[1], saved[1] if saved else ""


def names_of(text: str) -> tuple[set[str], set[str]]:
    """The names that a block leaves behind for those after it, and those that it needs itself."""
    top = symtable.symtable(text, "block", "exec")
    own = {each.get_name() for each in top.get_symbols() if each.is_assigned()}
    own |= {each.get_name() for each in top.get_symbols() if each.is_imported()}
    used, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for each in table.get_symbols():
            if each.is_referenced() and (table is top or each.is_global()):
                used.add(each.get_name())
    lines: dict[tuple[str, type], int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            key = node.id, type(node.ctx)
            lines[key] = min(node.lineno, lines.get(key, node.lineno))
    early = {
        name
        for name in own & used
        if lines.get((name, ast.Load), 0) < lines.get((name, ast.Store), 0)
    }
    return own, (used - own) | early


def write_pages(project: Path) -> None:
    """The modules of all pages, with their lines where they are on the page."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        home: dict[str, str] = {}
        for line, text, saved in blocks_of(page):
            if saved:
                (project / saved).parent.mkdir(parents=True, exist_ok=True)
                (project / saved).write_text(text, encoding="utf-8")
                if "/" not in saved:  # what a later block changes in it has its names
                    home = dict.fromkeys(names_of(text)[0], saved.removesuffix(".py")) | home
                continue
            module = f"{page.stem.replace('-', '_').lower()}_{line:04}"
            own, used = names_of(text)
            imports = "; ".join(
                f"from {home[name]} import {name} as {name}"
                for name in sorted(used)
                if name in home and not hasattr(builtins, name)
            )
            filled = "\n" * (line - 2) + imports + "\n" + text
            (project / f"{module}.py").write_text(filled, encoding="utf-8")
            home |= dict.fromkeys(own, module)


def run(what: str, *command: str | Path, cwd: Path) -> str:
    """What a tool finds wrong, in a line; empty if it is content. All that it says is printed."""
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [SCRIPTS / command[0], *command[1:]],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return ""
    said = done.stdout.replace(f"{cwd}/", "") + done.stderr
    print(f"== {' '.join(map(str, command))}", said, sep="\n")
    errors = [line.strip() for line in said.splitlines() if ERROR.search(line)]
    if not errors:
        return f"{what}: status {done.returncode}"
    others = f", and {len(errors) - 1} more" if errors[1:] else ""
    return f"{what}: {errors[0]}{others}"


def main() -> int:
    """Check all of it; the exit status."""
    python = ("--pythonpath", Path(sys.executable))
    mypy = ("--python-executable", sys.executable, "--cache-dir", ROOT / ".mypy_cache")
    with tempfile.TemporaryDirectory() as folder:
        users, cases, nobody = (Path(folder) / name for name in ("users", "cases", "nobody"))
        for each in (users, nobody):
            each.mkdir()
        write_pages(users)
        for example in (ROOT / "examples").glob("*.py"):
            shutil.copy(example, users)
        own = ",".join(sorted(f"{each.stem}.*" for each in users.iterdir()))
        (users / "mypy.ini").write_text(
            MYPY_OF_ALL + MYPY_OF_PAGES.format(modules=own, codes=MORE_CODES), encoding="utf-8"
        )
        shutil.copytree(CASES, cases)
        shutil.copytree(ROOT / "examples/cronjob", cases / "cronjob")
        tenants = ROOT / "examples/tenants"
        shutil.copytree(tenants / "tenants_operator", cases / "tenants_operator")
        shutil.copytree(tenants / "tests", cases / "tenants_tests")
        (cases / "mypy.ini").write_text(MYPY_OF_ALL, encoding="utf-8")
        (Path(folder) / "pyrightconfig.json").write_text(PYRIGHT, encoding="utf-8")
        verify = ("pyright", "--verifytypes", "appsdk_operator", "--ignoreexternal")

        def both_mypy() -> str:
            pages = run("mypy, the pages", "mypy", *mypy, ".", cwd=users)
            others = run("mypy, the cases", "mypy", *mypy, ".", cwd=cases)
            return "; ".join(filter(None, (pages, others)))

        with ThreadPoolExecutor() as pool:
            found = [
                pool.submit(run, "the public names", *verify, cwd=nobody),
                # At once: most of the time goes into the kit's own modules.
                pool.submit(run, "pyright", "pyright", *python, ".", cwd=Path(folder)),
                # One after the other: they share a cache.
                pool.submit(both_mypy),
            ]
        problems = [each.result() for each in found if each.result()]
    # The last line: what the tools say may be long.
    print(f"types that users see: {'; '.join(problems) or 'ok'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
