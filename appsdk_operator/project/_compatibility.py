"""What a new CustomResourceDefinition would break of an old one: stored objects, or clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import attrs

from appsdk_operator.resource import MutableObject, Object

Breaks: TypeAlias = Literal["stored objects", "clients"]

_OBJECTS: Final = ("stored objects",)
_CLIENTS: Final = ("clients",)
_BOTH: Final = ("stored objects", "clients")
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_RULES: Final = "x-kubernetes-validations"
_LOWEST: Final = ("minLength", "minItems", "minProperties")
_HIGHEST: Final = ("maxLength", "maxItems", "maxProperties")
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf", "not")
_WIDER: Final = (
    ("integer", "number"),
    ("integer", "int-or-string"),
    ("string", "int-or-string"),
)
# Formats that API servers check; others are notes.
_FORMATS: Final = frozenset(
    {
        *("bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "datetime"),
        *("duration", "email", "hexcolor", "hostname", "ipv4", "ipv6", "isbn", "isbn10", "isbn13"),
        *("k8s-long-name", "k8s-short-name", "mac", "rgbcolor", "ssn"),
        *("uri", "uuid", "uuid3", "uuid4", "uuid5"),
    }
)
_NUMBER_FORMATS: Final = (("integer", "int32"), ("number", "float"))
"""Those of them by which fewer numbers are valid."""
_ANY: Final[Mapping[str, Any]] = {_OPEN: True}
"""The schema of whatever there is where no schema says anything."""
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
# Of each object, also where its schema does not say so.
_METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"name": _TEXT, "generateName": _TEXT},
    **_ANY,
}
_NEW_VERSION: Final = "make it in a new version, and convert between the two"


@attrs.frozen
class Finding:
    """One change of a CustomResourceDefinition that breaks something."""

    crd: str
    """The CRD's name."""
    version: str
    """The version; ``""`` if it is of all."""
    path: str
    """The field, such as ``spec.ports[].name``, or the part of the CRD; items of a list are
    ``[]``, values of a map ``.*``."""
    change: str
    """What changed."""
    breaks: tuple[Breaks, ...]
    """``stored objects``: some may no longer be valid, or lose fields. ``clients``: programs that
    read or write in the old form may fail."""
    remedy: str
    """What to do instead."""

    def __str__(self) -> str:
        place = " ".join(part for part in (self.crd, self.version, self.path) if part)
        return f"{place}: {self.change}, which breaks {' and '.join(self.breaks)}: {self.remedy}"


def breaking_changes(
    old: Mapping[str, Any] | Object, new: Mapping[str, Any] | Object
) -> list[Finding]:
    """The changes from one CRD to another that break stored objects or clients.

    Versions are compared by name; without a conversion between versions also the version in which
    objects are stored with those in which they would be written now. Wider types and limits, new
    optional fields and new versions break nothing. Rules and patterns are compared as texts: a
    changed one counts as narrower.

    Args:
        old: the CustomResourceDefinition as it was released, in ``apiextensions.k8s.io/v1``.
        new: the one that would replace it.

    Returns:
        The findings in the order of the old CRD; none if nothing breaks.

    Raises:
        ValueError: one is not a CustomResourceDefinition of ``v1``.

    >>> from appsdk_operator.resource import Kind, custom_resource_definition
    >>> widget = Kind(group="example.com", version="v1", kind="Widget")
    >>> crd = custom_resource_definition(widget)
    >>> breaking_changes(crd, crd)
    []
    """
    before, after = _plain(old, "old"), _plain(new, "new")
    name = str(before.get("metadata", {}).get("name", ""))
    return [attrs.evolve(finding, crd=name) for finding in _whole(before["spec"], after["spec"])]


def _plain(crd: Mapping[str, Any] | Object, what: str) -> Mapping[str, Any]:
    found: Any = crd.to_dict() if isinstance(crd, Object | MutableObject) else crd
    if (
        not isinstance(found, Mapping)
        or found.get("kind") != "CustomResourceDefinition"
        or found.get("apiVersion") != "apiextensions.k8s.io/v1"
        or not _is_whole(found.get("spec"))
    ):
        raise ValueError(
            f"{what} is not a CustomResourceDefinition of apiextensions.k8s.io/v1: give the whole "
            "object"
        )
    return found


def _is_whole(spec: Any) -> bool:
    """Whether a spec has what each has on an API server."""
    if not isinstance(spec, Mapping) or not {"group", "names", "scope", "versions"} <= spec.keys():
        return False
    names, versions = spec["names"], spec["versions"]
    return (
        isinstance(names, Mapping)
        and {"plural", "kind"} <= names.keys()
        and isinstance(versions, Sequence)
        and all(isinstance(each, Mapping) and "name" in each for each in versions)
    )


