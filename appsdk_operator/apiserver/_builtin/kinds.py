"""The built-in kinds: the strategy of each, and conversions between their versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from appsdk_operator.apiserver._builtin import autoscaler_versions, strategies
from appsdk_operator.apiserver._builtin.checks import core, jobs, network, volumes, workloads
from appsdk_operator.apiserver._builtin.checks.autoscalers import autoscaler
from appsdk_operator.apiserver._builtin.checks.pods import pod
from appsdk_operator.apiserver._builtin.default_classes import DefaultClasses
from appsdk_operator.apiserver._builtin.pod_security import PodSecurity
from appsdk_operator.apiserver._builtin.priorities import Priorities
from appsdk_operator.apiserver._builtin.selectable_fields import FIELDS
from appsdk_operator.apiserver._builtin.service_addresses import ServiceAddresses
from appsdk_operator.apiserver._storage.resources import (
    Catalog,
    NameStyle,
    Resource,
    ServedVersion,
    Strategy,
)
from appsdk_operator.apiserver._storage.storage import Storage
from appsdk_operator.resource import kinds
from appsdk_operator.resource.kinds import BuiltinKind


def install(
    catalog: Catalog,
    storage: Storage,
    addresses: ServiceAddresses,
    overrides: dict[str, Strategy],
) -> None:
    """Serve every built-in kind; ``overrides`` are strategies by ``plural.group``."""

    def make(entries: tuple[BuiltinKind, ...]) -> Resource:
        name = entries[0].kind.qualified_name
        strategy = overrides.get(name) or _STRATEGIES.get(name) or _PLAIN
        if name in _BOUND:
            strategy = _with_empty_status(name, _BOUND[name](storage, addresses))
        return _resource(entries, storage, strategy)

    catalog.add_builtin(_ENTRIES, make)


def _by_resource() -> dict[tuple[str, str], tuple[BuiltinKind, ...]]:
    found: dict[tuple[str, str], tuple[BuiltinKind, ...]] = {}
    for entry in kinds.builtin_kinds():
        place = entry.kind.group, entry.kind.plural
        found[place] = (*found.get(place, ()), entry)
    return found


_ENTRIES: Final = _by_resource()
_PLAIN: Final = Strategy()


def _resource(entries: tuple[BuiltinKind, ...], storage: Storage, strategy: Strategy) -> Resource:
    """The resource of a built-in kind in all its versions, the storage version first."""
    entry, kind = entries[0], entries[0].kind
    # The events of both groups are stored in one collection.
    name = "events" if kind.group == "events.k8s.io" else kind.qualified_name
    resource = Resource(
        group=kind.group,
        plural=kind.plural,
        singular=entry.singular,
        kind=kind.kind,
        list_kind=f"{kind.kind}List",
        namespaced=kind.is_namespaced,
        collection=storage.collection(name),
        strategy=strategy,
        short_names=entry.short_names,
        categories=entry.categories,
        verbs=entry.verbs,
        storage_version=kind.version,
    )
    for each in entries:
        resource.versions[each.kind.version] = _served(resource, each)
    return resource


def _served(resource: Resource, entry: BuiltinKind) -> ServedVersion:
    kind = entry.kind
    served = ServedVersion(resource, kind.version, {name: {} for name in entry.subresources})
    if kind.group == "events.k8s.io":
        served.from_storage, served.to_storage = _event_from_core, _event_to_core
    elif kind.group == "autoscaling" and kind.version == "v1":
        served.from_storage = autoscaler_versions.to_v1
        served.to_storage = autoscaler_versions.from_v1
        served.normalize = autoscaler_versions.normalize_v1
    elif kind.group == "autoscaling":
        served.normalize = autoscaler_versions.without_annotations
    served.selectable = FIELDS.get(kind.qualified_name, served.selectable)
    served.warning = _DEPRECATED.get(kind.qualified_name, "")
    return served


_DEPRECATED: Final = {
    "endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    "componentstatuses": "v1 ComponentStatus is deprecated in v1.19+",
}

# The same fields in core/v1 and in events.k8s.io/v1.
_EVENT_FIELDS: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}


def _event_from_core(obj: dict[str, Any]) -> dict[str, Any]:
    # The core group shows these two also when they are empty.
    left_out = {name for name in ("reportingComponent", "reportingInstance") if not obj.get(name)}
    return {
        _EVENT_FIELDS.get(name, name): value for name, value in obj.items() if name not in left_out
    }


def _event_to_core(obj: dict[str, Any]) -> dict[str, Any]:
    names = {new: core for core, new in _EVENT_FIELDS.items()}
    return {names.get(name, name): value for name, value in obj.items()} | {"apiVersion": "v1"}


_POLICY: Final = Strategy(generation=True, unconditional_update=False)


def _fixed(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


def _with_empty_status(name: str, strategy: Strategy) -> Strategy:
    """New objects have the empty status of their kind."""
    if strategy.status_on_create:
        return strategy
    group = name.partition(".")[2]
    prepare_create = strategies.with_empty_status(group, strategy.prepare_create)
    return attrs.evolve(strategy, prepare_create=prepare_create)


def _claims(storage: Storage, _addresses: ServiceAddresses) -> Strategy:
    return Strategy(
        admit=DefaultClasses(storage).admit_claim,
        validate=volumes.claim,
        prepare_delete=strategies.delete_volume,
        returns_deleted=True,
    )


def _pods(storage: Storage, _addresses: ServiceAddresses) -> Strategy:
    return Strategy(
        admit=Priorities(storage).admit_pod,
        check_admission=PodSecurity(storage).check,
        validate=pod,
        generation=True,
        prepare_create=strategies.create_pod,
        prepare_status=strategies.update_pod_status,
        subresources={
            "ephemeralcontainers": strategies.only_ephemeral_containers,
            "resize": strategies.only_container_resources,
        },
        graceful=True,
        returns_deleted=True,
    )


def _services(_storage: Storage, addresses: ServiceAddresses) -> Strategy:
    return Strategy(
        prepare_create=addresses.create,
        prepare_update=addresses.update,
        before_storage=addresses.check,
        validate=network.service,
        create_on_update=True,
        name_style=NameStyle.LABEL,
        returns_deleted=True,
        deletes_too="endpoints",
    )


def _ingresses(storage: Storage, _addresses: ServiceAddresses) -> Strategy:
    return Strategy(
        admit=DefaultClasses(storage).admit_ingress, validate=network.ingress, generation=True
    )


def _priority_classes(storage: Storage, _addresses: ServiceAddresses) -> Strategy:
    return Strategy(
        validate=core.priority_class,
        check_admission=Priorities(storage).check_class,
        immutable=_fixed("preemptionPolicy"),
        prepare_create=strategies.create_priority_class,
        protected=frozenset({"system-cluster-critical", "system-node-critical"}),
        protection="this is a system priority class and cannot be deleted",
    )


_BOUND: Final[dict[str, Callable[[Storage, ServiceAddresses], Strategy]]] = {
    "persistentvolumeclaims": _claims,
    "pods": _pods,
    "services": _services,
    "ingresses.networking.k8s.io": _ingresses,
    "priorityclasses.scheduling.k8s.io": _priority_classes,
}
"""The strategies that depend on what a server has stored."""

_STRATEGIES: Final = {
    name: _with_empty_status(name, strategy)
    for name, strategy in {
        "configmaps": Strategy(
            validate=core.config_map,
        ),
        "secrets": Strategy(
            validate=core.secret,
            immutable=_fixed("type"),
            admit=strategies.admit_secret,
        ),
        "endpoints": Strategy(validate=network.endpoints, create_on_update=True),
        "limitranges": Strategy(validate=core.limit_range, create_on_update=True),
        "podtemplates": Strategy(
            validate=workloads.pod_template,
            create_on_update=True,
            generation=True,
            returns_deleted=True,
        ),
        "events": Strategy(
            validate=core.event,
            propagation=None,
            create_on_update=True,
            name_style=NameStyle.PATH_SEGMENT,
        ),
        "namespaces": Strategy(
            validate=core.namespace,
            name_style=NameStyle.LABEL,
            admit=strategies.admit_namespace,
            prepare_create=strategies.create_namespace,
            prepare_update=strategies.update_namespace,
            prepare_delete=strategies.delete_namespace,
            subresources={"finalize": strategies.only_namespace_finalizers},
            returns_deleted=True,
            protected=frozenset({"default", "kube-public", "kube-system"}),
            protection="this namespace may not be deleted",
        ),
        "nodes": Strategy(
            validate=core.node,
            admit=strategies.admit_node,
            status_on_create=True,
        ),
        "persistentvolumes": Strategy(
            validate=volumes.persistent_volume,
            immutable={"spec.volumeMode": "volumeMode"},
            admit=strategies.admit_volume,
            prepare_create=strategies.create_volume,
            prepare_delete=strategies.delete_volume,
            returns_deleted=True,
        ),
        "replicationcontrollers": Strategy(
            validate=workloads.controller,
            propagation="Orphan",
            generation=True,
        ),
        "resourcequotas": Strategy(
            validate=core.quota,
            returns_deleted=True,
        ),
        "serviceaccounts": Strategy(returns_deleted=True),
        "daemonsets.apps": Strategy(
            validate=workloads.daemon_set,
            immutable=_fixed("spec.selector"),
            generation=True,
            prepare_create=strategies.create_daemon_set,
            prepare_update=strategies.update_daemon_set,
        ),
        "deployments.apps": Strategy(
            generation=True,
            validate=workloads.deployment,
            immutable=_fixed("spec.selector"),
            prepare_status=strategies.update_deployment_status,
            annotations_count=True,
        ),
        "replicasets.apps": Strategy(
            generation=True,
            validate=workloads.replica_set,
            immutable=_fixed("spec.selector"),
        ),
        "statefulsets.apps": Strategy(
            generation=True,
            validate=workloads.stateful_set,
            name_style=NameStyle.LABEL,
            prepare_create=strategies.create_stateful_set,
            prepare_update=strategies.update_stateful_set,
        ),
        "events.events.k8s.io": Strategy(
            validate=core.event,
            propagation=None,
            immutable={
                "regarding": "involvedObject",
                "reason": "reason",
                "note": "message",
                "deprecatedSource": "source",
                "deprecatedFirstTimestamp": "firstTimestamp",
                "deprecatedLastTimestamp": "lastTimestamp",
                "deprecatedCount": "count",
                "type": "type",
                "action": "action",
                "related": "related",
                "reportingController": "reportingController",
                "reportingInstance": "reportingInstance",
                "eventTime": "eventTime",
            },
            create_on_update=True,
            name_style=NameStyle.PATH_SEGMENT,
            error_group="",
        ),
        "horizontalpodautoscalers.autoscaling": Strategy(
            validate=autoscaler,
            prepare_create=autoscaler_versions.create,
            prepare_update=autoscaler_versions.keep_status,
            prepare_status=autoscaler_versions.keep_spec,
        ),
        "cronjobs.batch": Strategy(
            validate=jobs.cron_job,
            generation=True,
        ),
        "jobs.batch": Strategy(
            validate=jobs.job,
            propagation="Orphan",
            immutable=_fixed(
                "spec.selector",
                "spec.completionMode",
                "spec.podFailurePolicy",
                "spec.backoffLimitPerIndex",
                "spec.managedBy",
                "spec.successPolicy",
            ),
            generation=True,
            prepare_create=strategies.create_job,
        ),
        "certificatesigningrequests.certificates.k8s.io": Strategy(
            names_requester=True,
            prepare_update=strategies.update_request,
            subresources={
                "approval": strategies.only_request_approval,
                "status": strategies.only_request_status,
            },
        ),
        "networkpolicies.networking.k8s.io": Strategy(
            validate=network.network_policy, generation=True
        ),
        "ingressclasses.networking.k8s.io": Strategy(
            validate=network.ingress_class, immutable=_fixed("spec.controller"), generation=True
        ),
        "poddisruptionbudgets.policy": Strategy(
            validate=core.disruption_budget,
            generation=True,
            unconditional_update=False,
            name_style=NameStyle.PATH_SEGMENT,
        ),
        "storageclasses.storage.k8s.io": Strategy(
            validate=volumes.storage_class,
            immutable=_fixed("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
            returns_deleted=True,
        ),
        "csidrivers.storage.k8s.io": Strategy(
            validate=volumes.csi_driver,
            immutable={
                "spec.attachRequired": "spec.attachedRequired",
                "spec.volumeLifecycleModes": "spec.volumeLifecycleModes",
            },
            unconditional_update=False,
            returns_deleted=True,
        ),
        "csinodes.storage.k8s.io": Strategy(
            validate=volumes.csi_node, unconditional_update=False, returns_deleted=True
        ),
        "volumeattachments.storage.k8s.io": Strategy(
            validate=volumes.attachment,
            immutable=_fixed("spec"),
            unconditional_update=False,
            returns_deleted=True,
        ),
        "validatingadmissionpolicies.admissionregistration.k8s.io": _POLICY,
        "validatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY,
        "apiservices.apiregistration.k8s.io": Strategy(
            unconditional_update=False,
        ),
        "runtimeclasses.node.k8s.io": Strategy(
            validate=workloads.runtime_class,
            immutable=_fixed("handler"),
            unconditional_update=False,
        ),
        "leases.coordination.k8s.io": Strategy(
            validate=core.lease,
            unconditional_update=False,
            create_on_update=True,
            prepare_create=strategies.create_lease,
            prepare_update=strategies.update_lease,
        ),
        "endpointslices.discovery.k8s.io": Strategy(
            validate=network.endpoint_slice, immutable=_fixed("addressType"), generation=True
        ),
        "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(generation=True),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
            generation=True,
        ),
        "controllerrevisions.apps": Strategy(
            immutable=_fixed("data"),
        ),
        "csistoragecapacities.storage.k8s.io": Strategy(
            immutable=_fixed("nodeTopology", "storageClassName"),
        ),
    }.items()
}
"""The strategies that all servers share."""
