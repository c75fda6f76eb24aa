"""A client that a process shares with the children that it forks."""

from __future__ import annotations

import gc
import json
import os
import threading
from pathlib import Path

import pytest

from appsdk_operator import client as c
from appsdk_operator.resource import MutableObject
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, widget
from tests.forking import in_child


def get(client, name="a"):
    return client.get(WIDGET, name, namespace="x").name


def named(sock, request):
    sock.sendall(answer(widget(request.target.rpartition("/")[2])))


def sockets():
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += str(fd.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def shared(request, serve, connect, authority):
    """A server, and a client with an idle connection to it."""
    context = authority.server_context() if request.param else None
    server = serve(named, context=context)
    client = connect(server, max_retries=0, **({"ca_data": authority.ca.cert} if context else {}))
    assert get(client) == "a"
    return server, client


def test_a_child_uses_no_connection_of_its_parent(shared):
    server, client = shared
    assert in_child(lambda: [get(client, name) for name in "bcd"]) == "['b', 'c', 'd']"
    assert get(client, "e") == "e"
    # One of the parent, which the end of the child did not close, and one of the child.
    assert server.connections == 2


def test_a_child_that_closes_the_client_closes_its_own(shared):
    server, client = shared

    def close():
        client.close()
        return "closed"

    assert in_child(close) == "closed"
    assert get(client, "b") == "b"
    assert server.connections == 1


def test_a_child_does_not_hold_the_connections_of_its_parent_open(shared):
    _, client = shared
    before = sockets()
    # One less than the parent, whose server and client are in one process, has.
    assert in_child(sockets) == str(before - 1)
    assert get(client, "b") == "b"


def test_children_and_parent_at_once_each_get_what_they_asked_for(shared):
    _, client = shared
    results = {}

    def read(who):
        names = [f"{who}-{i}" for i in range(40)]
        return all(get(client, name) == name for name in names)

    def fork(who):
        results[who] = in_child(lambda: read(who))

    threads = [threading.Thread(target=fork, args=(f"child{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    assert read("parent")
    for thread in threads:
        thread.join(60)
    assert results == {"child0": "True", "child1": "True", "child2": "True"}


def test_a_request_that_is_under_way_is_not_disturbed_by_a_fork(serve, connect):
    going, results = threading.Event(), []

    def slowly(sock, request):
        if request.target.endswith("/slow"):
            assert going.wait(10)
        named(sock, request)

    server = serve(slowly)
    client = connect(server, max_retries=0)
    thread = threading.Thread(target=lambda: results.append(get(client, "slow")))
    thread.start()
    server.wait_for_requests(1)

    def use_and_close():
        name = get(client, "b")
        client.close()
        return name

    assert in_child(use_and_close) == "b"
    going.set()
    thread.join(10)
    assert results == ["slow"]


def locks_of(*roots):
    """The locks of these objects and of those in them."""
    found, pending = {}, list(roots)
    while pending:
        one = pending.pop()
        if id(one) in found:
            continue
        found[id(one)] = one
        if type(one).__module__.startswith("appsdk_operator"):
            pending += [value for value in gc.get_referents(one) if not isinstance(value, type)]
        elif isinstance(one, (dict, list, tuple, set)):
            pending += gc.get_referents(one)
    kinds = (type(threading.Lock()), type(threading.RLock()))
    return [one for one in found.values() if isinstance(one, kinds)]


SECTIONS = {
    "token": {"token": "abc"},
    "password": {"username": "me", "password": "abc"},
    "token file": {"tokenFile": "token"},
    "plugin": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}},
}
PLUGIN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {"token": "abc"}}'
"""


@pytest.mark.parametrize("section", SECTIONS)
def test_locks_that_are_held_at_the_fork_do_not_stop_the_child(serve, connect, tmp_path, section):
    server = serve(named)
    (tmp_path / "token").write_text("first-token")
    (tmp_path / "plugin").write_text(PLUGIN)
    (tmp_path / "plugin").chmod(0o755)
    whole = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "http://localhost"}}],
        "users": [{"name": "it", "user": SECTIONS[section]}],
    }
    (tmp_path / "config").write_text(json.dumps(whole))
    loaded = c.ClientConfig.load(tmp_path / "config")
    client = connect(
        server, token_file=loaded.token_file, credentials=loaded.credentials, qps=1000.0
    )
    get(client)
    locks = locks_of(client)
    assert len(locks) > 6
    held, done = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait(60)
        for lock in locks:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    assert in_child(lambda: get(client, "b"), seconds=10) == "b"
    done.set()
    thread.join(10)


def test_a_watch_stays_with_the_parent(serve, connect):
    more = threading.Event()

    def stream(sock, request):
        sock.sendall(CHUNKED + chunk(event("a")))
        assert more.wait(10)
        sock.sendall(chunk(event("b")) + b"0\r\n\r\n")

    client = connect(serve(stream))
    with client.watch(WIDGET) as watch:
        events = watch.events()
        assert next(events).object.name == "a"

        def go_on():
            try:
                next(watch)
            except c.ConnectionLost as error:
                watch.close()
                return error

        text = in_child(go_on)
        assert text.startswith("watch widgets.example.com: the watch belongs to the parent of this")
        more.set()
        assert [item.object.name for item in events] == ["b"]


def test_children_do_not_retry_at_the_same_moments(serve, connect):
    client = connect(serve(named))
    rng = client._transport._rules.rng
    state = rng.getstate()
    drawn = {in_child(lambda: client._transport._rules.rng.random()) for _ in range(3)}  # noqa: PLW0108 - of the child
    assert len(drawn) == 3
    assert rng.getstate() == state


def test_writes_of_a_child_are_its_own(shared):
    server, client = shared
    draft = MutableObject(WIDGET, widget("b"))
    server.replies = [answer(widget("b"))]
    assert in_child(lambda: client.update(draft).name) == "b"
    assert client.update(draft).name == "b"
    assert {r.connection for r in server.requests} == {1, 2}
    assert os.getpid()
