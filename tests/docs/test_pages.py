"""The pages say what is so: their code runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import appsdk_operator
from appsdk_operator import (
    app,
    cache,
    client,
    controllers,
    manager,
    project,
    resource,
    runtime,
    serving,
    testing,
    tracing,
    watchers,
    webhooks,
)
from appsdk_operator._lazy import names_of

ROOT = Path(__file__).parents[2]
LANGUAGES = {"toml", "python", "console", "text", "yaml", ""}
# What a command begins with that is no program in PATH.
BUILTINS = {".", "cd", "export"}
# Not on every machine on which the tests run, but on every reader's.
READERS = {"curl", "docker", "helm", "kubectl", "setup-envtest"}


def public_names(package: ModuleType) -> set[str]:
    """The names that the package's stub lists first, and the modules without an underscore."""
    modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    return {*names_of(package.__name__)[0], *(name for name in modules if name[0] != "_")}


def look_up(path: str) -> Any:
    """What a dotted path leads to; AttributeError when it leads nowhere."""
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for number, name in enumerate(parts[1:], 2):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(".".join(parts[:number]))
        found = getattr(found, name)
    return found


def close(namespace: dict[str, Any]) -> None:
    """End what a page that failed half-way has left running."""
    for value in reversed(list(namespace.values())):
        if type(value).__module__.startswith("appsdk_operator."):
            for name in ("close", "stop"):
                end = getattr(value, name, None)
                if callable(end):
                    end()
        if type(value).__name__ == "StopSignal":
            value.set()


def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, blocks: list[Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    is_done = False
    try:
        for block in blocks:
            if block.language == "python":
                # As many lines before it as on the page, so that a traceback leads there.
                filled = "\n" * (block.line - 1) + block.text
                # As the reader runs it: without the future that is imported here.
                code = compile(filled, str(page), "exec", dont_inherit=True)
                if not block.saved_as and not block.edit:
                    exec(code, namespace)
        is_done = True
    finally:
        if not is_done:
            close(namespace)


def test_the_blocks_of_a_page_are_of_a_known_language_and_fit(blocks: list[Any]) -> None:
    for block in blocks:
        assert block.language in LANGUAGES, block
        width = max(map(len, block.text.splitlines()), default=0)
        assert block.language != "python" or width <= 88, block


def test_the_names_of_the_package_that_a_page_mentions_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in set(re.findall(r"`(appsdk_operator(?:\.\w+)+)`", text)):
        look_up(path)


def test_a_page_imports_public_names_alone(blocks: list[Any]) -> None:
    packages = [app, cache, client, controllers, manager, project, resource, runtime, serving]
    packages += [appsdk_operator, testing, tracing, watchers, webhooks]
    public = {package.__name__: public_names(package) for package in packages}
    for block in blocks:
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module in public:
                    assert {each.name for each in node.names} <= public[node.module], block


def test_the_names_in_the_changelog_exist() -> None:
    rooms = [appsdk_operator, app, cache, client, controllers, manager, project]
    rooms += [resource, runtime, testing, tracing, watchers, webhooks]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`([A-Za-z_]+)`", text)) - {"async", "appsdk_operator"}:
        assert any(hasattr(room, name) for room in rooms), name


def test_the_programs_that_a_page_calls_are_there(blocks: list[Any]) -> None:
    saved = {block.saved_as for block in blocks if block.saved_as}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    scripts = Path(sys.executable).parent
    for block in blocks:
        for command, _ in block.commands if block.language == "console" else ():
            words = [w for w in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S*", w)]
            program = words[0]
            if program in BUILTINS | READERS:
                continue
            assert (scripts / program).exists() or shutil.which(program), f"{block}: {command}"
            if program == "make":
                assert words[1] in targets, f"{block}: {command}"
            if program == "appsdk-operator" or block.page.parent.name == "tutorial":
                continue  # tests/cli/test_examples.py and test_tutorial.py have the files of these
            for script in (w for w in words[1:] if w.endswith(".py")):
                assert script in saved or (ROOT / script).exists(), f"{block}: {command}"


def test_the_links_of_a_page_lead_to_files_and_headings_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"\]\([^)\s]*#[^)\s]+\s[^)]*\)", text), "a link with a space is none"
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name} links to {link}; there is {sorted(slugs)}"


def test_each_page_can_be_reached_from_the_readme(page: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = ROOT / "docs/tutorial/01-begin.md"
    if page.parent == first.parent and page != first:
        assert f"]({page.name})" in first.read_text(encoding="utf-8")
    else:
        assert page == ROOT / "README.md" or f"]({page.relative_to(ROOT)})" in readme


def test_the_command_line_that_the_pages_use_is_installed() -> None:
    command = [Path(sys.executable).parent / "appsdk-operator", "apiserver", "--help"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "--kubeconfig" in text
    assert "--port" in text


def test_the_page_of_the_app_has_an_example_of_each_declaration_and_option() -> None:
    page = (ROOT / "docs/app.md").read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    table = page.partition("## What you can declare")[2].partition("\n## ")[0]
    declarations = set(re.findall(r"\bapp\.(\w+)", table.partition("The App checks")[0]))
    assert declarations >= {"on_add", "every", "convert", "task", "watch", "webhook"}
    lacking = [
        name for name in declarations if not re.search(rf"\b(app|other)\.{name}\b", examples)
    ]
    assert not lacking
    options = re.findall(r"^\| `(\w+)=` \|", table, re.MULTILINE)
    assert len(options) == 5
    assert not [name for name in options if f" {name}=" not in examples.replace("(", " ")]
    # Those of the App itself are on the page, with what they are for.
    own = inspect.signature(app.App).parameters.values()
    named = [each.name for each in own if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert not [name for name in named if not re.search(rf"\b{name}=", page)]
