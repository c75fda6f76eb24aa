"""The live page as HTML: its views, each of panels made of the state of a manager."""

from __future__ import annotations

import shlex
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

import msgspec

from appsdk_operator.manager._servers.markup import (
    Html,
    ago,
    badge,
    dim,
    empty,
    escaped,
    facts,
    folded,
    join,
    labels,
    note,
    number,
    panel,
    small,
    sparkline,
    strip,
    table,
    tag,
    two,
    when,
    with_chart,
)
from appsdk_operator.manager._servers.texts import (
    bytes_text,
    seconds_text,
    short_names,
)
from appsdk_operator.runtime import counted

_FEW: Final = 10
"""Rows of a table before its "all"."""
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
STATES: Final = {
    "failing": "failing",
    "for-good": "failed for good",
    "deleting": "in deletion",
    "running": "running",
    "waiting": "waiting",
    "well": "well",
}
"""The states of objects that the filter knows, worst first."""
_CAUSE: Final = ("controller", "callback", "type", "function", "place")


@final
class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks to see."""

    view: str = "overview"
    """``overview``, ``object``, ``controller`` or ``cause``."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    """The object's, or the controller's."""
    state: str = ""
    """One of :data:`STATES`; ``""``: any."""
    q: str = ""
    """A part of a name, cause or controller."""
    rows: str = ""
    """``all``: more than ten."""
    cause: tuple[str, ...] = ()
    """Controller, callback, type, function and place of a failure."""

    @classmethod
    def of(cls, view: str, query: Mapping[str, Sequence[str]]) -> Asked:
        """What a query asks."""
        given = {name: values[0].strip() for name, values in query.items() if values}
        fields = {n: given.get(n, "") for n in ("kind", "namespace", "name", "state", "q", "rows")}
        if view not in ("object", "controller"):
            fields["name"] = ""  # with one, the events would be those of an object
        cause = tuple(given.get(n, "") for n in _CAUSE) if view == "cause" else ()
        return cls(view=view, cause=cause, **fields)

    @property
    def query(self) -> str:
        """The query that asks for the same; ``""`` without one."""
        fields = ("kind", "namespace", "name", "state", "q", "rows")
        pairs = [(name, str(getattr(self, name))) for name in fields]
        pairs += zip(_CAUSE, self.cause, strict=False)
        return _query({name: value for name, value in pairs if value})

    @property
    def is_filter(self) -> bool:
        """Whether only some objects are wanted."""
        return bool(self.kind or self.namespace or self.state or self.q)

    def has_kind(self, kinds: Iterable[str]) -> bool:
        """Whether one of ``kinds`` is wanted."""
        return not self.kind or any(self.kind.casefold() in kind.casefold() for kind in kinds)

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether an object is wanted, by its ``states`` as well."""
        text = f"{row['namespace']}/{row['name']} {row['cause']} {row['controller']}"
        return (
            self.has_kind([row["kind"]])
            and self.namespace in ("", row["namespace"])
            and self.q.casefold() in text.casefold()
            and (not self.state or self.state in row["states"])
        )


def _query(fields: Mapping[str, str]) -> str:
    found = urllib.parse.urlencode(fields, errors="surrogatepass")
    return f"?{found}" if found else ""


def _link(namespace: str, name: str, kind: str = "", text: str = "") -> Html:
    fields = {"kind": kind, "namespace": namespace, "name": name}
    query = _query({key: value for key, value in fields.items() if value or key != "kind"})
    shown = text or (f"{namespace}/{name}" if namespace else name)
    return tag("a", shown, href=f"/debug/object{query}")


def _link_of(text: str, kinds: Sequence[str] = ()) -> Html:
    namespace, _, name = text.rpartition("/")
    return _link(namespace, name, kinds[0] if len(kinds) == 1 else "")


def _controller_link(name: str, text: str, anchor: str = "") -> Html:
    return tag("a", text, href=f"/debug/controller{_query({'name': name})}{anchor}", title=name)


def _cause_link(row: Mapping[str, Any]) -> Html:
    query = _query({name: str(row[name]) for name in _CAUSE if row[name]})
    return tag("a", _error(row), href=f"/debug/cause{query}")


def _error(row: Mapping[str, Any]) -> str:
    return f"{row['type']}: {row['text']}" if row["text"] else str(row["type"])


def _place(row: Mapping[str, Any]) -> str:
    return " in ".join(part for part in (row["place"], row["function"]) if part)


def _short(state: Mapping[str, Any]) -> Mapping[str, str]:
    names = [str(one["name"]) for one in state["controllers"]]
    return short_names(names, str(state["operator"].get("name") or ""))


def _kind_text(kind: str) -> Html:
    return tag("span", kind.partition(".")[0], title=kind)


