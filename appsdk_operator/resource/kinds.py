"""The built-in kinds of Kubernetes.

Each is an attribute by group, version and name::

    from appsdk_operator import kinds

    kinds.core.v1.ConfigMap
    kinds.apps.v1.Deployment.typed(spec=MyDeploymentSpec)

:func:`builtin_kinds` yields all of them with singular and short names, categories, subresources
and verbs, which servers and command lines need. The table is that of the discovery documents of
Kubernetes 1.32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from appsdk_operator.resource._builtin_groups import ALL_VERBS, BuiltinKind, Group, Version
from appsdk_operator.resource._kind import Kind, Scope

__all__ = [
    "ALL_VERBS",
    "BuiltinKind",
    "Group",
    "Version",
    "admissionregistration",
    "apiextensions",
    "apiregistration",
    "apps",
    "authentication",
    "authorization",
    "autoscaling",
    "batch",
    "builtin_kinds",
    "certificates",
    "coordination",
    "core",
    "discovery",
    "events",
    "flowcontrol",
    "networking",
    "node",
    "policy",
    "rbac",
    "scheduling",
    "storage",
]


def builtin_kinds() -> Iterator[BuiltinKind]:
    """Every built-in kind, group by group in the order of the table."""
    return iter(_ROWS)


# Attribute name and full name of each group. The most common first: discovery lists them so.
_NAMES: Final = {
    "core": "",
    "apiregistration": "apiregistration.k8s.io",
    "apps": "apps",
    "events": "events.k8s.io",
    "authentication": "authentication.k8s.io",
    "authorization": "authorization.k8s.io",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "certificates": "certificates.k8s.io",
    "networking": "networking.k8s.io",
    "policy": "policy",
    "rbac": "rbac.authorization.k8s.io",
    "storage": "storage.k8s.io",
    "admissionregistration": "admissionregistration.k8s.io",
    "apiextensions": "apiextensions.k8s.io",
    "scheduling": "scheduling.k8s.io",
    "coordination": "coordination.k8s.io",
    "node": "node.k8s.io",
    "discovery": "discovery.k8s.io",
    "flowcontrol": "flowcontrol.apiserver.k8s.io",
}

# One section a version, one line a kind: its name and plural; "cluster" where it is in no
# namespace; short names, categories it is in, subresources, and the verbs unless it has all.
# "api" is short for the category api-extensions.
_TABLE: Final = """
core.v1
  Binding bindings verbs=create
  ComponentStatus componentstatuses cluster short=cs verbs=get,list
  ConfigMap configmaps short=cm
  Endpoints endpoints short=ep
  Event events short=ev
  LimitRange limitranges short=limits
  Namespace namespaces cluster short=ns sub=finalize,status verbs=create,delete,get,list,patch,update,watch
  Node nodes cluster short=no sub=status
  PersistentVolumeClaim persistentvolumeclaims short=pvc sub=status
  PersistentVolume persistentvolumes cluster short=pv sub=status
  Pod pods short=po in=all sub=attach,binding,ephemeralcontainers,eviction,exec,portforward,resize,status
  PodTemplate podtemplates
  ReplicationController replicationcontrollers short=rc in=all sub=scale,status
  ResourceQuota resourcequotas short=quota sub=status
  Secret secrets
  ServiceAccount serviceaccounts short=sa sub=token
  Service services short=svc in=all sub=status
apiregistration.v1
  APIService apiservices cluster in=api sub=status
apps.v1
  ControllerRevision controllerrevisions
  DaemonSet daemonsets short=ds in=all sub=status
  Deployment deployments short=deploy in=all sub=scale,status
  ReplicaSet replicasets short=rs in=all sub=scale,status
  StatefulSet statefulsets short=sts in=all sub=scale,status
events.v1
  Event events short=ev
authentication.v1
  SelfSubjectReview selfsubjectreviews cluster verbs=create
  TokenReview tokenreviews cluster verbs=create
authorization.v1
  LocalSubjectAccessReview localsubjectaccessreviews verbs=create
  SelfSubjectAccessReview selfsubjectaccessreviews cluster verbs=create
  SelfSubjectRulesReview selfsubjectrulesreviews cluster verbs=create
  SubjectAccessReview subjectaccessreviews cluster verbs=create
autoscaling.v2
  HorizontalPodAutoscaler horizontalpodautoscalers short=hpa in=all sub=status
