"""Managers on both servers: controllers of the builder, hand-over, and reads of own writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.client import JsonPatch
from appsdk_operator.controllers import (
    ControllerOptions,
    Request,
    as_reconciler,
    controller_for,
)
from appsdk_operator.manager import CacheSetup, FailureEvents, LeaderElection, Manager
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ItemExponential, Metrics
from appsdk_operator.watchers import ConstantBackoff, InformerController, SimpleWatcher
from tests.conformance.conftest import CONFIG_MAP, TIMEOUT, World
from tests.runs import Run
from tests.waiting import eventually

LEASE = kinds.coordination.v1.Lease


@pytest.fixture
def run(world: World) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def run(add_to: Callable[[Manager], Any], **options: Any) -> Run:
        manager = Manager(
            world.server.config(),
            **{
                "metrics": Metrics(),
                "cache": CacheSetup(namespaces=[world.namespace], kinds=[CONFIG_MAP]),
                **options,
            },
        )
        add_to(manager)
        runs.append(Run(manager).start())
        return runs[-1]

    yield run
    for one in runs:
        one.end()


def _marker(manager: Manager, stale: list[str]) -> Any:
    """Reconciles config maps: marks each that is not marked, and reads back what it wrote."""

    def reconcile(request: Request) -> None:
        obj = manager.client.get(CONFIG_MAP, request.name, namespace=request.namespace)
        if (obj.get("data") or {}).get("seen") or not (obj.get("data") or {}).get("size"):
            return
        patch = JsonPatch([{"op": "add", "path": "/data/seen", "value": "yes"}])
        written = manager.client.patch(CONFIG_MAP, obj.name, patch, namespace=obj.namespace)
        again = manager.client.get(CONFIG_MAP, request.name, namespace=request.namespace)
        if int(again.resource_version) < int(written.resource_version):
            stale.append(request.name)

    return (
        controller_for(manager).for_(CONFIG_MAP).named(f"marker-{id(manager)}").complete(reconcile)
    )


def _is_marked(world: World, name: str) -> bool:
    return (world.get(CONFIG_MAP, name).get("data") or {}).get("seen") == "yes"


def test_a_controller_works_on_a_manager_and_reads_what_it_wrote(
    world: World, run: Callable[..., Run]
) -> None:
    world.create(CONFIG_MAP, "before")
    stale: list[str] = []
    one = run(lambda manager: _marker(manager, stale))
    assert one.part.elected.wait(TIMEOUT), one.raised
    for number in range(10):
        world.create(CONFIG_MAP, f"after-{number}")
    names = ["before", *(f"after-{number}" for number in range(10))]
    for name in names:
        assert eventually(lambda name=name: _is_marked(world, name))  # type: ignore[misc]
    assert not one.end()
    assert not stale


def test_a_second_manager_takes_over_when_the_first_has_ended(
    world: World, run: Callable[..., Run]
) -> None:
    election = LeaderElection(
        id="lock",
        namespace=world.namespace,
        lease_duration=30.0,
        renew_deadline=20.0,
        retry_period=0.2,
        release_on_cancel=True,
    )
    first = run(lambda manager: _marker(manager, []), leader_election=election)
    assert first.part.elected.wait(TIMEOUT), first.raised
    second = run(lambda manager: _marker(manager, []), leader_election=election)
    assert eventually(lambda: second.part.leader == first.part.identity)
    world.create(CONFIG_MAP, "a")
    assert eventually(lambda: _is_marked(world, "a"))
    assert not second.part.elected.is_set()
    assert not first.end()
    assert second.part.elected.wait(TIMEOUT)
    world.create(CONFIG_MAP, "b")
    assert eventually(lambda: _is_marked(world, "b"))
    lease = world.client.get(LEASE, "lock", namespace=world.namespace)
    assert (lease.get("spec") or {})["holderIdentity"] == second.part.identity
    assert not second.end()


class Moody:
    """A callback that fails until it is told not to."""

    def __init__(self) -> None:
        self.is_well = False

    def make(self, _: Any) -> None:
        if not self.is_well:
            raise ConnectionError("the storage does not answer")

    def check(self, obj: Any) -> None:
        self.make(obj)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_describe_tells_of_failures_that_persist_and_that_they_are_over(
    world: World, run: Callable[..., Run], tmp_path: Path
) -> None:
    def add_to(manager: Manager) -> None:
        controller = InformerController(retry_policy=ConstantBackoff(0.01))
        controller.add_cache(manager.cache, CONFIG_MAP)
        controller.add_watcher(SimpleWatcher(add=moody.make), CONFIG_MAP)
        manager.add(controller)
        reconcile = as_reconciler(manager.client, CONFIG_MAP, moody.check)
        builder = controller_for(manager).for_(CONFIG_MAP).named(f"moody-{id(manager)}")
        builder.complete(reconcile)

    moody = Moody()
    told = FailureEvents(lasting=0)
    run(add_to, failure_events=told, name="shop", controller_options=QUICK)
    world.create(CONFIG_MAP, "a")
    describe = _describer(world, tmp_path)
    # One Event of each, with a count of its repetitions.
    assert eventually(lambda: describe().count("failed 3 times in a row") == 2), describe()
    text = describe()
    assert re.search(r"Warning +Failing .* shop +Moody\.make failed 3 times in a row: Conn", text)
    assert "Recovered" not in text
    moody.is_well = True
    assert eventually(lambda: describe().count(" works again, after ") == 2), describe()
    assert describe().count("Failing") == 2


QUICK = ControllerOptions(rate_limiter=lambda: ItemExponential(base=0.01, maximum=0.01))


def _describer(world: World, folder: Path) -> Callable[[], str]:
    config = world.server.config()
    flags = [f"--server={config.server}", f"--token={config.token}", "-n", world.namespace]
    if config.ca_data:
        (folder / "ca").write_bytes(config.ca_data)
        flags.append(f"--certificate-authority={folder / 'ca'}")

    def describe() -> str:
        command = ["kubectl", *flags, "describe", "configmap", "a"]
        environ = {**os.environ, "HOME": str(folder), "KUBECONFIG": ""}
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=100, check=False
        )
        return done.stdout + done.stderr

    return describe