def _outcome(call: Mapping[str, Any]) -> Html:
    outcome = str(call["outcome"])
    text = _OUTCOME_TEXTS.get(outcome, outcome)
    if call.get("next_in") is not None:
        due = call["next_in"]
        text += f", again in {seconds_text(due)}" if due > 0 else ", again since due"
    return badge(text, _OUTCOMES.get(outcome, "idle"))


def _all(shown: int, rows: int, asked: Asked, anchor: str) -> Html:
    """A link to the rest of a table."""
    if shown >= rows:
        return Html("")
    query = msgspec.structs.replace(asked, rows="all").query
    path = {"overview": "/debug/"}.get(asked.view, f"/debug/{asked.view}")
    return tag("p", tag("a", f"All {rows:,}", href=f"{path}{query}#{anchor}"), class_="all")


# -- the overview ------------------------------------------------------------------------------

_ANCHORS: Final = {"failing": "/debug/?state=failing#objects", "deleting": "#deleting"}


def _verdict(state: Mapping[str, Any], _: Asked) -> Html:
    items = []
    for finding in state["verdict"]:
        link = _ANCHORS.get(finding["about"], f"#{finding['about']}")
        if finding["controller"]:
            link = f"/debug/controller{_query({'name': finding['controller']})}"
        shown = tag("a", finding["text"], href=link)
        items.append(tag("li", shown, class_=f"state {finding['level']}"))
    return tag("ul", join(items), class_="verdict")


def _summary(state: Mapping[str, Any], _: Asked) -> Html:
    operator = state["operator"]
    leader = state["operator"].get("leader_election")
    known: list[tuple[str, object]] = [
        ("Health", badge("ready", "good") if operator.get("ready") else badge("not ready", "bad")),
        (
            "Running for",
            when(seconds_text(state["time"] - operator["started"]), operator["started"]),
        ),
        ("Leader", "no election" if leader is None else _leader(leader)),
        ("Kit and Python", f"{operator['kit']}, {operator['python']}"),
        ("Process", operator["pid"]),
    ]
    for shards in state["shards"]:
        held = ", ".join(map(str, shards["held"])) or "none"
        text = f"{len(shards['held'])} of {shards['count']} ({held})"
        text += f", {counted(len(shards['members']), 'replica')}"
        known.append((f"Shards {shards['shards']}", text))
    known += [(f"Server {one['name']}", tag("code", one["address"])) for one in state["servers"]]
    known += [
        (f"Certificate of {one['server']}", _certificate(one)) for one in state["certificates"]
    ]
    problem: object = "" if operator.get("ready") else note(operator.get("health", ""), wrong=True)
    if operator.get("paused"):
        text = f"The operator is {operator['paused']}. No call begins meanwhile."
        problem = join([problem, note(text)])
    if operator.get("stopping"):
        problem = join([problem, note("The manager is stopping.")])
    return join([problem, facts(known)])


def _leader(leader: Mapping[str, Any]) -> object:
    if leader.get("is_leader"):
        return badge(f"this one, {leader['identity']}", "good")
    return badge(str(leader.get("leader") or "nobody"), "idle")


def _certificate(row: Mapping[str, Any]) -> object:
    left = row.get("left")
    if left is None:
        return badge(str(row.get("text") or "unknown"), "warn")
    level = "bad" if left <= 0 else "warn" if left < 7 * 86400 else "good"
    return badge("expired" if left <= 0 else f"expires in {seconds_text(left)}", level)


def _informers(state: Mapping[str, Any], asked: Asked) -> Html:
    informers = [one for one in state["informers"] if asked.has_kind([one["kind"]])]
    if not informers:
        return panel("Kinds", "", empty("No kind is watched."))
    rows, problems = [], []
    for one in informers:
        if not one["synced"]:
            status = badge(f"listing, {one['objects']:,} so far", "warn")
        elif one["unreachable_for"] is not None:
            status = badge(f"unreachable for {seconds_text(one['unreachable_for'])}", "bad")
        else:
            status = badge("synced", "good") if one["ready"] else badge("not ready", "bad")
        watch, last = one["watch_age"], one["last_event"]
        rows.append(
            [
                two(one["resource"], one["selection"]),
                status,
                number(one["objects"]),
                bytes_text(one["bytes"]),
                "none yet"
                if last is None
                else when(f"{seconds_text(last)} ago", state["time"] - last),
                "not open" if watch is None else when(seconds_text(watch), state["time"] - watch),
                number(one["relists"]),
                number(one["undecodable"]),
            ]
        )
        if not one["ready"] or one["undecodable"]:
            problems.append(note(one["health"], wrong=True))
        elif one["last_error"] and one["watch_age"] is None:
            problems.append(note(f"{one['resource']}: {one['last_error']}"))
    columns = ("Kind", "State", "Objects#", "Memory#", "Last event", "Watch open for", "Relists#")
    shown = table(
        "What is watched; objects and memory are those of the local copy.",
        (*columns, "Unreadable#"),
        rows[:200],
    )
    synced = sum(one["synced"] for one in informers)
    summary = join([tag("h2", "Kinds"), f" {synced} of {len(informers)} synced"])
    is_well = synced == len(informers) and not problems
    return folded("kinds-of", summary, join([*problems[:20], shown]), is_open=not is_well)


