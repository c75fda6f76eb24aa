"""CustomResourceDefinitions for tests, with a schema as the test needs it."""

from __future__ import annotations

from typing import Any

SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def widget_definition(schema: dict[str, Any], **subresources: Any) -> dict[str, Any]:
    """The definition of ``widgets.example.com``, with a status and further subresources."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **subresources},
                    "schema": {"openAPIV3Schema": {"type": "object", **schema}},
                }
            ],
        },
    }
