"""The defaults of built-in kinds, by definition.

They apply wherever the definition occurs: to a container of a pod and to one in the template of a
CronJob's Job. Defaults that the OpenAPI documents contain are not repeated here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, Final

_Object = dict[str, Any]
_ADMISSION: Final = "io.k8s.api.admissionregistration.v1."
_APPS: Final = "io.k8s.api.apps.v1."
_AUTOSCALING: Final = "io.k8s.api.autoscaling."
_BATCH: Final = "io.k8s.api.batch.v1."
_CORE: Final = "io.k8s.api.core.v1."
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_FLOW: Final = "io.k8s.api.flowcontrol.v1."
_NETWORKING: Final = "io.k8s.api.networking.v1."
_RBAC: Final = "io.k8s.api.rbac.v1."
_STORAGE: Final = "io.k8s.api.storage.v1."

_MODE: Final = {"defaultMode": 420}
_TCP: Final = {"protocol": "TCP"}
_WEBHOOK: Final = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
_HTTPS: Final = {"port": 443}

VALUES: Final[dict[str, dict[str, Any]]] = {
    f"{_CORE}ConfigMapVolumeSource": _MODE,
    f"{_CORE}DownwardAPIVolumeSource": _MODE,
    f"{_CORE}EndpointPort": _TCP,
    f"{_CORE}HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    f"{_CORE}HostPathVolumeSource": {"type": ""},
    f"{_CORE}NamespaceStatus": {"phase": "Active"},
    f"{_CORE}ObjectFieldSelector": {"apiVersion": "v1"},
    f"{_CORE}PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    f"{_CORE}PersistentVolumeClaimStatus": {"phase": "Pending"},
    f"{_CORE}PersistentVolumeSpec": {
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    },
    f"{_CORE}PersistentVolumeStatus": {"phase": "Pending"},
    f"{_CORE}PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
    },
    f"{_CORE}Probe": {
        "failureThreshold": 3,
        "periodSeconds": 10,
        "successThreshold": 1,
        "timeoutSeconds": 1,
    },
    f"{_CORE}ProjectedVolumeSource": _MODE,
    f"{_CORE}ReplicationControllerSpec": {"replicas": 1},
    f"{_CORE}Secret": {"type": "Opaque"},
    f"{_CORE}SecretVolumeSource": _MODE,
    f"{_CORE}ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    f"{_ADMISSION}MatchResources": {"matchPolicy": "Equivalent"},
    f"{_ADMISSION}MutatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    f"{_ADMISSION}MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    f"{_ADMISSION}NamedRuleWithOperations": {"scope": "*"},
    f"{_ADMISSION}RuleWithOperations": {"scope": "*"},
    f"{_ADMISSION}ServiceReference": _HTTPS,
    f"{_ADMISSION}ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
    f"{_ADMISSION}ValidatingWebhook": _WEBHOOK,
    f"{_APPS}DaemonSetSpec": {"revisionHistoryLimit": 10},
    f"{_APPS}DeploymentSpec": {
        "progressDeadlineSeconds": 600,
        "replicas": 1,
        "revisionHistoryLimit": 10,
    },
    f"{_APPS}ReplicaSetSpec": {"replicas": 1},
    f"{_APPS}StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    },
    f"{_APPS}StatefulSetSpec": {
        "podManagementPolicy": "OrderedReady",
        "replicas": 1,
        "revisionHistoryLimit": 10,
    },
    f"{_AUTOSCALING}v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    f"{_AUTOSCALING}v2.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    f"{_BATCH}CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "failedJobsHistoryLimit": 1,
        "successfulJobsHistoryLimit": 3,
        "suspend": False,
    },
    f"{_BATCH}PodFailurePolicyOnPodConditionsPattern": {"status": "True"},
    "io.k8s.api.discovery.v1.EndpointPort": {"name": "", **_TCP},
    f"{_FLOW}ExemptPriorityLevelConfiguration": {
        "lendablePercent": 0,
        "nominalConcurrencyShares": 0,
    },
    f"{_FLOW}FlowSchemaSpec": {"matchingPrecedence": 1000},
    f"{_FLOW}LimitedPriorityLevelConfiguration": {
        "lendablePercent": 0,
        "nominalConcurrencyShares": 30,
    },
    f"{_FLOW}QueuingConfiguration": {"handSize": 8, "queueLengthLimit": 50, "queues": 64},
    f"{_NETWORKING}IngressClassParametersReference": {"scope": "Cluster"},
    f"{_NETWORKING}NetworkPolicyPort": _TCP,
    f"{_RBAC}RoleRef": {"apiGroup": "rbac.authorization.k8s.io"},
    "io.k8s.api.scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    f"{_STORAGE}CSIDriverSpec": {
        "attachRequired": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "podInfoOnMount": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "storageCapacity": False,
    },
    f"{_STORAGE}StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference": _HTTPS,
}
"""The values of missing fields, by definition."""


def _webhook(hook: _Object) -> None:
    hook.setdefault("namespaceSelector", {})
    hook.setdefault("objectSelector", {})


_IMAGE: Final = re.compile(r"([\w.:-]+/)*[a-z0-9]+([._-]+[a-z0-9]+)*(:(?P<tag>[\w.-]+))?(@.+)?")


def _pull_policy(image: str) -> str:
    """``Always`` for images with the tag ``latest``, or without tag and digest."""
    name = _IMAGE.fullmatch(image)
    if name is None:
        return "IfNotPresent"
    tag = name["tag"] or ("" if "@" in image else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _container(container: _Object) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")


def _volume(volume: _Object) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference", ""))


def _pod_spec(spec: _Object) -> None:
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]


def _pod(pod: _Object) -> None:
    spec = pod["spec"]
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            resources = container["resources"]
            if resources.get("limits"):
                requests = resources.setdefault("requests", {})
                for key, value in resources["limits"].items():
                    requests.setdefault(key, value)
            # Those in a template stay as they are, until pods are made of it.
            for port in container.get("ports") or () if spec.get("hostNetwork") else ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]
    spec.setdefault("enableServiceLinks", True)


def _secret(secret: _Object) -> None:
    # stringData moves to data when a secret is decoded.
    for name, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[name] = base64.b64encode(str(text).encode()).decode()


def _definition(spec: _Object) -> None:
    names = spec.get("names") or {}
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _pod_status(status: _Object) -> None:
    """``podIP`` and the first of ``podIPs`` are the same."""
    if status.get("podIPs") and not status.get("podIP"):
        status["podIP"] = status["podIPs"][0].get("ip", "")
    elif status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]


def _service_spec(spec: _Object) -> None:
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", ()):
        if port.get("targetPort") in (0, "", None):
            port["targetPort"] = port["port"]
    external = kind == "ClusterIP" and spec.get("externalIPs")
    if kind in ("NodePort", "LoadBalancer") or external:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _limits(item: _Object) -> None:
    if item["type"] != "Container":
        return
    default = item.get("default") or {}
    default = {**item.get("max", {}), **default}
    request = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
    if default:
        item["default"] = default
    if request:
        item["defaultRequest"] = request


def _namespace(namespace: _Object) -> None:
    name = namespace["metadata"].get("name")
    if name:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _controller(controller: _Object) -> None:
    template = controller["spec"].get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if labels:
        if not controller["spec"].get("selector"):
            controller["spec"]["selector"] = dict(labels)
        controller["metadata"].setdefault("labels", dict(labels))


def _deployment_strategy(strategy: _Object) -> None:
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _daemon_set_strategy(strategy: _Object) -> None:
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


def _stateful_set_strategy(strategy: _Object) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        rolling.setdefault("partition", 0)


def _stateful_set_spec(spec: _Object) -> None:
    for claim in spec.get("volumeClaimTemplates", ()):
        claim.update({"kind": "PersistentVolumeClaim", "apiVersion": "v1"})
    policy = VALUES[f"{_APPS}StatefulSetPersistentVolumeClaimRetentionPolicy"]
    spec.setdefault("persistentVolumeClaimRetentionPolicy", dict(policy))


def _job(job: _Object) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    spec.setdefault("manualSelector", False)
    labels = spec["template"]["metadata"].get("labels")
    if labels:
        job["metadata"].setdefault("labels", dict(labels))


def _autoscaler_spec(spec: _Object) -> None:
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
            **behavior.get("scaleUp", {}),
        }
        behavior["scaleDown"] = {
            "selectPolicy": "Max",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            **behavior.get("scaleDown", {}),
        }


def _network_policy(spec: _Object) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _subject(subject: _Object) -> None:
    if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
        subject["apiGroup"] = "rbac.authorization.k8s.io"


def _driver(spec: _Object) -> None:
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _node_spec(spec: _Object) -> None:
    networks = spec.get("podCIDRs") or []
    if spec.get("podCIDR") and networks[:1] != [spec["podCIDR"]]:
        spec["podCIDRs"] = [spec["podCIDR"]]
    elif networks:
        spec["podCIDR"] = networks[0]


def _node_status(status: _Object) -> None:
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])


FILLERS: Final[dict[str, Callable[[_Object], None]]] = {
    f"{_ADMISSION}MatchResources": _webhook,
    f"{_ADMISSION}MutatingWebhook": _webhook,
    f"{_ADMISSION}ValidatingWebhook": _webhook,
    f"{_APPS}DaemonSetUpdateStrategy": _daemon_set_strategy,
    f"{_APPS}DeploymentStrategy": _deployment_strategy,
    f"{_APPS}StatefulSetSpec": _stateful_set_spec,
    f"{_APPS}StatefulSetUpdateStrategy": _stateful_set_strategy,
    f"{_AUTOSCALING}v2.HorizontalPodAutoscalerSpec": _autoscaler_spec,
    f"{_BATCH}Job": _job,
    f"{_CORE}Container": _container,
    f"{_CORE}EphemeralContainer": _container,
    f"{_CORE}LimitRangeItem": _limits,
    f"{_CORE}Namespace": _namespace,
    f"{_CORE}NodeSpec": _node_spec,
    f"{_CORE}NodeStatus": _node_status,
    f"{_CORE}Pod": _pod,
    f"{_CORE}PodSpec": _pod_spec,
    f"{_CORE}PodStatus": _pod_status,
    f"{_CORE}ReplicationController": _controller,
    f"{_CORE}Secret": _secret,
    f"{_CORE}ServiceSpec": _service_spec,
    f"{_CORE}Volume": _volume,
    f"{_NETWORKING}NetworkPolicySpec": _network_policy,
    f"{_RBAC}Subject": _subject,
    f"{_STORAGE}CSIDriverSpec": _driver,
    f"{_EXTENSIONS}CustomResourceDefinitionSpec": _definition,
}
"""Functions for defaults that depend on other fields, by definition."""
