"""The process that installed something: whether it still runs, after it may have been killed."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Self

import attrs


@attrs.frozen
class Owner:
    """A process of some machine, as it is written to what it installs."""

    host: str
    pid: int
    began: str
    """When it began, as the kernel counts; empty where it does not say."""

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), _began(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner that was written; None for something else."""
        try:
            found: Any = json.loads(text)
            return cls(str(found["host"]), int(found["pid"]), str(found["began"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def __str__(self) -> str:
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @property
    def is_gone(self) -> bool:
        """Whether it has ended for certain; of a process on another machine nobody knows."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            return False  # somebody else's
        # Another process may have its number by now.
        return bool(self.began) and _began(self.pid) not in ("", self.began)


def _began(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in brackets, may hold spaces.
    fields = text.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""
