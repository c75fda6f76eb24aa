"""A cluster: the cache and the clients for one API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs

from appsdk_operator.cache import (
    Cache,
    CachedClient,
    CacheOptions,
    Health,
    Remedies,
    Transform,
    checked_selection,
    kind_tuple,
)
from appsdk_operator.client import (
    Client,
    ClientConfig,
    ClientLike,
    DryRunClient,
    FieldOwnerClient,
    Reader,
    Writer,
)
from appsdk_operator.manager._core.runnable import RunnableGroup
from appsdk_operator.manager._core.server_monitor import ServerMonitor
from appsdk_operator.resource import (
    Kind,
    check_kind,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime import (
    ActivityObserver,
    Clock,
    Metrics,
    PartMetrics,
    StopSignal,
    entered_metrics,
    get_logger,
    present_clock,
)

if TYPE_CHECKING:
    from appsdk_operator.cache import NamespaceSelection
    from appsdk_operator.resource import FieldSelection, LabelSelection, NamespaceSelector

_log = get_logger("appsdk_operator.manager")

NewClient: TypeAlias = Callable[[ClientConfig], ClientLike]
"""Makes the client for the API server."""
NewCache: TypeAlias = Callable[[ClientLike], Cache]
"""Makes the cache, given the client that lists and watches."""


def _cached_kinds(value: Iterable[Kind]) -> tuple[Kind, ...]:
    return kind_tuple("kinds", value)


def _uncached_kinds(value: Iterable[Kind]) -> tuple[Kind, ...]:
    return kind_tuple("uncached", value)


def _kind_dict(value: Mapping[Kind, CacheOptions]) -> dict[Kind, CacheOptions]:
    given: Any = value
    if not isinstance(given, Mapping):
        raise TypeError(f"by_kind={given!r}: give options by kind, {{kind: CacheOptions(…)}}")
    return dict(value)


def _kinds(_: object, field: attrs.Attribute[Any], value: Iterable[object]) -> None:
    for kind in value:
        check_kind(kind, field.name)


@attrs.frozen(kw_only=True)
class CacheSetup:
    """Options of a cluster's cache; the arguments of :class:`~appsdk_operator.cache.Cache`."""

    namespaces: NamespaceSelection = attrs.field(
        default=(), validator=lambda _, __, value: checked_selection(value)
    )
    """The namespaces to watch, as names, or as a mapping of names to options; default: all. Or
    patterns of names, or a selector of Namespace labels: the cache then follows the matching
    namespaces as they come and go."""
    kinds: tuple[Kind, ...] = attrs.field(default=(), converter=_cached_kinds)
    """Kinds to cache from the start. Controllers add the kinds that they watch."""
    by_kind: Mapping[Kind, CacheOptions] = attrs.field(
        factory=dict, converter=_kind_dict, validator=_kinds
    )
    """Options of single kinds; the other fields are for all other kinds."""
    label_selector: LabelSelection | None = attrs.field(
        default=None, validator=lambda _, __, value: label_selector_of(value)
    )
    """A label selector for objects of every kind; default: all objects."""
    field_selector: FieldSelection | None = attrs.field(
        default=None, validator=lambda _, __, value: field_selector_of(value)
    )
    """A field selector for objects of every kind; default: all objects."""
    transform: Transform | None = None
    """Changes each object before it is cached; default: none."""
    resync: float = 0.0
    """Seconds between two resyncs, which show handlers every object again; default 0: none."""
    lazy: bool = False
    """Whether a read of a kind without an informer starts one, for all namespaces of the cache;
    default False: the read raises an error."""
    sync_timeout: float = 120.0
    """Seconds that such a read waits for the informer to sync; default 120."""
    on_error: Callable[[Exception], None] | None = None
    """Called with the errors of all informers; default: log them."""

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """The names of the namespaces; empty: all, or as :attr:`namespace_selector` says."""
        selection = checked_selection(self.namespaces)
        return tuple(selection) if isinstance(selection, dict) else ()

    @property
    def namespace_selector(self) -> NamespaceSelector | None:
        """The selector of namespaces that come and go; None: namespaces by name, or all."""
        selection = checked_selection(self.namespaces)
        return None if isinstance(selection, dict) else selection


