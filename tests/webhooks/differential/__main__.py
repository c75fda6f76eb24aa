"""Webhooks of both kits on one real server: ``python -m tests.webhooks.differential``."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from appsdk_operator.runtime import system_clock
from tests.differential import lanes as servers
from tests.webhooks.differential import lanes, programs
from tests.webhooks.differential.scripts import Script, all_scripts, table


def main(arguments: list[str]) -> int:
    """Hold the conversations with both and print where they differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.webhooks.differential")
    parser.add_argument("words", nargs="*", help="only cases whose area or name has one of these")
    parser.add_argument("--record", action="store_true", help="keep controller-runtime's answers")
    parser.add_argument("--show", action="store_true", help="print controller-runtime's answers")
    parser.add_argument("--embedded", action="store_true", help="on the embedded server instead")
    parser.add_argument("--only-go", action="store_true", help="controller-runtime's alone")
    options = parser.parse_args(arguments)
    start = servers.embedded if options.embedded else servers.real
    with start() as server:
        scripts = [
            script
            for script in all_scripts()
            if script.since <= server.version and _meant(script, options.words)
        ]
        with (
            tempfile.TemporaryDirectory() as folder,
            programs.controller_runtime(table(scripts), Path(folder)) as where,
        ):
            theirs = _timed("controller-runtime", lambda: lanes.run(server, scripts, where))
        if options.show:
            for script in scripts:
                found = theirs[script.id]
                print(f"== {script.id}\n{_text(found)}")  # noqa: T201
        if options.record:
            version = ".".join(map(str, server.version))
            lanes.record(version, scripts, theirs)
        if options.only_go:
            return 1 if any(isinstance(found, Exception) for found in theirs.values()) else 0
        lanes.clear(server)
        with programs.kit(table(scripts)) as where:
            ours = _timed("the kit", lambda: lanes.run(server, scripts, where))
    problems = {s.id: lanes.problem(s, ours[s.id], theirs[s.id]) for s in scripts}
    for name, problem in problems.items():
        if problem:
            print(f"{name}\n{problem}\n")  # noqa: T201
    differing = sum(map(bool, problems.values()))
    print(f"{len(scripts)} conversations, {differing} differ")  # noqa: T201
    return 1 if differing else 0


def _meant(script: Script, words: list[str]) -> bool:
    return not words or any(word == script.area or word in script.name for word in words)


def _timed(
    what: str, function: Callable[[], dict[str, lanes.Answers | Exception]]
) -> dict[str, lanes.Answers | Exception]:
    began = system_clock.monotonic()
    found = function()
    print(f"{what}: {system_clock.monotonic() - began:.1f} s")  # noqa: T201
    return found


def _text(found: lanes.Answers | Exception) -> str:
    if isinstance(found, Exception):
        return f"{found!r} {getattr(found, '__notes__', '')}"
    return "\n".join(json.dumps(answer, indent=1, ensure_ascii=False) for answer in found)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
