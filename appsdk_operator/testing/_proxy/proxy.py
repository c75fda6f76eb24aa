"""A proxy on loopback that injects network faults and request faults: :class:`FaultProxy`."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final
from urllib.parse import urlsplit

import attrs

from appsdk_operator.apiserver import FaultRule, FaultSchedule, ServerThread, listen
from appsdk_operator.client import ClientConfig
from appsdk_operator.runtime import Clock, system_clock
from appsdk_operator.testing._proxy.tcp import Address, ConnectionPair, NetworkFaults, cancel_all

if TYPE_CHECKING:
    from appsdk_operator.apiserver import Access, LoggedRequest
    from appsdk_operator.testing._proxy.http_relay import HTTPRelay


_T = TypeVar("_T")

_HOST: Final = "127.0.0.1"
_READ: Final = 65536
_THROTTLE_STEP: Final = 0.05
_PORTS: Final = {"http": 80, "https": 443}


@final
class FaultProxy:
    """A proxy in front of any server, which cuts, stalls and slows connections on demand.

    In front of an address it forwards bytes unread. TLS is then between client and server, and the
    server's certificate, made for ``127.0.0.1``, stays valid.

    In front of a :class:`~appsdk_operator.client.ClientConfig` it also reads the requests. It ends
    TLS with its own certificate, which clients trust by :meth:`client_config`, and applies the
    rules of :meth:`inject`, like the embedded server. Requests keep their credentials; requests
    without credentials get those of the config. The proxy cannot forward a client certificate: it
    uses the config's certificate for all requests.

    It listens on loopback only and has one thread; every method may be called from any other
    thread. A fault is in force when its method returns, until it is ended or :meth:`clear` is
    called.

    >>> from appsdk_operator.testing import APIServer
    >>> with APIServer() as server, FaultProxy(server.url) as proxy:
    ...     proxy.url.startswith("http://127.0.0.1:")
    True

    Args:
        target: where to forward connections: ``http://host:port``, ``https://host:port`` or
            ``tcp://host:port``; or a client's configuration, for a proxy that reads requests.
        port: the TCP port to listen on; default 0, any free one.
        faults: faults of requests from the start, see :meth:`inject`.

    Raises:
        ValueError: the target has another form or is behind a proxy, the port is out of range, or
            there are faults for an address, where the proxy sees no requests.
    """

    def __init__(
        self,
        target: str | ClientConfig,
        *,
        port: int = 0,
        faults: FaultSchedule | Iterable[FaultRule] = (),
        clock: Clock = system_clock,
    ) -> None:
        """See the class."""
        self._config = target if isinstance(target, ClientConfig) else None
        address = target if isinstance(target, str) else target.server
        parts = urlsplit(address)
        try:
            target_port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            target_port = None
        if parts.scheme not in ("http", "https", "tcp") or not parts.hostname or not target_port:
            raise ValueError(f"target {address!r} must be 'https://host:port', http:// or tcp://")
        if not 0 <= port <= 65535:
            raise ValueError(f"port={port} is not a TCP port: use 0 for any, or 1 to 65535")
        self._target = (parts.hostname, target_port)
        self._address: Address | None = None
        self._scheme = parts.scheme
        self._port = port
        self._clock = clock
        self._thread = ServerThread("appsdk-operator-proxy", self._prepare, self._serve)
        self._changed = threading.Condition()
        # The rest is used by the loop only.
        self._flowing = asyncio.Event()
        self._listener: socket.socket | None = None
        self._pairs: dict[asyncio.Task[bool], ConnectionPair] = {}
        self._faults = NetworkFaults()
        self._accepted = 0
        self._relay: HTTPRelay | None = None
        if self._config is not None:
            from appsdk_operator.testing._proxy.http_relay import HTTPRelay

            self._relay = HTTPRelay(self._config, clock)
        schedule = self._checked(faults)
        if schedule.rules:
            self._require_relay().faults.add(schedule)

    # -- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen. Does nothing when it already does.

        Raises:
            OSError: the port is taken, or the target's name cannot be resolved.
        """
        self._thread.start()
        return self

    def stop(self) -> None:
        """Cut every connection, close the port and end the thread. Does nothing when stopped."""
        self._thread.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def url(self) -> str:
        """Its address, with the target's scheme: ``https://127.0.0.1:40123``."""
        return f"{self._scheme}://{_HOST}:{self._port}"

    @property
    def ca_data(self) -> bytes:
        """The PEM certificate of the authority to trust; empty if the proxy does not end TLS."""
        authority = None if self._relay is None else self._relay.authority
        return b"" if authority is None else authority.certificate

    def client_config(self, **options: Any) -> ClientConfig:
        """The target's configuration, with this proxy's address.

        Args:
            options: other options of :class:`~appsdk_operator.client.ClientConfig`.

        Raises:
            ValueError: the target is an address.
        """
        self._require_relay()
        assert self._config is not None
        own = {"server": self.url, "ca_data": self.ca_data or None, "ca_file": None}
        more = {"tls_server_name": None, "unsafe_skip_tls_verify": False, "proxy_url": None}
        return attrs.evolve(self._config, **{**own, **more, **options})

    # -- faults ------------------------------------------------------------------------------

    def cut(self) -> int:
        """Reset all connections on both sides; returns their number. New ones are forwarded."""
        return self._call(self._cut_all)

    def refuse(self, refused: bool = True) -> None:
        """Refuse new connections, as when no server runs; open connections stay."""
        self._do(self._stop_listening if refused else self._listen_again)

    def stall(self, stalled: bool = True) -> None:
        """Forward no byte in either direction; connections stay open, and new ones are accepted.

        A firewall that has dropped a connection's state does this: neither side notices. When the
        stall ends, the proxy forwards the bytes that it held back.
        """
        self._do(lambda: self._flowing.clear() if stalled else self._flowing.set())

    def delay(self, seconds: float) -> None:
        """Forward everything ``seconds`` later, in both directions; 0 ends it.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"delay of {seconds} s: use 0 or more")
        self._set(delay=seconds)

    def throttle(self, bytes_per_second: float | None) -> None:
        """Forward answers at this rate at most, as a slow reader would; None ends it.

        Raises:
            ValueError: ``bytes_per_second`` is not more than 0.
        """
        if bytes_per_second is not None and not 0 < bytes_per_second < math.inf:
            raise ValueError(f"{bytes_per_second} bytes per second: use more than 0, or None")
        self._set(rate=bytes_per_second)

    def cut_after(self, count: int, *, times: int = 1) -> None:
        """Reset connections in the middle of an answer.

        The proxy cuts a connection after ``count`` more bytes of answers. With 0 it cuts before the
        first byte: the request takes effect, and its answer is lost.

        Args:
            count: the number of forwarded bytes.
            times: the number of connections to cut, the first ones that get so far; default 1. 0
                ends this fault.

        Raises:
            ValueError: a number is negative.
        """
        if count < 0 or times < 0:
            raise ValueError(f"cut_after({count}, times={times}): neither may be negative")
        self._set(cut_after=count, cuts_left=times)

        def reset() -> None:
            for pair in self._pairs.values():
                pair.answer_bytes = 0

        self._do(reset)

    def inject(self, faults: FaultSchedule | Iterable[FaultRule]) -> None:
        """Apply these rules to requests from now on, after the rules in force.

        Args:
            faults: rules, or a schedule of rules with the seed of their probabilities; see
                :class:`FaultRule`. All but ``stale``, which only the embedded server has.

        Raises:
            ValueError: the target is an address, where the proxy sees no requests, or a rule is
                not for a proxy.
        """
        schedule = self._checked(faults)
        relay = self._require_relay()
        self._do(lambda: relay.faults.add(schedule))

    def clear(self) -> None:
        """End all faults."""

        def clear() -> None:
            if self._relay is not None:
                self._relay.faults.clear()
            self._faults = NetworkFaults()
            self._flowing.set()
            self._listen_again()

        self._do(clear)

    # -- observations ------------------------------------------------------------------------

    @property
    def requests(self) -> list[LoggedRequest]:
        """The last 10,000 requests, oldest first.

        Raises:
            ValueError: the target is an address, where the proxy sees no requests.
        """
        relay = self._require_relay()
        return self._do(lambda: list(relay.faults.log))

    def accesses(self) -> list[Access]:
        """The merged verbs and resources of the requests so far, as :meth:`APIServer.accesses`.

        The user is empty, or the impersonated user: a proxy cannot read names from credentials.

        Raises:
            ValueError: the target is an address, where the proxy sees no requests.
        """
        return self._do(self._require_relay().accesses.read)

    def clear_accesses(self) -> None:
        """Forget the accesses so far.

        Raises:
            ValueError: the target is an address, where the proxy sees no requests.
        """
        self._do(self._require_relay().accesses.clear)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._pairs)

    @property
    def accepted(self) -> int:
        """The number of connections accepted so far."""
        return self._accepted

    def wait_for(self, condition: Callable[[FaultProxy], bool], timeout: float = 10.0) -> bool:
        """Wait until ``condition`` holds; it is checked when connections open and close.

        >>> with FaultProxy("tcp://127.0.0.1:9") as proxy:
        ...     proxy.wait_for(lambda proxy: proxy.connections == 0)
        True

        Args:
            condition: gets this proxy; looks at :attr:`connections` or :attr:`accepted`.
            timeout: seconds; default 10.

        Returns:
            Whether it holds.
        """
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            while not condition(self):
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.wait(self._changed, left)
        return True

    # -- inside ------------------------------------------------------------------------------

    def _require_relay(self) -> HTTPRelay:
        if self._relay is None:
            raise ValueError(
                "this proxy forwards bytes unread: give FaultProxy the client_config() of the "
                "server in place of its address"
            )
        return self._relay

    @staticmethod
    def _checked(faults: FaultSchedule | Iterable[FaultRule]) -> FaultSchedule:
        schedule = faults if isinstance(faults, FaultSchedule) else FaultSchedule(faults)
        for rule in schedule:
            if rule.action == "stale":
                raise ValueError(f"{rule!r}: only the embedded server has a cache that can lag")
        return schedule

    def _call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        with self._thread.lifecycle:
            if not self._thread.is_running:
                raise RuntimeError("the proxy does not run: call start(), or use 'with'")
            return self._thread.call(work())

    def _do(self, work: Callable[[], _T]) -> _T:
        """The result of ``work`` in the loop."""

        async def call() -> _T:
            return work()

        return self._call(call)

    def _set(self, **faults: Any) -> None:
        def change() -> None:
            self._faults = attrs.evolve(self._faults, **faults)

        self._do(change)

    def _prepare(self) -> socket.socket:
        """Prepare a start; returns the listener."""
        # Not in the loop, which would start more threads for it.
        if self._relay is None:
            self._address = socket.getaddrinfo(*self._target, type=socket.SOCK_STREAM)[0]
        listener = listen(_HOST, self._port)
        self._port = listener.getsockname()[1]
        self._flowing = asyncio.Event()
        self._faults = NetworkFaults()
        return listener

    async def _serve(
        self, listener: socket.socket, ready: Callable[[], None], stopping: asyncio.Event
    ) -> None:
        self._flowing.set()
        if self._relay is not None:
            port = await self._relay.start()
            self._address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (_HOST, port))
        self._listen(listener)
        ready()
        try:
            await stopping.wait()
        finally:
            if self._relay is not None:
                await self._relay.stop()
            self._stop_listening()
            await self._cut_all()

    def _listen(self, listener: socket.socket) -> None:
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _listen_again(self) -> None:
        if self._listener is None:
            self._listen(listen(_HOST, self._port))

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    # Not by a task: one that is cancelled as it wakes up loses the connection it has accepted.
    def _accept(self, listener: socket.socket) -> None:
        assert self._address is not None
        try:
            client, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):  # closed again already
            return
        pair = ConnectionPair(client, self._address)
        task = asyncio.get_running_loop().create_task(self._forward_connection(pair))
        self._pairs[task] = pair
        # Not by the task itself, which does nothing at all when it is cut before it begins.
        task.add_done_callback(self._end)
        self._accepted += 1
        self._notify()

    async def _cut_all(self) -> int:
        tasks = list(self._pairs)
        await cancel_all(*tasks)
        return len(tasks)

    async def _forward_connection(self, pair: ConnectionPair) -> bool:
        """Forward in both directions; whether both have ended gracefully."""
        is_graceful = False
        try:
            await pair.connect()
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._pump(pair, pair.client, pair.server, False))
                directions.create_task(self._pump(pair, pair.server, pair.client, True))
            is_graceful = True
        except* OSError:
            pass
        return is_graceful

    def _end(self, task: asyncio.Task[bool]) -> None:
        """Close a connection: a graceful end is forwarded, anything else resets both sides."""
        is_graceful = False
        try:
            is_graceful = not task.cancelled() and task.result()
        finally:
            self._pairs.pop(task).close(reset=not is_graceful)
            self._notify()

    async def _pump(
        self, pair: ConnectionPair, source: socket.socket, sink: socket.socket, answers: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            rate = self._faults.rate if answers else None
            size = _READ if rate is None else max(1, min(_READ, int(rate * _THROTTLE_STEP)))
            await self._flowing.wait()
            data = await loop.sock_recv(source, size)
            if self._faults.delay:
                await asyncio.sleep(self._faults.delay)
            await self._flowing.wait()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            if rate is not None:
                await asyncio.sleep(len(data) / rate)
            if answers and self._faults.cuts_left:
                room = self._faults.cut_after - pair.answer_bytes
                pair.answer_bytes += len(data)
                if len(data) > room or not room:
                    self._faults = attrs.evolve(self._faults, cuts_left=self._faults.cuts_left - 1)
                    await loop.sock_sendall(sink, data[: max(0, room)])
                    raise ConnectionResetError("cut in the middle of an answer")
            await loop.sock_sendall(sink, data)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