autoscaling.v1
  HorizontalPodAutoscaler horizontalpodautoscalers short=hpa in=all sub=status
batch.v1
  CronJob cronjobs short=cj in=all sub=status
  Job jobs in=all sub=status
certificates.v1
  CertificateSigningRequest certificatesigningrequests cluster short=csr sub=approval,status
networking.v1
  IngressClass ingressclasses cluster
  Ingress ingresses short=ing sub=status
  NetworkPolicy networkpolicies short=netpol
policy.v1
  PodDisruptionBudget poddisruptionbudgets short=pdb sub=status
rbac.v1
  ClusterRoleBinding clusterrolebindings cluster
  ClusterRole clusterroles cluster
  RoleBinding rolebindings
  Role roles
storage.v1
  CSIDriver csidrivers cluster
  CSINode csinodes cluster
  CSIStorageCapacity csistoragecapacities
  StorageClass storageclasses cluster short=sc
  VolumeAttachment volumeattachments cluster sub=status
admissionregistration.v1
  MutatingWebhookConfiguration mutatingwebhookconfigurations cluster in=api
  ValidatingAdmissionPolicy validatingadmissionpolicies cluster in=api sub=status
  ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings cluster in=api
  ValidatingWebhookConfiguration validatingwebhookconfigurations cluster in=api
apiextensions.v1
  CustomResourceDefinition customresourcedefinitions cluster short=crd,crds in=api sub=status
scheduling.v1
  PriorityClass priorityclasses cluster short=pc
coordination.v1
  Lease leases
node.v1
  RuntimeClass runtimeclasses cluster
discovery.v1
  EndpointSlice endpointslices
flowcontrol.v1
  FlowSchema flowschemas cluster sub=status
  PriorityLevelConfiguration prioritylevelconfigurations cluster sub=status
"""  # noqa: E501 - a line is a kind


def _rows() -> Iterator[BuiltinKind]:
    group = version = ""
    for line in filter(None, _TABLE.splitlines()):
        if line.startswith(" "):
            yield _row(line, group, version)
        else:
            short, _, version = line.partition(".")
            group = _NAMES[short]


def _row(line: str, group: str, version: str) -> BuiltinKind:
    kind, plural, *words = line.split()
    facts = dict(word.split("=") for word in words if "=" in word)
    several = {name: tuple(value.split(",")) for name, value in facts.items()}
    return BuiltinKind(
        kind=Kind(
            group=group,
            version=version,
            kind=kind,
            plural=plural,
            scope=Scope.CLUSTER if "cluster" in words else Scope.NAMESPACED,
        ),
        singular=kind.lower(),
        short_names=several.get("short", ()),
        categories=tuple("api-extensions" if c == "api" else c for c in several.get("in", ())),
        subresources=several.get("sub", ()),
        verbs=several.get("verbs", ALL_VERBS),
    )


_ROWS: Final = tuple(_rows())
_GROUPS: Final = {
    short: Group(short, name, [row.kind for row in _ROWS if row.kind.group == name])
    for short, name in _NAMES.items()
}

if TYPE_CHECKING:
    # Made from the table by hack/kinds_stub.py.
    from appsdk_operator.resource._builtin_names import (
        admissionregistration,
        apiextensions,
        apiregistration,
        apps,
        authentication,
        authorization,
        autoscaling,
        batch,
        certificates,
        coordination,
        core,
        discovery,
        events,
        flowcontrol,
        networking,
        node,
        policy,
        rbac,
        scheduling,
        storage,
    )
else:
    core = _GROUPS["core"]
    apiregistration = _GROUPS["apiregistration"]
    apps = _GROUPS["apps"]
    events = _GROUPS["events"]
    authentication = _GROUPS["authentication"]
    authorization = _GROUPS["authorization"]
    autoscaling = _GROUPS["autoscaling"]
    batch = _GROUPS["batch"]
    certificates = _GROUPS["certificates"]
    networking = _GROUPS["networking"]
    policy = _GROUPS["policy"]
    rbac = _GROUPS["rbac"]
    storage = _GROUPS["storage"]
    admissionregistration = _GROUPS["admissionregistration"]
    apiextensions = _GROUPS["apiextensions"]
    scheduling = _GROUPS["scheduling"]
    coordination = _GROUPS["coordination"]
    node = _GROUPS["node"]
    discovery = _GROUPS["discovery"]
    flowcontrol = _GROUPS["flowcontrol"]
