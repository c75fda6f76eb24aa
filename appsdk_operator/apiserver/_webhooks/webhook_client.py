"""HTTPS client for webhooks, whose errors read like those of the real server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import os
import posixpath
import ssl
import weakref
from collections.abc import Mapping
from typing import Any, Final, final
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import msgspec

from appsdk_operator.apiserver._transports import transport_of_socket
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._webhooks.certificate_errors import (
    certificate_error,
    presented_certificate,
)

_ANSWER_LIMIT: Final = 3 * 1024 * 1024
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}

# Messages of client-go for responses that are not Status, by HTTP status.
_MESSAGES: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be "
    "processing the request",
}
# Those that Go leaves as they are in the path of a URL, besides letters, digits and "_.-~".
_PATH_CHARACTERS: Final = "$&+,/:;=@"
_AS_SENT: Final = (403, 406, 415)
_NO_KIND: Final = "couldn't get version/kind; json parse error: "
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
    '"json:\\"kind,omitempty\\"" }'
)


class CallError(Exception):
    """The call of a webhook failed; the text says why."""


class TrustError(CallError):
    """The ``caBundle`` cannot be read."""


class _Connector(aiohttp.TCPConnector):
    """Remembers its transports, so that none is still closing when the event loop ends."""

    def __init__(self) -> None:
        super().__init__()
        self.transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def _wrap_create_connection(self, *args: Any, **options: Any) -> Any:
        # aiohttp offers no other access to the transport of a cancelled call.
        made = await super()._wrap_create_connection(*args, **options)
        # That of TLS could not be aborted once aiohttp has closed it twice.
        self.transports.add(transport_of_socket(made[0]))
        return made


@final
class WebhookClient:
    """Calls webhooks; connections and TLS contexts are reused."""

    def __init__(self, services: Mapping[str, str] | None = None) -> None:
        """``services`` maps ``namespace/name`` of a service to the URL to call instead."""
        self._services = dict(services or {})
        # One for each name of a server, too: an open connection is only used again for a request
        # with the same context, and was verified for that name.
        self._context = functools.lru_cache(maxsize=64)(_trusting)
        self._session: aiohttp.ClientSession | None = None
        self._connector: _Connector | None = None

    def set_service(self, name: str, url: str) -> None:
        """Call ``url`` for the service ``namespace/name`` from now on; from any thread."""
        self._services = {**self._services, name: url}

    async def close(self) -> None:
        """Close the connections; later calls open others."""
        session, connector = self._session, self._connector
        self._session = self._connector = None
        if session is not None and connector is not None:
            await session.close()
            for transport in list(connector.transports):
                transport.abort()

    async def post(self, config: Mapping[str, Any], review: Any, seconds: int) -> dict[str, Any]:
        """Send a review to the webhook of a ``clientConfig``; return its answer, a JSON object.

        Raises:
            CallError: it does not answer in time, or not with a JSON object.
        """
        server_name = _service_name(config)
        try:
            trust = self._context(config.get("caBundle") or "", server_name)
        except ssl.SSLError:
            raise TrustError(
                "unable to load root certificates: unable to parse bytes as PEM block"
            ) from None
        shown, url = self._address(config, f"?timeout={seconds}s")
        prefix = f'Post "{shown}": '
        if not url:
            name = config["service"]["name"]
            raise CallError(f'{prefix}service "{name}" not found')
        if not hasattr(asyncio.get_running_loop(), "create_connection"):
            raise CallError(f"{prefix}this server has no network: use an APIServer")
        try:
            async with asyncio.timeout(seconds):
                try:
                    status, body, kind = await self._send(
                        url, msgspec.json.encode(review), trust, server_name
                    )
                except aiohttp.ClientConnectorCertificateError as error:
                    bundle = config.get("caBundle") or ""
                    why = await _certificate_error(error, url, bundle, server_name)
                    raise CallError(prefix + why) from None
        except TimeoutError:
            raise CallError(f"{prefix}context deadline exceeded") from None
        except (aiohttp.ClientError, OSError) as error:
            raise CallError(prefix + _go_error(error, url)) from None
        return _decoded(status, body, kind)

    async def _send(
        self, url: str, body: bytes, trust: ssl.SSLContext, server_name: str
    ) -> tuple[int, bytes, str]:
        if self._session is None:
            self._connector = _Connector()
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        async with self._session.post(
            url,
            data=body,
            headers=_JSON,
            ssl=trust,
            server_hostname=server_name or None,
            allow_redirects=False,
        ) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > _ANSWER_LIMIT:
                    raise aiohttp.ClientPayloadError("http: response body too large")
            return response.status, bytes(answer), response.headers.get("Content-Type", "")

    def _address(self, config: Mapping[str, Any], query: str) -> tuple[str, str]:
        """The URL for error texts, and the URL to call; ``""`` for an unknown service."""
        service = config.get("service")
        if not service:
            parts = urlsplit(config.get("url") or "")
            url = f"{parts.scheme}://{parts.netloc}{_clean_path(parts.path)}{query}"
            return url, url
        name, namespace = service.get("name"), service.get("namespace")
        path = _clean_path(service.get("path") or "/")
        shown = f"https://{_service_name(config)}:{service.get('port', 443)}{path}{query}"
        url = self._services.get(f"{namespace}/{name}", "").rstrip("/")
        return shown, url and url + path + query


def _trusting(bundle: str, _server_name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_pem(bundle) or None)
    # As with Go, a trusted certificate need not be self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _service_name(config: Mapping[str, Any]) -> str:
    """The name that the certificate of a service's webhook is verified for; ``""`` for a URL."""
    service = config.get("service")
    return f"{service.get('name')}.{service.get('namespace')}.svc" if service else ""


