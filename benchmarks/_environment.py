"""What the figures were measured on and with."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks._contestants import all_contestants

__all__ = ["environment", "versions"]


def _first(path: str, found: Callable[[str], str | None]) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return "unknown"
    return next((value for line in lines if (value := found(line))), "unknown")


def _processor() -> str:
    def name(line: str) -> str | None:
        key, _, value = line.partition(":")
        return value.strip() if key.strip() == "model name" else None

    return _first("/proc/cpuinfo", name)


def _memory() -> str:
    def total(line: str) -> str | None:
        key, _, value = line.partition(":")
        return f"{int(value.split()[0]) * 1024 / 1e9:.0f} GB" if key == "MemTotal" else None

    return _first("/proc/meminfo", total)


def _python() -> str:
    is_locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    threads = "" if is_locked() else ", free-threaded"
    return f"{platform.python_implementation()} {platform.python_version()}{threads}"


def environment() -> dict[str, str]:
    """The machine, by what a reader would call it."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "Date": dt.datetime.now(dt.UTC).date().isoformat(),
        "Processor": _processor(),
        "Cores": str(os.cpu_count()),
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": _python(),
        "Load before (1, 5, 15 minutes)": load,
    }


def versions() -> dict[str, str]:
    """The version of each contestant, or why it is absent."""
    found = {}
    for contestant in all_contestants():
        if contestant.absent:
            found[contestant.name] = f"absent: {contestant.absent}"
        elif contestant.version:
            name = contestant.requires or contestant.name
            found[contestant.name] = " ".join(filter(None, [name, contestant.version]))
    return found
