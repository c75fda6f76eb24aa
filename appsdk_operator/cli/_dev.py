"""An operator while it is written: a server whose state stays, and a process that is replaced.

The parent process has the Kubernetes API and watches the files; the operator is a child process
that it stops and starts again. Between them is a pipe: when the parent closes it, or ends in
whatever way, the child stops.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from appsdk_operator.app import (
    ENVIRONMENT,
    App,
    ExitStatus,
    RunOptions,
    run_program,
)
from appsdk_operator.client import Client, ClientConfig, contexts_of
from appsdk_operator.runtime import StopSignal, ThreadGroup
from appsdk_operator.serving import is_off

_EMBEDDED: Final = "embedded"
_CLUSTER: Final = "cluster"
_GRACE: Final = 10.0
"""Seconds that the operator has to end before it is replaced."""
_OWN_GRACE: Final = 5.0
"""Seconds of these in which its callbacks have to end."""
_DEBUG_PORT: Final = 6060


def develop(target: str, options: RunOptions) -> int:
    """Run ``target``, again after each change of a Python file, until SIGINT or SIGTERM.

    Returns:
        The status to exit with.

    Raises:
        click.ClickException: a package is missing.
    """
    stopped = threading.Event()
    with (
        _signals(stopped.set),
        debug_listener(options) as listener,
        _server(options) as (where, environment),
    ):
        address = options.debug_address or ""
        environment = {**environment, **_environment(options)}
        if listener is not None:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            environment[ENVIRONMENT["debug_address"]] = f"fd:{listener.fileno()}"
        child = _Child(target, where, environment, listener)
        if not is_off(address):
            _say(f"the live page is on http://{address}/debug/")
        try:
            _watch(child, target, stopped)
        finally:
            child.stop()
    return ExitStatus.STOPPED


@contextlib.contextmanager
def debug_listener(options: RunOptions) -> Iterator[socket.socket | None]:
    """The socket of the debug server, where the options do not say its address.

    It is held over restarts: nobody else gets its port, and a page that is loaded meanwhile waits.
    """
    listener = None
    if options.debug_address is None:
        for port in (_DEBUG_PORT, 0):
            with contextlib.suppress(OSError):
                listener = socket.create_server(("127.0.0.1", port))
                break
    try:
        yield listener
    finally:
        if listener is not None:
            listener.close()


@contextlib.contextmanager
def _server(options: RunOptions) -> Iterator[tuple[str, dict[str, str]]]:
    """The Kubernetes API, and the environment by which the child finds it."""
    if options.kubeconfig or options.context:
        yield _CLUSTER, {}
        return
    try:
        from appsdk_operator.testing import APIServer
    except ImportError as error:
        raise click.ClickException(
            f"--dev needs {error.name} for its API server: install the extra 'testing', for "
            "example with pip install 'appsdk-operator[cli,testing]'; or give a local cluster with "
            "--context"
        ) from error
    with tempfile.TemporaryDirectory() as folder, APIServer() as server:
        kubeconfig = Path(folder) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield _EMBEDDED, {ENVIRONMENT["kubeconfig"]: str(kubeconfig)}


def _environment(options: RunOptions) -> dict[str, str]:
    """The options as environment variables."""
    found = {}
    for field, name in ENVIRONMENT.items():
        value: Any = getattr(options, field)
        if field == "namespaces" and value is not None:
            value = ",".join(value) or "*"
        if value is not None and value != "":
            found[name] = str(value)
    return found


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` for SIGINT and SIGTERM."""
    before = {
        number: signal.signal(number, lambda *_: stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(child: _Child, target: str, stopped: threading.Event) -> None:
    from watchfiles import PythonFilter, watch

    class ProgramFilter(PythonFilter):
        """Python files that an operator may import: not those of its tests."""

        ignore_entity_patterns = (
            *PythonFilter.ignore_entity_patterns,
            *(r"^test_.*\.py$", r"_test\.py$", r"^conftest\.py$"),
        )

    folders = {Path.cwd()}
    place = target.partition(":")[0]
    if place.endswith(".py"):
        folders.add(Path(place).absolute().parent)
    # Without a time-out, at which watchfiles may drop a change that comes in the same moment.
    for changes in watch(
        *sorted(folders),
        watch_filter=ProgramFilter(),
        stop_event=_Watched(stopped, child.start),
        rust_timeout=0,
        debounce=400,
    ):
        if stopped.is_set():
            return
        names = sorted({os.path.relpath(path) for _, path in changes})
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        _say(f"{names[0]}{more} has changed: starting again")
        child.stop()
        child.start()


class _Watched:
    """What watchfiles asks, again and again, whether it is to end its watch.

    It asks from when it has the watch. Only then the operator starts: of a file that was saved
    between its start and that of the watch, neither of the two would know.
    """

    def __init__(self, stopped: threading.Event, start: Callable[[], None]) -> None:
        self._stopped = stopped
        self._start: Callable[[], None] | None = start

    def is_set(self) -> bool:
        """Whether to end."""
        start, self._start = self._start, None
        if start is not None and not self._stopped.is_set():
            start()
        return self._stopped.is_set()


class _Child:
    """The process of the operator.

    For one thread, which starts and stops it; another one follows each process to its end.
    """

    def __init__(
        self,
        target: str,
        where: str,
        environment: dict[str, str],
        listener: socket.socket | None,
    ) -> None:
        self._target = target
        self._inherited = [] if listener is None else [listener.fileno()]
        self._where = where
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._stopping = False
        self._threads = ThreadGroup("dev")

    def start(self) -> None:
        """Start it."""
        ours, theirs = os.pipe()
        # Ctrl-C in a terminal reaches the child as well, which is not to end by it before it can
        # ignore it. That the signal is blocked is inherited, and this process still gets it: at the
        # end of the block, or in another thread.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        # The child reads its end; the other one is never written to, but closed.
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [
                    sys.executable,
                    "-m",
                    "appsdk_operator",
                    "run",
                    self._target,
                    "--in-dev",
                    f"{ours}:{self._where}",
                ],
                env=self._environment,
                pass_fds=[ours, *self._inherited],
            )
        except BaseException:
            os.close(theirs)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(ours)
        self._pipe = theirs
        self._stopping = False
        self._threads.start("operator", partial(self._follow, self._process))

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """Say so if it ends by itself."""
        status = process.wait()
        if not self._stopping:
            _say(
                f"the operator has ended with status {status}. Correct the cause and save a Python "
                "file: then the operator starts again"
            )

    def stop(self) -> None:
        """Stop it, by force if it takes too long."""
        if self._process is None:
            return
        process = self._process
        self._stopping = True
        os.close(self._pipe)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            _say(f"the operator still runs {_GRACE:g} s after its stop: killing it")
            process.kill()
            process.wait()
        self._threads.join()
        self._process = None


def _say(text: str) -> None:
    # click knows terminals, and not this variable.
    color = False if os.environ.get("NO_COLOR") else None
    click.secho(f"dev: {text}", err=True, fg="cyan", color=color)


def run_in_dev(load: Callable[[], App], options: RunOptions, link: str) -> int:
    """Run an App as the child process.

    Args:
        load: imports it. A stop ends the process at once as long as that takes.
        options: the options of the parent.
        link: the file descriptor of the pipe to the parent, and where the cluster is.

    Returns:
        The status to exit with.
    """
    # While it loads, Ctrl-C is the parent's, which ends this process by the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    descriptor, _, where = link.partition(":")
    stop = StopSignal()
    is_loaded = threading.Event()

    def end() -> None:
        if not is_loaded.is_set():
            os._exit(ExitStatus.STOPPED)
        stop.set()

    with _at_end_of(int(descriptor), end):
        app = load()
        is_loaded.set()
        return run_program(
            app,
            options,
            prepare=lambda config, changes: _prepare(app, options, where, config, changes),
            stop=stop,
        )


def _prepare(app: App, options: RunOptions, where: str, config: ClientConfig, changes: Any) -> None:
    """Install what the App needs in a cluster for development."""
    from appsdk_operator.testing import install_crds
    from appsdk_operator.webhooks import LOCAL_CONTEXTS, DevelopmentServer, allowed_context

    is_embedded = where == _EMBEDDED
    if not is_embedded:
        known = contexts_of(config.server, options.kubeconfig or None)
        allowed_context(known, LOCAL_CONTEXTS, config.server)
    with Client(config) as client:
        install_crds(client, app.crds())
    if is_embedded:
        _announce(config.server, Path(os.environ[ENVIRONMENT["kubeconfig"]]))
    changes.setdefault("graceful_shutdown_timeout", _OWN_GRACE)
    # One process; and after a restart it would wait for the Lease of the one before.
    if not options.leader_election:
        changes["leader_election"] = None
    changes.pop("webhook_server", None)
    if app.webhooks.paths:
        changes["webhook_server"] = DevelopmentServer(
            config,
            app.name,
            host="127.0.0.1" if is_embedded else "",
            unsafe_any_cluster=is_embedded,
            take_over=True,
        )


def _announce(server: str, kubeconfig: Path) -> None:
    """Say where the API is, once it serves the App's kinds; restarts do not repeat it."""
    with contextlib.suppress(FileExistsError):
        kubeconfig.with_name("announced").touch(exist_ok=False)
        _say(f"a Kubernetes API is on {server}")
        _say(f"for kubectl: export KUBECONFIG={kubeconfig}")


@contextlib.contextmanager
def _at_end_of(descriptor: int, end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` when the other end of the pipe is closed."""
    ours, theirs = os.pipe()
    threads = ThreadGroup("dev")

    def follow() -> None:
        with selectors.DefaultSelector() as selector:
            for each in (descriptor, ours):
                selector.register(each, selectors.EVENT_READ)
            ready = [key.fd for key, _ in selector.select()]
        if descriptor in ready:
            end()

    threads.start("parent", follow)
    try:
        yield
    finally:
        os.close(theirs)
        threads.join()
        os.close(ours)
        os.close(descriptor)
