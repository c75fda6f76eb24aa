"""CustomResourceDefinitions of kinds, with schemas from the types of spec and status."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, overload
from urllib.parse import urlsplit

import msgspec

from appsdk_operator.resource._field_names import check_expression, check_wire_path
from appsdk_operator.resource._kind import Kind, Scope, check_kind
from appsdk_operator.resource._object import MutableObject
from appsdk_operator.resource._schema.columns import PrinterColumn, Scale, column_json, json_path
from appsdk_operator.resource._schema.markers import Rule
from appsdk_operator.resource._schema.schemas import schema_of
from appsdk_operator.resource._versions import Versions, checked_warning

_CRD = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    scope=Scope.CLUSTER,
)
Column: TypeAlias = PrinterColumn | Mapping[str, Any]
# An API server refuses a default that does not meet them.
_CONDITIONS: Final = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "minProperties", "enum", "x-kubernetes-validations"}
)
_PLACEHOLDER: Final = ("default", "webhook-service")


@overload
def custom_resource_definition(
    kind: Kind,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    singular: str = "",
    printer_columns: Sequence[Column] = (),
    scale: Scale | None = None,
    selectable_fields: Sequence[str] = (),
    deprecated: str | bool = False,
    description: str = "",
    rules: Sequence[Rule] = (),
    schema: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> MutableObject: ...
@overload
def custom_resource_definition(
    kind: Versions,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    singular: str = "",
    printer_columns: Mapping[str, Sequence[Column]] = ...,
    scale: Scale | Mapping[str, Scale] | None = None,
    selectable_fields: Sequence[str] | Mapping[str, Sequence[str]] = (),
    description: str | Mapping[str, str] = "",
    rules: Sequence[Rule] | Mapping[str, Sequence[Rule]] = (),
    schema: Mapping[str, Mapping[str, Any]] | None = None,
    strict: bool = False,
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
    singular: str = "",
    printer_columns: Any = (),
    scale: Scale | Mapping[str, Scale] | None = None,
    selectable_fields: Any = (),
    deprecated: str | bool = False,
    description: str | Mapping[str, str] = "",
    rules: Sequence[Rule] | Mapping[str, Sequence[Rule]] = (),
    schema: Mapping[str, Any] | None = None,
    strict: bool = False,
    storage: Kind | None = None,
    service: tuple[str, str] | None = None,
    path: str = "/convert",
    port: int = 443,
    url: str = "",
    ca: bytes = b"",
) -> MutableObject:
    """The CRD of a kind in one or several versions, with a status subresource.

    With several versions its conversion strategy is ``Webhook``. Without ``service`` and ``url``
    the webhook is a placeholder, the service ``webhook-service`` in ``default``: replace it when
    you install the webhook.

    Args:
        kind: the kind, or its :class:`Versions`; the ``spec`` and ``status`` types become the
            schema, with their docstrings, constraints and defaults. A part without a type accepts
            any object.
        short_names: other names for kubectl.
        categories: groups of resources for kubectl, for example ``("all",)``.
        singular: the singular name; default: the kind in lower case.
        printer_columns: :class:`PrinterColumn`, or ``additionalPrinterColumns`` as plain JSON
            values; with versions a mapping of them by the version's name, ``{"v1": [...]}``.
        scale: the scale subresource; default: none. With versions one for all, or a mapping by the
            version's name.
        selectable_fields: paths of fields for field selectors, ``spec.color``; API servers know
            them from 1.30 on, older ones ignore them. With versions one list for all, or a mapping
            by the version's name.
        deprecated: the warning for clients that use the version, True for the API server's own
            text; default: none. With versions give it to :meth:`Versions.older` or
            :meth:`Versions.newer`.
        description: what an object of the kind is, for ``kubectl explain``; default: nothing. With
            versions one for all, or a mapping by the version's name.
        rules: rules for whole objects. ``self`` has ``spec``, ``status`` and ``metadata.name``:
            ``Rule("self.spec.paused || self.metadata.name != 'main'")``. With versions one list for
            all, or a mapping by the version's name.
        schema: an OpenAPI v3 schema to use instead. With versions a mapping by the version's name;
            other versions get a schema from their types.
        strict: whether constraints that no schema can express, such as a validator function, are an
            error; default False: they are checked only when an object is read.
        storage: the version that is stored; default: the hub. This option and those below are for
            versions only.
        service: namespace and name of the conversion webhook's service.
        path: the path of the webhook at its service, or at a ``url`` without a path; default
            ``/convert``.
        port: the service's port; default 443.
        url: the address of the webhook server, ``https://host:port``, in place of a service. If it
            has a path, ``path`` is not used.
        ca: the CA certificates with which the API server checks the webhook's certificate, in PEM;
            default: those of its host, unless they are filled in later.

    Raises:
        TypeError: ``kind`` is neither a Kind nor Versions; a schema or columns are not given by
            version; an option is of another type.
        ValueError: the group has no dot, the kind does not begin with a capital letter, or a type
            has no structural schema; the text names the place. An option is for several versions,
            but there is only one, or it names an unknown version. With ``strict``, a constraint
            that no schema can express; the text names it.

    >>> crd = custom_resource_definition(Kind(group="example.com", version="v1", kind="Widget"))
    >>> crd.name
    'widgets.example.com'
    """
    webhook = {"service": service, "path": path, "port": port, "url": url, "ca": ca}
    defaults = {"service": None, "path": "/convert", "port": 443, "url": "", "ca": b""}
    if isinstance(kind, Versions):
        versions, schemas, columns = kind, _by_version(kind, "schema", schema), printer_columns
        columns = _by_version(kind, "printer_columns", columns)
        if deprecated is not False:
            raise ValueError("deprecated: give it to Versions.older(…) or newer(…)")
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
        deprecated = checked_warning(deprecated)
    hub = versions.hub
    for option, by_version in (
        ("scale", scale),
        ("selectable_fields", selectable_fields),
        ("description", description),
        ("rules", rules),
    ):
        if isinstance(by_version, Mapping):
            _by_version(versions, option, by_version)
    if "." not in hub.group:
        raise ValueError(f"{hub} cannot be a custom resource: give it a group such as example.com")
    if not hub.kind[0].isupper():
        name = hub.kind[0].upper() + hub.kind[1:]
        raise ValueError(f"kind {hub.kind!r}: kinds begin with a capital letter: use {name!r}")
    stored = hub if storage is None else check_kind(storage, "storage")
    if stored not in versions.kinds:
        raise ValueError(
            f"storage={stored} is not one of the versions: use one of "
            f"{', '.join(map(str, versions.kinds))}"
        )
    names: dict[str, Any] = {
        "kind": hub.kind,
        "listKind": f"{hub.kind}List",
        "plural": hub.plural,
        "singular": singular or hub.kind.lower(),
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
            _version(
                one,
                _Options(
                    served=spoke is None or spoke.served,
                    is_stored=one == stored,
                    deprecated=deprecated if spoke is None else spoke.deprecated,
                    schema=schemas.get(one.version),
                    columns=columns.get(one.version) or (),
                    scale=_of_version(scale, one.version),
                    selectable=_paths(_of_version(selectable_fields, one.version) or ()),
                    description=_of_version(description, one.version) or "",
                    rules=_of_version(rules, one.version) or (),
                    strict=strict,
                ),
            )
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
                f"{option} has an entry for {name!r}, which is not a version of "
                f"{versions.hub.qualified_name}: use {', '.join(names)}"
            )
    return given


def _of_version(given: Any, version: str) -> Any:
    return given.get(version) if isinstance(given, Mapping) else given


def _paths(given: Any) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"selectable_fields={given!r}: give a list, [{given!r}]")
    return [json_path("selectable_fields", path) for path in given]


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one version."""

    served: bool
    is_stored: bool
    deprecated: str | bool
    schema: Mapping[str, Any] | None
    columns: Sequence[Column]
    scale: Scale | None
    selectable: list[str]
    description: str
    rules: Sequence[Rule]
    strict: bool