def _controllers(state: Mapping[str, Any], asked: Asked) -> Html:
    names = _short(state)
    found = [one for one in state["controllers"] if asked.has_kind(one["kinds"])]
    if not found:
        return panel("Controllers", "", empty("There is no controller."))
    found.sort(key=lambda one: (one["ready"], -one["failing_total"], -(one["oldest_wait"] or 0.0)))
    rows, more = [], []
    for one in found:
        rows.append(_controller_row(one, names[one["name"]], state))
        content = _controller_parts(one, state, asked, _FEW)
        if content:
            summary = f"Details of {names[one['name']]}"
            # By its name: the order changes, and what a reader opened stays open.
            more.append(folded(f"details-{one['name']}", summary, content))
    columns = ("Controller", "State", "Calls", "Failing", "Given up#", "Queued", "Oldest wait")
    shown = table("", (*columns, "Running#", "Planned#~", "p99#~"), rows)
    running = sum(one["running_total"] for one in found)
    return panel(
        "Controllers",
        f"{len(found)}, {counted(running, 'call')} running",
        join([shown, tag("div", join(more), class_="more")]),
    )


def _controller_row(one: Mapping[str, Any], short: str, state: Mapping[str, Any]) -> list[object]:
    age = state["time"] - state["operator"]["started"]
    history = one["history"] or {name: [] for name in ("calls", "failures", "queued")}
    failing, queued = one["failing_total"], one["queued"]
    failures = history["failures"]
    spark = sparkline(failures, "failures", "bad" if any(failures) else "idle")
    return [
        _controller_link(one["name"], short),
        _controller_state(one),
        with_chart(sum(history["calls"]), sparkline(history["calls"], "calls")),
        with_chart(failing, spark, _trend(failures, age) if failing else ""),
        number(one["given_up_total"]),
        with_chart(queued, sparkline(history["queued"], "queue length", "warn")),
        seconds_text(one["oldest_wait"]),
        number(one["running_total"]),
        number(one["planned_total"]),
        seconds_text(one["p99"]),
    ]


def _controller_state(one: Mapping[str, Any]) -> Html:
    if not one["ready"]:
        return badge("not ready", "bad")
    if one["failing_total"]:
        return badge("failing", "bad" if one["for_good_total"] else "warn")
    if (one["oldest_wait"] or 0.0) >= 5.0:
        return badge("behind", "warn")
    return badge("ready", "good")


def _trend(failures: Sequence[int], age: float) -> str:
    """Whether there are more failed calls in the second half of the time than in the first."""
    half = len(failures) // 2
    before, after = sum(failures[:half]), sum(failures[half:])
    if age < half * 10.0:
        return f"{counted(after, 'failed call')} since the start"
    word = "steady"
    if after > 1.25 * before + 1:
        word = "rising"
    elif before > 1.25 * after + 1:
        word = "falling"
    return f"{word}: {after:,} in 5 min, {before:,} before"


def _controller_parts(
    one: Mapping[str, Any], state: Mapping[str, Any], asked: Asked, most: int
) -> Html:
    parts: list[object] = []
    kinds, name, now = one["kinds"], one["name"], state["time"]
    if not one["ready"]:
        parts.append(note(one["health"], wrong=True))
    if one.get("paused"):
        more = one["paused_total"] - len(one["paused"])
        names = ", ".join(one["paused"]) + (f" and {more:,} more" if more else "")
        parts.append(note(f"Paused, so that nothing is called for them: {names}."))
    if one["is_limited"]:
        parts.append(
            note(
                "There were more than 200 calls within a second, and some are not listed. All "
                "failures are listed, and all calls that wrote."
            )
        )
    if one["queued"]:
        parts.append(_waiting(one))
    own = msgspec.structs.replace(asked, view="controller", name=name, rows="")
    sections: list[tuple[str, Sequence[Any], int, Callable[[Sequence[Any]], Html]]] = [
        ("running", one["running"], one["running_total"], _running),
        (
            "planned",
            one["planned"],
            one["planned_total"],
            lambda rows: _planned("Planned calls, soonest first.", rows, kinds, now),
        ),
        (
            "given-up",
            one["given_up"],
            one["given_up_total"],
            lambda rows: _planned(
                "Given up: only a change or a resync repeats these.", rows, kinds, now
            ),
        ),
        (
            "recent",
            one["recent"],
            len(one["recent"]),
            lambda rows: _calls(rows, state, "Last calls, newest first."),
        ),
    ]
    for anchor, rows, total, make in sections:
        if rows:
            shown = rows[:most]
            parts += [make(shown), _all(len(shown), len(rows), own, anchor)]
            if total > len(rows) == len(shown):
                parts.append(empty(f"{total - len(rows):,} more are not listed."))
    return join(parts)


