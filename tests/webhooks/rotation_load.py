"""Rotations of certificates under load, through a real API server: no admission may fail.

Three replicas run as processes behind one address. Objects are written at a steady rate; each write
passes a mutating and a validating webhook. Meanwhile certificates rotate again and again, and in
each rotation one replica is ended, at a random moment, as Kubernetes ends a pod: it gets SIGTERM,
and a moment later no new connections. Another one takes its place. Beside the real API server, a
client whose configuration is as old as it may be connects to all replicas all the time.

By hand: ``python -m tests.webhooks.rotation_load --rate 200 --rotations 20``, with
``KUBEBUILDER_ASSETS``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs

from appsdk_operator.client import Client, ClientError, MergePatch
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import StopSignal, system_clock
from appsdk_operator.testing import ControlPlane
from tests.webhooks import rotation_replica

NAMESPACE = "load"
ConfigMap = kinds.core.v1.ConfigMap
Secret = kinds.core.v1.Secret
Mutating = kinds.admissionregistration.v1.MutatingWebhookConfiguration
Validating = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
PATIENCE = 120.0


@attrs.define
class Figures:
    """What happened."""

    writes: int = 0
    failures: Counter[str] = attrs.field(factory=Counter)
    seconds: list[float] = attrs.field(factory=list)
    handshakes: int = 0
    refused_handshakes: Counter[str] = attrs.field(factory=Counter)
    rotations: int = 0
    ended: int = 0
    duration: float = 0.0

    def text(self) -> str:
        """The figures, one a line."""
        seconds = sorted(self.seconds) or [0.0]

        def quantile(share: float) -> str:
            return f"{1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))]:.0f} ms"

        rate = self.writes / max(self.duration, 1)
        times = f"p50 {quantile(0.5)}, p99 {quantile(0.99)}, longest {quantile(1.0)}"
        handshakes = f"{self.handshakes} handshakes of a client with old configurations"
        lines = [
            f"{self.rotations} rotations, {self.ended} replicas ended, {self.duration:.0f} s",
            f"{self.writes} writes, {rate:.0f}/s, {self.failures.total()} failed; {times}",
            f"{handshakes}, {self.refused_handshakes.total()} refused",
        ]
        for problems in (self.failures, self.refused_handshakes):
            lines += [f"{count} x {text}" for text, count in problems.most_common(5)]
        return "\n".join(lines)


class Replica:
    """A process with a replica."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        module = rotation_replica.__name__
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", module, str(kubeconfig), NAMESPACE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self.log = log
        self.port = 0
        self._reader = threading.Thread(target=self._read, name=f"replica-{self.process.pid}")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, port = line.partition(" ")
            if word == "ready":
                self.port = int(port)

    def rotate(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("rotate\n")
        self.process.stdin.flush()

    def wait(self) -> int:
        try:
            code = self.process.wait(40.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return code


class Balancer:
    """Forwards the connections of one address to the ports of replicas, as a Service does."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer")
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        future = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop
        )
        self._server = future.result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: Any, writer: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            ports = list(self.ports)
            self._next += 1
            port = ports[self._next % len(ports)]
            onward = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, onward[1]), _copy(onward[0], writer))
        except (OSError, IndexError, asyncio.CancelledError):
            writer.close()
        finally:
            self._tasks.discard(task)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _copy(reader: Any, writer: Any) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()
            await writer.wait_closed()


def configuration(kind: Any, url: str) -> MutableObject:
    path = "mutate" if kind is Mutating else "validate"
    return MutableObject.new(
        kind,
        "load",
        webhooks=[
            {
                "name": f"{path}.load.test",
                "clientConfig": {"url": f"{url}/{path}--v1-configmap"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 10,
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["configmaps"],
                        "scope": "Namespaced",
                    }
                ],
                "objectSelector": {"matchLabels": {"load": "yes"}},
            }
        ],
    )


def grant(client: Client, user: str) -> None:
    """Grant ``user`` what the certificates need, and nothing else."""
    source = rotation_replica.certificates(NAMESPACE)
    rbac = kinds.rbac.v1
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    for kind, binding, rules, where in (
        (rbac.Role, rbac.RoleBinding, source.role_rules(), NAMESPACE),
        (rbac.ClusterRole, rbac.ClusterRoleBinding, source.cluster_role_rules(), ""),
    ):
        client.create(MutableObject.new(kind, "certificates", namespace=where, rules=rules))
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind.kind,
            "name": "certificates",
        }
        client.create(
            MutableObject.new(
                binding, "certificates", namespace=where, roleRef=reference, subjects=[subject]
            )
        )
    source.close()


class Load:
    """Writes at a steady rate, in some threads."""

    def __init__(self, plane: ControlPlane, rate: float, figures: Figures) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._stop = StopSignal()
        # Many, because each waits for its answers.
        count = max(2, round(rate / 8))
        self._clients = [Client(plane.client_config()) for _ in range(count)]
        for number, client in enumerate(self._clients):
            client.create(
                MutableObject.new(
                    ConfigMap,
                    f"c{number}",
                    metadata={"namespace": NAMESPACE, "labels": {"load": "yes"}},
                )
            )
        self._threads = [
            threading.Thread(target=self._write, args=(number, client, count / rate))
            for number, client in enumerate(self._clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()

    def _write(self, number: int, client: Client, interval: float) -> None:
        due = system_clock.monotonic() + interval * random.random()
        count = 0
        while not self._stop.wait(max(0.0, due - system_clock.monotonic())):
            count += 1
            due += interval
            start = system_clock.monotonic()
            failure = ""
            try:
                patch = MergePatch({"data": {"count": str(count), "seen": "no"}})
                answer = client.patch(ConfigMap, f"c{number}", patch, namespace=NAMESPACE)
                if answer.to_dict()["data"]["seen"] != "yes":
                    failure = "the webhook did not see it"
            except ClientError as error:
                failure = str(error)
            with self._lock:
                self._figures.writes += 1
                self._figures.seconds.append(system_clock.monotonic() - start)
                if failure:
                    self._figures.failures[failure] += 1


class OldClient:
    """Connects to all replicas as an API server would whose configuration is a bit old."""

    def __init__(self, client: Client, ports: Callable[[], list[int]], figures: Figures) -> None:
        self._client = client
        self._ports = ports
        self._figures = figures
        self._stop = StopSignal()
        self._bundles: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._run, name="old-client")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            now = system_clock.monotonic()
            webhook = self._client.get(Validating, "load").to_dict()["webhooks"][0]
            bundle = base64.b64decode(webhook["clientConfig"].get("caBundle") or "").decode()
            self._bundles.append((now, bundle))
            # The oldest of those that it may still have, with time to connect.
            limit = now - 0.9 * rotation_replica.PROPAGATION
            while len(self._bundles) > 1 and self._bundles[0][0] <= limit:
                self._bundles.pop(0)
            read, bundle = self._bundles[0]
            context = ssl.create_default_context(cadata=bundle)
            for port in self._ports():
                self._connect(context, port, read + rotation_replica.PROPAGATION)

    def _connect(self, context: ssl.SSLContext, port: int, until: float) -> None:
        """Connect; a refusal after ``until`` is none: what it knows is too old by then."""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), 10.0) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1"),
            ):
                self._figures.handshakes += 1
        except ssl.SSLError as error:
            if system_clock.monotonic() <= until:
                self._figures.refused_handshakes[str(error)] += 1
        except OSError:
            pass  # it is being ended


def run(
    *,
    rate: float,
    rotations: int,
    seed: int = 1,
    report: Callable[[str], object],
    is_killed: bool = False,
) -> Figures:
    """Run the whole, and return what happened.

    Args:
        rate: writes a second.
        rotations: how many.
        seed: of what is random.
        report: gets a line after each rotation.
        is_killed: whether replicas are ended with SIGKILL. Then requests fail that one of them was
            answering, and those that it gets before it is known to be gone.
    """
    figures, rng = Figures(), random.Random(seed)
    with contextlib.ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        plane = exits.enter_context(ControlPlane())
        client = exits.enter_context(Client(plane.client_config()))
        client.create(MutableObject.new(kinds.core.v1.Namespace, NAMESPACE))
        grant(client, "operator")
        plane.write_kubeconfig(folder / "kubeconfig", "operator")
        balancer = Balancer()
        exits.callback(balancer.close)
        for kind in (Mutating, Validating):
            client.create(configuration(kind, f"https://127.0.0.1:{balancer.port}"))
        replicas: list[Replica] = []

        def start() -> None:
            replicas.append(Replica(folder / "kubeconfig", folder / "log"))

        def end_all() -> None:
            for replica in replicas:
                replica.process.terminate()
            for replica in replicas:
                replica.wait()

        exits.callback(end_all)

        def route() -> bool:
            balancer.ports[:] = [r.port for r in replicas if r.port]
            for replica in replicas:
                code = replica.process.poll()
                assert code is None, (
                    f"a replica ended with {code}: {replica.log.read_text()[-3000:]}"
                )
            return len(balancer.ports) == 3

        for _ in range(3):
            start()
        wait_for(route)
        # The API server reads the configurations that have just been injected.
        StopSignal().wait(rotation_replica.PROPAGATION)
        begun = system_clock.monotonic()
        old = OldClient(client, lambda: list(balancer.ports), figures)
        with Load(plane, rate, figures), old:
            for number in range(rotations):
                before = certificate_of(client)
                rng.choice(replicas).rotate()
                StopSignal().wait(rng.uniform(0.0, 2.5 * rotation_replica.PROPAGATION))
                victim = replicas.pop(rng.randrange(3))
                start()
                if is_killed:
                    route()
                    victim.process.kill()
                else:
                    victim.process.terminate()
                    # The nodes hear a moment later that the pod takes no new connections any more.
                    StopSignal().wait(0.3)
                    route()
                code = victim.wait()
                wanted = -signal.SIGKILL if is_killed else 0
                assert code == wanted, f"it ended with {code}: {victim.log.read_text()[-3000:]}"
                figures.ended += 1
                if certificate_of(client) == before and rng.random() < 0.5:
                    replicas[0].rotate()  # the one that was to do it may be gone
                wait_for(partial(rotated, client, before, replicas))
                wait_for(route)
                figures.rotations += 1
                report(
                    f"rotation {number + 1}: {figures.writes} writes, "
                    f"{figures.failures.total()} failed"
                )
        figures.duration = system_clock.monotonic() - begun
    return figures


def rotated(client: Client, before: bytes, replicas: list[Replica]) -> bool:
    """Whether there is a new certificate, and all replicas serve it."""
    certificate = certificate_of(client)
    if certificate == before:
        for replica in replicas:
            if replica.port:
                replica.rotate()  # harmless while one is under way
                break
        StopSignal().wait(0.2)
        return False
    return all(r.port and served_certificate(r.port) == certificate for r in replicas)


def certificate_of(client: Client) -> bytes:
    data = client.get(Secret, "hooks-tls", namespace=NAMESPACE).to_dict()["data"]
    return ssl.PEM_cert_to_DER_cert(base64.b64decode(data["tls.crt"]).decode())


def served_certificate(port: int) -> bytes | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10.0) as raw,
            context.wrap_socket(raw) as secure,
        ):
            return secure.getpeercert(binary_form=True)
    except OSError:
        return None


def wait_for(check: Callable[[], object]) -> None:
    pause, end = StopSignal(), system_clock.monotonic() + PATIENCE
    while not check():
        assert system_clock.monotonic() < end, "it takes too long"
        pause.wait(0.05)


def main() -> None:
    """Run it as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=200.0, help="writes a second")
    parser.add_argument("--rotations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="end replicas with SIGKILL")
    options = parser.parse_args()
    figures = run(
        rate=options.rate,
        rotations=options.rotations,
        seed=options.seed,
        is_killed=options.kill,
        report=lambda line: sys.stdout.write(f"{line}\n") and sys.stdout.flush(),
    )
    sys.stdout.write(f"{figures.text()}\n")
    sys.exit(bool(figures.failures or figures.refused_handshakes))


if __name__ == "__main__":
    main()
