"""CustomResourceDefinitions with the constructs that those of known projects have."""

from __future__ import annotations

from typing import Any

__all__ = ["CRDS", "EXAMPLES"]

_GROUP = "models.example.com"
_TEXT: dict[str, Any] = {"type": "string"}
_QUANTITY: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}


def _fields(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


def _list(items: Any, *keys: str, **more: Any) -> dict[str, Any]:
    made = {"type": "array", "items": items, **more}
    if keys:
        made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return made


def _crd(kind: str, *versions: dict[str, Any], scope: str = "Namespaced") -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": list(versions),
        },
    }


def _version(name: str, root: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    schema = {"type": "object", **root, "properties": {**head, **root["properties"]}}
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        **more,
    }


_CONDITION = _fields(
    ("type", "status", "lastTransitionTime", "reason", "message"),
    type={"type": "string", "maxLength": 316, "pattern": r"^[A-Za-z0-9]([-A-Za-z0-9_.]*)?$"},
    status={"type": "string", "enum": ["True", "False", "Unknown"]},
    observedGeneration={"type": "integer", "format": "int64", "minimum": 0},
    lastTransitionTime={"type": "string", "format": "date-time"},
    reason={"type": "string", "minLength": 1},
    message={"type": "string", "maxLength": 32768},
)
_STATUS = _fields(conditions=_list(_CONDITION, "type"))
_SELECTOR = {
    **_fields(
        matchLabels={"type": "object", "additionalProperties": _TEXT},
        matchExpressions=_list(
            _fields(
                ("key", "operator"),
                key=_TEXT,
                operator=_TEXT,
                values=_list(_TEXT, **{"x-kubernetes-list-type": "atomic"}),
            ),
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ),
    "x-kubernetes-map-type": "atomic",
}
_RESOURCES = _fields(
    limits={"type": "object", "additionalProperties": _QUANTITY},
    requests={"type": "object", "additionalProperties": _QUANTITY},
)
_ISSUER = {
    **_fields(
        ca=_fields(("storeName",), storeName=_TEXT),
        acme=_fields(("server",), server={**_TEXT, "format": "uri"}, eab=_SELECTOR),
        selfSigned={"type": "object"},
    ),
    "oneOf": [{"required": ["ca"]}, {"required": ["acme"]}, {"required": ["selfSigned"]}],
}
_TARGET = {
    **_fields(
        minReplicas={"type": "integer", "format": "int32", "minimum": 0, "default": 0},
        maxReplicas={"type": "integer", "format": "int32", "default": 100, "maximum": 1000},
        surge={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "default": "25%",
            "x-kubernetes-int-or-string": True,
        },
        mode={"type": "string", "nullable": True, "enum": ["Auto", "Manual", ""]},
        priority={"type": "integer", "enum": [1, 2, 3]},
        weight={"type": "number", "minimum": 0, "exclusiveMinimum": True},
        paused={"type": "boolean", "default": False},
    ),
    "x-kubernetes-validations": [
        {
            "rule": "self.maxReplicas >= self.minReplicas",
            "message": "maxReplicas must be at least minReplicas",
            "reason": "FieldValueInvalid",
            "fieldPath": ".maxReplicas",
        },
        {"rule": "self.minReplicas < 7", "messageExpression": "'min is ' + 'too large'"},
    ],
    "default": {"minReplicas": 0, "maxReplicas": 100},
}
_NAMES = {
    **_fields(
        **{
            "$ref": _TEXT,
            "x-y": _TEXT,
            "2fa": {"type": "boolean"},
            "from": _TEXT,
            "podIP": {**_TEXT, "format": "ipv4"},
            "URLs": _list({**_TEXT, "maxLength": 2048}, maxItems=3),
            "str": _TEXT,
            "self": _TEXT,
            "_hidden": _TEXT,
        }
    ),
    "description": 'Names: "quoted", \\ and\n\n  indented `code`.\n  - a list',
    "minProperties": 1,
    "maxProperties": 20,
}
_SPEC = {
    **_fields(
        ("issuer", "storeName"),
        storeName={
            **_TEXT,
            "minLength": 1,
            "maxLength": 253,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}],
        },
        issuer=_ISSUER,
        target=_TARGET,
        selector=_SELECTOR,
        resources=_RESOURCES,
        names=_NAMES,
        duration={**_TEXT, "format": "duration"},
        keys=_list({**_TEXT, "enum": ["a", "b"]}, **{"x-kubernetes-list-type": "set"}),
        matrix=_list(_list({"type": "number"})),
        byName={"type": "object", "additionalProperties": _list(_fields(x=_TEXT))},
        payload={**_TEXT, "format": "byte"},
        template={
            **_fields(
                metadata={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                replicas={"type": "integer"},
            ),
            "x-kubernetes-preserve-unknown-fields": True,
        },
        resource={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        values={"x-kubernetes-preserve-unknown-fields": True},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ports=_list(
            _fields(
                ("port",),
                port={"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
                protocol={**_TEXT, "default": "TCP"},
            ),
            *("port", "protocol"),
            maxItems=4,
        ),
        choice={
            **_fields(a=_TEXT, b=_TEXT),
            "anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}],
        },
    ),
    "description": "What it should be.",
}

CRDS = {
    "an issuer with everything in it": _crd(
        "Issuer",
        _version(
            "v1",
            {
                "description": "An issuer of things.",
                "required": ["spec"],
                "properties": {"spec": _SPEC, "status": _STATUS},
                "x-kubernetes-validations": [
                    {"rule": "self.metadata.name != 'main'", "message": "main is taken"}
                ],
            },
            additionalPrinterColumns=[
                {"name": "Store", "type": "string", "jsonPath": ".spec.storeName"}
            ],
        ),
    ),
    "several versions, one of them not served": _crd(
        "Route",
        _version("v1", {"properties": {"spec": _TARGET, "status": _STATUS}}),
        _version(
            "v1beta1",
            {"properties": {"spec": _fields(target=_TARGET), "status": _STATUS}},
            storage=False,
            deprecated=True,
            deprecationWarning="use v1",
        ),
        _version("v1alpha1", {"properties": {"spec": _NAMES}}, storage=False, served=False),
        scope="Cluster",
    ),
    "no spec": _crd(
        "Report",
        _version(
            "v1", {"properties": {"results": _list(_fields(it=_TEXT)), "summary": _RESOURCES}}
        ),
    ),
    "a spec that is free": _crd(
        "Free",
        _version(
            "v1",
            {
                "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                }
            },
        ),
    ),
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "Issuer": {
        "storeName": "tls",
        "issuer": {"acme": {"server": "https://a.example", "eab": {"matchLabels": {"a": "b"}}}},
        "target": {"minReplicas": 1, "maxReplicas": 5, "surge": 1, "priority": 2, "weight": 0.5},
        "selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]},
        "resources": {"limits": {"cpu": "100m", "memory": 128974848}},
        "names": {
            "$ref": "r",
            "x-y": "xy",
            "2fa": True,
            "from": "f",
            "podIP": "10.0.0.1",
            "URLs": ["https://x"],
            "str": "s",
            "self": "me",
            "_hidden": "h",
        },
        "duration": "1h30m",
        "keys": ["a", "b"],
        "matrix": [[1, 2.5], []],
        "byName": {"some_name": [{"x": "1"}]},
        "payload": "c2VjcmV0",
        "template": {"metadata": {"labels": {"a_b": "c"}}, "replicas": 2, "unknown_one": [1]},
        "resource": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"node_name": "n"},
        },
        "values": {"any_thing": [1, "x", None]},
        "free": {"a_b": {"c_d": 1}},
        "ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}],
        "choice": {"a": "x", "b": "y"},
    },
    "Route": {"minReplicas": 2, "mode": "Auto", "paused": True},
    "Free": {"any_thing": {"a_b": 1}},
}
"""Specs for the kinds that have one."""
