"""What is left behind is a test's own, and not that of a fixture which outlives the test."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[socket.socket]:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, args=(60,))
    thread.start()
    with socket.socket() as listening, tempfile.NamedTemporaryFile():
        yield listening
    ends.set()
    thread.join()


def test_a_fixture_that_outlives_the_test_may_start_while_it_runs(
    request: pytest.FixtureRequest,
) -> None:
    assert request.getfixturevalue("server").fileno() > 0


def test_it_is_there_for_the_next_one(server: socket.socket) -> None:
    assert server.fileno() > 0
