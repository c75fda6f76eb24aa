"""The HTTP(S) server and the certificates of every server that an operator runs.

Probes, metrics, profiles and webhooks use it: a listening socket, a bounded number of connections
with a thread each, limits on the time and size of each request, and certificates that are read
again when their files change. h11 parses the requests; threads, time limits, eviction and draining
are this room's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader

if TYPE_CHECKING:
    from appsdk_operator.serving._addresses import check_address as check_address
    from appsdk_operator.serving._addresses import check_hosts as check_hosts
    from appsdk_operator.serving._addresses import is_off as is_off
    from appsdk_operator.serving._addresses import parse_address as parse_address
    from appsdk_operator.serving._certificates import CertificateFiles as CertificateFiles
    from appsdk_operator.serving._certificates import Certificates as Certificates
    from appsdk_operator.serving._key_pair import KeyPair as KeyPair
    from appsdk_operator.serving._limits import HTTPLimits as HTTPLimits
    from appsdk_operator.serving._messages import Headers as Headers
    from appsdk_operator.serving._messages import HTTPHandler as HTTPHandler
    from appsdk_operator.serving._messages import HTTPRequest as HTTPRequest
    from appsdk_operator.serving._messages import HTTPResponse as HTTPResponse
    from appsdk_operator.serving._messages import RequestLimits as RequestLimits
    from appsdk_operator.serving._messages import text_response as text_response
    from appsdk_operator.serving._self_signed import SelfSigned as SelfSigned
    from appsdk_operator.serving._server import HTTPServer as HTTPServer
    from appsdk_operator.serving._tls import TLSOptions as TLSOptions

_MODULES = {
    "serving._addresses": (
        "check_address",
        "check_hosts",
        "is_off",
        "parse_address",
    ),
    "serving._certificates": (
        "CertificateFiles",
        "Certificates",
    ),
    "serving._key_pair": ("KeyPair",),
    "serving._limits": ("HTTPLimits",),
    "serving._messages": (
        "HTTPHandler",
        "HTTPRequest",
        "HTTPResponse",
        "RequestLimits",
        "Headers",
        "RequestLimits",
        "text_response",
    ),
    "serving._self_signed": ("SelfSigned",),
    "serving._server": ("HTTPServer",),
    "serving._tls": ("TLSOptions",),
}
_HOMES = homes(_MODULES)

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(_HOMES)
