"""The command line: ``appsdk-operator``, or ``python -m appsdk_operator``.

``appsdk-operator --help`` lists the commands, ``appsdk-operator COMMAND --help`` explains one, with
examples. Each command is a module of ``_commands``, imported when it is called.

Exit status: 0 when the command did what it was asked to, 1 when it failed or found something, 2
for arguments that it does not understand, 130 after Ctrl-C. A command that has more says so in its
help.

It needs the extra ``cli``: ``pip install 'appsdk-operator[cli]'``; for ``apiserver``, ``version``
and ``completion`` the extra ``testing`` is enough, for ``run`` without ``--dev`` the extra ``run``.
Nothing else of the kit imports its packages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments after the program's name; default: those of the process.

    Returns:
        The status to exit with.

    Raises:
        SystemExit: with status 0 after ``--help``, with 2 for wrong arguments.
    """
    try:
        from appsdk_operator.cli import _frame
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print(
            "the command line needs click: install the extra 'cli', for example with pip install "
            "'appsdk-operator[cli]', or '.[cli]' in a checkout (run --dev needs the extra "
            "'testing', too; in a container the extra 'run' is enough)",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:  # in the first moments, which are imports
        return 130
    return _frame.run(sys.argv[1:] if argv is None else argv)
