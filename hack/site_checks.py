"""Checks of a built site: every link leads somewhere, every public name has its entry."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and the anchor that it is."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in {"href", "src"}:
                self.links.add(value)


def broken_links(site: Path) -> list[str]:
    """Links to files and anchors that are not there, as ``page: link``."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else None
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and anchors is not None and anchor not in anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


def missing_names(site: Path) -> list[str]:
    """Public names that the inventory does not list."""
    from sphinx.util.inventory import InventoryFile

    from hack import reference

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    listed = {
        name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names
    }
    wanted = {name.path for room in reference.ROOMS for name in reference.names_of(room)}
    wanted |= {f"{reference.PACKAGE}.{name}" for name in reference.facade()}
    forgotten = set(reference.public_rooms()) - set(reference.ROOMS) - {"cli"}
    return sorted(wanted - listed) + sorted(f"package {room}" for room in forgotten)


def unfound_pages(site: Path) -> list[str]:
    """Pages that the search does not know."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = {f"{name}.html" for name in index["docnames"]}
    others = {"search.html", "genindex.html", "py-modindex.html"}
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    return sorted(pages - found - others)


def doubled_titles(site: Path) -> list[str]:
    """Titles that several pages have, as ``title: pages``: a search or a tab cannot tell them."""
    pages: dict[str, list[str]] = {}
    for path in sorted(site.rglob("*.html")):
        found = re.search(r"<title>(.*?)</title>", path.read_text(encoding="utf-8"), re.DOTALL)
        title = " ".join(found[1].split()) if found else ""
        pages.setdefault(title, []).append(path.relative_to(site).as_posix())
    return [f"{title}: {', '.join(paths)}" for title, paths in pages.items() if len(paths) > 1]


def check(site: Path) -> None:
    """Say what is wrong, all of it, and fail."""
    faults = [f"broken link in {fault}" for fault in broken_links(site.resolve())]
    faults += [f"not in the reference: {fault}" for fault in missing_names(site)]
    faults += [f"not in the search index: {fault}" for fault in unfound_pages(site)]
    faults += [f"the same title: {fault}" for fault in doubled_titles(site)]
    if faults:
        raise SystemExit("\n".join(faults))
