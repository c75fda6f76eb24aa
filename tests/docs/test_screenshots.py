"""The pictures on the pages can be made anew from the operator that they show."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Wide enough for a laptop; a narrow page twice, so that its text is sharp.
SIZES = {
    "hello-page.png": (960, 1120),
    "hello-page-dark.png": (960, 1120),
    "debug-page.png": (1120, 900),
    "debug-page-dark.png": (1120, 900),
    "debug-timeline.png": (1120, 760),
}

pytestmark = [
    pytest.mark.programs,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
]
pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, which stand in its first chunk."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:])
    return width, height


@pytest.mark.timeout(400)
def test_the_script_makes_every_picture_of_the_live_page_and_of_top(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "hack/screenshots.py"), str(tmp_path)]
    done = subprocess.run(
        script, check=False, cwd=ROOT, capture_output=True, timeout=380, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {picture.name: size_of(picture) for picture in tmp_path.glob("*.png")} == SIZES
    assert {name: size_of(DOCS / name) for name in SIZES} == SIZES
    # A page without its content has a tenth of that.
    for name in SIZES:
        made, shown = ((folder / name).stat().st_size for folder in (tmp_path, DOCS))
        assert 0.5 < made / shown < 2, name
    top = (tmp_path / "top.svg").read_text(encoding="utf-8")
    for word in ("lima", "ConnectionError", "failing"):
        assert word in top, word
