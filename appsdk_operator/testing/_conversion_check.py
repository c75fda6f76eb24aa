"""The property test of the conversions between the versions of a kind."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from appsdk_operator.resource import (
    ConversionError,
    DecodeError,
    JsonPatch,
    Kind,
    MutableObject,
    Object,
    Spoke,
    Versions,
    custom_resource_definition,
    lost_parts,
    pointer_steps,
    with_defaults,
)
from appsdk_operator.runtime.validation import check_count, check_instance
from appsdk_operator.testing import strategies
from appsdk_operator.testing._bounded_search import SearchEnded, bounded_search
from appsdk_operator.testing._broken_promise import (
    BrokenPromise,
    hides_kit_frames,
    promise_of,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


__tracebackhide__ = hides_kit_frames

_MOST_LINES: Final = 10
# A second or two. Afterwards _without_needless_fields takes off what is left.
_MOST_SHRINKS: Final = 200
_MOST_CHARACTERS: Final = 600
# A converter knows some keys of its own at most, so these few show what becomes of others.
_KEYS: Final = ("a", "example.com/b", "kubectl.kubernetes.io/last-applied-configuration")
_HEADER: Final = ("apiVersion", "kind", "metadata")


def check_conversion(
    versions: Versions,
    *,
    specs: Mapping[Kind, SearchStrategy[Any]] | None = None,
    statuses: Mapping[Kind, SearchStrategy[Any]] | None = None,
    crd: Mapping[str, Any] | None = None,
    lossy: Collection[Kind] = (),
    max_examples: int = 100,
    seed: int | None = None,
) -> None:
    """Convert generated objects between the versions of a kind, and check that nothing is lost.

    For each version but the hub:

    * an object of the hub, converted there and back, is the same;
    * an object of the version, converted to the hub and back, is the same; if an annotation
      carries fields that would be lost, also without the annotation;
    * with such an annotation: a client of the version reads what it has written, whatever the
      annotation has;
    * the same object gives the same result each time.

    The objects have a spec, and some have a status. Values with the same meaning are equal. Typed
    values may have their defaults written out. A null counts as an API server counts it by the
    schema: the server drops it, or puts the default in its place, unless the field is ``nullable``.
    Only then a null that comes back as an absent field is a loss.
    If a function refuses an object with :class:`ConversionError`, the object does not count, unless
    it is the result of another function. The check makes a failing object as small as possible; the
    error shows the object and the difference.

    Needs Hypothesis. Its settings, except for the number of examples, are those of the profile.

    Args:
        versions: the versions.
        specs: the specs of a kind, typed or plain; default: from its schema, see
            :func:`~appsdk_operator.testing.strategies.specs`. Give them for a kind without type and
            schema, and if the schema says too little, for example that a text is a number.
        statuses: the statuses, in the same way; default: from the schema, none without a schema.
        crd: the CRD with the schemas; default: made from the types.
        lossy: versions that may lose fields of the hub; only the other direction is checked.
        max_examples: the number of objects for each check; default 100.
        seed: the seed of the search, for the same objects each time; default: by the profile.

    Raises:
        BrokenPromise: a conversion lost or changed something, or a function failed.
        TypeError: ``versions`` is not of type Versions.
        ValueError: there are no other versions; a kind needs ``specs``; or all objects were
            refused.
    """
    check_instance("versions", versions, Versions, "Versions(V1).older(V1Alpha1, up=…, down=…)")
    check_count("max_examples", max_examples, 1)
    if not versions.spokes:
        raise ValueError(f"{versions.hub} has no other version: add one with older(…)")
    for name, given in (("specs", specs), ("statuses", statuses), ("lossy", lossy)):
        _check_kinds(name, given or (), versions)
    definition = custom_resource_definition(versions) if crd is None else crd
    schemas = {
        version["name"]: version["schema"]["openAPIV3Schema"].get("properties", {})
        for version in definition["spec"]["versions"]
    }
    source = _Objects(schemas, specs or {}, statuses or {})
    for spoke in versions.spokes:
        for check in _checks(versions, spoke, schemas, may_lose=spoke.kind in lossy):
            _search(check, source, max_examples, seed)


def _check_kinds(name: str, given: Iterable[Kind], versions: Versions) -> None:
    for kind in given:
        if kind not in versions.kinds:
            raise ValueError(
                f"{name} has {kind}, which is none of {', '.join(map(str, versions.kinds))}"
            )


# -- Objects ------------------------------------------------------------------------------------


@attrs.frozen
class _Objects:
    """Strategies for objects of each version."""

    schemas: Mapping[str, Mapping[str, Any]]
    specs: Mapping[Kind, SearchStrategy[Any]]
    statuses: Mapping[Kind, SearchStrategy[Any]]

    def of(self, kind: Kind) -> SearchStrategy[Object[Any, Any]]:
        """Objects of a kind.

        Raises:
            ValueError: nothing says what their specs are.
        """
        from hypothesis import strategies as st

        spec = self._part(kind, "spec", self.specs)
        if spec is None:
            raise ValueError(
                f"the spec of {kind} has no type and no schema, so the kit cannot generate it: "
                f"give specs={{{kind.kind}: …}}, or crd= with its schema"
            )
        status = self._part(kind, "status", self.statuses)
        return st.builds(
            lambda spec, status, labels, annotations: _object(
                kind, spec, status, labels, annotations
            ),
            spec,
            st.none() if status is None else status,
            st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(["", "x"]), max_size=2),
            st.dictionaries(st.sampled_from(_KEYS), st.text("aé{", max_size=3), max_size=2),
        )

    def smaller(self, obj: Object) -> Iterator[Object]:
        """The object without one of its optional fields, for each of them."""
        for part, given in (("spec", self.specs), ("status", self.statuses)):
            if obj.kind in given:  # whose optional fields are not known
                continue
            required = self.schemas[obj.kind.version].get(part, {}).get("required", ())
            for name in obj.get(part) or ():
                if name not in required:
                    draft = obj.mutable_copy()
                    del draft[part][name]
                    yield draft.freeze()
        for part in ("labels", "annotations"):
            for name in obj.metadata.get(part, ()):
                draft = obj.mutable_copy()
                del draft.metadata[part][name]
                if not draft.metadata[part]:
                    del draft.metadata[part]
                yield draft.freeze()

    def _part(
        self, kind: Kind, name: str, given: Mapping[Kind, SearchStrategy[Any]]
    ) -> SearchStrategy[Any] | None:
        from hypothesis import strategies as st

        if kind in given:
            return given[kind]
        schema: Mapping[str, Any] = self.schemas.get(kind.version, {}).get(name) or {}
        is_open = schema.get("x-kubernetes-preserve-unknown-fields")
        if not schema or (is_open and not schema.get("properties")):
            return None
        values = strategies.values(schema)
        # A new object has no status.
        return values if name == "spec" else st.none() | values


def _object(
    kind: Kind, spec: Any, status: Any, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Object[Any, Any]:
    metadata = {"uid": "0c2e9d3c-1f5a-4d3b-8a53-8f6d5b8e7a10", "generation": 1}
    for name, texts in (("labels", labels), ("annotations", annotations)):
        if texts:
            metadata[name] = dict(texts)
    parts = {name: one for name, one in (("spec", spec), ("status", status)) if one is not None}
    namespace = "default" if kind.is_namespaced else ""
    return MutableObject.new(kind, "a", namespace=namespace, metadata=metadata, **parts).freeze()


def _parts(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.to_dict().items() if name not in _HEADER}


# -- Checks -------------------------------------------------------------------------------------


class _RefusedError(Exception):
    """A function refused a generated object."""


@attrs.frozen(kw_only=True)
class _Check:
    """A round trip of an object of ``kind`` by way of ``other``."""

    versions: Versions
    schemas: Mapping[str, Mapping[str, Any]]
    """The schemas of spec and status, by version."""
    kind: Kind
    other: Kind
    remedy: str
    changed_by: Kind | None = None
    """The version in which a client replaces spec and status on the way."""

    def run(self, obj: Object, change: Object | None) -> None:
        """Check one object.

        Raises:
            BrokenPromise: with the object and the difference.
            _RefusedError: a function refused it.
        """
        there = self._convert(obj, self.other, is_generated=True)
        if self._convert(obj, self.other, is_generated=True) != there:
            raise self._failure(
                f"gives {self._path(obj.kind, self.other)} something else each time", obj, there
            )
        if change is None:
            back = self._convert(there, self.kind)
            self._compare(obj, back, obj, there, self._path(self.kind, self.other, self.kind))
            return
        # Another client replaces spec and status, and keeps the annotation.
        draft = there.to_dict()
        kept = {name: value for name, value in draft.items() if name in _HEADER}
        written = Object.from_dict(self.other, {**kept, **_parts(change)})
        hub = self._convert(written, self.kind, is_generated=True)
        read = self._convert(hub, self.other)
        where = self._path(self.other, self.kind, self.other)
        text = f"{where} after a change of an object that came from {self.kind.version}"
        self._compare_parts(written, read, written, hub, text)

    def _convert(self, obj: Object, to: Kind, *, is_generated: bool = False) -> Object:
        path = self._path(obj.kind, to)
        try:
            return self.versions.convert(obj, to)
        except ConversionError as error:
            if is_generated and isinstance(error.__cause__, (ConversionError, DecodeError)):
                raise _RefusedError(str(error)) from error
            raise self._failure(f"fails {path}: {error}", obj, None) from error
        except Exception as error:
            what = f"fails {path} with {type(error).__name__}: {error}"
            raise self._failure(what, obj, None) from error

    def _compare(
        self, before: Object, after: Object, obj: Object, there: Object, path: str
    ) -> None:
        self._compare_parts(before, after, obj, there, path)
        one, other = before.metadata, after.metadata
        if one != other:
            raise self._failure(
                f"changes {path}", obj, there, _differences({"metadata": one}, {"metadata": other})
            )

    def _compare_parts(
        self, before: Object, after: Object, obj: Object, there: Object, path: str
    ) -> None:
        schema = {"properties": self.schemas[before.kind.version]}
        one, other = (_without_nulls(_parts(each), schema) for each in (before, after))
        if lost_parts(before.kind, one, other):
            differences = _differences(
                with_defaults(before.kind, one), with_defaults(before.kind, other)
            ) or _differences(one, other)
            raise self._failure(f"changes {path}", obj, there, differences)

    def _path(self, *kinds: Kind) -> str:
        return " → ".join(kind.version for kind in kinds)

    def _failure(
        self, what: str, obj: Object, there: Object | None, differences: Iterable[str] = ()
    ) -> BrokenPromise:
        lines = [f"{self.kind.kind} {what}", *(f"  {line}" for line in differences)]
        lines.append(f"the object of {obj.kind.version}: {_short(obj)}")
        if there is not None:
            lines.append(f"in {there.kind.version}: {_short(there)}")
        if self.remedy:
            lines.append(self.remedy)
        return BrokenPromise("\n".join(lines))


def _without_nulls(value: Any, schema: Any) -> Any:
    """The value without the nulls that an API server drops, or replaces by a default."""
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, list):
        items = schema.get("items")
        return [_without_nulls(_defaulted(item, items), items) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    fields, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, item in value.items():
        own = fields.get(name, others)
        found = _defaulted(item, own)
        if found is not None or item is not None or _may_be_null(own):
            made[name] = _without_nulls(found, own)
    return made


def _defaulted(value: Any, schema: Any) -> Any:
    is_default = value is None and not _may_be_null(schema)
    return schema.get("default") if is_default else value


def _may_be_null(schema: Any) -> bool:
    return not isinstance(schema, Mapping) or bool(schema.get("nullable"))


def _checks(
    versions: Versions,
    spoke: Spoke,
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    may_lose: bool,
) -> list[_Check]:
    hub, kind = versions.hub, spoke.kind
    name = kind.version
    make = functools.partial(_Check, schemas=schemas)
    checks = []
    if not may_lose:
        remedy = (
            ""
            if spoke.annotation
            else f"if {name} cannot hold it, give lossless=True for {name}, or name it in lossy="
        )
        checks.append(make(versions=versions, kind=hub, other=kind, remedy=remedy))
    remedy = f"the hub has to hold every field of {name}"
    checks.append(make(versions=versions, kind=kind, other=hub, remedy=remedy))
    if spoke.annotation:
        bare = attrs.evolve(
            versions, spokes=tuple(attrs.evolve(one, annotation="") for one in versions.spokes)
        )
        remedy = (
            f"an annotation hides the loss from readers of {name}, but the hub shows another value"
        )
        checks.append(make(versions=bare, kind=kind, other=hub, remedy=remedy))
        remedy = f"a value that a client of {name} writes has to override the annotation"
        checks.append(make(versions=versions, kind=hub, other=kind, remedy=remedy, changed_by=kind))
    return checks


def _differences(before: Any, after: Any) -> list[str]:
    """The operations from one value to the other, as lines."""
    lines = []
    for operation in JsonPatch.between(before, after).operations:
        path, what = operation["path"], operation["op"]
        old = _at(before, path) if what != "add" else None
        text = {
            "add": "was not there, and is {new}",
            "remove": "was {old}, and is missing",
            "replace": "was {old}, and is {new}",
        }[what]
        new = _cut(json.dumps(operation.get("value"), ensure_ascii=False), 100)
        old_text = _cut(json.dumps(old, ensure_ascii=False), 100)
        lines.append(f"{path} {text.format(old=old_text, new=new)}")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
    return lines


def _at(value: Any, path: str) -> Any:
    for name in pointer_steps(path):
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (LookupError, ValueError, TypeError):  # an item that was moved meanwhile
            return None
    return value


def _short(obj: Object) -> str:
    shown: dict[str, Any] = {}
    for name in ("labels", "annotations"):
        value = obj.metadata.get(name)
        if value:
            shown[name] = dict(value)
    return _cut(json.dumps({**shown, **_parts(obj)}, ensure_ascii=False), _MOST_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# -- The search ---------------------------------------------------------------------------------


def _search(check: _Check, source: _Objects, max_examples: int, seed: int | None) -> None:
    """Check generated objects.

    Raises:
        BrokenPromise: for the smallest that fails.
        ValueError: all were refused.
    """
    from hypothesis import strategies as st

    counts = {"fine": 0, "shrunk": 0}
    refusals: list[Exception] = []
    found: list[tuple[Object, Object | None, BrokenPromise]] = []
    changes = st.none() if check.changed_by is None else source.of(check.changed_by)

    def fails(drawn: tuple[Object, Object | None]) -> bool:
        counts["shrunk"] += bool(found)
        if counts["shrunk"] > _MOST_SHRINKS:
            raise SearchEnded
        try:
            check.run(*drawn)
        except _RefusedError as error:
            refusals[:] = [error]
        except BrokenPromise as error:
            found[:] = [(*drawn, error)]
            return True
        else:
            counts["fine"] += 1
        return False

    objects = st.tuples(source.of(check.kind), changes)
    bounded_search(objects, fails, max_examples=max_examples, seed=seed)
    if found:
        # The last one that failed is the smallest that Hypothesis has found.
        error = _without_needless_fields(check, source, *found[0])
        raise error from error.__cause__
    if refusals and not counts["fine"]:
        raise ValueError(
            f"every {check.kind.kind} was refused, so nothing was checked; the last time with: "
            f"{refusals[0]}. Give specs= with valid specs"
        )


def _without_needless_fields(
    check: _Check, source: _Objects, obj: Object, change: Object | None, error: BrokenPromise
) -> BrokenPromise:
    """The same failure of an object with fewer fields."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for fewer in source.smaller(obj):
            try:
                check.run(fewer, change)
            except _RefusedError:
                continue
            except BrokenPromise as smaller:
                if promise_of(smaller) == promise_of(error):
                    obj, error, is_smaller = fewer, smaller, True
                    break
    return error
