"""The published schemas of the built-in kinds, loaded from a data file on first use.

The file holds Kubernetes' OpenAPI definitions and facts of the Go types behind them;
``hack/builtin_schemas.py`` generates it. Most callers need :func:`schema`, which returns the schema
of a kind in the form of a custom resource's schema, so that the same code reads both.

The returned objects are shared and must not be changed. Thread-safe.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

_PACKAGE: Final = "appsdk_operator.apiserver._schema"
_FILE: Final = "builtin_schemas.json.gz"
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
# Definitions that allow any JSON, which OpenAPI documents do not express.
_FREE: Final = (
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
)
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


@attrs.frozen(kw_only=True)
class SchemaData:
    """The content of the data file."""

    version: str
    """The release of Kubernetes, for example ``v1.36.3``."""
    kinds: Mapping[tuple[str, str, str], str]
    """The definition of each group, version and kind."""
    schemas: Mapping[str, Mapping[str, Any]]
    """The definitions as published; a ``$ref`` is the bare name of a definition."""
    types: Mapping[str, Mapping[str, str]]
    """How Go serialises the fields of each definition: a letter and the Go type.

    ``o``: omitted if empty; ``p``: a pointer, omitted if nil; ``n``: null if nil; ``a``: always
    written.
    """


@functools.cache
def data() -> SchemaData:
    """The content of the data file; loading takes some milliseconds the first time."""
    packed = importlib.resources.files(_PACKAGE).joinpath(_FILE).read_bytes()
    content = msgspec.json.decode(gzip.decompress(packed))
    return SchemaData(
        version=content["version"],
        kinds={(group, version, kind): name for group, version, kind, name in content["kinds"]},
        schemas=content["schemas"],
        types=content["types"],
    )


def definition_of(group: str, version: str, kind: str) -> str | None:
    """The name of a kind's definition, for example ``io.k8s.api.apps.v1.Deployment``."""
    return data().kinds.get((group, version, kind))


def schema(group: str, version: str, kind: str) -> Mapping[str, Any] | None:
    """The schema of a built-in kind; None for other kinds.

    It has the form of a custom resource's ``openAPIV3Schema``: ``type``, ``properties``,
    ``items``, ``x-kubernetes-list-type`` and so on. There are no references: fields that share a
    definition share the dict. Definitions may contain themselves, so walk the schema along with an
    object, never on its own. Numbers that may be strings have ``x-kubernetes-int-or-string``,
    fields that may hold anything ``x-kubernetes-preserve-unknown-fields``.

    >>> schema("apps", "v1", "Deployment")["properties"]["spec"]["required"]
    ['selector', 'template']
    """
    name = definition_of(group, version, kind)
    return None if name is None else definition(name)


def definition(name: str) -> Mapping[str, Any]:
    """The schema of a definition, in the form that :func:`schema` returns.

    Raises:
        KeyError: there is no definition of this name.
    """
    found = _resolved.get(name)
    if found is None:
        pending: list[tuple[dict[str, Any], dict[str, Any]]] = []
        in_progress: dict[str, dict[str, Any]] = {}
        found = _resolve_definition(name, pending, in_progress)
        for copy, target in pending:
            copy.update({key: value for key, value in target.items() if key not in copy})
        # Complete before it is shared; two threads may build one twice, which does no harm.
        _resolved.update(in_progress)
    return found


_resolved: Final[dict[str, dict[str, Any]]] = {}
_Pending = list[tuple[dict[str, Any], dict[str, Any]]]


def _resolve_definition(
    name: str, pending: _Pending, in_progress: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    known = _resolved.get(name) or in_progress.get(name)
    if known is not None:
        return known
    made = in_progress[name] = {}
    if name in _FREE:
        made.update(_ANYTHING)
    elif name == _INT_OR_STRING:
        made["x-kubernetes-int-or-string"] = True
    else:
        made.update(_resolve(data().schemas[name], pending, in_progress))
    return made


def _resolve(
    node: Mapping[str, Any], pending: _Pending, in_progress: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    reference = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ())), None)
    if isinstance(reference, str):
        target = _resolve_definition(reference, pending, in_progress)
        # A default of {} only says that the Go field is not a pointer.
        own = {
            key: value
            for key, value in node.items()
            if key not in ("$ref", "allOf") and not (key == "default" and value == {})
        }
        if not own:
            return target
        pending.append((own, target))
        return own
    made = dict(node)
    if "properties" in node:
        made["properties"] = {
            key: _resolve(child, pending, in_progress) for key, child in node["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            made[key] = _resolve(node[key], pending, in_progress)
    return made
