"""Draw a terminal session into ``docs/session.svg``, from a real one: run, create, edit, delete.

Needs kubectl and the packages of development:

    python hack/record_session.py
"""

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
import tempfile
import threading
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/session.svg"
RUN = "appsdk-operator run --dev hello.py"
WIDTH = 92


class Operator:
    """A running operator and what it prints."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.console = console
        command = [str(Path(sys.executable).parent / "appsdk-operator"), *RUN.split()[1:]]
        screen, terminal = pty.openpty()  # so that it prints what a person sees
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        os.close(terminal)
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, args=(screen,))
        self.reader.start()

    def _read(self, screen: int) -> None:
        with os.fdopen(screen, encoding="utf-8") as output, contextlib.suppress(OSError):
            for line in output:  # OSError: the last process has closed its end
                self.lines.put(line.rstrip())

    def shows(self, pattern: str) -> re.Match[str]:
        """Show its lines up to the one with ``pattern``; queue.Empty after 30 seconds.

        Other lines of the log are left out.
        """
        while True:
            line = self.lines.get(timeout=30)
            text = Text.from_ansi(line)
            found = re.search(pattern, text.plain)
            if found or " INFO " not in text.plain:
                style = "white" if found else "bright_black"
                self.console.print(Text.assemble("▏ ", text, style=style))
            if found:
                return found

    def end(self) -> None:
        """Stop it, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        self.reader.join()


def greeting(name: str, whom: str) -> str:
    """A greeting's YAML."""
    return (
        "apiVersion: example.com/v1\nkind: Greeting\n"
        f"metadata: {{name: {name}}}\nspec: {{name: {whom}}}\n"
    )


def record(folder: Path, console: Console) -> None:
    """The session."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    program = folder / "hello.py"
    program.write_text(found[1], encoding="utf-8")
    for name, whom in (("first", "you"), ("second", "Ada")):
        (folder / f"{name}.yaml").write_text(greeting(name, whom), encoding="utf-8")

    def command(line: str) -> None:
        console.print(Text.assemble(("$ ", "green"), (line, "bold")))
        done = subprocess.run(
            line,
            shell=True,
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        if done.stdout:
            console.print(Text(done.stdout.rstrip()))

    console.print(Text.assemble(("$ ", "green"), (RUN, "bold")))
    operator = Operator(folder, console)
    try:
        kubeconfig = operator.shows(r"export KUBECONFIG=(\S+)")[1]
        environment = os.environ | {"KUBECONFIG": kubeconfig}
        operator.shows("has started")
        command("kubectl create -f first.yaml")
        operator.shows("Hello, you!")
        command("sed -i s/Hello/Welcome/ hello.py")
        operator.shows("starting again")
        operator.shows("has started")
        command("kubectl create -f second.yaml")
        operator.shows("Welcome, Ada!")
        command("kubectl delete greeting first")
        operator.shows("Goodbye, you!")
    finally:
        operator.end()


def main() -> int:
    """Write the picture."""
    if shutil.which("kubectl") is None:
        print("needs kubectl", file=sys.stderr)
        return 1
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), console)
    drawn = console.export_svg(title="Operator and kubectl", unique_id="session")
    # Without fonts from elsewhere.
    drawn = re.sub(r"@font-face\s*{[^}]*}", "", drawn)
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
    PICTURE.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