def _finding(
    path: str, change: str, breaks: tuple[Any, ...], remedy: str, version: str = ""
) -> Finding:
    return Finding("", version, path, change, breaks, remedy)


# -- The CRD ---------------------------------------------------------------------------------


def _whole(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    for path, before, after in (
        ("group", old["group"], new["group"]),
        ("names.plural", old["names"]["plural"], new["names"]["plural"]),
        ("names.kind", old["names"]["kind"], new["names"]["kind"]),
        ("scope", old["scope"], new["scope"]),
    ):
        if before != after:
            yield _finding(
                path,
                f"changed from {before} to {after}",
                _BOTH,
                "API servers refuse this change: make a new kind, and move the objects",
            )
    yield from _names(old["names"], new["names"])
    present = {version["name"]: version for version in new["versions"]}
    for version in old["versions"]:
        name = version["name"]
        if name not in present:
            yield from _removed(version)
        else:
            for finding in _version(version, present[name]):
                yield attrs.evolve(finding, version=name)
    if _strategy(new) != "Webhook":
        yield from _unconverted(old["versions"], new["versions"])
    is_converted = _strategy(old) == "Webhook"
    if is_converted and _strategy(new) != "Webhook" and len(new["versions"]) > 1:
        yield _finding(
            "conversion",
            "the conversion webhook is gone, and there are several versions",
            _BOTH,
            "keep it until one version is left and all objects are stored in it",
        )


def _unconverted(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """What stored objects lose when they are written as they are in another version."""
    known = {version["name"]: version for version in old}
    stored = next((version for version in old if version.get("storage")), None)
    for version in new:
        former = known.get(version["name"], {})
        if stored is None or former.get("storage"):
            continue
        is_stored_in = version.get("storage") and not former.get("storage")
        if is_stored_in or (version.get("served") and not former.get("served")):
            for finding in _schema(_root(stored), _root(version), ""):
                if "stored objects" in finding.breaks:
                    yield attrs.evolve(
                        finding,
                        version=version["name"],
                        change=f"compared with {stored['name']}, without conversion: "
                        f"{finding.change}",
                        breaks=_OBJECTS,
                        remedy="convert between the two with a webhook, or keep the field",
                    )


def _strategy(spec: Mapping[str, Any]) -> str:
    return str((spec.get("conversion") or {}).get("strategy") or "None")


def _names(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    known = {new.get("singular") or str(new["kind"]).lower(), *new.get("shortNames", ())}
    former = [old.get("singular") or str(old["kind"]).lower(), *old.get("shortNames", ())]
    for name in former:
        if name not in known:
            yield _finding(
                "names", f"the name {name!r} is gone", _CLIENTS, "keep it as a short name"
            )
    for name in old.get("categories", ()):
        if name not in new.get("categories", ()):
            yield _finding("names", f"the category {name!r} is gone", _CLIENTS, "keep it")


def _removed(version: Mapping[str, Any]) -> Iterator[Finding]:
    name = version["name"]
    if version.get("storage"):
        yield _finding(
            "",
            "the version in which objects are stored is gone",
            _BOTH,
            "keep it with served: false until every object is stored in another version and "
            "status.storedVersions no longer lists this one",
            name,
        )
    elif version.get("served"):
        yield _finding(
            "",
            "the version is gone",
            _BOTH,
            "serve it, deprecated, for some releases; then keep it with served: false until "
            "status.storedVersions no longer lists it",
            name,
        )
    else:
        yield _finding(
            "",
            "the version is gone",
            _OBJECTS,
            "keep it until status.storedVersions no longer lists it",
            name,
        )


def _version(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    if old.get("served") and not new.get("served"):
        yield _finding(
            "", "the version is no longer served", _CLIENTS, "serve it, deprecated, for longer"
        )
    before, after = old.get("subresources") or {}, new.get("subresources") or {}
    for name in ("status", "scale"):
        if name in before and name not in after:
            yield _finding(f"subresources.{name}", "it is gone", _CLIENTS, "keep it")
        elif name == "status" and name not in before and name in after:
            yield _finding(
                "subresources.status",
                "it is new: writes of the object no longer change its status",
                _CLIENTS,
                _NEW_VERSION,
            )
    paths, present = before.get("scale") or {}, after.get("scale") or {}
    if present and any(present.get(name) != each for name, each in paths.items()):
        yield _finding("subresources.scale", "its paths changed", _CLIENTS, "keep the paths")
    kept = {one["jsonPath"] for one in new.get("selectableFields", ())}
    for one in old.get("selectableFields", ()):
        if one["jsonPath"] not in kept:
            path = f"selectableFields {one['jsonPath']}"
            yield _finding(path, "it is gone", _CLIENTS, "keep it")
    yield from _schema(_root(old), _root(new), "")


def _root(version: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return _with_metadata(found)


def _with_metadata(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a whole object, with what each object has."""
    fields = schema.get("properties") or {}
    own = fields.get("metadata") or {}
    metadata = {**_METADATA, **own}
    metadata["properties"] = {**_METADATA["properties"], **(own.get("properties") or {})}
    whole = {"apiVersion": _TEXT, "kind": _TEXT, **fields, "metadata": metadata}
    return {**schema, "properties": whole}


# -- Schemas ---------------------------------------------------------------------------------


def _schema(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if old == new:
        return
    old, new = _normal(old), _normal(new)
    if old.get(_EMBEDDED):
        old, new = _with_metadata(old), _with_metadata(new) if new.get(_EMBEDDED) else new
    before, after = _type(old), _type(new)
    if before != after:
        is_wider = after == "anything" or (before, after) in _WIDER
        yield _finding(
            path,
            f"its type changed from {before} to {after}",
            _CLIENTS if is_wider else _BOTH,
            f"add a second field of the other type, or {_NEW_VERSION}",
        )
        if not is_wider:
            return
    yield from _values(old, new, path)
    yield from _limits(old, new, path)
    yield from _rules(old, new, path)
    yield from _merging(old, new, path)
    yield from _fields(old, new, path)
    if isinstance(old.get("items"), Mapping) and isinstance(new.get("items"), Mapping):
        yield from _schema(old["items"], new["items"], f"{path}[]")


def _normal(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with an enum in ``allOf``, as that of a nullable value is, among its own fields.

    Without an ``anyOf`` that only repeats that a value is an integer or a text.
    """
    if schema.get(_INT_OR_STRING) and schema.get("anyOf") == _EITHER:
        schema = {name: value for name, value in schema.items() if name != "anyOf"}
    parts = schema.get("allOf") or ()
    enums = [part for part in parts if isinstance(part, Mapping) and part.keys() == {"enum"}]
    if len(enums) != 1 or "enum" in schema:
        return schema
    others = [part for part in parts if part is not enums[0]]
    made = {**schema, "enum": enums[0]["enum"], "allOf": others}
    if not others:
        del made["allOf"]
    return made


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get(_INT_OR_STRING):
        return "int-or-string"
    return str(schema.get("type") or "anything")


def _values(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if old.get("nullable") and not new.get("nullable"):
        yield _finding(path, "it may no longer be null", _BOTH, "keep nullable: true")
    if "enum" in new:
        if "enum" not in old:
            yield _finding(
                path,
                f"only {_shown(new['enum'])} are valid now",
                _BOTH,
                "allow the other values, too",
            )
        elif gone := [value for value in old["enum"] if value not in new["enum"]]:
            yield _finding(
                path,
                f"{_shown(gone)} {'is' if len(gone) == 1 else 'are'} no longer valid",
                _BOTH,
                f"keep the values, deprecated, or {_NEW_VERSION}",
            )
    if "default" in old and old["default"] != new.get("default"):
        change = (
            f"changed from {_shown([old['default']])} to {_shown([new['default']])}"
            if ("default" in new)
            else "is gone"
        )
        yield _finding(
            path,
            f"its default {change}",
            _CLIENTS,
            "keep it: an API server sets it in stored objects without the field when it reads them",
        )
    name = new.get("format")
    is_checked = name in _FORMATS or (old.get("type"), name) in _NUMBER_FORMATS
    if is_checked and name != old.get("format"):
        yield _finding(path, f"its format must now be {name}", _BOTH, "leave the format as it was")


def _shown(values: Sequence[Any]) -> str:
    return ", ".join(repr(value) if isinstance(value, str) else str(value) for value in values)


def _limits(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    for name in (*_LOWEST, "minimum"):
        least = 0 if name in _LOWEST else -math.inf
        if new.get(name, least) > old.get(name, least):
            yield _narrower(old, new, path, name)
        elif name == "minimum" and name in new and _gets_exclusive(old, new, name):
            yield _narrower(old, new, path, "exclusiveMinimum")
    for name in (*_HIGHEST, "maximum"):
        if new.get(name, math.inf) < old.get(name, math.inf):
            yield _narrower(old, new, path, name)
        elif name == "maximum" and name in new and _gets_exclusive(old, new, name):
            yield _narrower(old, new, path, "exclusiveMaximum")
    step, former = new.get("multipleOf"), old.get("multipleOf")
    if step and (not former or Decimal(str(former)) % Decimal(str(step))):
        yield _narrower(old, new, path, "multipleOf")
    for name in ("pattern", *_JUNCTORS):
        if name in new and new[name] != old.get(name):
            yield _narrower(old, new, path, name)
    if new.get(_EMBEDDED) and not old.get(_EMBEDDED):
        yield _finding(path, "it must now be a whole Kubernetes object", _BOTH, _NEW_VERSION)


def _gets_exclusive(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    flag = f"exclusive{name.capitalize()}"
    return new[name] == old.get(name) and bool(new.get(flag)) and not old.get(flag)


def _narrower(old: Mapping[str, Any], new: Mapping[str, Any], path: str, name: str) -> Finding:
    is_long = name in _JUNCTORS
    was = f" (it was {old[name]})" if name in old and not is_long else ""
    what = f"{name} changed" if is_long else f"{name} is {new[name]} now{was}"
    return _finding(
        path, what, _BOTH, "leave it as it was, or check only new objects, in a webhook"
    )


def _rules(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    known = {rule.get("rule") for rule in old.get(_RULES) or ()}
    for rule in new.get(_RULES) or ():
        text = str(rule.get("rule"))
        if text not in known:
            # A rule about the former state is not for objects that nobody changes.
            breaks = _CLIENTS if "oldSelf" in text else _BOTH
            yield _finding(path, f"the rule {text!r} is new", breaks, "check only new objects")


def _merging(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    before = old.get("x-kubernetes-list-type") or "atomic"
    after = new.get("x-kubernetes-list-type") or "atomic"
    is_list = "items" in old and "items" in new
    keys = "x-kubernetes-list-map-keys"
    if is_list and before != after:
        yield _finding(
            path,
            f"its list type changed from {before} to {after}",
            _CLIENTS if after == "atomic" else _BOTH,
            "keep it: duplicate items may become invalid, and server-side apply tracks other "
            "owners",
        )
    elif is_list and after == "map" and old.get(keys) != new.get(keys):
        yield _finding(
            path,
            f"its keys changed from {_shown(old.get(keys, []))} to {_shown(new.get(keys, []))}",
            _BOTH,
            "keep the keys",
        )
    before = old.get("x-kubernetes-map-type") or "granular"
    after = new.get("x-kubernetes-map-type") or "granular"
    if before != after:
        yield _finding(path, f"its map type changed from {before} to {after}", _CLIENTS, "keep it")


def _fields(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Finding]:
    fields = old.get("properties") or {}
    names: list[str] = [*fields, *(new.get("properties") or {})]
    for name in dict.fromkeys(names):
        before, after = _field(old, name), _field(new, name)
        inner = f"{path}.{name}" if path else str(name)
        if before is None or after is _ANY:
            continue  # no object has it, or it may be anything
        if after is not None:
            yield from _schema(before, after, inner)
        else:
            yield _finding(
                inner,
                "the field is gone: its value is dropped at the next write",
                _BOTH,
                f"keep it, deprecated in its description, or {_NEW_VERSION}",
            )
    others, allowed = _other_fields(old), _other_fields(new)
    if others is not None and allowed is not None and allowed is not _ANY:
        yield from _schema(others, allowed, f"{path}.*")
    elif others is _ANY and allowed is None:
        yield _finding(
            path,
            "unknown fields are dropped now",
            _BOTH,
            f"keep {_OPEN}, or name all fields that are used",
        )
    elif others is not None and allowed is None:
        yield _finding(path, "it is no longer a map: other keys are dropped", _BOTH, _NEW_VERSION)
    for name in new.get("required") or ():
        if _is_needed(new, name) and not _is_needed(old, name):
            inner = f"{path}.{name}" if path else str(name)
            what = "a new field that is required" if name not in fields else "it is required now"
            yield _finding(inner, what, _BOTH, "give it a default, or leave it optional")


def _field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The schema of a field's values; None if such a field is dropped."""
    found: Mapping[str, Any] | None = (schema.get("properties") or {}).get(name)
    return _other_fields(schema) if found is None else found


def _other_fields(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the values of fields that have no name; None if they are dropped."""
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return values
    return _ANY if values is True or schema.get(_OPEN) or _type(schema) == "anything" else None


def _is_needed(schema: Mapping[str, Any], name: str) -> bool:
    """Whether an object without the field is refused."""
    inner = (schema.get("properties") or {}).get(name) or {}
    return name in (schema.get("required") or ()) and "default" not in inner
