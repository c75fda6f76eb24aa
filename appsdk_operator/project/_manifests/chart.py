"""The Helm chart, of the same objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator.project._manifests.kustomize import base_objects, monitoring_objects
from appsdk_operator.project._manifests.tree import Commented, Node, When, document
from appsdk_operator.project._manifests.values import (
    Deployed,
    defaults,
    for_chart,
    resources_comment,
)

_FOLDER: Final = "chart"
_CONDITIONS: Final = {
    "crds.yaml": ".Values.crds.install",
    "user_roles.yaml": ".Values.userRoles.create",
    "disruption_budget.yaml": ".Values.podDisruptionBudget.create",
    "network_policy.yaml": ".Values.networkPolicy.create",
    "service_monitor.yaml": ".Values.monitoring.create",
    "prometheus_rule.yaml": ".Values.monitoring.create",
}
_KEEP: Final = {"helm.sh/resource-policy": "keep"}
_NOTES: Final = """\
{name} runs in {{{{ .Release.Namespace }}}}:

  kubectl --namespace {{{{ .Release.Namespace }}}} rollout status deployment/{name}
"""


def chart_texts(deployed: Deployed, version: str) -> dict[str, str]:
    """The text of each file of the chart, by its path.

    Args:
        deployed: the App and its options.
        version: the version of the chart.
    """
    values = for_chart()
    # Helm makes the namespace of a release, and a disruption budget is a matter of its values.
    files = base_objects(deployed, values, budget=True) | monitoring_objects(deployed, values)
    del files["namespace.yaml"]
    texts = {
        "Chart.yaml": document(
            {
                "apiVersion": "v2",
                "name": deployed.name,
                "description": f"The operator {deployed.name}",
                "type": "application",
                "version": version,
                "appVersion": version,
                "kubeVersion": ">=1.21.0-0",
            }
        ),
        "values.yaml": _values(deployed),
        "values.schema.json": _schema_text(deployed),
        ".helmignore": "*.new\n*.orig\n.appsdk-operator/\n",
        "templates/NOTES.txt": _NOTES.format(name=deployed.name),
        **{f"templates/{path}": _template(path, objects) for path, objects in files.items()},
    }
    return {f"{_FOLDER}/{path}": text for path, text in texts.items()}


def _template(path: str, objects: list[dict[str, Node]]) -> str:
    if path == "crds.yaml":
        objects = [_kept(each) for each in objects]
    text = "---\n".join(document(each, for_helm=True) for each in objects)
    condition = _CONDITIONS.get(path)
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _kept(crd: dict[str, Node]) -> dict[str, Node]:
    """A CRD that stays, with its objects, when the release is uninstalled."""
    metadata = dict(crd["metadata"])
    known = metadata.get("annotations", {})
    kept = {key: When(".Values.crds.keep", value) for key, value in _KEEP.items()}
    annotations: Node = {**known, **kept}
    # An empty mapping would differ from none.
    metadata["annotations"] = annotations if known else When(".Values.crds.keep", dict(_KEEP))
    return {**crd, "metadata": metadata}


_COMMENTS: Final[Mapping[str, str]] = {
    "imagePullSecrets": "Secrets for the registry, as in a pod: [{name: registry}].",
    "extraArguments": "Further arguments of appsdk-operator run.",
    "environment": "Environment variables of the container, as in a pod.",
    "crds": "keep: the CRDs and all objects stay when the release is uninstalled.",
    "userRoles": "Roles for the operator's kinds, for whoever has view, edit or admin.",
    "monitoring": "A ServiceMonitor and a PrometheusRule, for Prometheus' operator; the namespace "
    "is where Prometheus runs.",
    "priorityClassName": "A PriorityClass; empty: that of the cluster.",
}


def _values(deployed: Deployed) -> str:
    tree: dict[str, Node] = {}
    for key, value in defaults(deployed).items():
        comment: tuple[str, ...] = (_COMMENTS[key],) if key in _COMMENTS else ()
        if key == "resources":
            comment = resources_comment(deployed)
        if key == "replicas" and deployed.is_alone:
            comment = ("No more than 1, because nothing elects a leader.",)
        tree[key] = Commented(value, comment)
    return document(tree)


def _schema_text(deployed: Deployed) -> str:
    schema = _schema(defaults(deployed))
    properties = schema["properties"]
    properties["replicas"] = {"type": "integer", "minimum": 0}
    if deployed.is_alone:
        properties["replicas"]["maximum"] = 1
    properties["log"]["properties"] = {
        "level": {"enum": ["debug", "info", "warning", "error"]},
        "format": {"enum": ["text", "json"]},
    }
    properties["image"]["properties"]["repository"]["minLength"] = 1
    properties["image"]["properties"]["tag"]["minLength"] = 1
    properties["image"]["properties"]["pullPolicy"] = {
        "enum": ["", "Always", "IfNotPresent", "Never"]
    }
    for key in ("requests", "limits"):
        properties["resources"]["properties"][key] = {"type": "object"}
    properties["extraArguments"]["items"] = {"type": "string"}
    # Helm's own values, which it passes to every chart.
    properties["global"] = {"type": "object"}
    whole = {"$schema": "https://json-schema.org/draft-07/schema#", **schema}
    return json.dumps(whole, indent=2) + "\n"


def _schema(value: Any) -> dict[str, Any]:
    """The schema of a default value."""
    if isinstance(value, Mapping):
        if not value:
            return {"type": "object"}
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: _schema(item) for key, item in value.items()},
        }
    if isinstance(value, list):
        return {"type": "array"}
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "integer" if isinstance(value, int) else "string"}
