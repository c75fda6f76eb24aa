"""A terminal that follows an operator: the tables of the live page, from its JSON."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, final

import click
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane
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

_LONGEST_NAME: Final = 32
_LONG_WAIT: Final = 5.0
"""Seconds after which a controller is behind, as the verdict has it."""
_COLORS: Final = {"done": "green", "requeued": "green", "retrying": "yellow", "running": "cyan"}
_NAMES: Final = {"terminal": "failed for good", "fatal": "ended the controller"}


class UnreadableError(click.ClickException):
    """There is no state to show."""


@final
class Fetcher:
    """Reads JSON from a live page; :meth:`stop` ends what is being read. Thread-safe."""

    def __init__(self, url: str, token: str = "") -> None:
        """Read below ``url``.

        Args:
            url: ``http://host:port`` or ``https://host:port``.
            token: a bearer token for a live page behind an AuthFilter; ``""``: none.

        Raises:
            click.UsageError: it is not such a URL.
        """
        try:
            parts = urllib.parse.urlsplit(url)
            self._place = parts.netloc.rpartition("@")[2]
            if parts.scheme not in ("http", "https") or not self._place:
                raise ValueError("it has no such scheme, or no host")
            http.client.HTTPConnection(self._place)  # refuses what is no host or port
        except (ValueError, http.client.InvalidURL):
            raise click.UsageError(
                f"{url} is not the URL of a live page, such as http://127.0.0.1:6060"
            ) from None
        self._base = f"{parts.scheme}://{self._place}"
        self._is_tls = parts.scheme == "https"
        self._token = token
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
        self._is_stopped = False

    def __call__(self, path: str) -> dict[str, Any]:
        """The JSON at ``path``.

        Raises:
            UnreadableError: there is none, or :meth:`stop` was called.
        """
        make = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = make(self._place, timeout=_TIMEOUT)
        try:
            status, reason, body = self._read(connection, path)
            found = json.loads(body) if status == 200 else None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UnreadableError(
                f"{self._base} cannot be read: {error}. Run the operator with --debug-address "
                "127.0.0.1:6060; for an operator in a pod give the pod's name"
            ) from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
        if status != 200:
            hint = {
                401: "give --token-file",
                404: "is it the live page of an operator of this kit?",
            }
            raise UnreadableError(f"{self._base} answers {status}: {hint.get(status, reason)}")
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise UnreadableError(
                f"{self._base} does not answer in the format of this version of the kit: use the "
                "appsdk-operator that the operator has installed"
            )
        return found

    def _read(self, connection: http.client.HTTPConnection, path: str) -> tuple[int, str, bytes]:
        connection.connect()
        with self._lock:
            if self._is_stopped:
                raise ConnectionAbortedError("stopped")
            self._open.add(connection)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.reason, answer.read(_MOST_BYTES)

    def stop(self) -> None:
        """End what is being read, with an error; nothing is read any more."""
        with self._lock:
            self._is_stopped = True
            for connection in self._open:
                if connection.sock is not None:
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def forwarded(pod: str, port: int, arguments: Sequence[str]) -> Iterator[str]:
    """The URL of a pod's port, by ``kubectl port-forward``, which ends with the block.

    Args:
        pod: the pod, or ``deployment/name`` and the like.
        port: the port of the live page in it.
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
            "kubectl is not on PATH: install it, or forward the port in another way and give the "
            "URL"
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
    """The token in a file; ``""`` without one.

    Raises:
        click.ClickException: there is none; the text has nothing of the file.
    """
    if not path:
        return ""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise click.ClickException(f"the token cannot be read: {error}") from error
    if not re.fullmatch(rb"[!-~]+", token):
        raise click.ClickException(f"{path} has no token: it must have the token alone, on a line")
    return token.decode("ascii")


# -- what is shown -------------------------------------------------------------------------------


def plain(value: object) -> str:
    """``value`` on one line, without characters that would steer the terminal."""
    text = str(value)[:_LONGEST].replace("\n", " ")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def shortened(name: str) -> str:
    """A name in at most 32 columns; of a long one the end, which tells it from others.

    >>> shortened("shops/the-shop-of-the-old-town-of-berlin-14")
    '…op-of-the-old-town-of-berlin-14'
    """
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _ago(state: Mapping[str, Any], time: float | None) -> str:
    return "" if time is None else f"{duration_text(max(0.0, state['time'] - time))} ago"


