"""The README and the first steps, done as a reader does them: files saved, commands typed."""

from __future__ import annotations

import contextlib
import os
import pty
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import edited

pytestmark = [pytest.mark.programs, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PATIENCE = 80.0
# What the reader did before the tests were run.
SKIPPED = ("python3 -m venv", ". ../", "pip install", "cd ", "make ")


class Terminal:
    """A command that runs, and what it has printed."""

    def __init__(self, command: str, folder: Path, **more: str) -> None:
        scripts = Path(sys.executable).parent
        environment = {name: v for name, v in os.environ.items() if name != "KUBECONFIG"}
        environment |= {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(folder),
            **more,
        }
        self.command = command
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        screen, terminal = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read, args=(screen,))
        self._reader.start()

    def _read(self, screen: int) -> None:
        with os.fdopen(screen, encoding="utf-8") as output, contextlib.suppress(OSError):
            for line in output:  # OSError: the last process has closed its end
                self._queue.put(re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", line.rstrip()))
        self._queue.put(None)

    def expect(self, wanted: str) -> None:
        """Wait for a line like this one; ports and durations may differ."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE)
            except queue.Empty:
                line = None
            if line is None:
                self._queue.put(None)
            assert line is not None, f"{self.command!r} did not print {wanted!r}: {self.lines}"
            self.lines.append(line)
            if settled(line) == settled(wanted):
                return

    def end(self) -> int:
        """Ctrl-C, if it still runs; the exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join()
            while (line := self._queue.get()) is not None:
                assert not line.startswith("Exception ignored"), line
            self._queue.put(None)

    def finish(self) -> int:
        """Wait until it ends by itself; the exit status."""
        self._process.wait(PATIENCE)
        return self.end()


def settled(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", line)
    line = re.sub(r"KUBECONFIG=\S+", "KUBECONFIG=FILE", line)
    line = re.sub(r"^(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d\.\d+Z? ", "NOW ", line)
    line = re.sub(r"\d+(\.\d+)? m?s\b", "0 s", line)
    return re.sub(r"\d+\.\d\ds", "0.00s", line).strip(" =")


@pytest.fixture
def type_in(tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """Type a command into a terminal of its own, after an export that was printed before."""
    terminals: list[Terminal] = []

    def start(command: str) -> Terminal:
        printed = "\n".join(line for terminal in terminals for line in terminal.lines)
        exports = re.findall(r"export (KUBECONFIG)=(\S+)", printed)
        terminals.append(Terminal(command, tmp_path, **dict(exports)))
        return terminals[-1]

    yield start
    for terminal in reversed(terminals):
        terminal.end()


def stays(command: str, folder: Path) -> bool:
    """Whether a command runs until Ctrl-C: the API server, and programs that run an operator."""
    scripts = [folder / word for word in command.split() if word.endswith(".py")]
    texts = [script.read_text() for script in scripts if script.exists()]
    is_server = not {"apiserver", "--dev"}.isdisjoint(command.split())
    return is_server or any("handle_signals=True" in text for text in texts)


@pytest.fixture
def follow(
    blocks_of: Callable[[Path], list[Any]], tmp_path: Path, type_in: Callable[[str], Terminal]
) -> Callable[[Path], None]:
    """Do what a page says, block by block; every command has to succeed.

    A text block is what the terminal shows in which a command was started last that still runs.
    """

    def run(page: Path) -> None:
        running: list[Terminal] = []
        for block in blocks_of(page):
            if block.language == "python" and block.saved_as:
                (tmp_path / block.saved_as).write_text(block.text, encoding="utf-8")
            elif block.edit:
                path = tmp_path / block.edit.file
                path.write_text(edited(path.read_text(), block.edit, block.text), encoding="utf-8")
            elif block.language == "text" and running:
                for line in block.text.splitlines():
                    running[-1].expect(line)
            for command, output in block.commands if block.language == "console" else ():
                if command.startswith(SKIPPED):
                    continue
                if command.startswith("kubectl") and not shutil.which("kubectl"):
                    pytest.skip("needs kubectl")
                terminal = type_in(command)
                for line in output:
                    if line != "…":  # lines that the page leaves out
                        terminal.expect(line)
                if stays(command, tmp_path):
                    running.append(terminal)
                else:
                    assert terminal.finish() == 0, f"{command!r} failed: {terminal.lines}"
        for terminal in reversed(running):
            assert terminal.end() == 0, f"{terminal.command!r} failed: {terminal.lines}"

    return run


def test_the_readme_can_be_followed_literally(follow: Callable[[Path], None]) -> None:
    follow(ROOT / "README.md")


def test_the_first_steps_can_be_followed_literally(follow: Callable[[Path], None]) -> None:
    follow(ROOT / "docs/getting-started.md")


def test_the_parts_can_be_followed_literally(follow: Callable[[Path], None]) -> None:
    follow(ROOT / "docs/without-an-app.md")


def test_the_first_pages_have_one_hello(blocks_of: Callable[[Path], list[Any]]) -> None:
    pages = ("README.md", "docs/index.md", "docs/getting-started.md")
    hellos = [next(b.text for b in blocks_of(ROOT / page) if b.saved_as) for page in pages]
    assert hellos == [hellos[0]] * len(pages)