def _waiting(one: Mapping[str, Any]) -> Html:
    """Why the queue waits."""
    awaiting = one["awaiting_total"]
    busy = one["running_total"] - awaiting
    text = counted(one["queued"], "request waits", "requests wait")
    if one["oldest_wait"] is not None:
        text += f", the oldest for {seconds_text(one['oldest_wait'])}"
    if one["workers"]:
        text += f": {busy} of {counted(one['workers'], 'worker')} busy"
    if awaiting:
        text += f", {counted(awaiting, 'call awaits', 'calls await')} something"
    holding = (call for call in one["running"] if not call.get("awaiting"))
    longest = max(holding, key=lambda call: call["seconds"], default=None)
    if longest is not None:
        name = "/".join(part for part in (longest["namespace"], longest["name"]) if part)
        text += f", with {name} for {seconds_text(longest['seconds'])}"
        if longest.get("held_at"):
            text += f" at {longest['held_at']}"
    names = one.get("waiting", ())
    if names:
        text += f". Next: {', '.join(names[:5])}"
    return note(f"{text}.")


def _running(calls: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            _link(call["namespace"], call["name"], call["kind"]),
            two(call["callback"], call.get("held_at", "")),
            _running_for(call),
            small(call["why"]),
            number(call["attempt"]),
        ]
        for call in calls
    ]
    return table("Running now.", ("Object", "Callback", "For", "Why", "Attempt#"), rows)


def _running_for(call: Mapping[str, Any]) -> object:
    text = seconds_text(call["seconds"])
    if call.get("awaiting"):
        return f"awaits for {text}"
    return badge(f"held for {text}", "bad") if call.get("held_at", "") else text


def _planned(
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    kinds: Sequence[str],
    now: float,
    kind: str = "",
) -> Html:
    kinds = [kind] if kind else kinds
    cells = [
        [
            _link_of(row["object"], kinds),
            _due(row["due_in"], now),
            small(two(row["why"], row["callback"])),
            number(row["attempt"]),
            small(row["error"]),
        ]
        for row in rows
    ]
    return table(caption, ("Object", "When", "Why", "Attempt#", "Last error"), cells)


def _due(due_in: float | None, now: float) -> object:
    if due_in is None:
        return badge("given up", "bad")
    if due_in < 0:
        return badge(f"overdue for {seconds_text(-due_in)}", "warn")
    return when(f"in {seconds_text(due_in)}", now + due_in)


def _calls(
    calls: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
    caption: str,
    *,
    is_of_one: bool = False,
) -> Html:
    """A table of calls, which begins with their object unless all are of one."""
    rows = []
    seen: set[tuple[str, str, str, str]] = set()
    for call in calls:
        key = (call["controller"], call["callback"], call["namespace"], call["name"])
        # What an earlier call planned has been, or was replaced.
        result: list[object] = [_outcome({**call, "next_in": None} if key in seen else call)]
        seen.add(key)
        controller = str(call["controller"]).removeprefix(f"{state['operator']}/")
        if call["error"]:
            result.append(tag("div", _error(call["error"]), class_="small"))
            result.append(dim(_place(call["error"])))
        rows.append(
            [
                *([] if is_of_one else [_link(call["namespace"], call["name"], call["kind"])]),
                ago(state, call["started"]),
                join(result),
                small(call["why"]),
                two(call["callback"] or "none", controller if is_of_one else ""),
                seconds_text(call["seconds"]),
                _writes(call),
            ]
        )
    columns = ("Object", "When", "Outcome", "Why", "Callback", "Took#", "Writes")
    return table(caption, columns[is_of_one:], rows)


