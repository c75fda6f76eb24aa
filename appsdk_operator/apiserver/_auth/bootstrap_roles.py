"""The default cluster roles and bindings of RBAC, except those of controllers and kubelets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

RBAC_GROUP: Final = "rbac.authorization.k8s.io"

_AGGREGATE: Final = f"{RBAC_GROUP}/aggregate-to-"

# A role per paragraph, a rule per line: verbs, then resources of groups, or URLs. "<edit" is the
# label that aggregates its rules to edit, ">edit" selects that label. From kube-apiserver 1.36.
_ROLES: Final = """
cluster-admin
  * in *: *
  * at *
admin >admin
edit <admin >edit
view <edit >view
system:aggregate-to-admin <admin
  create in authorization.k8s.io: localsubjectaccessreviews
  create,delete,deletecollection,get,list,patch,update,watch in rbac.authorization.k8s.io:
    rolebindings roles
system:aggregate-to-edit <edit
  get,list,watch in core: pods/attach pods/exec pods/portforward pods/proxy secrets
    services/proxy
  impersonate in core: serviceaccounts
  create,delete,deletecollection,patch,update in core: pods pods/attach pods/exec
    pods/portforward pods/proxy
  create in core: pods/eviction
  create,delete,deletecollection,patch,update in core: configmaps persistentvolumeclaims
    replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services
    services/proxy
  create in core: serviceaccounts/token
  create,delete,deletecollection,patch,update in core,events.k8s.io: events
  create,delete,deletecollection,patch,update in apps: daemonsets deployments
    deployments/rollback deployments/scale replicasets replicasets/scale statefulsets
    statefulsets/scale
  create,delete,deletecollection,patch,update in autoscaling: horizontalpodautoscalers
  create,delete,deletecollection,patch,update in batch: cronjobs jobs
  create,delete,deletecollection,patch,update in extensions: daemonsets deployments
    deployments/rollback deployments/scale ingresses networkpolicies replicasets
    replicasets/scale replicationcontrollers/scale
  create,delete,deletecollection,patch,update in policy: poddisruptionbudgets
  create,delete,deletecollection,patch,update in networking.k8s.io: ingresses networkpolicies
  create,delete,deletecollection,get,list,patch,update,watch in coordination.k8s.io: leases
  create,delete,deletecollection,patch,update in resource.k8s.io: resourceclaims
    resourceclaimtemplates
system:aggregate-to-view <view
  get,list,watch in core: configmaps endpoints persistentvolumeclaims
    persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale
    serviceaccounts services services/status
  get,list,watch in core: bindings limitranges namespaces/status pods/log pods/status
    replicationcontrollers/status resourcequotas resourcequotas/status
  get,list,watch in core: namespaces
  get,list,watch in core,events.k8s.io: events
  get,list,watch in discovery.k8s.io: endpointslices
  get,list,watch in apps: controllerrevisions daemonsets daemonsets/status deployments
    deployments/scale deployments/status replicasets replicasets/scale replicasets/status
    statefulsets statefulsets/scale statefulsets/status
  get,list,watch in autoscaling: horizontalpodautoscalers horizontalpodautoscalers/status
  get,list,watch in batch: cronjobs cronjobs/status jobs jobs/status
  get,list,watch in extensions: daemonsets daemonsets/status deployments deployments/scale
    deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale
    replicasets/status replicationcontrollers/scale
  get,list,watch in policy: poddisruptionbudgets poddisruptionbudgets/status
  get,list,watch in networking.k8s.io: ingresses ingresses/status networkpolicies
  get,list,watch in resource.k8s.io: resourceclaims resourceclaims/status resourceclaimtemplates
system:auth-delegator
  create in authentication.k8s.io: tokenreviews
  create in authorization.k8s.io: subjectaccessreviews
system:basic-user
  create in authorization.k8s.io: selfsubjectaccessreviews selfsubjectrulesreviews
  create in authentication.k8s.io: selfsubjectreviews
system:discovery
  get at /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version
    /version/
system:monitoring
  get at /flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*
    /statusz
  get in core: nodes/metrics
system:public-info-viewer
  get at /healthz /livez /readyz /version /version/
system:service-account-issuer-discovery
  get at /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks
    /openid/v1/jwks/
"""

_BINDINGS: Final = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def bootstrap_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """The cluster roles and their bindings, each with the plural of its kind."""
    joined = _ROLES.replace("\n    ", " ")
    role: dict[str, Any] = {}
    for line in filter(None, joined.splitlines()):
        if line.startswith(" "):
            role["rules"].append(_rule(line.strip()))
            continue
        if role:
            yield "clusterroles", role
        role = _role(line)
    yield "clusterroles", role
    for name, groups in _BINDINGS.items():
        yield (
            "clusterrolebindings",
            {
                "kind": "ClusterRoleBinding",
                "metadata": _metadata(name),
                "subjects": [
                    {"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups
                ],
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
            },
        )


def _metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _role(line: str) -> dict[str, Any]:
    name, *words = line.split()
    metadata = _metadata(name)
    role = {"kind": "ClusterRole", "metadata": metadata, "rules": []}
    aggregated_rules = [word[1:] for word in words if word.startswith(">")]
    for word in words:
        if word.startswith("<"):
            metadata["labels"][_AGGREGATE + word[1:]] = "true"
    if aggregated_rules:
        selectors = [{"matchLabels": {_AGGREGATE + target: "true"}} for target in aggregated_rules]
        role["aggregationRule"] = {"clusterRoleSelectors": selectors}
        del role["rules"]
    return role


def _rule(text: str) -> dict[str, Any]:
    verbs, _, rest = text.partition(" ")
    rule: dict[str, Any] = {"verbs": verbs.split(",")}
    place, _, rest = rest.partition(" ")
    if place == "at":
        return {**rule, "nonResourceURLs": rest.split()}
    groups, _, resources = rest.partition(": ")
    named = ["" if group == "core" else group for group in groups.split(",")]
    return {**rule, "apiGroups": named, "resources": resources.split()}
