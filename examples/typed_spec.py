"""Read and write the spec as a class of your own.

The classes of a kind's spec and status are also its schema: the CRD is made from them, so the API
server refuses what they would not take. What they do not know stays in the object.
"""

from __future__ import annotations

import argparse
import contextlib
from queue import SimpleQueue
from typing import Annotated

import attrs
from msgspec import Meta

from appsdk_operator import (
    Client,
    ClientConfig,
    InformerController,
    Invalid,
    Kind,
    KubernetesInformer,
    MergePatch,
    MutableObject,
    Object,
    Operator,
    SimpleWatcher,
    StopSignal,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.testing import APIServer, install_crds

NAMESPACE, NAME = "default", "nightly"
PATIENCE = 20.0


@attrs.frozen
class Target:
    """Where a backup goes."""

    bucket: str
    keep: Annotated[int, Meta(ge=1)] = 7


@attrs.frozen
class BackupSpec:
    """What to save."""

    volumes: list[str]
    target: Target


@attrs.frozen
class BackupStatus:
    """What was saved."""

    saved: int = 0


BACKUP = Kind(
    group="backups.example.com", version="v1", kind="Backup", spec=BackupSpec, status=BackupStatus
)


class Demo:
    """What a user does meanwhile."""

    def __init__(self, client: Client, messages: SimpleQueue[str], end: StopSignal) -> None:
        self._client = client
        self._messages = messages
        self._end = end

    def run(self, _: StopSignal) -> None:
        """Create a backup, change it, make a mistake, and end the operator."""
        client = self._client
        spec = BackupSpec(volumes=["db"], target=Target(bucket="vault"))
        client.create(MutableObject.new(BACKUP, NAME, namespace=NAMESPACE, spec=spec))
        self._messages.get(timeout=PATIENCE)

        draft = client.get(BACKUP, NAME, namespace=NAMESPACE).mutable_copy()
        draft.spec = attrs.evolve(draft.spec, volumes=["db", "mail"])
        client.update(draft)
        self._messages.get(timeout=PATIENCE)

        wrong = MergePatch({"spec": {"target": {"keep": 0}}})
        try:
            client.patch(BACKUP, NAME, wrong, namespace=NAMESPACE)
        except Invalid as error:
            print(f"refused: {error.causes[0].field}", flush=True)

        status: BackupStatus = client.get(BACKUP, NAME, namespace=NAMESPACE).status
        print(f"status: {status}", flush=True)
        self._end.set()


def run(client: Client) -> None:
    """Run the operator until the demo ends."""
    messages: SimpleQueue[str] = SimpleQueue()

    def save(obj: Object) -> None:
        spec: BackupSpec = obj.spec
        print(f"{spec.target.bucket}: {', '.join(spec.volumes)}, kept {spec.target.keep} times")
        status = {"status": {"saved": len(spec.volumes)}}
        client.status.patch(BACKUP, obj.name, MergePatch(status), namespace=obj.namespace)
        messages.put(obj.name)

    def changed(old: Object, new: Object) -> None:
        if old.spec != new.spec:
            save(new)

    controller = InformerController()
    controller.add_informer(KubernetesInformer(BACKUP, client, namespace=NAMESPACE), BACKUP)
    controller.add_watcher(SimpleWatcher(add=save, update=changed), BACKUP)

    end = StopSignal()
    operator = Operator()
    operator.add_controller(controller)
    operator.add_controller(Demo(client, messages, end))
    operator.run(end)


def main() -> None:
    """Run on the cluster that was asked for, or on an API server in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", help="run on this cluster; default: in the process")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.kubeconfig:
            config = ClientConfig.from_kubeconfig(options.kubeconfig)
        else:
            config = ClientConfig(server=stack.enter_context(APIServer()).url)
        client = stack.enter_context(Client(config))
        crd = custom_resource_definition(BACKUP)
        install_crds(client, [crd])
        try:
            run(client)
        finally:
            client.delete(kinds.apiextensions.v1.CustomResourceDefinition, crd.name)


if __name__ == "__main__":
    main()
