"""Hypothesis strategies: values of a schema, valid metadata, whole objects.

Hypothesis comes with the extra ``testing`` and is imported when a strategy is made.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from appsdk_operator.apiserver import FaultRule
from appsdk_operator.resource import Kind, custom_resource_definition

if TYPE_CHECKING:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
else:

    class _Strategies:
        """Hypothesis' strategies, imported with the first one."""

        def __getattr__(self, name: str) -> Any:
            from hypothesis import strategies

            return getattr(strategies, name)

    st = _Strategies()

__all__ = [
    "annotation_maps",
    "faults",
    "label_maps",
    "names",
    "objects",
    "part_of",
    "specs",
    "statuses",
    "values",
]

_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?"
_LABEL: Final = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?)?"
_PREFIXED: Final = r"([a-z]{1,4}\.example\.org/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?"
_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}
_DEEPEST: Final = 4
_FAULTS: Final = (
    FaultRule.drop(),
    FaultRule.lose(),
    FaultRule.cut(1),
    FaultRule.cut(700),  # in the middle of the first or second object
    FaultRule.answer(503),
    FaultRule.answer(410),
    FaultRule.answer(422),  # as older servers answer a first sync that asks for a stream
    FaultRule.end_watch(after=1),
    FaultRule.end_watch(410, after=1),
)
# What patterns of Go have and those of Python have not, of what CRDs of classes have.
_OF_GO: Final = {r"\z": r"\Z", r"\p{Nd}": r"\d", r"\p{N}": r"\d", r"\p{L}": r"\w", r"\p{Z}": r"\s"}


@functools.cache  # making one takes as long as drawing a hundred values
def _matching(pattern: str, *, fullmatch: bool = True) -> SearchStrategy[str]:
    return st.from_regex(re.compile(pattern), fullmatch=fullmatch)


def names(*, few: bool = True) -> SearchStrategy[str]:
    """Names of objects, from a small set or from all valid names.

    Args:
        few: whether to draw from five names, so that objects are deleted and recreated under them;
            default True.
    """
    # "a-b" and "a.b" differ in what is easily lost, and "a" is a prefix of both.
    some = st.sampled_from(["a", "b", "a-b", "a.b", "0"])
    if few:
        return some
    return st.one_of(some, _matching(_NAME), st.just("x" * 253))


def label_maps() -> SearchStrategy[dict[str, str]]:
    """Valid labels: with empty values, prefixed keys, the longest value."""
    values = st.one_of(_matching(_LABEL), st.just("x" * 63))
    return st.dictionaries(_matching(_PREFIXED), values, max_size=3)


def annotation_maps() -> SearchStrategy[dict[str, str]]:
    """Valid annotations: any text, unicode included."""
    return st.dictionaries(_matching(_PREFIXED), _text(), max_size=3)


def objects(
    kind: Kind, *, crds: Iterable[Mapping[str, Any]] = (), namespace: str = "default"
) -> SearchStrategy[dict[str, Any]]:
    """Objects of a kind as plain JSON values, as a client would create them.

    They fit the kind's schema: the schema of its CRD in ``crds``, or of its ``spec`` and ``status``
    types, or, for a built-in kind, the published schema. They may break rules outside of the
    schema: CEL rules and the checks of built-in kinds.

    Args:
        kind: the kind.
        crds: CustomResourceDefinitions, with the one of ``kind``.
        namespace: the namespace of namespaced objects; default ``default``.
    """
    schema = _schema_of(kind, crds)
    metadata: dict[str, SearchStrategy[Any]] = {"name": names(few=False)}
    if kind.is_namespaced:
        metadata["namespace"] = st.just(namespace)
    parts = {
        name: values(part)
        for name, part in schema.get("properties", {}).items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    }
    required = {name: parts.pop(name) for name in schema.get("required", ()) if name in parts}
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just(kind.api_version),
            "kind": st.just(kind.kind),
            "metadata": st.fixed_dictionaries(
                metadata, optional={"labels": label_maps(), "annotations": annotation_maps()}
            ),
            **required,
        },
        optional=parts,
    )


def faults() -> SearchStrategy[list[FaultRule]]:
    """Faults of an informer's next request, at most one: for :meth:`Simulation.poll`."""
    return st.lists(st.sampled_from(_FAULTS), max_size=1)


