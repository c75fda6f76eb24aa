"""The options of a manager, checked when they are given."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import attrs

from appsdk_operator._lazy import if_loaded
from appsdk_operator.client import ClientConfig, ClientLike
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.manager._core.cluster import CacheSetup, ClientSetup, NewCache, NewClient
from appsdk_operator.manager._core.lifecycle import ElectorLike
from appsdk_operator.manager._core.runnable import Runnable
from appsdk_operator.runtime import (
    PREVIOUS_NAMES,
    ActivityObserver,
    Clock,
    Metrics,
    StopSignal,
    check_observer,
    check_operator_name,
    check_previous_names,
)
from appsdk_operator.runtime.validation import check_function, check_plain

if TYPE_CHECKING:
    from appsdk_operator.manager._election.options import LeaderElection
    from appsdk_operator.manager._events.correlator import EventOptions
    from appsdk_operator.manager._events.failures import FailureEvents
    from appsdk_operator.manager._servers.health import HealthServerOptions
    from appsdk_operator.manager._servers.metrics import MetricsServerOptions
    from appsdk_operator.manager._servers.profile import ProfileServerOptions
    from appsdk_operator.webhooks import WebhookServerOptions

NewElector: TypeAlias = "Callable[[ClientLike, LeaderElection], ElectorLike]"
"""Makes the elector, given the client for the election."""


def _check_type(type_: type | str, *, hint: str) -> Any:
    """A check that a value has a type, or is None.

    Args:
        type_: the type, or the name of one of this package that most programs do not load.
        hint: what to give instead.
    """

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is None:
            return
        types = if_loaded("appsdk_operator.manager", type_) if isinstance(type_, str) else type_
        if not isinstance(value, types):
            raise TypeError(f"{field.name}={value!r}: give {hint}, or leave it out")

    return check


def _failure_events(value: FailureEvents | bool | None) -> FailureEvents | None:
    if value is None or value is False:
        return None
    from appsdk_operator.manager._events.failures import failure_events_of

    return failure_events_of(value)


def _check_name(_: object, __: attrs.Attribute[Any], value: object) -> None:
    check_operator_name(value)


def _check_function(_: object, field: attrs.Attribute[Any], value: object) -> None:
    check_function(field.name, value)


def _check_webhooks(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (isinstance(value, type) or not _runs_or_makes(value)):
        raise TypeError(
            f"{field.name}={value!r}: give WebhookServerOptions(…), a server with run(stop), or a "
            "function that makes one"
        )
    check_plain(field.name, value)


def _runs_or_makes(value: object) -> bool:
    if isinstance(value, Runnable) or callable(value):
        return True
    from appsdk_operator.webhooks import WebhookServerOptions

    return isinstance(value, WebhookServerOptions)


def _observers(value: Iterable[ActivityObserver]) -> tuple[ActivityObserver, ...]:
    if not isinstance(value, Iterable):
        raise TypeError(f"observers={value!r}: give a list of observers")
    return tuple(value)


def _check_observers(_: object, __: object, value: tuple[object, ...]) -> None:
    for observer in value:
        check_observer(observer)


def _check_grace(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise TypeError(f"{field.name}={value!r}: give seconds, or None for no limit")


@attrs.frozen(kw_only=True)
class ManagerOptions:
    """The options of a :class:`Manager`; each is also an argument of its constructor.

    The defaults are controller-runtime's, except that no port is opened by default.

    >>> ManagerOptions().graceful_shutdown_timeout
    30.0
    """

    leader_election: LeaderElection | None = attrs.field(
        default=None, validator=_check_type("LeaderElection", hint="LeaderElection(id=…)")
    )
    """The leader election, so that one replica works at a time; default: all replicas work."""
    leader_election_config: ClientConfig | None = attrs.field(
        default=None, validator=_check_type(ClientConfig, hint="a ClientConfig")
    )
    """The API server that has the Lease, with the time-outs to use; default: the manager's server,
    with time-outs that fit the election."""
    new_elector: NewElector | None = attrs.field(default=None, validator=_check_function)
    """Makes the elector, for locks other than Leases and for tests; default: :class:`Elector`."""

    metrics_server: MetricsServerOptions | None = attrs.field(
        default=None, validator=_check_type("MetricsServerOptions", hint="MetricsServerOptions(…)")
    )
    """The metrics server; default: none."""
    health_server: HealthServerOptions | None = attrs.field(
        default=None, validator=_check_type("HealthServerOptions", hint="HealthServerOptions(…)")
    )
    """The server for probes; default: none."""
    profile_server: ProfileServerOptions | None = attrs.field(
        default=None, validator=_check_type("ProfileServerOptions", hint="ProfileServerOptions(…)")
    )
    """The server for profiles and the debug page; default: none."""
    webhook_server: WebhookServerOptions | Runnable | Callable[[], Runnable] | None = attrs.field(
        default=None, validator=_check_webhooks
    )
    """The webhook server, or its options or a function that makes it: then the manager makes the
    server when it is first used. Default: ``WebhookServerOptions()``. It runs on every replica and
    starts before the caches."""

    cache: CacheSetup | None = attrs.field(
        default=None, validator=_check_type(CacheSetup, hint="CacheSetup(…)")
    )
    """Options of the cache; default: it holds the kinds that controllers watch, in all
    namespaces."""
    client: ClientSetup | None = attrs.field(
        default=None, validator=_check_type(ClientSetup, hint="ClientSetup(…)")
    )
    """Options of the clients."""
    new_cache: NewCache | None = attrs.field(default=None, validator=_check_function)
    """Makes the cache, instead of ``cache``."""
    new_client: NewClient | None = attrs.field(default=None, validator=_check_function)
    """Makes the client for the config; default: :class:`~appsdk_operator.client.Client`."""
    probe_server: bool | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(bool))
    )
    """Whether the manager asks the API server for its version after five seconds of silence
    (``GET /version``, which every authenticated user may), so that the log says after ten seconds
    that it does not answer. This costs one small request in five seconds while the operator is
    idle, and none under traffic. Default: yes, except on a
    :class:`~appsdk_operator.runtime.ManualClock`, as in a World."""

    base_stop: StopSignal | None = attrs.field(
        default=None, validator=_check_type(StopSignal, hint="a StopSignal")
    )
    """The parent of all runnables' stop signals: setting it stops all of them at once, in no order.
    Use the stop signal of :meth:`Manager.run` for an orderly stop. Default: none."""
    graceful_shutdown_timeout: float | None = attrs.field(default=30.0, validator=_check_grace)
    """Seconds in which all runnables together have to end after a stop; default 30. 0: the manager
    does not wait for them. None, or less than 0: no limit."""

    controller_options: ControllerOptions = attrs.field(
        factory=ControllerOptions,
        validator=_check_type(ControllerOptions, hint="ControllerOptions(…)"),
    )
    """The default options of its controllers."""
    events: EventOptions | None = attrs.field(
        default=None, validator=_check_type("EventOptions", hint="EventOptions(…)")
    )
    """Options of the event recorders."""
    failure_events: FailureEvents | None = attrs.field(default=None, converter=_failure_events)
    """Which failures of reconcilers and watchers become Events on their object, for
    ``kubectl describe``; True: from three failures in a row on, after at least five seconds of
    failing. Default: none."""
    narrate: bool = attrs.field(default=False, validator=attrs.validators.instance_of(bool))
    """Whether to print each call and its writes to standard output, as a
    :class:`~appsdk_operator.runtime.Narrator` does; for development. Default: no."""

    observers: Sequence[ActivityObserver] = attrs.field(
        default=(), converter=_observers, validator=_check_observers
    )
    """Observers of each call of a callback and each request, such as a
    :class:`~appsdk_operator.tracing.Tracing`; see :meth:`Manager.observe_activity`. Default:
    none."""

    clock: Clock | None = None
    """The clock of the manager and of everything that it runs; default: the environment's."""
    metrics: Metrics | None = attrs.field(
        default=None, validator=_check_type(Metrics, hint="a Metrics")
    )
    """The metrics of the manager and of everything that it runs; default: the environment's, else
    :func:`~appsdk_operator.runtime.default_metrics`."""
    rng: random.Random | None = attrs.field(
        default=None, validator=_check_type(random.Random, hint="a random.Random")
    )
    """The source of jitter for the election; default: a new one."""

    name: str = attrs.field(default="", validator=_check_name)
    """The operator's name: at most 40 lower-case letters, digits and '-'. It is a part of the
    default finalizers of its watchers, unless their controller or Operator has its own name.
    Default: none."""
    previous_names: Sequence[str] = attrs.field(
        default=PREVIOUS_NAMES, converter=check_previous_names
    )
    """Former names of the operator; it recognises finalizers with these names, and replaces them.
    Default: ``("operator",)``, which operators without a name have in their finalizers."""

    def __attrs_post_init__(self) -> None:
        if self.leader_election is None and (self.new_elector or self.leader_election_config):
            raise ValueError(
                "new_elector and leader_election_config are for a leader election: give "
                "leader_election=LeaderElection(id=…), too"
            )
        if self.cache is not None and self.new_cache is not None:
            raise ValueError("cache and new_cache: give only one of them")