def _check_names(kind: Kind, options: _Options) -> None:
    """Refuse paths and rules with Python's names.

    Raises:
        ValueError: the text names the option, and what to write.
    """
    paths = [("selectable_fields", path) for path in options.selectable]
    if isinstance(options.scale, Scale):
        paths += [("scale", path) for path in options.scale.as_json().values()]
    for column in options.columns:
        path = column.path if isinstance(column, PrinterColumn) else column.get("jsonPath")
        paths.append(("printer_columns", str(path)))
    for what, path in paths:
        check_wire_path(what, kind, path)
    for rule in options.rules if not isinstance(options.rules, Rule) else ():
        if isinstance(rule, Rule):
            for text in rule.expressions():
                check_expression("rules", kind, text)


def _with_root(schema: Mapping[str, Any], options: _Options) -> dict[str, Any]:
    """A schema with what the options say of the whole object."""
    made = dict(schema)
    if not isinstance(options.description, str):
        raise TypeError(f"description={options.description!r}: give a text")
    if options.description:
        made["description"] = options.description
    if isinstance(options.rules, Rule):
        raise TypeError(f"rules={options.rules!r}: give a list, [{options.rules!r}]")
    if options.rules:
        added = [_rule_json(rule) for rule in options.rules]
        made["x-kubernetes-validations"] = [*made.get("x-kubernetes-validations", ()), *added]
    return made


def _rule_json(rule: object) -> dict[str, Any]:
    if not isinstance(rule, Rule):
        raise TypeError(f"rules: {rule!r} is not a Rule: give a list, [Rule('…')]")
    return rule.as_json()


def _version(kind: Kind, options: _Options) -> dict[str, Any]:
    schema = _schema(kind, strict=options.strict) if options.schema is None else options.schema
    _check_names(kind, options)
    schema = _with_root(schema, options)
    version: dict[str, Any] = {
        "name": kind.version,
        "served": options.served,
        "storage": options.is_stored,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    if options.scale is not None:
        if not isinstance(options.scale, Scale):
            raise TypeError(f"scale={options.scale!r}: give Scale(…)")
        version["subresources"]["scale"] = options.scale.as_json()
    if options.deprecated:
        version["deprecated"] = True
        if isinstance(options.deprecated, str):
            version["deprecationWarning"] = options.deprecated
    if options.columns:
        version["additionalPrinterColumns"] = [
            column_json(column, schema) for column in options.columns
        ]
    if options.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in options.selectable]
    return version


def _schema(kind: Kind, *, strict: bool) -> dict[str, Any]:
    """The schema of a version, from the types of its kind."""
    lost: list[str] = []
    spec = schema_of(kind.spec, "spec", rename=kind.rename, lost=lost)
    status = schema_of(kind.status, "status", rename=kind.rename, lost=lost)
    if strict and lost:
        raise ValueError(
            f"{kind}: no schema can express {'; '.join(lost)}: check it in a validating webhook or "
            "a Rule, or leave strict out"
        )
    made: dict[str, Any] = {"type": "object", "properties": {"spec": spec, "status": status}}
    if kind.spec is not None and not spec.get("nullable"):
        if spec.get("required") or "properties" not in spec or _CONDITIONS & spec.keys():
            made["required"] = ["spec"]
        else:  # so that a reader always finds one
            spec["default"] = {}
    return made


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
