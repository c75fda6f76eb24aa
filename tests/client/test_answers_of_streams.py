"""Whatever bytes a server sends, however they come: a pooled client returns the answer that was
meant for its request, or raises; never another request's."""

from __future__ import annotations

import contextlib
import re
import select
import socket

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import client as c
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.client._transport.connection import Connection
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import Metrics
from tests.client.conftest import WIDGET, answer, chunk, failure, widget
from tests.hypothesis_profiles import scaled

REQUESTS = 4


@attrs.frozen
class Move:
    """What the server does about one request."""

    interim: list[int]
    framing: str
    status: int
    junk: bytes
    """What follows the answer at once."""
    late: str
    """What comes only when the next request is there: nothing, the answer itself (after its interim
    answers), or one about another object."""
    cut: int | None
    """After how many bytes the connection ends."""
    closes: bool


ANSWER = b"a whole answer about the same object"
JUNK = [ANSWER, ANSWER, b"\r\n", b"x", b"HTTP/1.1 200 OK\r\n", b"0\r\n\r\n"]
FRAMINGS = [
    "length",
    "chunks",
    "trailers",
    "end",
    "both",
    "two lengths",
    "short",
    "long",
    "minus",
    "hex",
    "underscore",
    "a longer chunk",
    "bare",
    "folded",
    "upgrade",
    "head only",
]


def moves(late):
    return st.builds(
        Move,
        interim=st.lists(st.sampled_from([100, 102, 103, 199]), max_size=3),
        framing=st.one_of(st.sampled_from(["length", "chunks"]), st.sampled_from(FRAMINGS)),
        status=st.sampled_from([200, 200, 200, 201, 204, 404, 503]),
        junk=st.one_of(st.just(b""), st.sampled_from(JUNK)),
        late=st.sampled_from(["", "", *late]),
        cut=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 400)),
        closes=st.booleans(),
    )


def framed(move, body):
    """The answer as bytes."""
    begin = b"HTTP/1.1 %d Fine\r\n" % move.status
    half = len(body) // 2
    chunks = chunk(body[:half]) + chunk(body[half:])
    encoding = b"Transfer-Encoding: chunked\r\n"
    size = b"Content-Length: %d\r\n"
    match move.framing:
        case "length":
            return begin + size % len(body) + b"\r\n" + body
        case "chunks":
            return begin + encoding + b"\r\n" + chunks + b"0\r\n\r\n"
        case "trailers":
            return begin + encoding + b"\r\n" + chunks + b"0\r\nA: b\r\n\r\n"
        case "end":
            return begin + b"\r\n" + body
        case "both":
            return begin + encoding + size % len(body) + b"\r\n" + chunks + b"0\r\n\r\n"
        case "two lengths":
            return begin + size % len(body) + size % (len(body) + 9) + b"\r\n" + body
        case "short":
            return begin + size % (len(body) - 5) + b"\r\n" + body
        case "long":
            return begin + size % (len(body) + 40) + b"\r\n" + body
        case "minus":
            return begin + encoding + b"\r\n-1\r\n" + body + b"\r\n0\r\n\r\n"
        case "hex":
            return begin + encoding + b"\r\n0x%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        case "underscore":
            return begin + encoding + b"\r\n1_0\r\n" + body + b"\r\n0\r\n\r\n"
        case "a longer chunk":
            return begin + encoding + b"\r\n" + chunk(body) + body + b"0\r\n\r\n"
        case "bare":
            return begin.replace(b"\r", b"") + size.replace(b"\r", b"") % len(body) + b"\n" + body
        case "folded":
            return begin + b"A: b\r\n " + size % 3 + size % len(body) + b"\r\n" + body
        case "upgrade":
            return b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n" + begin + b"\r\n" + body
        case _:
            return begin + size % len(body) + b"\r\n"


class Script:
    """What the server does about each request, on whichever connection it comes."""

    def __init__(self, moves, pieces):
        self.moves = list(moves)
        self.pieces = list(pieces)
        self.sockets = []

    def connect(self):
        ours = Scripted(self)
        return Connection(ours, 0)

    def piece(self):
        self.pieces.append(self.pieces.pop(0))
        return self.pieces[-1]

    def close(self):
        for sock in self.sockets:
            sock.close()


