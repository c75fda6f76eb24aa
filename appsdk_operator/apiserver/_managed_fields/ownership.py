"""Field ownership: the owners of an object's fields after an update or an apply.

:func:`update` is for writes of whole objects, :func:`apply` for server-side apply. Both are
functions of the old object, the new object or configuration, and the owners so far. The semantics
are those of structured-merge-diff's ``merge``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import attrs

from appsdk_operator.apiserver._managed_fields import field_sets, merging, typed_values
from appsdk_operator.apiserver._managed_fields.field_sets import FieldSet
from appsdk_operator.apiserver._managed_fields.shapes import Shape


@attrs.frozen(order=True)
class Manager:
    """The identity of an owner."""

    name: str
    operation: str
    """``Update`` or ``Apply``."""
    api_version: str = ""
    """``""`` for ``Apply``: one manager is one owner, whatever version it applies."""
    subresource: str = ""


@attrs.frozen
class Owner:
    """The fields that a manager owns."""

    fields: FieldSet
    api_version: str
    """The version in which the fields are named."""
    applied: bool = False


Owners: TypeAlias = dict[Manager, Owner]


@attrs.frozen
class TypedObject:
    """An object in one of its versions, with its shape."""

    value: Any
    shape: Shape
    api_version: str


ConvertTo: TypeAlias = Callable[[TypedObject, str], Awaitable[TypedObject | None]]
"""Convert an object to another version; None if the version no longer exists.

It waits where a webhook converts.

