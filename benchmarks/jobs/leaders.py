"""What taking part in a leader election costs: CPU time, requests and threads for each renewal.

The Lease is on the embedded API server in another process. The leader renews a hundred times as
often as by default, so that there is something to measure; ``share_of_a_core`` is what that makes
with the default of one renewal each 2 seconds.

* leader: renews.
* standby: looks at the Lease of another leader, again and again.
* plain updates: as many plain updates of an object with the same client: the part that is HTTP.
"""

from __future__ import annotations

import functools
from typing import Final

from appsdk_operator import Client, MutableObject, StopSignal, kinds
from appsdk_operator.manager import Elector, LeaderElection
from appsdk_operator.manager._election.options import elector_config
from appsdk_operator.runtime import Metrics, system_clock
from benchmarks._embedded import Server, serving
from benchmarks._job import Job, Unit
from benchmarks._measures import Figures, Measure, column, observed, one_case, own_cpu, run

_FASTER: Final = 100.0
_DEFAULT_PERIOD: Final = LeaderElection(id="x").retry_period


def _options(identity: str) -> LeaderElection:
    # A standby must find a lease that is renewed in time, whatever the machine does.
    return LeaderElection(
        id="benchmark",
        namespace="default",
        identity=identity,
        lease_duration=15.0,
        renew_deadline=10.0,
        retry_period=_DEFAULT_PERIOD / _FASTER,
    )


def _costs(server: Server, seconds: float, stop: StopSignal) -> Figures:
    stop.wait(0.2)
    requests, cpu, began = server.requests(), own_cpu(), system_clock.monotonic()
    stop.wait(seconds)
    used, took = own_cpu() - cpu, system_clock.monotonic() - began
    made = server.requests() - requests
    return {
        "requests_per_period": made / took * _DEFAULT_PERIOD / _FASTER,
        "cpu_per_request": used / made,
        "share_of_a_core": used / made / _DEFAULT_PERIOD,
    }


def elector(*, seconds: float = 5.0, is_leader: bool) -> Figures:
    """One candidate's cost."""
    options = _options("benchmark")
    with serving() as server:
        if not is_leader:
            _lead_by_another(server)
        with Client(elector_config(server.config(), options), metrics=Metrics()) as client:
            subject = Elector(client, options, metrics=Metrics())
            figures = observed(
                lambda stop: subject.run(stop, lambda: None),
                functools.partial(_costs, server, seconds),
            )
            subject.join()
    return figures


def _lead_by_another(server: Server) -> None:
    now = "2100-01-01T00:00:00.000000Z"
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 3600,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 1,
    }
    with Client(server.config(), metrics=Metrics()) as client:
        lease = kinds.coordination.v1.Lease
        client.create(MutableObject.new(lease, "benchmark", namespace="default", spec=spec))


def plain_updates(*, seconds: float = 5.0) -> Figures:
    """Plain updates, one each period."""
    with serving() as server, Client(server.config(), metrics=Metrics()) as client:
        lease = kinds.coordination.v1.Lease
        new = MutableObject.new(lease, "other", namespace="default", spec={"leaseTransitions": 1})
        first = client.create(new)

        def run(stop: StopSignal) -> None:
            current = first
            while not stop.wait(_DEFAULT_PERIOD / _FASTER):
                current = client.update(current.mutable_copy())

        return observed(run, functools.partial(_costs, server, seconds))


MEASURES: dict[str, Measure] = {
    "leader": functools.partial(elector, is_leader=True),
    "standby": functools.partial(elector, is_leader=False),
    "plain updates": plain_updates,
}
_QUICK: Final = {"seconds": 0.3}

JOB = Job(
    name="leaders",
    title="Leader election: the cost of a renewal",
    text=(
        "A leader renews its Lease, on the embedded API server in another process, a hundred times "
        "as often as by default, and a standby looks at the Lease of another leader. What a "
        "request costs, and which share of a core that is with the default of one in 2 seconds. "
        "`plain updates` are as many updates of an object with the same client."
    ),
    columns=(
        column("CPU per request", "cpu_per_request", Unit.SECONDS),
        column("requests per period", "requests_per_period"),
        column("share of a core, by default", "share_of_a_core", Unit.SHARE),
    ),
    cases=one_case(
        "benchmarks.jobs.leaders", MEASURES, _QUICK, floor="plain updates", in_quick=["leader"]
    ),
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
