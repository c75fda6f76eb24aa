"""A base of kustomize, a component for Prometheus, and overlays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from appsdk_operator.project._manifests import (
    bindings,
    hooks,
    monitoring,
    network,
    workload,
)
from appsdk_operator.project._manifests.tree import Commented, Node, document
from appsdk_operator.project._manifests.values import (
    Deployed,
    Values,
    for_kustomize,
    image_of,
    image_parts,
)

_API = "kustomize.config.k8s.io"


def base_objects(
    deployed: Deployed, values: Values, *, budget: bool
) -> dict[str, list[dict[str, Node]]]:
    """The objects of each file of the base.

    Args:
        deployed: the App and its options.
        values: the differences between installations.
        budget: whether a disruption budget is among them.
    """
    granted = bindings.role_objects(deployed, values)
    found: dict[str, list[dict[str, Node]]] = {
        "namespace.yaml": [workload.namespace(deployed, values)],
        "crds.yaml": hooks.crds(deployed, values),
        "service_account.yaml": [bindings.account(deployed, values)],
        "role.yaml": [each for each in granted if not each["kind"].endswith("Binding")],
        "role_binding.yaml": [each for each in granted if each["kind"].endswith("Binding")],
        "user_roles.yaml": bindings.user_roles(deployed),
        "deployment.yaml": [workload.deployment(deployed, values)],
        "disruption_budget.yaml": [workload.disruption_budget(deployed, values)] if budget else [],
        "metrics_service.yaml": [network.metrics_service(deployed, values)],
        "network_policy.yaml": [network.network_policy(deployed, values)],
    }
    if deployed.has_webhooks:
        found["webhook_service.yaml"] = [network.webhook_service(deployed, values)]
        found["webhooks.yaml"] = hooks.configurations(deployed, values)
    if deployed.certificates == "cert-manager":
        found["certificate.yaml"] = hooks.certificate_objects(deployed, values)
    return {path: objects for path, objects in found.items() if objects}


def monitoring_objects(deployed: Deployed, values: Values) -> dict[str, list[dict[str, Node]]]:
    """The objects of each file of the component for Prometheus' operator."""
    return {
        "service_monitor.yaml": [monitoring.service_monitor(deployed, values)],
        "prometheus_rule.yaml": [monitoring.prometheus_rule(deployed, values)],
    }


def kustomize_texts(deployed: Deployed) -> dict[str, str]:
    """The text of each file, by its path."""
    values = for_kustomize(deployed)
    base = base_objects(deployed, values, budget=deployed.replicas > 1)
    scraped = monitoring_objects(deployed, values)
    return {
        "base/kustomization.yaml": _kustomization(base),
        **{f"base/{path}": joined(objects) for path, objects in base.items()},
        "components/monitoring/kustomization.yaml": _kustomization(scraped, is_component=True),
        **{f"components/monitoring/{path}": joined(objects) for path, objects in scraped.items()},
        "overlays/development/kustomization.yaml": _development(deployed),
        "overlays/production/kustomization.yaml": _production(deployed),
    }


def joined(objects: Iterable[Mapping[str, Node]]) -> str:
    """Documents of one file."""
    return "---\n".join(document(each) for each in objects)


def _kustomization(paths: Iterable[str], *, is_component: bool = False) -> str:
    version, kind = ("v1alpha1", "Component") if is_component else ("v1beta1", "Kustomization")
    return document({"apiVersion": f"{_API}/{version}", "kind": kind, "resources": list(paths)})


def _image(deployed: Deployed) -> dict[str, Any]:
    name, tag, digest = image_parts(image_of(deployed))
    if not digest:
        return {"name": name, "newTag": tag or "latest"}
    return {"name": name, "digest": digest, **({"newTag": tag} if tag else {})}


def _development(deployed: Deployed) -> str:
    patch: list[Node] = [
        {"op": "replace", "path": "/spec/replicas", "value": 1},
        {
            "op": "replace",
            "path": "/spec/template/spec/containers/0/args/2",
            "value": "--log-level=debug",
        },
        {
            "op": "replace",
            "path": "/spec/template/spec/containers/0/args/3",
            "value": "--log-format=text",
        },
    ]
    return document(
        {
            "apiVersion": f"{_API}/v1beta1",
            "kind": "Kustomization",
            "resources": ["../../base"],
            "images": [_image(deployed)],
            "patches": [
                {
                    "target": {"kind": "Deployment", "name": deployed.name},
                    "patch": _patch_text(patch),
                }
            ],
        }
    )


def _production(deployed: Deployed) -> str:
    wanted: dict[str, Node] = {
        "apiVersion": f"{_API}/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../base"],
    }
    if deployed.options.monitoring:
        wanted["components"] = Commented(
            ["../../components/monitoring"], ("It needs the CRDs of Prometheus' operator.",)
        )
        wanted["images"] = [_image(deployed)]
    else:
        wanted["images"] = Commented(
            [_image(deployed)],
            (
                "With Prometheus' operator in the cluster, appsdk-operator manifests --monitoring",
                "adds the component in ../../components/monitoring.",
            ),
        )
    return document(wanted)


def _patch_text(operations: list[Node]) -> str:
    """A JSON patch, as the text that kustomize wants."""
    return document({"x": operations}).removeprefix("x:\n")