def _writes(call: Mapping[str, Any]) -> object:
    items = [
        tag(
            "li",
            join(
                [
                    f"{one['verb']} {one['resource']} ",
                    f"{one['namespace']}/{one['name']}" if one["namespace"] else one["name"],
                    " ",
                    tag(
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
        items.append(tag("li", f"and {call['omitted_writes']:,} more", class_="dim"))
    return (
        tag("ul", join(items), class_="plain small") if items else tag("span", "none", class_="dim")
    )


# -- causes ------------------------------------------------------------------------------------


def _causes(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The causes of failures, those for which most objects fail now first."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for group in state["failures"]:
        key = tuple(str(group[name]) for name in _CAUSE)
        found[key] = {**group, "failing": [], "since": group["first"]}
    for row in state["failing"]:
        key = tuple(str(row[name]) for name in _CAUSE)
        cause = found.setdefault(
            key,
            {
                **{name: row[name] for name in (*_CAUSE, "text", "outcome")},
                "count": None,
                "last": None,
                "next_in": None,
                "since": row["since"],
                "objects": [],
                "objects_total": 0,
                "failing": [],
            },
        )
        cause["failing"].append(row)
        known = [time for time in (cause["since"], row["since"]) if time is not None]
        cause["since"] = min(known, default=None)
    return sorted(found.values(), key=lambda cause: -len(cause["failing"]))


def _failures(state: Mapping[str, Any], asked: Asked) -> Html:
    causes = _causes(state)
    if asked.is_filter:
        rows = {(row["kind"], row["namespace"], row["name"]) for row in _wanted(state, asked)}
        causes = [
            cause
            for cause in causes
            if any(
                (one["kind"], one["namespace"], one["name"]) in rows
                for one in (*cause["failing"], *cause["objects"])
            )
        ]
    if not causes:
        return panel("Failures", "", empty("No call has failed."))
    names, shown = _short(state), causes if asked.rows else causes[:_FEW]
    cells = []
    for cause in shown:
        now = len(cause["failing"])
        failing = badge(counted(now, "object"), "bad") if now else badge("works again", "good")
        examples = cause["failing"] or cause["objects"]
        links = join(
            [_link(one["namespace"], one["name"], one["kind"]) for one in examples[:1]], ", "
        )
        rest = max(now, cause["objects_total"]) - len(examples[:1])
        cells.append(
            [
                two(_cause_link(cause), _place(cause)),
                two(failing, names.get(cause["controller"], cause["controller"])),
                ago(state, cause["since"]),
                join([ago(state, cause["last"]), dim(_times(cause["count"]))]),
                small(join([links, f" and {rest:,} more" if rest > 0 else ""])),
                _outcome(cause),
            ]
        )
    columns = ("Cause", "Failing now", "Since", "Last", "Objects~", "Then")
    remark = f"{counted(len(causes), 'cause')}, of the last 200 failed calls and all that fail now"
    content = [table("", columns, cells), _all(len(shown), len(causes), asked, "failures")]
    return panel("Failures", remark, join(content))


def _times(count: int | None) -> str:
    return "" if count is None else counted(count, "call")


def _cause_page(state: Mapping[str, Any], asked: Asked) -> Html:
    causes = [one for one in _causes(state) if tuple(str(one[n]) for n in _CAUSE) == asked.cause]
    if not causes:
        return panel("Cause", "", empty("Of the last failed calls, none has this cause."))
    (cause,) = causes
    known: list[tuple[str, object]] = [
        ("Error", _error(cause)),
        ("Place", tag("code", _place(cause) or "unknown")),
        ("Callback", cause["callback"]),
        ("Controller", _controller_link(cause["controller"], cause["controller"])),
        ("Failing now", counted(len(cause["failing"]), "object")),
        ("Since", ago(state, cause["since"])),
        ("Last", ago(state, cause["last"])),
        ("Recorded", _times(cause["count"])),
    ]
    failing = {(one["namespace"], one["name"]) for one in cause["failing"]}
    others = [o for o in cause["objects"] if (o["namespace"], o["name"]) not in failing]
    rows = [_failing_row(state, one) for one in cause["failing"]]
    parts: list[object] = [facts(known)]
    columns = ("Object", "Outcome", "Since", "Failures#", "Why", "Next")
    if rows:
        parts.append(table("The objects that fail with it now.", columns, rows))
    if others:
        links = [_link(one["namespace"], one["name"], one["kind"]) for one in others]
        parts.append(note(join(["Failed with it, and do not any more: ", join(links, ", ")])))
    return panel("Cause", "", join(parts))


def _failing_row(state: Mapping[str, Any], one: Mapping[str, Any]) -> list[object]:
    return [
        _link(one["namespace"], one["name"], one["kind"]),
        _outcome(one),
        ago(state, one["since"]),
        number(one["failures"]),
        small(one["why"]),
        "" if one["due_in"] is None else _due(one["due_in"], state["time"]),
    ]


# -- objects -----------------------------------------------------------------------------------


def objects_of(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects that the state names, each once with all its ``states``, the worst first."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add(row: Mapping[str, Any], states: Sequence[str], /, **more: Any) -> None:
        key = (row["kind"], row["namespace"], row["name"])
        one = found.setdefault(
            key,
            {
                **dict(zip(("kind", "namespace", "name"), key, strict=True)),
                "states": [],
                "cause": "",
                "since": None,
                "why": "",
                "controller": "",
                "row": None,
                "outcome": "",
            },
        )
        one["states"] += [each for each in states if each not in one["states"]]
        for name, value in more.items():
            one[name] = one[name] or value

    for row in state["failing"]:
        states = ["failing", *([] if row["due_in"] is not None else ["for-good"])]
        add(
            row,
            states,
            cause=_error(row),
            since=row["since"],
            why=row["why"],
            controller=row["controller"],
            row=row,
            outcome=row["outcome"],
        )
    for row in state["deleting"]:
        add(row, ["deleting"], since=row["since"], why="clean-up")
    for one in state["controllers"]:
        for call in one["running"]:
            began = state["time"] - call["seconds"]
            more = {"since": began, "why": call["why"], "controller": one["name"]}
            add(call, ["running"], **more, outcome="running")
        for text in one.get("waiting", ()):
            namespace, _, name = text.rpartition("/")
            kind = one["kinds"][0] if len(one["kinds"]) == 1 else ""
            reference = {"kind": kind, "namespace": namespace, "name": name}
            add(reference, ["waiting"], controller=one["name"])
    for row in state["objects"]:
        key = (row["kind"], row["namespace"], row["name"])
        states = [] if key in found else ["well"]
        more = {"since": row["time"], "why": row["why"], "controller": row["controller"]}
        add(row, states, **more, outcome=row["outcome"])
    order = list(STATES)
    return sorted(found.values(), key=lambda one: min(map(order.index, one["states"])))


def _wanted(state: Mapping[str, Any], asked: Asked) -> list[dict[str, Any]]:
    return [row for row in objects_of(state) if asked.matches(row)]


def _objects(state: Mapping[str, Any], asked: Asked) -> Html:
    found = _wanted(state, asked)
    if not found:
        text = "No known object matches the filter." if asked.is_filter else ""
        return panel("Objects", "", empty(text or "No call was made yet."))
    names = _short(state)
    shown = found if asked.is_filter or asked.rows else found[:_FEW]
    rows = [
        [
            _link(one["namespace"], one["name"], one["kind"]),
            _kind_text(one["kind"]),
            _object_state(one),
            small(_cause_link(one["row"]) if one["row"] else ""),
            ago(state, one["since"]),
            small(one["why"]),
            names.get(one["controller"], one["controller"]),
        ]
        for one in shown[:500]
    ]
    columns = ("Object", "Kind~", "Outcome", "Cause", "Since", "Why", "Controller~")
    matching = counted(len(found), "matches the filter", "match the filter")
    remark = matching if asked.is_filter else "failing ones first"
    content = [table("", columns, rows), _all(len(shown), len(found), asked, "objects")]
    return panel("Objects", remark, join(content))


def _object_state(one: Mapping[str, Any]) -> Html:
    states = one["states"]
    level = "bad" if "for-good" in states else "warn" if "failing" in states else "idle"
    if states == ["well"]:
        return _outcome(one)
    worst = [STATES[each] for each in STATES if each in states]
    if "for-good" in states:
        worst.remove("failing")
    return badge(", ".join(worst), "warn" if states == ["deleting"] else level)


def _deleting(state: Mapping[str, Any], asked: Asked) -> Html:
    failing = {(row["kind"], row["namespace"], row["name"]): row for row in state["failing"]}
    found = [
        one
        for one in state["deleting"]
        if asked.has_kind([one["kind"]]) and asked.namespace in ("", one["namespace"])
    ]
    if not found:
        return panel("In deletion", "", empty("No object waits for its finalizers."))
    rows = []
    for one in found if asked.rows else found[:_FEW]:
        why = failing.get((one["kind"], one["namespace"], one["name"]))
        rows.append(
            [
                _link(one["namespace"], one["name"], one["kind"]),
                _kind_text(one["kind"]),
                ago(state, one["since"]),
                small("" if why is None else _cause_link(why)),
                labels(one["finalizers"]),
            ]
        )
    columns = ("Object", "Kind~", "Deleted", "Cause", "Finalizers")
    content = [table("", columns, rows), _all(len(rows), len(found), asked, "deleting")]
    return panel("In deletion", f"{len(found):,}, the oldest first", join(content))


def _webhooks(state: Mapping[str, Any], _: Asked) -> Html:
    rows = [[tag("code", one["path"]), one["type"], one["kinds"]] for one in state["webhooks"]]
    content = empty("There are none.")
    if rows:
        content = table("The paths that this process serves.", ("Path", "Type", "Kinds"), rows)
    return folded("webhooks-of", join([tag("h2", "Webhooks"), f" {len(rows)}"]), content)


def _runnables(state: Mapping[str, Any], _: Asked) -> Html:
    rows, failed = [], 0
    for group, content in state["groups"].items():
        for one in content["runnables"]:
            level = {"running": "good", "failed": "bad"}.get(one["state"], "idle")
            failed += level == "bad"
            ready = "yes" if one["ready"] else "no"
            rows.append([one["name"], group, badge(one["state"], level), ready])
    shown = empty("Nothing runs.")
    if rows:
        shown = table("What the manager runs.", ("Part", "Group", "State", "Ready"), rows[:200])
    summary = join([tag("h2", "Parts"), f" {len(rows)}"])
    return folded("parts-of", summary, shown, is_open=bool(failed))


# -- one controller ----------------------------------------------------------------------------


def _controller_page(state: Mapping[str, Any], asked: Asked) -> Html:
    found = [one for one in state["controllers"] if one["name"] == asked.name]
    if not found:
        return panel("Controller", "", empty("There is no controller of this name."))
    (one,) = found[:1]
    columns = ("Controller", "State", "Calls", "Failing", "Given up#", "Queued", "Oldest wait")
    shown = table(
        "", (*columns, "Running#", "Planned#~", "p99#~"), [_controller_row(one, one["name"], state)]
    )
    workers = [counted(one["workers"], "worker")] if one["workers"] else []
    remark = ", ".join([*one["kinds"], *workers])
    parts = _controller_parts(one, state, asked, 50)
    return panel("Controller", remark, join([shown, parts]))


# -- one object --------------------------------------------------------------------------------


def _object_copies(timeline: Mapping[str, Any], _: Asked) -> Html:
    copies = timeline["copies"]
    if not copies:
        return panel("Object", "", empty("No cache of this process has an object of this name."))
    parts: list[object] = []
    for one in copies:
        known: list[tuple[str, object]] = [
            ("Kind", one["kind"]),
            ("Owned by", _references(one["owned_by"])),
            ("Owns", _references(one["owns"])),
            ("Finalizers", labels(one["finalizers"])),
            ("Labels", labels([f"{key}={value}" for key, value in one["labels"].items()])),
            ("Generation", one["generation"] or "none"),
            ("Resource version", one["resource_version"]),
            ("UID", tag("code", one["uid"])),
        ]
        if one["deletion_timestamp"]:
            known.insert(1, ("Being deleted", badge(f"since {one['deletion_timestamp']}", "warn")))
        parts += [facts(known), _kubectl(one["kind"], timeline)]
    remark = "as the cache has it; spec, status and data are not shown"
    return panel("Object", remark, join(parts))


def _references(rows: Sequence[Mapping[str, str]]) -> Html:
    return labels(
        [
            _link(
                row["namespace"],
                row["name"],
                row["kind"],
                f"{row['kind'].partition('.')[0]} {row['name']}",
            )
            for row in rows
        ]
    )


def _kubectl(kind: str, timeline: Mapping[str, Any]) -> Html:
    resource, _, version_and_group = kind.partition(".")
    # kubectl takes resource.version.group, and for a kind of the core group the resource alone.
    named = kind if "." in version_and_group else resource
    parts = ["kubectl", "get", named, timeline["name"], "-o", "yaml"]
    if timeline["namespace"]:
        parts[2:2] = ["-n", timeline["namespace"]]
    # The names of roles may have spaces, semicolons and all else that a shell carries out.
    return tag("p", tag("code", shlex.join(parts)), class_="copy", title="Click, then copy")


def _object_planned(timeline: Mapping[str, Any], _: Asked) -> Html:
    if not timeline["planned"]:
        return panel("Next", "", empty("No call is planned for it."))
    caption = "Calls that are planned, or were given up."
    shown = _planned(caption, timeline["planned"], (), timeline["time"], timeline["kind"])
    return panel("Next", "", shown)


def _object_calls(timeline: Mapping[str, Any], _: Asked) -> Html:
    calls = timeline["calls"]
    if not calls:
        text = "No call for it is recorded. The calls for the last 500 objects are kept."
        return panel("Timeline", "", empty(text))
    marks = []
    for call in reversed(calls):
        outcome = _OUTCOME_TEXTS.get(call["outcome"], call["outcome"])
        before = timeline["time"] - call["started"]
        text = f"{seconds_text(before)} ago: {call['callback'] or call['why']}, {outcome}"
        marks.append((before, _OUTCOMES.get(call["outcome"], "idle"), text))
    span = max(60.0, *(before for before, _, _ in marks))
    shown = _calls(calls, timeline, "", is_of_one=True)
    content = join([strip(marks, span), shown])
    return panel("Timeline", f"{counted(len(calls), 'call')} within {seconds_text(span)}", content)


_PANELS: Final[
    Mapping[str, Mapping[str, tuple[str, Callable[[Mapping[str, Any], Asked], Html]]]]
] = {
    "overview": {
        "verdict": ("Verdict", _verdict),
        "controllers": ("Controllers", _controllers),
        "failures": ("Failures", _failures),
        "deleting": ("In deletion", _deleting),
        "objects": ("Objects", _objects),
        "kinds": ("Kinds", _informers),
        "webhooks": ("Webhooks", _webhooks),
        "parts": ("Parts", _runnables),
        "process": ("Process", _summary),
    },
    "object": {
        "timeline": ("Timeline", _object_calls),
        "next": ("Next", _object_planned),
        "object": ("Object", _object_copies),
    },
    "controller": {"controller": ("Controller", _controller_page)},
    "cause": {"cause": ("Cause", _cause_page)},
}


def panels_of(asked: Asked, state: Mapping[str, Any]) -> dict[str, str]:
    """The panels of a view by their id, as HTML without scripts or styles."""
    return {name: str(make(state, asked)) for name, (_, make) in _PANELS[asked.view].items()}


def document(
    asked: Asked, state: Mapping[str, Any], *, title: str, operator: str, links: Mapping[str, str]
) -> str:
    """The whole page.

    Args:
        asked: what it is to show.
        state: what the panels show; of an object its timeline.
        title: its heading.
        operator: the operator's name, for the titles of other pages than the overview.
        links: further pages, by their text.
    """
    titles = _PANELS[asked.view]
    sections = {
        name: tag("section", Html(content), id=name, aria_label=titles[name][0])
        for name, content in panels_of(asked, state).items()
    }
    process = sections.pop("process", "")
    anchors = [tag("a", text, href=f"#{name}") for name, (text, _) in titles.items()][1:]
    if asked.view != "overview":
        anchors = [tag("a", "Overview", href="/debug/"), *(anchors if len(titles) > 1 else ())]
    menu = tag("ul", join(tag("li", anchor) for anchor in anchors))
    events = f"/debug/events{asked.query}"
    if asked.view in ("controller", "cause"):
        events += f"{'&' if asked.query else '?'}view={asked.view}"
    more = join((tag("a", text, href=path) for text, path in links.items()), " · ")
    first = list(sections.values())
    form = _filter_form(asked, state)
    if asked.view == "overview":
        first.insert(1, form)
    else:
        first.append(form)
    name = f"{title} · {operator}" if operator and operator != title else title
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escaped(name)}</title><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="/debug/page.css"><script src="/debug/page.js" defer></script>'
        f'</head><body data-events="{escaped(events)}">'
        '<a class="skip" href="#main">To the content</a>'
        f'<header><div class="bar"><h1>{escaped(title)}</h1><div class="live">'
        '<p id="status" role="status">As of when it was loaded</p>'
        '<button id="pause" type="button" hidden>Pause</button></div></div>'
        f'<nav aria-label="Panels">{menu}</nav></header><main id="main" tabindex="-1">'
        f"{join(first)}</main><footer>{process}<p>Read-only. {more}</p></footer></body></html>\n"
    )


def _filter_form(asked: Asked, state: Mapping[str, Any]) -> Html:
    is_overview = asked.view == "overview"
    kinds = sorted({kind for one in state.get("controllers", ()) for kind in one["kinds"]})
    kind = asked.kind if is_overview else ""
    if kind and kind not in kinds:
        kinds.append(kind)
    fields = [
        *([_select("Kind", "kind", {each: each for each in kinds}, kind)] if kinds else ()),
        _input("Namespace", "namespace", asked.namespace if is_overview else ""),
        _select("State", "state", STATES, asked.state),
        _input("Name or cause", "q", asked.q),
        tag("button", "Filter"),
    ]
    if asked.is_filter and is_overview:
        fields.append(tag("a", "All objects", href="/debug/"))
    return tag(
        "form", join(fields), action="/debug/", method="get", role="search", aria_label="Objects"
    )


def _input(label: str, name: str, value: str) -> Html:
    options = {"autocomplete": "off", "spellcheck": "false"}
    field = f'<input name="{name}" value="{escaped(value)}"'
    field += "".join(f' {key}="{value}"' for key, value in options.items())
    return tag("label", join([label, Html(f"{field}>")]))


def _select(label: str, name: str, choices: Mapping[str, str], chosen: str) -> Html:
    options = [Html('<option value="">any</option>')]
    for value, text in choices.items():
        options.append(
            tag(
                "option", text, value=value, **({"selected": "selected"} if value == chosen else {})
            )
        )
    return tag("label", join([label, tag("select", join(options), name=name)]))
