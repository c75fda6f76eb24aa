"""The API server as a command: serve until interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from appsdk_operator.runtime import StopSignal
from appsdk_operator.testing._server._api_server import APIServer
from appsdk_operator.testing._server._status import StatusError

__all__ = ["main"]


def main(
    argv: Sequence[str] | None = None, *, until: Callable[[APIServer], None] | None = None
) -> int:
    """Serve a Kubernetes API until SIGINT or SIGTERM.

    Args:
        argv: the arguments after the command's name; default: those of the process.
        until: called with the running server; the command ends when it returns. Default: wait
            for a signal, which needs the main thread.

    Returns:
        The status to exit with: 0, or 1 when the server could not be started.
    """
    options = _parser().parse_args(argv)
    try:
        crds = [crd for path in options.crd for crd in _definitions(Path(path))]
        server = APIServer(
            port=options.port,
            host=options.host,
            tls=options.tls,
            token=options.token,
            rbac=options.rbac,
            crds=crds,
        )
        server.start()
    except (OSError, ValueError, yaml.YAMLError, StatusError) as error:
        _tell(sys.stderr, f"error: the API server was not started: {error}")
        return 1
    try:
        if options.kubeconfig:
            server.write_kubeconfig(options.kubeconfig)
        _tell(sys.stdout, f"serving on {server.url}; stop with Ctrl-C")
        (until or _wait_for_signal)(server)
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
    parser.add_argument("--token", help="bearer token to ask for; kubectl sends it with --tls only")
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


def _definitions(path: Path) -> Iterator[Any]:
    """The definitions in a YAML file; other documents in it are not our business."""
    with path.open(encoding="utf-8") as file:
        for document in yaml.safe_load_all(file):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


def _wait_for_signal(_server: APIServer) -> None:
    stop = StopSignal()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        stop.wait()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _tell(stream: Any, text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()
