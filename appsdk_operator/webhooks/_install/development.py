"""A webhook server on the developer's machine, called by a cluster that knows no Service for it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import Any, ClassVar, Final, final

import attrs

from appsdk_operator.cache import Health
from appsdk_operator.client import Client, ClientConfig, ClientError, contexts_of
from appsdk_operator.runtime import (
    Clock,
    Metrics,
    StopSignal,
    ThreadGroup,
    Waiters,
    as_exception,
    get_logger,
    present_clock,
    validation,
)
from appsdk_operator.serving import HTTPLimits, SelfSigned
from appsdk_operator.webhooks._install.local_clusters import (
    LOCAL_CONTEXTS,
    Reach,
    allowed_context,
    reach_by,
    reach_of,
)
from appsdk_operator.webhooks._install.temporary import TemporaryInstallation
from appsdk_operator.webhooks._server.server import WebhookServer
from appsdk_operator.webhooks._server.webhooks import Webhooks

_log: Final = get_logger("appsdk_operator.webhooks")

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PATIENCE: Final = 10.0
_LOOK_EVERY: Final = 1.0
_LAST_REQUEST: Final = 5.0


@final
class DevelopmentServer:
    """A webhook server on your own machine, which installs its webhooks while it runs.

    For the development of an operator outside of the cluster: no Service leads to it, so the
    cluster calls it by a URL. Use it instead of the manager's own webhook server::

        manager = Manager(config, webhook_server=DevelopmentServer(config, "widgets"))
        webhook_for(manager, WIDGET).default(set_size).validate(create=check).complete()
        manager.run(handle_signals=True)

    It makes a certificate for the name by which the cluster reaches this machine. It installs the
    configurations of its webhooks and, for kinds with several versions, the conversion in their
    CRDs. At the stop it removes all of this, also after Ctrl-C and errors. If the process is
    killed, the configurations stay, and writes that they apply to fail until the next start
    replaces them. If webhooks are added while it runs, it soon installs them.

    It finds the name for kind (on Linux with ``docker network inspect kind``), k3d, minikube,
    Docker Desktop and Rancher Desktop. For other clusters, or your own virtual machine, give
    ``host``.

    It is a runnable of the webhook group, on every replica; run one replica only. Needs the extra
    ``webhooks``. Thread-safe.

    Args:
        config: the cluster, with permission to write webhook configurations and, with conversions,
            CRDs.
        name: the name of the operator; the configurations are called ``<name>-development``.
        host: the DNS name or IP address by which the API server reaches this machine; default: as
            above.
        address: the address to listen on, ``host:port``; default: a free port, on loopback or in
            the network of kind if that suffices, else on all addresses.
        contexts: the contexts of the kubeconfig whose clusters may be changed, as patterns with
            ``*`` and ``?``; default ``kind-*``, ``k3d-*``, ``minikube``, ``docker-desktop`` and
            ``rancher-desktop``.
        unsafe_any_cluster: allow any cluster, even if no kubeconfig has it; default False.
        take_over: replace webhooks of this name that another process has installed, on another
            machine or still running on this one; default False.
        limits: limits for clients; default: those of :class:`WebhookServer`.
        webhooks: the webhooks; default: none yet.
        clock: the clock of its time-outs; default: the environment's.
        metrics: the metrics that it writes to; default: the manager's.

    Raises:
        PermissionError: the cluster does not look like one for development.
        LookupError: it is not known how the cluster reaches this machine; the text says what to
            give.
        OSError: the address cannot be bound.
        ValueError, TypeError: an option that cannot be used.
    """

    name: ClassVar[str] = "webhooks"
    runnable_group: ClassVar[str] = "webhooks"
    """The group of a manager that runs it: before the caches."""
    needs_leader_election: ClassVar[bool] = False
    """Whether a manager runs it on the leader only: no, on every replica."""

    def __init__(
        self,
        config: ClientConfig,
        name: str,
        *,
        host: str = "",
        address: str = "",
        contexts: Iterable[str] = LOCAL_CONTEXTS,
        unsafe_any_cluster: bool = False,
        take_over: bool = False,
        limits: HTTPLimits | None = None,
        webhooks: Webhooks | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """See the class."""
        validation.check_instance("config", config, ClientConfig, "ClientConfig.load()")
        _check_name(name)
        validation.check_text("host", host)
        validation.check_text("address", address)
        validation.check_flag("unsafe_any_cluster", unsafe_any_cluster)
        validation.check_flag("take_over", take_over)
        patterns = validation.checked_texts("contexts", contexts)
        reach = _reach(config, host, patterns, unsafe_any_cluster=unsafe_any_cluster)
        self.clock: Clock = present_clock(clock)
        """The clock of its waits."""
        # A stop should not wait long for a cluster that is away.
        self._config = attrs.evolve(
            config,
            connect_timeout=min(config.connect_timeout, _LAST_REQUEST),
            read_timeout=min(config.read_timeout, _LAST_REQUEST),
        )
        self._name = f"{name}-development"
        self._host = reach.host
        self._take_over = take_over
        self._certificates = SelfSigned(reach.host, clock=self.clock)
        self._server = WebhookServer(
            address or reach.address,
            certificates=self._certificates,
            limits=limits,
            webhooks=webhooks,
            clock=clock,
            metrics=metrics,
        )
        self._lock = threading.RLock()  # also of signal handlers, which may close it
        self._waiters = Waiters(self.clock)
        self._state = "has not been started yet"
        self._is_installed = False
        self._is_over = False
        self._ending: StopSignal | None = None

    def __repr__(self) -> str:
        return f"<development webhook server {self.url}>"

    # -- webhooks --------------------------------------------------------------------------------

    @property
    def webhooks(self) -> Webhooks:
        """Its webhooks by path."""
        return self._server.webhooks

    @property
    def url(self) -> str:
        """The URL by which the API server calls it, for example ``https://172.18.0.1:40123``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self._server.port}"

    @property
    def address(self) -> str:
        """The address it listens on."""
        return self._server.address

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    @property
    def pem(self) -> bytes:
        """Its certificate in PEM, the ``caBundle`` of the configurations that it installs."""
        return self._certificates.pem

    # -- status ----------------------------------------------------------------------------------

    def health(self) -> Health:
        """Whether the server can be called, and its webhooks are installed."""
        with self._lock:
            if not self._is_installed:
                return Health(False, f"the development webhook server {self._state}")
        return self._server.health()

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        """Wait until its webhooks are installed and the API server obeys their configurations.

        With conversions it waits up to 10 seconds until objects of the kinds can be read again:
        while the API server rebuilds their storage, it answers 429.

        Returns:
            False when stopped, when its run has ended, or after ``timeout`` seconds.
        """
        validation.check_wait(stop, timeout)
        self._waiters.wait(lambda: self._is_installed or self._is_over, stop, timeout)
        return self._is_installed and not stop.is_set()

    # -- start and stop --------------------------------------------------------------------------

    def run(self, stop: StopSignal, /) -> None:
        """Install and serve until ``stop`` is set, then remove the installed configurations.

        Raises:
            RuntimeError: it was run before, or another process has installed webhooks of this name.
            LookupError: the CRD of a kind whose versions it converts is not installed.
            ApiError: the API server refused something.
            TransportError: the API server cannot be reached.
        """
        # Set at the stop, by close(), and when the server fails.
        ending = stop.child()
        with self._lock:
            self._ending = ending
        # The server outlives what is installed: until then it is asked.
        serving = StopSignal(clock=self.clock)
        failures: list[BaseException] = []

        def fail(error: Exception) -> None:
            failures.append(error)
            ending.set()

        def serve() -> None:
            try:
                self._server.run(serving)
            except BaseException as error:
                fail(as_exception("the webhook server", error))

        threads = ThreadGroup("development-webhooks")
        threads.start("server", serve)
        try:
            if self._server.wait_until_ready(ending):
                self._install_until(ending)
        finally:
            self._enter("has ended", is_over=True)
            serving.set()
            threads.join()
            with self._lock:
                self._ending = None
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close the port. Harmless after a run, and twice.

        If the server runs, this stops it like its stop signal, and does not wait for it: the
        webhooks are removed and the port is closed once ``run`` returns.
        """
        with self._lock:
            ending = self._ending
        if ending is not None:
            ending.set()
            return
        self._enter("was closed", is_over=True)
        self._server.close()

    def _install_until(self, stop: StopSignal) -> None:
        clock = self.clock
        with Client(self._config, clock=clock) as client:
            installation = TemporaryInstallation(
                client,
                self._name,
                url=self.url,
                ca=self.pem,
                take_over=self._take_over,
                patience=_PATIENCE,
                clock=clock,
            )
            table = self._server.webhooks
            try:
                self._enter("installs its webhooks")
                while not stop.is_set():
                    present = table.rules, table.conversions
                    installation.install(*present, stop)
                    names = ", ".join(installation.texts) or "conversions only"
                    _log.info("installed webhooks at %s: %s", self.url, names)
                    self._enter("has installed its webhooks", is_installed=True)
                    while (table.rules, table.conversions) == present:
                        if stop.wait(_LOOK_EVERY):
                            break
            finally:
                self._enter("removes its webhooks")
                self._remove(installation)

    def _remove(self, installation: TemporaryInstallation) -> None:
        # A server that has ended is not a reason for this process not to.
        config = attrs.evolve(self._config, max_retries=min(self._config.max_retries, 1))
        try:
            with Client(config, clock=self.clock) as client:
                installation.remove(client)
                # Until then it is asked, and those who ask wait for an answer.
                installation.await_end()
        except TimeoutError as error:
            _log.warning("%s, and this process does not answer any more", error)
        except ClientError as error:
            _log.error(
                "this process could not remove its webhooks: %s. Writes that the API server asks "
                "them about fail until the next start, or until kubectl delete %s",
                error,
                " ".join(installation.texts),
            )
        else:
            _log.info("removed the webhooks at %s", self.url)

    def _enter(self, state: str, *, is_installed: bool = False, is_over: bool = False) -> None:
        with self._lock:
            self._state = state
            self._is_installed = is_installed
            self._is_over = self._is_over or is_over
        self._waiters.wake()


def _check_name(name: Any) -> None:
    validation.check_text("name", name, empty=False)
    if not _NAME.fullmatch(name) or len(name) > 50:
        raise ValueError(
            f"name={name!r}: use lower-case letters, digits and '-', 50 at most, as in 'widgets'"
        )


def _reach(
    config: ClientConfig, host: str, patterns: tuple[str, ...], *, unsafe_any_cluster: bool
) -> Reach:
    """How the cluster reaches this machine, if it may be changed."""
    known = [] if unsafe_any_cluster and host else contexts_of(config.server)
    if not unsafe_any_cluster:
        known = [allowed_context(known, patterns, config.server)]
    if host:
        return reach_by(host)
    if not known:
        raise LookupError(
            f"it is not known how {config.server} reaches this machine: give host=, the name or "
            "address that it uses"
        )
    return reach_of(known[0])
