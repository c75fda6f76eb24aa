"""A controller of ReplicaSets: it makes the pods that they ask for, counts them, and says so.

Run ``python examples/replicaset_controller.py``: it starts an API server in the process, and a
manager with one controller. A ReplicaSet is created, one of its pods deleted, the set scaled and
deleted, and what became of it is printed. With ``--kubeconfig FILE`` it does the same there; take a
control plane without Kubernetes' own ReplicaSet controller, with which this one would compete.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable

from appsdk_operator import ClientConfig, MergePatch, MutableObject, Object, kinds
from appsdk_operator.client import AlreadyExists, ClientLike, NotFound
from appsdk_operator.controllers import (
    Request,
    RetryAfter,
    controller_for,
    controller_of,
    generation_changed,
    set_controller_reference,
    until,
    wait_for,
)
from appsdk_operator.manager import Manager
from appsdk_operator.resource import LabelSelector
from appsdk_operator.testing import APIServer, running

POD = kinds.core.v1.Pod
REPLICA_SET = kinds.apps.v1.ReplicaSet
NAMESPACE = "default"
NAME = "example-web"
LABELS = {"app": NAME}
COUNT = "pod-count"


class ReplicaSetReconciler:
    """Brings the pods of a ReplicaSet in line with what it asks for."""

    def __init__(self, client: ClientLike) -> None:
        self.client = client

    def reconcile(self, request: Request) -> None:
        """Create what is missing, delete what is too much, count what is there."""
        try:
            wanted = self.client.get(REPLICA_SET, request.name, namespace=request.namespace)
        except NotFound:
            return  # its pods have it as their owner: the API server's garbage collection sees them
        if wanted.is_deleting:
            return
        pods = self.pods_of(wanted)
        names = {f"{wanted.name}-{number}" for number in range(wanted.spec.get("replicas", 1))}
        for name in sorted(names - pods.keys()):
            self.create_pod(wanted, name)
        for name in sorted(pods.keys() - names):
            self.delete_pod(pods[name])
        self.report(wanted, len(names))

    def pods_of(self, owner: Object) -> dict[str, Object]:
        """The pods that the ReplicaSet controls, by name."""
        selector = LabelSelector.from_object(owner.spec["selector"])
        found = {}
        for pod in self.client.list(POD, namespace=owner.namespace, label_selector=selector):
            reference = controller_of(pod)
            if reference is not None and reference.uid == owner.uid and not pod.is_deleting:
                found[pod.name] = pod
        return found

    def create_pod(self, owner: Object, name: str) -> None:
        """Make one pod from the template."""
        template = owner.to_dict()["spec"]["template"]
        pod = MutableObject.new(POD, name, namespace=owner.namespace, spec=template["spec"])
        pod.labels.update(template["metadata"]["labels"])
        set_controller_reference(owner, pod)
        try:
            self.client.create(pod)
        except AlreadyExists:
            # A pod of that name is still on its way out, or not ours.
            raise RetryAfter(1.0, f"the name {name} is taken") from None

    def delete_pod(self, pod: Object) -> None:
        """Delete one pod, if it is still the one that was seen."""
        with contextlib.suppress(NotFound):
            self.client.delete(POD, pod.name, namespace=pod.namespace)

    def report(self, owner: Object, count: int) -> None:
        """Write down how many there are."""
        if owner.labels.get(COUNT) != str(count):
            labels = MergePatch({"metadata": {"labels": {COUNT: str(count)}}})
            self.client.patch(REPLICA_SET, owner.name, labels, namespace=owner.namespace)
        status = {"replicas": count, "observedGeneration": owner.generation}
        if any(owner.get("status", {}).get(name) != value for name, value in status.items()):
            patch = MergePatch({"status": status})
            self.client.status.patch(REPLICA_SET, owner.name, patch, namespace=owner.namespace)


def add_controller(manager: Manager) -> None:
    """The whole wiring."""
    (
        controller_for(manager)
        .for_(REPLICA_SET, predicates=[generation_changed])
        .owns(POD)
        .complete(ReplicaSetReconciler(manager.client))
    )


# The demo.


def tell(client: ClientLike) -> None:
    """Do what a user would do, and print what became of it."""
    template = {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "web", "image": "example.com/web"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template}
    print("-- created with 3 replicas", flush=True)
    client.create(MutableObject.new(REPLICA_SET, NAME, namespace=NAMESPACE, spec=spec))
    show(client, 3)

    print("-- one pod is deleted by hand", flush=True)
    victim = client.get(POD, f"{NAME}-1", namespace=NAMESPACE)
    client.delete(POD, victim.name, namespace=NAMESPACE)
    wait_for(
        client,
        POD,
        victim.name,
        lambda pod: pod.uid != victim.uid,
        timeout=20.0,
        namespace=NAMESPACE,
    )
    show(client, 3)

    print("-- scaled to 1", flush=True)
    client.patch(REPLICA_SET, NAME, MergePatch({"spec": {"replicas": 1}}), namespace=NAMESPACE)
    show(client, 1)

    print("-- deleted", flush=True)
    client.delete(REPLICA_SET, NAME, namespace=NAMESPACE)
    wait_for(client, REPLICA_SET, NAME, until.deleted(), timeout=20.0, namespace=NAMESPACE)


def show(client: ClientLike, count: int) -> None:
    """Wait until the ReplicaSet says that it has ``count`` pods, and print their names."""
    wait_for(client, REPLICA_SET, NAME, says(count), namespace=NAMESPACE, timeout=20.0)
    selector = LabelSelector.from_mapping(LABELS)
    pods = client.list(POD, namespace=NAMESPACE, label_selector=selector)
    names = ", ".join(sorted(pod.name for pod in pods if not pod.is_deleting))
    print(f"{count} pod{'' if count == 1 else 's'}: {names}", flush=True)


def says(count: int) -> Callable[[Object], bool]:
    """Whether the ReplicaSet has been reported on since it was changed last."""

    def reported(obj: Object) -> bool:
        status = obj.get("status", {})
        is_new = status.get("observedGeneration") == obj.generation
        return is_new and status.get("replicas") == count and obj.labels.get(COUNT) == str(count)

    return reported


def clean_up(client: ClientLike) -> None:
    """Leave nothing behind, also where nobody collects garbage."""
    with contextlib.suppress(NotFound):
        client.delete(REPLICA_SET, NAME, namespace=NAMESPACE)
    selector = LabelSelector.from_mapping(LABELS)
    for pod in client.list(POD, namespace=NAMESPACE, label_selector=selector):
        with contextlib.suppress(NotFound):
            client.delete(POD, pod.name, namespace=NAMESPACE)


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
        manager = stack.enter_context(Manager(config))
        add_controller(manager)
        with running(manager):  # a program just calls manager.run(handle_signals=True)
            try:
                tell(manager.live_client)
            finally:
                clean_up(manager.live_client)


if __name__ == "__main__":
    main()
