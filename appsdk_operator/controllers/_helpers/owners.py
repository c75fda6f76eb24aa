"""Owner references, by which the garbage collector deletes objects with their owners."""

from __future__ import annotations

from typing import Any

from appsdk_operator.controllers._mutables import check_objects, metadata_of, mutable, uid_of
from appsdk_operator.resource import Kind, MutableObject, Object, OwnerReference
from appsdk_operator.runtime.validation import check_flag


class OwnerError(ValueError):
    """An object cannot own another one; the text says why, and what to do."""


class AlreadyOwnedError(OwnerError):
    """The object already has another controller."""

    def __init__(self, obj: Object | MutableObject, owner: OwnerReference) -> None:
        super().__init__(
            f"{obj} is controlled by {owner.kind} {owner.name} (uid "
            f"{owner.uid}) already, and there can be only one controller: use another name, or let "
            "the other controller release it"
        )
        self.obj = obj
        """The object that has a controller already."""
        self.owner = owner
        """The reference to that controller."""


def set_controller_reference(
    owner: Object | MutableObject, obj: MutableObject, *, block_owner_deletion: bool = True
) -> bool:
    """Make ``owner`` the controller of ``obj``, a mutable copy; the caller writes it.

    It replaces an existing reference to an owner of the same group, kind and name, whatever the
    version and uid. The semantics are those of controller-runtime's ``SetControllerReference``.

    Args:
        owner: an object from the server.
        obj: the object to own.
        block_owner_deletion: whether a deletion of the owner in the foreground waits for ``obj``.
            The account then needs ``update`` on the owner's ``finalizers`` if the admission plugin
            OwnerReferencesPermissionEnforcement is on.

    Returns:
        Whether the copy changed.

    Raises:
        AlreadyOwnedError: ``obj`` has another controller.
        OwnerError: the owner was not created yet, is in another namespace, or is namespaced while
            ``obj`` is cluster-scoped.
        ReadOnlyError: ``obj`` is not a mutable copy.
    """
    check_flag("block_owner_deletion", block_owner_deletion)
    reference = _reference(owner, mutable(obj))
    controller = controller_of(obj)
    if controller is not None and not _is_same(controller, owner):
        raise AlreadyOwnedError(obj, controller)
    return _put(
        obj, owner, {**reference, "controller": True, "blockOwnerDeletion": block_owner_deletion}
    )


def set_owner_reference(
    owner: Object | MutableObject, obj: MutableObject, *, block_owner_deletion: bool | None = None
) -> bool:
    """Make ``owner`` one of the owners of ``obj``, as :func:`set_controller_reference`.

    If the owner is the controller, it stays the controller; :func:`remove_controller_reference`
    ends that.

    Args:
        owner: an object from the server.
        obj: the object to own, a mutable copy.
        block_owner_deletion: as for :func:`set_controller_reference`; default: unchanged, False for
            a new reference.
    """
    if block_owner_deletion is not None:
        check_flag("block_owner_deletion", block_owner_deletion)
    reference = _reference(owner, mutable(obj))
    if block_owner_deletion is not None:
        reference["blockOwnerDeletion"] = block_owner_deletion
    return _put(obj, owner, reference)


def remove_owner_reference(owner: Object | MutableObject, obj: MutableObject) -> bool:
    """Remove every reference to ``owner`` from ``obj``; returns whether there was one."""
    return _remove(owner, obj, controllers_only=False)


def remove_controller_reference(owner: Object | MutableObject, obj: MutableObject) -> bool:
    """Remove the reference to ``owner`` if it is the controller; returns whether it was."""
    return _remove(owner, obj, controllers_only=True)


def has_owner_reference(owner: Object | MutableObject, obj: Object | MutableObject) -> bool:
    """Whether ``owner`` is among the owners, by group, kind and name, not by version or uid."""
    check_objects(owner=owner, obj=obj)
    return any(_is_same(entry, owner) for entry in _entries(obj))


def has_controller_reference(obj: Object | MutableObject) -> bool:
    """Whether the object has a controller."""
    return controller_of(obj) is not None


def controller_of(obj: Object | MutableObject) -> OwnerReference | None:
    """The reference to the object's controller; None if it has none."""
    check_objects(obj=obj)
    return next((entry for entry in _entries(obj) if entry.controller), None)


def _reference(owner: Object | MutableObject, obj: MutableObject) -> dict[str, Any]:
    check_objects(owner=owner)
    uid = uid_of(owner)
    if not uid or not owner.name:
        raise OwnerError(
            f"{owner!r} has no uid, so nothing can refer to it: create it first, and give the "
            "object that the client returns"
        )
    if owner.namespace and not obj.kind.is_namespaced:
        raise OwnerError(
            f"{owner} is in a namespace and cannot own the cluster-scoped "
            f"{obj.kind.kind} {obj.name}: use a finalizer to delete it instead"
        )
    if owner.namespace and owner.namespace != obj.namespace:
        where = f"in namespace {obj.namespace}" if obj.namespace else "without a namespace yet"
        raise OwnerError(
            f"{owner} cannot own {obj.kind.kind} {obj.name}, which is "
            f"{where}: owners are in the same namespace, or cluster-scoped"
        )
    kind: Kind = owner.kind
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner.name, "uid": uid}


def _put(obj: MutableObject, owner: Object | MutableObject, reference: dict[str, Any]) -> bool:
    references: list[dict[str, Any]] = obj.metadata.get("ownerReferences") or []
    places = [i for i, entry in enumerate(references) if _is_entry_of(entry, owner)]
    if not places:
        obj.metadata["ownerReferences"] = [*references, reference]
        return True
    merged = {**references[places[0]], **reference}
    # The server refuses two references to one owner; earlier versions of an operator may have left
    # some, one for each version of the owner's kind.
    if any(references[i].get("controller") for i in places):
        merged["controller"] = True
    changed = [e for i, e in enumerate(references) if i not in places[1:]]
    changed[places[0]] = merged
    if changed == references:
        return False
    obj.metadata["ownerReferences"] = changed
    return True


def _remove(owner: Object | MutableObject, obj: MutableObject, *, controllers_only: bool) -> bool:
    check_objects(owner=owner)
    references: list[dict[str, Any]] = metadata_of(mutable(obj)).get("ownerReferences") or []
    left = [
        entry
        for entry in references
        if not _is_entry_of(entry, owner) or (controllers_only and not entry.get("controller"))
    ]
    if len(left) == len(references):
        return False
    if left:
        obj.metadata["ownerReferences"] = left
    else:
        del obj.metadata["ownerReferences"]
    return True


def _entries(obj: Object | MutableObject) -> list[OwnerReference]:
    if isinstance(obj, Object):
        return list(obj.owner_references)
    return [
        OwnerReference(
            api_version=str(entry.get("apiVersion") or ""),
            kind=str(entry.get("kind") or ""),
            name=str(entry.get("name") or ""),
            uid=str(entry.get("uid") or ""),
            controller=bool(entry.get("controller")),
            block_owner_deletion=bool(entry.get("blockOwnerDeletion")),
        )
        for entry in metadata_of(obj).get("ownerReferences") or ()
    ]


def _is_entry_of(entry: dict[str, Any], owner: Object | MutableObject) -> bool:
    return (
        _group(str(entry.get("apiVersion") or "")) == owner.kind.group
        and entry.get("kind") == owner.kind.kind
        and entry.get("name") == owner.name
    )


def _is_same(entry: OwnerReference, owner: Object | MutableObject) -> bool:
    return (
        _group(entry.api_version) == owner.kind.group
        and entry.kind == owner.kind.kind
        and entry.name == owner.name
    )


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
