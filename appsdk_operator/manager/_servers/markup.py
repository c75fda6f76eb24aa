"""HTML in pieces: elements, tables and small charts, all of their text escaped."""

from __future__ import annotations

import datetime as dt
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from appsdk_operator.manager._servers.texts import seconds_text
from appsdk_operator.runtime import counted

_WIDTH, _HEIGHT = 120, 18


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object) -> str:
    """``value`` as HTML."""
    return value if isinstance(value, Html) else html.escape(str(value), quote=True)


def tag(name: str, content: object = "", /, **attributes: object) -> Html:
    """An element; of an attribute's name a trailing underscore is dropped."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(f' {names[key]}="{escaped(v)}"' for key, v in attributes.items() if v != "")
    return Html(f"<{name}{given}>{escaped(content)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Pieces in a row."""
    return Html(between.join(escaped(part) for part in parts))


def number(value: object) -> str:
    """A count, with commas."""
    return f"{value:,}" if isinstance(value, int) else str(value if value is not None else "")


def badge(text: str, level: str) -> Html:
    """A state with its color: ``good``, ``warn``, ``bad`` or ``idle``."""
    return tag("span", text, class_=f"state {level}")


def dim(text: object) -> Html:
    """A remark below something."""
    return tag("div", text, class_="dim small")


def small(text: object) -> Html:
    """A long text."""
    return tag("span", text, class_="small") if text else Html("")


def ago(state: Mapping[str, Any], time: float | None) -> Html:
    """How long ago something was, with the time itself as its tooltip."""
    if time is None:
        return Html("")
    passed = state["time"] - time
    return when("now" if passed < 1.0 else f"{seconds_text(passed)} ago", time)


def when(text: str, time: float) -> Html:
    """A relative time with the absolute one, in seconds since 1970, as its tooltip."""
    try:
        exact = f"{dt.datetime.fromtimestamp(time, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        exact = ""
    return tag("span", text, class_="time", title=exact)


def table(caption: object, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """A table; a row's first cell names it.

    On a narrow screen each row is a card, whose cells have the titles of their columns. Columns
    whose title ends with ``#`` are numbers, and those with ``~`` are not in the cards.
    """
    marks = {"#": "num", "~": "wide", "#~": "num wide"}
    kinds = [marks.get(column[len(column.rstrip("#~")) :], "") for column in columns]
    titles = [column.rstrip("#~") for column in columns]
    head = join(
        tag("th", title, scope="col", class_=kind)
        for title, kind in zip(titles, kinds, strict=True)
    )
    body = []
    for row in rows:
        cells = [
            tag("td", cell, class_=kind, data_label=title)
            for cell, kind, title in zip(row[1:], kinds[1:], titles[1:], strict=True)
        ]
        body.append(tag("tr", join([tag("th", row[0], scope="row"), *cells])))
    content = [tag("thead", tag("tr", head)), tag("tbody", join(body))]
    if caption:
        content.insert(0, tag("caption", caption))
    found = tag("table", join(content))
    return tag(
        "div", found, class_="scroll", tabindex="0", role="group", aria_label=_plain(caption)
    )


def _plain(caption: object) -> str:
    return "Table" if isinstance(caption, Html) or not caption else str(caption)


def panel(title: str, remark: object, content: object) -> Html:
    """A section's heading, a remark next to it, and its content."""
    head = tag("div", join([tag("h2", title), tag("span", remark, class_="dim")]), class_="head")
    return join([head, content])


def folded(id_: str, summary: object, content: object, *, is_open: bool = False) -> Html:
    """Content below a line that opens it."""
    options = {"open": "open"} if is_open else {}
    return tag("details", join([tag("summary", summary), content]), id=id_, **options)


def empty(text: str) -> Html:
    """What a panel without content says."""
    return tag("p", text, class_="empty")


def note(text: object, *, wrong: bool = False) -> Html:
    """A remark that is to be seen."""
    return tag("p", text, class_="note wrong" if wrong else "note")


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Terms, and what is known of each."""
    rows = [tag("div", join([tag("dt", term), tag("dd", fact)])) for term, fact in pairs]
    return tag("dl", join(rows), class_="facts")


def labels(values: Sequence[object]) -> Html:
    """Short texts next to each other."""
    if not values:
        return tag("span", "none", class_="dim")
    return tag("ul", join(tag("li", value) for value in values), class_="tags")


def two(first: object, second: object) -> Html:
    """A text, and a remark below it if there is one."""
    return join([first, dim(second)]) if second else join([first])


def with_chart(count: object, chart: Html, remark: str = "") -> Html:
    """A number next to its chart."""
    shown = tag("span", join([number(count), chart]), class_="chart")
    return join([shown, dim(remark) if remark else ""])


def sparkline(numbers: Sequence[int], what: str, level: str = "idle") -> Html:
    """Bars for the numbers of ten minutes, oldest first; ``what`` they count, for those who hear.

    >>> print(sparkline([0, 2], "calls"))  # doctest: +ELLIPSIS
    <svg class="spark idle" ... aria-label="calls in ten minutes: 2, at most 2 in 10 s">...</svg>
    """
    highest = max(numbers, default=0)
    step = _WIDTH / max(1, len(numbers))
    bars = "".join(
        f"M{place * step + step / 2:.1f} {_HEIGHT}v-{max(1.0, count / highest * _HEIGHT):.1f}"
        for place, count in enumerate(numbers)
        if count
    )
    text = f"{what} in ten minutes: {sum(numbers):,}, at most {highest:,} in 10 s"
    if what.startswith("queue"):
        text = f"{what} in ten minutes: at most {highest:,}"
    base = f'<path class="base" d="M0 {_HEIGHT - 0.5}h{_WIDTH}"/>'
    path = f'<path class="bars" stroke-width="{step * 0.8:.1f}" d="{bars}"/>' if bars else ""
    return Html(
        f'<svg class="spark {level}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escaped(text)}"><title>{escaped(text)}</title>{base}{path}</svg>'
    )


def strip(marks: Sequence[tuple[float, str, str]], span: float) -> Html:
    """A line of time that ends now, with a mark for each (seconds ago, level, text).

    It is as wide as its place: all of it is in percent.
    """
    parts = ['<line class="base" x1="0" y1="12" x2="100%" y2="12"/>']
    for before, level, text in marks:
        place = 1 - min(1.0, max(0.0, before) / span) if span else 1.0
        place = place if math.isfinite(place) else 0.0
        parts.append(
            f'<circle class="{level}" cx="{place:.2%}" cy="12" r="4">'
            f"<title>{escaped(text)}</title></circle>"
        )
    what = f"{counted(len(marks), 'call')} within {seconds_text(span)}, newest at the right"
    drawn = Html(
        f'<svg class="strip" role="img" aria-label="{escaped(what)}">{"".join(parts)}</svg>'
    )
    ends = [tag("span", f"{seconds_text(span)} ago"), tag("span", "now")]
    return join([drawn, tag("div", join(ends), class_="ends dim small", aria_hidden="true")])
