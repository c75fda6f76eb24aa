"""CustomResourceDefinitions of kinds, with schemas from the types of spec and status."""

from __future__ import annotations

import base64
import types
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, overload
from urllib.parse import urlsplit

import msgspec

from appsdk_operator.resource._kind import Kind, Scope, check_kind
from appsdk_operator.resource._object import MutableObject
from appsdk_operator.resource._spec_types import schema_hook
from appsdk_operator.resource._versions import Spoke, Versions

__all__ = ["custom_resource_definition"]

_CRD = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    scope=Scope.CLUSTER,
)
_PLACEHOLDER: Final = ("default", "webhook-service")
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "multipleOf",
)


@overload
def custom_resource_definition(
    kind: Kind,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    printer_columns: Sequence[Mapping[str, Any]] = (),
    schema: Mapping[str, Any] | None = None,
) -> MutableObject: ...
@overload
def custom_resource_definition(
    kind: Versions,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    printer_columns: Mapping[str, Sequence[Mapping[str, Any]]] = ...,
    schema: Mapping[str, Mapping[str, Any]] | None = None,
    storage: Kind | None = None,
    service: tuple[str, str] | None = None,
    path: str = "/convert",
    port: int = 443,
    url: str = "",
    ca: bytes = b"",
) -> MutableObject: ...
def custom_resource_definition(
    kind: Kind | Versions,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    printer_columns: Any = (),
    schema: Mapping[str, Any] | None = None,
    storage: Kind | None = None,
    service: tuple[str, str] | None = None,
    path: str = "/convert",
    port: int = 443,
    url: str = "",
    ca: bytes = b"",
) -> MutableObject:
    """The CRD of a kind in one or several versions, with a status subresource.

    With several versions its conversion strategy is ``Webhook``. Without ``service`` and ``url``
    the webhook is the service ``webhook-service`` in ``default``, which whoever installs the
    webhook has to replace.

    Args:
        kind: the kind, or its :class:`Versions`; the ``spec`` and ``status`` types become the
            schema, with their docstrings, constraints and defaults. A part without a type accepts
            any object.
        short_names: other names for kubectl.
        categories: groups of resources for kubectl, for example ``("all",)``.
        printer_columns: ``additionalPrinterColumns`` as plain JSON values; with versions a mapping
            of them by the version's name, ``{"v1": [...]}``.
        schema: an OpenAPI v3 schema to use instead; with versions a mapping of schemas by the
            version's name; versions that are not in it get theirs from the types.
        storage: the version that is stored; default: the hub. For versions only, as all that
            follow.
        service: namespace and name of the conversion webhook's service.
        path: the path of the webhook at its service, or at a ``url`` without one; default
            ``/convert``.
        port: the service's port; default 443.
        url: the address of the webhook server, ``https://host:port``, in place of a service. A
            path in it is kept, and ``path`` is not used then.
        ca: the certificates that the API server trusts, in PEM; default: those of its host, or what
            is filled in later.

    Raises:
        TypeError: ``kind`` is neither; a schema or columns are not given by version.
        ValueError: the kind is of a built-in group, does not begin with a capital letter as all
            kinds do, or a type has no structural schema; the text names the place. An option does
            not fit: for a kind without other versions, or for a version that is not there.

    >>> crd = custom_resource_definition(Kind(group="example.com", version="v1", kind="Widget"))
    >>> crd.name
    'widgets.example.com'
    """
    webhook = {"service": service, "path": path, "port": port, "url": url, "ca": ca}
    defaults = {"service": None, "path": "/convert", "port": 443, "url": "", "ca": b""}
    if isinstance(kind, Versions):
        versions, schemas, columns = kind, _by_version(kind, "schema", schema), printer_columns
        columns = _by_version(kind, "printer_columns", columns)
    else:
        check_kind(kind)
        given = [name for name, value in webhook.items() if value != defaults[name]]
        if storage is not None or given:
            what = ", ".join([*(["storage"] if storage is not None else []), *given])
            raise ValueError(
                f"{what}: {kind} has one version, which is stored and never converted: give "
                "Versions(…) with others, or leave it out"
            )
        versions = Versions(kind)
        schemas = {} if schema is None else {kind.version: schema}
        columns = {kind.version: printer_columns} if printer_columns else {}
    hub = versions.hub
    if "." not in hub.group:
        raise ValueError(f"{hub} cannot be a custom resource: give it a group such as example.com")
    if not hub.kind[0].isupper():
        name = hub.kind[0].upper() + hub.kind[1:]
        raise ValueError(f"kind {hub.kind!r}: kinds begin with a capital letter: use {name!r}")
    stored = hub if storage is None else check_kind(storage, "storage")
    if stored not in versions.kinds:
        raise ValueError(
            f"storage={stored} is none of the versions: use one of "
            f"{', '.join(map(str, versions.kinds))}"
        )
    names: dict[str, Any] = {
        "kind": hub.kind,
        "listKind": f"{hub.kind}List",
        "plural": hub.plural,
        "singular": hub.kind.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    if categories:
        names["categories"] = list(categories)
    spec: dict[str, Any] = {
        "group": hub.group,
        "names": names,
        "scope": hub.scope.value,
        "versions": [
            _version(one, spoke, one == stored, schemas.get(one.version), columns.get(one.version))
            for one, spoke in zip(versions.kinds, (None, *versions.spokes), strict=True)
        ],
    }
    if versions.spokes:
        spec["conversion"] = _conversion(service, path, port, url, ca)
    return MutableObject.new(_CRD, hub.qualified_name, spec=spec)


def _by_version(versions: Versions, option: str, given: Any) -> Mapping[str, Any]:
    """An option's values by the name of the version."""
    if not given:
        return {}
    names = [kind.version for kind in versions.kinds]
    if not isinstance(given, Mapping) or not given.keys() & set(names):
        raise TypeError(
            f"{option} is one for all versions, but their fields differ: give a mapping by the "
            f"version's name, {option}={{{names[0]!r}: …}}"
        )
    for name in given:
        if name not in names:
            raise ValueError(
                f"{option} has an entry for {name!r}, which is no version of "
                f"{versions.hub.qualified_name}: use {', '.join(names)}"
            )
    return given


def _version(
    kind: Kind,
    spoke: Spoke | None,
    is_stored: bool,
    schema: Mapping[str, Any] | None,
    columns: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    if schema is None:
        schema = {
            "type": "object",
            "properties": {
                "spec": _schema_of(kind.spec, "spec"),
                "status": _schema_of(kind.status, "status"),
            },
        }
    version: dict[str, Any] = {
        "name": kind.version,
        "served": spoke is None or spoke.served,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": dict(schema)},
        "subresources": {"status": {}},
    }
    if spoke is not None and spoke.deprecated:
        version["deprecated"] = True
        if isinstance(spoke.deprecated, str):
            version["deprecationWarning"] = spoke.deprecated
    if columns:
        version["additionalPrinterColumns"] = [dict(column) for column in columns]
    return version


def _conversion(service: Any, path: str, port: Any, url: str, ca: bytes) -> dict[str, Any]:
    """The stanza of a conversion webhook."""
    if url and service is not None:
        raise ValueError(
            f"service={service!r} and url={url!r}: a webhook has one address, give one"
        )
    if not path.startswith("/"):
        raise ValueError(f"path={path!r}: begin it with '/', for example '/convert'")
    config: dict[str, Any]
    if url:
        config = {"url": _full_url(url, path)}
    else:
        namespace, name = _PLACEHOLDER if service is None else _namespace_and_name(service)
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise ValueError(f"port={port!r}: use 1 to 65535")
        config = {"service": {"namespace": namespace, "name": name, "path": path, "port": port}}
    if ca:
        config["caBundle"] = base64.b64encode(ca).decode()
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    }


def _full_url(url: str, path: str) -> str:
    """The URL with its own path, or with ``path`` if it has none."""
    parts = urlsplit(url)
    is_https = parts.scheme == "https" and parts.hostname
    if not is_https or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"url={url!r}: API servers call webhooks by https:// only; give host and port, such as "
            "'https://127.0.0.1:9443', and a path by path="
        )
    return url if parts.path.strip("/") else url.rstrip("/") + path


