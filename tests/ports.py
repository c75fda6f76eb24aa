"""Ports that are known before a server listens on them."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

__all__ = ["reserved_port"]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback on which nobody listens, until a server asks for this one.

    A socket that is bound, and does not listen, keeps it: Linux gives it neither to servers that
    ask for any port nor to the connections of clients, and a server that asks for it with
    ``SO_REUSEADDR`` gets it. On other systems it is a port that was free a moment ago.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port
