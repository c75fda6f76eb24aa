"""Draws the diagrams of the pages, docs/diagrams/NAME.svg, each from its text in NAME.toml.

python hack/diagrams.py
python hack/diagrams.py --check

A text has rows of boxes from top to bottom, and arrows between boxes. Everything that is written
stands on a fill of its own, so that a picture can be read on a light and on a dark page.
"""

from __future__ import annotations

import argparse
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs/diagrams"

WIDTH = 760
MARGIN = 12
GAP = 14
"""Between boxes of a row, in pixels, as all lengths."""
ROW_GAP = 46
"""Between rows that arrows join; those of a stack have ``GAP``."""
TITLE, NOTE = 19, 16
"""The height of a line."""

FILLS = {
    "kit": "#1d5a87",
    "yours": "#7a4b00",
    "outside": "#4f5864",
    "light": "#3d6f52",
}
"""Behind white text: contrast of 5 and more."""

ARROW = "#7f8b99"
"""Seen on white and on black alike."""

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-labelledby="title description">
<title id="title">{title}</title>
<desc id="description">{description}</desc>
<defs>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" \
markerHeight="8" orient="auto-start-reverse">
<path d="M0 0 L8 4 L0 8 z" fill="{arrow}"/>
</marker>
</defs>
<g font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12.5">
"""


class Box:
    """A box with its place."""

    def __init__(self, text: dict[str, Any], x: float, width: float) -> None:
        self.title: str = text["title"]
        self.fill = FILLS[text.get("fill", "kit")]
        # A letter of this size is about 6.4 wide.
        self.notes = textwrap.wrap(text.get("note", ""), int((width - 20) / 6.4))
        self.x, self.y, self.width = x, 0.0, width
        self.height = 18 + TITLE + NOTE * len(self.notes)

    @property
    def middle(self) -> float:
        """The middle from left to right."""
        return self.x + self.width / 2

    def drawn(self) -> str:
        """The box with its text."""
        rectangle = (
            f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" '
            f'height="{self.height:g}" rx="7" fill="{self.fill}"/>\n'
        )
        title = (
            f'<text x="{self.x + 10:g}" y="{self.y + 22:g}" fill="#ffffff" font-size="14.5" '
            f'font-weight="600">{escape(self.title)}</text>\n'
        )
        lines = [rectangle, title]
        for number, note in enumerate(self.notes, 1):
            lines.append(
                f'<text x="{self.x + 10:g}" y="{self.y + 22 + NOTE * number:g}" '
                f'fill="#ffffff">{escape(note)}</text>\n'
            )
        return "".join(lines)


def placed(picture: dict[str, Any]) -> tuple[dict[str, Box], float]:
    """All boxes by their id, and the height of the picture."""
    boxes: dict[str, Box] = {}
    y = float(MARGIN)
    gap = ROW_GAP if picture.get("arrows") else GAP
    for row in picture["rows"]:
        texts = row["boxes"]
        shares = [text.get("share", 1) for text in texts]
        room = WIDTH - 2 * MARGIN - GAP * (len(texts) - 1)
        x = float(MARGIN)
        placed_boxes = []
        for text, share in zip(texts, shares, strict=True):
            width = room * share / sum(shares)
            box = Box(text, round(x, 1), round(width, 1))
            box.y = y
            boxes[text.get("id", text["title"])] = box
            placed_boxes.append(box)
            x += width + GAP
        height = max(box.height for box in placed_boxes)
        for box in placed_boxes:
            box.height = height
        y += height + gap
    return boxes, y - gap + MARGIN


def arrow(text: dict[str, Any], boxes: dict[str, Box]) -> str:
    """An arrow down, or to the side where both boxes are in one row, with its label."""
    start, end = boxes[text["from"]], boxes[text["to"]]
    if start.y == end.y:
        y = start.y + start.height / 2
        x1, x2 = start.x + start.width, end.x
        middle, label_y = (x1 + x2) / 2, y
        line = f"M{x1:g} {y:g} L{x2 - 1:g} {y:g}"
    else:
        narrow = min(start, end, key=lambda box: box.width)
        x = narrow.middle
        y1, y2 = start.y + start.height, end.y
        if y2 < y1:
            y1, y2 = start.y, end.y + end.height
        middle, label_y = x, (y1 + y2) / 2
        line = f"M{x:g} {y1:g} L{x:g} {y2 + (1 if y2 < y1 else -1):g}"
    drawn = (
        f'<path d="{line}" fill="none" stroke="{ARROW}" stroke-width="2" '
        'marker-end="url(#head)"/>\n'
    )
    label = text.get("label", "")
    if label:
        width = 6.5 * len(label) + 16
        drawn += (
            f'<rect x="{middle - width / 2:g}" y="{label_y - 11:g}" width="{width:g}" height="20" '
            f'rx="10" fill="#e9edf2"/>\n'
            f'<text x="{middle:g}" y="{label_y + 3.5:g}" text-anchor="middle" '
            f'fill="#26303b">{escape(label)}</text>\n'
        )
    return drawn


def drawing(text: str) -> str:
    """The SVG of a picture's text."""
    picture = tomllib.loads(text)
    boxes, height = placed(picture)
    parts = [
        HEAD.format(
            width=WIDTH,
            height=f"{height:g}",
            title=escape(picture["title"]),
            description=escape(" ".join(picture["description"].split())),
            arrow=ARROW,
        )
    ]
    parts += [arrow(each, boxes) for each in picture.get("arrows", ())]
    parts += [box.drawn() for box in boxes.values()]
    return "".join([*parts, "</g>\n</svg>\n"])


def main() -> None:
    """Draw all, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a picture is not current")
    is_check = parser.parse_args().check
    for text in sorted(FOLDER.glob("*.toml")):
        picture, drawn = text.with_suffix(".svg"), drawing(text.read_text(encoding="utf-8"))
        if not is_check:
            picture.write_text(drawn, encoding="utf-8")
        elif not picture.exists() or picture.read_text(encoding="utf-8") != drawn:
            raise SystemExit(f"{picture.name} is not current: run python hack/diagrams.py")


if __name__ == "__main__":
    main()
