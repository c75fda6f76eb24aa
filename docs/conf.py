"""Sphinx's configuration of the site, which hack/site.py stages and builds."""

from __future__ import annotations

import builtins
import functools
import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_signature, pending_xref, pending_xref_condition
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.search.en import SearchEnglish
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from appsdk_operator import __version__

project = "appsdk_operator"
author = "the authors of appsdk_operator"
version = release = __version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["conf.py"]
nitpicky = True

# Pages.
myst_enable_extensions = ["colon_fence", "substitution"]
# As forges make them, for all depths: tests/docs checks the same links without Sphinx.
myst_heading_anchors = 6
highlight_language = "text"
# Commands are copied without their prompts and output.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def _measured() -> dict[str, str]:
    """What the first page says in numbers, from the pages that measurements have made."""
    docs = Path(__file__).parent

    def found(page: str, pattern: str) -> str:
        text = (docs / page).read_text(encoding="utf-8")
        match = re.search(pattern, text, re.MULTILINE)
        if match is None:
            raise SystemExit(f"docs/conf.py: {page} has no {pattern!r} any more")
        return match[1]

    goal = r"^\| {} \|[^|]*\| {} . of `{}"
    events = "watch events to a callback, store updated"
    number = r"([\d,.]+)"
    rate = r"^\| (?:\*\*)?`{}`(?:\*\*)? \| ([\d,]+) \("
    page, figures = "performance.md", "measurements.md"
    client_go = float(found(page, goal.format(events, number, "client-go")))
    kopf = float(found(page, goal.format(events, number, "kopf")))
    memory = float(
        found(page, goal.format("memory per cached object", number, "client-go"))
    )
    bytes_of = r"^\| (?:\*\*)?`{}`(?:\*\*)? \|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) KB \("
    typed, ours = (
        float(found(figures, bytes_of.format(name)))
        for name in ("controller-runtime typed", "appsdk watcher-untouched")
    )
    return {
        "watch_events_client_go": f"{int(client_go)} times",
        "watch_events_kopf": f"{int(kopf)} times",
        "memory_of_json": found(
            page, r"^\| memory per cached object \|[^|]*\| ([\d.]+) . \|"
        ),
        "memory_client_go": f"{memory:.1f} times",
        "memory_controller_runtime": f"{typed / ours:.1f} times",
        "rate_ours": found(figures, rate.format("appsdk watcher-untouched")),
        "rate_kopf": found(figures, rate.format("kopf event")),
        "rate_controller_runtime": found(
            figures, rate.format("controller-runtime typed")
        ),
        "cases": found("fidelity.md", r"^\| all \| [\d,]+ \| ([\d,]+) \|"),
    }


myst_substitutions = _measured() | {"version": version}

# The reference.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
# An entry of the menu for each of thousands of attributes would be copied into each page.
toc_object_entries = False

# What docstrings refer to and others document: a build needs no network for their inventories.
# Types in signatures are in no list: they come from code that type checkers have read,
# so they are right, and those that are private, type variables or foreign have no link.
_STANDARD_LIBRARY = (
    "asyncio|concurrent|contextlib|datetime|enum|logging|ssl|threading|time"
)
_OTHERS = "hypothesis|kubernetes|msgspec|prometheus_client|pytest|tenacity"
nitpick_ignore_regex = [
    ("py:.*", rf"({_STANDARD_LIBRARY}|{_OTHERS})(\..*)?"),
    # The embedded API server's own error, which is private.
    ("py:exc", "StatusError"),
]

# How it looks.
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"appsdk_operator {release}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_search_scorer = str(Path(__file__).with_name("_search") / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


_NO_TEXT = re.compile(r"\s*(?:[-*+] |\d+\. |#\. |>>> |\.\. |:\w+|[A-Z][A-Za-z ]*:$)")
"""How a list item, a doctest, a directive, a field or the heading of a section begins."""


