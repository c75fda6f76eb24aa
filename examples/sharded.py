"""Three replicas of an operator that work at the same time, each on its share of the objects.

Run ``python examples/sharded.py``: it starts an API server in the process and two replicas, each a
process of its own, that divide twelve ConfigMaps between them. A third replica comes, one of them
is killed, and each time the shares are fair again a moment later. In the end the history of all
objects is looked through: no replica wrote to an object after the next one had begun to. With
``--kubeconfig FILE`` it does the same on that cluster. ``--replica NAME`` is one replica.
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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from appsdk_operator import (
    Client,
    ClientConfig,
    MergePatch,
    MutableObject,
    NotFound,
    StopSignal,
    kinds,
)
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.client import ClientError
from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    KindSource,
    Request,
    Result,
    for_object,
)
from appsdk_operator.manager import (
    SHARDS_LABEL,
    CacheSetup,
    LeaderElection,
    Manager,
    Shards,
    elector_config,
)
from appsdk_operator.resource import decode_watch_event
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer

CONFIG_MAP = kinds.core.v1.ConfigMap
LEASE = kinds.coordination.v1.Lease
NAMESPACE = "default"
NAME = "sharded-example"
LABEL = {"app": NAME}
SHARDS = 8
OBJECTS = 12
PATIENCE = 60.0


# -- a replica -----------------------------------------------------------------------------------


@contextlib.contextmanager
def operator(
    config: ClientConfig, name: str, *, namespace: str, lease_duration: float
) -> Iterator[Manager]:
    """One replica: signs the objects of its shards, again and again."""
    times = LeaderElection(
        id=NAME,
        namespace=namespace,
        identity=name,
        lease_duration=lease_duration,
        renew_deadline=lease_duration * 0.7,
        retry_period=lease_duration * 0.2,
    )
    with Client(elector_config(config, times)) as leases:
        shards = Shards(leases, times, SHARDS)
        cache = CacheSetup(namespaces=[namespace], label_selector=LABEL)
        with Manager(config, cache=cache) as manager:
            client = shards.client(manager.live_client)
            numbers = itertools.count(1)

            def sign(request: Request) -> Result:
                number = str(next(numbers))
                data = {"owner": name, "term": str(shards.term()), "number": number}
                client.patch(
                    CONFIG_MAP, request.name, MergePatch({"data": data}), namespace=namespace
                )
                return Result(requeue_after=0.1)

            def is_new(event: Event) -> bool:
                return event.action is ResourceAction.CREATE  # and none of our own signatures

            controller = Controller(
                "signatures",
                shards.reconciler(sign),
                options=ControllerOptions(needs_leader_election=False),
            )
            controller.watch(
                KindSource(manager.cache, CONFIG_MAP, for_object(), [shards.predicate, is_new])
            )
            controller.watch(
                shards.source(lambda: (obj.key for obj in manager.cache.list(CONFIG_MAP)))
            )
            manager.add(shards)
            manager.add(controller)
            yield manager


def replica(options: argparse.Namespace) -> int:
    """The program of a replica."""
    config = ClientConfig.from_kubeconfig(options.kubeconfig)
    with operator(
        config,
        options.replica,
        namespace=options.namespace,
        lease_duration=options.lease_duration,
    ) as manager:
        print("takes part", flush=True)
        manager.run(handle_signals=True)
    return 0


# -- those who look on ---------------------------------------------------------------------------


class Replica:
    """A replica in a process of its own."""

    def __init__(
        self, name: str, kubeconfig: str, *, lease_duration: float, namespace: str = NAMESPACE
    ) -> None:
        self.name = name
        command = [sys.executable, __file__, "--replica", name, "--kubeconfig", kubeconfig]
        command += ["--lease-duration", str(lease_duration), "--namespace", namespace]
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


class Signature(NamedTuple):
    """A write to an object."""

    owner: str
    term: int


class History:
    """All writes to the objects, as the server has put them in order."""

    def __init__(self, client: Client, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace
        self._stop = StopSignal()
        self._changed = threading.Condition()
        self.writes: dict[str, list[Signature]] = {}
        self._version = client.list_page(CONFIG_MAP, namespace=namespace).resource_version
        for number in range(OBJECTS):
            draft = MutableObject.new(CONFIG_MAP, f"object-{number}", namespace=namespace, data={})
            draft.labels.update(LABEL)
            client.create(draft)
        self._thread = threading.Thread(target=self._follow, name="history")
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            with (
                contextlib.suppress(ClientError),
                self._client.watch(
                    CONFIG_MAP,
                    namespace=self._namespace,
                    label_selector=LABEL,
                    resource_version=self._version,
                    stop=self._stop,
                ) as stream,
            ):
                for line in itertools.chain.from_iterable(stream):
                    event = decode_watch_event(CONFIG_MAP, line)
                    if event.object is not None:
                        self._version = event.object.resource_version
                        data = event.object.get("data") or {}
                        if data.get("owner"):
                            signature = Signature(data["owner"], int(data["term"]))
                            self._add(event.object.name, signature)

    def _add(self, name: str, signature: Signature) -> None:
        with self._changed:
            self.writes.setdefault(name, []).append(signature)
            self._changed.notify_all()

    def shares(self) -> Counter[str]:
        """How many shards each replica holds, as the Leases say."""
        leases = self._client.list(
            LEASE, namespace=self._namespace, label_selector={SHARDS_LABEL: NAME}
        )
        return Counter(
            str(lease.spec["holderIdentity"])
            for lease in leases
            if "-shard-" in lease.name and lease.spec.get("holderIdentity")
        )

    def owners(self) -> set[str]:
        """Who signed last."""
        with self._changed:
            return {writes[-1].owner for writes in self.writes.values()}

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""
        deadline = system_clock.monotonic() + PATIENCE
        while not condition():
            if self._stop.wait(0.05) or system_clock.monotonic() > deadline:
                raise TimeoutError(f"it stays at {self.shares()}, {self.owners()}")

    def wait_for_shares(self, names: set[str], shares: list[int]) -> None:
        """Wait until these replicas have these shares, and have signed all objects."""
        with self._changed:
            seen = {name: len(writes) for name, writes in self.writes.items()}
        self.wait_for(
            lambda: (
                sorted(self.shares().values()) == shares
                and set(self.shares()) == names
                and len(self.writes) == OBJECTS
                and all(len(writes) > seen.get(n, 0) + 3 for n, writes in self.writes.items())
                and self.owners() <= names
            )
        )

    def overlaps(self) -> list[str]:
        """Objects to which somebody wrote in a term that was over."""
        with self._changed:
            return [
                name
                for name, writes in self.writes.items()
                if [w.term for w in writes] != sorted(w.term for w in writes)
                or any(
                    len({w.owner for w in writes if w.term == term}) > 1
                    for term in {w.term for w in writes}
                )
            ]

    def close(self) -> None:
        """Stop looking, and delete the objects and the Leases."""
        self._stop.set()
        self._thread.join()
        self._client.delete_collection(CONFIG_MAP, namespace=self._namespace, label_selector=LABEL)
        for lease in self._client.list(
            LEASE, namespace=self._namespace, label_selector={SHARDS_LABEL: NAME}
        ):
            with contextlib.suppress(NotFound):
                self._client.delete(LEASE, lease.name, namespace=self._namespace)


def demo(client: Client, kubeconfig: str, lease_duration: float) -> bool:
    """What happens; whether it ended well."""
    with contextlib.ExitStack() as exits:
        history = History(client)
        exits.callback(history.close)
        replicas: dict[str, Replica] = {}

        def add(name: str) -> None:
            replicas[name] = Replica(name, kubeconfig, lease_duration=lease_duration)
            exits.callback(replicas[name].close)

        def settle(what: str, *shares: int) -> None:
            history.wait_for_shares(set(replicas), sorted(shares))
            text = ", ".join(map(str, sorted(shares, reverse=True)))
            print(f"{what}: the shares are {text}", flush=True)

        add("red")
        add("green")
        settle("red and green", 4, 4)
        add("blue")
        settle("blue comes", 3, 3, 2)
        replicas.pop("red").signal(signal.SIGKILL)
        settle("red is killed", 4, 4)
        leaver = replicas.pop("green")
        leaver.signal(signal.SIGTERM)
        status, _ = leaver.ends()
        settle(f"green is asked to stop, and ends with status {status}", 8)
        wrong = history.overlaps()
        print(
            f"{len(history.writes)} objects: "
            + (f"{', '.join(wrong)} written too late" if wrong else "nobody wrote too late")
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
    parser.add_argument("--namespace", default=NAMESPACE, help="of a replica's objects")
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
