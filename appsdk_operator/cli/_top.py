"""A terminal that follows an operator: the tables of the debug page, from its JSON."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import click
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane
from textual.worker import Worker

from appsdk_operator.runtime import duration_text

_VERSION: Final = 1
_TIMEOUT: Final = 10.0
_PATIENCE: Final = 20.0
"""Seconds for ``kubectl port-forward`` to begin."""
_MOST_BYTES: Final = 1 << 26
_LONGEST: Final = 300
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")

Fetch = Callable[[str], dict[str, Any]]
"""Returns the JSON at a path, for example ``/debug/state.json``."""

_COLORS: Final = {"done": "green", "requeued": "green", "retrying": "yellow", "running": "cyan"}
_NAMES: Final = {"terminal": "failed for good", "fatal": "ended the controller"}


class UnreadableError(click.ClickException):
    """There is no state to show."""


def fetcher(url: str, token: str = "") -> Fetch:
    """Reads JSON below ``url``.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        token: a bearer token for a debug server behind an AuthFilter; ``""``: none.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise click.UsageError(f"{url} is no URL of a debug server, such as http://127.0.0.1:6060")
    base = f"{parts.scheme}://{parts.netloc}"

    def fetch(path: str) -> dict[str, Any]:
        request = urllib.request.Request(f"{base}{path}")  # noqa: S310 - of HTTP, as checked
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                found = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            hint = {401: "give --token-file", 404: "is it a debug server of this kit?"}
            with error:
                text = f"{base} answers {error.code}: {hint.get(error.code, error.reason)}"
            raise UnreadableError(text) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UnreadableError(
                f"{base} cannot be read: {error}. The operator serves it with --debug-address "
                "127.0.0.1:6060; for a pod give its name"
            ) from None
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise UnreadableError(
                f"{base} has the state of another version of the kit: use the command of that one"
            )
        return found

    return fetch


@contextlib.contextmanager
def forwarded(pod: str, port: int, arguments: Sequence[str]) -> Iterator[str]:
    """The URL of a pod's port, by ``kubectl port-forward``, which ends with the block.

    Args:
        pod: the pod, or ``deployment/name`` and the like.
        port: the port of the debug server in it.
        arguments: further arguments of kubectl, such as ``--namespace``.

    Raises:
        click.ClickException: there is no kubectl, or it cannot forward.
    """
    target = pod if "/" in pod else f"pod/{pod}"
    command = ["kubectl", "port-forward", target, f":{port}", *arguments]
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError:
        raise click.ClickException(
            "kubectl is not on PATH: install it, or forward the port otherwise and give the URL"
        ) from None
    lines: list[str] = []
    found, ready = "", threading.Event()

    def read() -> None:
        nonlocal found
        assert process.stdout is not None
        for line in process.stdout:
            match = _FORWARDING.match(line)
            if match and not found:
                found = match.group(1)
                ready.set()
            elif len(lines) < 20:
                lines.append(line.strip())
        ready.set()

    reader = threading.Thread(target=read, name="top/kubectl")
    reader.start()
    try:
        ready.wait(_PATIENCE)
        if not found:
            said = "; ".join(line for line in lines if line) or f"no answer in {_PATIENCE:g} s"
            raise click.ClickException(f"kubectl cannot forward port {port} of {target}: {said}")
        yield f"http://127.0.0.1:{found}"
    finally:
        process.terminate()
        process.wait()
        reader.join()
        if process.stdout is not None:
            process.stdout.close()


def token_of(path: str) -> str:
    """The token in a file; ``""`` without one."""
    return Path(path).read_text().strip() if path else ""


# -- what is shown -------------------------------------------------------------------------------


def plain(value: object) -> str:
    """``value`` on one line, without characters that would steer the terminal."""
    text = str(value)[:_LONGEST].replace("\n", " ")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _ago(state: Mapping[str, Any], time: float | None) -> str:
    return "" if time is None else f"{duration_text(max(0.0, state['time'] - time))} ago"