def _clean_path(path: str) -> str:
    """The path that client-go requests: one slash between segments, none at the end, no dots."""
    cleaned = posixpath.normpath("/" + unquote(path).lstrip("/"))
    return quote(cleaned, safe=_PATH_CHARACTERS)


def _pem(bundle: str) -> str:
    try:
        text = base64.b64decode(bundle).decode("ascii", "replace")
    except binascii.Error:
        return "?"
    # OpenSSL takes ASCII only, also in the comments between the certificates.
    return text.replace("\ufffd", "?")


async def _certificate_error(
    error: aiohttp.ClientConnectorCertificateError, url: str, bundle: str, server_name: str
) -> str:
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    wanted = server_name or host
    presented = await presented_certificate(host, port, wanted)
    found = error.certificate_error
    if not isinstance(found, ssl.SSLCertVerificationError):
        found = ssl.SSLCertVerificationError(str(found))
    return certificate_error(found, presented, wanted, _pem(bundle), is_service=bool(server_name))


def _go_error(error: Exception, url: str) -> str:
    """The text of Go's HTTP client for the same error."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "http: server gave HTTP response to HTTPS client"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        # aiohttp adds its own text to the error of a single address.
        why = os.strerror(number).lower() if number else str(error.os_error)
        return f"dial tcp {host}:{port}: connect: {why}"
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        return "EOF"
    return str(error)


def _decoded(status: int, body: bytes, kind: str) -> dict[str, Any]:
    answer: Any = None
    try:
        answer = _read(body) if body else None
    except ValueError as error:
        if status == 200:
            raise CallError(str(error)) from None
    if status != 200:
        raise CallError(f"{_failure(status, answer, body)}")
    if not body:
        raise CallError(f"0-length response with status code: 200 and content type: {kind}")
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise CallError(_NO_KIND + go_json.mismatch(answer, "value", _TYPE_META))
    for name in ("apiVersion", "kind"):
        if not isinstance(answer.get(name) or "", str):
            why = go_json.mismatch(answer[name], f"struct field .{name}", "string")
            raise CallError(_NO_KIND + why)
    return answer


def _read(body: bytes) -> Any:
    """The value of a body: JSON, or YAML, which the real server reads, too.

    Raises:
        ValueError: it is neither.
    """
    if not body.lstrip().startswith(b"{"):
        try:
            return go_json.read_yaml(body)[0]
        except ValueError as error:
            raise ValueError(f"yaml: {error}") from None
    try:
        return go_json.decode(body)
    except ValueError as error:
        raise ValueError(f"{_NO_KIND}{error}") from None


def _failure(status: int, answer: Any, body: bytes) -> str:
    if isinstance(answer, dict) and answer.get("kind") == "Status" and answer.get("message"):
        return str(answer["message"])
    text = body.decode("utf-8", "replace")
    if status in _AS_SENT and text:
        return text
    if status in _MESSAGES:
        return _MESSAGES[status]
    if status >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"
