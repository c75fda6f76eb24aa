"""What the server serves: resources, the versions they are served in, and the rules they follow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, final

import attrs
import msgspec

from appsdk_operator.apiserver._schema.object_checks import CoercionError
from appsdk_operator.apiserver._schema.structural_schema import StructuralSchema
from appsdk_operator.apiserver._storage.storage import Collection, Record
from appsdk_operator.apiserver._values.names import NameStyle
from appsdk_operator.apiserver._values.status import FieldError
from appsdk_operator.resource import kinds

__all__ = ["Catalog", "Column", "Converter", "NameStyle", "Resource", "ServedVersion", "Strategy"]


def _no_preparation(_obj: dict[str, Any]) -> None:
    """No preparation."""


def _delete_now(_obj: dict[str, Any]) -> bool:
    return False


def _no_update_preparation(_new: dict[str, Any], _old: dict[str, Any]) -> None:
    """No preparation."""


def _no_problems(_new: dict[str, Any], _old: dict[str, Any] | None) -> list[FieldError]:
    return []


@attrs.frozen(kw_only=True)
class Strategy:
    """How writes to a resource behave, where kinds differ."""

    custom: bool = False
    """Whether it is a custom resource: schemas apply, strategic patches do not."""
    generation: bool = False
    """Whether ``metadata.generation`` counts the changes of what is not metadata or status."""
    error_group: str | None = None
    """The group that complaints about objects name; None: the resource's own."""
    annotations_count: bool = False
    """Whether changes of annotations count, too."""
    status_on_create: bool = False
    """Whether new objects keep the status they come with."""
    unconditional_update: bool = True
    """Whether an update without a resourceVersion overwrites."""
    create_on_update: bool = False
    """Whether an update of what is not there creates it."""
    returns_deleted: bool = False
    """Whether a deletion answers with the object instead of a Status."""
    name_style: NameStyle = NameStyle.SUBDOMAIN
    """What names may look like."""
    protected: frozenset[str] = frozenset()
    """Names of objects that may not be deleted."""
    fields: frozenset[str] = frozenset()
    """What field selectors may ask for, besides metadata.name and metadata.namespace."""
    prepare_create: Callable[[dict[str, Any]], None] = _no_preparation
    """Fill in what the server sets on new objects."""
    prepare_update: Callable[[dict[str, Any], dict[str, Any]], None] = _no_update_preparation
    """Restore or fill in fields of the new state, given the old."""
    prepare_delete: Callable[[dict[str, Any]], bool] = _delete_now
    """Note on the object that its deletion was asked for; whether that is all for now, because
    the server has something to clear away first."""
    prepare_status: Callable[[dict[str, Any], dict[str, Any]], None] = _no_update_preparation
    """Restore what an update of the status may not change, besides all but metadata and status."""
    graceful: bool = False
    """Whether somebody may be given time to end what the object stands for."""
    validate: Callable[[dict[str, Any], dict[str, Any] | None], list[FieldError]] = _no_problems
    """What is wrong with the new state; the old is None on create."""


@attrs.frozen
class Column:
    """A column of the tables that kubectl shows."""

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


class Converter(Protocol):
    """Somebody outside of the server who converts objects."""

    @property
    def conversion(self) -> Mapping[str, Any]:
        """How that was configured."""
        ...

    async def convert(
        self, objects: list[dict[str, Any]], source: str, wanted: str
    ) -> list[dict[str, Any]]:
        """The objects, whose apiVersion is ``source``, as ``wanted``.

        Raises:
            StatusError: that fails.
        """
        ...


