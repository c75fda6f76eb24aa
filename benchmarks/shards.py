"""Replicas come, are killed, sleep and leave at random: are the shares fair again, and how soon?

``python benchmarks/shards.py`` runs ``examples/sharded.py``'s replicas on an API server in the
process (``--real``: on the one in ``KUBEBUILDER_ASSETS``). After each disturbance it waits until
all shards are held by those who live, none having more than one more than another, and all objects
are being written. In the end it looks through the history of every object for a write in a term
that was over.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import signal
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from sharded import SHARDS, History, Replica

from appsdk_operator import Client, ClientConfig
from appsdk_operator.runtime import StopSignal, system_clock
from appsdk_operator.testing import APIServer, ControlPlane


def main() -> int:
    """Run it, and print the distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--lease-duration", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    names = (f"replica-{number}" for number in itertools.count(1))
    times = []
    with contextlib.ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        server = exits.enter_context(ControlPlane() if options.real else APIServer())
        kubeconfig = str(Path(folder) / "kubeconfig")
        server.write_kubeconfig(kubeconfig)
        client = exits.enter_context(Client(ClientConfig.from_kubeconfig(kubeconfig)))
        history = History(client)
        exits.callback(history.close)
        replicas: dict[str, Replica] = {}

        def come() -> None:
            name = next(names)
            replicas[name] = Replica(name, kubeconfig, lease_duration=options.lease_duration)
            exits.callback(replicas[name].close)

        def die() -> None:
            replicas.pop(rng.choice(sorted(replicas))).signal(signal.SIGKILL)

        def leave() -> None:
            replicas.pop(rng.choice(sorted(replicas))).signal(signal.SIGTERM)

        def sleep() -> None:
            one = replicas[rng.choice(sorted(replicas))]
            one.signal(signal.SIGSTOP)
            StopSignal().wait(rng.choice([0.3, 0.8, 1.5, 2.5]) * options.lease_duration)
            one.signal(signal.SIGCONT)

        for _ in range(3):
            come()
        for number in range(options.rounds):
            least, rest = divmod(SHARDS, len(replicas))
            fair = sorted([least] * (len(replicas) - rest) + [least + 1] * rest)
            since = system_clock.monotonic()
            history.wait_for_shares(set(replicas), fair)
            times.append(system_clock.monotonic() - since)
            choices = [sleep] + [come] * (len(replicas) < 5) + [die, leave] * (len(replicas) > 2)
            what = rng.choice(choices)
            print(f"{number + 1}: {fair} after {times[-1]:.1f} s, then {what.__name__}", flush=True)
            what()
        overlaps = history.overlaps()
        writes = sum(map(len, history.writes.values()))
    ordered = sorted(times[1:])
    print(
        f"fair after {options.rounds - 1} disturbances, in s: min {ordered[0]:.1f}, median "
        f"{statistics.median(ordered):.1f}, max {ordered[-1]:.1f}; lease "
        f"{options.lease_duration:g} s, {'kube-apiserver' if options.real else 'embedded server'}"
    )
    print(f"{writes} writes, {len(overlaps)} objects with a write in a term that was over")
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
