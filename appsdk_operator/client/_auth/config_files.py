"""Access to the files of a configuration: certificates, tokens, kubeconfigs."""

from __future__ import annotations

import os
import stat
from typing import IO

from appsdk_operator.client._errors import ConfigError

MAX_FILE = 10 << 20
"""The default limit in bytes; a kubeconfig with hundreds of clusters has one or two million."""


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Refuse devices, pipes and directories.

    Raises:
        ConfigError: it is not a regular file.
        OSError: it does not exist, or cannot be accessed.
    """
    status = os.stat(path)  # noqa: PTH116 - follows the symlinks that kubelet swaps
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{os.fspath(path)} is not a regular file: give the path of a file")
    return status


def read_file(path: str | os.PathLike[str], most: int = MAX_FILE) -> bytes:
    """Read a regular file of at most ``most`` bytes.

    Raises:
        ConfigError: it is not a regular file, or too large.
        OSError: it cannot be read.
    """
    check_regular(path)
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to load
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{os.fspath(path)} has more than {most} bytes: is it the right file?")
    return content


def memory_file() -> IO[bytes]:
    """A temporary file without a name, in memory where the system supports it.

    Raises:
        ConfigError: no temporary folder is writable.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.fdopen(os.memfd_create("appsdk-operator"), "w+b")
        except OSError:  # forbidden by a sandbox
            pass
    try:
        import tempfile

        return tempfile.TemporaryFile(prefix="appsdk-operator-")
    except OSError as error:
        raise ConfigError(
            f"no file can be made for a moment: {error}; set $TMPDIR to a folder that can be "
            "written, in a pod for example an emptyDir with medium: Memory"
        ) from error