def _namespace_and_name(service: Any) -> tuple[str, str]:
    if (
        not isinstance(service, tuple)
        or len(service) != 2
        or not all(isinstance(part, str) and part for part in service)
    ):
        raise TypeError(f"service={service!r}: give namespace and name, ('default', 'webhooks')")
    namespace, name = service
    return namespace, name


def _schema_of(view: Any, field: str) -> dict[str, Any]:
    if view is None:
        return dict(_ANYTHING)
    try:
        schema = msgspec.json.schema(view, schema_hook=schema_hook)
    except TypeError as error:
        path, part = _without_schema(view, field, (view,)) or (field, view)
        name = getattr(part, "__qualname__", None) or str(part)
        raise ValueError(
            f"{path} is of type {name}, which has no schema: use text, numbers, booleans, lists, "
            "mappings of text, classes of these, or Any for whatever JSON; or pass schema="
        ) from error
    return _structural(schema, schema.get("$defs", {}), field, ())


def _without_schema(view: Any, path: str, above: tuple[Any, ...]) -> tuple[str, Any] | None:
    """The path and type of the innermost part without a schema; None: it is a type of ``above``."""
    container: Any = get_origin(view)
    suffix = "" if container in (Union, types.UnionType) else "[]"
    suffix = ".*" if _is_mapping(container) else suffix
    parts = [(f"{path}.{name}", part) for name, part in _fields_of(view).items()]
    parts += [(f"{path}{suffix}", part) for part in get_args(view) if container is not Literal]
    is_own = True
    for name, part in parts:
        try:
            msgspec.json.schema(part, schema_hook=schema_hook)
        except (TypeError, ValueError):
            found = None if part in above else _without_schema(part, name, (*above, part))
            if found is not None:
                return found
            is_own = False
    return (path, view) if is_own else None


