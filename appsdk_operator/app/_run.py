"""Runs an App as a program: configuration, log, signals and the exit status."""

from __future__ import annotations

import contextlib
import enum
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, Unpack

import attrs

from appsdk_operator.app._run_options import RunOptions
from appsdk_operator.cache import NamespaceSelection
from appsdk_operator.client import ClientConfig, ClientError, ClientLike
from appsdk_operator.manager import (
    CacheSetup,
    LeadershipLost,
    Manager,
    ManagerOptions,
    ManagerOptionsDict,
)
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import (
    SafeLogger,
    StopSignal,
    callback_place,
    get_logger,
    setup_logging,
)

if TYPE_CHECKING:
    from appsdk_operator.webhooks import ManagedCertificates, Webhooks, WebhookServerOptions

_log: Final[SafeLogger] = get_logger("appsdk_operator.app")


class ExitStatus(enum.IntEnum):
    """The exit status of an operator's program."""

    STOPPED = 0
    """The program stopped as asked. After a second signal: 128 plus the signal's number."""
    FAILED = 1
    """A part of it failed; the log says which."""
    NOT_STARTED = 2
    """An option, the cluster configuration or a declaration is invalid, or a port is taken; the log
    says what to do. Another start would not help."""
    LEAD_LOST = 3
    """Another replica leads. Start the process again, as a candidate."""


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
        self,
        server: ClientConfig | ClientLike,
        *,
        namespaces: NamespaceSelection | None = None,
        **options: Unpack[ManagerOptionsDict],
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
        from appsdk_operator.manager import LeaderElection

        election = (election or LeaderElection(id=app.name)) if options.leader_election else None
        changes["leader_election"] = election
    if election is not None and options.leader_election_namespace:
        changes["leader_election"] = attrs.evolve(
            election, namespace=options.leader_election_namespace
        )
    if options.narrate:
        changes["narrate"] = True
    if options.metrics_address is not None:
        from appsdk_operator.manager import MetricsServerOptions

        changes["metrics_server"] = attrs.evolve(
            own.metrics_server or MetricsServerOptions(), address=options.metrics_address
        )
    if options.probe_address is not None:
        from appsdk_operator.manager import HealthServerOptions

        changes["health_server"] = attrs.evolve(
            own.health_server or HealthServerOptions(), address=options.probe_address
        )
    if options.debug_address is not None:
        from appsdk_operator.manager import ProfileServerOptions

        changes["profile_server"] = attrs.evolve(
            own.profile_server or ProfileServerOptions(), address=options.debug_address
        )
    if options.webhook_address is not None or options.webhook_service:
        changes["webhook_server"] = _webhook_server(app, options)
    return changes


def _webhook_server(app: RunnableApp, options: RunOptions) -> WebhookServerOptions:
    from appsdk_operator.webhooks import WebhookServerOptions

    server = app.options.webhook_server or WebhookServerOptions()
    if not isinstance(server, WebhookServerOptions):
        raise ValueError(
            "webhook_address and webhook_service change the options of a webhook server, but the "
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
    from appsdk_operator.webhooks import ManagedCertificates

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
        log_running(app.name)
        return ExitStatus.FAILED
    return ExitStatus.STOPPED


def log_running(app_name: str) -> None:
    """Say what the end of the process waits for."""
    running: list[str] = []
    for thread in threading.enumerate():
        place = "" if thread.ident is None else callback_place(thread.ident)
        if thread.name.startswith(f"{app_name}/") and place:
            running.append(f"{thread.name} at {place}")
    if running:
        _log.warning(
            "the process of %s ends when these calls have ended, or at the next signal: %s",
            app_name,
            "; ".join(sorted(running)),
        )


def _traceback(error: BaseException) -> BaseException | None:
    """The error for its traceback, at the level at which somebody looks for a bug."""
    return error if _log.isEnabledFor(logging.DEBUG) else None


def start_logging(app_name: str, options: RunOptions) -> None:
    """Write log records to standard error, unless the program has a handler already.

    Each record has the name of the operator as ``operator``.
    """
    if not get_logger("").logger.handlers:
        setup_logging(options.log_format, level=options.log_level, operator=app_name)
