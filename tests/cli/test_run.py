"""``appsdk-operator run``: a program in a pod, and in development."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appsdk_operator import Client, ClientConfig, Kind, MutableObject, kinds
from appsdk_operator.app import RunOptions
from appsdk_operator.cli import _dev
from appsdk_operator.testing import APIServer

pytestmark = [pytest.mark.programs, pytest.mark.timeout(400)]

BUCKET = Kind(group="example.com", version="v1", kind="Bucket")
OPERATOR = """\
from appsdk_operator import App, Kind
from appsdk_operator.webhooks import Denied

app = App("bucket-operator", leader_election=True)
BUCKET = Kind(group="example.com", version="v1", kind="Bucket")

@app.on_add(BUCKET)
def made(bucket):
    print(f"made {bucket.name}", flush=True)

@app.on_sync(BUCKET)
def kept(bucket):
    print(f"kept {bucket.name}", flush=True)

@app.validate(BUCKET)
def check(bucket):
    if bucket.name == "bad":
        raise Denied("no such name")
"""
EMPTY = 'from appsdk_operator import App\napp = App("bucket-operator")\n'


class Program:
    """A program whose lines are read one by one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for(self, *texts: str) -> str:
        """Read until each text was in a line; returns the last of them."""
        assert self.process.stdout is not None
        missing = set(texts)
        for line in self.process.stdout:
            sys.stdout.write(line)  # for the report of a test that waits in vain
            self.lines.append(line)
            missing -= {text for text in missing if text in line}
            if not missing:
                return line
        raise AssertionError(f"it ended without {missing}: {''.join(self.lines)}")

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        self.lines.append(out)
        return self.process.returncode


