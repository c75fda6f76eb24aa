"""A client that a process shares with the children that it forks."""

from __future__ import annotations

import gc
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import Client
from appsdk_operator.client._transport.tls import verifying_context
from appsdk_operator.client._transport.tls_stream import TLSStream
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import Metrics, forks_wait
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, widget
from tests.forking import in_child

ROOT = Path(__file__).parents[2]


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


OTHER_PROCESS = """
import ssl, sys
from tests.client.conftest import Server
from tests.client.test_fork import named

context = None
if sys.argv[1]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[1:])
server = Server(named, context=context)
print(server.url, flush=True)
sys.stdin.read()
server.close()
"""
"""A server. In the process that forks it would be within OpenSSL itself at the moment of a fork."""


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def far(request, connect, authority, tmp_path):
    """A client with an idle connection to a server in another process."""
    pair = authority.server.write(tmp_path, "server") if request.param else ("",)
    command = [sys.executable, "-c", OTHER_PROCESS, *map(str, pair)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        url = process.stdout.readline().strip()
        more = {"ca_data": authority.ca.cert} if request.param else {}
        client = connect(url, max_retries=0, **more)
        assert get(client) == "a"
        yield client
        process.stdin.close()


def test_children_and_parent_at_once_each_get_what_they_asked_for(far):
    client, results = far, {}

    def read(who):
        names = [f"{who}-{i}" for i in range(40)]
        return all(get(client, name) == name for name in names)

    def fork(who):
        results[who] = in_child(lambda: read(who))

    def new_connections():
        """Handshakes go on while others fork."""
        with Client(client.config, metrics=Metrics()) as other:
            return get(other)

    threads = [threading.Thread(target=fork, args=(f"child{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    assert read("parent")
    while any(thread.is_alive() for thread in threads):
        assert new_connections() == "a"
    for thread in threads:
        thread.join(60)
    assert results == {"child0": "True", "child1": "True", "child2": "True"}


@pytest.fixture
def sections(monkeypatch):
    """What is called of OpenSSL, and how many sections that forks wait for it is in."""
    calls = []

    class Watched(ssl.SSLObject):
        def do_handshake(self):
            calls.append(("handshake", forks_wait._inside))
            super().do_handshake()

        def read(self, *arguments):
            calls.append(("read", forks_wait._inside))
            return super().read(*arguments)

    def make(*arguments, **options):
        calls.append(("context", forks_wait._inside))
        return create(*arguments, **options)

    create = ssl.create_default_context
    monkeypatch.setattr(ssl.SSLContext, "sslobject_class", Watched)
    monkeypatch.setattr(ssl, "create_default_context", make)
    yield calls
    assert forks_wait._inside == 0


def test_forks_wait_for_what_a_client_does_within_openssl(serve, connect, authority, sections):
    """Its locks would never be released in the child."""
    server = serve(named, context=authority.server_context())
    client = connect(server, max_retries=0, ca_data=authority.ca.cert)
    assert [get(client, name) for name in "ab"] == ["a", "b"]
    what = [name for name, _ in sections]
    assert what[0] == "context"
    assert what.count("handshake") >= 2
    # With the first answer come the tickets of the server; later reads only decrypt.
    first = what.index("read")
    assert all(inside == 1 for _, inside in sections[: first + 1])
    assert sections[-1] == ("read", 0)


def test_forks_wait_for_a_read_amid_a_request_as_well(serve, authority, sections):
    server = serve(named, context=authority.server_context())
    context = verifying_context(cadata=authority.ca.cert.decode())
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        stream = TLSStream(sock, context, "127.0.0.1")
        stream.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        while stream.recv_now(65536) is None:
            pass
    assert {inside for name, inside in sections if name == "read"} == {1}


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
