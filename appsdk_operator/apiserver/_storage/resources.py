"""The served resources, their versions, and the strategies that writes follow."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, final

import attrs
import msgspec

from appsdk_operator.apiserver._schema.builtin_types import DecodeError
from appsdk_operator.apiserver._schema.structural_schema import StructuralSchema
from appsdk_operator.apiserver._storage.storage import Collection, Record
from appsdk_operator.apiserver._values.names import NameStyle
from appsdk_operator.apiserver._values.status import FieldError
from appsdk_operator.resource import kinds
from appsdk_operator.resource.kinds import BuiltinKind

__all__ = [
    "Catalog",
    "Column",
    "Converter",
    "FieldValue",
    "NameStyle",
    "Resource",
    "SelectableFields",
    "ServedVersion",
    "Strategy",
    "SubresourceFields",
    "version_priority",
]


def _nothing(*_args: object) -> None:
    """Change and refuse nothing."""


SubresourceFields: TypeAlias = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""The old object with the fields of a subresource taken from the new one."""


def _delete_now(_obj: dict[str, Any]) -> bool:
    return False


def _no_problems(_new: dict[str, Any], _old: dict[str, Any] | None) -> Iterable[FieldError]:
    return ()


FieldValue: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Reads the value of a selectable field from an object: a built-in one as it is stored, a custom
one in the version that serves the field."""


@attrs.frozen
class SelectableFields:
    """The fields that field selectors of a kind may name."""

    values: Mapping[str, FieldValue] = attrs.field(factory=dict)
    """The value of each field besides name and namespace."""
    metadata: frozenset[str] = attrs.field(
        default=frozenset({"metadata.name", "metadata.namespace"}), kw_only=True
    )
    """Those of ``metadata.name`` and ``metadata.namespace`` that are supported."""
    refusal: str = attrs.field(default="", kw_only=True)
    """The error for other fields; default: that of kinds with ``values``, or without."""

    def refused(self, path: str) -> str:
        """The error for a field that is not supported."""
        if self.refusal or self.values:
            return (self.refusal or "field label not supported: {}").format(path)
        return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


@attrs.frozen(kw_only=True)
class Strategy:
    """The strategy of a kind: how writes to it behave."""

    custom: bool = False
    """Whether it is a custom resource: structural schemas apply, strategic merge patches do not."""
    generation: bool = False
    """Whether ``metadata.generation`` counts changes outside of metadata and status."""
    error_group: str | None = None
    """The group that validation errors name; None: the resource's own."""
    annotations_count: bool = False
    """Whether changes of annotations increment the generation as well."""
    status_on_create: bool = False
    """Whether a create keeps the status in the request."""
    names_requester: bool = False
    """Whether the spec of a new object names the user who created it."""
    unconditional_update: bool = True
    """Whether an update without a resourceVersion is allowed."""
    create_on_update: bool = False
    """Whether an update of a missing object creates it."""
    returns_deleted: bool = False
    """Whether a delete returns the object instead of a Status."""
    propagation: str | None = "Background"
    """The propagation policy of deletes that ask for none; None: deletes have no policy at all."""
    deletes_too: str = ""
    """The core resource whose object of the same name a delete takes along."""
    name_style: NameStyle = NameStyle.SUBDOMAIN
    """The syntax of names."""
    protected: frozenset[str] = frozenset()
    """Names of objects that cannot be deleted."""
    protection: str = ""
    """The error for deletions of those."""
    admit: Callable[[dict[str, Any], dict[str, Any] | None], None] = _nothing
    """Set what admission sets before the webhooks see the object; the old one is None on create.
    Called again after they have changed it."""
    check_admission: Callable[[dict[str, Any], dict[str, Any] | None], None] = _nothing
    """Refuse what admission refuses, after the webhooks have changed the object."""
    prepare_create: Callable[[dict[str, Any]], None] = _nothing
    """Set the fields that the server sets on new objects after admission."""
    prepare_update: Callable[[dict[str, Any], dict[str, Any]], None] = _nothing
    """Restore or set fields of the new object, given the old one."""
    prepare_delete: Callable[[dict[str, Any]], bool] = _delete_now
    """Mark the object for deletion; True if the server must finalize it before it is removed."""
    prepare_status: Callable[[dict[str, Any], dict[str, Any]], None] = _nothing
    """Restore the metadata and status fields that an update of the status cannot change."""
    subresources: Mapping[str, SubresourceFields] = attrs.field(factory=dict)
    """The fields that each subresource writes, besides the status."""
    before_storage: Callable[[dict[str, Any], str], None] = _nothing
    """Check an object and its key against what is stored when it is about to be stored."""
    graceful: bool = False
    """Whether deletion has a grace period."""
    compile_ahead: Callable[[dict[str, Any], dict[str, Any] | None], None] | None = None
    """Compile what validation needs of the new object, given the old one, and keep it for later.
    Called in a thread, with a copy, for big objects only; None if nothing takes long."""
    validate: Callable[[dict[str, Any], dict[str, Any] | None], Iterable[FieldError]] = _no_problems
    """The validation errors of the new object; the old one is None on create."""
    immutable: Mapping[str, str] = attrs.field(factory=dict)
    """The paths of fields that cannot change, each with its path in errors."""


