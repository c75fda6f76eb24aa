"""One API server as a manager sees it: a client that reads from a cache, and a live one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs

from appsdk_operator.cache import (
    Cache,
    CachedClient,
    CacheOptions,
    Health,
    NamespaceOptions,
    Remedies,
    Transform,
    checked_namespaces,
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
from appsdk_operator.resource import (
    FieldSelection,
    Kind,
    LabelSelection,
    check_kind,
    field_selector_of,
    label_selector_of,
)
from appsdk_operator.runtime import (
    Clock,
    Environment,
    Metrics,
    StopSignal,
    get_logger,
    system_clock,
)

__all__ = ["CacheSetup", "ClientSetup", "Cluster", "NewCache", "NewClient", "check_server"]

_log = get_logger("appsdk_operator.manager")

NewClient: TypeAlias = Callable[[ClientConfig], ClientLike]
"""Makes the client that talks to the server."""
NewCache: TypeAlias = Callable[[ClientLike], Cache]
"""Makes the cache, given the client that it is to list and watch with."""


def _kept_kinds(value: Iterable[Kind]) -> tuple[Kind, ...]:
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
    """What the cache of a cluster keeps; the arguments of :class:`~appsdk_operator.cache.Cache`."""

    namespaces: Sequence[str] | Mapping[str, NamespaceOptions] = attrs.field(
        default=(), validator=lambda _, __, value: checked_namespaces(value)
    )
    """The namespaces to follow, as names or with options for each; default: all."""
    kinds: tuple[Kind, ...] = attrs.field(default=(), converter=_kept_kinds)
    """Kinds to keep from the start. Others come with the controllers that watch them."""
    by_kind: Mapping[Kind, CacheOptions] = attrs.field(
        factory=dict, converter=_kind_dict, validator=_kinds
    )
    """What to keep of single kinds, if they are kept; the rest here is for all others."""
    label_selector: LabelSelection | None = attrs.field(
        default=None, validator=lambda _, __, value: label_selector_of(value)
    )
    """Which objects, of whatever kind; default: all."""
    field_selector: FieldSelection | None = attrs.field(
        default=None, validator=lambda _, __, value: field_selector_of(value)
    )
    """The same for fields; default: all."""
    transform: Transform | None = None
    """What to make of each object before it is kept; default: nothing."""
    resync: float = 0.0
    """Seconds after which handlers are shown every object once more; default 0: never."""
    lazy: bool = False
    """Whether a read of a kind without an informer starts one, for all namespaces that are
    followed; default: it is an error that says so."""
    sync_timeout: float = 120.0
    """Seconds that such a read waits; default 120."""
    on_error: Callable[[Exception], None] | None = None
    """Told of every informer's problems; default: they are logged."""


@attrs.frozen(kw_only=True)
class ClientSetup:
    """How the clients of a cluster read and write."""

    uncached: tuple[Kind, ...] = attrs.field(default=(), converter=_uncached_kinds)
    """Kinds that ``client`` reads from the server even so."""
    field_owner: str | None = None
    """Who owns the fields of what is written; default: what the server makes of the user agent."""
    dry_run: bool = False
    """Have the server check every write, and store none; default False."""


_REMEDIES = Remedies(
    to_keep=(
        "have a controller watch the kind, or give the manager cache=CacheSetup(kinds=[kind]), "
        "or CacheSetup(lazy=True) for every kind that is read"
    ),
    to_sync="read it in what the manager runs, which starts when the caches have synced",
    to_follow="add it to cache=CacheSetup(namespaces=…), or with manager.cache.set_namespaces",
    to_read_live=("with manager.live_client, or always, with client=ClientSetup(uncached=[kind])"),
)


def check_server(value: object) -> None:
    """Refuse what does not say where the server is.

    Raises:
        TypeError: the text says what to give.
    """
    if isinstance(value, ClientConfig) or (isinstance(value, Reader) and isinstance(value, Writer)):
        return
    example = f"ClientConfig(server={value!r})" if isinstance(value, str) else "ClientConfig.load()"
    raise TypeError(
        f"must specify where the API server is, not {value!r}: give a ClientConfig, for example "
        f"{example}, or a client"
    )


