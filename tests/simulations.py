"""What tests on a simulation, or on a server in memory, have in common."""

from __future__ import annotations

import functools
from typing import Any

from appsdk_operator.client import Client, ClientConfig, Patch
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import Process, Simulation

__all__ = ["Others", "change", "die", "no_client", "version_of"]


def change(
    simulation: Simulation, name: str, *, spec: Any = None, status: Any = None, **metadata: Any
) -> Object:
    """Another client changes spec and metadata in one write, and the status in another."""
    written = {"spec": spec} if spec is not None else {}
    changed = simulation.find(name)
    assert changed is not None
    if written or metadata:
        changed = simulation.patch(name, written | ({"metadata": metadata} if metadata else {}))
    if status is not None:
        changed = simulation.patch(name, {"status": status}, subresource="status")
    return changed


def die(process: Process) -> None:
    """The process dies, and whoever it is in fails."""
    process.crash()
    process.check_alive()


class Others:
    """Other clients: what they do to the objects of a simulation's kind."""

    def __init__(self, simulation: Simulation | Kind) -> None:
        """Of a kind: without an operator."""
        if isinstance(simulation, Kind):
            simulation = Simulation(simulation, lambda _: [])
        self.simulation = simulation
        self.kind = simulation.kind
        self.client = simulation.client
        self.find = simulation.find
        self.delete = simulation.delete
        self.compact = simulation.compact
        self.list_page = self.client.list_page
        self.watch = self.client.watch
        self.status = self.client.status

    def create(self, name: str, *, spec: Any = None, **metadata: Any) -> Object:
        return self.simulation.create(name, spec, **metadata)

    def change(self, name: str, **changes: Any) -> Object:
        return change(self.simulation, name, **changes)

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        return self.client.get(kind, name, namespace=namespace or self.simulation.namespace)

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = "") -> Object:
        namespace = namespace or self.simulation.namespace
        return self.client.patch(kind, name, patch, namespace=namespace)

    @property
    def resource_version(self) -> str:
        return str(self.simulation.server.api.resource_version)

    @property
    def objects(self) -> list[Object]:
        return self.simulation.objects()


def version_of(obj: Object) -> int:
    """Its resource version, counted from 2 for the first write to a new server."""
    return int(obj.resource_version) - _first_version(obj.kind) + 2


@functools.cache
def _first_version(kind: Kind) -> int:
    return int(Others(kind).resource_version) + 1


def no_client() -> Client:
    """A client of nobody, for what is made and not run."""
    return Client(ClientConfig(server="http://127.0.0.1:1"), metrics=Metrics())