def _took(seconds: float | None) -> str:
    return "" if seconds is None else duration_text(seconds)


def _object(row: Mapping[str, Any]) -> str:
    return f"{row['namespace']}/{row['name']}" if row["namespace"] else str(row["name"])


def _outcome(row: Mapping[str, Any]) -> Text:
    outcome = str(row["outcome"])
    return Text(plain(_NAMES.get(outcome, outcome)), _COLORS.get(outcome, "red"))


def summary_of(state: Mapping[str, Any]) -> Text:
    """One line about the process."""
    operator = state["operator"]
    election = operator.get("leader_election")
    text = Text.assemble(
        (plain(operator["name"] or "operator"), "bold"),
        "  ",
        ("ready", "green") if operator["ready"] else ("not ready", "red"),
        f"  up {duration_text(max(0.0, state['time'] - operator['started']))}",
    )
    if election is not None:
        leads = election["is_leader"]
        text.append("  leads" if leads else f"  leader: {plain(election['leader'] or 'nobody')}")
    for shards in state["shards"]:
        text.append(f"  {len(shards['held'])} of {shards['count']} shards")
    if operator.get("paused"):
        text.append(f"\n{plain(operator['paused'])}", "yellow")
    if not operator["ready"]:
        text.append(f"\n{plain(operator['health'])}", "red")
    return text


Table = tuple[Sequence[str], Sequence[tuple[str, Sequence[object]]]]
"""The titles of its columns, and its rows with the object that each is about; ``""`` for none."""


def tables_of(state: Mapping[str, Any]) -> dict[str, Table]:
    """The tables by their title."""
    controllers, calls = [], []
    for one in state["controllers"]:
        ready = Text("ready", "green") if one["ready"] else Text(plain(one["health"]), "red")
        numbers = (one["queued"], len(one["running"]), one["planned_total"], one["given_up_total"])
        kinds = ", ".join(one["kinds"])
        controllers.append(("", (one["name"], kinds, *numbers, one["workers"] or "", ready)))
        for call in one["running"]:
            why = "; ".join(call["reasons"]) or call["action"]
            color = "red" if call.get("held_at", "") else "cyan"
            row = (_object(call), one["name"], Text(f"running {_took(call['seconds'])}", color))
            held_at = f"held at {call['held_at']}" if call.get("held_at", "") else ""
            calls.append((_object(call), (*row, call["attempt"], held_at, why)))
        for call in one["planned"]:
            due_in = call["due_in"]
            text = f"overdue for {_took(-due_in)}" if due_in < 0 else f"in {_took(due_in)}"
            due = Text(text, "yellow" if call["error"] or due_in < 0 else "")
            row = (call["object"], one["name"], due)
            calls.append((call["object"], (*row, call["attempt"], call["error"], call["why"])))
        for call in one["given_up"]:
            row = (call["object"], one["name"], Text("given up", "red"))
            calls.append((call["object"], (*row, call["attempt"], call["error"], call["why"])))
    failures = [
        (
            _object(group["objects"][0]) if group["objects"] else "",
            (
                f"{group['type']}: {group['text']}",
                group["count"],
                _ago(state, group["last"]),
                group["callback"],
                group["place"],
                group["objects_total"],
                _outcome(group),
            ),
        )
        for group in state["failures"]
    ]
    kinds_rows = []
    for one in state["informers"]:
        status = Text("synced", "green") if one["ready"] else Text(plain(one["health"]), "red")
        if not one["synced"]:
            status = Text("listing", "yellow")
        last, watch = one["last_event"], one["watch_age"]
        event = "none yet" if last is None else f"{duration_text(last)} ago"
        opened = "not open" if watch is None else duration_text(watch)
        name = f"{one['resource']} {one['selection']}".strip()
        kinds_rows.append(("", (name, one["objects"], event, opened, one["relists"], status)))
    objects = [
        (
            _object(one),
            (
                *(_object(one), one["kind"], one["controller"], _ago(state, one["time"])),
                *(_took(one["seconds"]), _outcome(one)),
            ),
        )
        for one in state["objects"]
    ]
    headings = ("Controller", "Kinds", "Queued", "Running", "Planned", "Given up", "Workers")
    return {
        "Controllers": ((*headings, "Health"), controllers),
        "Calls": (("Object", "Controller", "When", "Attempt", "Last error", "Why"), calls),
        "Failures": (
            ("Cause", "Times", "Last", "Callback", "Place", "Objects", "Then"),
            failures,
        ),
        "Kinds": (("Kind", "Objects", "Last event", "Watch", "Relists", "State"), kinds_rows),
        "Objects": (("Object", "Kind", "Controller", "Last call", "Took", "Outcome"), objects),
    }


