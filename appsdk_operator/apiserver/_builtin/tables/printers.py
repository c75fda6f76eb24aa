"""The table columns of the built-in kinds, and the functions that make their cells.

Columns and texts are those of kube-apiserver.
"""

from __future__ import annotations

from typing import Final

import attrs

from appsdk_operator.apiserver._builtin.tables import infrastructure, other_kinds, workloads
from appsdk_operator.apiserver._builtin.tables.cells import Cells

__all__ = ["Printer", "printer_of"]


@attrs.frozen
class Printer:
    """The columns of a kind and the function for its cells."""

    columns: tuple[tuple[str, str, int], ...]
    """Name, type and priority; kubectl shows those of priority 1 with ``-o wide``."""
    cells: Cells


def printer_of(group: str, plural: str) -> Printer:
    """The printer of a built-in kind."""
    return _PRINTERS.get(f"{plural}.{group}" if group else plural, _PLAIN)


def _columns(text: str) -> tuple[tuple[str, str, int], ...]:
    """Columns from ``Name, Desired:integer, *Images``; a star means priority 1."""
    made = []
    for part in text.split(", "):
        name, _, kind = part.partition(":")
        made.append((name.removeprefix("*"), kind or "string", int(name.startswith("*"))))
    return tuple(made)


_WORKLOAD: Final = "*Containers, *Images, *Selector"
_SET: Final = f"Name, Desired:integer, Current:integer, Ready:integer, Age, {_WORKLOAD}"
_EVENT: Final = (
    "Last Seen, Type, Reason, Object, *Subobject, *Source, Message, *First Seen, *Count, *Name"
)
_AUTOSCALER: Final = "Name, Reference, Targets, MinPods, MaxPods, Replicas, Age"
_ROLE_BINDING: Final = "Name, Role, Age, *Users, *Groups, *ServiceAccounts"
_HOOKS: Final = ("Name, Webhooks:integer, Age", other_kinds.fields("#webhooks", "age"))
_PLAIN: Final = Printer(_columns("Name, Created At:date"), other_kinds.created_at)
_PRINTERS: Final = {
    name: Printer(_columns(columns), cells)
    for name, (columns, cells) in {
        "configmaps": ("Name, Data, Age", other_kinds.data),
        "endpoints": ("Name, Endpoints, Age", infrastructure.endpoints),
        "events": (_EVENT, other_kinds.event),
        "events.events.k8s.io": (_EVENT, other_kinds.event),
        "namespaces": ("Name, Status, Age", other_kinds.fields("status.phase", "age")),
        "nodes": (
            (
                "Name, Status, Roles, Age, Version, *Internal-IP, *External-IP, *OS-Image, "
                "*Kernel-Version, *Container-Runtime"
            ),
            infrastructure.node,
        ),
        "persistentvolumeclaims": (
            (
                "Name, Status, Volume, Capacity, Access Modes, StorageClass, "
                "VolumeAttributesClass, Age, *VolumeMode"
            ),
            infrastructure.claim,
        ),
        "persistentvolumes": (
            (
                "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, "
                "VolumeAttributesClass, Reason, Age, *VolumeMode"
            ),
            infrastructure.volume,
        ),
        "pods": (
            "Name, Ready, Status, Restarts, Age, *IP, *Node, *Nominated Node, *Readiness Gates",
            workloads.pod,
        ),
        "podtemplates": ("Name, Containers, Images, Pod Labels", other_kinds.pod_template),
        "replicationcontrollers": (_SET, workloads.replica_set),
        "resourcequotas": ("Name, Request, Limit, Age", other_kinds.quota),
        "secrets": ("Name, Type, Data, Age", other_kinds.data),
        "serviceaccounts": ("Name, Age", other_kinds.fields("age")),
        "services": (
            "Name, Type, Cluster-IP, External-IP, Port(s), Age, *Selector",
            infrastructure.service,
        ),
        "apiservices.apiregistration.k8s.io": (
            "Name, Service, Available, Age",
            other_kinds.api_service,
        ),
        "controllerrevisions.apps": ("Name, Controller, Revision, Age", other_kinds.revision),
        "daemonsets.apps": (
            (
                "Name, Desired:integer, Current:integer, Ready:integer, Up-to-date:integer, "
                f"Available:integer, Node Selector, Age, {_WORKLOAD}"
            ),
            workloads.daemon_set,
        ),
        "deployments.apps": (
            f"Name, Ready, Up-to-date, Available, Age, {_WORKLOAD}",
            workloads.deployment,
        ),
        "replicasets.apps": (_SET, workloads.replica_set),
        "statefulsets.apps": ("Name, Ready, Age, *Containers, *Images", workloads.stateful_set),
        "horizontalpodautoscalers.autoscaling": (_AUTOSCALER, workloads.autoscaler),
        "cronjobs.batch": (
            "Name, Schedule, Timezone, Suspend:boolean, Active:integer, Last Schedule, Age, "
            + _WORKLOAD,
            workloads.cron_job,
        ),
        "jobs.batch": (f"Name, Status, Completions, Duration, Age, {_WORKLOAD}", workloads.job),
        "certificatesigningrequests.certificates.k8s.io": (
            "Name, Age, SignerName, Requestor, RequestedDuration, Condition",
            other_kinds.signing_request,
        ),
        "ingressclasses.networking.k8s.io": (
            "Name, Controller, Parameters, Age",
            infrastructure.ingress_class,
        ),
        "ingresses.networking.k8s.io": (
            "Name, Class, Hosts, Address, Ports, Age",
            infrastructure.ingress,
        ),
        "networkpolicies.networking.k8s.io": ("Name, Pod-Selector, Age", other_kinds.with_selector),
        "poddisruptionbudgets.policy": (
            "Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age",
            workloads.disruption_budget,
        ),
        "clusterrolebindings.rbac.authorization.k8s.io": (_ROLE_BINDING, other_kinds.binding),
        "rolebindings.rbac.authorization.k8s.io": (_ROLE_BINDING, other_kinds.binding),
        "storageclasses.storage.k8s.io": (
            "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
            other_kinds.storage_class,
        ),
        "csinodes.storage.k8s.io": (
            "Name, Drivers:integer, Age",
            other_kinds.fields("#spec.drivers", "age"),
        ),
        "volumeattachments.storage.k8s.io": (
            "Name, Attacher, PV, Node, Attached:boolean, Age",
            other_kinds.fields(
                "spec.attacher",
                "spec.source.persistentVolumeName",
                "spec.nodeName",
                "status.attached|false",
                "age",
            ),
        ),
        "mutatingwebhookconfigurations.admissionregistration.k8s.io": _HOOKS,
        "validatingwebhookconfigurations.admissionregistration.k8s.io": _HOOKS,
        "priorityclasses.scheduling.k8s.io": (
            "Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy",
            other_kinds.fields("value|0", "globalDefault|false", "age", "preemptionPolicy"),
        ),
        "leases.coordination.k8s.io": (
            "Name, Holder, Age",
            other_kinds.fields("spec.holderIdentity", "age"),
        ),
        "runtimeclasses.node.k8s.io": ("Name, Handler, Age", other_kinds.fields("handler", "age")),
        "endpointslices.discovery.k8s.io": (
            "Name, AddressType, Ports, Endpoints, Age",
            infrastructure.endpoint_slice,
        ),
    }.items()
}
