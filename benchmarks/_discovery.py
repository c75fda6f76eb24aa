"""What the replay server says of itself: enough for clients that look before they ask."""

from __future__ import annotations

import json
from typing import Any

from benchmarks._objects import KINDS

__all__ = ["documents"]

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def _resource(plural: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "namespaced": namespaced,
        "kind": kind,
        "verbs": _VERBS,
    }


def _resources(api_version: str, *resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": list(resources),
    }


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def documents() -> dict[str, bytes]:
    """The answers to GET, by path."""
    widgets = KINDS["widgets"]
    extensions = "apiextensions.k8s.io"
    groups = [_group(widgets.group), _group(extensions)]
    answers: dict[str, dict[str, Any]] = {
        "/version": {
            "major": "1",
            "minor": "34",
            "gitVersion": "v1.34.0",
            "platform": "linux/amd64",
        },
        "/api": {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/api/v1": _resources(
            "v1",
            _resource("pods", "Pod", namespaced=True),
            _resource("namespaces", "Namespace", namespaced=False),
            _resource("events", "Event", namespaced=True),
        ),
        widgets.root: _resources(
            widgets.api_version,
            _resource(widgets.plural, widgets.kind, namespaced=True),
        ),
        f"/apis/{extensions}/v1": _resources(
            f"{extensions}/v1",
            _resource("customresourcedefinitions", "CustomResourceDefinition", namespaced=False),
        ),
    }
    for group in groups:
        answers[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    return {path: json.dumps(answer).encode() for path, answer in answers.items()}