def _took(seconds: float | None) -> str:
    return "" if seconds is None else duration_text(seconds)


def _object(row: Mapping[str, Any]) -> str:
    return f"{row['namespace']}/{row['name']}" if row["namespace"] else str(row["name"])


def _outcome(row: Mapping[str, Any]) -> Text:
    outcome = str(row["outcome"])
    return Text(plain(_NAMES.get(outcome, outcome)), _COLORS.get(outcome, "red"))


_LEVELS: Final = {"good": "green", "warn": "yellow", "bad": "bold red", "idle": ""}


def summary_of(state: Mapping[str, Any]) -> Text:
    """The verdict, and a line about the process."""
    operator = state["operator"]
    election = operator.get("leader_election")
    text = Text()
    for finding in state["verdict"]:
        if text:
            text.append(" · ")
        text.append(plain(finding["text"]), _LEVELS.get(finding["level"], ""))
    text.append(f"\n{plain(operator['name'] or 'operator')}", "bold")
    text.append(f"  up {duration_text(max(0.0, state['time'] - operator['started']))}")
    if election is not None:
        leads = election["is_leader"]
        text.append("  leads" if leads else f"  leader: {plain(election['leader'] or 'nobody')}")
    for shards in state["shards"]:
        text.append(f"  {len(shards['held'])} of {shards['count']} shards")
    return text


Table = tuple[Sequence[str], Sequence[tuple[str, Sequence[object]]]]
"""The titles of its columns, and its rows with the query of the object that each is about; ``""``
for none."""


def _query(row: Mapping[str, Any]) -> str:
    fields = {name: str(row.get(name, "")) for name in ("kind", "namespace", "name")}
    given = {key: value for key, value in fields.items() if value}
    return urllib.parse.urlencode(given, errors="surrogatepass")  # a key may be any text


def _query_of(text: str, kinds: Sequence[str]) -> str:
    namespace, _, name = text.rpartition("/")
    return _query(
        {"kind": kinds[0] if len(kinds) == 1 else "", "namespace": namespace, "name": name}
    )


def tables_of(state: Mapping[str, Any]) -> dict[str, Table]:
    """The tables by their title; of each the state comes first."""
    controllers = sorted(
        state["controllers"],
        key=lambda one: (one["ready"], -one["failing_total"], -(one["oldest_wait"] or 0.0)),
    )
    calls = [row for one in controllers for row in _calls_of(one)]
    return {
        "Controllers": (
            ("State", "Controller", "Failing", "Given up", "Queued", "Wait"),
            [("", _controller(one)) for one in controllers],
        ),
        "Failing": (
            ("Outcome", "Object", "Since", "Cause", "Next", "Callback"),
            [(_query(row), _failing(state, row)) for row in state["failing"]],
        ),
        "Calls": (("When", "Object", "Why", "Attempt", "Last error", "Controller"), calls),
        "Causes": (
            ("Then", "Times", "Last", "Cause", "Objects", "Place", "Callback"),
            [
                (_query(group["objects"][0]) if group["objects"] else "", _cause(state, group))
                for group in state["failures"]
            ],
        ),
        "Kinds": (
            ("State", "Kind", "Objects", "Last event", "Watch", "Relists"),
            [("", _kind(one)) for one in state["informers"]],
        ),
        "Objects": (
            ("Outcome", "Object", "Last call", "Took", "Kind", "Controller"),
            [(_query(one), _known(state, one)) for one in state["objects"]],
        ),
    }


def _controller(one: Mapping[str, Any]) -> tuple[object, ...]:
    state, wait = Text("ready", "green"), one["oldest_wait"]
    if not one["ready"]:
        state = Text(plain(one["health"]), "red")
    elif one["failing_total"]:
        state = Text("failing", "red" if one["for_good_total"] else "yellow")
    elif (wait or 0.0) >= _LONG_WAIT:
        state = Text("behind", "yellow")
    counts = (one["failing_total"], one["given_up_total"], one["queued"])
    return (state, shortened(one["name"]), *counts, _took(wait))


