"""Limits on the size and duration of a client's connections and requests."""

from __future__ import annotations

from typing import Any

import attrs


def _positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name}={value}: use more than 0")


@attrs.frozen(kw_only=True)
class HTTPLimits:
    """Limits on what a client may send to an :class:`HTTPServer`, and on how long it may take.

    The header size and the time-outs are those of controller-runtime's servers. The others are
    this kit's own.
    """

    max_connections: int = attrs.field(default=64, validator=_positive)
    """Open connections, and threads. At the limit, a new connection closes the one that has waited
    longest for a request, or the next one that has its answer, or else one whose client has been
    sending a body or reading an answer for more than a second. While handlers are busy with all of
    them, new connections wait. Default 64."""
    max_header_bytes: int = attrs.field(default=1 << 20, validator=_positive)
    """Bytes of a request's line and headers together; more is answered with 431. Default 1 MiB."""
    max_body_bytes: int = attrs.field(default=1 << 20, validator=_positive)
    """Bytes of a request's body; more is answered with 413. Default 1 MiB."""
    max_buffered_bytes: int = attrs.field(default=1 << 27, validator=_positive)
    """Bytes of the bodies of all connections together, from their arrival until they are answered.
    Beyond it, the connection that has been sending its body for longest is refused with 408, so
    that many large bodies at once do not use up the memory. Bodies that arrive in one piece of at
    most 64 KiB are not counted. Default 128 MiB."""
    header_timeout: float = attrs.field(default=32.0, validator=_positive)
    """Seconds for a TLS handshake and the headers, together; default 32."""
    body_timeout: float = attrs.field(default=32.0, validator=_positive)
    """Seconds for the body; default 32."""
    write_timeout: float = attrs.field(default=60.0, validator=_positive)
    """Seconds for the client to read a response; default 60."""
    idle_timeout: float = attrs.field(default=90.0, validator=_positive)
    """Seconds that an idle connection is kept open between two requests; default 90."""
