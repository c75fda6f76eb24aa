"""The n-th system call of the HTTP server fails: that costs a connection, and never the server."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.runtime import StopSignal
from tests.hypothesis_profiles import scaled
from tests.manager.conftest import Served, read_all
from tests.manager.http_requests import make
from tests.waiting import eventually

REQUEST = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
FAULTS = {
    "recv": (errno.ECONNRESET, errno.EINTR, errno.ENOBUFS, errno.EBADF),
    "sendall": (errno.ECONNRESET, errno.EPIPE, errno.ENOBUFS),
    "accept": (errno.ECONNABORTED, errno.EPROTO, errno.EINTR),
    "setsockopt": (errno.EINVAL, errno.ENOBUFS),
}


class Calls:
    """Makes the n-th call of a method of sockets fail in threads of the server."""

    def __init__(self, name: str, number: int, code: int) -> None:
        self.name, self.left, self.code = name, number, code
        self.has_failed = False
        self._own = threading.get_ident()
        self._lock = threading.Lock()

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        call = getattr(socket.socket, self.name)

        def called(sock: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() != self._own:
                with self._lock:
                    self.left -= 1
                    fails = not self.left
                if fails:
                    self.has_failed = True
                    raise OSError(self.code, os.strerror(self.code))
            return call(sock, *args, **options)

        patched.setattr(socket.socket, self.name, called)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, int, int]:
    name = draw(st.sampled_from(sorted(FAULTS)))
    return name, draw(st.integers(1, 3)), draw(st.sampled_from(FAULTS[name]))


@settings(max_examples=scaled(40), deadline=None)
@given(calls())
def test_a_system_call_that_fails_costs_at_most_its_connection(fault: tuple[str, int, int]) -> None:
    failing = Calls(*fault)
    server = make()
    served = Served(server, StopSignal()).start()
    try:
        with pytest.MonkeyPatch.context() as patched:
            failing.patch(patched)
            answered = 0
            for _ in range(4):
                with contextlib.suppress(OSError), served.connect() as client:
                    client.settimeout(10)
                    client.sendall(REQUEST)
                    answered += read_all(client).endswith(b"GET /x ")
        assert failing.has_failed
        assert answered >= 3, f"{answered} of 4 answered"
        assert served.get("/x").text == "GET /x "
        eventually(lambda: not len(server._pool), 5)
    finally:
        served.end()
    assert served.raised == []
