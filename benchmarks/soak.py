"""Let an operator run under load and faults, then check that nothing was lost and memory is flat.

    python benchmarks/soak.py --minutes 2 --objects 5000

An embedded API server, an operator with several watchers (one fails at random, one has finalizers),
writers, and somebody who breaks connections, answers and history. At the end the faults stop, and
what each watcher saw last must be what the server has. Everything is on loopback and in this
process, so the memory counted is the server's, too.

The exit status is 0 when all promises were kept, 1 when not. One line sums up either.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client, ClientConfig, ClientError, MergePatch, NotFound
from appsdk_operator.manager import Operator
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, FaultProxy
from appsdk_operator.watchers import ExponentialBackoff, InformerController, OpinionatedWatcher

WIDGET: Final = Kind(group="soak.example.com", version="v1", kind="Widget")
GADGET: Final = Kind(group="soak.example.com", version="v1", kind="Gadget")
NAMESPACE: Final = "default"
GADGET_SHARE: Final = 0.2
WRITERS: Final = 2
PAUSE: Final = 0.01  # between the writes of one writer: the machine is to be busy, not drowned
FAILURES: Final = 0.2
SILENCE: Final = 1.0
CONVERGENCE_TIMEOUT: Final = 120.0
WARM_UP_SHARE: Final = 0.3
# What the allocator keeps differs by some pages from run to run; a leak grows with every write.
GROWTH_ALLOWED: Final = (1.10, 8.0)  # a factor, and MB


def definition(kind: Kind) -> dict[str, Any]:
    """The CRD of a kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.qualified_name},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


class Witness:
    """Callbacks that remember what they saw last, and notice what must never be."""

    def __init__(self, name: str, rng: random.Random | None = None) -> None:
        self.name = name
        self.calls = 0
        self.broken: list[str] = []
        self._rng = rng
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, int]] = {}  # uid to name and version
        self._running: set[str] = set()

    def add(self, obj: Object) -> None:
        self._take(obj)

    sync = add

    def update(self, _: Object, new: Object) -> None:
        self._take(new)

    def delete(self, obj: Object) -> None:
        self._take(obj, is_gone=True)

    def _take(self, obj: Object, *, is_gone: bool = False) -> None:
        version = int(obj.resource_version)
        with self._lock:
            self.calls += 1
            if obj.name in self._running:
                self.broken.append(f"{self.name}: two calls at once for {obj.name}")
            self._running.add(obj.name)
            if version < self._seen.get(obj.uid, ("", 0))[1]:
                self.broken.append(f"{self.name}: {obj.name} went back to version {version}")
            has_failed = self._rng is not None and self._rng.random() < FAILURES
        with self._lock:
            self._running.discard(obj.name)
            if has_failed:
                raise RuntimeError("at random")
            if is_gone:
                self._seen.pop(obj.uid, None)
            else:
                self._seen[obj.uid] = (obj.name, version)

    def versions(self) -> dict[str, int]:
        """Versions by uid."""
        with self._lock:
            return {uid: version for uid, (_, version) in self._seen.items()}


