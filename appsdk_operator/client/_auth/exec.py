"""Credentials from an exec plugin, run at expiry and after a 401."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from appsdk_operator.client._auth.config_files import memory_file
from appsdk_operator.client._auth.credentials import (
    Credential,
    Credentials,
    RenewalLog,
    bearer,
)
from appsdk_operator.client._auth.kubeconfig_section import KubeconfigSection
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.resource import parse_time
from appsdk_operator.runtime import Clock, StopSignal, Waiters, after_fork, fork_safe, present_clock

_RENEW_BEFORE = 60.0  # seconds before its expiry that a credential is renewed
_FAILURE_SECONDS = 1.0  # seconds that a failure is cached: longer than a burst of requests
_LEAST_SECONDS = 1.0  # seconds that a credential is used, also an expired one: as long as that
_TIME_OUT, _TIME_OUT_WITH_TERMINAL = 60.0, 600.0  # the user may have to log in with a browser
_POLL_SECONDS = 0.05  # seconds between two checks of stop and deadline
_MAX_OUTPUT = 1 << 20
_MAX_STDERR = 2_000
_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_EXTENSION = "client.authentication.k8s.io/exec"
_STATUS = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")


class ExecCredentials(Credentials):
    """The credentials that a plugin prints: a token or a client certificate, and its expiry.

    The plugin runs at the first request, a minute before the expiry (a tenth of the lifetime, if
    that is shorter), and after a 401. What it printed is used for a second at least, even if it has
    expired, be it by a clock that is wrong: the server judges. A failure is cached for a second:
    requests in that time use the former credential if it has not expired and was not refused, or
    get the same error. On a time-out or a stop the plugin is killed with its child processes.
    """

    def __init__(
        self,
        section: Mapping[str, Any] | KubeconfigSection,
        *,
        folder: str,
        cluster: Mapping[str, Any],
        timeout: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A plugin.

        Args:
            section: the ``exec`` section of a kubeconfig's user.
            folder: the folder of the kubeconfig, the base of relative commands.
            cluster: the cluster's section, for plugins with ``provideClusterInfo``.
            timeout: the time limit in seconds; default: 60, or 600 where it may ask at a terminal.
            clock: times the renewal.

        Raises:
            ConfigError: a value of the section is missing, or has another type than it must have.
        """
        if not isinstance(section, KubeconfigSection):
            section = KubeconfigSection(values=section, path="exec")
        clock = present_clock(clock)
        self._plugin = _Plugin(section, folder, cluster, timeout, clock)
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._waiters = Waiters(clock)
        self._is_running = False
        self._credential: Credential | None = None
        self._renew_at = self._expires_at = float("inf")
        self._renewal = RenewalLog("credentials")
        self._failure = ""
        self._failed_until = float("-inf")
        after_fork(self._on_fork)

    def obtain(self, stop: StopSignal) -> Credential:
        """What the plugin printed; runs it if due, or waits for a run in another thread.

        Raises:
            ConfigError: the plugin failed; the text has its standard error.
        """
        while not stop.is_set():
            with self._lock:
                if self._credential is not None and self._clock.monotonic() < self._renew_at:
                    return self._credential
                if self._clock.monotonic() < self._failed_until:
                    # A new error each time: the traceback of a cached one would grow.
                    raise ConfigError(self._failure)
                is_ours = not self._is_running
                self._is_running = True
            if not is_ours:
                self._waiters.wait(lambda: not self._is_running, stop)
                continue
            try:
                self._renew(stop)
            finally:
                self._is_running = False
                self._waiters.wake()
        return Credential()

    def refused(self, credential: Credential) -> None:
        """Run the plugin again at the next request, unless it has just failed."""
        with self._lock:
            if credential == self._credential:
                self._renew_at = self._expires_at = float("-inf")

    def _on_fork(self) -> None:
        self._is_running = False  # the thread that ran it is in the parent

    def _renew(self, stop: StopSignal) -> None:
        try:
            status = self._plugin.run(stop)
            if status is None:
                return
            credential, life = self._credential_in(status), self._lifetime(status)
        except ConfigError as error:
            with self._lock:
                now = self._clock.monotonic()
                self._failure = str(error)
                self._failed_until = now + _FAILURE_SECONDS
                self._renew_at = min(self._failed_until, self._expires_at)
                if self._credential is None or now >= self._expires_at:
                    raise
            self._renewal.failed(error)
            return
        self._renewal.succeeded()
        with self._lock:
            now = self._clock.monotonic()
            self._credential = credential
            self._expires_at = now + max(_LEAST_SECONDS, life)
            self._renew_at = now + max(_LEAST_SECONDS, life - min(_RENEW_BEFORE, life / 10.0))

    def _credential_in(self, status: Mapping[str, str]) -> Credential:
        token = status.get("token")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData", "")
        if certificate and not key:
            raise ConfigError(f"{self._plugin} printed clientCertificateData without clientKeyData")
        return Credential(
            bearer(token, f"what {self._plugin} printed") if token else None,
            (certificate.encode(), key.encode()) if certificate else None,
        )

    def _lifetime(self, status: Mapping[str, str]) -> float:
        stamp = status.get("expirationTimestamp")
        if not stamp:
            return float("inf")
        expires = _time_or_none(stamp)
        if expires is None:
            raise ConfigError(
                f"{self._plugin} printed a bad expirationTimestamp: it is not a time such as "
                "2024-05-01T10:00:00Z"
            )
        if expires.tzinfo is None:
            expires = expires.replace(tzinfo=dt.UTC)
        return max(0.0, expires.timestamp() - self._clock.time())


