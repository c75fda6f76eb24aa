"""The end of asyncio's listeners, at which no connection is lost."""

from __future__ import annotations

import asyncio

__all__ = ["close_listeners", "run_ready_callbacks"]


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
