"""Field managers: update ``managedFields`` on every write, and perform server-side apply.

:class:`FieldManagers` belongs to a server. The order of work is that of the real server's field
manager: read the owners of the request or object, update them, strip fields that nobody owns, cap
the number of entries.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import attrs

from appsdk_operator.apiserver._managed_fields import (
    entries,
    field_sets,
    go_zero_values,
    merging,
    ownership,
    reset_fields,
    typed_values,
)
from appsdk_operator.apiserver._managed_fields.entries import ManagedFields
from appsdk_operator.apiserver._managed_fields.last_applied import (
    allowed_by_last_applied,
    keep_last_applied,
)
from appsdk_operator.apiserver._managed_fields.ownership import (
    ConversionError,
    ConvertTo,
    FieldFilters,
    Manager,
    OwnershipConflict,
    TypedObject,
)
from appsdk_operator.apiserver._managed_fields.shapes import DEDUCED, SCALE, Shape, ShapeBuilder
from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._schema.metadata import timestamp
from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import Catalog, ServedVersion
from appsdk_operator.apiserver._values.go_text import go_quote
from appsdk_operator.apiserver._values.status import StatusError, bad_request
from appsdk_operator.runtime import Clock

_BEFORE: Final = "before-first-apply"
# The owner of the request at hand, until its new fields are known.
_CURRENT: Final = Manager("current-operation", "")
_KUBECTL: Final = "kubectl"


@final
class FieldManagers:
    """The field managers of all served versions."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        """Managers take times from ``clock`` and other versions of a resource from ``catalog``."""
        self._catalog = catalog
        self._clock = clock
        self._shapes: WeakKeyDictionary[ServedVersion, tuple[Any, Shape]] = WeakKeyDictionary()
        self._builtin: ShapeBuilder | None = None
        self._second = (-1, "")

    def of(self, served: ServedVersion, subresource: str = "") -> FieldManager:
        """The field manager for writes of a served version or of one of its subresources."""
        known = served.field_managers
        if known is None or known[0] is not served.schema or known[1] is not served.subresources:
            known = served.field_managers = (served.schema, served.subresources, {})
        found: FieldManager | None = known[2].get(subresource)
        if found is None:
            found = known[2][subresource] = self._new_manager(served, subresource)
        return found

    def _new_manager(self, served: ServedVersion, subresource: str) -> FieldManager:
        resource = served.resource
        custom = resource.strategy.custom
        return FieldManager(
            group=resource.group,
            version=served.version,
            kind=resource.kind,
            subresource=subresource,
            custom=custom,
            shape=self.shape(served),
            filters=reset_fields.field_filters(resource, served, subresource),
            convert=lambda typed, api_version: self._convert(served, typed, api_version),
            fill_zero_values=_unchanged
            if custom
            else lambda obj: go_zero_values.fill_zero_values(obj, served),
            now=self._now,
        )

    def for_scale(self) -> FieldManager:
        """The field manager for writes of a scale subresource."""
        return FieldManager(
            group="autoscaling",
            version="v1",
            kind="Scale",
            subresource="scale",
            custom=False,
            shape=SCALE,
            filters={},
            convert=_no_other_version,
            fill_zero_values=_unchanged,
            now=self._now,
        )

    def _now(self) -> str:
        second = int(self._clock.time())
        if self._second[0] != second:
            self._second = (second, timestamp(second))
        return self._second[1]

    def shape(self, served: ServedVersion) -> Shape:
        """The shape of the objects of a version."""
        known = self._shapes.get(served)
        if known is not None and known[0] is served.schema:
            return known[1]
        if served.resource.strategy.custom:
            shape = ShapeBuilder().custom(served.schema) if served.schema is not None else DEDUCED
        else:
            shape = self._builtin_shape(served)
        self._shapes[served] = (served.schema, shape)
        return shape

    def _builtin_shape(self, served: ServedVersion) -> Shape:
        name = go_zero_values.definition_of(served)
        if name is None:
            return DEDUCED
        if self._builtin is None:
            self._builtin = ShapeBuilder(builtin_schemas.data().schemas)
        return self._builtin.shape({"$ref": name})

    async def _convert(
        self, served: ServedVersion, typed: TypedObject, api_version: str
    ) -> TypedObject | None:
        if typed.api_version == api_version:
            return typed
        source = self._version(served, typed.api_version)
        target = self._version(served, api_version)
        if source is None or target is None:
            if served.resource.strategy.custom:
                raise ConversionError(
                    f"request to convert CR to an invalid group/version: {api_version}"
                )
            return None
        if served.resource.converter is not None:
            return await self._ask_webhook(typed, source, served, target)
        value = copy.deepcopy(typed.value)
        stored = source.to_storage(value) if source.to_storage is not None else value
        value = target.read(stored)
        return TypedObject(value, self.shape(target), api_version)

    async def _ask_webhook(self, typed: TypedObject, *versions: ServedVersion) -> TypedObject:
        """Convert an object from the first of the versions through each of the others.

        The real server takes the version of the request as the hub between two others, and does
        not prune what a webhook returns: a field that the schema does not have is an error.
        """
        value, target = typed.value, versions[-1]
        for source, wanted in pairwise(versions):
            try:
                value = await conversion.ask_webhook(value, source, wanted)
            except StatusError as error:
                raise ConversionError(error.message) from None
        shape = self.shape(target)
        try:
            merging.check(value, shape)
        except merging.TypedError as error:
            raise ConversionError(str(error)) from None
        return TypedObject(value, shape, target.api_version)

    def _version(self, served: ServedVersion, api_version: str) -> ServedVersion | None:
        group, _, version = api_version.rpartition("/")
        if group == served.resource.group:
            return served.resource.versions.get(version)
        # Events are served in two groups.
        for resource in self._catalog:
            if resource.group == group and resource.collection is served.resource.collection:
                return resource.versions.get(version)
        return None


async def _no_other_version(typed: TypedObject, api_version: str) -> TypedObject | None:
    return typed if api_version == typed.api_version else None


def _unchanged(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


@final
@attrs.frozen(kw_only=True)
class FieldManager:
    """The field manager of one version or subresource."""

    group: str
    version: str
    kind: str
    subresource: str
    custom: bool
    """Whether the objects are custom resources."""
    shape: Shape
    """The shape of the objects."""
    filters: FieldFilters
    """The fields that the write can set."""
    convert: ConvertTo
    """The conversion to the versions in which owners name their fields."""
    fill_zero_values: Callable[[dict[str, Any]], dict[str, Any]]
    """Fills in the fields that Go always writes."""
    now: Callable[[], str]

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}" if self.group else self.version

    async def updated(self, live: dict[str, Any] | None, new: dict[str, Any], manager: str) -> None:
        """Set ``managedFields`` in ``new`` for an update of ``live``.

        Args:
            live: the old object; None on create.
            new: the object in the request, whose own entries count.
            manager: the name of the field manager.
        """
        given = new["metadata"].pop("managedFields", None)
        managed = self._initial_owners(live, given)
        if not managed.owners and live is not None:
            # Without owners, fields are tracked from the first apply on.
            return
        if live is None and not managed.owners and self.custom:
            self._create(new, manager)
            return
        try:
            await self._update(live, new, managed, manager)
        except ConversionError:
            return
        self._set(new, managed)

    def _create(self, new: dict[str, Any], name: str) -> None:
        """The same as an update of an empty object, but faster, for new custom resources."""
        fields: field_sets.FieldSet = {}
        for key in sorted(new):
            value, shape = new[key], self._shape_of(key)
            if key == "metadata":
                value = {
                    name: item for name, item in value.items() if not entries.is_server_field(name)
                }
                node = typed_values.all_fields(value, shape)
                node.pop(field_sets.SELF, None)
                if node:
                    fields["f:metadata"] = node
            elif key not in ("apiVersion", "kind"):
                fields[f"f:{key}"] = typed_values.all_fields(value, shape)
        keep = self.filters.get(self.api_version)
        if keep is not None and "f:status" in fields:
            fields = keep(fields)
        if fields:
            entry = {
                "manager": name,
                "operation": "Update",
                "apiVersion": self.api_version,
                "time": self.now(),
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
            new["metadata"]["managedFields"] = [entry]

    def _shape_of(self, name: str) -> Shape:
        rules = self.shape.map
        return (rules.child(name) if rules is not None else None) or DEDUCED

    def _initial_owners(self, live: dict[str, Any] | None, given: Any) -> ManagedFields:
        known = live["metadata"].get("managedFields") if live is not None else None
        if not self.subresource and given is not None:
            if entries.is_reset(given, custom=self.custom):
                return ManagedFields()
            if given != known:
                try:
                    managed = entries.decode(given, trusted=False)
                except (ValueError, AttributeError):
                    managed = ManagedFields()
                if managed.owners:
                    return managed
        return entries.decode(known or (), trusted=True)

    def _set(self, obj: dict[str, Any], managed: ManagedFields) -> None:
        if managed.owners:
            made = entries.encode(managed, by_text=self.custom)
            obj["metadata"]["managedFields"] = made
        else:
            obj["metadata"].pop("managedFields", None)

    async def _update(
        self, live: dict[str, Any] | None, new: dict[str, Any], managed: ManagedFields, name: str
    ) -> None:
        me = Manager(name, "Update", self.api_version, self.subresource)
        before = self._typed(self.fill_zero_values(self._zero() if live is None else live))
        after = self._typed(self.fill_zero_values(new))
        owners = await ownership.update(
            before, after, managed.owners, _CURRENT, self.filters, self.convert
        )
        mine = owners.pop(_CURRENT, None)
        fields = entries.strip_server_fields(mine.fields) if mine is not None else {}
        if mine is not None and fields:
            known = owners.get(me)
            fields = field_sets.union(fields, known.fields) if known is not None else fields
            owners[me] = attrs.evolve(mine, fields=fields)
            managed.times[me] = self.now()
        managed.owners = owners
        entries.cap_updaters(managed)

    # -- apply ------------------------------------------------------------------------------

    async def applied(
        self, live: dict[str, Any] | None, config: Any, manager: str, *, force: bool
    ) -> dict[str, Any]:
        """Apply ``config`` as ``manager``; return the merged object with its ``managedFields``.

        Raises:
            StatusError: 400, 409 or 500: the configuration cannot be applied.
        """
        self._check_kind(config)
        managed = ManagedFields()
        if live is not None:
            managed = entries.decode(live["metadata"].get("managedFields") or (), trusted=True)
        if not managed.owners and live is not None:
            await self._update(None, live, managed, _BEFORE)
        try:
            obj = await self._apply(live, config, managed, manager, force=force)
        except OwnershipConflict as error:
            disputed = error.fields
            if manager == _KUBECTL and live is not None:
                disputed = self._without_kubectl_fields(live, disputed)
            if disputed:
                raise conflict_status(disputed) from None
            obj = await self._apply(live, config, managed, manager, force=True)
        except ConversionError as error:
            raise StatusError(500, str(error), reason="") from None
        if manager == _KUBECTL:
            keep_last_applied(obj, config)
        return obj

    def _check_kind(self, config: Any) -> None:
        group, version, kind = _kind_of(config)
        if (group, version, kind) != (self.group, self.version, self.kind):
            raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")

    async def _apply(
        self,
        live: dict[str, Any] | None,
        config: dict[str, Any],
        managed: ManagedFields,
        name: str,
        *,
        force: bool,
    ) -> dict[str, Any]:
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        wanted = self._typed(config)
        self._check(wanted)
        me = Manager(name, "Apply", "", self.subresource)
        before = self._typed(self._zero() if live is None else entries.without_entries(live))
        merged, owners = await ownership.apply(
            before, wanted, dict(managed.owners), me, self.filters, self.convert, force=force
        )
        mine = owners.get(me)
        if mine is not None:
            fields = entries.strip_server_fields(mine.fields)
            owners[me] = attrs.evolve(mine, fields=fields)
            if not fields:
                del owners[me]
        times = dict(managed.times)
        if live is None or not typed_values.equal_values(merged.value, before.value):
            times[me] = self.now()
        obj = dict(merged.value)
        obj["metadata"] = dict(obj.get("metadata") or {})
        self._set(obj, ManagedFields(owners, times))
        return obj

    def _check(self, config: TypedObject) -> None:
        try:
            merging.check(config.value, config.shape)
        except merging.TypedError as error:
            metadata = config.value.get("metadata") or {}
            place = metadata if isinstance(metadata, dict) else {}
            group, version, kind = _kind_of(config.value)
            raise StatusError(
                500,
                f"failed to create typed patch object ({place.get('namespace') or ''}/"
                f"{place.get('name') or ''}; {group}/{version}, Kind={kind}): {error}",
                reason="",
            ) from None

    def _without_kubectl_fields(
        self, live: dict[str, Any], disputed: dict[Manager, field_sets.FieldSet]
    ) -> dict[Manager, field_sets.FieldSet]:
        """The conflicts without the fields that kubectl's client-side apply has set."""
        allowed = allowed_by_last_applied(live, self._typed(live))
        if allowed is None:
            return disputed
        left = {
            manager: field_sets.difference(fields, allowed) for manager, fields in disputed.items()
        }
        return {manager: fields for manager, fields in left.items() if fields}

    # -- shared by both ---------------------------------------------------------------------

    def _zero(self) -> dict[str, Any]:
        """The empty object."""
        return {"apiVersion": self.api_version, "kind": self.kind}

    def _typed(self, obj: dict[str, Any]) -> TypedObject:
        return TypedObject(obj, self.shape, self.api_version)


def _kind_of(config: Any) -> tuple[str, str, str]:
    """Group, version and kind of a configuration."""
    given = config if isinstance(config, dict) else {}
    api_version = _text(given.get("apiVersion"))
    if api_version.count("/") > 1:
        return "", "", ""
    group, _, version = api_version.rpartition("/")
    return group, version, _text(given.get("kind"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def conflict_status(disputed: dict[Manager, field_sets.FieldSet]) -> StatusError:
    """409: an apply conflicts with other field managers."""
    found = [
        (_shown(manager), field_sets.path_text(path))
        for manager in sorted(disputed)
        for path in field_sets.paths(disputed[manager])
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
        for who, field in found
    ]
    if len(found) == 1:
        who, field = found[0]
        message = f"Apply failed with 1 conflict: conflict with {who}: {field}"
    else:
        lines: list[str] = []
        for manager in sorted(disputed):
            lines.append(f"conflicts with {_shown(manager)}:")
            lines += [
                f"- {field_sets.path_text(path)}" for path in field_sets.paths(disputed[manager])
            ]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return StatusError(409, message, details={"causes": causes})


def _shown(manager: Manager) -> str:
    text = go_quote(manager.name)
    if manager.subresource:
        text += f" with subresource {go_quote(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text
