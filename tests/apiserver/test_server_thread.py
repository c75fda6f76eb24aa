"""The thread of a server ends with it, also where its start does not end well."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from socket import socket

import pytest

from appsdk_operator.apiserver._http.listeners import listen
from appsdk_operator.apiserver._http.server_thread import ServerThread


def test_an_interrupted_start_leaves_no_server_behind() -> None:
    listeners: list[socket] = []
    threads: list[threading.Thread] = []

    async def serve(listener: socket, ready: Callable[[], None], stopping: asyncio.Event) -> None:
        threads.append(threading.current_thread())
        listeners.append(listener)
        if len(listeners) == 1:
            # As Ctrl-C, while the caller waits until the server is ready.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        ready()
        await stopping.wait()

    server = ServerThread("server", lambda: listen("127.0.0.1", 0), serve)
    with pytest.raises(KeyboardInterrupt):
        server.start()
    assert not threads[0].is_alive()
    assert listeners[0].fileno() == -1
    assert not server.is_running
    server.start()
    server.stop()
    listeners[1].close()
    assert not threads[1].is_alive()