def timeline_table(timeline: Mapping[str, Any]) -> Table:
    """The calls for one object."""
    rows = []
    for call in timeline["calls"]:
        error = call["error"]
        writes = ", ".join(
            f"{one['verb']} {one['resource']} {one['name']} {one['status'] or one['error']}"
            for one in call["writes"]
        )
        failed = f"{error['type']}: {error['text']} ({error['place']})" if error else ""
        why = "; ".join(call["reasons"]) or call["action"]
        row = (_ago(timeline, call["started"]), call["callback"], why, _took(call["seconds"]))
        rows.append(("", (*row, _outcome(call), writes, failed)))
    return ("When", "Callback", "Why", "Took", "Outcome", "Writes", "Error"), rows


def as_text(state: Mapping[str, Any]) -> str:
    """All tables as plain text, for pipes."""
    lines = [summary_of(state).plain]
    for title, (columns, rows) in tables_of(state).items():
        cells = [[plain(cell) for cell in row] for _, row in rows]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        lines += ["", title.upper()]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (list(columns), *cells)
        ]
    return "\n".join(lines)


# -- the terminal --------------------------------------------------------------------------------


class _Rows(DataTable[Any]):
    """A table whose rows are replaced in place, so that the cursor stays."""

    def show(self, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Show these rows."""
        if not self.columns:
            self.cursor_type = "row"
            self.zebra_stripes = True
            for column in columns:
                self.add_column(column)
        row, x, y = self.cursor_row, self.scroll_x, self.scroll_y
        self.clear()
        for about, cells in rows:
            shown = [cell if isinstance(cell, Text) else Text(plain(cell)) for cell in cells]
            self.add_row(*shown, label=None, key=None)
            self.about[len(self.about)] = about
        if rows:
            self.move_cursor(row=min(row, len(rows) - 1))
            self.scroll_to(x, y, animate=False)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.about: dict[int, str] = {}

    def clear(self, columns: bool = False) -> _Rows:
        """Remove all rows."""
        self.about = {}
        super().clear(columns)
        return self


def _is_running(reader: Worker[None] | None) -> bool:
    return reader is not None and not reader.is_finished


class _Timeline(Screen[None]):
    """The calls for one object."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "app.pop_screen", "Back")]

    def __init__(self, fetch: Fetch, about: str) -> None:
        super().__init__()
        self._fetch = fetch
        self._about = about
        self._reader: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        yield Static(Text(plain(self._about), "bold"), id="summary")
        yield _Rows(id="timeline")
        yield Footer()

    def on_mount(self) -> None:
        """Read the timeline, now and again."""
        self.query_one(_Rows).focus()
        self._look()
        self.set_interval(2.0, self._look)

    def _look(self) -> None:
        if not _is_running(self._reader):
            self._reader = self.run_worker(self._read, thread=True)

    def _read(self) -> None:
        namespace, _, name = self._about.rpartition("/")
        query = urllib.parse.urlencode({"namespace": namespace, "name": name})
        try:
            timeline = self._fetch(f"/debug/object.json?{query}")
        except click.ClickException:
            return  # the tables behind it say so
        self.app.call_from_thread(self._show, timeline)

    def _show(self, timeline: Mapping[str, Any]) -> None:
        if self.is_mounted:
            self.query_one(_Rows).show(*timeline_table(timeline))


class Top(App[None]):
    """Follows an operator in a terminal; every key is in the footer."""

    TITLE = "appsdk-operator top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { padding: 0 1; height: auto; }
    #problem { padding: 0 1; height: auto; color: $error; display: none; }
    DataTable { height: 1fr; }
    TabbedContent { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("p", "pause", "Pause"),
        Binding("right", "next_table(1)", "Next table", priority=True),
        Binding("left", "next_table(-1)", "Previous table", priority=True),
        Binding("enter", "open", "Timeline of the object", show=True),
    ]

    def __init__(self, fetch: Fetch, *, interval: float = 1.0) -> None:
        """Show what ``fetch`` returns, every ``interval`` seconds."""
        super().__init__()
        self._fetch = fetch
        self._interval = interval
        self._is_paused = False
        self._reader: Worker[None] | None = None
        self._titles = list(tables_of(_NOTHING))

    def compose(self) -> ComposeResult:
        """The summary, the tables and the keys."""
        yield Static(id="summary")
        yield Static(id="problem")
        with Vertical(), TabbedContent():
            for title in self._titles:
                with TabPane(title, id=f"pane-{title.lower()}"):
                    yield _Rows(id=f"table-{title.lower()}")
        yield Footer()

    def on_mount(self) -> None:
        """Read the state, now and again."""
        self.query_one("#table-controllers", _Rows).focus()
        self._look()
        self.set_interval(self._interval, self._look)

    def _look(self) -> None:
        # A page that is slower than the interval is asked once at a time.
        if not self._is_paused and not _is_running(self._reader):
            self._reader = self.run_worker(self._read, thread=True, group="state")

    def _read(self) -> None:
        try:
            state = self._fetch("/debug/state.json")
        except click.ClickException as error:
            self.call_from_thread(self._show_problem, error.message)
            return
        self.call_from_thread(self._show, state)

    def _show_problem(self, text: str) -> None:
        problem = self.screen_stack[0].query_one("#problem", Static)
        problem.update(Text(plain(text)))
        problem.display = True

    def _show(self, state: Mapping[str, Any]) -> None:
        screen = self.screen_stack[0]
        screen.query_one("#problem", Static).display = False
        screen.query_one("#summary", Static).update(summary_of(state))
        for title, (columns, rows) in tables_of(state).items():
            screen.query_one(f"#table-{title.lower()}", _Rows).show(columns, rows)

    def action_pause(self) -> None:
        """Stop following, or go on."""
        self._is_paused = not self._is_paused
        self.notify("paused: p goes on" if self._is_paused else "following again")

    def action_next_table(self, step: int) -> None:
        """Go to another table."""
        if len(self.screen_stack) > 1:
            return
        tabs = self.query_one(TabbedContent)
        names = [f"pane-{title.lower()}" for title in self._titles]
        tabs.active = names[(names.index(tabs.active) + step) % len(names)]
        self.query_one(f"#{tabs.active.replace('pane', 'table')}", _Rows).focus()

    def action_open(self) -> None:
        """Open the timeline of the object in the present row."""
        if len(self.screen_stack) > 1:
            return
        active = self.query_one(TabbedContent).active
        table = self.query_one(f"#{active.replace('pane', 'table')}", _Rows)
        about = table.about.get(table.cursor_row, "")
        if about:
            self.push_screen(_Timeline(self._fetch, about))

    def on_data_table_row_selected(self) -> None:
        """Open the timeline of the object in the row."""
        self.action_open()


_NOTHING: Final[Mapping[str, Any]] = {
    "controllers": [],
    "failures": [],
    "informers": [],
    "objects": [],
}