def _is_mapping(container: Any) -> bool:
    return isinstance(container, type) and issubclass(container, Mapping)


def _fields_of(view: Any) -> dict[str, Any]:
    if not isinstance(view, type) or view.__module__ == "builtins":
        return {}
    try:
        return get_type_hints(view, include_extras=True)
    except (NameError, TypeError):  # a name that is imported for type checkers only
        return {}


def _structural(
    schema: Mapping[str, Any], types: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    """``schema`` as a structural schema: references inlined, null as ``nullable``."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        if name in above:
            raise ValueError(f"{path}: {name} contains itself, which no CRD schema can express")
        inlined = _structural(types[name], types, path, (*above, name))
        return {**inlined, **{k: v for k, v in schema.items() if k in ("default", "description")}}
    if "anyOf" in schema:
        return _union(schema, types, path, above)
    made = {key: schema[key] for key in _KEPT if key in schema}
    if not schema.get("type") and "enum" not in schema:
        # Any: all JSON values.
        return {**made, "x-kubernetes-preserve-unknown-fields": True}
    if schema.get("type") == "object":
        made.pop("default", None)
        if "properties" in schema:
            made["properties"] = {
                key: _structural(value, types, f"{path}.{key}", above)
                for key, value in schema["properties"].items()
            }
            if required := schema.get("required"):
                made["required"] = list(required)
        else:
            values = schema.get("additionalProperties")
            if isinstance(values, Mapping) and values:
                made["additionalProperties"] = _structural(values, types, f"{path}.*", above)
            else:
                made["x-kubernetes-preserve-unknown-fields"] = True
    if schema.get("type") == "array":
        made["items"] = _structural(schema.get("items", {}), types, f"{path}[]", above)
    if "enum" in schema and "type" not in made:
        made["type"] = "string" if isinstance(schema["enum"][0], str) else "integer"
    return made


def _union(
    schema: Mapping[str, Any], types: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    is_nullable = len(options) < len(schema["anyOf"])
    if {option.get("type") for option in options} == {"integer", "string"}:
        made: dict[str, Any] = {"x-kubernetes-int-or-string": True}
    elif len(options) == 1:
        made = _structural(options[0], types, path, above)
    else:
        raise ValueError(
            f"{path} may be of several types, which no CRD schema can express: use one, or pass "
            "schema="
        )
    if is_nullable:
        made["nullable"] = True
    if schema.get("default") is not None:
        made["default"] = schema["default"]
    return made
