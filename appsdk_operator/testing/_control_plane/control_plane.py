"""The real etcd and kube-apiserver as child processes: :class:`ControlPlane`."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, final

from appsdk_operator.apiserver import Authority, kubeconfig, write_kubeconfig
from appsdk_operator.client import ClientConfig
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing._control_plane import options as _options
from appsdk_operator.testing._control_plane.keys import write_keys
from appsdk_operator.testing._control_plane.options import Flags
from appsdk_operator.testing._control_plane.processes import (
    ProcessGuard,
    ReservedPorts,
    end_processes,
    program_path,
)

if TYPE_CHECKING:
    from appsdk_operator.apiserver import LoggedRequest


_HOST: Final = "127.0.0.1"
_ATTEMPTS: Final = 5  # with other ports, as in envtest
_POLL: Final = 0.05
_ANSWER: Final = 10.0  # on a busy machine a handshake alone may take seconds
_TAIL_LINES: Final = 15
_TAIL_BYTES: Final = 8192
_NAME: Final = "control-plane"
_VARIABLES: Final = "KUBEBUILDER_CONTROLPLANE_"
_PORT_TAKEN: Final = "address already in use"


class ControlPlaneError(RuntimeError):
    """A server of the control plane did not start, or ended on its own; the text has its log."""


class _PortTakenError(ControlPlaneError):
    """Another program took a port before the server could bind it."""


@final
class ControlPlane:
    """The real etcd and kube-apiserver, as child processes on loopback, for one test session.

    It has the interface of :class:`APIServer`, so that the same tests run on both. The programs are
    found as envtest finds them: ``TEST_ASSET_ETCD`` and ``TEST_ASSET_KUBE_APISERVER`` name them, or
    ``KUBEBUILDER_ASSETS`` names their folder. Kubernetes 1.20 or newer is needed.

    There is no controller manager: no garbage is collected, and namespaces never finish deleting.

    Guarantees:
        * :meth:`start` returns once the server is ready, or raises with the end of the logs.
        * :meth:`stop` leaves no process and no file behind, and neither does the end of this
          process, however it ends.
        * Stored objects survive :meth:`kill` and :meth:`restart`, but not :meth:`stop`.

    Caveats:
        * etcd asks for no credentials on this machine. Store nothing but test data.

    Thread-safe.

    Args:
        assets: the folder with the programs ``etcd`` and ``kube-apiserver``; default: from the
            environment, see above, else ``/usr/local/kubebuilder/bin``.
        token: the bearer token of a user in the group ``system:masters``; default: a random one.
        flags: flags for kube-apiserver, without the dashes; they override the defaults:
            ``{"feature-gates": "WatchList=true"}``. The value None omits a flag, a list repeats it.
        etcd_flags: the same for etcd.
        start_timeout: seconds for each start; default: ``KUBEBUILDER_CONTROLPLANE_START_TIMEOUT``,
            a duration like ``1m30s``, else 20, as in envtest.
        stop_timeout: seconds each server has to end before it is killed; default:
            ``KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT``, else 2: kube-apiserver would wait a minute
            for open watches, and no data is lost.
        attach_output: whether the servers write to the standard error of this process instead of
            their logs; default: whether ``KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT`` is ``true``.
        audit: whether to log all requests, for :attr:`requests`; default False.

    Raises:
        ValueError, TypeError: an option is out of range.
    """

    def __init__(
        self,
        *,
        assets: str | os.PathLike[str] | None = None,
        token: str | None = None,
        flags: Flags = MappingProxyType({}),
        etcd_flags: Flags = MappingProxyType({}),
        start_timeout: float | None = None,
        stop_timeout: float | None = None,
        attach_output: bool | None = None,
        audit: bool = False,
    ) -> None:
        """See the class."""
        if token is not None and (not token.isprintable() or not token or set(token) & set(' ,"')):
            raise ValueError(
                "token must be one word without commas and quotes; leave it out for a random one"
            )
        self._assets = None if assets is None else os.fspath(assets)
        self._token = token or secrets.token_hex(16)
        self._flags = _options.checked_flags(flags)
        self._more_etcd_flags = _options.checked_flags(etcd_flags)
        self._start_timeout = _options.timeout_option(
            "start_timeout", start_timeout, f"{_VARIABLES}START_TIMEOUT", 20.0, least=0.001
        )
        self._stop_timeout = _options.timeout_option(
            "stop_timeout", stop_timeout, f"{_VARIABLES}STOP_TIMEOUT", 2.0, least=0.0
        )
        self._is_attached = _options.attach_output(attach_output)
        self._has_audit = audit
        # Held during start and stop: both may be called from any thread.
        self._lifecycle = threading.RLock()
        self._folder: Path | None = None
        self._guard: ProcessGuard | None = None
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._ports: ReservedPorts | None = None
        self._programs = {"etcd": "", "kube-apiserver": ""}
        self._authority: Authority | None = None
        self._ca = b""

    # -- start and stop ----------------------------------------------------------------------

    def start(self) -> Self:
        """Start both servers and return once they are ready. Does nothing while they run.

        Raises:
            FileNotFoundError: a program is missing; the text names the variable to set.
            ControlPlaneError: a server ended, or was not ready within ``start_timeout`` seconds.
        """
        with self._lifecycle:
            if self._folder is not None:
                return self
            self._programs = {name: program_path(name, self._assets) for name in self._programs}
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._start()
                except _PortTakenError:
                    self.stop()
                    if attempt == _ATTEMPTS:
                        raise
                except BaseException:
                    self.stop()
                    raise
                else:
                    break
            return self

    def stop(self) -> None:
        """End both servers and remove their data. Does nothing when they do not run."""
        with self._lifecycle:
            # Both at once: the data of etcd is not needed any more.
            end_processes(self._stop_timeout, self._server, self._etcd)
            self._server = self._etcd = None
            if self._guard is not None:
                self._guard.end()
            self._guard = None
            if self._ports is not None:
                self._ports.close()
            self._ports = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """Kill kube-apiserver with SIGKILL, as the kernel does when memory runs out.

        etcd continues; :meth:`restart` starts kube-apiserver again with the stored objects.
        """
        with self._lifecycle:
            self._started()
            end_processes(0.0, self._server)
            self._server = None

    def restart(self) -> None:
        """Stop kube-apiserver if it runs, and start it again on the same port with the same data.

        Its watch cache is lost: watches at versions that etcd has compacted get 410 from then on.

        Raises:
            ControlPlaneError: it ended, or was not ready within ``start_timeout`` seconds.
        """
        with self._lifecycle:
            self._started()
            end_processes(self._stop_timeout, self._server)
            self._server = self._start_server(system_clock.monotonic() + self._start_timeout)

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _start(self) -> None:
        deadline = system_clock.monotonic() + self._start_timeout
        folder = self._folder = Path(tempfile.mkdtemp(prefix="appsdk-operator-"))
        self._ports = ReservedPorts(2)
        self._guard = ProcessGuard(folder)
        self._authority = Authority(system_clock.time())
        self._ca = self._authority.certificate
        write_keys(folder, _HOST, self._authority)
        (folder / "audit-policy.json").write_text(
            json.dumps(_options.AUDIT_POLICY), encoding="utf-8"
        )
        tokens = folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'"{self._token}",admin,admin,"system:masters"\n', encoding="utf-8")
        self._etcd = self._spawn("etcd", self._etcd_flags())
        self._server = self._start_server(deadline)

    def _start_server(self, deadline: float) -> subprocess.Popen[bytes]:
        """Start kube-apiserver and wait until it is ready. It waits for etcd itself."""
        server = self._server = self._spawn("kube-apiserver", self._server_flags())
        # /readyz answers a moment before the default namespaces exist.
        for path in ("/readyz", "/api/v1/namespaces/default"):
            left = self._start_timeout
            while (answer := self._get(path, min(_ANSWER, max(_POLL, left)))) != 200:
                self._check_alive()
                left = deadline - system_clock.monotonic()
                if left < 0:
                    raise ControlPlaneError(
                        f"kube-apiserver was not ready within {self._start_timeout:g} s (start_"
                        f"timeout); {path} answers {answer or 'nothing'}{self._tails()}"
                    )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(_POLL)
        return server

    def _check_alive(self) -> None:
        for name, process in (("etcd", self._etcd), ("kube-apiserver", self._server)):
            if process is None or process.poll() is None:
                continue
            text = f"{name} ended with status {process.returncode} while starting{self._tails()}"
            if _PORT_TAKEN in self.log_tail(name):
                raise _PortTakenError(text)
            raise ControlPlaneError(text)

    def _spawn(self, name: str, flags: Flags) -> subprocess.Popen[bytes]:
        assert self._guard is not None
        command = [self._programs[name], *_options.flag_texts(flags)]
        log = None if self._is_attached else self._dir / f"{name}.log"
        return self._guard.spawn(command, log)

    def _etcd_flags(self) -> Flags:
        client = self._etcd_url
        flags: dict[str, str] = {
            "data-dir": str(self._dir / "etcd"),
            "unsafe-no-fsync": "true",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            # There are no peers, but etcd requires an address for them.
            "listen-peer-urls": f"http://{_HOST}:0",
        }
        return {**flags, **self._more_etcd_flags}

    def _server_flags(self) -> Flags:
        folder = self._dir
        key = str(folder / "service-accounts.key")
        flags: dict[str, str | None] = {
            "etcd-servers": self._etcd_url,
            "bind-address": _HOST,
            # The default is the address of an interface; a machine without network has none.
            "advertise-address": _HOST,
            "endpoint-reconciler-type": "none",
            "secure-port": str(self._started().numbers[1]),
            "cert-dir": str(folder),
            "tls-cert-file": str(folder / "serving.crt"),
            "tls-private-key-file": str(folder / "serving.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
            "token-auth-file": str(folder / "tokens.csv"),
            "client-ca-file": str(folder / "ca.crt"),
            "authorization-mode": "RBAC",
            "allow-privileged": "true",
            # Required from 1.20 on.
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": key,
            "service-account-key-file": key,
            "api-audiences": "api",
            # Pods would need the default service account, which a controller would have to make.
            "disable-admission-plugins": "ServiceAccount",
        }
        if self._has_audit:
            flags["audit-policy-file"] = str(folder / "audit-policy.json")
            flags["audit-log-path"] = str(self.audit_log)
        return {**flags, **self._flags}

    # -- connections and credentials ---------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL of kube-apiserver, for example ``https://127.0.0.1:40123``.

        Raises:
            RuntimeError: it was not started.
        """
        return f"https://{_HOST}:{self._started().numbers[1]}"

    @property
    def token(self) -> str:
        """The bearer token of the administrator."""
        return self._token

    @property
    def ca_data(self) -> bytes:
        """The PEM certificate of the certificate authority; empty before the start."""
        return self._ca

    def client_config(
        self, username: str | None = None, *, groups: Sequence[str] = (), **options: Any
    ) -> ClientConfig:
        """The configuration of a client for this server.

        Args:
            username: the user, any name: a client certificate is issued for it; default: the
                administrator.
            groups: the groups of that user. RBAC objects give it permissions.
            options: other fields of :class:`~appsdk_operator.client.ClientConfig`; they override
                the server's: ``server="https://127.0.0.1:…"`` for a proxy in between.

        Raises:
            ValueError: a name is empty.
        """
        own: dict[str, Any] = {"server": self.url, "ca_data": self._ca}
        if username is None:
            own["token"] = self._token
        else:
            own["cert_data"], own["key_data"] = self._issue(username, groups)
        return ClientConfig(**{**own, **options})

    def kubeconfig(
        self, username: str | None = None, *, groups: Sequence[str] = ()
    ) -> dict[str, Any]:
        """A kubeconfig for this server; the user is chosen as in :meth:`client_config`."""
        if username is None:
            return kubeconfig(self.url, self._ca, name=_NAME, token=self._token)
        certificate = self._issue(username, groups)
        return kubeconfig(self.url, self._ca, username, name=_NAME, certificate=certificate)

    def write_kubeconfig(
        self,
        path: str | os.PathLike[str],
        username: str | None = None,
        *,
        groups: Sequence[str] = (),
    ) -> None:
        """Write :meth:`kubeconfig` to a file that only its owner can read."""
        write_kubeconfig(path, self.kubeconfig(username, groups=groups))

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 60.0) -> str:
        """Run ``kubectl`` as the administrator, and return its standard output.

        The program is found as the others are: by ``TEST_ASSET_KUBECTL``, or in the folder of
        ``KUBEBUILDER_ASSETS``.

        Args:
            arguments: the command line: ``"get", "pods", "-o", "name"``.
            stdin: its standard input, as for ``apply -f -``.
            timeout: seconds; default 60.

        Raises:
            FileNotFoundError: there is no kubectl.
            ControlPlaneError: it failed; the text has its standard error.
        """
        program = program_path("kubectl", self._assets)
        path = self._dir / "kubeconfig"
        self.write_kubeconfig(path)
        done = subprocess.run(  # noqa: S603 - the program that the user named
            [program, f"--kubeconfig={path}", *arguments],
            input=stdin.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise ControlPlaneError(f"kubectl {' '.join(arguments)} failed: {said}")
        return done.stdout.decode("utf-8", "replace")

    # -- requests ----------------------------------------------------------------------------

    @property
    def audit_log(self) -> Path:
        """The path of the audit log, one line per request; with ``audit=True`` only.

        Raises:
            RuntimeError: there is no audit log, or it was not started.
        """
        if not self._has_audit:
            raise RuntimeError("there is no audit log: make the ControlPlane with audit=True")
        return self._dir / "audit.log"

    @property
    def requests(self) -> list[LoggedRequest]:
        """The requests so far, oldest first, the server's own too; with ``audit=True`` only.

        The server logs a request when it has ended there, so the last ones may come a moment later.
        """
        from appsdk_operator.testing._control_plane.audit import AuditLog

        return AuditLog(self.audit_log).since()

    # -- faults ------------------------------------------------------------------------------

    def compact(self) -> None:
        """Compact the history of etcd: lists and watches at older versions get 410.

        That takes effect with the next :meth:`restart` of kube-apiserver: until then it serves
        watches, and since Kubernetes 1.34 lists too, from its watch cache.
        """
        present = self._etcd_call("range", {"key": base64.b64encode(b"/").decode()})
        revision = present["header"]["revision"]
        self._etcd_call("compaction", {"revision": revision, "physical": True})

    def log_tail(self, name: str = "kube-apiserver", lines: int = _TAIL_LINES) -> str:
        """The last lines of the log of ``etcd`` or ``kube-apiserver``; empty without a log."""
        if name not in self._programs:
            raise ValueError(f"{name!r} has no log: use 'etcd' or 'kube-apiserver'")
        path = self._dir / f"{name}.log"
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    # -- internals ---------------------------------------------------------------------------

    def _issue(self, user: str, groups: Sequence[str]) -> tuple[bytes, bytes]:
        if isinstance(groups, str):
            raise ValueError(f"groups={groups!r}: give a list of names")
        _options.check_names("username", user)
        _options.check_names("group", *groups)
        self._started()
        assert self._authority is not None
        return self._authority.client(user, groups)

    def _started(self) -> ReservedPorts:
        if self._ports is None:
            raise RuntimeError("the control plane was not started: call start(), or use 'with'")
        return self._ports

    @property
    def _dir(self) -> Path:
        self._started()
        assert self._folder is not None
        return self._folder

    @property
    def _etcd_url(self) -> str:
        return f"http://{_HOST}:{self._started().numbers[0]}"

    def _tails(self) -> str:
        tails = [(name, self.log_tail(name)) for name in self._programs]
        return "".join(f"\n--- the end of {name}'s log:\n{tail}" for name, tail in tails if tail)

    def _get(self, path: str, timeout: float) -> int:
        """The HTTP status of a GET request, 0 for no answer in time."""
        context = ssl.create_default_context(cadata=self._ca.decode())
        port = self._started().numbers[1]
        connection = http.client.HTTPSConnection(_HOST, port, timeout=timeout, context=context)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def _etcd_call(self, method: str, body: Mapping[str, Any]) -> Any:
        port = self._started().numbers[0]
        connection = http.client.HTTPConnection(_HOST, port, timeout=10.0)
        try:
            connection.request("POST", f"/v3/kv/{method}", json.dumps(body))
            response = connection.getresponse()
            text = response.read(1 << 20)
            # A revision that is compacted already is not a failure.
            if response.status != 200 and b"has been compacted" not in text:
                raise ControlPlaneError(f"etcd answers {method} with {response.status}: {text!r}")
            return json.loads(text)
        finally:
            connection.close()
