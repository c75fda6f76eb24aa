"""No answer, or half of one: what goes wrong below the API."""

# ruff: noqa: N818 - named as the API errors are

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appsdk_operator.client._errors import ClientError

if TYPE_CHECKING:
    import ssl

__all__ = [
    "BadResponse",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ProxyFailed",
    "ReadTimeout",
    "RequestStopped",
    "ResponseTooLarge",
    "TLSFailed",
    "TransportError",
    "WatchSilent",
    "WrongAnswer",
    "tls_failure",
]


class ConfigError(ClientError, ValueError):
    """The configuration or the credentials cannot be used; the text says what to change."""


class TransportError(ClientError):
    """There is no answer.

    ``sent`` tells whether the server may have got the request, and so may have carried it out.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), str(self), self.sent)


def _rebuild(kind: type[TransportError], message: str, sent: bool) -> TransportError:
    return kind(message, sent=sent)


class ConnectFailed(TransportError):
    """No connection: name not resolved, refused, unreachable, or not in time. Nothing was sent."""

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message, sent=sent)


class TLSFailed(ConnectFailed):
    """No trusted connection: the text names the option that mends it. Nothing was sent."""


class ProxyFailed(ConnectFailed):
    """The proxy refused, or did not understand. Nothing was sent to the server."""


class ConnectionLost(TransportError):
    """The connection broke before the answer was complete."""


class ReadTimeout(TransportError):
    """The connection stands, but nothing came in ``read_timeout`` seconds."""


class WatchSilent(TransportError):
    """No byte came on a watch for so long that the connection must be taken for dead.

    Resume from the last resource version; nothing was lost.
    """


class BadResponse(TransportError):
    """What came is not HTTP, or breaks its rules."""


class WrongAnswer(BadResponse):
    """The answer is about another object than the request was.

    The server, or a proxy on the way, has mixed up answers. The connection is given up, since what
    comes next on it would be wrong as well. Whether a write was carried out is unknown.
    """


class ResponseTooLarge(TransportError):
    """The answer is larger than the bound on it."""


class RequestStopped(TransportError):
    """The stop signal was set, or the client closed, while the request was under way."""


# OpenSSL's X509_V_ERR_* numbers.
_REMEDIES = {
    9: "the clocks of this machine and of the issuer may differ: the certificate is not valid yet",
    10: "the server's certificate has expired: renew it",
    18: "the server's certificate is self-signed: give it as ca_file or ca_data if it is yours",
    19: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    20: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    21: "give the cluster's CA as ca_file or ca_data (certificate-authority in a kubeconfig)",
    62: "connect by a name that is in the certificate, or set tls_server_name to one of them",
    64: "connect by an address that is in the certificate, or set tls_server_name to a name in it",
}


def tls_failure(peer: str, error: ssl.SSLError) -> TLSFailed:
    """The error for a failed handshake, with the remedy for the most common reasons."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(error.verify_code, "check the server's certificate chain")
        return TLSFailed(
            f"the certificate of {peer} is not trusted: {error.verify_message}; {remedy}"
        )
    reason = error.reason or str(error)
    remedy = "check the TLS versions on both sides"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
        remedy = "the server does not speak TLS on this port: check the port, or use http://"
    elif "ALERT" in reason or "CERTIFICATE_REQUIRED" in reason:
        remedy = "the server refused us: check the client certificate, its key and its expiry"
    return TLSFailed(f"no TLS connection to {peer}: {reason}; {remedy}")
