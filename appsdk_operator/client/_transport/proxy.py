"""The choice of a proxy for a server, with the ``no_proxy`` rules of Go programs."""

from __future__ import annotations

import binascii
import ipaddress
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import msgspec


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP proxy."""

    scheme: str
    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"<proxy {self}>"  # without the password

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


def proxy_for(
    host: str, proxy_url: str | None, no_proxy: Sequence[str], *, port: int | None = None
) -> Proxy | None:
    """The proxy for ``host`` and ``port``, None to connect directly.

    Loopback is a host like any other here: kubeconfigs and programs that name a proxy for it mean
    it. It is the proxy of the environment that is not used for loopback, by the loaders.

    >>> str(proxy_for("api.example.com", "http://me:secret@proxy:3128", []))
    'http://proxy:3128'
    >>> proxy_for("api.example.com", "http://proxy:3128", ["example.com"]) is None
    True
    """
    if not proxy_url or bypasses(host, no_proxy, port):
        return None
    parts = urlsplit(proxy_url)
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {binascii.b2a_base64(pair.encode(), newline=False).decode()}"
    return Proxy(
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        authorization=authorization,
    )


def bypasses(host: str, no_proxy: Sequence[str], port: int | None = None) -> bool:
    """Whether ``no_proxy`` exempts ``host`` and ``port``, by the rules of Go programs and kubectl.

    An entry ``host:port`` exempts that port alone.
    """
    host = host.lower().rstrip(".")
    address = _address(host)
    for entry in (entry.strip().lower() for entry in no_proxy):
        if entry == "*":
            return True
        entry, own_port = _split_port(entry)
        if not entry or (own_port and own_port != str(port)):
            continue
        if address is not None:
            network = _network(entry)
            if network is not None and address in network:
                return True
        else:
            name = entry.lstrip("*").lstrip(".")
            if name and (host.endswith(f".{name}") or (host == name and entry[0] not in "*.")):
                return True
    return False


def _split_port(entry: str) -> tuple[str, str]:
    """An entry without its port, and the port; ``""``: it has none, as an IPv6 address."""
    name, colon, port = entry.rpartition(":")
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1], port
    return (name, port) if colon and ":" not in name else (entry, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
