"""Three replicas of an operator of which one works, and what happens when that one dies or sleeps.

Run ``python examples/leader_election.py``: it starts an API server in the process and three
replicas, each a process of its own. The leader writes its name into a ConfigMap, again and again.
It is killed, the next one is put to sleep beyond its lease and woken up, and in the end the
ConfigMap's history is looked through: nobody wrote after another had begun to. With ``--kubeconfig
FILE`` it does the same on that cluster. ``--replica NAME`` is one replica.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator import (
    Client,
    ClientConfig,
    MergePatch,
    MutableObject,
    NotFound,
    StopSignal,
    kinds,
)
from appsdk_operator.client import ClientError
from appsdk_operator.manager import LeaderElection, LeadershipLost, Manager
from appsdk_operator.resource import decode_watch_event
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer

CONFIG_MAP = kinds.core.v1.ConfigMap
LEASE = kinds.coordination.v1.Lease
NAMESPACE = "default"
LEDGER = "ledger"
LOCK = "leader-election-example"
PATIENCE = 60.0


# -- a replica -----------------------------------------------------------------------------------


@contextlib.contextmanager
def operator(
    config: ClientConfig, name: str, *, namespace: str, lease_duration: float
) -> Iterator[Manager]:
    """One replica: writes its name into the ledger while it leads."""
    election = LeaderElection(
        id=LOCK,
        namespace=namespace,
        identity=name,
        lease_duration=lease_duration,
        renew_deadline=lease_duration * 0.7,
        retry_period=lease_duration * 0.2,
        release_on_cancel=True,
    )
    with Manager(config, leader_election=election) as manager:

        def work(stop: StopSignal) -> None:
            number = 0
            while not stop.wait(0.02):
                number += 1
                data = {"writer": name, "number": str(number)}
                try:
                    manager.client.patch(
                        CONFIG_MAP, LEDGER, MergePatch({"data": data}), namespace=namespace
                    )
                except LeadershipLost as error:
                    print(f"refused: {error}", flush=True)
                    return
                except ClientError as error:
                    print(f"failed: {error}", flush=True)

        manager.add(work)  # on the leader only, as everything that does not say otherwise
        yield manager


def replica(options: argparse.Namespace) -> int:
    """The program of a replica."""
    config = ClientConfig.from_kubeconfig(options.kubeconfig)
    if options.server:
        config = attrs.evolve(config, server=options.server)
    with operator(
        config,
        options.replica,
        namespace=options.namespace,
        lease_duration=options.lease_duration,
    ) as manager:
        print("takes part", flush=True)
        try:
            manager.run(handle_signals=True)
        except LeadershipLost as error:
            print(f"lost: {error}", flush=True)
            return 1
    return 0


# -- those who look on ---------------------------------------------------------------------------


class Replica:
    """A replica in a process of its own."""

    def __init__(
        self,
        name: str,
        kubeconfig: str,
        *,
        lease_duration: float,
        namespace: str = NAMESPACE,
        server: str = "",
    ) -> None:
        self.name = name
        command = [sys.executable, __file__, "--replica", name, "--kubeconfig", kubeconfig]
        command += ["--lease-duration", str(lease_duration), "--namespace", namespace]
        command += ["--server", server]
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def signal(self, number: signal.Signals) -> None:
        """Kill it, put it to sleep, wake it up."""
        self.process.send_signal(number)

    def ends(self) -> tuple[int, str]:
        """Wait for its end: its exit status, and what it said."""
        said, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said

    def close(self) -> None:
        """End it, however it is."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


