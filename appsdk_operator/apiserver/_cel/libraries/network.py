"""The IP, CIDR and URL libraries of Kubernetes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final, final
from urllib.parse import parse_qs, quote, urlsplit

import attrs

from appsdk_operator.apiserver._cel.overloads import Row, is_parseable
from appsdk_operator.apiserver._cel.values import CelError
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.string_formats import parse_request_uri


@final
@attrs.frozen
class Address:
    """An IP address."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    type_name = "net.IP"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address.

        Raises:
            CelError: it is not an address.
        """
        try:
            ip = ipaddress.ip_address(text)
        except ValueError:
            raise CelError(
                f'IP Address "{text}" parse error during conversion from string: '
                f'ParseAddr("{text}"): unable to parse IP'
            ) from None
        if isinstance(ip, ipaddress.IPv6Address):
            if ip.ipv4_mapped is not None:
                raise CelError(
                    f'IPv4-mapped IPv6 address "{text}" is not allowed: IP Address parse error '
                    "during conversion from string"
                )
            if ip.scope_id is not None:
                raise CelError(f'IP address "{text}" with zone value is not allowed')
        return cls(ip)


@final
@attrs.frozen
class Network:
    """A CIDR: an address and the length of its prefix."""

    address: Address
    bits: int
    type_name = "net.CIDR"

    @classmethod
    def parse(cls, text: str) -> Network:
        """Parse a CIDR.

        Raises:
            CelError: it is not a CIDR.
        """
        host, slash, bits = text.partition("/")
        length = parse_integer(bits)
        try:
            if not slash or length is None:
                raise ValueError(text)
            address = Address.parse(host)
            if not 0 <= length <= address.ip.max_prefixlen:
                raise ValueError(text)
        except (ValueError, CelError):
            raise CelError(
                f"network address parse error during conversion from string: netip.ParsePrefix"
                f"(\"{text}\"): no '/'"
            ) from None
        return cls(address, length)

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network without the host bits."""
        return ipaddress.ip_network(f"{self.address.ip}/{self.bits}", strict=False)

    def contains(self, other: Any) -> bool:
        """Whether the network contains an address."""
        address = other if isinstance(other, Address) else Address.parse(other)
        return address.ip in self.network

    def covers(self, other: Any) -> bool:
        """Whether the network contains another network."""
        network = other if isinstance(other, Network) else Network.parse(other)
        return self.contains(network.address) and self.bits <= network.bits

    def masked(self) -> Network:
        """The CIDR with the host bits of its address set to 0."""
        return Network(Address(self.network.network_address), self.bits)


def _canonical(text: str) -> bool:
    return str(Address.parse(text).ip) == text


def _of_ip(name: str) -> Callable[[Address], bool]:
    return lambda address: bool(getattr(address.ip, name))


def _link_local_multicast(address: Address) -> bool:
    ip = address.ip
    if isinstance(ip, ipaddress.IPv4Address):
        return ip in ipaddress.IPv4Network("224.0.0.0/24")
    return ip in ipaddress.IPv6Network("ff02::/16")


def _global_unicast(address: Address) -> bool:
    ip = address.ip
    broadcast = str(ip) == "255.255.255.255"
    special = ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local
    return not (broadcast or special)


_ADDRESSES: Final[list[Row]] = [
    ("string_to_ip", "ip(string)->IP", Address.parse),
    ("is_ip", "isIP(string)->bool", is_parseable(Address.parse)),
    ("ip_is_canonical", "ip.isCanonical(string)->bool", _canonical),
    ("ip_family", "IP:family()->int", lambda address: address.ip.version),
    ("ip_is_unspecified", "IP:isUnspecified()->bool", _of_ip("is_unspecified")),
    ("ip_is_loopback", "IP:isLoopback()->bool", _of_ip("is_loopback")),
    ("ip_is_link_local_multicast", "IP:isLinkLocalMulticast()->bool", _link_local_multicast),
    ("ip_is_link_local_unicast", "IP:isLinkLocalUnicast()->bool", _of_ip("is_link_local")),
    ("ip_is_global_unicast", "IP:isGlobalUnicast()->bool", _global_unicast),
    ("ip_to_string", "string(IP)->string", lambda address: str(address.ip)),
    ("string_to_cidr", "cidr(string)->CIDR", Network.parse),
    ("is_cidr", "isCIDR(string)->bool", is_parseable(Network.parse)),
    ("cidr_contains_ip_string", "CIDR:containsIP(string)->bool", Network.contains),
    ("cidr_contains_ip_ip", "CIDR:containsIP(IP)->bool", Network.contains),
    ("cidr_contains_cidr_string", "CIDR:containsCIDR(string)->bool", Network.covers),
    ("cidr_contains_cidr", "CIDR:containsCIDR(CIDR)->bool", Network.covers),
    ("cidr_ip", "CIDR:ip()->IP", lambda network: network.address),
    ("cidr_prefix_length", "CIDR:prefixLength()->int", lambda network: network.bits),
    ("cidr_masked", "CIDR:masked()->CIDR", Network.masked),
    ("cidr_to_string", "string(CIDR)->string", lambda n: f"{n.address.ip}/{n.bits}"),
]


@final
@attrs.frozen
class Url:
    """An absolute URL or an absolute path."""

    text: str
    type_name = "kubernetes.URL"

    @classmethod
    def parse(cls, text: str) -> Url:
        """Parse a URL.

        Raises:
            CelError: it is not a URL.
        """
        try:
            parse_request_uri(text)
            urlsplit(text)
        except ValueError:
            raise CelError(
                f'URL parse error during conversion from string: parse "{text}": invalid URI for '
                "request"
            ) from None
        return cls(text)

    @property
    def host(self) -> str:
        """Host and port as written."""
        return urlsplit(self.text).netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = url.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Url) -> str:
    return re.sub(r"^(\[.*\]|[^:]*):?", "", url.host)


_URLS: Final[list[Row]] = [
    ("string_to_url", "url(string)->URL", Url.parse),
    ("is_url_string", "isURL(string)->bool", is_parseable(Url.parse)),
    ("url_get_scheme", "URL:getScheme()->string", lambda url: urlsplit(url.text).scheme),
    ("url_get_host", "URL:getHost()->string", lambda url: url.host),
    ("url_get_hostname", "URL:getHostname()->string", _hostname),
    ("url_get_port", "URL:getPort()->string", _port),
    (
        "url_get_escaped_path",
        "URL:getEscapedPath()->string",
        lambda url: quote(urlsplit(url.text).path, safe="/%:@!$&'()*+,;=~-._"),
    ),
    (
        "url_get_query",
        "URL:getQuery()->map<string,list<string>>",
        lambda url: parse_qs(urlsplit(url.text).query, keep_blank_values=True),
    ),
]

NETWORK_FUNCTIONS: Final[list[Row]] = [*_ADDRESSES, *_URLS]