Raises :class:`ConversionError` where the real server fails instead of dropping the owner.
"""
FieldFilters: TypeAlias = Mapping[str, Callable[[FieldSet], FieldSet]]
"""By version, the fields that a write can set and so can own."""


class ConversionError(Exception):
    """An object cannot be converted to the version of an owner."""


class OwnershipConflict(Exception):  # noqa: N818 - named after the answer, 409 Conflict
    """An apply changes fields that other managers own."""

    def __init__(self, fields: Mapping[Manager, FieldSet]) -> None:
        """``fields`` are the conflicting fields by owner."""
        super().__init__("other managers own some of the fields")
        self.fields = dict(fields)


def _everything(fields: FieldSet) -> FieldSet:
    return fields


async def update(
    live: TypedObject,
    new: TypedObject,
    owners: Owners,
    manager: Manager,
    filters: FieldFilters,
    convert: ConvertTo,
) -> Owners:
    """The owners after ``manager`` updates ``live`` to ``new``: it owns what it changed."""
    owners = await _reconcile_owners(live, owners, convert)
    difference = _compare(live, new, filters)
    owners = await _take_from_others(
        live, new, owners, manager, difference, filters, convert, force=True
    )
    mine = owners.get(manager)
    fields = field_sets.difference(mine.fields, difference.removed) if mine is not None else {}
    fields = field_sets.union(field_sets.union(fields, difference.modified), difference.added)
    fields = filters.get(new.api_version, _everything)(fields)
    owners.pop(manager, None)
    if fields:
        owners[manager] = Owner(fields, new.api_version)
    return owners


async def apply(
    live: TypedObject,
    config: TypedObject,
    owners: Owners,
    manager: Manager,
    filters: FieldFilters,
    convert: ConvertTo,
    *,
    force: bool,
) -> tuple[TypedObject, Owners]:
    """The object and its owners after ``manager`` applies ``config``.

    Raises:
        OwnershipConflict: it changes fields of other managers without ``force``.
    """
    owners = await _reconcile_owners(live, owners, convert)
    merged = attrs.evolve(live, value=merging.merge(live.value, config.value, live.shape))
    before = owners.get(manager)
    wanted = typed_values.field_set(config.value, config.shape)
    wanted = filters.get(config.api_version, _everything)(wanted)
    owners[manager] = Owner(wanted, config.api_version, applied=True)
    if before is not None and before.fields:
        merged = await _prune_unapplied(merged, owners, config.api_version, before, convert)
    difference = _compare(live, merged, filters)
    owners = await _take_from_others(
        live, merged, owners, manager, difference, filters, convert, force=force
    )
    return merged, owners


# -- changes of other owners ---------------------------------------------------------------


def _compare(old: TypedObject, new: TypedObject, filters: FieldFilters) -> typed_values.Comparison:
    found = typed_values.compare(old.value, new.value, old.shape)
    keep = filters.get(old.api_version)
    if keep is not None:
        found.removed, found.modified = keep(found.removed), keep(found.modified)
        found.added = keep(found.added)
    return found


async def _take_from_others(
    live: TypedObject,
    new: TypedObject,
    owners: Owners,
    manager: Manager,
    difference: typed_values.Comparison,
    filters: FieldFilters,
    convert: ConvertTo,
    *,
    force: bool,
) -> Owners:
    """The owners without the fields that the write changed or removed."""
    versions: dict[str, typed_values.Comparison] = {new.api_version: difference}
    conflicts: dict[Manager, FieldSet] = {}
    left: Owners = {}
    for other, owner in owners.items():
        if other == manager:
            left[other] = owner
            continue
        changes = versions.get(owner.api_version)
        if changes is None:
            before = await convert(live, owner.api_version)
            after = await convert(new, owner.api_version)
            if before is None or after is None:
                # Owners in a version that no longer exists are dropped.
                continue
            changes = versions[owner.api_version] = _compare(before, after, filters)
        fields = owner.fields
        disputed = field_sets.intersection(fields, changes.changed)
        if disputed:
            conflicts[other] = disputed
            fields = field_sets.difference(fields, disputed)
        left[other] = attrs.evolve(owner, fields=field_sets.difference(fields, changes.removed))
    if conflicts and not force:
        raise OwnershipConflict(conflicts)
    return {other: owner for other, owner in left.items() if owner.fields}


# -- fields no longer applied --------------------------------------------------------------


async def _prune_unapplied(
    merged: TypedObject, owners: Owners, api_version: str, before: Owner, convert: ConvertTo
) -> TypedObject:
    """Remove the fields that the manager applied before, not now, and that no one else owns."""
    then = await convert(merged, before.api_version)
    if then is None:
        return merged
    last = with_named_fields(before.fields, then.shape)
    pruned = attrs.evolve(then, value=typed_values.remove(then.value, last, then.shape))
    pruned = await _restore_owned(then, pruned, owners, convert)
    restored = await convert(pruned, before.api_version)
    if restored is None:
        return merged
    removed = field_sets.difference(_members_of(then), _members_of(restored))
    result = typed_values.remove(then.value, field_sets.intersection(removed, last), then.shape)
    return await convert(attrs.evolve(then, value=result), api_version) or merged


def _members_of(typed: TypedObject) -> FieldSet:
    return with_named_fields(typed_values.field_set(typed.value, typed.shape), typed.shape)


async def _restore_owned(
    merged: TypedObject, pruned: TypedObject, owners: Owners, convert: ConvertTo
) -> TypedObject:
    """Restore pruned fields that another manager owns, in whatever version."""
    managed: dict[str, FieldSet] = {}
    for owner in owners.values():
        known = managed.get(owner.api_version, {})
        managed[owner.api_version] = field_sets.union(known, owner.fields)
    # The current version first: others may need its fields to be convertible.
    for api_version in sorted(managed, key=lambda name: name != pruned.api_version):
        fields = managed[api_version]
        whole = await convert(merged, api_version)
        part = await convert(pruned, api_version)
        if whole is None or part is None:
            continue
        merged = whole
        retained = field_sets.union(_members_of(part), with_named_fields(fields, merged.shape))
        removed = field_sets.difference(_members_of(merged), retained)
        pruned = attrs.evolve(
            merged, value=typed_values.remove(merged.value, removed, merged.shape)
        )
    return pruned


def with_named_fields(fields: FieldSet, shape: Shape | None) -> FieldSet:
    """The set with the named fields above each member as members too."""
    found: FieldSet = {}
    for element, node in fields.items():
        if not node:
            found[element] = node
            continue
        below = _shape_below(shape, element)
        member = (
            element.startswith("f:")
            and shape is not None
            and shape.map is not None
            and shape.map.declares(element[2:])
        )
        children = with_named_fields(node, below)
        found[element] = {field_sets.SELF: {}, **children} if member else children
    return found


def _shape_below(shape: Shape | None, element: str) -> Shape | None:
    if shape is not None and shape.map is not None and element.startswith("f:"):
        return shape.map.child(element[2:])
    if shape is not None and shape.list is not None and element.startswith("k:"):
        return shape.list.element
    return None


# -- changes of schemas --------------------------------------------------------------------


async def _reconcile_owners(live: TypedObject, owners: Owners, convert: ConvertTo) -> Owners:
    """The owners with their fields adapted to the present schemas."""
    found: Owners = {}
    for manager, owner in owners.items():
        is_same = owner.api_version == live.api_version
        typed = live if is_same else await convert(live, owner.api_version)
        if typed is None:
            found[manager] = owner
            continue
        fields = reconcile(owner.fields, typed.shape)
        found[manager] = owner if fields is owner.fields else attrs.evolve(owner, fields=fields)
    return found


def reconcile(fields: FieldSet, shape: Shape) -> FieldSet:
    """Adapt a set to maps and lists that have become atomic: they are owned as a whole.

    Returns the same set if nothing changes.
    """
    changed: FieldSet = {}
    for element, node in fields.items():
        if not node or element == field_sets.SELF:
            continue
        below = _shape_in_set(shape, element)
        if below is None:
            continue
        became = _reconcile_node(node, below)
        if became is not node:
            changed[element] = became
    return {**fields, **changed} if changed else fields


def _reconcile_node(node: FieldSet, shape: Shape) -> FieldSet:
    first = shape.forms[0]
    if first == "map" and shape.map is not None:
        if shape.map.is_deduced:
            return node
        return {} if shape.map.atomic else reconcile(node, shape)
    if first == "list" and shape.list is not None:
        return reconcile(node, shape) if shape.list.associative else {}
    return node


def _shape_in_set(shape: Shape, element: str) -> Shape | None:
    if shape.forms[0] == "list":
        return shape.list.element if shape.list is not None else None
    return shape.map.child(element[2:]) if shape.map is not None else None
