"""The client: verbs on kinds and objects."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, final

from appsdk_operator.client._api.protocols import ClientLike
from appsdk_operator.client._api.reads import Reads
from appsdk_operator.client._api.subresource import SubresourceClient
from appsdk_operator.client._api.writes import Writes
from appsdk_operator.client._auth.config import ClientConfig
from appsdk_operator.client._request import JSON, Request
from appsdk_operator.runtime import Clock, Metrics, default_metrics, system_clock
from appsdk_operator.runtime.validation import check_environment, check_text

if TYPE_CHECKING:
    from appsdk_operator.client._api.discovery import Discovery

__all__ = ["Client"]

_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")


@final
class Client(Reads, Writes):
    """Talks to one API server.

    Reads and writes go to the server, each call is one request (:meth:`list` one a page).
    Thread-safe: share one client between all threads; close it, or use it in a ``with`` block.

    Every method raises :class:`ApiError` when the server says no, :class:`TransportError` when
    there is no answer, :class:`ConfigError` when the credentials cannot be used, ``ValueError``
    for arguments that no server would take, and :class:`~appsdk_operator.resource.DecodeError`
    when an answer is not what the kind promises.

    Args:
        config: where the server is, see :class:`ClientConfig`.
        clock: times the waits between retries; default: the machine's.
        metrics: where requests are counted; default: the kit's own registry.

    Raises:
        TypeError: ``config`` is none.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock = system_clock,
        metrics: Metrics | None = None,
    ) -> None:
        # Not at the top: http.client and ssl take as long to import as all the rest together.
        from appsdk_operator.client._transport.transport import Transport

        _check_config(config)
        check_environment(clock=clock, metrics=metrics)
        self._config = config
        self._transport = Transport(config, clock=clock, metrics=metrics or default_metrics())
        self._discovery: Discovery | None = None
        self._status_warned = set()

    @property
    def config(self) -> ClientConfig:
        """How the server is reached."""
        return self._config

    def close(self) -> None:
        """Close all connections; requests and watches under way end. Harmless when done twice."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._config.server}>"

    @property
    def status(self) -> SubresourceClient:
        """The client for ``status``: ``client.status.update(obj)``."""
        return self.subresource("status")

    def subresource(self, name: str) -> SubresourceClient:
        """The client for a subresource, for example ``scale``, ``eviction`` or ``token``."""
        return SubresourceClient(self._transport, name)

    @property
    def discovery(self) -> Discovery:
        """What the server serves."""
        from appsdk_operator.client._api.discovery import Discovery

        if self._discovery is None:
            self._discovery = Discovery(self._asked, get_once=self._asked_once)
        return self._discovery

    def _asked(self, path: str) -> bytes:
        return self.request("GET", path)

    def _asked_once(self, path: str) -> bytes:
        request = Request(method="GET", path=path, accept=JSON, repeatable=True, retry=False)
        return self._transport.send(request)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Any request, for what the other methods do not cover; retries, errors and credentials
        are as everywhere.

        Args:
            method: the HTTP method.
            path: the quoted path after the server's address, for example ``/version``.
            query: the query parameters, unquoted.
            body: the body.
            content_type: its media type; default: JSON.
            accept: the media types wanted; default: JSON.

        Returns:
            The answer's body.
        """
        check_text("method", method)
        check_text("path", path)
        check_text("content_type", content_type)
        check_text("accept", accept)
        if body is not None and not isinstance(body, bytes):
            raise TypeError(f"body is of type {type(body).__name__}: give bytes, text.encode()")
        _check_query(query)
        if not method.isalpha() or not path.startswith("/") or not _PATH.fullmatch(path):
            raise ValueError(
                f"{method} {path!r} is no request: the path starts with '/', is quoted, and has no "
                "query of its own"
            )
        request = Request(
            method=method.upper(),
            path=path,
            query=list(query.items() if isinstance(query, Mapping) else query),
            body=body,
            content_type=content_type,
            accept=accept,
            repeatable=method.upper() in {"GET", "HEAD"},
        )
        return self._transport.send(request)


def _check_query(query: object) -> None:
    pairs = query.items() if isinstance(query, Mapping) else query
    if (
        isinstance(pairs, str)
        or not isinstance(pairs, Iterable)
        or not all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and all(isinstance(part, str) for part in pair)
            for pair in pairs
        )
    ):
        raise TypeError(f"query={query!r}: give a mapping of texts, or a list of pairs of texts")


def _check_config(config: object) -> None:
    if not isinstance(config, ClientConfig):
        example = ".load()"
        if isinstance(config, str) and "://" in config:
            example = f"(server={config!r})"
        elif isinstance(config, (str, os.PathLike)):
            example = f".load({os.fspath(config)!r})"
        raise TypeError(
            f"config={config!r} is no ClientConfig: give one, for example ClientConfig{example}"
        )


def _fits(client: Client) -> ClientLike:
    return client