class Impatient:
    """A client whose watches take silence for death soon."""

    def __init__(self, client: Client) -> None:
        self.list_page = client.list_page
        self._client = client

    def watch(self, kind: Kind, **options: Any) -> Any:
        return self._client.watch(kind, **{**options, "silence_limit": SILENCE})


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.server = APIServer(
            crds=[definition(WIDGET), definition(GADGET)],
            history=500,  # full long before the first look at the memory
            bookmark_interval=SILENCE / 3,
            request_log=100,
        )
        self.steady = Witness("steady")
        self.failing = Witness("failing", random.Random(options.seed + 1))
        self.gadgets = Witness("opinionated", random.Random(options.seed + 2))
        self.names = [(WIDGET, f"w-{n}") for n in range(options.objects)]
        count = int(options.objects * GADGET_SHARE)
        self.names[:count] = [(GADGET, f"g-{n}") for n in range(count)]
        self.writes = self.faults = 0
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()

    def run(self) -> list[str]:
        """Returns what is wrong; nothing when all is well."""
        with self.server, FaultProxy(self.server.url) as proxy:
            writer = Client(ClientConfig(server=self.server.url), metrics=Metrics())
            config = ClientConfig(server=proxy.url, read_timeout=2.0, connect_timeout=2.0)
            client = Client(config, metrics=Metrics())
            with writer, client:
                for kind, name in self.names:
                    writer.create(draft(kind, name, 0))
                stop = StopSignal()
                operator = self._thread("operator", lambda: self._operate(client, stop))
                try:
                    return self._load(writer, proxy)
                finally:
                    stop.set()
                    operator.join()

    def _operate(self, client: Client, stop: StopSignal) -> None:
        operator = Operator()
        opinionated = OpinionatedWatcher(
            GADGET,
            client,
            add=self.gadgets.add,
            update=self.gadgets.update,
            delete=self.gadgets.delete,
            sync=self.gadgets.sync,
        )
        watchers = {WIDGET: (self.steady, self.failing), GADGET: (opinionated,)}
        for kind, own in watchers.items():
            controller = InformerController(
                name=kind.plural,
                workers=2,
                retry_policy=ExponentialBackoff(initial=0.05, maximum=1.0, max_attempts=10**9),
                error_handler=ignore,
                metrics=Metrics(),
            )
            informer = Informer(
                kind,
                Impatient(client),
                on_error=ignore,
                metrics=Metrics(),
            )
            controller.add_informer(informer, kind)
            for watcher in own:
                controller.add_watcher(watcher, kind)
            operator.add_controller(controller)
        operator.run(stop)

    def _load(self, client: Client, proxy: FaultProxy) -> list[str]:
        seconds = self.options.minutes * 60
        started = time.monotonic()
        if not self._converged(client):
            return [f"no first sync within {CONVERGENCE_TIMEOUT:g} s", *self._problems(client)]
        synced_in = time.monotonic() - started
        stop = StopSignal()
        threads = [
            self._thread(f"writer-{n}", lambda n=n: self._write(client, stop, n))
            for n in range(WRITERS)
        ]
        if self.options.faults:
            threads.append(self._thread("faults", lambda: self._break(proxy, stop)))
        try:
            stop.wait(seconds * WARM_UP_SHARE)
            before = resident()
            stop.wait(seconds * (1 - WARM_UP_SHARE))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            proxy.clear()
            self.server.clear_faults()
        began = time.monotonic()
        converged = self._converged(client)
        took = time.monotonic() - began
        after = resident()
        problems = self._problems(client)
        factor, margin = GROWTH_ALLOWED
        if after > before * factor and after > before + margin:
            problems.append(f"memory grew from {before:.1f} to {after:.1f} MB")
        if not converged:
            problems.insert(0, f"no convergence within {CONVERGENCE_TIMEOUT:g} s")
        calls = sum(w.calls for w in (self.steady, self.failing, self.gadgets))
        print(
            f"soak: {'FAILED' if problems or self.errors else 'ok'}: {seconds:g} s, "
            f"{self.options.objects} objects, seed {self.options.seed}, first sync "
            f"{synced_in:.1f} s, {self.writes} writes, {self.faults} faults, {calls} calls, "
            f"converged in {took:.1f} s, RSS {before:.1f} -> {after:.1f} MB "
            f"({100 * (after / before - 1):+.1f} %)",
            flush=True,
        )
        return problems + [f"a thread failed: {error!r}" for error in self.errors]

    # What happens to it.

    def _write(self, client: Client, stop: StopSignal, number: int) -> None:
        rng = random.Random(self.options.seed + 10 + number)
        while not stop.wait(PAUSE):
            kind, name = rng.choice(self.names)
            try:
                if rng.random() < 0.1:
                    client.delete(kind, name, namespace=NAMESPACE)
                    continue
                size = rng.randrange(10**9)
                patch = MergePatch({"spec": {"size": size}})
                try:
                    client.patch(kind, name, patch, namespace=NAMESPACE)
                except NotFound:
                    client.create(draft(kind, name, size))
            except ClientError:  # a fault hit the writer, or the object is just going
                continue
            with self._lock:
                self.writes += 1

    def _break(self, proxy: FaultProxy, stop: StopSignal) -> None:
        server, rng = self.server, self.rng

        def fail(status: int) -> None:
            verb = rng.choice(["watch", "list", "patch", "get", None])
            wait = 1 if status == 429 else None
            server.fail(verb=verb, status=status, times=rng.randint(1, 5), retry_after=wait)

        def expire() -> None:
            server.compact()
            proxy.cut()

        def stall() -> None:
            proxy.stall()
            stop.wait(rng.uniform(0.5, 3 * SILENCE))
            proxy.stall(False)

        def lose_answers() -> None:
            server.fail(verb="patch", kind=GADGET, after_write=True, times=rng.randint(1, 5))

        def slow() -> None:
            proxy.throttle(100_000)
            proxy.delay(0.05)
            stop.wait(rng.uniform(0.5, 2.0))
            proxy.throttle(None)
            proxy.delay(0)

        faults: Sequence[Callable[[], object]] = [
            proxy.cut,
            stall,
            expire,
            slow,
            lose_answers,
            lambda: proxy.cut_after(rng.randrange(5000), times=rng.randint(1, 3)),
            *(lambda status=status: fail(status) for status in (410, 429, 500, 503, 504)),
        ]
        while not stop.wait(rng.uniform(0.3, 2.0)):
            rng.choice(faults)()
            self.faults += 1

    # What must be in the end.

    def _converged(self, client: Client) -> bool:
        deadline = time.monotonic() + CONVERGENCE_TIMEOUT
        pause = StopSignal()
        while self._differences(client):
            if time.monotonic() > deadline or self.errors:
                return False
            pause.wait(0.2)
        return True

    def _differences(self, client: Client) -> list[str]:
        widgets = {o.uid: int(o.resource_version) for o in client.list(WIDGET)}
        differences = []
        for witness in (self.steady, self.failing):
            unlike = len(widgets.items() ^ witness.versions().items())
            if unlike:
                differences.append(f"{witness.name} differs from the server in {unlike} states")
        gadgets = list(client.list(GADGET))
        # Its own finalizers are the last change of most, which it is not shown.
        unlike = len({o.uid for o in gadgets} ^ self.gadgets.versions().keys())
        if unlike:
            differences.append(f"{self.gadgets.name} differs from the server in {unlike} objects")
        unfinished = sum(o.is_deleting or len(o.finalizers) != 1 for o in gadgets)
        if unfinished:
            differences.append(f"{unfinished} gadgets were left half-way")
        return differences

    def _problems(self, client: Client) -> list[str]:
        broken = [text for w in (self.steady, self.failing, self.gadgets) for text in w.broken]
        return [*self._differences(client), *broken[:5]]

    def _thread(self, name: str, target: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                target()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread


def ignore(*_: object) -> None:
    """Errors are what this is about."""


def draft(kind: Kind, name: str, size: int) -> MutableObject:
    """A new object of some two kilobytes."""
    spec = {"size": size, "text": "x" * 1500}
    return MutableObject.new(kind, name, namespace=NAMESPACE, spec=spec)


def resident() -> float:
    """This process' memory in MB, without what waits for a collector or lies free in the heap."""
    gc.collect()
    # glibc gives threads arenas of their own and keeps what is freed there: noise of some MB.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description="Soak an operator.")
    parser.add_argument("--minutes", type=float, default=2.0, help="of load (2)")
    parser.add_argument("--objects", type=int, default=5000, help="how many (5000)")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run (random)")
    parser.add_argument(
        "--faults", action=argparse.BooleanOptionalAction, default=True, help="break things (yes)"
    )
    options = parser.parse_args()
    if not 0 < options.minutes <= 24 * 60:
        parser.error("--minutes: use more than 0, and at most a day")
    if not 10 <= options.objects <= 100_000:
        parser.error("--objects: use 10 to 100,000")
    if options.seed is None:
        options.seed = random.randrange(10**6)
    problems = Soak(options).run()
    for problem in problems:
        print(f"soak: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
