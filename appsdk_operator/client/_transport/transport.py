"""The transport: sends requests with credentials, rate limit, retries and pooled connections.

It is own code on sockets, and not urllib3 (which the ``kubernetes`` package uses), for three
reasons:

* **Any thread can cut a connection.** A stop signal, :meth:`Client.close` or a signal handler ends
  a request in another thread, whether it connects, shakes hands, sends or reads. urllib3 can stop
  the reads of a response (``HTTPResponse.shutdown()``, from 2.3 on), and nothing before them.
* **Deadlines.** One deadline covers a request from its first byte to the last one of its answer,
  and a limit on silence covers a watch. urllib3's read time-out is for each read alone, which a
  server that sends a byte now and then never exceeds.
* **Bulk reads.** One read takes up to 1 MiB from the socket, all TLS records in it are decrypted at
  once, and chunks are cut into lines without a copy. Measured with one decoder behind both, on
  watch events of 2 KB: 293,000 a second read in bulk, 192,000 through urllib3's stream; over TLS
  232,000 and 123,000 (``floor bulk`` and ``floor partial`` in docs/performance.md).
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from appsdk_operator._lazy import lazy_pattern
from appsdk_operator.client._auth.config import ClientConfig, credentials_of
from appsdk_operator.client._auth.credentials import Credential, obtained
from appsdk_operator.client._errors import (
    ApiError,
    BadResponse,
    ClientError,
    ConnectionLost,
    ReadTimeout,
    RequestStopped,
    ResponseTooLarge,
    TransportError,
)
from appsdk_operator.client._redaction import SentCredentials, display_text, redacted
from appsdk_operator.client._request import Request
from appsdk_operator.client._secret_texts import shown_warning
from appsdk_operator.client._transport.cancelling import present_stop
from appsdk_operator.client._transport.connection import Connection, Endpoint, Response
from appsdk_operator.client._transport.contact import ServerContact
from appsdk_operator.client._transport.metrics import RequestMetrics
from appsdk_operator.client._transport.pool import Pool
from appsdk_operator.client._transport.response_errors import check_status, error_from_response
from appsdk_operator.client._transport.retry import RetryRules
from appsdk_operator.client._transport.write_guard import run_write_checks
from appsdk_operator.resource import DecodeError
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    Observers,
    StopSignal,
    TokenBucket,
    after_fork,
    fork_safe,
    get_logger,
    observed_request,
    random_of,
)

_log = get_logger("appsdk_operator.client")

_T = TypeVar("_T")
_MAX_ERROR_BODY = 1 << 20
_MAX_WARNINGS = 1000
# API servers send at most 4 KiB of warnings.
_MAX_WARNINGS_AT_ONCE = 16
_MAX_WARNING_HEADER = 8192
_MAX_WARNING = 1024
_EARLIER_ATTEMPT = "an earlier try of this request got no answer and may have been carried out"
_WARNING = lazy_pattern(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class OpenResponse(NamedTuple):
    """An answer with its head read and its body unread, and the connection that carries it."""

    connection: Connection
    response: Response


class _AbortHandle:
    """Aborts a request: cuts the connection that it uses now, and none that it used before."""

    def __init__(self) -> None:
        self.lost = False
        """Whether an attempt got no answer, and may have been carried out."""
        # Re-entrant: a signal handler may set the stop signal in the thread that runs one of these
        # methods.
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._aborted = False
        self._has_written = False

    def attach(self, connection: Connection) -> None:
        """Use this connection for the request from now on."""
        with self._lock:
            self._connection = connection
            if self._aborted:
                connection.abort()

    def release(self) -> None:
        """Forget the connection; call it before another request can get the connection."""
        with self._lock:
            self._connection = None
            self._has_written = False

    def note_write(self) -> None:
        """Note that the attached connection carries bytes of a write from now on."""
        with self._lock:
            self._has_written = True

    def abort_unless_written(self) -> None:
        """:meth:`abort`, but a write that was sent gets its answer: it would tell its effect."""
        with self._lock:
            if not self._has_written:
                self.abort()

    def abort(self) -> None:
        """Cut the attached connection, and each one that is attached later."""
        with self._lock:
            self._aborted = True
            if self._connection is not None:
                self._connection.abort()


class Transport:
    """Sends requests to one API server. Thread-safe."""

    def __init__(self, config: ClientConfig, *, clock: Clock, metrics: Metrics) -> None:
        self._config = config
        self._credentials = credentials_of(config, clock)
        self._endpoint = Endpoint.of(config)
        self._pool = Pool(self._endpoint, clock)
        self._rules = RetryRules.of(config, rng=random_of(clock))
        self._clock = clock
        self.contact: Final = ServerContact(clock.monotonic())
        self.observers: Observers = Observers()
        self._metrics = RequestMetrics(
            metrics, host=self._endpoint.authority, detailed=config.detailed_metrics
        )
        self.metrics: Final = self._metrics
        """Where its requests are counted."""
        self._bucket = (
            TokenBucket(rate=config.qps, burst=config.burst, clock=clock) if config.qps else None
        )
        self._stop = StopSignal(clock=clock)
        self._headers = [("User-Agent", config.user_agent)]
        if config.impersonate is not None:
            from appsdk_operator.client._auth.impersonation import impersonation_headers

            self._headers += impersonation_headers(config.impersonate)
        self._warnings: set[str] = set()
        self._warnings_lock = fork_safe(threading.Lock())
        self._secrets, self._proxy_secrets = SentCredentials(), SentCredentials()
        if self._endpoint.proxy and self._endpoint.proxy.authorization:
            self._proxy_secrets.add(self._endpoint.proxy.authorization)
        after_fork(self._on_fork)

    @property
    def stop(self) -> StopSignal:
        """Set when the transport is closed."""
        return self._stop

    def heard(self) -> None:
        """Note that the server has sent something just now."""
        self.contact.heard_at = self._clock.monotonic()

    def _on_fork(self) -> None:
        # With the same random numbers, all children and their parent would retry at once.
        self._rules = RetryRules.of(self._config, rng=random_of(self._clock))

    def close(self) -> None:
        """Abort all requests and close all connections; calling it twice is harmless."""
        self._stop.set()
        self._pool.close()

    def send(
        self,
        request: Request,
        *,
        stop: StopSignal | None = None,
        decode: Callable[[bytes], _T] = bytes,  # type: ignore[assignment]
    ) -> _T:
        """Send a request; return the body of its answer, passed through ``decode``.

        An answer that cannot be decoded, or is about another object, may belong to another
        request: its connection is not reused.

        Raises:
            ApiError: the server refuses the request.
            TransportError: there is no usable answer.
            ConfigError: the credentials cannot be used.
            DecodeError: what ``decode`` raises.
        """

        def finish(request: Request, opened: OpenResponse, handle: _AbortHandle) -> _T:
            return self._finish(request, opened, handle, decode)

        return self._with_stop(request, stop, finish)

    def open(self, request: Request, *, stop: StopSignal | None = None) -> OpenResponse:
        """Send a request; return its answer with the body unread. The caller closes the connection.

        Raises:
            ApiError, TransportError, ConfigError: as :meth:`send`.
        """
        return self._with_stop(request, stop, self._open_stream)

    def _with_stop(
        self,
        request: Request,
        stop: StopSignal | None,
        use: Callable[[Request, OpenResponse, _AbortHandle], _T],
    ) -> _T:
        if self._stop.is_set():
            raise RequestStopped(f"{request}: the client is closed", sent=False)
        handle = _AbortHandle()
        stops = [each for each in (stop, present_stop()) if each is not None]
        signal = self._stop.child(*stops) if stops else self._stop
        forget_close = self._stop.on_set(handle.abort)
        forget = signal.on_set(handle.abort_unless_written)
        try:
            return self._send_with_retries(request, signal, handle, use)
        finally:
            forget_close()
            forget()
            if stops:
                signal.set()  # removes it from the children of all

    def _send_with_retries(
        self,
        request: Request,
        signal: StopSignal,
        handle: _AbortHandle,
        use: Callable[[Request, OpenResponse, _AbortHandle], _T],
    ) -> _T:
        attempt = 0
        reloaded = False
        while True:
            wait = self._bucket.reserve() if self._bucket else 0.0
            self._metrics.limited(request, wait)
            if wait and signal.wait(wait) and self._bucket:
                self._bucket.cancel()
            credential = obtained(self._credentials, signal)
            if credential is None:
                raise RequestStopped(f"{request}: stopped before it was sent", sent=handle.lost)
            try:
                return self._send_once(request, credential, handle, use, attempt)
            except ApiError as error:
                if error.status == 401 and not reloaded:
                    reloaded = True
                    self._credentials.refused(credential)
                    self._pool.clear()
                    continue
                if handle.lost:
                    error.add_note(_EARLIER_ATTEMPT)
                failure: ClientError = error
            except TransportError as error:
                if handle.lost and not error.sent:
                    error.add_note(_EARLIER_ATTEMPT)
                handle.lost = error.sent = handle.lost or error.sent
                if isinstance(error, ReadTimeout):
                    # What silenced this connection, such as a load balancer that moved, may have
                    # silenced the idle ones, of which each would cost another time-out.
                    self._pool.clear()
                if signal.is_set():
                    raise RequestStopped(
                        f"{request}: stopped while it was under way", sent=error.sent
                    ) from error
                failure = error
            pause = self._rules.wait_after(request, failure, attempt)
            if pause is None:
                if attempt:
                    failure.add_note(f"tried {attempt + 1} times")
                raise failure
            attempt += 1
            _log.debug("trying again in %.2f s: %s", pause, failure)
            self._metrics.retried(request, failure)
            if signal.wait(pause):
                raise RequestStopped(
                    f"{request}: stopped while waiting to try again", sent=handle.lost
                ) from failure

    def _send_once(
        self,
        request: Request,
        credential: Credential,
        handle: _AbortHandle,
        use: Callable[[Request, OpenResponse, _AbortHandle], _T],
        attempt: int,
    ) -> _T:
        with (
            self._metrics.timed(request, self._clock) as observation,
            observed_request(
                self.observers,
                self._clock,
                method=request.method,
                verb=request.verb,
                resource=request.resource or request.path,
                namespace=request.namespace,
                name=request.name or request.answer_name,
                host=self._endpoint.authority,
                tries=attempt,
            ) as observed,
        ):
            opened = self._exchange(request, credential, handle, observed.headers)
            observation.code = str(opened.response.status)
            observed.answered(opened.response.status)
            return use(request, opened, handle)

    def _exchange(
        self,
        request: Request,
        credential: Credential,
        handle: _AbortHandle,
        extra: Mapping[str, str],
    ) -> OpenResponse:
        head = self._request_head(request, credential, extra)
        fresh = False
        while True:
            try:
                connection = self._pool.take(credential, handle.attach, fresh=fresh)
            except TransportError as error:
                raise type(error)(f"{request}: {error}", sent=False) from error.__cause__
            try:
                if request.method != "GET":
                    run_write_checks()
                    handle.note_write()
                response = connection.exchange(head, request.body, method=request.method)
            except TransportError as error:
                handle.release()
                connection.close()
                # The server may close an idle connection just when it is reused. That is not a
                # sign of trouble, so it costs neither a retry nor a wait.
                idle_closed = connection.requests > 1 and isinstance(error, ConnectionLost)
                if idle_closed and request.repeatable and not connection.aborted:
                    fresh = handle.lost = True
                    continue
                raise self._with_context(request, error) from error.__cause__
            except BaseException as error:
                connection.close()
                if handle.lost:
                    error.add_note(_EARLIER_ATTEMPT)
                raise
            self.heard()
            return OpenResponse(connection, response)

    def _with_context(self, request: Request, error: TransportError) -> TransportError:
        text = f"{request}: {error} ({self._endpoint}"
        if isinstance(error, ReadTimeout):
            text += (
                f", read_timeout={self._config.read_timeout:g} s"
                f", request_timeout={self._config.request_timeout:g} s"
            )
        if error.sent and request.method != "GET":
            text += "; it may have been carried out: read the object before doing it again"
        return type(error)(f"{text})", sent=error.sent)

    def _request_head(
        self, request: Request, credential: Credential, extra: Mapping[str, str]
    ) -> bytes:
        headers = [("Accept", request.accept), *self._headers, *extra.items()]
        # A packer may hold an event back until more follow.
        packed = self._config.compression and request.verb != "watch"
        headers.append(("Accept-Encoding", "gzip" if packed else "identity"))
        if credential.authorization is not None:
            self._secrets.add(credential.authorization)
            headers.append(("Authorization", credential.authorization))
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
            headers.append(("Content-Length", str(len(request.body))))
        elif request.method in {"POST", "PUT", "PATCH"}:
            headers.append(("Content-Length", "0"))
        return self._endpoint.head(request.method, request.target, headers)

    def _finish(
        self,
        request: Request,
        opened: OpenResponse,
        handle: _AbortHandle,
        decode: Callable[[bytes], _T],
    ) -> _T:
        with self._reusing(opened, handle):
            body = self._read(request, opened)
            self._metrics.received(request, len(body))
            if not 200 <= opened.response.status < 300:
                raise _refusal(request, opened.response, body)
            made = _decoded(decode, body)
        self._log_warnings(request, opened.response)
        return made

    def _open_stream(
        self, request: Request, opened: OpenResponse, handle: _AbortHandle
    ) -> OpenResponse:
        if opened.response.status != 200:
            with self._reusing(opened, handle):
                raise _refusal(request, opened.response, self._read(request, opened))
        if (encoding := _encoding(opened.response)) != "identity":
            handle.release()
            opened.connection.close()
            raise self._with_context(request, _packed(encoding))
        self._log_warnings(request, opened.response)
        handle.release()
        return opened

    @contextlib.contextmanager
    def _reusing(self, opened: OpenResponse, handle: _AbortHandle) -> Iterator[None]:
        """Return the connection to the pool if the answer was complete and valid, else close it."""
        connection, response = opened
        in_order = False
        try:
            yield
            in_order = True
        except ApiError:
            in_order = True
            raise
        finally:
            # A connection in the pool may serve another request at once, which this request's stop
            # must not cut.
            handle.release()
            if in_order and not response.will_close:
                self._pool.put(connection)
            else:
                connection.close()

    def _read(self, request: Request, opened: OpenResponse) -> bytes:
        limit = self._config.max_response_bytes
        if opened.response.status >= 300:
            limit = min(limit, _MAX_ERROR_BODY)
        try:
            return _read_body(opened.response, limit)
        except TransportError as error:
            raise self._with_context(request, error) from error.__cause__

    def _log_warnings(self, request: Request, response: Response) -> None:
        values = response.headers.get_all("Warning")
        if not values:
            return
        for value in values[:_MAX_WARNINGS_AT_ONCE]:
            for text in _WARNING.findall(value[:_MAX_WARNING_HEADER]):
                text = text.replace('\\"', '"')
                if request.secret:
                    text = shown_warning(text)
                text = display_text(text, limit=_MAX_WARNING)
                with self._warnings_lock:
                    if text in self._warnings or len(self._warnings) >= _MAX_WARNINGS:
                        continue
                    self._warnings.add(text)
                _log.warning("the API server warns: %s", text)


def _refusal(request: Request, response: Response, body: bytes) -> ApiError:
    error = error_from_response(request, response.status, response.headers, body)
    check_status(request, {"details": error.details})
    return error


def _decoded(decode: Callable[[bytes], _T], body: bytes) -> _T:
    try:
        return decode(body)
    except DecodeError as error:
        # The text may quote the beginning of the answer.
        text = redacted(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from None


def _read_body(response: Response, limit: int) -> bytes:
    body = response.read(limit)
    encoding = _encoding(response)
    if encoding == "gzip":
        return _gunzip(body, limit)
    if encoding != "identity":
        raise _packed(encoding)
    return body


def _encoding(response: Response) -> str:
    return str(response.headers.get("Content-Encoding", "identity")).lower()


def _packed(encoding: str) -> BadResponse:
    return BadResponse(f"the answer is packed with {encoding[:40]!r}, which was not asked for")


def _gunzip(body: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj(31)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadResponse(f"the answer is not gzip: {error}") from error
    if len(unpacked) > limit:
        raise ResponseTooLarge(f"the unpacked answer has more than the {limit} bytes allowed")
    if not unpacker.eof:
        raise ConnectionLost("the packed answer broke off")
    if unpacker.unused_data:
        raise BadResponse("more follows the packed answer")
    return unpacked
