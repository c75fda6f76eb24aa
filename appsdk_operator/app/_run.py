"""Runs an App as a program: configuration, log, signals and the exit status."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, Self, Unpack

import attrs

from appsdk_operator.client import ClientConfig, ClientError, ClientLike
from appsdk_operator.manager import (
    CacheSetup,
    HealthServerOptions,
    LeaderElection,
    LeadershipLost,
    Manager,
    ManagerOptions,
    ManagerOptionsDict,
    MetricsServerOptions,
    ProfileServerOptions,
)
from appsdk_operator.resource import check_followed_namespace, kinds
from appsdk_operator.runtime import (
    LOG_FORMATS,
    LogFormat,
    SafeLogger,
    StopSignal,
    get_logger,
    setup_logging,
    validation,
)
from appsdk_operator.webhooks import ManagedCertificates, Webhooks, WebhookServerOptions

__all__ = ["ENVIRONMENT", "ExitStatus", "RunOptions", "changes_of", "run_program", "start_logging"]

_log: Final[SafeLogger] = get_logger("appsdk_operator.app")
_ALL: Final = "*"
_LEVELS: Final = ("debug", "info", "warning", "error")

ENVIRONMENT: Final[Mapping[str, str]] = {
    "kubeconfig": "APPSDK_KUBECONFIG",
    "context": "APPSDK_CONTEXT",
    "namespaces": "APPSDK_NAMESPACES",
    "leader_election": "APPSDK_LEADER_ELECTION",
    "leader_election_namespace": "APPSDK_LEADER_ELECTION_NAMESPACE",
    "log_level": "APPSDK_LOG_LEVEL",
    "log_format": "APPSDK_LOG_FORMAT",
    "narrate": "APPSDK_NARRATE",
    "metrics_address": "APPSDK_METRICS_ADDRESS",
    "probe_address": "APPSDK_PROBE_ADDRESS",
    "debug_address": "APPSDK_DEBUG_ADDRESS",
    "webhook_address": "APPSDK_WEBHOOK_ADDRESS",
    "webhook_service": "APPSDK_WEBHOOK_SERVICE",
    "tracing": "APPSDK_TRACING",
}
"""The environment variable of each field of :class:`RunOptions`."""


class ExitStatus(enum.IntEnum):
    """The exit status of an operator's program."""

    STOPPED = 0
    """It was asked to stop, and did. After a second signal: 128 and its number."""
    FAILED = 1
    """A part of it failed; the log says which."""
    NOT_STARTED = 2
    """An option, the configuration of the cluster or a declaration cannot be used, or a port is
    taken; the log says what to do. Another start would not help."""
    LEAD_LOST = 3
    """Another replica leads: the process has to be started again, as a candidate."""