@attrs.frozen(kw_only=True)
class ClientSetup:
    """Options of a cluster's clients."""

    uncached: tuple[Kind, ...] = attrs.field(default=(), converter=_uncached_kinds)
    """Kinds that ``client`` reads from the server although it has a cache."""
    field_owner: str | None = None
    """The field manager of all writes; default: the server derives it from the user agent."""
    dry_run: bool = False
    """Whether all writes are dry runs: checked by the server, not stored; default False."""


_REMEDIES = Remedies(
    to_keep=(
        "have a controller watch the kind, or give the manager cache=CacheSetup(kinds=[kind]), "
        "or CacheSetup(lazy=True) for every kind that is read"
    ),
    to_sync="read it in a runnable of the manager, which starts once the caches have synced",
    to_follow="add it to cache=CacheSetup(namespaces=…), or with manager.cache.set_namespaces",
    to_read_live=(
        "with app.live_client or manager.live_client, or always, with "
        "client=ClientSetup(uncached=[kind])"
    ),
)


def check_server(value: object) -> None:
    """Check that ``value`` is a client or a ClientConfig.

    Raises:
        TypeError: the text says what to give.
    """
    if isinstance(value, ClientConfig) or (isinstance(value, Reader) and isinstance(value, Writer)):
        return
    example = f"ClientConfig(server={value!r})" if isinstance(value, str) else "ClientConfig.load()"
    raise TypeError(
        f"{value!r} does not say where the API server is: give a ClientConfig, for example "
        f"{example}, or a client"
    )


