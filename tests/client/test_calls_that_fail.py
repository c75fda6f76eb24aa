"""The n-th system call of the client fails: that costs a request at most, and no event."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import tempfile
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator import MergePatch, MutableObject, kinds
from appsdk_operator.cache import Informer
from appsdk_operator.cache._informer.watch_state import WatchBackoff
from appsdk_operator.client import AlreadyExists, Client, ClientConfig, TransportError
from appsdk_operator.client._auth import config_files
from appsdk_operator.client._auth.credentials import TokenFile
from appsdk_operator.client._transport import connection
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing import APIServer, running
from tests.credentials import authorization_of
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually

ConfigMap = kinds.core.v1.ConfigMap
FAULTS = {
    "socket": (errno.EMFILE, errno.ENFILE, errno.ENOBUFS),
    "connect": (errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EADDRNOTAVAIL),
    "setsockopt": (errno.EINVAL, errno.ENOBUFS),
    "settimeout": (errno.EBADF,),
    "sendall": (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOBUFS),
    "recv": (errno.ECONNRESET, errno.ETIMEDOUT, errno.EINTR, errno.ENOBUFS),
}


class Calls:
    """Makes the n-th call of one function of the client's sockets fail, and knows the sockets."""

    def __init__(self, name: str, number: int, code: int) -> None:
        self.name, self.left, self.code = name, number, code
        self.sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        if name == self.name:
            with self._lock:
                self.left -= 1
                fails = not self.left
            if fails:
                raise OSError(self.code, os.strerror(self.code))

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        calls = self

        class Socket(socket.socket):
            """Notes its calls."""

            def __init__(self, *args: Any) -> None:
                calls.note("socket")
                super().__init__(*args)
                calls.sockets.append(self)

        for name in sorted(set(FAULTS) - {"socket"}):
            setattr(Socket, name, _noting(self, name))
        names = {**vars(socket), "socket": Socket}
        patched.setattr(connection, "socket", types.SimpleNamespace(**names))


def _noting(calls: Calls, name: str) -> Any:
    call = getattr(socket.socket, name)

    def noted(sock: Any, *args: Any) -> Any:
        calls.note(name)
        return call(sock, *args)

    return noted


@st.composite
def faults(draw: st.DrawFn) -> tuple[str, int, int]:
    name = draw(st.sampled_from(sorted(FAULTS)))
    most = 6 if name in ("sendall", "recv", "settimeout") else 3
    return name, draw(st.integers(1, most)), draw(st.sampled_from(FAULTS[name]))


@pytest.fixture(scope="module")
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


_numbers = itertools.count()


@settings(max_examples=scaled(12), deadline=None)
@given(fault=faults())
@example(fault=("socket", 1, errno.EMFILE))
@example(fault=("socket", 2, errno.EMFILE))
def test_a_system_call_that_fails_costs_a_request_and_no_event(
    server: APIServer, fault: tuple[str, int, int]
) -> None:
    calls, failed = Calls(*fault), list[Exception]()
    name = f"object-{next(_numbers)}"
    config = ClientConfig(server=server.url, retry_backoff=0.001, retry_max_wait=0.002)
    with pytest.MonkeyPatch.context() as patched, Client(config, metrics=Metrics()) as client:
        calls.patch(patched)
        patched.setattr(WatchBackoff, "delay", lambda *_, **__: 0.01)
        seen: list[str] = []

        class Handler:
            def on_add(self, obj: Any, is_initial: bool) -> None:
                if obj.name == name:
                    seen.append(obj.to_dict().get("data", {}).get("number", ""))

            def on_update(self, old: Any, new: Any) -> None:
                self.on_add(new, is_initial=False)

            def on_delete(self, obj: Any) -> None: ...

        informer = Informer(ConfigMap, client, metrics=Metrics())
        informer.add_event_handler(Handler())
        with running(informer, wait=False):
            for number in range(4):
                try:
                    if number == 0:
                        client.create(MutableObject.new(ConfigMap, name, namespace="default"))
                    else:
                        patch = MergePatch({"data": {"number": str(number)}})
                        client.patch(ConfigMap, name, patch, namespace="default")
                except TransportError as error:
                    failed.append(error)
                    if number == 0:
                        # It may have reached the server.
                        with contextlib.suppress(AlreadyExists):
                            client.create(MutableObject.new(ConfigMap, name, namespace="default"))
            calls.left = 0
            last = MergePatch({"data": {"number": "last"}})
            client.patch(ConfigMap, name, last, namespace="default")
            eventually(lambda: "last" in seen, 20)
        assert len(failed) <= 1
    assert [each for each in calls.sockets if each.fileno() != -1] == []


@settings(max_examples=scaled(20), deadline=None)
@given(
    st.sampled_from(["stat", "open"]),
    st.integers(1, 4),
    st.sampled_from([errno.EMFILE, errno.EACCES, errno.ENOENT, errno.EIO]),
)
def test_a_token_file_that_cannot_be_read_for_a_moment_leaves_the_token_in_use(
    name: str, number: int, code: int
) -> None:
    clock, left = ManualClock(), [number]

    def noted(call: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise OSError(code, os.strerror(code))
            return call(*args, **options)

        return called

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / "token"
        path.write_text("one")
        token = TokenFile(str(path), clock=clock)
        assert authorization_of(token) == "Bearer one"
        if name == "stat":
            patched.setattr(os, "stat", noted(os.stat))
        else:
            patched.setattr(config_files, "open", noted(open), raising=False)
        path.write_text("another")
        for _ in range(3):
            clock.advance(3600.0)
            assert authorization_of(token) in ("Bearer one", "Bearer another")
        patched.undo()
        clock.advance(3600.0)
        assert authorization_of(token) == "Bearer another"