def _namespaces(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if isinstance(value, str):
        given = tuple(part.strip() for part in value.split(",") if part.strip())
        given = () if given == (_ALL,) else given
    elif value is None:
        return None
    else:
        given = validation.checked_texts("namespaces", value)
    for name in given:
        check_followed_namespace(name, "namespaces")
    return given


def _truth(name: str, value: bool | str) -> bool:
    if isinstance(value, str):
        known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if value.lower() not in known:
            raise ValueError(f"{name}={value!r}: use true or false")
        return known[value.lower()]
    validation.check_flag(name, value)
    return value


def _election(value: bool | str | None) -> bool | None:
    return None if value is None else _truth("leader_election", value)


def _narrate(value: bool | str) -> bool:
    return _truth("narrate", value)


def _tracing(value: bool | str) -> bool:
    return _truth("tracing", value)


def _text(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        validation.check_text(field.name, value)


def _choice(*choices: str) -> Callable[[object, attrs.Attribute[Any], str], None]:
    def check(_: object, field: attrs.Attribute[Any], value: str) -> None:
        if value not in choices:
            raise ValueError(f"{field.name}={value!r}: use {', '.join(choices)}")

    return check


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of a program, from arguments or from its environment.

    >>> RunOptions.from_environment({"APPSDK_NAMESPACES": "red,green"}).namespaces
    ('red', 'green')
    """

    kubeconfig: str = attrs.field(default="", validator=_text)
    """A kubeconfig file; default: as :meth:`ClientConfig.load`: ``$KUBECONFIG``, the service
    account of the pod, ``~/.kube/config``."""
    context: str = attrs.field(default="", validator=_text)
    """The context of the kubeconfig; default: its current one."""
    namespaces: tuple[str, ...] | None = attrs.field(default=None, converter=_namespaces)
    """The namespaces to work in, as names or as a text with commas; empty, or the text ``*``: all.
    None: those of the App."""
    leader_election: bool | None = attrs.field(default=None, converter=_election)
    """Whether one replica works at a time; None: as the App says."""
    leader_election_namespace: str = attrs.field(default="", validator=_text)
    """The namespace of the Lease; default: as the App says, or that of the pod."""
    log_level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info", converter=_lower, validator=_choice(*_LEVELS)
    )
    """The least level of records that are written; default ``info``."""
    log_format: LogFormat = attrs.field(
        default="auto", converter=_lower, validator=_choice(*LOG_FORMATS)
    )
    """``text``, ``json``, or ``auto`` (default): JSON in a pod, text elsewhere and on a terminal;
    see :func:`~appsdk_operator.runtime.setup_logging`."""
    narrate: bool = attrs.field(default=False, converter=_narrate)
    """Whether to print each call and its writes to standard output; for development. Default:
    no."""
    metrics_address: str | None = attrs.field(default=None, validator=_text)
    """``host:port`` of the metrics server, such as ``:8080``; ``0``: none. None: as the App
    says."""
    probe_address: str | None = attrs.field(default=None, validator=_text)
    """The same for the server of ``/healthz`` and ``/readyz``."""
    debug_address: str | None = attrs.field(default=None, validator=_text)
    """The same for the debug server, whose page at ``/debug/`` shows what the operator does, such
    as ``127.0.0.1:6060``. Other addresses than those of loopback need ``profile_server`` options
    of the App with a ``filter_provider``."""
    webhook_address: str | None = attrs.field(default=None, validator=_text)
    """The same for the webhook server, if the App has webhooks."""

    webhook_service: str = attrs.field(default="", validator=_text)
    """The Service that leads to the webhook server, as ``name`` in the namespace of the pod, or
    ``namespace/name``. With it the operator makes the certificates itself, keeps them in the Secret
    ``<service>-tls``, and injects their authority into the webhook configurations of the App's name
    and into its CRDs of several versions. Default: certificates come from where the App says."""
    tracing: bool = attrs.field(default=False, converter=_tracing)
    """Whether spans are sent to a collector, as OpenTelemetry's environment variables say; see
    :func:`~appsdk_operator.tracing.otlp_tracing`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Self:
        """The options that environment variables ``APPSDK_…`` set.

        Args:
            environ: the variables; default: those of the process.
            given: fields that override them.

        Raises:
            ValueError: a variable cannot be used; the text names it.
        """
        environ = os.environ if environ is None else environ
        found = {field: environ[name] for field, name in ENVIRONMENT.items() if environ.get(name)}
        for field, value in found.items():
            if field in given:
                continue
            try:
                cls(**{field: value})
            except ValueError as error:
                raise ValueError(f"{ENVIRONMENT[field]}: {error}") from None
        return cls(**{**found, **given})


class RunnableApp(Protocol):
    """What a program runs: an :class:`App`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def options(self) -> ManagerOptions:
        """Its options."""
        ...

    @property
    def webhooks(self) -> Webhooks:
        """Its webhooks."""
        ...

    def manager(
        self, server: ClientConfig | ClientLike, **options: Unpack[ManagerOptionsDict]
    ) -> Manager:
        """A manager of it."""
        ...


def changes_of(app: RunnableApp, options: RunOptions) -> ManagerOptionsDict:
    """The options of the manager that differ from the App's.

    Raises:
        ValueError: an address that cannot be used.
    """
    changes: ManagerOptionsDict = {}
    own = app.options
    if options.namespaces is not None:
        changes["cache"] = attrs.evolve(own.cache or CacheSetup(), namespaces=options.namespaces)
    election = own.leader_election
    if options.leader_election is not None:
        election = (election or LeaderElection(id=app.name)) if options.leader_election else None
        changes["leader_election"] = election
    if election is not None and options.leader_election_namespace:
        changes["leader_election"] = attrs.evolve(
            election, namespace=options.leader_election_namespace
        )
    if options.narrate:
        changes["narrate"] = True
    if options.metrics_address is not None:
        changes["metrics_server"] = attrs.evolve(
            own.metrics_server or MetricsServerOptions(), address=options.metrics_address
        )
    if options.probe_address is not None:
        changes["health_server"] = attrs.evolve(
            own.health_server or HealthServerOptions(), address=options.probe_address
        )
    if options.debug_address is not None:
        changes["profile_server"] = attrs.evolve(
            own.profile_server or ProfileServerOptions(), address=options.debug_address
        )
    if options.webhook_address is not None or options.webhook_service:
        changes["webhook_server"] = _webhook_server(app, options)
    return changes


def _webhook_server(app: RunnableApp, options: RunOptions) -> WebhookServerOptions:
    server = app.options.webhook_server or WebhookServerOptions()
    if not isinstance(server, WebhookServerOptions):
        raise ValueError(
            f"webhook_address and webhook_service are for the options of a webhook server, and the "
            f"App has {server!r}: leave them out"
        )
    if options.webhook_address is not None:
        server = attrs.evolve(server, address=options.webhook_address)
    if options.webhook_service:
        if server.certificates is not None:
            raise ValueError(
                f"webhook_service={options.webhook_service!r}: the App has certificates of its "
                "own: leave one of them out"
            )
        server = attrs.evolve(server, certificates=_certificates(app, options.webhook_service))
    return server


def _certificates(app: RunnableApp, service: str) -> ManagedCertificates:
    """Certificates for a Service, injected wherever its webhooks are named."""
    namespace, _, name = service.rpartition("/")
    webhooks = app.webhooks
    types = {rule.type for rule in webhooks.rules}
    inject = [
        (kind, app.name)
        for kind, type_ in (
            (kinds.admissionregistration.v1.MutatingWebhookConfiguration, "mutating"),
            (kinds.admissionregistration.v1.ValidatingWebhookConfiguration, "validating"),
        )
        if type_ in types
    ]
    inject += [
        (kinds.apiextensions.v1.CustomResourceDefinition, versions.hub.qualified_name)
        for _, versions in webhooks.conversions
    ]
    return ManagedCertificates(name, f"{name}-tls", namespace=namespace or None, inject=inject)


def run_program(
    app: RunnableApp,
    options: RunOptions,
    *,
    config: ClientConfig | None = None,
    prepare: Callable[[ClientConfig, ManagerOptionsDict], None] | None = None,
    stop: StopSignal | None = None,
) -> ExitStatus:
    """Run the App until SIGINT or SIGTERM; errors are logged.

    Args:
        app: the App.
        options: the options of the program.
        config: the cluster; default: as the options say.
        prepare: called before the manager is made; it may change its options.
        stop: ends the run, as a signal does.

    Returns:
        The status to exit with.

    Raises:
        ValueError: this is not the main thread.
    """
    with contextlib.ExitStack() as ending:
        try:
            if config is None:
                config = ClientConfig.load(
                    options.kubeconfig or None, context=options.context or None
                )
            changes = changes_of(app, options)
            if options.tracing:
                from appsdk_operator.tracing import otlp_tracing

                tracing = ending.enter_context(otlp_tracing(app.name))
                changes["observers"] = (*app.options.observers, tracing)
            if prepare is not None:
                prepare(config, changes)
            manager = app.manager(config, **changes)
        except (ClientError, ImportError, TypeError, ValueError, LookupError, OSError) as error:
            _log.error("%s was not started: %s", app.name, error, exc_info=_traceback(error))
            return ExitStatus.NOT_STARTED
        return _run(app, manager, stop)


def _run(app: RunnableApp, manager: Manager, stop: StopSignal | None) -> ExitStatus:
    try:
        manager.run(stop, handle_signals=True)
    except LeadershipLost as error:
        _log.error("%s ends: %s", app.name, error)
        return ExitStatus.LEAD_LOST
    except Exception:
        _log.exception("%s failed", app.name)
        return ExitStatus.FAILED
    return ExitStatus.STOPPED


def _traceback(error: BaseException) -> BaseException | None:
    """The error for its traceback, at the level at which somebody looks for a bug."""
    return error if _log.isEnabledFor(logging.DEBUG) else None


def start_logging(app_name: str, options: RunOptions) -> None:
    """Write log records to standard error, unless the program has a handler already.

    Each record has the name of the operator as ``operator``.
    """
    if not get_logger("").logger.handlers:
        setup_logging(options.log_format, level=options.log_level, operator=app_name)
