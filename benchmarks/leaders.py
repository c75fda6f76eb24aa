"""Kill the leader again and again: how long until another works, and does anybody write too late?

``python benchmarks/leaders.py`` runs three replicas of ``examples/leader_election.py`` on an API
server in the process (``--real``: on the one in ``KUBEBUILDER_ASSETS``), and kills the leader a
hundred times (SIGKILL; ``--sleep``: stops it beyond its lease and wakes it up). A take-over takes
from the signal to the next leader's first write as a watch shows it. It has to take no longer than
the lease, as the whole seconds of its record, and 2.2 retry periods, and a write.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import platform
import signal
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from leader_election import Ledger, Replica

from appsdk_operator import Client, ClientConfig
from appsdk_operator.runtime import StopSignal, system_clock
from appsdk_operator.testing import APIServer, ControlPlane


def main() -> int:
    """Run it, and print the distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--lease-duration", type=float, default=2.0)
    parser.add_argument("--sleep", action="store_true")
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    names = (f"replica-{number}" for number in itertools.count(1))
    times = []
    with contextlib.ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        server = exits.enter_context(ControlPlane() if options.real else APIServer())
        kubeconfig = str(Path(folder) / "kubeconfig")
        server.write_kubeconfig(kubeconfig)
        client = exits.enter_context(Client(ClientConfig.from_kubeconfig(kubeconfig)))
        ledger = Ledger(client)
        exits.callback(ledger.close)
        replicas: dict[str, Replica] = {}

        def add() -> None:
            name = next(names)
            replicas[name] = Replica(name, kubeconfig, lease_duration=options.lease_duration)
            exits.callback(replicas[name].close)
            # One that still starts takes over nothing; how long that takes is not the question.
            said = replicas[name].process.stdout.readline()
            if said != "takes part\n":
                raise RuntimeError(said + replicas[name].ends()[1])

        for _ in range(3):
            add()
        leader = ledger.wait_for(bool)
        look = 2.2 * 0.2 * options.lease_duration
        for number in range(options.rounds):
            ledger.wait_for_more(20)
            StopSignal().wait(look)  # until all candidates have seen the leader's record
            since = system_clock.monotonic()
            replicas[leader].signal(signal.SIGSTOP if options.sleep else signal.SIGKILL)
            before, leader = leader, ledger.wait_for(lambda who, old=leader: who != old)
            times.append(ledger.began(leader) - since)
            if options.sleep:
                replicas[before].signal(signal.SIGCONT)
            replicas[before].ends()
            add()
            print(f"{number + 1}: {before} -> {leader} {times[-1]:.2f} s", flush=True)
        overlaps = ledger.overlaps()
        writes = len(ledger.writes)
    retry = options.lease_duration * 0.2
    bound = math.ceil(options.lease_duration) + 2.2 * retry
    ordered = sorted(times)
    print(
        f"Python {platform.python_version()}, lease {options.lease_duration:g} s, retry "
        f"{retry:g} s, {'stopped' if options.sleep else 'killed'} {len(times)} leaders, "
        f"{'kube-apiserver' if options.real else 'embedded server'}"
    )
    print(
        f"take-over in s: min {ordered[0]:.2f}, median {statistics.median(ordered):.2f}, "
        f"p90 {ordered[int(0.9 * (len(ordered) - 1))]:.2f}, max {ordered[-1]:.2f}; bound "
        f"{bound:.2f} and a write"
    )
    print(f"{writes} writes, {len(overlaps)} writers that wrote after their successor")
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