@final
class Cluster:
    """The cache and the clients for one API server.

    ``client`` reads from the cache, ``live_client`` from the server. A :class:`Manager` has its own
    cluster. To work with several servers, add further clusters to it:

        elsewhere = Cluster(ClientConfig.load(context="elsewhere"))
        manager.add(elsewhere)

    The manager runs the cluster's cache in the group of the caches, and closes the cluster at the
    end. Thread-safe.
    """

    runnable_group = RunnableGroup.CACHES

    def __init__(
        self,
        server: ClientConfig | ClientLike,
        *,
        name: str = "cluster",
        cache: CacheSetup | None = None,
        client: ClientSetup | None = None,
        new_cache: NewCache | None = None,
        new_client: NewClient | None = None,
        fence: Callable[[ClientLike], ClientLike] | None = None,
        probe_server: bool | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A cluster whose cache does not run yet.

        Args:
            server: the API server: a config, from which the cluster makes a client that it closes
                at the end, or a client, which its owner closes.
            name: the name in logs and health checks; default ``"cluster"``.
            cache: options of the cache.
            client: options of the clients.
            new_cache: makes the cache, instead of ``cache``.
            new_client: makes the client for a config; default: :class:`Client`.
            fence: wraps the client that writes; with :meth:`Manager.fence` it refuses writes once
                the process has lost the lead. Default: writes are not fenced.
            probe_server: whether to ask the server for its version after five seconds of silence;
                default: as for :attr:`ManagerOptions.probe_server`.
            clock: the clock of cache and client; default: the environment's.
            metrics: the metrics of both; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.

        Raises:
            TypeError, ValueError: an option that cannot be used.
        """
        check_server(server)
        if cache is not None and new_cache is not None:
            raise ValueError("cache and new_cache: give only one of them")
        if new_client is not None and not isinstance(server, ClientConfig):
            raise ValueError(
                "new_client makes a client from a ClientConfig, but server is a client: leave "
                "new_client out"
            )
        self.name = name
        clock = present_clock(clock)
        self._metrics = PartMetrics(metrics)
        made_in = entered_metrics(metrics)
        client_options = client or ClientSetup()
        self._close: Callable[[], object] = _nothing
        self._end_metrics: Callable[[], object] = _nothing
        raw: ClientLike
        if not isinstance(server, ClientConfig):
            raw = server
        elif new_client is not None:
            raw = new_client(server)
            self._close = getattr(raw, "close", _nothing)
        else:
            raw = own = Client(server, clock=clock, metrics=self._metrics.metrics)
            self._close = own.close
        try:
            self.raw_client: ClientLike = raw
            writing = (
                raw
                if client_options.field_owner is None
                else FieldOwnerClient(raw, client_options.field_owner)
            )
            self.unfenced_client: ClientLike = (
                DryRunClient(writing) if client_options.dry_run else writing
            )
            self.live_client: ClientLike = (
                self.unfenced_client if fence is None else fence(self.unfenced_client)
            )
            if new_cache is not None:
                self.cache: Cache = new_cache(raw)
            else:
                self.cache = _make_cache(raw, cache or CacheSetup(), clock, made_in)
            cached = CachedClient(
                self.live_client,
                self.cache,
                uncached=client_options.uncached,
                metrics=self._metrics.metrics,
            )
            cached.remedies = _REMEDIES
            self.client: ClientLike = cached
            self._monitor = ServerMonitor(
                raw, clock=self.cache.clock, metrics=self._metrics.metrics, enabled=probe_server
            )
            self._end_metrics = cached.close
        except BaseException:
            self.close()
            raise

    @property
    def clock(self) -> Clock:
        """The clock of the cache."""
        return self.cache.clock

    def run(self, stop: StopSignal) -> None:
        """Run the cache until ``stop`` is set; see :meth:`Cache.run`."""
        self._metrics.publish()
        if self._monitor.is_enabled:
            # In the thread of the cache, which only waits.
            self.cache.run(stop, meanwhile=self._monitor.run)
        else:
            self.cache.run(stop)

    def belong_to(self, owner: object, name: str, previous_names: object) -> None:
        """Log as the operator ``name``; the manager calls this."""
        del owner, previous_names
        place = "" if self.name == "cache" else f" in {self.name}"
        self._monitor.name = f"{name or 'the operator'}{place}"

    @property
    def lost_for(self) -> float | None:
        """Seconds for which the API server has not answered, from ten on; None: it answers, or the
        cluster does not probe it."""
        return self._monitor.lost_for

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the cache has synced; False when stopped or after ``timeout`` seconds."""
        return self.cache.wait_for_sync(stop, timeout)

    def health(self) -> Health:
        """Whether the cache has synced and watches the server; if not, the text says why."""
        return self.cache.health()

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each request; returns a function that ends this.

        Has no effect if the client is not the kit's.
        """
        observe: Callable[[ActivityObserver], Callable[[], None]] | None = getattr(
            self.raw_client, "observe_activity", None
        )
        return observe(observer) if callable(observe) else _nothing

    def debug_snapshot(self) -> dict[str, Any]:
        """The state of its informers, as JSON values."""
        snapshot = getattr(self.cache, "debug_snapshot", None)
        found: Any = snapshot() if callable(snapshot) else {}
        return {"cluster": self.name, **found}

    def close(self) -> None:
        """Close the client that the cluster made; harmless when called twice, and after a run."""
        self._end_metrics()
        self._metrics.retire()
        self._close()


def _nothing() -> None:
    pass


def _make_cache(
    client: ClientLike, options: CacheSetup, clock: Clock, metrics: Metrics | None
) -> Cache:
    cache = Cache(
        client,
        namespaces=options.namespaces,
        label_selector=options.label_selector,
        field_selector=options.field_selector,
        transform=options.transform,
        resync=options.resync,
        by_kind=options.by_kind,
        lazy=options.lazy,
        sync_timeout=options.sync_timeout,
        on_error=options.on_error,
        clock=clock,
        metrics=metrics,
    )
    for kind in options.kinds:
        cache.add(kind)
    return cache