class Ledger:
    """The history of the ConfigMap: every write to it, as the server has put them in order."""

    def __init__(self, client: Client, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace
        self._stop = StopSignal()
        self._changed = threading.Condition()
        self.writes: list[tuple[float, str]] = []
        """When we heard of it, and who wrote."""
        draft = MutableObject.new(CONFIG_MAP, LEDGER, namespace=namespace, data={})
        self._version = client.create(draft).resource_version
        self._thread = threading.Thread(target=self._follow, name="ledger")
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            with (
                contextlib.suppress(ClientError),
                self._client.watch(
                    CONFIG_MAP,
                    namespace=self._namespace,
                    field_selector=f"metadata.name={LEDGER}",
                    resource_version=self._version,
                    stop=self._stop,
                ) as stream,
            ):
                for line in itertools.chain.from_iterable(stream):
                    event = decode_watch_event(CONFIG_MAP, line)
                    if event.object is not None:
                        self._version = event.object.resource_version
                        self._add(event.object.get("data") or {})

    def _add(self, data: Any) -> None:
        with self._changed:
            if data.get("writer"):
                self.writes.append((system_clock.monotonic(), data["writer"]))
                self._changed.notify_all()

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        """Wait until somebody has written last of whom this is so; returns the name."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: bool(self.writes) and condition(self.writes[-1][1]), PATIENCE
            )
            if not found:
                raise TimeoutError(f"nobody wrote for {PATIENCE:.0f} s")
            return self.writes[-1][1]

    def wait_for_more(self, count: int) -> None:
        """Wait until so many writes have been added."""
        with self._changed:
            wanted = len(self.writes) + count
            if not self._changed.wait_for(lambda: len(self.writes) >= wanted, PATIENCE):
                raise TimeoutError(f"nobody wrote for {PATIENCE:.0f} s")

    def began(self, name: str) -> float:
        """When a writer's first write came."""
        return next(when for when, who in self.writes if who == name)

    def terms(self) -> list[str]:
        """Who wrote, one after the other."""
        names = [who for _, who in self.writes]
        return [who for n, who in enumerate(names) if n == 0 or names[n - 1] != who]

    def overlaps(self) -> list[str]:
        """Who wrote again after somebody else had begun to."""
        terms = self.terms()
        return sorted({who for who in terms if terms.count(who) > 1})

    def close(self) -> None:
        """Stop looking, and delete it and the Lease."""
        self._stop.set()
        self._thread.join()
        for kind, name in ((CONFIG_MAP, LEDGER), (LEASE, LOCK)):
            with contextlib.suppress(NotFound):
                self._client.delete(kind, name, namespace=self._namespace)


def demo(client: Client, kubeconfig: str, lease_duration: float) -> bool:
    """What happens; whether it ended well."""
    with contextlib.ExitStack() as exits:
        ledger = Ledger(client)
        exits.callback(ledger.close)
        replicas = {}
        for name in ("red", "green", "blue"):
            replicas[name] = Replica(name, kubeconfig, lease_duration=lease_duration)
            exits.callback(replicas[name].close)

        def disturb(name: str, number: signal.Signals, what: str) -> str:
            ledger.wait_for_more(20)
            since = system_clock.monotonic()
            replicas[name].signal(number)
            other = ledger.wait_for(lambda who: who != name)
            took = ledger.began(other) - since
            print(f"{name} is {what}: {other} took over after {took:.1f} s", flush=True)
            return other

        first = ledger.wait_for(bool)
        print(f"{first} leads", flush=True)
        second = disturb(first, signal.SIGKILL, "killed")
        third = disturb(second, signal.SIGSTOP, "put to sleep")
        replicas[second].signal(signal.SIGCONT)
        status, _ = replicas[second].ends()
        print(f"{second} wakes up, sees that it has lost the lead, and ends with status {status}")
        ledger.wait_for_more(20)
        replicas[third].signal(signal.SIGTERM)
        status, _ = replicas[third].ends()
        print(f"{third} is asked to stop, and ends with status {status}")
        lease = client.get(LEASE, LOCK, namespace=NAMESPACE)
        if not lease.spec.get("holderIdentity"):
            print("nobody holds the Lease any more")
        wrong = ledger.overlaps()
        print(
            f"{len(ledger.writes)} writes, in turn by {', '.join(ledger.terms())}: "
            + (f"{', '.join(wrong)} wrote too late" if wrong else "nobody wrote too late")
        )
        return not wrong


@contextlib.contextmanager
def cluster(kubeconfig: str | None) -> Iterator[str]:
    """The kubeconfig that was given, or that of an API server in this process."""
    if kubeconfig:
        yield kubeconfig
        return
    with tempfile.TemporaryDirectory() as folder, APIServer() as server:
        path = Path(folder) / "kubeconfig"
        server.write_kubeconfig(path)
        yield str(path)


def main(arguments: list[str] | None = None) -> int:
    """Tell the demo, or be a replica."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", help="run on this cluster; default: in the process")
    parser.add_argument("--lease-duration", type=float, default=2.0, help="seconds; default 2")
    parser.add_argument("--replica", metavar="NAME", help="be one replica of this name")
    parser.add_argument("--namespace", default=NAMESPACE, help="of a replica's ledger and Lease")
    parser.add_argument("--server", default="", help="reach the cluster at this address")
    options = parser.parse_args(arguments)
    if options.replica:
        return replica(options)
    with (
        cluster(options.kubeconfig) as kubeconfig,
        Client(ClientConfig.from_kubeconfig(kubeconfig)) as client,
    ):
        return 0 if demo(client, kubeconfig, options.lease_duration) else 1


if __name__ == "__main__":
    sys.exit(main())
