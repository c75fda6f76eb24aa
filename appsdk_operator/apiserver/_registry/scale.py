"""Writes to the scale subresource: their field managers, and what admission sees of them.

A Scale's ``managedFields`` list the managers that own the replicas of its object. A write to the
Scale changes them, and the change is carried over to the object.
"""

from __future__ import annotations

from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._managed_fields import entries, field_sets
from appsdk_operator.apiserver._managed_fields.entries import ManagedFields
from appsdk_operator.apiserver._managed_fields.field_managers import FieldManagers
from appsdk_operator.apiserver._managed_fields.ownership import Owner
from appsdk_operator.apiserver._registry.subresources import (
    ScalePaths,
    apply_scale,
    scale_of,
    scale_paths,
)
from appsdk_operator.apiserver._registry.write_requests import (
    AdmissionAttributes,
    AdmissionController,
)
from appsdk_operator.apiserver._storage.resources import Resource, ServedVersion
from appsdk_operator.apiserver._values.status import StatusError

_API_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final = ("f:spec", "f:replicas")
_REPLICAS_SET: Final[field_sets.FieldSet] = {"f:spec": {"f:replicas": {}}}


@final
class ScaleOwners:
    """The managers of one object's replicas during a write to its Scale."""

    def __init__(self, fields: FieldManagers, served: ServedVersion, obj: dict[str, Any]) -> None:
        """``obj`` is the object, in the version ``served``."""
        self._manager = fields.for_scale()
        self._served = served
        self._entries = obj["metadata"].get("managedFields")

    async def updated(self, live: dict[str, Any], wanted: Any, manager: str) -> Any:
        """The Scale ``wanted`` as an update of ``live``, with its managedFields."""
        if not isinstance(wanted, dict) or not isinstance(wanted.get("metadata", {}), dict):
            return wanted
        new = {**wanted, "metadata": {**wanted.get("metadata", {})}}
        await self._manager.updated(self._shown(live), new, manager)
        return new

    async def applied(
        self, live: dict[str, Any], config: Any, manager: str, *, force: bool
    ) -> dict[str, Any]:
        """The Scale with ``config`` applied, with its managedFields.

        Raises:
            StatusError: 400, 409 or 500: it cannot be applied.
        """
        scale = await self._manager.applied(self._shown(live), config, manager, force=force)
        if self._served.resource.strategy.custom:
            # The real server always fails here, but reports conflicts first.
            metadata = scale["metadata"]
            raise StatusError(
                500,
                f"failed to convert new object ({metadata.get('namespace', '')}/"
                f"{metadata['name']}; autoscaling/v1, Kind=Scale) to proper version: request to "
                "convert CR to an invalid group/version: autoscaling/v1",
                reason="",
            )
        return scale

    def write_managed_fields(self, obj: dict[str, Any], scale: Any) -> None:
        """Carry the managedFields of the written Scale over to its object."""
        managed_fields = (scale.get("metadata") or {}).get("managedFields") or ()
        owners = entries.decode(managed_fields, trusted=True)
        served = self._served
        made = _from_scale(owners, self._entries, served.resource, served.api_version)
        if made:
            obj["metadata"]["managedFields"] = made
        else:
            obj["metadata"].pop("managedFields", None)

    def _shown(self, live: dict[str, Any]) -> dict[str, Any]:
        shown = _to_scale(self._entries, self._served.resource)
        metadata = {**live["metadata"]}
        if shown.owners:
            metadata["managedFields"] = entries.encode(shown, by_text=False)
        return {**live, "metadata": metadata}


def _paths(resource: Resource) -> dict[str, field_sets.Path | None]:
    """The path of the replicas in each version; None for a version without a scale."""
    found: dict[str, field_sets.Path | None] = {}
    for served in resource.versions.values():
        steps = scale_paths(served).replicas if "scale" in served.subresources else None
        found[served.api_version] = None if steps is None else tuple(f"f:{s}" for s in steps)
    return found


def _to_scale(parent: Any, resource: Resource) -> ManagedFields:
    """The managers of the replicas, from the managedFields of the object."""
    managed = entries.decode(parent or (), trusted=True)
    paths = _paths(resource)
    found = ManagedFields()
    for manager, owner in managed.owners.items():
        path = paths.get(owner.api_version)
        if path is not None and field_sets.has(owner.fields, path):
            found.owners[manager] = Owner(_REPLICAS_SET, _API_VERSION, owner.applied)
            found.times[manager] = managed.times.get(manager)
    return found


def _from_scale(
    scale: ManagedFields, parent: Any, resource: Resource, api_version: str
) -> list[dict[str, Any]]:
    """The managedFields of the object after a write to its Scale.

    Args:
        scale: the managers of the Scale.
        parent: the managedFields of the object before.
        resource: its resource.
        api_version: the version that the Scale was written in.
    """
    before = entries.decode(parent or (), trusted=True)
    paths = _paths(resource)
    left = dict(scale.owners)
    found = ManagedFields({}, dict(before.times))
    for manager, owner in before.owners.items():
        if owner.api_version not in paths:
            continue
        path = paths[owner.api_version]
        if path is None or not field_sets.has(owner.fields, path):
            found.owners[manager] = owner
            continue
        if left.pop(manager, None) is not None:
            found.owners[manager] = owner
            continue
        fields = field_sets.difference(owner.fields, _set_of(path))
        if fields:
            found.owners[manager] = attrs.evolve(owner, fields=fields)
    mine = paths.get(api_version)
    for manager, owner in left.items():
        if mine is not None and field_sets.has(owner.fields, _REPLICAS):
            found.owners[manager] = Owner(_set_of(mine), api_version, owner.applied)
    return entries.encode(found, by_text=True)


def _set_of(path: field_sets.Path) -> field_sets.FieldSet:
    fields: field_sets.FieldSet = {}
    field_sets.attach(fields, path, {})
    return fields


@final
@attrs.frozen
class ScaleAdmission:
    """Shows another admission controller the Scale of the written object."""

    admission: AdmissionController
    paths: ScalePaths

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """The object with the replicas of the admitted Scale."""
        seen = self._scale_attributes(attributes)
        scale = await self.admission.mutate(seen)
        if scale is seen.obj:
            return attributes.obj
        target = attributes.target
        return apply_scale(attributes.obj, scale, self.paths, target.served.resource, target.name)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Check the final Scale."""
        await self.admission.validate(self._scale_attributes(attributes))

    def _scale_attributes(self, attributes: AdmissionAttributes) -> AdmissionAttributes:
        return AdmissionAttributes(
            operation=attributes.operation,
            target=attributes.target,
            subresource="scale",
            obj=scale_of(attributes.obj, self.paths, strict=False),
            old=scale_of(attributes.old, self.paths, strict=False),
            options=attributes.options,
        )