@pytest.mark.parametrize(("no_color", "expected"), [("", True), ("1", False)])
def test_the_lines_of_dev_have_a_color_on_a_terminal_unless_nobody_wants_it(
    no_color: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    _dev._say("starting again")
    assert "dev: starting again" in terminal.getvalue()
    assert ("\x1b[" in terminal.getvalue()) is expected


@contextmanager
def started(
    folder: Path, *arguments: str, in_terminal: bool = False, **environ: str
) -> Iterator[Program]:
    """Run the command; in a terminal of its own signals are for it and for its children."""
    kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    with subprocess.Popen(
        [sys.executable, "-m", "appsdk_operator", "run", *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0 if in_terminal else None,
    ) as process:
        program = Program(process)
        try:
            yield program
        finally:
            process.kill()


def test_the_kubeconfig_is_printed_once_and_not_before_the_kinds_are_served(
    tmp_path: Path,
) -> None:
    file = tmp_path / "buckets.py"
    file.write_text("this is no Python")
    with started(tmp_path, "buckets:app", "--dev") as program:
        program.wait_for("ended with status 2")
        assert "KUBECONFIG=" not in "".join(program.lines)
        file.write_text(OPERATOR)
        line = program.wait_for("KUBECONFIG=")
        config = ClientConfig.from_kubeconfig(line.partition("KUBECONFIG=")[2].strip())
        with Client(config) as client:
            client.create(MutableObject.new(BUCKET, "a", namespace="default", spec={}))
        program.wait_for("bucket-operator has started")
        file.write_text(OPERATOR.replace('"kept ', '"still there: '))
        program.wait_for("still there: a", "bucket-operator has started")
        assert program.end() == 0
    assert "".join(program.lines).count("KUBECONFIG=") == 1


def test_in_development_a_saved_file_restarts_the_operator_and_the_objects_stay(
    tmp_path: Path,
) -> None:
    file = tmp_path / "buckets.py"
    file.write_text(OPERATOR)
    with started(tmp_path, "buckets:app", "--dev") as program:
        page = program.wait_for("the live page is on").split()[-1]
        line = program.wait_for("KUBECONFIG=")
        config = ClientConfig.from_kubeconfig(line.partition("KUBECONFIG=")[2].strip())
        program.wait_for("bucket-operator has started")
        with Client(config) as client:
            client.create(MutableObject.new(BUCKET, "a", namespace="default", spec={}))
            program.wait_for("made a")
            (tmp_path / "test_buckets.py").write_text("import buckets")
            file.write_text("this is no Python")
            program.wait_for("dev: buckets.py has changed: starting again")
            program.wait_for("buckets cannot be imported")
            program.wait_for("ended with status 2")
            file.write_text(OPERATOR.replace('"kept ', '"still there: '))
            program.wait_for("still there: a", "bucket-operator has started")
            with urllib.request.urlopen(page) as answer:  # the port is the same after restarts
                assert "bucket-operator" in answer.read().decode()
            with pytest.raises(Exception, match="no such name"):
                client.create(MutableObject.new(BUCKET, "bad", namespace="default", spec={}))
        assert program.end() == 0
    assert "bucket-operator has stopped" in program.lines[-1]
    assert "test_buckets" not in "".join(program.lines)


def test_a_killed_parent_takes_the_operator_along(tmp_path: Path) -> None:
    (tmp_path / "buckets.py").write_text(EMPTY)
    with started(tmp_path, "buckets.py", "--dev") as program:
        program.wait_for("bucket-operator has started")
        # The child has the pipe of the output, too: its end shows that both have ended.
        assert program.end(signal.SIGKILL) == -signal.SIGKILL


def test_in_development_a_program_that_still_loads_is_replaced_and_ended_at_once(
    tmp_path: Path,
) -> None:
    file = tmp_path / "buckets.py"
    file.write_text("print('it loads', flush=True)\nimport time\ntime.sleep(600)\n")
    with started(tmp_path, "buckets.py", "--dev") as program:
        program.wait_for("it loads")
        file.write_text(EMPTY + "print('loaded anew', flush=True)\nimport time\ntime.sleep(600)\n")
        program.wait_for("loaded anew")
        assert program.end() == 0
    assert not any("killing it" in line for line in program.lines)


def test_ctrl_c_in_a_terminal_ends_an_operator_that_still_loads_without_a_traceback(
    tmp_path: Path,
) -> None:
    text = "print('it loads', flush=True)\nimport time\ntime.sleep(600)\n"
    (tmp_path / "buckets.py").write_text(text)
    with started(tmp_path, "buckets.py", "--dev", in_terminal=True) as program:
        program.wait_for("it loads")
        os.killpg(program.process.pid, signal.SIGINT)
        out, _ = program.process.communicate(timeout=60)
    assert program.process.returncode == 0, out
    assert "Traceback" not in out


def test_ctrl_c_while_the_operator_is_started_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent gets the signal at any moment, and the child not before it can ignore it."""
    is_blocked = (
        "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    stopped = threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().__init__([sys.executable, "-c", is_blocked], stdout=subprocess.PIPE)
            children.append(self)

    child = _dev._Child("buckets.py", "embedded", {}, None)
    with _dev._signals(stopped.set):
        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", Popen)
            child.start()
        # In slices: the signal of another thread does not interrupt the wait of this one, and
        # without an interruption no handler runs.
        assert any(stopped.wait(0.05) for _ in range(600))
    (process,) = children
    out, _ = process.communicate(timeout=60)
    child.stop()
    assert out == b"True\n"


def test_a_file_that_is_saved_as_soon_as_the_operator_starts_starts_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = threading.Event()
    done: list[str] = []

    class Child:
        def start(self) -> None:
            if "start" in done:
                stopped.set()
            done.append("start")
            (tmp_path / "buckets.py").write_text(EMPTY)

        def stop(self) -> None:
            done.append("stop")

    patience = threading.Timer(30.0, stopped.set)
    patience.start()
    _dev._watch(Child(), "buckets.py", stopped)  # type: ignore[arg-type]
    patience.cancel()
    patience.join()
    assert done == ["start", "stop", "start"]


def test_in_development_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "buckets.py").write_text("app = 1\ndef broken(:\n    pass\n")
    with started(tmp_path, "buckets.py", "--dev") as program:
        program.wait_for("ended with status 2")
        assert program.end() == 0
    text = "".join(program.lines)
    assert f"cannot be imported: {tmp_path / 'buckets.py'}:2: SyntaxError: invalid syntax\n" in text
    assert "    def broken(:\n               ^\n" in text


def test_development_without_the_packages_of_a_server_says_which_extra_has_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "buckets.py").write_text(EMPTY)
    code = (
        "import sys; sys.modules['cryptography'] = None;"
        "from appsdk_operator import cli; sys.exit(cli.main(['run', 'buckets.py', '--dev']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "--dev needs cryptography for its API server: install the extra 'testing'" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_runs_on_the_cluster_of_a_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "buckets.py").write_text(EMPTY)
    with APIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        with started(tmp_path, "buckets:app", "--kubeconfig", "kubeconfig", "-A") as program:
            program.wait_for("bucket-operator has started")
            assert program.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing:app"], "there is no module nothing"),
        (["buckets:app", "-n", "a", "-A"], "-n and -A"),
        (["buckets:app", "--log-level", "loud"], "loud"),
        (["buckets:app", "--kubeconfig", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_be_used_is_status_2(tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "buckets.py").write_text(OPERATOR)
    with started(tmp_path, *arguments) as program:
        out, _ = program.process.communicate(timeout=60)
    assert program.process.returncode == 2, out
    assert text in out
    assert "Traceback" not in out


def test_in_development_a_cluster_that_is_not_for_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "buckets.py").write_text(OPERATOR)
    with APIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        kubeconfig = str(tmp_path / "kubeconfig")
        with started(tmp_path, "buckets:app", "--dev", "--kubeconfig", kubeconfig) as program:
            program.wait_for("does not look like a cluster for development")
            program.wait_for("ended with status 2")
            assert program.end() == 0
        with Client(server.client_config()) as client:
            assert not list(client.list(kinds.apiextensions.v1.CustomResourceDefinition))


def test_dev_holds_the_port_of_its_debug_page_unless_told_where_to_serve_it() -> None:
    with _dev.debug_listener(RunOptions()) as one, _dev.debug_listener(RunOptions()) as other:
        assert one is not None
        assert other is not None
        assert one.getsockname() != other.getsockname()
        assert {one.getsockname()[0], other.getsockname()[0]} == {"127.0.0.1"}
    for given in ("0", "127.0.0.1:7070"):
        with _dev.debug_listener(RunOptions(debug_address=given)) as none:
            assert none is None