def mark_examples(lines: list[str]) -> list[str]:
    """The lines of a docstring, in which an indented paragraph after one of text is marked as code.

    Unmarked is how docstrings have it, for readers of the source.
    """
    marked: list[str] = []
    before = ""  # the first line of the last paragraph
    for number, line in enumerate(lines):
        begins = line.strip() and (number == 0 or not lines[number - 1].strip())
        if not begins:
            marked.append(line)
            continue
        is_deeper = before and _indentation(line) > _indentation(before)
        if is_deeper and not _NO_TEXT.match(before) and not _NO_TEXT.match(line):
            if not _last_text(marked).endswith("::"):
                marked += [" " * _indentation(before) + "::", ""]
        else:
            before = line
        marked.append(line)
    return marked


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_text(lines: list[str]) -> str:
    return next(line for line in reversed(lines) if line.strip())


_SECTIONS = Config(
    napoleon_numpy_docstring=False,
    napoleon_use_ivar=True,
    napoleon_custom_sections=["Guarantees", "Caveats", "Errors"],
)


def process_docstring(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring, in place."""
    # The docstring of an attribute is prose: napoleon would take what is before a colon for a type.
    place = "object" if what in {"attribute", "data", "property"} else what
    text = GoogleDocstring(
        mark_examples(lines), _SECTIONS, app, place, name, value, options
    )
    lines[:] = text.lines()


def register_aliases(app: Sphinx, env: BuildEnvironment) -> None:
    """Let each name be found by every path by which it can be imported."""
    objects = env.domains.python_domain.objects
    modules = env.domains.python_domain.modules
    path = Path(app.srcdir, "reference/aliases.json")
    for alias, documented in json.loads(path.read_text(encoding="utf-8")).items():
        if documented in modules:
            modules.setdefault(alias, modules[documented])
        for name in [
            each
            for each in objects
            if each == documented or each.startswith(f"{documented}.")
        ]:
            entry = objects[name]
            further = alias + name.removeprefix(documented)
            objects.setdefault(
                further, ObjectEntry(entry.docname, entry.node_id, entry.objtype, True)
            )


class LinkNames(SphinxPostTransform):
    """Link the names of the kit that a page mentions as code to their place in the reference."""

    default_priority = 200

    def run(self, **_: Any) -> None:
        """Replace each literal that is a public name."""
        if self.env.docname.startswith("reference/"):
            return
        names = _names_in_pages(self.env)
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.title | nodes.reference | pending_xref):
                continue
            entry = names.get(literal.astext().removesuffix("()"))
            if entry is not None:
                literal.replace_self(
                    make_refnode(
                        self.app.builder,
                        self.env.docname,
                        entry.docname,
                        entry.node_id,
                        literal.deepcopy(),
                    )
                )


class ChartsInPages(SphinxPostTransform):
    """Put charts into their pages, so that their text has the colour of the page."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace each image that is a chart."""
        for image in list(self.document.findall(nodes.image)):
            if re.fullmatch(r"performance-\w+\.svg", image["uri"]):
                text = Path(self.app.srcdir, image["uri"]).read_text(encoding="utf-8")
                image.replace_self(nodes.raw("", text, format="html"))


_WITHOUT_ENTRY = re.compile(
    r"(.*\.)?_?(Other)?(Spec|Status|Value|Absent)T(_co|_contra)?|(.*\.)?_?[A-Z](_co|_contra)?|"
    r"(collections|typing|os|random|pathlib)\..*"
)
"""Type variables and types of the standard library, of which signatures are full."""


def mark_types(_app: Sphinx, document: nodes.document) -> None:
    """Note which references are types in code, and leave out those that have no entry.

    A builtin of the name of somebody's attribute, such as ``object``, would lead to that.
    """
    bases = [
        each
        for each in document.findall(nodes.paragraph)
        if each.astext().startswith("Bases: ")
    ]
    for signature in [*document.findall(desc_signature), *bases]:
        for node in list(signature.findall(pending_xref)):
            target = node.get("reftarget", "")
            if hasattr(builtins, target) or _WITHOUT_ENTRY.fullmatch(target):
                node.replace_self(_shown(node))
            else:
                node["in_signature"] = True


def _shown(node: pending_xref) -> list[nodes.Node]:
    """What is shown of a type without a link: its short name."""
    for condition in node.findall(pending_xref_condition):
        if condition.get("condition") == "resolved":
            return condition.children
    return node.children


def find_elsewhere(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """What has no entry under the name that a docstring or a signature has for it."""
    if node.get("refdomain") != "py":
        return None
    entry = _names_in_pages(env).get(node["reftarget"])
    if entry is not None:
        return make_refnode(
            app.builder, node["refdoc"], entry.docname, entry.node_id, content
        )
    if node.get("in_signature"):
        return nodes.inline("", "", *_shown(node))
    return None


@functools.lru_cache(maxsize=1)
def _names_in_pages(env: BuildEnvironment) -> dict[str, ObjectEntry]:
    """Public names as pages write them, ``Manager`` and ``Manager.run``: those with one meaning."""
    objects = env.domains.python_domain.objects
    found: dict[str, ObjectEntry | None] = {}
    facade: dict[str, ObjectEntry] = {}
    for path, entry in objects.items():
        parts = path.split(".")
        if parts[0] != project or any(part.startswith("_") for part in parts):
            continue
        found[path] = entry
        if parts[1:2] and parts[1][:1].isupper():
            facade[".".join(parts[1:])] = entry
        # A short word, such as `field` or `testing`, is a name of the kit only with its package.
        short = ".".join(parts[2:])
        if short and ("_" in short or short[0].isupper()):
            other = found.setdefault(short, entry)
            if other is not None and other[:2] != entry[:2]:
                found[short] = None
    return {path: entry for path, entry in found.items() if entry is not None} | facade


_GUIDES = re.compile(r"[\w-]+|tutorial/.*")
_NO_GUIDES = {
    "architecture",
    "changelog",
    "contributing",
    "differences",
    "fidelity",
    "go-names",
    "index",
    "measurements",
    "overview",
    "security",
}


def count_words(app: Sphinx, error: Exception | None) -> None:
    """Write how often each guide has its words, by which a search ranks what it has found."""
    if error is not None or app.builder.name != "html":
        return
    english = SearchEnglish({})
    counted: dict[str, dict[str, int]] = {}
    for page in sorted(app.env.found_docs):
        if _GUIDES.fullmatch(page) and page not in _NO_GUIDES:
            words = english.split(app.env.get_doctree(page).astext())
            parts = [part for word in words if "_" in word for part in word.split("_")]
            counts = Counter(english.stem(word) for word in [*words, *parts])
            counted[page] = {
                word: count
                for word, count in sorted(counts.items())
                if count > 1 and len(word) > 2
            }
    written = json.dumps(counted, ensure_ascii=False, separators=(",", ":"))
    path = Path(app.outdir, "_static/words.js")
    path.write_text(f"const wordsOfGuides = {written};\n", encoding="utf-8")


def load_words(app: Sphinx, page: str, *_: object) -> None:
    """Let the page with the search's results load that."""
    if page == "search":
        app.add_js_file("words.js")


def summarize(
    _app: Sphinx,
    _page: str,
    _template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Give the template of a page its first paragraph, for who shows a link to it."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree is not None else ()
    first = next((" ".join(each.astext().split()) for each in paragraphs), "")
    context["summary"] = textwrap.shorten(first, 200, placeholder=" …")


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("env-updated", register_aliases)
    app.connect("doctree-read", mark_types)
    app.connect("missing-reference", find_elsewhere)
    app.connect("html-page-context", load_words)
    app.connect("html-page-context", summarize)
    app.connect("build-finished", count_words)
    app.add_post_transform(LinkNames)
    app.add_post_transform(ChartsInPages)
