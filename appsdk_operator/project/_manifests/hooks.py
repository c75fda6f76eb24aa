"""What the API server needs of an App: CRDs, webhook configurations and their certificate."""

from __future__ import annotations

from typing import Any

from appsdk_operator.project._manifests.tree import Expression, Node, replaced
from appsdk_operator.project._manifests.values import PLACEHOLDER, Deployed, Values, manifest
from appsdk_operator.webhooks import webhook_configurations

_INJECT = "cert-manager.io/inject-ca-from"


def crds(deployed: Deployed, values: Values) -> list[dict[str, Node]]:
    """The CustomResourceDefinitions; those that are converted name the Service."""
    found = []
    for crd in deployed.app.crds(service=(PLACEHOLDER, deployed.service)):
        tree = dict(crd)
        if "conversion" in crd["spec"]:
            tree = _with_authority(tree, deployed, values)
        found.append(_placed(tree, values))
    return found


def configurations(deployed: Deployed, values: Values) -> list[dict[str, Node]]:
    """The webhook configurations of its admission webhooks."""
    rules = deployed.app.webhooks.rules
    if not rules:
        return []
    made = webhook_configurations(
        rules,
        name=deployed.name,
        service=(PLACEHOLDER, deployed.service),
        labels=deployed.labels,
    )
    return [_placed(_with_authority(dict(each), deployed, values), values) for each in made]


def _with_authority(tree: dict[str, Any], deployed: Deployed, values: Values) -> dict[str, Node]:
    if deployed.certificates != "cert-manager":
        return tree
    source: Node = f"{values.namespace}/{deployed.service}"
    if isinstance(values.namespace, Expression):
        source = Expression(f"{values.namespace.text}/{deployed.service}")
    metadata = dict(tree["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), _INJECT: source}
    return {**tree, "metadata": metadata}


def _placed(tree: dict[str, Any], values: Values) -> dict[str, Node]:
    found: dict[str, Node] = replaced(tree, PLACEHOLDER, values.namespace)
    return found


def certificate_objects(deployed: Deployed, values: Values) -> list[dict[str, Node]]:
    """The issuer and the certificate of cert-manager."""

    def dns_name(suffix: str) -> Node:
        if isinstance(values.namespace, Expression):
            return Expression(f"{deployed.service}.{values.namespace.text}.{suffix}")
        return f"{deployed.service}.{values.namespace}.{suffix}"

    specs: dict[str, Node] = {
        "Issuer": {"selfSigned": {}},
        "Certificate": {
            "secretName": deployed.secret,
            "dnsNames": [dns_name("svc"), dns_name("svc.cluster.local")],
            "issuerRef": {"kind": "Issuer", "name": deployed.service},
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
        },
    }
    api, name = "cert-manager.io/v1", deployed.service
    return [
        manifest(api, kind, deployed, values, name=name, spec=spec) for kind, spec in specs.items()
    ]
