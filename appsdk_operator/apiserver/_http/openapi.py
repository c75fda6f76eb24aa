"""OpenAPI documents of the served resources: version 2 in one, version 3 by group and version.

Built-in kinds are described by their published schemas, custom resources by their own. Descriptions
of built-in kinds are left out: ``kubectl explain`` shows their fields and types without them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import msgspec

from appsdk_operator.apiserver._http import openapi_protobuf
from appsdk_operator.apiserver._http.openapi_paths import META, Dialect, operations
from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._storage.resources import Catalog, ServedVersion

_GVK: Final = "x-kubernetes-group-version-kind"
_V2, _V3 = Dialect(is_v3=False), Dialect(is_v3=True)
_TEXT: Final = {"type": "string"}
_SECURITY: Final = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}
# Definitions that the operations of any resource need besides its own.
_COMMON: Final = ("APIResourceList", "DeleteOptions", "Patch", "Status", "WatchEvent")
_LEADING: Final = {
    "api": f"{META}APIVersions",
    "apis": f"{META}APIGroupList",
    "version": "io.k8s.apimachinery.pkg.version.Info",
}
# Definitions that differ in version 2.
_V2_DEFINITIONS: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _TEXT,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "type": "string",
        "format": "int-or-string",
    },
}


@attrs.frozen
class Document:
    """An encoded document."""

    body: bytes
    etag: str
    """Changes with the document."""

    @classmethod
    def of(cls, content: Any) -> Document:
        """The document with that content."""
        return cls.encoded(msgspec.json.encode(content))

    @classmethod
    def encoded(cls, body: bytes) -> Document:
        """The document with that body."""
        return cls(body, hashlib.sha512(body).hexdigest().upper())


def document(catalog: Catalog, path: str, *, as_protobuf: bool = False) -> Document | None:
    """The document at ``path``; None when there is none.

    Args:
        catalog: the resources to describe.
        path: that of the request.
        as_protobuf: whether the document of version 2 is encoded as protobuf and not as JSON.
    """
    if path == "/openapi/v2":
        described = _v2_document(catalog)
        if as_protobuf:
            return Document.encoded(openapi_protobuf.encode(described))
        return Document.of(described)
    prefixes = _prefixes(catalog)
    if path == "/openapi/v3":
        links = {prefix: _link(prefix, _v3_document(prefix, kinds)) for prefix, kinds in prefixes}
        return Document.of({"paths": links})
    wanted = dict(prefixes).get(path.removeprefix("/openapi/v3/"))
    return None if wanted is None else _v3_document(path.removeprefix("/openapi/v3/"), wanted)


def _link(prefix: str, found: Document) -> dict[str, str]:
    return {"serverRelativeURL": f"/openapi/v3/{prefix}?hash={found.etag}"}


def _prefixes(catalog: Catalog) -> list[tuple[str, tuple[ServedVersion, ...]]]:
    """The paths below ``/openapi/v3``, each with its resource versions."""
    found: dict[str, list[ServedVersion]] = {"api": [], "apis": [], "version": []}
    for served in _served(catalog):
        group = served.resource.group
        if group:
            found.setdefault(f"apis/{group}", [])
        prefix = f"apis/{group}/{served.version}" if group else f"api/{served.version}"
        found.setdefault(prefix, []).append(served)
    return [(prefix, tuple(found[prefix])) for prefix in sorted(found)]


def _served(catalog: Catalog) -> Iterable[ServedVersion]:
    for resource in catalog:
        for served in resource.versions.values():
            if served.served:
                yield served


def _name(served: ServedVersion) -> str:
    """The name of a definition, as the real server makes it."""
    resource = served.resource
    known = builtin_schemas.definition_of(resource.group, served.version, resource.kind)
    if known is not None and not resource.strategy.custom:
        return known
    reverse = ".".join(reversed(resource.group.split(".")))
    return f"{reverse}.{served.version}.{resource.kind}"


# -- version 3 -------------------------------------------------------------------------------

_built: Final[dict[tuple[str, tuple[int, ...]], Document]] = {}
_MOST_BUILT: Final = 64


def _v3_document(prefix: str, kinds: tuple[ServedVersion, ...]) -> Document:
    """The document of a group and version; those of built-in kinds are cached."""
    if not kinds or any(served.resource.strategy.custom for served in kinds):
        return Document.of(_describe(prefix, kinds))
    key = (prefix, tuple(hash(_name(served)) for served in kinds))
    if key not in _built:
        if len(_built) >= _MOST_BUILT:
            _built.clear()
        _built[key] = Document.of(_describe(prefix, kinds))
    return _built[key]


def _describe(prefix: str, kinds: tuple[ServedVersion, ...]) -> dict[str, Any]:
    answer = f"{META}APIResourceList"
    if not kinds:
        # The discovery paths have no resources.
        answer = _LEADING.get(prefix, f"{META}APIGroup")
    responses = _V3.responses(answer)
    paths: dict[str, Any] = {f"/{prefix}/": {"get": {"responses": responses}}}
    schemas: dict[str, Any] = {}
    group_version = prefix.split("/")[1:]
    wanted = [f"{META}{name}" for name in _COMMON] if kinds else [answer]
    for served in kinds:
        name = _name(served)
        paths |= operations(served, name, _V3)
        if served.resource.strategy.custom:
            schemas |= _custom(served, name, _V3)
            wanted += [f"{META}{part}" for part in ("ObjectMeta", "ListMeta")]
        else:
            wanted += [name, f"{name}List"]
        if "scale" in served.subresources:
            wanted.append("io.k8s.api.autoscaling.v1.Scale")
    found = _referenced(wanted)
    schemas |= {name: _v3_definitions()[name] for name in found}
    if kinds:
        _name_kinds(schemas, group_version)
    components: dict[str, Any] = {"schemas": dict(sorted(schemas.items()))}
    info = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    if not any(served.resource.strategy.custom for served in kinds):
        components["securitySchemes"], info = _SECURITY, _info()
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": components}


def _name_kinds(schemas: dict[str, Any], group_version: list[str]) -> None:
    """List the group and version among the kinds of DeleteOptions and WatchEvent."""
    places = [("", "v1")]
    if len(group_version) == 2:
        places.append((group_version[0], group_version[1]))
    for kind in ("DeleteOptions", "WatchEvent"):
        kinds = [{"group": group, "kind": kind, "version": version} for group, version in places]
        schemas[f"{META}{kind}"] = {**schemas[f"{META}{kind}"], _GVK: kinds}


def _info() -> dict[str, str]:
    major, minor, *_ = builtin_schemas.data().version.removeprefix("v").split(".")
    return {"title": "Kubernetes", "version": f"{major}.{minor}"}


@functools.cache
def _v3_definitions() -> Mapping[str, Any]:
    """The published definitions, with references of version 3."""
    return {
        name: _linked(schema, _V3.prefix) for name, schema in builtin_schemas.data().schemas.items()
    }


def _linked(node: Any, prefix: str, *, named: bool = False) -> Any:
    """``node`` with prefixed references; ``named``: its keys are field names."""
    if isinstance(node, dict):
        return {
            key: prefix + value
            if key == "$ref" and isinstance(value, str) and not named
            else _linked(value, prefix, named=key == "properties" and not named)
            for key, value in node.items()
        }
    return [_linked(item, prefix) for item in node] if isinstance(node, list) else node


def _referenced(names: Iterable[str]) -> set[str]:
    """The definitions of ``names`` and all that they refer to."""
    schemas = builtin_schemas.data().schemas
    found: set[str] = set()
    open_ = [name for name in names if name in schemas]
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += _references(name) - found
    return found


@functools.cache
def _references(name: str) -> frozenset[str]:
    found: set[str] = set()

    def walk(node: Any, *, named: bool = False) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref" and isinstance(value, str) and not named:
                    found.add(value)
                else:
                    walk(value, named=key == "properties" and not named)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(builtin_schemas.data().schemas[name])
    return frozenset(found)


# -- version 2 -------------------------------------------------------------------------------


def _v2_document(catalog: Catalog) -> dict[str, Any]:
    definitions = dict(_v2_definitions())
    paths: dict[str, Any] = {}
    places: dict[tuple[str, str], None] = {("", "v1"): None}
    for served in _served(catalog):
        name = _name(served)
        paths |= operations(served, name, _V2)
        places[served.resource.group, served.version] = None
        if served.resource.strategy.custom:
            definitions |= _custom(served, name, _V2)
    for kind in ("DeleteOptions", "WatchEvent"):
        kinds = [{"group": group, "kind": kind, "version": version} for group, version in places]
        definitions[f"{META}{kind}"] = {**definitions[f"{META}{kind}"], _GVK: kinds}
    return {
        "swagger": "2.0",
        "info": _info(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": _SECURITY,
        "security": [{"BearerToken": []}],
    }


@functools.cache
def _v2_definitions() -> Mapping[str, Any]:
    """The published definitions, converted to version 2."""
    return {
        name: _V2_DEFINITIONS.get(name) or _as_v2(schema)
        for name, schema in builtin_schemas.data().schemas.items()
    }


def _as_v2(node: Any, *, named: bool = False) -> Any:
    if isinstance(node, list):
        return [_as_v2(item) for item in node]
    if not isinstance(node, dict):
        return node
    if named:
        return {key: _as_v2(value) for key, value in node.items()}
    made = {
        key: _as_v2(value, named=key == "properties")
        for key, value in node.items()
        if key not in ("allOf", "$ref", "default")
    }
    reference = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ())), None)
    return {**made, "$ref": _V2.prefix + reference} if isinstance(reference, str) else made


# -- custom resources ------------------------------------------------------------------------


_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
# As in the documents of Kubernetes, so that kubectl explain shows the same.
_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
_METADATA: Final = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA: Final = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
_TYPE_PROPERTIES: Final = {
    "apiVersion": {
        **_TEXT,
        "description": (
            "APIVersion defines the versioned schema of this representation of an object. Servers "
            "should convert recognized schemas to the latest internal value, and may reject "
            f"unrecognized values. More info: {_CONVENTIONS}#resources"
        ),
    },
    "kind": {
        **_TEXT,
        "description": (
            "Kind is a string value representing the REST resource this object represents. "
            "Servers may infer this from the endpoint the client submits requests to. Cannot be "
            f"updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
        ),
    },
}


def _custom(served: ServedVersion, name: str, dialect: Dialect) -> dict[str, Any]:
    """The definitions of a custom resource and of its list."""
    schema = dict(served.schema or {"type": "object"})
    if not dialect.is_v3:
        schema = _v2_schema(schema)
    schema = _with_embedded(schema, dialect)
    resource = served.resource
    kind = {"group": resource.group, "kind": resource.kind, "version": served.version}
    properties = {
        **(schema.get("properties") or {}),
        **_TYPE_PROPERTIES,
        "metadata": {**_part(f"{META}ObjectMeta", dialect), "description": _METADATA},
    }
    made = {**schema, "type": "object", "properties": properties, _GVK: [kind]}
    if not dialect.is_v3 and schema.get(_PRESERVE):
        made = {"type": "object", _GVK: [kind]}
    listed = {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_TYPE_PROPERTIES,
            "items": {
                "description": f"List of {resource.plural}. More info: {_CONVENTIONS}",
                "type": "array",
                "items": dialect.reference(name),
            },
            "metadata": {**_part(f"{META}ListMeta", dialect), "description": _LIST_METADATA},
        },
        _GVK: [{**kind, "kind": resource.list_kind}],
    }
    return {name: made, f"{name}List": listed}


def _part(name: str, dialect: Dialect) -> dict[str, Any]:
    reference = dialect.reference(name)
    return {"allOf": [reference]} if dialect.is_v3 else reference


_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_EMBEDDED_PROPERTIES: Final = {
    "apiVersion": {
        **_TEXT,
        "description": (
            "apiVersion defines the versioned schema of this representation of an object. "
            f"More info: {_CONVENTIONS}#resources"
        ),
    },
    "kind": {
        **_TEXT,
        "description": (
            "kind is a string value representing the type of this object. In CamelCase. "
            f"More info: {_CONVENTIONS}#types-kinds"
        ),
    },
}


def _with_embedded(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """A schema whose embedded objects have an ``apiVersion``, a ``kind`` and ``metadata``."""
    made = dict(schema)
    if isinstance(made.get("properties"), Mapping):
        inner = made["properties"].items()
        made["properties"] = {name: _with_embedded(one, dialect) for name, one in inner}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), Mapping):
            made[key] = _with_embedded(made[key], dialect)
    # With properties of version 2, kubectl refuses all others.
    if made.get(_EMBEDDED) and (dialect.is_v3 or not made.get(_PRESERVE)):
        metadata = {**_part(f"{META}ObjectMeta", dialect), "description": _METADATA}
        properties = made.get("properties") or {}
        made["properties"] = {**properties, **_EMBEDDED_PROPERTIES, "metadata": metadata}
        required = made.get("required") or ()
        added = [name for name in ("kind", "apiVersion") if name not in required]
        made["required"] = [*required, *added]
    return made


_V3_ONLY: Final = frozenset(
    {"nullable", "default", "allOf", "oneOf", "anyOf", "not", "x-kubernetes-validations"}
)
# Parts of a schema that are no schemas, whatever their names.
_VALUES: Final = frozenset({"enum", "example"})


def _v2_schema(schema: Any, *, named: bool = False) -> Any:
    """The part of a schema that version 2 can express; ``named``: its keys are field names."""
    if isinstance(schema, Mapping):
        if named:
            return {key: _v2_schema(value) for key, value in schema.items()}
        left_out = _V3_ONLY
        if schema.get("nullable") or schema.get(_PRESERVE):
            left_out |= {"type", "properties", "items"}
        return {
            key: value if key in _VALUES else _v2_schema(value, named=key == "properties")
            for key, value in schema.items()
            if key not in left_out
        }
    if isinstance(schema, list):
        return [_v2_schema(item) for item in schema]
    return schema
