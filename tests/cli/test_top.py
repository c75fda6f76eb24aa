"""``appsdk-operator top``: its tables, its keys, and where it reads from."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socketserver
import stat
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from appsdk_operator import cli
from appsdk_operator.cli import _top
from appsdk_operator.manager import ProfileServer, ProfileServerOptions
from appsdk_operator.runtime import StopSignal, ThreadGroup

EVIL = "[red]\x1b]0;owned\x07[/] /etc"


def call(name: str = "web", **changes: Any) -> dict[str, Any]:
    write = {"verb": "update", "resource": "pods", "name": name, "status": 200, "error": ""}
    return {
        "namespace": "default",
        "name": name,
        "kind": "Site",
        "callback": "reconcile",
        "reasons": ["updated"],
        "why": "updated",
        "action": "",
        "attempt": 0,
        "started": 90.0,
        "seconds": 0.5,
        "outcome": "done",
        "error": None,
        "writes": [write],
        "controller": "sites",
        **changes,
    }


def state(name: str = "web") -> dict[str, Any]:
    planned = {"object": f"default/{name}", "why": "retry", "attempt": 2, "error": EVIL}
    return {
        "version": 1,
        "time": 100.0,
        "operator": {
            "name": "sites",
            "ready": True,
            "health": "",
            "started": 40.0,
            "leader_election": {"identity": "a", "leader": "a", "is_leader": True},
        },
        "shards": [],
        "controllers": [
            {
                "name": "sites",
                "kinds": ["Site"],
                "ready": True,
                "health": "",
                "workers": 2,
                "queued": 3,
                "running": [call()],
                "planned": [{**planned, "due_in": 5.0}],
                "planned_total": 1,
                "given_up": [{**planned, "due_in": None}],
                "given_up_total": 1,
                "failing_total": 2,
                "for_good_total": 1,
                "oldest_wait": 7.0,
            }
        ],
        "verdict": [
            {
                "text": f"2 objects failing (1 for good) {EVIL}",
                "level": "bad",
                "about": "failing",
                "controller": "",
            },
            {
                "text": "sites: 3 wait",
                "level": "warn",
                "about": "controllers",
                "controller": "sites",
            },
        ],
        "failing": [
            {
                **dict.fromkeys(("why", "function", "place"), ""),
                "controller": "sites",
                "callback": "reconcile",
                "kind": "Site",
                "namespace": "default",
                "name": each,
                "type": "ValueError",
                "text": EVIL,
                "attempt": 1,
                "since": 40.0,
                "failures": 3,
                "due_in": due_in,
                "outcome": "terminal" if due_in is None else "retrying",
            }
            for each, due_in in ((name, None), ("a-name-that-is-longer-than-its-column", 5.0))
        ],
        "failures": [
            {
                "type": "ValueError",
                "text": EVIL,
                "count": 4,
                "last": 99.0,
                "place": "a.py:1",
                "callback": "reconcile",
                "outcome": "terminal",
                "objects_total": 1,
                "objects": [{"namespace": "default", "name": name}],
            }
        ],
        "informers": [
            {
                "resource": "sites",
                "selection": "",
                "objects": 7,
                "synced": True,
                "ready": True,
                "last_event": None,
                "watch_age": 3.0,
                "relists": 0,
            }
        ],
        "objects": [{**call(name), "time": 98.0}],
    }


def timeline(name: str = "web") -> dict[str, Any]:
    error = {"type": "ValueError", "text": "no", "place": "a.py:1"}
    return {"version": 1, "time": 100.0, "calls": [call(name, error=error, outcome="given up")]}


def serve(check: Callable[[str], None], **options: Any) -> None:
    """Call ``check`` with the URL of a debug server."""
    server = ProfileServer(
        ProfileServerOptions(address="127.0.0.1:0", **options),
        state=state,
        timeline=lambda _, name, __: timeline(name),
        client=object(),  # type: ignore[arg-type]
    )
    stop, threads = StopSignal(), ThreadGroup("served")
    threads.start("run", lambda: server.run(stop))
    try:
        # What the server's threads import has to be compiled before commands are parsed: Python
        # 3.11 cannot do both at once (gh-106905).
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{server.url}/debug/page.css").close()
        check(server.url)
    finally:
        stop.set()
        threads.join(10)


def test_the_terminal_shows_each_table_and_the_timeline_of_an_object() -> None:
    asked: list[str] = []

    def fetch(path: str) -> dict[str, Any]:
        asked.append(path)
        return timeline() if "object.json" in path else state()

    async def look() -> None:
        app = _top.Top(fetch, interval=3600.0)
        async with app.run_test(size=(120, 30)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            table = app.query_one("#table-controllers", _top.DataTable)
            cells = [str(cell) for cell in table.get_row_at(0)]
            assert cells == ["failing", "sites", "2", "1", "3", "7 s"]
            await pilot.press("right")
            assert app.query_one(_top.TabbedContent).active == "pane-failing"
            await pilot.press("right")
            assert app.query_one(_top.TabbedContent).active == "pane-calls"
            await pilot.press("enter")
            await pilot.pause()
            await app.workers.wait_for_complete()
            await pilot.pause()
            shown = app.screen.query_one(_top.DataTable)
            cells = [str(cell) for cell in shown.get_row_at(0)]
            assert cells[0] == "given up"
            assert cells[4:6] == ["ValueError: no (a.py:1)", "update pods web 200"]
            await pilot.press("escape")
            await pilot.press("left", "left")
            assert app.query_one(_top.TabbedContent).active == "pane-controllers"
            await pilot.press("q")

    asyncio.run(look())
    assert "/debug/object.json?kind=Site&namespace=default&name=web" in asked


def test_a_page_that_is_slower_than_the_interval_is_asked_once_at_a_time() -> None:
    asked: list[str] = []
    answers = threading.Event()

    def fetch(path: str) -> dict[str, Any]:
        asked.append(path)
        answers.wait(20.0)
        return timeline() if "object.json" in path else state()

    async def look() -> None:
        app = _top.Top(fetch, interval=3600.0)
        async with app.run_test() as pilot:
            await pilot.pause()
            for _ in range(5):
                app._look()
            await pilot.pause()
            assert len(asked) == 1
            answers.set()
            await app.workers.wait_for_complete()
            app._look()
            await app.workers.wait_for_complete()
            assert len(asked) == 2

    try:
        asyncio.run(look())
    finally:
        answers.set()


def test_an_overdue_call_and_one_that_is_held_are_said_to_be_so() -> None:
    shown = state()
    (controller,) = shown["controllers"]
    controller["running"] = [call(held_at="make (app.py:12)", seconds=112.0)]
    controller["planned"][0]["due_in"] = -112.0
    _, rows = _top.tables_of(shown)["Calls"]
    cells = [[str(cell) for cell in row] for _, row in rows]
    assert cells[0][:5] == [
        *("running 112 s", "default/web", "updated", "0", "held at make (app.py:12)")
    ]
    assert cells[1][0] == "overdue for 112 s"
    controller["running"][0]["awaiting"] = True
    _, rows = _top.tables_of(shown)["Calls"]
    assert str(rows[0][1][4]) == "awaits at make (app.py:12)"


def test_the_verdict_is_the_first_line_and_names_are_shortened_from_the_left() -> None:
    shown = state()
    assert _top.as_text(shown).startswith("2 objects failing (1 for good) [red]")
    assert "sites: 3 wait\nsites  up 60 s" in _top.as_text(shown)
    _, rows = _top.tables_of(shown)["Failing"]
    assert [str(cells[0]) for _, cells in rows] == ["failed for good", "retrying"]
    assert str(rows[1][1][1]) == "…-that-is-longer-than-its-column"
    assert len(str(rows[1][1][1])) == 32
    for title, (columns, rows) in _top.tables_of(shown).items():
        wide = [max(len(_top.plain(row[place])) for _, row in rows) for place in range(2)]
        titles = [len(column) for column in columns[:2]]
        assert sum(map(max, wide, titles)) + 4 <= 80, f"{title}: state and name fit 80 columns"


def test_keys_search_sort_and_help() -> None:
    async def look() -> None:
        app = _top.Top(lambda _: state(), interval=3600.0)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await pilot.press("right")
            table = app.query_one("#table-failing", _top.DataTable)
            assert table.row_count == 2
            await pilot.press("slash", *"LONGER")
            await pilot.pause()
            assert table.row_count == 1
            await pilot.press("enter")
            assert app.focused is table
            await pilot.press("escape")
            await pilot.pause()
            assert table.row_count == 2
            first = str(table.get_row_at(0)[1])
            await pilot.press("s", "s")  # by outcome, by object
            await pilot.pause()
            names = [str(table.get_row_at(row)[1]) for row in range(2)]
            assert names == sorted(names)
            assert names[0] == first
            await pilot.press("question_mark")
            await pilot.pause()
            assert "sort by the next column" in str(app.screen.query_one("#summary").render())
            await pilot.press("escape")
            await pilot.press("q")

    asyncio.run(look())


class Silent(socketserver.StreamRequestHandler):
    """A page that answers nothing."""

    asked = threading.Event()

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.asked.set()
        self.rfile.read()


def test_it_stops_at_once_on_a_slow_page() -> None:
    threads = ThreadGroup("silent")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
        threads.start("server", server.serve_forever)
        fetch = _top.Fetcher(f"http://127.0.0.1:{server.server_address[1]}")

        async def look() -> None:
            app = _top.Top(fetch, interval=3600.0, stop=fetch.stop)
            async with app.run_test() as pilot:
                await pilot.pause()
                await asyncio.to_thread(Silent.asked.wait, 20.0)
                await pilot.press("q")

        try:
            began = time.monotonic()
            asyncio.run(look())
            # Far below the ten seconds that a fetch may take.
            assert time.monotonic() - began < 8.0
            with pytest.raises(_top.UnreadableError, match="stopped"):
                fetch("/debug/state.json")
        finally:
            server.shutdown()
            assert threads.join(10.0) == []


def test_a_server_that_is_gone_is_said_and_the_last_state_stays() -> None:
    def fetch(_: str) -> dict[str, Any]:
        if is_gone:
            raise click.ClickException("it cannot be read")
        return state()

    async def look() -> None:
        nonlocal is_gone
        app = _top.Top(fetch, interval=3600.0)
        async with app.run_test() as pilot:
            await app.workers.wait_for_complete()
            is_gone = True
            app._look()
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert app.query_one("#problem").display
            assert app.query_one("#table-controllers", _top.DataTable).row_count == 1

    is_gone = False
    asyncio.run(look())


@pytest.mark.parametrize("name", ["a\ud800", "caf\udce9", "a b&c=d"])
def test_a_name_that_is_not_utf_8_is_shown_and_asked_for(name: str) -> None:
    found = state(name)
    (query, cells), *_ = _top.tables_of(found)["Objects"][1]
    assert cells[1] == f"default/{name}"
    assert urllib.parse.parse_qs(query, errors="surrogatepass")["name"] == [name]
    _top.as_text(found).encode()


def test_text_of_objects_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def check(url: str) -> None:
        assert cli.main(["top", url, "--once"]) == 0

    serve(check)
    printed = capsys.readouterr().out
    assert "[red]\N{REPLACEMENT CHARACTER}]0;owned" in printed
    assert "\x1b" not in printed
    assert "CAUSES" in printed


def test_a_token_is_sent_and_a_refusal_says_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def admit(_: object) -> Any:
        return lambda handler: (
            lambda request: (
                handler(request)
                if request.headers.get("authorization") == "Bearer me"
                else _top_refusal()
            )
        )

    token = tmp_path / "token"
    token.write_text("me\n")

    def check(url: str) -> None:
        assert cli.main(["top", url, "--once"]) == 1
        assert "give --token-file" in capsys.readouterr().err
        assert cli.main(["top", url, "--once", "--token-file", str(token)]) == 0

    serve(check, filter_provider=admit)


@pytest.mark.parametrize("content", [b"of the live page:\nhunter2\n", b"hunter2\xff", b"\n"])
def test_a_file_without_a_token_is_refused_without_showing_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)

    def check(url: str) -> None:
        assert cli.main(["top", url, "--once", "--token-file", str(token)]) == 1

    serve(check)
    shown = capsys.readouterr().err
    assert "it must have the token alone" in shown
    assert "hunter2" not in shown


def _top_refusal() -> Any:
    from appsdk_operator.manager import HTTPResponse

    return HTTPResponse(status=401)


@pytest.mark.parametrize("works", [True, False])
def test_a_pod_is_reached_through_kubectl(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    works: bool,
) -> None:
    said = tmp_path / "said"

    def check(url: str) -> None:
        port = url.rpartition(":")[2]
        answer = f"Forwarding from 127.0.0.1:{port} -> 6060" if works else "pods not found"
        program = tmp_path / "kubectl"
        end = "exec sleep 60" if works else "exit 1"
        program.write_text(f'#!/bin/sh\necho "$@" > {said}\necho "{answer}"\n{end}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        status = cli.main(["top", "web-1", "-n", "operators", "--once"])
        assert status == (0 if works else 1)

    serve(check)
    assert said.read_text().split() == [
        *("port-forward", "pod/web-1", ":6060", "--namespace=operators")
    ]
    shown = capsys.readouterr()
    assert "CONTROLLERS" in shown.out if works else "pods not found" in shown.err


def test_no_server_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "http://127.0.0.1:1", "--once"]) == 1
    assert "--debug-address 127.0.0.1:6060" in capsys.readouterr().err
    assert cli.main(["top", "http://me:hunter2@127.0.0.1:1", "--once"]) == 1
    assert "hunter2" not in capsys.readouterr().err
    for url in ("ftp://elsewhere", "http://", "http://[::1", "http://here:port", "http://a b"):
        with pytest.raises(SystemExit):
            cli.main(["top", url, "--once"])
        assert "such as http://127.0.0.1:6060" in capsys.readouterr().err


class NoHTTP(socketserver.StreamRequestHandler):
    """A server of something else."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"220 mail.example.com ready\r\n")


def test_a_port_without_http_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    threads = ThreadGroup("mail")
    with socketserver.TCPServer(("127.0.0.1", 0), NoHTTP) as server:
        threads.start("server", server.serve_forever)
        try:
            assert cli.main(["top", f"http://127.0.0.1:{server.server_address[1]}", "--once"]) == 1
        finally:
            server.shutdown()
            assert threads.join(10.0) == []
    assert "cannot be read: 220 mail.example.com ready" in capsys.readouterr().err
