"""Counts the instructions of the hot paths, and fails where one takes 2 % more than it did.

    python -m benchmarks.instructions            # counts, compares; so does ``--guard``
    python -m benchmarks.instructions --write    # takes what it counts into instructions.json
    python -m benchmarks.instructions 'watch*'   # only these

Times hide 5 % on a machine that does something else, too; instructions do not depend on that.
Valgrind's callgrind counts them, while :mod:`benchmarks._counted` does the work.

They depend on the interpreter and how it was built, on the processor as valgrind shows it, on the C
library and on packages. So the file has figures by environment, which is known by the version of
Python and by what loops without the kit take in the same run (:mod:`benchmarks._calibration`).
Where the file has none, nothing is compared. A commit that raises a figure says why.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks._calibration import LOOPS
from benchmarks._replay import ROOT

__all__ = ["FILE", "Counts", "NotCountable", "counted", "is_kept"]

FILE: Final = Path(__file__).with_suffix(".json")
TOLERANCE: Final = 0.02
"""How much more passes."""
_ALIKE: Final = 0.01
"""How far loops may be apart in environments that are the same. Addresses make up to 0.5 %."""
_SECONDS: Final = 900.0
"""The longest run, on a machine that does much else."""
_UNKNOWN: Final = re.compile("unhandled instruction|Illegal instruction|unrecognised")
"""What valgrind says of a processor that is newer than it is."""
_WORKER: Final = "benchmarks._counted"
_ADVICE: Final = (
    "guard: take them out again, or raise the figures with `python -m benchmarks.instructions "
    "--write` in a commit that says why"
)


class NotCountable(Exception):  # noqa: N818 - no error of who asked
    """Instructions cannot be counted on this machine; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was counted in one environment."""

    of: Mapping[str, str]
    """The interpreter: its version, and the machine it is for."""
    packages: Mapping[str, str]
    """The versions of packages, for who reads the file: those that change figures change loops."""
    loops: Mapping[str, int]
    """Instructions of one step, by loop."""
    work: Mapping[str, int]
    """Instructions of one step, by work of the kit."""

    def differences(self, other: Counts) -> list[str]:
        """What makes ``other`` another environment; nothing if it is the same."""
        found = [
            f"{name} {version}, and not {self.of.get(name, 'none')}"
            for name, version in other.of.items()
            if version != self.of.get(name)
        ]
        for name, count in other.loops.items():
            was = self.loops.get(name)
            if was is None:
                found.append(f"the loop of {name} has no figure")
            elif abs(more := count / was - 1) > _ALIKE:
                found.append(f"the loop of {name} takes {more:+.1%}")
        return found


def _interpreter() -> dict[str, str]:
    version = ".".join(platform.python_version_tuple()[:2])
    return {"machine": platform.machine(), platform.python_implementation(): version}


def _packages() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("attrs", "msgspec")}


# -- counting --------------------------------------------------------------------------------


def counted(patterns: Sequence[str] = ("*",)) -> Counts:
    """Count the loops, and the work whose names match.

    Raises:
        NotCountable: that is not possible here, or takes too long.
        RuntimeError: the work has failed; the text has its errors.
    """
    # It imports much of the kit.
    from benchmarks._counted import WORK

    if shutil.which("valgrind") is None:
        raise NotCountable("valgrind is not installed (Debian's package valgrind)")
    work = [
        name
        for name in WORK
        if name not in LOOPS and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    names = [*LOOPS, *work]
    _compile()
    run = _run(names, from_start=False)
    if not run.counts:
        run = _run(names, from_start=True)
    if not run.counts and not _runs_under_valgrind():
        raise NotCountable("valgrind cannot run this interpreter")
    failed = [name for name in names if name not in run.counts]
    if failed and _UNKNOWN.search(run.errors):
        raise NotCountable(f"valgrind does not know this processor: {run.errors}")
    if failed:
        raise RuntimeError(f"{', '.join(failed)} failed under valgrind: {run.errors}")
    if not all(run.counts[name] for name in LOOPS):
        raise NotCountable("callgrind does not see where the work begins and ends")
    return Counts(
        of=_interpreter(),
        packages=_packages(),
        loops={name: run.counts[name] for name in LOOPS},
        work={name: run.counts[name] for name in work},
    )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run under callgrind."""

    counts: Mapping[str, int]
    """Instructions of one step, of what did not fail."""
    errors: str