def specs(kind: Kind, *, crds: Iterable[Mapping[str, Any]] = ()) -> SearchStrategy[Any]:
    """Values of ``spec``; for kinds without it, of all fields except metadata.

    Args:
        kind: the kind.
        crds: CustomResourceDefinitions, that of ``kind`` included.
    """
    schema = _schema_of(kind, crds)
    properties = dict(schema.get("properties", {}))
    if part_of(kind):
        spec = properties.get("spec", _ANYTHING)
        if _is_open(spec):
            # The schema allows any value: a small one keeps timelines short.
            return st.fixed_dictionaries({"size": st.integers(0, 3)})
        return values(spec)
    for name in ("apiVersion", "kind", "metadata", "status", "immutable"):
        properties.pop(name, None)
    return values({**schema, "properties": properties, "type": "object"})


def statuses(kind: Kind, *, crds: Iterable[Mapping[str, Any]] = ()) -> SearchStrategy[Any]:
    """Values of ``status``; see :func:`specs`."""
    status = _schema_of(kind, crds).get("properties", {}).get("status", _ANYTHING)
    if _is_open(status):
        return st.fixed_dictionaries({"seen": st.integers(0, 3)})
    return values(status)


def part_of(kind: Kind) -> str:
    """The field with the desired state: ``spec``, or empty if it is the whole object."""
    from appsdk_operator.apiserver import builtin_schemas

    schema = builtin_schemas.schema(kind.group, kind.version, kind.kind)
    if schema is None or "spec" in schema.get("properties", {}):
        return "spec"
    return ""


