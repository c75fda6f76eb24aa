"""Steps of a deletion: preconditions, propagation policy, grace period, and final removal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from appsdk_operator.apiserver._storage.resources import Resource
from appsdk_operator.apiserver._storage.storage import Record
from appsdk_operator.apiserver._values.status import conflict

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"


def check_preconditions(
    resource: Resource, record: Record, uid: str | None, resource_version: str | None
) -> None:
    """Refuse the deletion when uid or resource version differ from the preconditions.

    Raises:
        StatusError: 409.
    """
    if uid is not None and uid != record.uid:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record "
            f"({record.uid}). The object might have been deleted and then recreated"
        )
    elif resource_version not in (None, str(record.revision)):
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not "
            f"match the ResourceVersion in record ({record.revision}). The object might have "
            "been modified"
        )
    else:
        return
    raise conflict(resource.kind, resource.group, record.name, why)


def set_propagation(metadata: dict[str, Any], propagation: str | None, default: str | None) -> None:
    """Set the finalizers of a propagation policy.

    Args:
        metadata: of the object that is deleted.
        propagation: the policy that the request asks for; None: that of the object's finalizers.
        default: the kind's, if neither has one; None: the kind has no policies.
    """
    finalizers = list(metadata.get("finalizers", ()))
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    if propagation is None and default is not None and kept != finalizers:
        return
    policy = default and (propagation or default)
    if policy == "Orphan":
        kept.append(ORPHAN)
    elif policy == "Foreground":
        kept.append(FOREGROUND)
    if kept != finalizers:
        metadata["finalizers"] = kept


def grace_of(obj: dict[str, Any], wanted: int | None) -> int:
    """The grace period in seconds; 0 for anything but a pod on a node."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = int(spec.get("terminationGracePeriodSeconds", 30)) if wanted is None else wanted
    # As on the real server: a negative period means the shortest one that is not immediate.
    grace = 1 if grace < 0 else grace
    before = obj["metadata"].get("deletionGracePeriodSeconds")
    return grace if before is None else min(grace, before)


def is_pending(metadata: Mapping[str, Any], wanted: int | None) -> bool:
    """Whether a graceful deletion is under way that a delete with this grace period leaves alone.

    Only a shorter period changes it.
    """
    before = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata or not before:
        return False
    return wanted is None or (1 if wanted < 0 else wanted) >= before


def is_gone(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether an update removes the last finalizer of an object that is being deleted."""
    metadata = new["metadata"]
    return (
        "deletionTimestamp" in old["metadata"]
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (new.get("kind") == "Namespace" and new.get("spec", {}).get("finalizers"))
    )