def _run(names: Sequence[str], *, from_start: bool) -> _Run:
    """Do what has these names.

    Args:
        names: of loops and work.
        from_start: whether callgrind counts from the start, or from when the worker has it do so,
            which is faster and needs more of valgrind.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/%p"]
        command += [f"--instr-atstart={'yes' if from_start else 'no'}", "--dump-before=getppid"]
        command += [sys.executable, "-m", _WORKER]
        command += [*([] if from_start else ["--instrument"]), *names]
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=ROOT,
                env=_variables(),
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise NotCountable(f"the work did not end within {_SECONDS:g} s") from error
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        counts = {
            line["name"]: round(_last_count(Path(folder), line["process"]) / line["steps"])
            for line in lines
            if not line["failed"]
        }
        return _Run(counts=counts, errors=done.stderr.strip())


def _variables() -> dict[str, str]:
    """The same hashes in each run, and as little as possible that differs between machines."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    cached = str(ROOT / "build/bytecode")
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": cached}


def _compile() -> None:
    """Compile what the worker imports, which would take minutes under valgrind."""
    command = [sys.executable, "-c", f"import {_WORKER}"]
    subprocess.run(command, check=True, cwd=ROOT, env=_variables())


def _runs_under_valgrind() -> bool:
    command = ["valgrind", "-q", "--tool=none", sys.executable, "-c", "pass"]
    return not subprocess.run(command, check=False, capture_output=True).returncode


def _last_count(folder: Path, process: int) -> int:
    """What a process took between the last two marks; 0 if that was not written."""
    parts = {int(path.suffix[1:]): path for path in folder.glob(f"{process}.*")}
    if not parts:
        return 0
    text = parts[max(parts)].read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^summary: (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


# -- comparing -------------------------------------------------------------------------------


def read(path: Path = FILE) -> list[Counts]:
    """The figures of a file, by environment."""
    return [Counts(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def write(present: Counts, path: Path = FILE) -> None:
    """Take what was counted into a file, in place of the same environment's figures."""
    others = [known for known in read(path) if known.differences(present)]
    text = json.dumps([asdict(each) for each in (*others, present)], indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def raised(known: Counts, found: Counts, tell: Callable[[str], object]) -> list[str]:
    """The work that takes too many instructions."""
    bad = []
    for name, count in found.work.items():
        was = known.work.get(name)
        title = f"guard: instructions: {name}: {count:,}"
        if was is None:
            tell(f"{title}: not compared: the file has no figure for it in this environment")
            continue
        more = count / was - 1
        verdict = "ok"
        if count > was * (1 + TOLERANCE):
            verdict = "TOO MANY"
            bad.append(name)
        elif count < was * (1 - TOLERANCE):
            verdict = "ok, and to be written, so that it stays"
        tell(f"{title}, {was:,} in the file, {more:+.1%}: {verdict}")
    return bad


def is_kept(
    tell: Callable[[str], object],
    *,
    patterns: Sequence[str] = ("*",),
    count: Callable[[Sequence[str]], Counts] = counted,
    path: Path = FILE,
) -> bool:
    """Whether no hot path takes more instructions than the file says, as far as it says so."""
    try:
        found = count(patterns)
    except NotCountable as error:
        tell(f"guard: instructions: not counted: {error}")
        return True
    environments = read(path)
    known = next((each for each in environments if not each.differences(found)), None)
    if known is None:
        tell(f"guard: instructions: not compared: {path.name} has no figures for this environment")
        for each in environments:
            tell(f"guard: instructions: it has {_said(each)}; here {_joined(each, found)}")
        tell("guard: instructions: `python -m benchmarks.instructions --write` adds these:")
        tell(json.dumps(asdict(found), indent=2))
        return True
    bad = raised(known, found, tell)
    if bad:
        tell("guard: instructions: counted once more")
        bad = raised(known, count(bad), tell)
    if bad:
        tell(_ADVICE)
    return not bad


def _said(counts: Counts) -> str:
    versions = {**counts.of, **counts.packages}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _joined(known: Counts, found: Counts) -> str:
    return ", ".join(known.differences(found))


def main() -> int:
    """Do what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description="Counts the instructions of the hot paths, and compares them with the file.",
    )
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="NAME", help="which")
    parser.add_argument("--write", action="store_true", help="take them into the file")
    options = parser.parse_args()
    if not options.write:
        return 0 if is_kept(print, patterns=options.patterns) else 1
    found = counted()
    write(found)
    print(json.dumps(asdict(found), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