def check_names(given: Iterable[str]) -> None:
    """Check that all names are options of a manager.

    Raises:
        TypeError: one is not; the text suggests the most similar one.
    """
    known = [field.name for field in attrs.fields(ManagerOptions)]
    for name in given:
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
            raise TypeError(f"a Manager has no option {name}: {hint}")


class AppOptionsDict(TypedDict, total=False):
    """The fields of :class:`ManagerOptions` that are options of an App as well."""

    metrics_server: MetricsServerOptions | None
    health_server: HealthServerOptions | None
    profile_server: ProfileServerOptions | None
    webhook_server: WebhookServerOptions | Runnable | Callable[[], Runnable] | None
    cache: CacheSetup | None
    client: ClientSetup | None
    probe_server: bool | None
    graceful_shutdown_timeout: float | None
    controller_options: ControllerOptions
    events: EventOptions | None
    failure_events: FailureEvents | bool | None
    narrate: bool
    observers: Sequence[ActivityObserver]
    metrics: Metrics | None


class ManagerOptionsDict(AppOptionsDict, total=False):
    """The fields of :class:`ManagerOptions` as arguments of :class:`Manager`."""

    leader_election: LeaderElection | None
    leader_election_config: ClientConfig | None
    new_elector: NewElector | None
    new_cache: NewCache | None
    new_client: NewClient | None
    base_stop: StopSignal | None
    clock: Clock | None
    rng: random.Random | None
    name: str
    previous_names: Sequence[str]