@attrs.frozen
class Column:
    """A printer column of the tables that kubectl shows."""

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


class Converter(Protocol):
    """A conversion webhook."""

    @property
    def conversion(self) -> Mapping[str, Any]:
        """The ``spec.conversion`` that configures it."""
        ...

    async def convert(
        self, objects: list[dict[str, Any]], source: str, wanted: str
    ) -> list[dict[str, Any]]:
        """Convert objects from the apiVersion ``source`` to ``wanted``.

        Raises:
            StatusError: the conversion failed.
        """
        ...


@final
@attrs.define(eq=False)
class Resource:
    """A resource of a group in all its versions, which share one collection of objects."""

    group: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    collection: Collection
    strategy: Strategy
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = kinds.ALL_VERBS
    versions: dict[str, ServedVersion] = attrs.field(factory=dict)
    storage_version: str = ""
    terminating: bool = False
    converter: Converter | None = None
    """The conversion webhook; None: versions differ in apiVersion only, or are built in."""

    @property
    def qualified_name(self) -> str:
        """``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """The storage key of an object."""
        return f"{namespace}/{name}" if self.namespaced else name

    def stored(self, record: Record) -> dict[str, Any]:
        """A copy of a stored object, pruned and defaulted if its schema changed since."""
        obj = record.decode()
        version = self.versions.get(record.api_version.rpartition("/")[2])
        schema = version.structural_schema if version is not None else None
        if version is not None and schema is not None and record.written <= version.schema_since:
            with contextlib.suppress(DecodeError):
                schema.prune_and_default(obj)
        return obj


@final
@attrs.define(eq=False)
class ServedVersion:
    """A resource in one of its versions."""

    resource: Resource
    version: str
    subresources: Mapping[str, Any] = attrs.field(factory=dict)
    schema: Mapping[str, Any] | None = None
    structural_schema: StructuralSchema | None = None
    schema_since: int = 0
    """The revision at which the schema last changed."""
    columns: tuple[Column, ...] | None = None
    """The printer columns besides the name; None: the age, or those of a built-in kind."""
    served: bool = True
    warning: str = ""
    from_storage: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    to_storage: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    normalize: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Change a decoded object as the conversion to the real server's internal version does."""
    selectable: SelectableFields = attrs.field(factory=SelectableFields)
    """The fields that field selectors of this version may name."""
    field_managers: tuple[Any, Any, dict[str, Any]] | None = None
    """A cache of field managers: the schema and subresources it is valid for, and one manager for
    each subresource."""
    api_version: str = attrs.field(init=False)
    _prefixes: tuple[bytes, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        group = self.resource.group
        self.api_version = f"{group}/{self.version}" if group else self.version
        version, kind = f'"apiVersion":"{self.api_version}"', f'"kind":"{self.resource.kind}"'
        self._prefixes = (f"{{{kind},{version},".encode(), f"{{{version},{kind},".encode())

    @property
    def has_status(self) -> bool:
        """Whether it has a status subresource."""
        return "status" in self.subresources

    def read(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Convert a stored object to this version, in place where possible."""
        is_stored = obj["apiVersion"] == self.api_version
        if self.from_storage is not None:
            obj = self.from_storage(obj)
        obj["apiVersion"] = self.api_version
        if not is_stored and self.structural_schema is not None:
            self.structural_schema.prune(obj)
        return obj

    def needs_conversion(self, record: Record) -> bool:
        """Whether the webhook must convert the record before it can be read."""
        if self.resource.converter is None or record.api_version == self.api_version:
            return False
        return record.variant(self._variant) is None

    def keep_converted(self, record: Record, obj: dict[str, Any]) -> None:
        """Cache the result of the webhook for a record."""
        obj["metadata"]["resourceVersion"] = str(record.revision)
        record.keep_variant(self._variant, obj)

    def decode(self, record: Record) -> dict[str, Any]:
        """A copy of a record's object in this version."""
        if self.resource.converter is None:
            return self.read(self.resource.stored(record))
        decoded: dict[str, Any] = msgspec.json.decode(self.data(record))
        return decoded

    def data(self, record: Record) -> bytes:
        """The JSON of a record in this version.

        Raises:
            LookupError: the webhook has not converted the record.
        """
        same = record.api_version == self.api_version
        if same and record.written > self.schema_since:
            return record.data
        if self.resource.converter is not None and not same:
            found = record.variant(self._variant)
            if found is None:
                raise LookupError(f"{record.key} was not converted to {self.api_version}")
            return found
        return record.encoded_as(
            self._variant, lambda: msgspec.json.encode(self.read(self.resource.stored(record)))
        )

    def item(self, record: Record) -> bytes:
        """The JSON of a record as an item of a list.

        As on the real server, items of built-in kinds have no apiVersion and kind, and custom
        resources have both. Clients must cope with either.
        """
        data = self.data(record)
        if self.resource.strategy.custom:
            return data
        for prefix in self._prefixes:
            if data.startswith(prefix):
                return b"{" + data[len(prefix) :]
        return record.encoded_as(f"item/{self.api_version}", lambda: self._without_type(data))

    @staticmethod
    def _without_type(data: bytes) -> bytes:
        obj = msgspec.json.decode(data)
        del obj["apiVersion"], obj["kind"]
        return msgspec.json.encode(obj)

    @property
    def _variant(self) -> tuple[Converter | None, str, int]:
        """The key of the variant of records in this version, by the present definition."""
        since = max(version.schema_since for version in self.resource.versions.values())
        return self.resource.converter, self.api_version, since


@final
class Catalog:
    """The served resources. Built-in ones are made when they are first asked for."""

    def __init__(self) -> None:
        """An empty catalog."""
        self._resources: dict[tuple[str, str], Resource | tuple[BuiltinKind, ...]] = {}
        self._make: Callable[[tuple[BuiltinKind, ...]], Resource] | None = None

    def add_builtin(
        self,
        entries: Mapping[tuple[str, str], tuple[BuiltinKind, ...]],
        make: Callable[[tuple[BuiltinKind, ...]], Resource],
    ) -> None:
        """Add built-in resources by group and plural; ``make`` makes one of its versions."""
        self._resources.update(entries)
        self._make = make

    def add(self, resource: Resource) -> None:
        """Add a resource; it replaces one of the same group and plural."""
        self._resources[resource.group, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource."""
        self._resources.pop((group, plural), None)

    def resource(self, group: str, plural: str) -> Resource | None:
        """The resource with this group and plural."""
        found = self._resources.get((group, plural))
        if isinstance(found, tuple):
            assert self._make is not None
            found = self._resources[group, plural] = self._make(found)
        return found

    def find(self, group: str, version: str, plural: str) -> ServedVersion | None:
        """The resource in this version, if the version is served."""
        resource = self.resource(group, plural)
        if resource is None:
            return None
        found = resource.versions.get(version)
        return found if found is not None and found.served else None

    def find_kind(self, api_version: str, kind: str) -> ServedVersion | None:
        """The served version of an apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        for resource in self.of_group(group):
            if resource.kind == kind and "list" in resource.verbs:
                found = resource.versions.get(version)
                if found is not None and found.served:
                    return found
        return None

    def is_builtin(self, group: str) -> bool:
        """Whether the group has built-in kinds."""
        return any(not resource.strategy.custom for resource in self.of_group(group))

    def of_collection(self, collection: Collection) -> Resource | None:
        """The resource that a collection belongs to."""
        plural, _, group = collection.name.partition(".")
        resource = self.resource(group, plural)
        return resource if resource is not None and resource.collection is collection else None

    def of_group(self, group: str) -> list[Resource]:
        """The resources of a group."""
        places = [place for place in self._resources if place[0] == group]
        return list(filter(None, itertools.starmap(self.resource, places)))

    def __iter__(self) -> Iterator[Resource]:
        return filter(None, itertools.starmap(self.resource, list(self._resources)))

    def groups(self) -> dict[str, list[str]]:
        """The served groups with their versions, the preferred version first."""
        found: dict[str, dict[str, None]] = {}
        for resource in self:
            served = [name for name, version in resource.versions.items() if version.served]
            found.setdefault(resource.group, {}).update(dict.fromkeys(served))
        return {
            group: sorted(versions, key=version_priority)
            for group, versions in found.items()
            if versions
        }


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sort key for versions as in Kubernetes: stable, beta, alpha, each newest first."""
    head, _, rest = version.removeprefix("v").partition("beta")
    rank = 1 if "beta" in version else 0
    if "alpha" in version:
        head, _, rest = version.removeprefix("v").partition("alpha")
        rank = 2
    if not version.startswith("v") or not head.isdigit() or (rest and not rest.isdigit()):
        return (3, 0, 0, version)
    return (rank, -int(head), -int(rest or 0), version)