class Scripted:
    """The client's socket; what is sent on it is answered at once."""

    def __init__(self, script):
        self.real, self.peer = socket.socketpair()
        script.sockets += [self.real, self.peer]
        self.script = script
        self.late = b""

    def sendall(self, data):
        if b"\r\n\r\n" not in data:
            return
        method, target, *_ = data.decode("latin-1").split(" ")
        move = self.script.moves.pop(0)
        name = target.partition("?")[0].removesuffix("/status").rpartition("/")[2]
        if method == "POST":
            name = data.partition(b'"name":"')[2].partition(b'"')[0].decode()
        head, _, _ = data.partition(b"\r\n\r\n")
        number = int(head.partition(b"User-Agent: ")[2].split(b"\r\n")[0] or b"0")
        body = meant(name, number, move.status)
        out = self.late
        out += b"".join(b"HTTP/1.1 %d Wait\r\nA: b\r\n\r\n" % status for status in move.interim)
        whole = answer({**widget(name), "spec": {"number": -1}})
        final = framed(move, body) + move.junk.replace(ANSWER, whole)
        self.late = final if move.late == "answer" else b""
        if move.late == "other":
            self.late = answer(widget("evil"))
        out += final if move.late != "answer" else b""
        # The peer is gone when the client, or a move before, has closed the connection.
        with contextlib.suppress(OSError):
            self.peer.sendall(out if move.cut is None else out[: move.cut])
            if move.closes or move.cut is not None:
                self.peer.shutdown(socket.SHUT_WR)

    def recv(self, limit):
        if not select.select([self.real], [], [], 0)[0]:
            raise TimeoutError("nothing more comes")
        return self.real.recv(min(limit, self.script.piece()))

    def settimeout(self, seconds):
        """Nothing here waits."""

    def __getattr__(self, name):
        return getattr(self.real, name)


def meant(name, number, status):
    if status >= 400:
        details = {"name": name, "group": "example.com", "kind": "widgets"}
        whole = failure(status, "NotFound", f"answer {number}", details=details)
        return whole.partition(b"\r\n\r\n")[2]
    whole = answer({**widget(name), "spec": {"number": number}})
    return whole.partition(b"\r\n\r\n")[2]


def call(client, verb, name):
    draft = MutableObject(WIDGET, widget(name))
    match verb:
        case "get":
            return client.get(WIDGET, name, namespace="x")
        case "create":
            return client.create(draft)
        case "update":
            return client.update(draft)
        case "delete":
            return client.delete(WIDGET, name, namespace="x")
        case _:
            return client.status.patch(WIDGET, name, c.MergePatch({}), namespace="x")


VERBS = st.sampled_from(["get", "get", "create", "update", "delete", "status"])


def play(moves, pieces, verbs, names):
    """Each answer that was returned is the one that was meant; how many were."""
    script = Script(moves, pieces)
    config = ClientConfig(
        server="http://api.test", connector=script.connect, max_retries=0, user_agent="0"
    )
    client, returned = Client(config, metrics=Metrics()), 0
    raised: list[tuple[int, Exception]] = []
    transport = client._transport
    try:
        for number, (verb, name) in enumerate(zip(verbs, names, strict=True)):
            if not script.moves:
                break
            # Tells the server which request this is; a try on another connection is the same one.
            transport._headers = [("User-Agent", str(number))]
            script.moves += script.moves[-1:]  # for a second try
            got: object
            try:
                got = call(client, verb, name)
            except (c.ClientError, ValueError) as error:
                raised.append((number, error))
                continue
            if got is not None:
                assert (got.name, got.spec["number"]) == (name, number)  # type: ignore[attr-defined]
                returned += 1
    finally:
        client.close()
        script.close()
    for number, error in raised:
        if isinstance(error, c.ApiError):
            # A body that breaks off is quoted as it came.
            assert set(re.findall(r"answer (\d+)", str(error))) <= {str(number)}
            assert "evil" not in str(error)
    return returned


PIECES = st.lists(st.sampled_from([1, 2, 3, 7, 40, 100_000]), min_size=1, max_size=5)


@settings(max_examples=scaled(150))
@given(
    st.lists(moves(late=["answer"]), min_size=REQUESTS, max_size=REQUESTS),
    PIECES,
    st.lists(VERBS, min_size=REQUESTS, max_size=REQUESTS),
)
def test_answers_are_told_apart_by_their_framing_alone(moves, pieces, verbs):
    # All ask for one object: names tell nothing apart.
    play(moves, pieces, verbs, ["a"] * REQUESTS)


@settings(max_examples=scaled(150))
@given(
    st.lists(moves(late=["answer", "other"]), min_size=REQUESTS, max_size=REQUESTS),
    PIECES,
    st.lists(VERBS, min_size=REQUESTS, max_size=REQUESTS),
)
def test_an_answer_that_comes_too_late_is_known_by_its_object(moves, pieces, verbs):
    play(moves, pieces, verbs, [f"w{i}" for i in range(REQUESTS)])


def test_a_server_in_order_has_all_its_answers_returned():
    fine = Move(
        interim=[103], framing="chunks", status=200, junk=b"", late="", cut=None, closes=False
    )
    assert play([fine] * REQUESTS, [3], ["get"] * REQUESTS, ["a"] * REQUESTS) == REQUESTS
