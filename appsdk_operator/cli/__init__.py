"""The command line: ``appsdk-operator``.

``appsdk-operator apiserver`` serves a Kubernetes API from memory, for experiments with kubectl;
``appsdk-operator version`` prints the version.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from appsdk_operator._version import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="appsdk-operator", description="Tools for writing Kubernetes operators."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "apiserver",
        help="serve a Kubernetes API from memory (its own options: apiserver --help)",
        add_help=False,
    )
    commands.add_parser("version", help="print the version")
    options, rest = parser.parse_known_args(argv)
    if options.command == "version":
        if rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        print(__version__)
        return 0
    try:
        from appsdk_operator.apiserver.command import main as serve
    except ModuleNotFoundError as error:
        print(
            f"the API server needs {error.name}: install the extra 'testing', for example with "
            "pip install 'appsdk-operator[testing]', or '.[testing]' in a checkout",
            file=sys.stderr,
        )
        return 1
    return serve(rest)
