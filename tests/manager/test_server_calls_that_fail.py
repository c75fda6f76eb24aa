"""The n-th system call of the HTTP server fails: that costs a connection, and never the server."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.runtime import StopSignal
from tests.hypothesis_profiles import scaled
from tests.manager import test_certificates
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

    def __init__(
        self, name: str, number: int, code: int, owner: type[socket.socket] = socket.socket
    ) -> None:
        self.name, self.left, self.code = name, number, code
        self.owner = owner
        self.has_failed = False
        self._own = threading.get_ident()
        self._lock = threading.Lock()

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        call = getattr(self.owner, self.name)

        def called(sock: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() != self._own:
                with self._lock:
                    self.left -= 1
                    fails = not self.left
                if fails:
                    self.has_failed = True
                    raise OSError(self.code, os.strerror(self.code))
            return call(sock, *args, **options)

        patched.setattr(self.owner, self.name, called)


@st.composite
def calls(
    draw: st.DrawFn, faults: dict[str, tuple[int, ...]] = FAULTS, most: int = 3
) -> tuple[str, int, int]:
    name = draw(st.sampled_from(sorted(faults)))
    return name, draw(st.integers(1, most)), draw(st.sampled_from(faults[name]))


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


TLS_FAULTS = {
    "recv": (errno.ECONNRESET, errno.ENOBUFS, errno.EBADF),
    "sendall": (errno.ECONNRESET, errno.EPIPE, errno.ENOBUFS),
    "do_handshake": (errno.ECONNRESET, errno.EPIPE, errno.ENOMEM),
    "_create": (errno.EMFILE, errno.EINVAL, errno.ENOTCONN),
}


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> test_certificates.Files:
    return test_certificates.Files(tmp_path_factory.mktemp("tls"))


@settings(max_examples=scaled(8), deadline=None)
@given(calls(TLS_FAULTS, 2))
def test_a_call_of_tls_that_fails_costs_at_most_its_connection(
    tls_files: test_certificates.Files, fault: tuple[str, int, int]
) -> None:
    failing = Calls(*fault, owner=ssl.SSLSocket)
    server = make(tls=tls_files.tls())
    served = Served(server, StopSignal()).start()
    context = test_certificates.trusting(tls_files.cert.read_bytes())
    try:
        with pytest.MonkeyPatch.context() as patched:
            failing.patch(patched)
            answered = 0
            for _ in range(4):
                with (
                    contextlib.suppress(OSError),
                    served.connect() as plain,
                    context.wrap_socket(plain) as client,
                ):
                    client.sendall(REQUEST)
                    answered += read_all(client).endswith(b"GET /x ")
        assert failing.has_failed
        assert answered >= 3, f"{answered} of 4 answered"
        assert served.get("/x", context=context).text == "GET /x "
        eventually(lambda: not len(server._pool), 5)
    finally:
        served.end()
    assert served.raised == []
