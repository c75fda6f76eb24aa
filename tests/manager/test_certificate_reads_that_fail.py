"""The n-th system call on the files of a certificate fails: the one before stays in use, and the
new one comes with the next connection after it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.runtime import Metrics
from appsdk_operator.serving._tls import ServerContexts
from tests.hypothesis_profiles import scaled
from tests.manager.test_certificates import Files, certificate

FAULTS: dict[str, tuple[Any, str, tuple[int, ...]]] = {
    "stat": (Path, "stat", (errno.EACCES, errno.ENOENT, errno.ESTALE)),
    "read": (Path, "read_bytes", (errno.EMFILE, errno.EACCES, errno.EIO, errno.ENOENT)),
    "memory": (os, "memfd_create", (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    "descriptor": (os, "fdopen", (errno.ENOMEM,)),
}
PAIRS = [certificate(name) for name in ("one", "two")]


@st.composite
def faults(draw: st.DrawFn) -> tuple[str, int, int]:
    name = draw(st.sampled_from(sorted(FAULTS)))
    return name, draw(st.integers(1, 8)), draw(st.sampled_from(FAULTS[name][2]))


def failing(patched: pytest.MonkeyPatch, name: str, number: int, code: int) -> None:
    owner, attribute, _ = FAULTS[name]
    call, left = getattr(owner, attribute), [number]

    def called(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            if name == "descriptor":
                os.close(args[0])
            raise OSError(code, os.strerror(code))
        return call(*args, **options)

    patched.setattr(owner, attribute, called)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@settings(max_examples=scaled(20), deadline=None)
@given(faults(), st.integers(1, 3))
def test_a_call_that_fails_leaves_a_pair_in_use_and_the_new_one_comes(
    fault: tuple[str, int, int], looks: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        files = Files(Path(folder))
        files.write(*PAIRS[0])
        pair = files.pair(metrics=Metrics())
        contexts = ServerContexts(pair.tls, pair.pair, "secure")
        first, before = contexts.get(), open_files()
        failing(patched, *fault)
        files.write(*PAIRS[1])
        for _ in range(looks):
            assert pair.pair().certificate in (PAIRS[0][0], PAIRS[1][0])
            assert pair.context() is not None
            assert contexts.get() is not None
        patched.undo()
        # Nobody has to wait for the next poll.
        assert pair.pair().certificate == PAIRS[1][0]
        made = contexts.get()
        assert made is not first
        assert contexts.get() is made
        assert contexts._made_from is not None
        assert contexts._made_from[0].certificate == PAIRS[1][0]
        assert open_files() == before
        pair.close()