class _Plugin:
    """The command of a plugin, with its arguments and its environment."""

    def __init__(
        self,
        section: KubeconfigSection,
        folder: str,
        cluster: Mapping[str, Any],
        timeout: float | None,
        clock: Clock,
    ) -> None:
        self._command = section.text("command")
        self._api_version = section.text("apiVersion")
        for key in ("command", "apiVersion"):
            if not section.text(key):
                raise ConfigError(f"{section.location(key)} is missing: every exec section has one")
        self._arguments = section.texts("args")
        self._environment = {
            item.text("name"): item.text("value") for item in section.sections("env")
        }
        self._mode = section.text("interactiveMode") or "IfAvailable"
        self._hint = section.text("installHint")
        self._cluster = _cluster_info(cluster) if section.flag("provideClusterInfo") else None
        self._folder = folder
        self._timeout = timeout
        self._clock = clock

    def __str__(self) -> str:
        return f"the exec plugin {self._command!r}"

    def run(self, stop: StopSignal) -> Mapping[str, str] | None:
        """Run it and return the status that it prints; None when stopped.

        Raises:
            ConfigError: it failed, or printed something else.
        """
        try:
            printed = self._run(stop)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ConfigError(f"{self} failed: {error}; {self._remedy}") from error
        return None if printed is None else self._status_in(printed)

    def _run(self, stop: StopSignal) -> bytes | None:
        is_interactive = self._mode != "Never" and _has_terminal()
        if self._mode == "Always" and not is_interactive:
            raise ValueError("its interactiveMode is Always, but there is no terminal")
        timeout = self._timeout or (_TIME_OUT_WITH_TERMINAL if is_interactive else _TIME_OUT)
        deadline = self._clock.monotonic() + timeout
        # Files instead of pipes, which a process left behind by the plugin could keep open.
        with memory_file() as stdout, memory_file() as stderr:
            process = subprocess.Popen(  # noqa: S603 - the user's own kubeconfig names it
                [self._command, *self._arguments],
                stdin=None if is_interactive else subprocess.DEVNULL,
                stdout=stdout,
                stderr=None if is_interactive else stderr,
                cwd=self._folder or None,
                env={
                    **os.environ,
                    **self._environment,
                    "KUBERNETES_EXEC_INFO": self._exec_info(is_interactive=is_interactive),
                },
                # A session of its own can be killed as a whole, but loses the terminal.
                start_new_session=not is_interactive,
            )
            with _terminating(process, with_children=not is_interactive):
                while not _has_exited(process):
                    if stop.is_set():
                        return None
                    if self._clock.monotonic() >= deadline:
                        raise ValueError(f"it took more than {timeout:g} s and was ended")
                    if os.fstat(stdout.fileno()).st_size > _MAX_OUTPUT:
                        break
            printed = _content(stdout)
            if len(printed) > _MAX_OUTPUT:
                raise ValueError(f"it printed more than {_MAX_OUTPUT} bytes")
            if process.returncode != 0:
                text = _content(stderr).decode("utf-8", "replace").strip()[-_MAX_STDERR:]
                raise ValueError(f"it returned {process.returncode}" + (text and f". {text}"))
        return printed

    def _exec_info(self, *, is_interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": is_interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        return json.dumps(info)

    def _status_in(self, printed: bytes) -> Mapping[str, str]:
        answer: Any = None
        # RecursionError: JSON nested too deep. The error is not kept: it has the whole text.
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(printed)
        if answer is None:
            raise ConfigError(f"{self} failed: what it printed is not JSON; {self._remedy}")
        section = KubeconfigSection.of(answer, "the answer", f"what {self} printed", Path())
        version = section.text("apiVersion")
        if version != self._api_version:
            raise ConfigError(
                f"{self} failed: it answered in apiVersion {version!r}, but "
                f"{self._api_version!r} was asked for: set exec.apiVersion to what it knows"
            )
        status = section.section("status")
        found = {key: status.text(key) for key in _STATUS}
        if not found["token"] and not found["clientCertificateData"]:
            raise ConfigError(f"{self} printed neither a token nor a client certificate")
        return found

    @property
    def _remedy(self) -> str:
        return self._hint or "run it by hand to see its message"


def _time_or_none(stamp: str) -> dt.datetime | None:
    try:
        return parse_time(stamp)
    except ValueError:
        return None


def _cluster_info(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cluster's section for ``KUBERNETES_EXEC_INFO``, with its extension for plugins."""
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, Mapping) and extension.get("name") == _EXTENSION:
            return {**cluster, "config": extension.get("extension")}
    return cluster


def _has_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # standard input is missing or closed
        return False


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextlib.contextmanager
def _terminating(process: subprocess.Popen[bytes], *, with_children: bool) -> Iterator[None]:
    """Terminate the process at the end of the block: SIGTERM, and SIGKILL after a second.

    Children that outlive it get the SIGKILL, too.
    """
    try:
        yield
    finally:
        if process.poll() is None:
            _send(process, signal.SIGTERM, with_children=with_children)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            _send(process, signal.SIGKILL, with_children=with_children)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)


def _send(process: subprocess.Popen[bytes], number: int, *, with_children: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if with_children:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(_MAX_OUTPUT + 1)
