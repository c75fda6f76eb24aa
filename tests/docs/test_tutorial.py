"""The tutorial, done as a reader does it: its pages in order, in one folder.

What a reader does before the tests were run (an environment, the packages, the tests that ``init``
makes) is left out, and so are images, which need Docker. Commands of the kit are calls in this
process, except those that stay: these are programs in terminals of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from appsdk_operator import cli
from tests.docs.conftest import Block, edited, taken_apart
from tests.docs.test_walkthroughs import Terminal, settled

pytestmark = [pytest.mark.programs, pytest.mark.long, pytest.mark.timeout(600)]

PAGES = sorted((Path(__file__).parents[2] / "docs/tutorial").glob("*.md"))
LEFT_OUT = ("python3 -m venv", ". ../tutorial", "pip ", "cd ../tutorial", "docker ")
AS_MADE = "01-begin.md"
"""The page on which the tests are still those of ``init``, which other tests run."""
STAYS = ("appsdk-operator run", "appsdk-operator apiserver")
RECORDED = "appsdk-operator rbac record -- pytest"
"""It starts pytest with an option, which tests/cli/test_rbac.py tests."""
REFUSALS = ("Error", "The Record")
"""How the output begins of a command that is meant to fail."""


class Reader:
    """Somebody who does what the pages say."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[str],
        port: int,
    ) -> None:
        self.terminals: list[Terminal] = []
        self._monkeypatch = monkeypatch
        self._capture = capture
        self._kubeconfig = ""
        self._port = str(port)
        self._environment = {
            **{
                name: v for name, v in os.environ.items() if not name.startswith(("KUBE", "PYTEST"))
            },
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # Files change more than once in a second, which a compiled file does not see.
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.chdir(folder)

    def do(self, block: Block) -> None:
        """Do what a block says, and see what it shows."""
        if block.saved_as:
            Path(block.saved_as).parent.mkdir(parents=True, exist_ok=True)
            Path(block.saved_as).write_text(block.text, encoding="utf-8")
        elif block.edit:
            path = Path(block.edit.file)
            path.write_text(edited(path.read_text(), block.edit, block.text), encoding="utf-8")
        elif block.language == "text" and self.terminals:
            for line in block.text.splitlines():
                if changed := re.fullmatch(r"dev: (\S+) has changed: .*", line):
                    path = Path(changed[1])
                    path.write_text(path.read_text() + "\n", encoding="utf-8")
                self.terminals[-1].expect(line)
        elif block.language == "console":
            for command, shown in block.commands:
                is_as_made = command == "pytest" and block.page.name == AS_MADE
                if not command.startswith(LEFT_OUT) and not is_as_made:
                    self.type(command.replace(":8080", f":{self._port}"), shown)

    def type(self, command: str, shown: list[str]) -> None:
        """Type a command; what is shown has to be among what it prints, in this order."""
        words = shlex.split(command)
        if words[0] == "cd":
            self._monkeypatch.chdir(words[1])
        elif command.startswith("export KUBECONFIG="):
            self._kubeconfig = words[1].partition("=")[2]
            if self._kubeconfig != "kubeconfig":
                printed = "".join(
                    line for line in self.terminals[-1].lines if "KUBECONFIG=" in line
                )
                self._kubeconfig = printed.partition("KUBECONFIG=")[2]
        elif command.startswith(STAYS):
            self.terminals.append(Terminal(command, Path.cwd()))
            for line in shown:
                self.terminals[-1].expect(line)
        elif words[0] == "pytest" or command == RECORDED:
            self._capture.readouterr()
            status = run_tests(
                words[1:] if words[0] == "pytest" else ["--kube-rbac-record=rbac-record.yaml"]
            )
            compare(command, shown, self._capture.readouterr().out, status)
        elif words[0] == "appsdk-operator":
            self._monkeypatch.delitem(os.environ, "KUBECONFIG", raising=False)
            if self._kubeconfig:
                self._monkeypatch.setenv("KUBECONFIG", self._kubeconfig)
            self._capture.readouterr()
            with modules_of_its_own():
                status = cli.main(words[1:])
            captured = self._capture.readouterr()
            compare(command, shown, captured.out + captured.err, status)
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**self._environment, "KUBECONFIG": self._kubeconfig},
            )
            compare(command, shown, done.stdout, done.returncode)

    def end_of_page(self) -> None:
        """Press Ctrl-C in each terminal; only the API server stays on."""
        for terminal in [each for each in self.terminals if "apiserver" not in each.command]:
            self.terminals.remove(terminal)
            assert terminal.end() == 0, f"{terminal.command!r} failed: {terminal.lines}"


@contextlib.contextmanager
def modules_of_its_own() -> Iterator[None]:
    """Import the project's modules anew within the block, and forget them after it."""

    def taken() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.split(".")[0] in ("dns_operator", "tests")]
        return {name: sys.modules.pop(name) for name in names}

    before = taken()
    try:
        yield
    finally:
        taken()
        sys.modules.update(before)


def run_tests(arguments: list[str]) -> int:
    """Run pytest in this process, without what this process has of its own; the exit status."""
    others = ("timeout", "faulthandler", "xdist", "cov", "cacheprovider", "randomly")
    without = [word for name in others for word in ("-p", f"no:{name}")]
    with modules_of_its_own():
        return int(pytest.main(["-q", "--basetemp=../of-tests", *without, *arguments]))


def compare(command: str, shown: list[str], printed: str, status: int) -> None:
    """Check the status of a command, and that it printed what is shown, in this order."""
    is_refused = bool(shown) and shown[0].startswith(REFUSALS)
    assert (status != 0) == is_refused, f"{command!r} ended with {status}: {printed}"
    lines = iter(printed.splitlines())
    for line in shown:
        wanted = " ".join(settled(line).split())
        assert any(" ".join(settled(each).split()).startswith(wanted) for each in lines), (
            f"{command!r} did not print {line!r}, or not in this place: {printed}"
        )


@pytest.fixture
def reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_port: int,
) -> Any:
    if not shutil.which("kubectl"):
        pytest.skip("needs kubectl")
    made = Reader(tmp_path, monkeypatch, capsys, free_port)
    with contextlib.ExitStack() as ends:
        yield made
        for terminal in made.terminals:
            ends.callback(terminal.end)


def test_the_tutorial_can_be_followed_literally(reader: Reader) -> None:
    for page in PAGES:
        for block in taken_apart(page):
            try:
                reader.do(block)
            except BaseException as error:
                error.add_note(f"at {block}")
                raise
        reader.end_of_page()


def test_each_page_of_the_tutorial_leads_to_the_next() -> None:
    for page, following in itertools.pairwise(PAGES):
        assert f"]({following.name})" in page.read_text(encoding="utf-8"), page
        assert f"]({following.name})" in PAGES[0].read_text(encoding="utf-8"), page
