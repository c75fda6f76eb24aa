"""The embedded API server: options, start and stop, credentials, inspection and faults."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

from appsdk_operator.apiserver._fault_rules import FaultRule, FaultSchedule, When
from appsdk_operator.apiserver._http.server_thread import ServerThread
from appsdk_operator.apiserver._kubeconfig import kubeconfig, write_kubeconfig
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.client import ClientConfig
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Clock, system_clock

if TYPE_CHECKING:
    from appsdk_operator.apiserver._auth.access_table import Access
    from appsdk_operator.apiserver._http.connections import HttpServer
    from appsdk_operator.apiserver._http.faults import LoggedRequest
    from appsdk_operator.apiserver._http.frontend import Frontend
    from appsdk_operator.apiserver._storage.storage import Collection

_T = TypeVar("_T")

_GRACE: Final = 0.5


@final
class APIServer:
    """A Kubernetes API server inside the process, on a real socket, with real HTTP.

    It serves the built-in kinds and custom resources to any client, kubectl included, collects
    garbage, deletes the content of deleted namespaces, and injects faults on demand. It runs in one
    thread of its own; every method may be called from any other thread.

    The state survives :meth:`stop` and a new :meth:`start`, which listens on the same port again.

    >>> with APIServer() as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True

    Args:
        port: the TCP port; default 0, any free one.
        host: the address to listen on; default loopback. Another one is refused while the server
            requires no credentials.
        tls: whether to serve HTTPS, with a certificate of a CA made for this server.
        token: the bearer token of ``admin``, who may do everything. Default: no token is required
            and every client is ``admin``; with ``users``, ``rbac`` or ``authorizer`` a random one.
            kubectl and other Go clients send tokens over TLS only.
        users: further users by their bearer tokens, each as ``{"username": …}``, optionally with
            ``uid``, ``groups`` and ``extra``. A client without a token is ``system:anonymous``.
        rbac: whether roles and bindings decide what users may do; default: everything is allowed.
            The default cluster roles and bindings exist from the start.
        authorizer: decides instead, given the ``spec`` of a SubjectAccessReview, in the server's
            thread; not called for members of ``system:masters``.
        clock: gives the objects' time stamps. The time-outs of connections are real time.
        crds: CustomResourceDefinitions to serve from the start.
        history: the number of events each resource remembers for watches and for pages of lists;
            older versions are answered with 410. Default 10,000.
        bookmark_interval: seconds between the bookmarks of a watch; default 60.
        streaming_lists: whether watches may begin with the state (``sendInitialEvents``); False
            answers them with 422, as servers without the feature do.
        request_log: the number of requests that :attr:`requests` remembers; default 10,000.
        services: the URLs of services that webhook configurations refer to, by ``namespace/name``,
            such as ``{"default/hooks": "https://127.0.0.1:9443"}``. As by kube-apiserver, the
            certificates there are verified for the service: ``hooks.default.svc``. Default: no
            service is found.
        faults: fault rules that are active from the start, see :meth:`inject`.

    Raises:
        ValueError: an option out of its range.
        StatusError: one of ``crds`` is not valid.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: bool = False,
        token: str | None = None,
        users: Mapping[str, Mapping[str, Any]] | None = None,
        rbac: bool = False,
        authorizer: Callable[[Mapping[str, Any]], bool] | None = None,
        clock: Clock = system_clock,
        crds: Iterable[Mapping[str, Any]] = (),
        history: int = 10_000,
        bookmark_interval: float = 60.0,
        streaming_lists: bool = True,
        request_log: int = 10_000,
        services: Mapping[str, str] | None = None,
        faults: FaultSchedule | Iterable[FaultRule] = (),
    ) -> None:
        """See the class."""
        # As slow to import as all else that a test needs together.
        from appsdk_operator.apiserver._authority import Authority
        from appsdk_operator.apiserver._core import Core
        from appsdk_operator.apiserver._http.access_control import AccessControl
        from appsdk_operator.apiserver._http.faults import Faults
        from appsdk_operator.apiserver._http.non_resource_handler import NonResourceHandler
        from appsdk_operator.apiserver._http.resource_handler import ResourceHandler

        if not 0 <= port <= 65535:
            raise ValueError(f"port={port} is not a TCP port: use 0 for any, or 1 to 65535")
        if history < 1 or request_log < 1:
            raise ValueError("history and request_log must be at least 1")
        if not bookmark_interval > 0:  # NaN neither
            raise ValueError(f"bookmark_interval={bookmark_interval} must be more than 0 seconds")
        if token is not None and not token:
            raise ValueError("token is empty: give a token, or leave it out")
        for service, url in (services or {}).items():
            _check_service(service, url)
        self._clock = clock
        self._bookmark_interval = bookmark_interval
        self._core = Core(clock=clock, history=history, services=services)
        access = AccessControl(
            self._core, token=token, users=users, rbac=rbac, authorizer=authorizer
        )
        if access.is_open and not _is_loopback(host):
            raise ValueError(
                f"host={host!r}: other machines can reach the server, so give token=, users=, "
                "rbac=True or authorizer="
            )
        self._host = host
        self._port = port
        self._access = access
        # By the time of its clients, whatever the clock says.
        self._authority = Authority(system_clock.time()) if tls else None
        self._ssl = self._authority.context(host) if self._authority is not None else None
        self._core.create_definitions(crds)
        self._faults = Faults(log_size=request_log)
        self._faults.add(_as_schedule(faults))
        self._resource_handler = ResourceHandler(
            self._core, streaming_lists=streaming_lists, access=self._access
        )
        self._non_resource_handler = NonResourceHandler(self._core)
        # Held for moments: what is handed to the event loop before it is taken away will run.
        self._handing = threading.Lock()
        self._thread = ServerThread("appsdk-operator-apiserver", self._listen, self._serve)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: HttpServer | None = None
        self._frontend: Frontend | None = None

    # -- start and stop ------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen, and return once the server answers requests. No effect on a running server.

        Raises:
            OSError: the port is taken.
        """
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all connections and the port, and end the thread. No effect on a stopped server."""
        self._thread.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def attach(self, loop: asyncio.AbstractEventLoop) -> Frontend:
        """Serve on ``loop`` without a socket; hand requests to the front end that is returned."""
        from appsdk_operator.apiserver._http.frontend import Frontend

        hub = self._core.attach(loop, self._host, self._port)

        def send_bookmarks() -> None:
            if self._core.hub is hub:
                hub.send_bookmarks()
                loop.call_later(self._bookmark_interval, send_bookmarks)

        loop.call_later(self._bookmark_interval, send_bookmarks)
        self._frontend = Frontend(
            self._core,
            self._faults,
            self._resource_handler,
            self._access,
            self._non_resource_handler,
        )
        return self._frontend

    def call_frontend(
        self, function: Callable[[Frontend, asyncio.AbstractEventLoop], object]
    ) -> None:
        """Call ``function`` in the event loop of the server, without waiting for it.

        Raises:
            ConnectionRefusedError: the server is not running.
        """
        with self._handing:
            loop, frontend = self._loop, self._frontend
            if loop is None or frontend is None:
                raise ConnectionRefusedError("the embedded API server is not running")
            loop.call_soon_threadsafe(function, frontend, loop)

    def _listen(self) -> socket.socket:
        from appsdk_operator.apiserver._http.listeners import listen

        listener = listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        self._non_resource_handler.address = self.url.partition("//")[2]
        return listener

    async def _serve(
        self, listener: socket.socket, ready: Callable[[], None], stopping: asyncio.Event
    ) -> None:
        from appsdk_operator.apiserver._http.connections import HttpServer
        from appsdk_operator.apiserver._http.listeners import close_listeners, run_ready_callbacks

        loop = asyncio.get_running_loop()
        frontend = self.attach(loop)
        self._faults.begin_waits()
        http = HttpServer(frontend)
        server = await loop.create_server(http, sock=listener, ssl=self._ssl, backlog=512)
        self._loop, self._http = loop, http
        ready()
        try:
            await stopping.wait()
        finally:
            with self._handing:
                self._loop = None
            http.is_closing = True
            await close_listeners(server)
            self._faults.end_waits()
            if self._core.hub is not None:
                self._core.hub.running.set()
                for watch in list(self._core.hub.watches):
                    watch.end()
            await http.end_connections(_GRACE)
            await self._core.detach()
            await run_ready_callbacks()
            self._http = None

    def _call(self, function: Callable[[], _T]) -> _T:
        """Run ``function`` in the server's event loop, and return its result."""
        thread = self._thread
        if thread.is_current:
            return function()

        async def run() -> _T:
            return function()

        with thread.lifecycle:
            return thread.call(run()) if thread.is_running else function()

    def _await(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run ``coroutine`` in the server's event loop, and return its result."""
        thread = self._thread
        # Without the lock, whose holder may wait for this very thread.
        if thread.is_current:
            return run_sync(coroutine)
        with thread.lifecycle:
            return thread.call(coroutine) if thread.is_running else run_sync(coroutine)

    # -- address and credentials ---------------------------------------------------------------

    @property
    def url(self) -> str:
        """The base URL, for example ``http://127.0.0.1:40123``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._authority is None else "https"
        return f"{scheme}://{host}:{self._port}"

    @property
    def ca_data(self) -> bytes:
        """The PEM certificate of the CA to trust; empty without TLS."""
        return b"" if self._authority is None else self._authority.certificate

    def client_config(self, **options: Any) -> ClientConfig:
        """The configuration of a client that acts as ``admin``.

        Args:
            options: any other of :class:`~appsdk_operator.client.ClientConfig`, or others than
                the server's own: ``token=server.token_for("alice")``.
        """
        own = {"server": self.url, "token": self.token, "ca_data": self.ca_data or None}
        return ClientConfig(**{**own, **options})

    def kubeconfig(
        self, username: str | None = None, *, groups: Iterable[str] = ()
    ) -> dict[str, Any]:
        """A kubeconfig for this server.

        Args:
            username: its user; default: the administrator. With TLS it holds a client certificate
                of that user, else a token.
            groups: the groups of that user; without any, a service account
                (``system:serviceaccount:<namespace>:<name>``) gets a token and its default groups.
        """
        from appsdk_operator.apiserver._values.users import service_account_of

        members = tuple(groups)
        # Without credentials in the kubeconfig, kubectl would prompt for a password.
        if username is None:
            return kubeconfig(self.url, self.ca_data, token=self.token or "not-asked-for")
        if self._authority is None or (service_account_of(username) is not None and not members):
            token = self.token_for(username, groups=members)
            return kubeconfig(self.url, self.ca_data, username, token=token)
        certificate = self._authority.client(username, members)
        return kubeconfig(self.url, self.ca_data, username, certificate=certificate)

    def write_kubeconfig(
        self,
        path: str | os.PathLike[str],
        username: str | None = None,
        *,
        groups: Iterable[str] = (),
    ) -> None:
        """Write :meth:`kubeconfig` to a file that only its owner can read."""
        write_kubeconfig(path, self.kubeconfig(username, groups=groups))

    @property
    def token(self) -> str | None:
        """The administrator's bearer token; None while none is required.

        Setting it invalidates the old one.
        """
        return self._access.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._access.token = token

    def set_users(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the users of the option ``users``, by bearer token.

        The administrator's token and those of :meth:`token_for` stay.

        Raises:
            ValueError: one is not a valid user, or the server requires no credentials.
        """
        self._access.set_users(users)

    def token_for(
        self,
        username: str,
        *,
        uid: str = "",
        groups: Iterable[str] = (),
        extra: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> str:
        """A new bearer token of any user, valid for the lifetime of the server.

        Args:
            username: the user's name; for a service account, which need not exist,
                ``system:serviceaccount:<namespace>:<name>``.
            uid: the user's id; default none.
            groups: the user's groups, besides ``system:authenticated``; default: none, and for a
                service account its default groups.
            extra: the user's ``extra`` fields.

        Raises:
            ValueError: the user has no name.
        """
        info = {"username": username, "uid": uid, "groups": tuple(groups), "extra": extra}
        return self._access.token_for(info)

    # -- stored objects and open watches -------------------------------------------------------

    @property
    def resource_version(self) -> int:
        """The revision of the last write."""
        return self._call(lambda: self._core.storage.revision)

    @property
    def requests(self) -> list[LoggedRequest]:
        """The last requests, oldest first."""
        return self._call(lambda: list(self._faults.log))

    def accesses(self, user: str | None = None) -> list[Access]:
        """Who asked for what: the authorized requests so far, merged, as a role would allow them.

        In contrast to :attr:`requests` no access is ever dropped. Of more than 1000 objects of one
        resource the names are, which counts as "any".

        Args:
            user: only those of this user; default: of all users.

        >>> from appsdk_operator import Client, kinds
        >>> with APIServer() as server:
        ...     with Client(server.client_config(token=server.token_for("jane"))) as client:
        ...         found = client.list_page(kinds.core.v1.Pod, namespace="default")
        ...     [(each.verb, each.resource, each.namespace) for each in server.accesses("jane")]
        [('list', 'pods', 'default')]
        """
        return self._call(lambda: self._access.accesses.read(user))

    def clear_accesses(self) -> None:
        """Forget the accesses so far."""
        self._call(self._access.accesses.clear)

    def objects(self, kind: Kind) -> list[dict[str, Any]]:
        """All stored objects of a kind, ordered by namespace and name."""

        async def read() -> list[dict[str, Any]]:
            from appsdk_operator.apiserver._storage import conversion

            served = self._core.served(kind.group, kind.version, kind.plural)
            records = list(served.resource.collection.scan(""))
            await conversion.convert_records(served, records)
            return [served.decode(record) for record in records]

        return self._await(read())

    def json_of(self, kind: Kind) -> list[bytes]:
        """What :meth:`objects` returns, as JSON."""

        async def read() -> list[bytes]:
            from appsdk_operator.apiserver._storage import conversion

            served = self._core.served(kind.group, kind.version, kind.plural)
            records = list(served.resource.collection.scan(""))
            await conversion.convert_records(served, records)
            return [served.data(record) for record in records]

        return self._await(read())

    def history(self, kind: Kind) -> list[tuple[int, str, dict[str, Any]]]:
        """The remembered changes of a kind as ``(revision, type, object)``, oldest first.

        The types are those of watch events; a deletion carries the last state.
        """

        async def read() -> list[tuple[int, str, dict[str, Any]]]:
            from appsdk_operator.apiserver._storage import conversion

            served = self._core.served(kind.group, kind.version, kind.plural)
            events = list(served.resource.collection.events)
            await conversion.convert_records(served, [event.record for event in events])
            return [(event.revision, event.type, served.decode(event.record)) for event in events]

        return self._await(read())

    def open_watches(self, kind: Kind | None = None) -> int:
        """The number of watches that are open now, of one kind or of all."""

        def count() -> int:
            hub = self._core.hub
            wanted: Collection | None = None
            if kind is not None:
                served = self._core.served(kind.group, kind.version, kind.plural)
                wanted = served.resource.collection
            return sum(
                wanted is None or watch.served.resource.collection is wanted
                for watch in (hub.watches if hub is not None else ())
            )

        return self._call(count)

    def apply_crds(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Create CustomResourceDefinitions and serve their resources.

        Raises:
            StatusError: one is not valid, or exists already.
        """
        definitions = list(crds)
        # In the thread of the caller, so that the server goes on meanwhile.
        self._core.compile_definitions(definitions)
        self._call(lambda: self._core.create_definitions(definitions))

    # -- faults --------------------------------------------------------------------------------

    def compact(self) -> None:
        """Drop the history: watches and lists at older versions are answered with 410."""

        def forget() -> None:
            if self._core.hub is not None:
                self._core.hub.flush_all()
            self._core.storage.compact()

        self._call(forget)

    def cut_connections(self, *, watches_only: bool = True) -> None:
        """Abort open connections at TCP level, as a network failure does."""

        def cut() -> None:
            if self._http is not None:
                self._http.cut(watches_only=watches_only)

        self._call(cut)

    def fail(
        self,
        *,
        verb: str | None = None,
        kind: Kind | str | None = None,
        status: int = 503,
        times: int = 1,
        retry_after: int | None = None,
        after_write: bool = False,
    ) -> None:
        """Make the next requests fail.

        Args:
            verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete`` or
                ``deletecollection``; default: any.
            kind: a kind, or its name or plural; default: any.
            status: the HTTP status to answer with; default 503.
            times: how many requests; default 1.
            retry_after: seconds to tell the client to wait.
            after_write: carry the request out, then cut the connection without an answer, so that
                the client cannot know the result; ``status`` is ignored.

        Raises:
            ValueError: an unknown verb, or a status that is not an error.
        """
        when: When = {"verb": verb, "kind": kind, "times": times}
        if after_write:
            self.inject([FaultRule.lose(**when)])
        else:
            self.inject([FaultRule.answer(status, retry_after=retry_after, **when)])

    def inject(self, faults: FaultSchedule | Iterable[FaultRule]) -> None:
        """Activate fault rules, after those that are active already.

        Args:
            faults: rules, or a schedule of them with the seed of their chances.

        Raises:
            TypeError: one is not a rule.

        >>> from appsdk_operator.testing import FaultRule
        >>> with APIServer() as server:
        ...     server.inject([FaultRule.answer(409, verb="update", every=3)])
        """
        schedule = _as_schedule(faults)
        self._call(lambda: self._faults.add(schedule))

    def set_service(self, service: str, url: str) -> None:
        """Call ``url`` for webhooks whose configurations name this service, from now on.

        So configurations and CRDs for production can be installed as they are. As by
        kube-apiserver, the certificate there is verified for ``name.namespace.svc``, not for the
        host of the URL. Also by the argument ``services``.

        Args:
            service: ``namespace/name``.
            url: the address of the webhook server, such as ``https://127.0.0.1:9443``.

        Raises:
            ValueError: the service has no namespace, or the URL is not one of HTTPS.
        """
        _check_service(service, url)
        self._call(lambda: self._core.webhook_client.set_service(service, url))

    def stall_watches(self, stalled: bool = True) -> None:
        """Stop sending anything to open watches, whose connections stay open; False resumes."""

        def stall() -> None:
            if self._core.hub is not None:
                self._core.hub.set_stalled(stalled)

        self._call(stall)

    def send_bookmarks(self) -> None:
        """Send a bookmark now to each watch that allows them."""

        def send() -> None:
            if self._core.hub is not None:
                self._core.hub.send_bookmarks()

        self._call(send)

    def clear_faults(self) -> None:
        """Remove the rules of :meth:`fail` and :meth:`inject`, and resume stalled watches."""

        def clear() -> None:
            self._faults.clear()
            if self._core.hub is not None:
                self._core.hub.set_stalled(False)

        self._call(clear)


def _as_schedule(faults: FaultSchedule | Iterable[FaultRule]) -> FaultSchedule:
    return faults if isinstance(faults, FaultSchedule) else FaultSchedule(faults)


def _check_service(service: str, url: str) -> None:
    if service.count("/") != 1 or not all(service.split("/")):
        raise ValueError(f"service={service!r}: give namespace and name, 'default/hooks'")
    if not url.startswith("https://"):
        raise ValueError(f"url={url!r}: API servers call webhooks by https:// only")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
