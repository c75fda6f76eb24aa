"""The page of the command line says what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_command_line_is_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "hack/cli_page.py", "--check"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
