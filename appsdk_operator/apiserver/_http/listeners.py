"""Listeners and their connections: their end, at which asyncio loses none and leaves none open."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web

from appsdk_operator.apiserver._transports import transport_of_socket


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


class ClosableServer(web.Server):
    """A server of HTTP whose connections all end with it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """As :class:`aiohttp.web.Server`."""
        super().__init__(*args, **options)
        self.is_closing = False
        """Whether connections whose handshake ends from now on are aborted."""
        self.open: dict[Any, asyncio.Transport] = {}
        """The connections that are not closed yet, by handler."""

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Register a connection; abort it when the server is closing."""
        super().connection_made(handler, transport)
        self.open[handler] = transport_of_socket(transport)
        if self.is_closing:
            transport.abort()

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self.open.pop(handler, None)
        super().connection_lost(handler, exc)

    async def end_connections(self, grace: float) -> None:
        """End all connections, those included that are being accepted; the listener is closed.

        Requests that are being answered have ``grace`` seconds. Bytes that are not sent then are
        lost.
        """
        self.pre_shutdown()  # idle connections end at once and are not waited for
        await self.shutdown(grace)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in list(self.open.values()):
            transport.abort()
        # Aborted transports close in the next iteration of the event loop.
        await run_ready_callbacks()
