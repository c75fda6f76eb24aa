"""A kopf operator and its translation leave the same behind, after the same history."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import Kind, kinds
from appsdk_operator.cli._kopf.program import migrate
from appsdk_operator.client import Client, MergePatch
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import MutableObject, Object
from tests.foreign.conftest import PATIENCE, PROGRAMS, Start, definition

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

EXAMPLE = Kind(group="kopf.dev", version="v1", kind="KopfExample")
CONFIG_MAP = kinds.core.v1.ConfigMap
SOURCE = (PROGRAMS / "kopf_features.py").read_text(encoding="utf-8")


def with_kopf(start: Start, namespace: str, folder: Path) -> None:
    path = folder / "with_kopf.py"
    path.write_text(SOURCE)
    start(
        sys.executable, "-m", "kopf", "run", "--standalone", "-n", namespace, "--quiet", str(path)
    )  # fmt: skip


def with_an_app(start: Start, namespace: str, folder: Path) -> None:
    crds = [definition("kopf.dev", "kopfexamples", "KopfExample")]
    migration = migrate({"with_an_app.py": SOURCE}, crds, name="features")
    assert migration.todos == []
    path = folder / "with_an_app.py"
    path.write_text(migration.texts[path.name])
    start(sys.executable, "-m", "appsdk_operator", "run", str(path), "-n", namespace)


class Cluster:
    """A namespace in which an operator works."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def create(self, name: str, size: int = 1, **metadata: Any) -> None:
        """Make an object."""
        spec = {"size": size}
        self.client.create(
            MutableObject.new(EXAMPLE, name, namespace=self.namespace, spec=spec, metadata=metadata)
        )

    def resize(self, name: str, size: int, **status: Any) -> None:
        """Change an object, and wait for what its status says then."""
        change = MergePatch({"spec": {"size": size}})
        self.client.patch(EXAMPLE, name, change, namespace=self.namespace)
        self.wait(name, **status)

    def wait(self, name: str, kind: Any = EXAMPLE, **status: Any) -> None:
        """Wait until the status of an object has these values."""

        def has_them(obj: Object[Any, Any] | None) -> bool:
            return obj is not None and status.items() <= dict(obj.status or {}).items()

        wait_for(self.client, kind, name, has_them, namespace=self.namespace, timeout=PATIENCE)

    def delete(self, name: str, kind: Any = EXAMPLE) -> None:
        """Delete an object, and wait until it is gone."""
        self.client.delete(kind, name, namespace=self.namespace)
        wait_for(
            self.client, kind, name, until.deleted(), namespace=self.namespace, timeout=PATIENCE
        )

    def state(self) -> Mapping[str, Any]:
        """What a user sees of all objects and of what the operator made."""
        examples = self.client.list(EXAMPLE, namespace=self.namespace)
        maps = self.client.list(CONFIG_MAP, namespace=self.namespace)
        return {
            "examples": {one.name: (dict(one.spec), dict(one.status or {})) for one in examples},
            "maps": {
                one.name: (
                    dict(one.get("data") or {}),
                    dict(one.labels),
                    [(ref.kind, ref.name, ref.controller) for ref in one.owner_references],
                )
                for one in maps
                if one.name != "kube-root-ca.crt"
            },
            "events": sorted(
                (each["regarding"]["name"], each["type"], each["reason"], each["note"])
                for each in self.client.list(kinds.events.v1.Event, namespace=self.namespace)
                # An App also tells of what it gives up.
                if each["regarding"]["kind"] == "KopfExample" and each["reason"] != "Failing"
            ),
        }


def history(cluster: Cluster) -> None:
    """Objects of each sort come, change and go."""
    sized = {"sized": "None -> 1", "greeted": {"size": 1}}
    cluster.create("plain")
    cluster.wait("plain", **sized)
    cluster.create("parent", labels={"has": "child"})
    wait_for(
        cluster.client,
        CONFIG_MAP,
        "parent-child",
        until.exists(),
        namespace=cluster.namespace,
        timeout=PATIENCE,
    )
    cluster.wait("parent", **sized)
    for how, status in (("at-once", {"tried": True}), ("twice", {"calls": 3})):
        cluster.create(f"fails-{how}", labels={"fails": how})
        cluster.wait(f"fails-{how}", **sized, **status)
    cluster.create("fails-always", labels={"fails": "always"})
    cluster.wait("fails-always", **sized, calls=3)
    cluster.create("shown")
    cluster.wait("shown", **sized)
    cluster.resize("plain", 2, sized="1 -> 2", stepped=True)
    cluster.resize("plain", 9, sized="2 -> 9", nines=1)
    cluster.resize("plain", 3, sized="9 -> 3", nines=2)
    cluster.create("timed", annotations={"example.com/timed": "yes"})
    cluster.wait("timed", **sized, ticks=2)
    cluster.create("goes")
    cluster.wait("goes", **sized)
    cluster.delete("goes")
    watched = {"labels": {"watched": "yes"}}
    cluster.client.create(
        MutableObject.new(CONFIG_MAP, "seen", namespace=cluster.namespace, metadata=watched)
    )
    cluster.delete("seen", CONFIG_MAP)
    wait_for(
        cluster.client,
        CONFIG_MAP,
        "seen-is-gone",
        until.exists(),
        namespace=cluster.namespace,
        timeout=PATIENCE,
    )


def test_what_kopf_does_the_translation_does(start: Start, client: Client, tmp_path: Path) -> None:
    pytest.importorskip("kopf")
    states = []
    operators: list[Callable[[Start, str, Path], None]] = [with_kopf, with_an_app]
    for operator in operators:
        namespace = operator.__name__.replace("_", "-")
        client.create(MutableObject.new(kinds.core.v1.Namespace, namespace))
        operator(start, namespace, tmp_path)
        cluster = Cluster(client, namespace)
        history(cluster)
        states.append(cluster.state())
    of_kopf, of_app = states
    assert of_app == of_kopf
