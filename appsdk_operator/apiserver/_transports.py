"""What asyncio does not say of its transports."""

from __future__ import annotations

import asyncio
from typing import Any


def transport_of_socket(transport: asyncio.Transport) -> asyncio.Transport:
    """The transport beneath TLS, or ``transport`` itself.

    It can always be aborted. That of TLS waits for the goodbye of its peer when it is closed, and
    is inert from the second close on.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    beneath: asyncio.Transport | None = getattr(protocol, "_transport", None)
    return transport if beneath is None else beneath