def _calls_of(one: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[object]]]:
    for call in one["running"]:
        place, is_awaiting = call.get("held_at", ""), call.get("awaiting", False)
        is_held = bool(place) and not is_awaiting
        when = Text(f"running {_took(call['seconds'])}", "red" if is_held else "cyan")
        held_at = f"{'awaits' if is_awaiting else 'held'} at {place}" if place else ""
        row = (when, shortened(_object(call)), call["why"], call["attempt"], held_at, one["name"])
        yield _query(call), row
    for call in (*one["planned"], *one["given_up"]):
        due_in = call["due_in"]
        when = Text("given up", "red")
        if due_in is not None:
            text = f"overdue for {_took(-due_in)}" if due_in < 0 else f"in {_took(due_in)}"
            when = Text(text, "yellow" if call["error"] or due_in < 0 else "")
        cells = (call["why"], call["attempt"], call["error"], one["name"])
        yield _query_of(call["object"], one["kinds"]), (when, shortened(call["object"]), *cells)


def _failing(state: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[object, ...]:
    due_in = row["due_in"]
    after = "" if due_in is None else f"in {_took(max(0.0, due_in))}"
    cause = f"{row['type']}: {row['text']}"
    rest = (_ago(state, row["since"]), cause, after, row["callback"])
    return (_outcome(row), shortened(_object(row)), *rest)


def _cause(state: Mapping[str, Any], group: Mapping[str, Any]) -> tuple[object, ...]:
    cause = f"{group['type']}: {group['text']}"
    counts = (group["count"], _ago(state, group["last"]))
    rest = (group["objects_total"], group["place"], group["callback"])
    return (_outcome(group), *counts, cause, *rest)


def _kind(one: Mapping[str, Any]) -> tuple[object, ...]:
    status = Text("synced", "green") if one["ready"] else Text(plain(one["health"]), "red")
    if not one["synced"]:
        status = Text("listing", "yellow")
    last, watch = one["last_event"], one["watch_age"]
    event = "none yet" if last is None else f"{duration_text(last)} ago"
    opened = "not open" if watch is None else duration_text(watch)
    name = f"{one['resource']} {one['selection']}".strip()
    return (status, shortened(name), one["objects"], event, opened, one["relists"])


def _known(state: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[object, ...]:
    times = (_ago(state, one["time"]), _took(one["seconds"]))
    return (_outcome(one), shortened(_object(one)), *times, one["kind"], one["controller"])


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
        why = call["why"]
        row = (_outcome(call), _ago(timeline, call["started"]), call["callback"], why)
        rows.append(("", (*row, failed, writes, _took(call["seconds"]))))
    return ("Outcome", "When", "Callback", "Why", "Error", "Writes", "Took"), rows


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
        fields = dict(urllib.parse.parse_qsl(self._about))
        name = "/".join(filter(None, (fields.get("namespace", ""), fields.get("name", ""))))
        title = f"{fields.get('kind', '').partition('.')[0]} {name}".strip()
        yield Static(Text(plain(title), "bold"), id="summary")
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
        try:
            timeline = self._fetch(f"/debug/object.json?{self._about}")
        except click.ClickException:
            return  # the tables behind it say so
        self.app.call_from_thread(self._show, timeline)

    def _show(self, timeline: Mapping[str, Any]) -> None:
        if self.is_mounted:
            self.query_one(_Rows).show(*timeline_table(timeline))


_HELP: Final = """\
left, right   the other tables
up, down      the rows
Enter         the timeline of the object in the row: its last calls
/             only rows with what you type; Escape shows all again
s             sort by the next column
p             stop following, or go on
q             quit

The first line is the verdict, as on the operator's live page: what fails,
what is held in deletion, and which queue waits.
Red: nothing repeats it by itself. Yellow: it is tried again."""


class _Help(Screen[None]):
    """What the keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Back")
    ]

    def compose(self) -> ComposeResult:
        yield Static(Text(_HELP), id="summary")
        yield Footer()


def _text_of(cells: Sequence[object]) -> str:
    return " ".join(plain(cell) for cell in cells).casefold()


def _order_by(column: int) -> Callable[[tuple[str, Sequence[object]]], Any]:
    return lambda row: _order_of(row[1][column])


def _order_of(cell: object) -> tuple[bool, float, str]:
    """Numbers by size, before texts."""
    if isinstance(cell, (int, float)):
        return False, float(cell), ""
    return True, 0.0, plain(cell).casefold()


class Top(App[None]):
    """Follows an operator in a terminal; every key is in the footer."""

    TITLE = "appsdk-operator top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { padding: 0 1; height: auto; }
    #search { display: none; }
    #problem { padding: 0 1; height: auto; color: $error; display: none; }
    DataTable { height: 1fr; }
    TabbedContent { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("p", "pause", "Pause"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("right", "next_table(1)", "Next table", priority=True),
        Binding("left", "next_table(-1)", "Previous table", priority=True),
        Binding("enter", "open", "Timeline", show=True),
        Binding("escape", "end_search", "End the search", show=False),
    ]

    def __init__(
        self, fetch: Fetch, *, interval: float = 1.0, stop: Callable[[], None] = lambda: None
    ) -> None:
        """Show what ``fetch`` returns, every ``interval`` seconds; ``stop`` ends a fetch."""
        super().__init__()
        self._stop_fetch = stop
        self._state: Mapping[str, Any] = _NOTHING
        self._search = ""
        self._sorted_by: dict[str, int] = {}
        self._fetch = fetch
        self._interval = interval
        self._is_paused = False
        self._reader: Worker[None] | None = None
        self._titles = list(tables_of(_NOTHING))

    def compose(self) -> ComposeResult:
        """The summary, the tables and the keys."""
        yield Static(id="summary")
        yield Static(id="problem")
        yield Input(placeholder="part of a row; Enter goes to the rows, Escape ends", id="search")
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
        self._state = state
        screen = self.screen_stack[0]
        screen.query_one("#problem", Static).display = False
        screen.query_one("#summary", Static).update(summary_of(state))
        self._show_tables()

    def _show_tables(self) -> None:
        for title, (columns, rows) in tables_of(self._state).items():
            shown = [row for row in rows if self._search in _text_of(row[1])]
            if title in self._sorted_by:
                shown.sort(key=_order_by(self._sorted_by[title]))
            self.screen_stack[0].query_one(f"#table-{title.lower()}", _Rows).show(columns, shown)

    def on_unmount(self) -> None:
        """End what is being fetched: nothing waits for a slow page."""
        self._stop_fetch()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the rows that match."""
        self._search = event.value.casefold()
        self._show_tables()

    def on_input_submitted(self) -> None:
        """Go to the rows."""
        self._table().focus()

    def _title(self) -> str:
        active = self.query_one(TabbedContent).active
        return next(title for title in self._titles if active == f"pane-{title.lower()}")

    def _table(self) -> _Rows:
        return self.query_one(f"#table-{self._title().lower()}", _Rows)

    def action_search(self) -> None:
        """Show only the rows that have what is typed."""
        if len(self.screen_stack) == 1:
            field = self.query_one("#search", Input)
            field.display = True
            field.focus()

    def action_end_search(self) -> None:
        """Show all rows again."""
        if len(self.screen_stack) == 1:
            field = self.query_one("#search", Input)
            field.value, field.display = "", False
            self._table().focus()

    def action_sort(self) -> None:
        """Sort the table by its next column, and after the last one as it comes."""
        if len(self.screen_stack) > 1:
            return
        title = self._title()
        columns = tables_of(self._state)[title][0]
        column = self._sorted_by.pop(title, -1) + 1
        if column < len(columns):
            self._sorted_by[title] = column
        named = columns[column].lower() if column < len(columns) else "urgency"
        self.notify(f"sorted by {named}")
        self._show_tables()

    def action_help(self) -> None:
        """Say what the keys do."""
        if len(self.screen_stack) == 1:
            self.push_screen(_Help())

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
        table = self._table()
        about = table.about.get(table.cursor_row, "")
        if about:
            self.push_screen(_Timeline(self._fetch, about))

    def on_data_table_row_selected(self) -> None:
        """Open the timeline of the object in the row."""
        self.action_open()


_NOTHING: Final[Mapping[str, Any]] = {
    "controllers": [],
    "failing": [],
    "failures": [],
    "informers": [],
    "objects": [],
}
