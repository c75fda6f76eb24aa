"""Listeners: their begin, and their end, at which asyncio loses no connection."""

from __future__ import annotations

import asyncio
import socket


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, for an event loop.

    Raises:
        OSError: the port is taken.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # A restart can bind its port again while old connections are in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def run_ready_callbacks() -> None:
    """Let the event loop run the callbacks that are ready, and those that follow from them."""
    for _ in range(5):
        await asyncio.sleep(0)


async def close_listeners(server: asyncio.Server) -> None:
    """Close the listeners of a server when the connections that they accepted are attached."""
    # asyncio loses a connection that is accepted but not yet attached when the server closes. So
    # first stop accepting, and let the accepted ones attach.
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    await run_ready_callbacks()
    server.close()
