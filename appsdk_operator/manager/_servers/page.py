"""The debug page as HTML: panels made of the state of a manager, all of its text escaped."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from appsdk_operator.manager._servers.texts import bytes_text, seconds_text

OVERVIEW: Final = "overview"
TIMELINE: Final = "timeline"
_MOST_ROWS: Final = 200

_OUTCOMES: Final = {
    "running": "idle",
    "done": "good",
    "requeued": "good",
    "retrying": "warn",
    "given up": "bad",
    "terminal": "bad",
    "fatal": "bad",
}
_OUTCOME_TEXTS: Final = {"terminal": "failed for good", "fatal": "ended the controller"}


class _Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def _e(value: object) -> str:
    return value if isinstance(value, _Html) else html.escape(str(value), quote=True)


def _tag(name: str, content: object, **attributes: object) -> _Html:
    # Trailing underscores are for names that Python has taken.
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(f' {names[key]}="{_e(v)}"' for key, v in attributes.items() if v != "")
    return _Html(f"<{name}{given}>{_e(content)}</{name}>")


def _join(parts: Iterable[object], between: str = "") -> _Html:
    return _Html(between.join(_e(part) for part in parts))


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value if value is not None else "")


def _state(text: str, level: str) -> _Html:
    return _tag("span", text, class_=f"state {level}")


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> _Html:
    """A table; a row's first cell names it, and columns whose title ends with ``#`` are numbers."""
    kinds = ["num" if column.endswith("#") else "" for column in columns]
    head = _join(
        _tag("th", column.rstrip("#"), scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = []
    for row in rows[:_MOST_ROWS]:
        cells = [
            _tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)
        ]
        body.append(_tag("tr", _join([_tag("th", row[0], scope="row"), *cells])))
    more = len(rows) - _MOST_ROWS
    if more > 0:
        caption += f" The first {_MOST_ROWS} of {len(rows):,}."
    table = _tag(
        "table",
        _join(
            [_tag("caption", caption), _tag("thead", _tag("tr", head)), _tag("tbody", _join(body))]
        ),
    )
    return _tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _panel(title: str, note: object, content: object) -> _Html:
    head = _tag("div", _join([_tag("h2", title), _tag("span", note, class_="dim")]), class_="head")
    return _join([head, content])


def _empty(text: str) -> _Html:
    return _tag("p", text, class_="empty")


def _note(text: object, *, wrong: bool = False) -> _Html:
    return _tag("p", text, class_="note wrong" if wrong else "note")


def _link(namespace: str, name: str, text: str = "") -> _Html:
    query = urllib.parse.urlencode({"namespace": namespace, "name": name}, errors="surrogatepass")
    shown = text or (f"{namespace}/{name}" if namespace else name)
    return _tag("a", shown, href=f"/debug/object?{query}")


def _link_of(text: str) -> _Html:
    namespace, _, name = text.rpartition("/")
    return _link(namespace, name)


def _ago(state: Mapping[str, Any], time: float | None) -> str:
    return "" if time is None else f"{seconds_text(state['time'] - time)} ago"


def _outcome(call: Mapping[str, Any]) -> _Html:
    outcome = str(call["outcome"])
    text = _OUTCOME_TEXTS.get(outcome, outcome)
    if call.get("next_in") is not None:
        due = call["next_in"]
        text += f", again in {seconds_text(due)}" if due > 0 else ", again since due"
    return _state(text, _OUTCOMES.get(outcome, "idle"))


# -- the overview ------------------------------------------------------------------------------


_ANCHORS: Final = {"failing": "failures", "deleting": "deleting", "kinds": "kinds"}


def _verdict(state: Mapping[str, Any]) -> _Html:
    items = []
    for finding in state["verdict"]:
        anchor = _ANCHORS.get(finding["about"], finding["about"])
        link = _tag("a", finding["text"], href=f"#{anchor}")
        items.append(_tag("li", link, class_=f"state {finding['level']}"))
    return _tag("ul", _join(items), class_="verdict")


def _deleting(state: Mapping[str, Any]) -> _Html:
    failing = {(row["namespace"], row["name"]): row for row in state["failing"]}
    rows = []
    for one in state["deleting"]:
        why = failing.get((one["namespace"], one["name"]))
        cause = "" if why is None else f"{why['type']}: {why['text']}"
        rows.append(
            [
                _link(one["namespace"], one["name"]),
                _tag("span", _ago(state, one["since"]), class_="time"),
                _tags(one["finalizers"]),
                _tag("span", cause, class_="small"),
            ]
        )
    if not rows:
        return _panel("In deletion", "", _empty("No object waits for its finalizers."))
    columns = ("Object", "Deleted", "Finalizers", "Cause")
    table = _table("Objects that finalizers keep, the oldest first.", columns, rows)
    return _panel("In deletion", f"{len(rows)}", table)


def _summary(state: Mapping[str, Any]) -> _Html:
    operator = state["operator"]
    leader = state["operator"].get("leader_election")
    facts: list[tuple[str, object]] = [
        (
            "Health",
            _state("ready", "good") if operator.get("ready") else _state("not ready", "bad"),
        ),
        ("Running for", seconds_text(state["time"] - operator["started"])),
        ("Leader", "no election" if leader is None else _leader(leader)),
        ("Kit and Python", f"{operator['kit']}, {operator['python']}"),
        ("Process", operator["pid"]),
    ]
    for shards in state["shards"]:
        held = ", ".join(map(str, shards["held"])) or "none"
        text = f"{len(shards['held'])} of {shards['count']} ({held})"
        replicas = len(shards["members"])
        text += f", {replicas} replica{'' if replicas == 1 else 's'}"
        facts.append((f"Shards {shards['shards']}", text))
    facts += [(f"Server {one['name']}", _tag("code", one["address"])) for one in state["servers"]]
    facts += [
        (f"Certificate of {one['server']}", _certificate(one)) for one in state["certificates"]
    ]
    rows = [_tag("div", _join([_tag("dt", term), _tag("dd", fact)])) for term, fact in facts]
    problem = "" if operator.get("ready") else _note(operator.get("health", ""), wrong=True)
    if operator.get("paused"):
        text = f"The operator is {operator['paused']}. No call begins meanwhile."
        problem = _join([problem, _note(text)])
    if operator.get("stopping"):
        problem = _join([problem, _note("The manager is stopping.")])
    return _panel("Process", "", _join([problem, _tag("dl", _join(rows), class_="facts")]))


def _leader(leader: Mapping[str, Any]) -> object:
    if leader.get("is_leader"):
        return _state(f"this one, {leader['identity']}", "good")
    return _state(str(leader.get("leader") or "nobody"), "idle")


def _certificate(row: Mapping[str, Any]) -> object:
    left = row.get("left")
    if left is None:
        return _state(str(row.get("text") or "unknown"), "warn")
    level = "bad" if left <= 0 else "warn" if left < 7 * 86400 else "good"
    text = "expired" if left <= 0 else f"expires in {seconds_text(left)}"
    return _state(text, level)


def _informers(state: Mapping[str, Any]) -> _Html:
    informers = state["informers"]
    if not informers:
        return _panel("Kinds", "", _empty("No kind is watched."))
    rows, problems = [], []
    for one in informers:
        name: list[object] = [one["resource"]]
        if one["selection"]:
            name.append(_tag("div", one["selection"], class_="dim small"))
        if not one["synced"]:
            status = _state(f"listing, {one['objects']:,} so far", "warn")
        elif one["unreachable_for"] is not None:
            status = _state(f"unreachable for {seconds_text(one['unreachable_for'])}", "bad")
        else:
            status = _state("synced", "good") if one["ready"] else _state("not ready", "bad")
        watch = one["watch_age"]
        rows.append(
            [
                _join(name),
                status,
                _number(one["objects"]),
                bytes_text(one["bytes"]),
                "none yet"
                if one["last_event"] is None
                else f"{seconds_text(one['last_event'])} ago",
                "not open" if watch is None else seconds_text(watch),
                _number(one["relists"]),
                _number(one["undecodable"]),
            ]
        )
        if not one["ready"] or one["undecodable"]:
            problems.append(_note(one["health"], wrong=True))
        elif one["last_error"] and one["watch_age"] is None:
            problems.append(_note(f"{one['resource']}: {one['last_error']}"))
    columns = ("Kind", "State", "Objects#", "Memory#", "Last event", "Watch open for", "Relists#")
    table = _table(
        "What is watched; objects and memory are those of the local copy.",
        (*columns, "Unreadable#"),
        rows,
    )
    synced = sum(one["synced"] for one in informers)
    return _panel("Kinds", f"{synced} of {len(informers)} synced", _join([*problems[:20], table]))


def _controllers(state: Mapping[str, Any]) -> _Html:
    controllers = state["controllers"]
    if not controllers:
        return _panel("Controllers", "", _empty("There is no controller."))
    parts = [_controller(one, state, number) for number, one in enumerate(controllers)]
    running = sum(len(one["running"]) for one in controllers)
    note = f"{len(controllers)}, {running} calls run now"
    return _panel("Controllers and watchers", note, _join(parts))


def _controller(one: Mapping[str, Any], state: Mapping[str, Any], number: int) -> _Html:
    level = "good" if one["ready"] else "bad"
    counts = [f"{one['queued']:,} queued", f"{len(one['running'])} running"]
    counts += [f"{one['planned_total']:,} planned", f"{one['given_up_total']:,} given up"]
    if one["workers"]:
        counts.append(f"{one['workers']} worker{'' if one['workers'] == 1 else 's'}")
    head = _tag(
        "div",
        _join(
            [
                _tag("h3", one["name"]),
                _state("ready" if one["ready"] else "not ready", level),
                _tag("span", ", ".join(one["kinds"]), class_="dim"),
                _tag("span", " · ".join(counts), class_="dim"),
            ]
        ),
        class_="head",
    )
    parts: list[object] = [head]
    if not one["ready"]:
        parts.append(_note(one["health"], wrong=True))
    if one.get("paused"):
        more = one["paused_total"] - len(one["paused"])
        names = ", ".join(one["paused"]) + (f" and {more:,} more" if more else "")
        parts.append(_note(f"Paused, so that nothing is called for them: {names}."))
    if one["is_limited"]:
        parts.append(
            _note(
                "More than 200 calls within a second: of those, some are not listed. Failures and "
                "calls that wrote are all here."
            )
        )
    if one["running"]:
        parts.append(_running(one["running"]))
    if one["planned"]:
        parts.append(_planned("Planned calls, soonest first.", one["planned"]))
    if one["given_up"]:
        parts.append(
            _planned("Given up: nothing but a change or a resync repeats these.", one["given_up"])
        )
    if one["recent"]:
        summary = _tag("summary", f"Last calls of {one['name']}: {len(one['recent'])}")
        calls = _calls(one["recent"], state, "Newest first.")
        parts.append(_tag("details", _join([summary, calls]), id=f"recent-{number}"))
    return _tag("div", _join(parts), class_="controller")


def _running(calls: Sequence[Mapping[str, Any]]) -> _Html:
    rows = [
        [
            _link(call["namespace"], call["name"]),
            _join(_two(call["callback"], call.get("held_at", ""))),
            _running_for(call),
            _tag("span", _why(call), class_="small"),
            _number(call["attempt"]),
        ]
        for call in calls
    ]
    return _table("Running now.", ("Object", "Callback", "For", "Why", "Attempt#"), rows)


def _running_for(call: Mapping[str, Any]) -> object:
    text = seconds_text(call["seconds"])
    return _state(f"held for {text}", "bad") if call.get("held_at", "") else text


def _why(call: Mapping[str, Any]) -> str:
    return "; ".join(call["reasons"]) or call["action"] or "no reason given"


def _planned(caption: str, rows: Sequence[Mapping[str, Any]]) -> _Html:
    cells = [
        [
            _link_of(row["object"]),
            _when(row["due_in"]),
            _tag("span", _join(_two(row["why"], row["callback"])), class_="small"),
            _number(row["attempt"]),
            _tag("span", row["error"], class_="small"),
        ]
        for row in rows
    ]
    return _table(caption, ("Object", "When", "Why", "Attempt#", "Last error"), cells)


def _when(due_in: float | None) -> object:
    if due_in is None:
        return "given up"
    if due_in < 0:
        return _state(f"overdue for {seconds_text(-due_in)}", "warn")
    return f"in {seconds_text(due_in)}"


def _two(first: str, second: str) -> list[object]:
    return [first, *([_tag("div", second, class_="dim")] if second else [])]


def _calls(
    calls: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
    caption: str,
    *,
    is_of_one: bool = False,
) -> _Html:
    """A table of calls, which begins with their object unless all are of one."""
    rows = []
    seen: set[tuple[str, str, str]] = set()
    for call in calls:
        key = (call["controller"], call["namespace"], call["name"])
        # What an earlier call planned has been, or was replaced.
        result: list[object] = [_outcome({**call, "next_in": None} if key in seen else call)]
        seen.add(key)
        if call["error"]:
            error = call["error"]
            place = " in ".join(part for part in (error["place"], error["function"]) if part)
            result.append(_tag("div", f"{error['type']}: {error['text']}", class_="small"))
            result.append(_tag("div", place, class_="dim small"))
        rows.append(
            [
                *([] if is_of_one else [_link(call["namespace"], call["name"])]),
                _tag("span", _ago(state, call["started"]), class_="time"),
                seconds_text(call["seconds"]),
                _join(_two(call["callback"], call["controller"])),
                _tag("span", _why(call), class_="small"),
                _join(result),
                _writes(call),
            ]
        )
    columns = ("Object", "When", "Took#", "Callback", "Why", "Outcome", "Writes")
    return _table(caption, columns[is_of_one:], rows)


def _writes(call: Mapping[str, Any]) -> object:
    items = [
        _tag(
            "li",
            _join(
                [
                    f"{one['verb']} {one['resource']} ",
                    f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"],
                    " ",
                    _tag(
                        "span",
                        one["status"] or one["error"] or "under way",
                        class_="good" if 200 <= one["status"] < 300 else "bad",
                    ),
                    f" {seconds_text(one['seconds'])}",
                ]
            ),
        )
        for one in call["writes"]
    ]
    if call["omitted_writes"]:
        items.append(_tag("li", f"and {call['omitted_writes']:,} more", class_="dim"))
    return (
        _tag("ul", _join(items), class_="plain small")
        if items
        else _tag("span", "none", class_="dim")
    )


def _failures(state: Mapping[str, Any]) -> _Html:
    groups = state["failures"]
    total = sum(group["count"] for group in groups)
    if not groups:
        return _panel("Failures", "", _empty("No call has failed."))
    rows = []
    for group in groups:
        examples = [_link(o["namespace"], o["name"]) for o in group["objects"]]
        more = group["objects_total"] - len(examples)
        shown = _join(examples, ", ")
        place = " in ".join(part for part in (group["place"], group["function"]) if part)
        rows.append(
            [
                _join(
                    [
                        f"{group['type']}: {group['text']}",
                        _tag("div", place, class_="dim small"),
                    ]
                ),
                _number(group["count"]),
                _tag("span", _ago(state, group["last"]), class_="time"),
                _join(_two(group["callback"], group["controller"])),
                _join([shown, f" and {more:,} more" if more > 0 else ""]),
                _outcome(group),
            ]
        )
    columns = ("Cause", "Times#", "Last", "Callback", "Objects", "Then")
    note = f"{total:,} in {len(groups):,} groups"
    caption = "The last 200 failed calls by cause, the latest cause first."
    return _panel("Failures", note, _table(caption, columns, rows))


def _webhooks(state: Mapping[str, Any]) -> _Html:
    rows = [[_tag("code", one["path"]), one["type"], one["kinds"]] for one in state["webhooks"]]
    if not rows:
        return _panel("Webhooks", "", _empty("There are none."))
    table = _table("The paths that this process serves.", ("Path", "Type", "Kinds"), rows)
    return _panel("Webhooks", f"{len(rows)}", table)


def _objects(state: Mapping[str, Any]) -> _Html:
    rows = [
        [
            _link(one["namespace"], one["name"]),
            one["kind"],
            one["controller"],
            _tag("span", _ago(state, one["time"]), class_="time"),
            seconds_text(one["seconds"]),
            _outcome(one),
        ]
        for one in state["objects"][:50]
    ]
    if not rows:
        return _panel("Objects", "", _empty("No call was made yet."))
    columns = ("Object", "Kind", "Controller", "Last call", "Took#", "Outcome")
    table = _table("The objects that were called for last; each has its timeline.", columns, rows)
    return _panel("Objects", f"the last {len(rows)}", table)


def _runnables(state: Mapping[str, Any]) -> _Html:
    rows = []
    for group, content in state["groups"].items():
        for one in content["runnables"]:
            level = {"running": "good", "failed": "bad"}.get(one["state"], "idle")
            ready = "yes" if one["ready"] else "no"
            rows.append([one["name"], group, _state(one["state"], level), ready])
    if not rows:
        return _panel("Parts", "", _empty("Nothing runs."))
    table = _table("What the manager runs.", ("Part", "Group", "State", "Ready"), rows)
    return _panel("Parts", f"{len(rows)}", table)


# -- one object --------------------------------------------------------------------------------


def _timeline_copies(timeline: Mapping[str, Any]) -> _Html:
    copies = timeline["copies"]
    if not copies:
        return _panel("Object", "", _empty("No cache of this process has an object of this name."))
    parts = []
    for one in copies:
        facts: list[tuple[str, object]] = [
            ("Kind", one["kind"]),
            ("Generation", one["generation"] or "none"),
            ("Resource version", one["resource_version"]),
            ("UID", _tag("code", one["uid"])),
            ("Labels", _tags([f"{key}={value}" for key, value in one["labels"].items()])),
            ("Finalizers", _tags(one["finalizers"])),
            ("Owners", _tags(one["owners"])),
        ]
        if one["deletion_timestamp"]:
            facts.insert(1, ("Being deleted", _state(f"since {one['deletion_timestamp']}", "warn")))
        rows = [_tag("div", _join([_tag("dt", term), _tag("dd", fact)])) for term, fact in facts]
        parts.append(_tag("dl", _join(rows), class_="facts"))
    return _panel(
        "Object", "as the cache has it; spec, status and data are not shown", _join(parts)
    )


def _tags(values: Sequence[object]) -> object:
    if not values:
        return _tag("span", "none", class_="dim")
    return _tag("ul", _join(_tag("li", value) for value in values), class_="tags")


def _timeline_planned(timeline: Mapping[str, Any]) -> _Html:
    if not timeline["planned"]:
        return _panel("Next", "", _empty("No call is planned for it."))
    return _panel(
        "Next", "", _planned("Calls that are planned, or were given up.", timeline["planned"])
    )


def _timeline_calls(timeline: Mapping[str, Any]) -> _Html:
    calls = timeline["calls"]
    if not calls:
        text = "No call for it is recorded. The calls for the last 500 objects are kept."
        return _panel("Timeline", "", _empty(text))
    table = _calls(calls, timeline, "The last calls for it, newest first.", is_of_one=True)
    return _panel("Timeline", "1 call" if len(calls) == 1 else f"{len(calls)} calls", table)


_PANELS: Final[Mapping[str, Mapping[str, tuple[str, Callable[[Mapping[str, Any]], _Html]]]]] = {
    OVERVIEW: {
        "verdict": ("Verdict", _verdict),
        "failures": ("Failures", _failures),
        "controllers": ("Controllers", _controllers),
        "kinds": ("Kinds", _informers),
        "deleting": ("In deletion", _deleting),
        "objects": ("Objects", _objects),
        "webhooks": ("Webhooks", _webhooks),
        "parts": ("Parts", _runnables),
        "process": ("Process", _summary),
    },
    TIMELINE: {
        "timeline": ("Timeline", _timeline_calls),
        "next": ("Next", _timeline_planned),
        "object": ("Object", _timeline_copies),
    },
}


def panels_of(view: str, state: Mapping[str, Any]) -> dict[str, str]:
    """The panels of a view by their id, as HTML without scripts or styles."""
    return {name: str(make(state)) for name, (_, make) in _PANELS[view].items()}


def document(
    view: str, state: Mapping[str, Any], *, title: str, events: str, links: Mapping[str, str]
) -> str:
    """The whole page.

    Args:
        view: :data:`OVERVIEW` or :data:`TIMELINE`.
        state: what the panels show.
        title: its heading.
        events: the URL of its server-sent events.
        links: further pages, by their text.
    """
    panels = panels_of(view, state)
    sections = _join(
        _tag("section", _Html(content), id=name, aria_label=_PANELS[view][name][0])
        for name, content in panels.items()
    )
    anchors = [_tag("a", text, href=f"#{name}") for name, (text, _) in _PANELS[view].items()]
    if view == TIMELINE:
        anchors.insert(0, _tag("a", "Overview", href="/debug/"))
    menu = _tag("ul", _join(_tag("li", anchor) for anchor in anchors))
    find = _Html(
        '<form action="/debug/object" method="get" role="search">'
        '<label>Namespace<input name="namespace" autocomplete="off" spellcheck="false"></label>'
        '<label>Name<input name="name" required autocomplete="off" spellcheck="false"></label>'
        "<button>Find object</button></form>"
    )
    more = _join((_tag("a", text, href=path) for text, path in links.items()), " · ")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_e(title)}</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/debug/page.css"><script src="/debug/page.js" defer></script>'
        f'</head><body data-events="{_e(events)}"><a class="skip" href="#main">To the content</a>'
        f'<header><div class="bar"><h1>{_e(title)}</h1><div class="live">'
        '<p id="status" role="status">As of when it was loaded</p>'
        '<button id="pause" type="button" hidden>Pause</button></div></div>'
        f'<nav aria-label="Panels">{menu}</nav></header><main id="main" tabindex="-1">{sections}'
        f'<section aria-label="Find an object"><div class="head"><h2>Find an object</h2></div>'
        f'<div class="body">{find}</div></section></main><footer><p>Read-only. {more}</p></footer>'
        "</body></html>\n"
    )
