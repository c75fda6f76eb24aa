"""The cases are read by type checkers, in `make check`, and never run."""

from __future__ import annotations

collect_ignore = ["cases"]