@final
class Cluster:
    """An API server: its cache, a client that reads from the cache, and one that never does.

    A :class:`Manager` has one. Add further ones to it to work with several servers:

        elsewhere = Cluster(ClientConfig.load(context="elsewhere"))
        manager.add(elsewhere)

    The manager closes it at its end. Is a runnable, in the group of the caches: :meth:`run` runs
    the cache. Thread-safe.
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
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """A cluster whose cache does not run yet.

        Args:
            server: where it is; a config, from which it makes a client that it closes at its end,
                or a client, which stays its owner's.
            name: what it is called in logs and health checks; default ``"cluster"``.
            cache: what the cache keeps.
            client: how the clients read and write.
            new_cache: makes the cache, instead of ``cache``.
            new_client: makes the client for a config; default: :class:`Client`.
            fence: wraps the client that writes; a manager's :meth:`Manager.fence` refuses the
                writes of a process that has lost the lead. Default: nothing.
            clock: what cache and client wait on; default: for the cache that of its Manager, else
                the machine's, which is the client's.
            metrics: where they publish; default: in those of its Manager, else in the kit's own.

        Raises:
            TypeError, ValueError: an option that cannot be used.
        """
        check_server(server)
        if cache is not None and new_cache is not None:
            raise ValueError("cache and new_cache: give the one or the other")
        if new_client is not None and not isinstance(server, ClientConfig):
            raise ValueError("new_client is for a ClientConfig: this is a client already")
        self.name = name
        self._has_run = False
        self._environment = Environment(clock, metrics)
        metrics = self._environment.metrics
        setup = client or ClientSetup()
        self._close: Callable[[], object] = _nothing
        self._end_metrics: Callable[[], object] = _nothing
        raw: ClientLike
        if not isinstance(server, ClientConfig):
            raw = server
        elif new_client is not None:
            raw = new_client(server)
            self._close = getattr(raw, "close", _nothing)
        else:
            raw = own = Client(server, clock=clock or system_clock, metrics=metrics)
            self._close = own.close
        try:
            self.raw_client: ClientLike = raw
            writing = raw if setup.field_owner is None else FieldOwnerClient(raw, setup.field_owner)
            self.unfenced_client: ClientLike = DryRunClient(writing) if setup.dry_run else writing
            self.live_client: ClientLike = (
                self.unfenced_client if fence is None else fence(self.unfenced_client)
            )
            if new_cache is not None:
                self.cache: Cache = new_cache(raw)
            else:
                self.cache = _cache(raw, cache or CacheSetup(), self._environment.clock, metrics)
            cached = CachedClient(
                self.live_client, self.cache, uncached=setup.uncached, metrics=metrics
            )
            cached.remedies = _REMEDIES
            self.client: ClientLike = cached
            self._end_metrics = cached.close
        except BaseException:
            self.close()
            raise

    def inherit_environment(self, clock: Clock, metrics: Metrics) -> None:
        """For managers: use these, unless it was given others or was run already."""
        if self._has_run:
            return
        self._environment.inherit(clock, metrics)
        self._environment.hand_down(self.cache)  # one that somebody else has made

    def run(self, stop: StopSignal) -> None:
        """Run the cache until ``stop`` is set; see :meth:`Cache.run`."""
        self._has_run = True
        self.cache.run(stop)

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait until the cache has synced; False when stopped or after ``timeout`` seconds."""
        return self.cache.wait_for_sync(stop, timeout)

    def health(self) -> Health:
        """Whether the cache has synced and follows the server, and if not why."""
        return self.cache.health()

    def close(self) -> None:
        """Close the client that it made; harmless when done twice, and after a run."""
        self._end_metrics()
        self._close()


def _nothing() -> None:
    pass


def _cache(client: ClientLike, setup: CacheSetup, clock: Clock, metrics: Metrics) -> Cache:
    cache = Cache(
        client,
        namespaces=setup.namespaces,
        label_selector=setup.label_selector,
        field_selector=setup.field_selector,
        transform=setup.transform,
        resync=setup.resync,
        by_kind=setup.by_kind,
        lazy=setup.lazy,
        sync_timeout=setup.sync_timeout,
        on_error=setup.on_error,
        clock=clock,
        metrics=metrics,
    )
    for kind in setup.kinds:
        cache.add(kind)
    return cache
