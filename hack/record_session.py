"""Draw a terminal session into ``docs/session.svg``, from a real one: run, create, edit, delete.

Needs kubectl and the packages of development:

    python hack/record_session.py
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

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
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self.process.stdout is not None
        self.reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self.reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.put(line.rstrip())

    def shows(self, pattern: str) -> re.Match[str]:
        """Show its lines up to the one with ``pattern``; queue.Empty after 30 seconds.

        Other lines of the log are left out.
        """
        while True:
            line = self.lines.get(timeout=30)
            found = re.search(pattern, line)
            if found or " INFO " not in line:
                self.console.print(Text("▏ " + line, style="white" if found else "bright_black"))
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
