"""The API server as a command: serve until interrupted."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from appsdk_operator.apiserver._server import APIServer
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.runtime import StopSignal

__all__ = ["main", "serve"]

_TOKEN: Final = "APPSDK_OPERATOR_APISERVER_TOKEN"  # noqa: S105 - the name of a variable
_LONGEST_TOKEN: Final = 64 * 1024
_SLICE: Final = 0.5
"""The longest single wait, in seconds. A signal right before a wait does not interrupt it, so its
handler runs only after the wait."""


def main(
    argv: Sequence[str] | None = None, *, until: Callable[[APIServer], None] | None = None
) -> int:
    """Serve a Kubernetes API until SIGINT or SIGTERM.

    Args:
        argv: the arguments after the command's name; default: those of the process.
        until: see :func:`serve`.

    Returns:
        The status to exit with: 0, or 1 when the server could not be started.
    """
    return serve(**vars(_parser().parse_args(argv)), until=until)


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: bool = False,
    token: str | None = None,
    token_file: str | None = None,
    rbac: bool = False,
    kubeconfig: str | None = None,
    crd: Sequence[str | Path] = (),
    until: Callable[[APIServer], None] | None = None,
) -> int:
    """Serve a Kubernetes API until SIGINT or SIGTERM.

    Args:
        host: the address to listen on.
        port: the TCP port; 0 means any free one.
        tls: serve HTTPS with an own authority.
        token: the bearer token to ask for; a warning says that others can see it.
        token_file: a file with that token; default: the token in the environment's
            APPSDK_OPERATOR_APISERVER_TOKEN, and without that none.
        rbac: let roles and bindings decide who may do what.
        kubeconfig: write a kubeconfig to this file.
        crd: YAML files with CustomResourceDefinitions.
        until: called with the running server; the command ends when it returns. Default: wait
            for a signal, which needs the main thread.

    Returns:
        The status to exit with: 0, or 1 when the server could not be started.
    """
    try:
        crds = [found for path in crd for found in _definitions(Path(path))]
        server = APIServer(
            port=port,
            host=host,
            tls=tls,
            token=_token(token, token_file),
            rbac=rbac,
            crds=crds,
        )
        server.start()
    except (OSError, ValueError, yaml.YAMLError, StatusError) as error:
        _print(sys.stderr, f"error: the API server was not started: {error}")
        return 1
    try:
        if kubeconfig:
            server.write_kubeconfig(kubeconfig)
        with contextlib.nullcontext() if until else _stop_signal() as stop:
            _print(sys.stdout, f"serving on {server.url}; stop with Ctrl-C")
            if until:
                until(server)
            elif stop:
                while not stop.wait(_SLICE):
                    pass
    finally:
        server.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m appsdk_operator.testing",
        description="Serve a Kubernetes API from memory, for tests and for trying things out.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (loopback)")
    parser.add_argument("--port", type=int, default=0, help="TCP port (any free one)")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS with an own authority")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file with the bearer token to ask for; default: the environment's {_TOKEN}; kubectl "
        "sends it with --tls only",
    )
    parser.add_argument("--token", help=argparse.SUPPRESS)
    parser.add_argument(
        "--rbac", action="store_true", help="let roles and bindings decide who may do what"
    )
    parser.add_argument("--kubeconfig", metavar="PATH", help="write a kubeconfig to this file")
    parser.add_argument(
        "--crd",
        metavar="FILE",
        action="append",
        default=[],
        help="YAML file with CustomResourceDefinitions to serve; may be given often",
    )
    return parser


def _token(token: str | None, token_file: str | None) -> str | None:
    """The bearer token that clients must send; None: none.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no token, or there are two.
    """
    if token is not None:
        if token_file is not None:
            raise ValueError("--token and --token-file: give only the file")
        _print(
            sys.stderr,
            "warning: everybody who lists processes can read --token, and a later version will "
            f"remove it: use --token-file, or the environment's {_TOKEN}",
        )
        return token
    if token_file is None:
        return os.environ.get(_TOKEN) or None
    # A limit, since a file such as /dev/zero has no end.
    with Path(token_file).open(encoding="utf-8") as file:
        text = file.read(_LONGEST_TOKEN + 1).strip()
    if not text or len(text) > _LONGEST_TOKEN:
        raise ValueError(
            f"--token-file={token_file}: the file must have only a token, of at most "
            f"{_LONGEST_TOKEN} characters"
        )
    return text


def _definitions(path: Path) -> Iterator[Any]:
    """The CustomResourceDefinitions in a YAML file; other documents are ignored."""
    with path.open(encoding="utf-8") as file:
        for document in yaml.safe_load_all(file):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


@contextlib.contextmanager
def _stop_signal() -> Iterator[StopSignal]:
    """A stop signal that SIGINT and SIGTERM set while the block lasts."""
    stop = StopSignal()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _print(stream: Any, text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()
