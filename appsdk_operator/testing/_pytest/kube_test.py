"""One test with the plugin's fixtures: its namespace, its runnables, and its failure report."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from appsdk_operator.client import ApiError, Client, NotFound, TransportError
from appsdk_operator.manager import Runnable, as_runnable, name_of
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import StopSignal, add_note, safe_repr, system_clock
from appsdk_operator.testing._pytest import report
from appsdk_operator.testing._pytest.servers import (
    USER_AGENT,
    KubeServer,
    request_log,
)
from appsdk_operator.testing._running import running

if TYPE_CHECKING:
    from appsdk_operator.testing import LoggedRequest
    from appsdk_operator.webhooks import DevelopmentServer


_LABEL: Final = "app.kubernetes.io/managed-by"
_THREAD_PATIENCE: Final = 5.0
_REMEMBERED: Final = 200


@attrs.define
class _Run:
    name: str
    target: Any
    context: contextlib.AbstractContextManager[StopSignal]
    threads: set[threading.Thread]


@final
class _Errors(logging.Handler):
    """Collects the kit's last warnings and errors during the test."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: deque[logging.LogRecord] = deque(maxlen=_REMEMBERED)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@final
class KubeTest:
    """The state of one test that uses the plugin's fixtures."""

    def __init__(
        self,
        server: KubeServer,
        name: str,
        *,
        lines: int,
        webhook_host: str = "",
        on_namespace: Callable[[KubeServer, str], None] | None = None,
    ) -> None:
        """Begin the test: its requests are those from now on.

        Args:
            server: the server.
            name: the name of the test.
            lines: in each section of the report.
            webhook_host: the name by which an existing cluster reaches this machine.
            on_namespace: called with the server and the namespace of the test once it is there.
        """
        self._on_namespace = on_namespace
        self._webhook_host = webhook_host
        self._webhooks: DevelopmentServer | None = None
        self._server = server
        self._name = name
        self._lines = lines
        self._namespace = ""
        self._log = request_log(server)
        self._mark = self._log.mark() if self._log is not None else None
        self._runs: list[_Run] = []
        self._snapshots: list[tuple[str, Any]] | None = None
        self._ran: list[tuple[str, Any]] = []
        self._errors = _Errors()
        logging.getLogger("appsdk_operator").addHandler(self._errors)

    # -- namespace ---------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        """The namespace of the test; empty if it has none."""
        return self._namespace

    def make_namespace(self) -> str:
        """Create the namespace of the test."""
        slug = re.sub(r"[^a-z0-9]+", "-", self._name.lower()).removeprefix("test-").strip("-")
        name = f"test-{slug[:40].strip('-')}-{secrets.token_hex(3)}".replace("--", "-")
        draft = MutableObject.new(kinds.core.v1.Namespace, name)
        draft.labels[_LABEL] = USER_AGENT
        with self._client() as client:
            client.create(draft)
        self._namespace = name
        if self._on_namespace is not None:
            self._on_namespace(self._server, name)
        return name

    def _client(self) -> Client:
        return Client(self._server.client_config(user_agent=USER_AGENT))

    def _remove_namespace(self) -> None:
        with self._client() as client, contextlib.suppress(NotFound):
            if self._log is not None and hasattr(self._server, "audit_log"):
                self._empty_namespace(client)
            client.delete(kinds.core.v1.Namespace, self._namespace)

    def _empty_namespace(self, client: Client) -> None:
        """Delete the objects that the test made: a control plane has no namespace controller."""
        written: dict[str, None] = {}
        for request in self.requests():
            if request.verb in ("create", "patch") and request.namespace == self._namespace:
                found = re.match(r"(.*/namespaces/[^/]+/[^/]+)", request.path)
                if found is not None:
                    written[found[1]] = None
        for path in written:
            with contextlib.suppress(ApiError):
                client.request("DELETE", path)

    # -- runnables ---------------------------------------------------------------------------

    def run(
        self,
        runnable: Runnable | Callable[[StopSignal], object],
        *,
        wait: bool = True,
        timeout: float = 30.0,
    ) -> StopSignal:
        """Run a runnable until the test function has returned; see :func:`running`."""
        target = as_runnable(runnable)
        name = name_of(target)
        run = _Run(
            name,
            runnable,
            running(runnable, wait=wait, timeout=timeout),
            set(threading.enumerate()),
        )
        self._ran.append((name, runnable))
        stop = run.context.__enter__()
        self._runs.append(run)
        return stop

    def end_runs(self, error: BaseException | None = None) -> None:
        """Stop the runnables, the last one first.

        Args:
            error: the test's own failure; the errors of the runnables become its notes.

        Raises:
            BaseException: the first error of a runnable, if the test itself has not failed.
        """
        failures: list[BaseException] = []
        runs, self._runs = self._runs, []
        for run in reversed(runs):
            try:
                run.context.__exit__(None, None, None)
            except BaseException as failure:
                failures.append(failure)
        if runs and not failures:
            # Threads since before the first start: any of the runnables may have started them.
            try:
                _check_threads(" and ".join(run.name for run in runs), runs[0].threads)
            except RuntimeError as failure:
                failures.append(failure)
        if not failures:
            return
        if error is None:
            error, *failures = failures
            self.observe()
            _note(error, failures)
            raise error
        _note(error, failures)

    def close(self) -> None:
        """Delete the namespace, and clear fault rules, which would apply to other tests."""
        logging.getLogger("appsdk_operator").removeHandler(self._errors)
        if self._webhooks is not None:
            self._webhooks.close()  # its port, if it never ran
        clear = getattr(self._server, "clear_faults", None)
        if clear is not None:
            clear()
        if self._namespace:
            self._remove_namespace()

    @property
    def webhook_server(self) -> DevelopmentServer:
        """The webhook server of the test, made on first use; it installs its webhooks."""
        if self._webhooks is None:
            from appsdk_operator.testing._pytest.servers import webhook_server

            self._webhooks = webhook_server(
                self._server, f"test-{secrets.token_hex(6)}", self._webhook_host
            )
        return self._webhooks

    # -- the report --------------------------------------------------------------------------

    def requests(self) -> list[LoggedRequest]:
        """The requests since the test began; none where the server keeps no log."""
        return [] if self._log is None else self._log.since(self._mark)

    def observe(self) -> None:
        """Take the snapshots of the runnables while they still run."""
        if self._snapshots is None:
            self._snapshots = [(name, report.snapshot_of(target)) for name, target in self._ran]

    def sections(self) -> list[tuple[str, str]]:
        """The titles and texts of the failure report."""
        if self._log is None and not self._ran and not self._namespace:
            return []
        self.observe()
        namespace, lines = self._namespace, self._lines
        sections = []
        if self._log is not None:
            found = [r for r in self.requests() if r.user_agent != USER_AGENT]
            sections.append(("kube: requests", report.requests(found, namespace, lines)))
        if namespace:
            sections.append(("kube: events", self._events()))
        if self._snapshots:
            text = report.operators(self._snapshots, namespace, lines)
            sections.append(("kube: operator", text))
        if self._errors.records:
            text = report.errors(list(self._errors.records), namespace, lines)
            sections.append(("kube: errors", text))
        return [(title, text) for title, text in sections if text]

    def _events(self) -> str:
        kind: Kind = kinds.core.v1.Event
        try:
            with self._client() as client:
                found = client.list_page(kind, namespace=self._namespace, limit=500).items
        except (ApiError, TransportError) as error:
            return f"could not be read: {error}"
        return report.events([event.to_dict() for event in found], self._lines)


def _note(error: BaseException, others: list[BaseException]) -> None:
    for other in others:
        add_note(error, f"an operator of the test failed, too: {safe_repr(other)}")


def _check_threads(names: str, before: set[threading.Thread]) -> None:
    """Check that the threads that were started since ``before`` have ended.

    Raises:
        RuntimeError: some have not.
    """
    new = [thread for thread in threading.enumerate() if thread not in before]
    deadline = system_clock.monotonic() + _THREAD_PATIENCE
    for thread in new:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - system_clock.monotonic()))
    left = [thread.name for thread in new if thread.is_alive()]
    if left:
        raise RuntimeError(
            f"{names} ended, but threads that were started meanwhile have not: {', '.join(left)}"
        )