@final
@attrs.define(eq=False)
class Resource:
    """One resource of one group, in all its versions; they share one collection of objects."""

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
    """Who converts between its versions; None: they differ in nothing but their names."""

    @property
    def qualified_name(self) -> str:
        """``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """Where an object is stored."""
        return f"{namespace}/{name}" if self.namespaced else name


@final
@attrs.define(eq=False)
class ServedVersion:
    """A resource in one of its versions, as clients reach it."""

    resource: Resource
    version: str
    subresources: Mapping[str, Any] = attrs.field(factory=dict)
    schema: Mapping[str, Any] | None = None
    structural_schema: StructuralSchema | None = None
    schema_since: int = 0
    """The revision at which the schema became another one."""
    columns: tuple[Column, ...] = ()
    served: bool = True
    warning: str = ""
    from_storage: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    to_storage: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    selectable_fields: frozenset[str] = frozenset()
    field_managers: tuple[Any, Any, dict[str, Any]] | None = None
    """What knows the owners of fields, by subresource; for this schema and these subresources."""
    api_version: str = attrs.field(init=False)
    _prefixes: tuple[bytes, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        group = self.resource.group
        self.api_version = f"{group}/{self.version}" if group else self.version
        version, kind = f'"apiVersion":"{self.api_version}"', f'"kind":"{self.resource.kind}"'
        self._prefixes = (f"{{{kind},{version},".encode(), f"{{{version},{kind},".encode())

    @property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own."""
        return "status" in self.subresources

    def read(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object, given as it is stored, in this version."""
        storage_version = (
            self if obj["apiVersion"] == self.api_version else self._storage_version(obj)
        )
        if (
            storage_version is not None
            and storage_version.structural_schema is not None
            and storage_version.predates_schema(obj)
        ):
            with contextlib.suppress(CoercionError):
                storage_version.structural_schema.prune_and_default(obj)
        if self.from_storage is not None:
            obj = self.from_storage(obj)
        obj["apiVersion"] = self.api_version
        if storage_version is not self and self.structural_schema is not None:
            self.structural_schema.prune(obj)
        return obj

    def predates_schema(self, obj: dict[str, Any]) -> bool:
        """Whether an object was stored before the schema was what it is."""
        since = self.schema_since
        return bool(since) and int(obj["metadata"].get("resourceVersion") or 0) <= since

    def _storage_version(self, obj: dict[str, Any]) -> ServedVersion | None:
        """The version an object is stored in."""
        return self.resource.versions.get(obj["apiVersion"].rpartition("/")[2])

    def needs_conversion(self, record: Record) -> bool:
        """Whether the resource's converter has to be asked before the object can be read."""
        converter = self.resource.converter
        if converter is None or record.api_version == self.api_version:
            return False
        return record.variant(f"{id(converter)}/{self.api_version}") is None

    def keep_converted(self, record: Record, obj: dict[str, Any]) -> None:
        """Take what the resource's converter made of a stored object."""
        obj["metadata"]["resourceVersion"] = str(record.revision)
        record.keep_variant(f"{id(self.resource.converter)}/{self.api_version}", obj)

    def decode(self, record: Record) -> dict[str, Any]:
        """A copy of a stored object in this version."""
        if self.resource.converter is None:
            return self.read(record.decode())
        decoded: dict[str, Any] = msgspec.json.decode(self.data(record))
        return decoded

    def data(self, record: Record) -> bytes:
        """The bytes of a stored object in this version.

        Raises:
            LookupError: the converter was not asked.
        """
        same = record.api_version == self.api_version
        if same and record.revision > self.schema_since:
            return record.data
        converter = self.resource.converter
        if converter is not None and not same:
            found = record.variant(f"{id(converter)}/{self.api_version}")
            if found is None:
                raise LookupError(f"{record.key} was not converted to {self.api_version}")
            return found
        if self.structural_schema is None:
            return record.data_as(self.api_version, self.read)
        since = max(version.schema_since for version in self.resource.versions.values())
        return record.data_as(f"{self.api_version}@{since}", self.read)

    def item(self, record: Record) -> bytes:
        """The bytes of a stored object within a list.

        The real server tells version and kind of built-in kinds once, for the list, and that of
        custom resources with each item. A client must cope with both, so both are done here.
        """
        data = self.data(record)
        if self.resource.strategy.custom:
            return data
        for prefix in self._prefixes:
            if data.startswith(prefix):
                return b"{" + data[len(prefix) :]
        return record.data_as(f"item/{self.api_version}", self._without_type)

    def _without_type(self, obj: dict[str, Any]) -> dict[str, Any]:
        obj = self.read(obj)
        del obj["apiVersion"], obj["kind"]
        return obj


@final
class Catalog:
    """All resources that are served now."""

    def __init__(self) -> None:
        """Nothing is served yet."""
        self._resources: dict[tuple[str, str], Resource] = {}

    def add(self, resource: Resource) -> None:
        """Serve a resource, in the place of one of that group and plural."""
        self._resources[resource.group, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource."""
        self._resources.pop((group, plural), None)

    def resource(self, group: str, plural: str) -> Resource | None:
        """The resource of that name."""
        return self._resources.get((group, plural))

    def find(self, group: str, version: str, plural: str) -> ServedVersion | None:
        """The resource of that name in a version that is served."""
        resource = self._resources.get((group, plural))
        if resource is None:
            return None
        found = resource.versions.get(version)
        return found if found is not None and found.served else None

    def find_kind(self, api_version: str, kind: str) -> ServedVersion | None:
        """The served version that objects of ``api_version`` and ``kind`` belong to."""
        group, _, version = api_version.rpartition("/")
        for resource in self._resources.values():
            if resource.group == group and resource.kind == kind and "list" in resource.verbs:
                found = resource.versions.get(version)
                if found is not None and found.served:
                    return found
        return None

    def is_builtin(self, group: str) -> bool:
        """Whether the server itself brings that group."""
        return any(
            resource.group == group and not resource.strategy.custom
            for resource in self._resources.values()
        )

    def of_collection(self, collection: Collection) -> Resource | None:
        """The resource whose objects a collection holds."""
        for resource in self._resources.values():
            if resource.collection is collection:
                return resource
        return None

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._resources.values()))

    def groups(self) -> dict[str, list[str]]:
        """The groups that are served with their versions, the preferred version first."""
        found: dict[str, dict[str, None]] = {}
        for resource in self._resources.values():
            served = [name for name, version in resource.versions.items() if version.served]
            found.setdefault(resource.group, {}).update(dict.fromkeys(served))
        return {
            group: sorted(versions, key=_version_priority)
            for group, versions in found.items()
            if versions
        }


def _version_priority(version: str) -> tuple[int, int, int, str]:
    """Stable before beta before alpha, newer before older, as Kubernetes orders versions."""
    head, _, rest = version.removeprefix("v").partition("beta")
    rank = 1 if "beta" in version else 0
    if "alpha" in version:
        head, _, rest = version.removeprefix("v").partition("alpha")
        rank = 2
    if not version.startswith("v") or not head.isdigit() or (rest and not rest.isdigit()):
        return (3, 0, 0, version)
    return (rank, -int(head), -int(rest or 0), version)