def _schema_of(kind: Kind, crds: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    from appsdk_operator.apiserver import builtin_schemas

    for crd in crds:
        spec = crd["spec"]
        if (spec["group"], spec["names"]["kind"]) == (kind.group, kind.kind):
            for version in spec["versions"]:
                if version["name"] == kind.version:
                    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
                    return found
    builtin = builtin_schemas.schema(kind.group, kind.version, kind.kind)
    if builtin is not None:
        return builtin
    made: Any = custom_resource_definition(kind).to_dict()
    schema: Mapping[str, Any] = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _is_open(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields")) and not schema.get("properties")


def values(schema: Mapping[str, Any], *, deepest: int = _DEEPEST) -> SearchStrategy[Any]:
    """Values that fit an OpenAPI v3 schema as CRDs have them, edges first.

    Args:
        schema: the schema, with its references resolved.
        deepest: the levels that are filled; default 4. Optional fields below are omitted.
    """
    strategy = _of_type(schema, deepest)
    if schema.get("nullable") and "enum" not in schema:  # which no null is in
        strategy = st.one_of(strategy, st.none())
    return strategy


def _of_type(schema: Mapping[str, Any], deepest: int) -> SearchStrategy[Any]:
    for part in (schema, *schema.get("allOf", ())):
        if "enum" in part:
            # Copies, which a test may change.
            known = [value for value in part["enum"] if value is not None] or [None]
            return st.sampled_from(known).map(copy.deepcopy)
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return st.one_of(st.integers(0, 100), _matching(r"[0-9]{1,2}%"))
    match schema.get("type"):
        case "object":
            return _object(schema, deepest)
        case "array":
            return _array(schema, deepest)
        case "string":
            return _string(schema)
        case "integer":
            return _integer(schema)
        case "number":
            low = schema.get("minimum", min(-1e6, schema.get("maximum", 0.0)))
            high = schema.get("maximum", max(1e6, schema.get("minimum", 0.0)))
            excluded = [bool(schema.get(f"exclusive{end}")) for end in ("Minimum", "Maximum")]
            return st.floats(low, high, exclude_min=excluded[0], exclude_max=excluded[1])
        case "boolean":
            return st.booleans()
        case _:
            return (
                _anything()
                if schema.get("x-kubernetes-preserve-unknown-fields")
                else st.builds(dict)
            )


def _object(schema: Mapping[str, Any], deepest: int) -> SearchStrategy[Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = {
        name: values(properties.get(name, _ANYTHING), deepest=deepest - 1)
        for name in schema.get("required", ())
    }
    if deepest <= 0:
        return st.fixed_dictionaries(required)
    optional = {
        name: values(part, deepest=deepest - 1)
        for name, part in properties.items()
        if name not in required
    }
    known = st.fixed_dictionaries(required, optional=optional)
    more = schema.get("additionalProperties")
    if not properties and schema.get("x-kubernetes-preserve-unknown-fields"):
        return _anything()
    if properties or not more:
        return known
    of = values(more, deepest=deepest - 1) if isinstance(more, Mapping) else _anything()
    least, most = schema.get("minProperties", 0), min(3, schema.get("maxProperties", 3))
    keys = _matching(_LABEL).filter(bool)
    return st.dictionaries(keys, of, min_size=least, max_size=max(least, most))


def _array(schema: Mapping[str, Any], deepest: int) -> SearchStrategy[Any]:
    least = int(schema.get("minItems", 0))
    most = max(least, min(3, schema.get("maxItems", 3))) if deepest > 0 else least
    items = values(schema.get("items", _ANYTHING), deepest=deepest - 1)
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
    if keys:

        def key_of(item: Any) -> Any:
            return tuple(repr(item.get(key)) for key in keys)

        return st.lists(items, min_size=least, max_size=most, unique_by=key_of)
    if schema.get("uniqueItems") or schema.get("x-kubernetes-list-type") == "set":
        return st.lists(items, min_size=least, max_size=most, unique_by=repr)
    return st.lists(items, min_size=least, max_size=most)


def _text(least: int = 0, most: int = 12) -> SearchStrategy[str]:
    # No surrogates: UTF-8 cannot encode them.
    letters = st.characters(codec="utf-8")
    return st.text(letters, min_size=least, max_size=most)


def _string(schema: Mapping[str, Any]) -> SearchStrategy[Any]:
    least = int(schema.get("minLength", 0))
    most = int(schema.get("maxLength", max(least, 12)))
    pattern = schema.get("pattern")
    if pattern is not None:
        # A schema's pattern need not match the whole text.
        of_python = re.sub(r"\\(?:p\{\w+\}|.)", lambda m: _OF_GO.get(m[0], m[0]), str(pattern))
        texts: SearchStrategy[str] = _matching(of_python, fullmatch=False)
        return texts.filter(lambda text: least <= len(text) <= most and "\n" not in text)
    match schema.get("format"):
        case "date-time":
            moments = st.integers(0, 4_102_444_800)  # to the end of the century
            return moments.map(
                lambda at: dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            )
        case "date":
            return st.dates(dt.date(1970, 1, 1), dt.date(2100, 1, 1)).map(str)
        case "uuid":
            return st.uuids().map(str)
        case "ipv4":
            return st.ip_addresses(v=4).map(str)
        case "ipv6":
            return st.ip_addresses(v=6).map(str)
        case "byte":
            return _matching(r"([A-Za-z0-9+/]{4}){0,3}")
        case "duration":
            return st.integers(0, 10_000).map(lambda seconds: f"{seconds}s")
        case _:
            return _text(least, min(most, max(least, 12)))


def _integer(schema: Mapping[str, Any]) -> SearchStrategy[int]:
    bits = 31 if schema.get("format") == "int32" else 63
    low, high = (schema.get("minimum", -(2**bits)), schema.get("maximum", 2**bits - 1))
    low = math.floor(low) + 1 if schema.get("exclusiveMinimum") else math.ceil(low)
    high = math.ceil(high) - 1 if schema.get("exclusiveMaximum") else math.floor(high)
    step = int(schema.get("multipleOf", 1))
    whole = st.integers(-(-low // step), high // step).map(lambda count: count * step)
    small = (
        st.integers(max(-(-low // step), 0), min(high // step, 5)) if low <= 5 <= high else whole
    )
    return st.one_of(small.map(lambda count: count * step) if step > 1 else small, whole)


def _anything() -> SearchStrategy[Any]:
    """Any JSON object."""
    leaf = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _text())
    return st.dictionaries(
        _matching(_LABEL).filter(bool),
        st.recursive(leaf, lambda inner: st.lists(inner, max_size=2), max_leaves=3),
        max_size=2,
    )
