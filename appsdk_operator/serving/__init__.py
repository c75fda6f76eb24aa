"""The HTTP(S) server and the certificates of every server that an operator runs.

Probes, metrics, profiles and webhooks stand on it: a socket that listens, a bounded pool of threads
that read requests and call handlers, limits on time and size for each connection, and certificates
that are read again when their files change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appsdk_operator._lazy import loader

if TYPE_CHECKING:
    from appsdk_operator.serving._addresses import check_address as check_address
    from appsdk_operator.serving._addresses import check_hosts as check_hosts
    from appsdk_operator.serving._addresses import is_off as is_off
    from appsdk_operator.serving._certificates import CertificatePair as CertificatePair
    from appsdk_operator.serving._certificates import Certificates as Certificates
    from appsdk_operator.serving._certificates import TLSOptions as TLSOptions
    from appsdk_operator.serving._connection import HTTPLimits as HTTPLimits
    from appsdk_operator.serving._messages import HTTPHandler as HTTPHandler
    from appsdk_operator.serving._messages import HTTPRequest as HTTPRequest
    from appsdk_operator.serving._messages import HTTPResponse as HTTPResponse
    from appsdk_operator.serving._messages import text_response as text_response
    from appsdk_operator.serving._server import HTTPServer as HTTPServer

_MODULES = {
    "serving._addresses": (
        "check_address",
        "check_hosts",
        "is_off",
    ),
    "serving._certificates": (
        "CertificatePair",
        "Certificates",
        "TLSOptions",
    ),
    "serving._connection": ("HTTPLimits",),
    "serving._messages": (
        "HTTPHandler",
        "HTTPRequest",
        "HTTPResponse",
        "text_response",
    ),
    "serving._server": ("HTTPServer",),
}
_HOMES = {name: f"appsdk_operator.{module}" for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # which would take any name for one of the package's
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(_HOMES)
