"""Reads from a lagging watch cache, which the fault rule ``stale`` simulates.

A real API server answers some reads from its watch cache, which may lag behind that of another
replica. ``resourceVersion=0`` accepts any state; a request that names a version gets at least that
one. From there on, a watch is complete and in order.
"""

from __future__ import annotations

from collections.abc import Mapping

from appsdk_operator.apiserver._http.resource_request import ResourceRequest
from appsdk_operator.apiserver._storage.storage import Collection, Record, Storage
from appsdk_operator.apiserver._values.status import not_found


def lagging_revision(storage: Storage, collection: Collection, behind: int) -> int:
    """The revision of a cache that lacks the last ``behind`` changes."""
    if len(collection.events) < behind:
        return min(collection.floor, storage.revision)
    return max(collection.floor, collection.events[-behind].revision - 1)


def stale_query(query: Mapping[str, str], at: int | None) -> Mapping[str, str]:
    """The query of a list, pinned to the revision of the lagging cache."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if at is None or not version.isdigit() or match == "Exact" or query.get("continue"):
        return query
    if version != "0" and query.get("limit") and not match:
        return query  # this is a request for an exact version
    reached = max(at, int(version))
    return {**query, "resourceVersion": str(reached), "resourceVersionMatch": "Exact"}


def stale_record(request: ResourceRequest) -> Record | None:
    """The object of a get from the lagging cache; None when the request needs the newest state.

    Raises:
        StatusError: 404, the cache does not have it.
    """
    version = request.query.get("resourceVersion", "")
    if request.cache_revision is None or not version.isdigit():
        return None
    target, resource = request.target, request.served.resource
    prefix = f"{target.namespace}/" if target.namespace else ""
    for record in resource.collection.scan(prefix, at=max(request.cache_revision, int(version))):
        if record.key == target.key:
            return record
    raise not_found(resource.plural, resource.group, target.name)
