"""The addresses of servers: parsing, validation, listening sockets, and the Host header."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Collection, Iterable
from typing import Any, Final

import attrs

_BACKLOG: Final = 128
_INHERITED: Final = "fd:"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_REMEDIES: Final = {
    errno.EADDRINUSE: "another server listens there already: choose another port, or 0 for any",
    errno.EACCES: "ports below 1024 are for privileged users: choose a higher one",
    errno.EADDRNOTAVAIL: "this machine has no such address: use 127.0.0.1 for this machine only, "
    "or leave the host out for all of its addresses",
}


def is_off(address: str) -> bool:
    """Whether an address switches its server off, as in controller-runtime."""
    return address in ("", "0")


def parse_address(address: str, option: str = "address") -> tuple[str, int]:
    """Host and port of ``host:port``, ``[IPv6]:port``, or ``:port`` for all addresses.

    ``fd:7`` is the address of a socket that the process was started with, as file descriptor 7, and
    that listens already.

    Raises:
        ValueError: it has another form, or there is no such socket.

    >>> parse_address("[::1]:8080")
    ('::1', 8080)
    """
    if address.startswith(_INHERITED):
        with _inherited(address, option) as found:
            name = found.getsockname()
            return str(name[0]), int(name[1])
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    plain = host[1:-1] if is_bracketed else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not colon or not is_port or (":" in plain and not is_bracketed) or set(plain) & set("[]/ "):
        raise ValueError(
            f"{option}={address!r} is not an address: write host:port, [IPv6]:port, or :port for "
            "all of this machine's addresses; port 0 is any free one"
        )
    return plain, int(port)


def _inherited(address: str, option: str) -> socket.socket:
    """A socket of its own for the one that ``fd:N`` names."""
    number = address.removeprefix(_INHERITED)
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    try:
        descriptor = os.dup(int(number) if is_number else -1)
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise ValueError(
            f"{option}={address!r} is not a socket of this process: give the number of a file "
            f"descriptor that it inherits, or host:port ({error.strerror})"
        ) from error
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
    if not is_tcp or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        found.close()
        raise ValueError(f"{option}={address!r} is not a TCP socket that listens")
    return found


def check_address(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate an address option, which may be switched off."""
    if not isinstance(value, str):
        hint = f':{value}"' if isinstance(value, int) else '127.0.0.1:8080"'
        raise TypeError(
            f'{attribute.name}={value!r}: give host:port as text, for example "{hint}; without a '
            "host it is on all of this machine's addresses"
        )
    if not is_off(value):
        parse_address(value, attribute.name)


def listen(address: str, purpose: str, option: str = "address") -> socket.socket:
    """A socket that listens on ``address``.

    Args:
        address: see :func:`parse_address`; without a host on all addresses, IPv6 included.
        purpose: the server's name, for error texts.
        option: the option's name, for error texts.

    Raises:
        OSError: it cannot be bound; the text names the address and what to do.
        ValueError: it is not an address, or no inherited socket.
    """
    if address.startswith(_INHERITED):
        return _inherited(address, option)
    host, port = parse_address(address, option)
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
            )
        # As text, Python would load the codec of international names: 200 KB.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(
            name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family = found[0][0]
        return socket.create_server(
            found[0][4][:2], family=socket.AddressFamily(family), backlog=_BACKLOG
        )
    except socket.gaierror as error:
        text = f"the {purpose} cannot listen on {address}: {error.strerror}: check the host's name"
        raise OSError(errno.EADDRNOTAVAIL, text) from error
    except OSError as error:
        number = error.errno or 0
        remedy = _REMEDIES.get(number, "choose another address, or leave the server off")
        reason = os.strerror(number)
        text = f"the {purpose} cannot listen on {address}: {reason}: {remedy}"
        raise OSError(number, text) from error


def check_hosts(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate an option of host names."""
    names: tuple[object, ...] = tuple(value) if isinstance(value, Iterable) else (value,)
    if isinstance(value, str) or not all(isinstance(n, str) and _HOST.fullmatch(n) for n in names):
        raise ValueError(
            f"{attribute.name}={value!r}: give names in a list, without a port, such as "
            '["debug.example.com"]'
        )


def is_allowed_host(host: str, names: Collection[str]) -> bool:
    """Whether a ``Host`` header names this machine, an IP address, or one of ``names``.

    A web page sends its own site's name there, also when the site's owner points that name at this
    machine (DNS rebinding). An IP address cannot be pointed elsewhere.

    >>> [is_allowed_host(host, ["a.b"]) for host in ("localhost:80", "[::1]", "A.B.:1", "evil.com")]
    [True, True, True, False]
    """
    name, _, _ = host.partition("]") if host.startswith("[") else host.partition(":")
    name = name.removeprefix("[").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost") or name in {n.lower() for n in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def format_address(name: tuple[object, ...]) -> str:
    """``host:port`` of a socket's name.

    >>> format_address(("::1", 8080, 0, 0))
    '[::1]:8080'
    """
    host, port = str(name[0]), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_host(name: object) -> str:
    """The host of a peer's socket name; IPv4 addresses mapped into IPv6 as IPv4.

    >>> peer_host(("::ffff:10.0.0.1", 40123, 0, 0))
    '10.0.0.1'
    """
    host = str(name[0]) if isinstance(name, tuple) and name else ""
    return host.removeprefix("::ffff:")
