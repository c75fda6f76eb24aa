"""Child processes that end with this process, and reserved ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from appsdk_operator.runtime import system_clock

_HOST: Final = "127.0.0.1"
_DEFAULT_ASSETS: Final = "/usr/local/kubebuilder/bin"  # where envtest looks when nothing is set

# Reads its standard input, a pipe from this process. When the pipe closes without a byte, this
# process has ended, however it ended. The guard leads the servers' process group, so it forks a
# child outside of the group to kill them all and then remove the folder.
_GUARD: Final = """
import os, shutil, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if not sys.stdin.buffer.read(1) and os.fork() == 0:
    group = os.getpgrp()
    os.setsid()
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


@final
class ProcessGuard:
    """A process group that is killed, and a folder that is removed, when this process ends.

    Not by ``PR_SET_PDEATHSIG``: that exists on Linux only, and kills the processes already when the
    thread that started them ends.
    """

    def __init__(self, folder: Path) -> None:
        # In the same session, so that the terminal's hang-up reaches it, but in another process
        # group, so that Ctrl-C does not end the servers while tests still clean up.
        self._process = subprocess.Popen(  # noqa: S603 - our own text
            [sys.executable, "-I", "-S", "-c", _GUARD, str(folder)],
            stdin=subprocess.PIPE,
            process_group=0,
            cwd="/",
        )
        self._folder = folder

    def spawn(self, command: Sequence[str], log: Path | None) -> subprocess.Popen[bytes]:
        """Start a program in the group.

        Its output is appended to ``log``, or goes to this process's standard error.
        """
        # etcd reads every option from the environment as well; those of a developer must not apply.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("ETCD_") or key == "ETCD_UNSUPPORTED_ARCH"
        }
        with log.open("ab") if log is not None else contextlib.nullcontext(2) as output:
            return subprocess.Popen(  # noqa: S603 - the program that the user named
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
                process_group=self._process.pid,
            )

    def end(self) -> None:
        """Kill the processes that are left in the group; the folder stays."""
        # Until wait(), the id of the guard, and so of the group, cannot be reused.
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


@final
class ReservedPorts:
    """Free ports on loopback, reserved for our servers, also while those are down.

    A bound socket that does not listen keeps the system from handing out its port, while a server
    that asks for the port with ``SO_REUSEADDR``, as Go's do, gets it. On systems other than Linux
    the sockets are closed, and a start that finds a port taken is repeated with other ports.
    """

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                holder = socket.socket()
                self._sockets.append(holder)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind((_HOST, 0))
        except BaseException:
            self.close()
            raise
        self.numbers = [int(holder.getsockname()[1]) for holder in self._sockets]
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """Release the ports."""
        for holder in self._sockets:
            holder.close()
        self._sockets.clear()


def program_path(name: str, assets: str | None) -> str:
    """The path of a program of the control plane, by the rules of envtest.

    Raises:
        FileNotFoundError: there is none; the text names the variable to set.
    """
    own_variable = f"TEST_ASSET_{name.upper().replace('-', '_')}"
    if assets is not None:
        path, source = Path(assets) / name, f"assets={assets!r}"
    elif os.environ.get(own_variable):
        path, source = Path(os.environ[own_variable]), own_variable
    elif os.environ.get("KUBEBUILDER_ASSETS"):
        path, source = Path(os.environ["KUBEBUILDER_ASSETS"]) / name, "KUBEBUILDER_ASSETS"
    else:
        path, source = Path(_DEFAULT_ASSETS) / name, "the default folder"
    if path.is_file() and os.access(path, os.X_OK):
        return str(path.absolute())
    raise FileNotFoundError(
        f"{name} is not a program at {path} ({source}): set KUBEBUILDER_ASSETS to the folder that "
        "holds etcd and kube-apiserver, for example the one that 'setup-envtest use -p path' "
        f"prints, or {own_variable} to the program itself"
    )


def end_processes(grace: float, *servers: subprocess.Popen[bytes] | None) -> None:
    """Terminate processes, and kill those that still run after ``grace`` seconds."""
    processes = [process for process in servers if process is not None]
    if grace > 0:
        for process in processes:
            process.terminate()
        deadline = system_clock.monotonic() + grace
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(max(0.0, deadline - system_clock.monotonic()))
    for process in processes:
        process.kill()
        process.wait()
