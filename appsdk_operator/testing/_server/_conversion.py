"""Objects in another version of their resource."""

from __future__ import annotations

from typing import Any

from appsdk_operator.testing._server._resources import ServedVersion

__all__ = ["converted"]


async def converted(
    objects: list[dict[str, Any]], source: ServedVersion, wanted: ServedVersion
) -> list[dict[str, Any]]:
    """Copies of ``objects``, which are of version ``source``, in version ``wanted``."""
    found: list[dict[str, Any]] = []
    for obj in objects:
        stored = source.to_storage(obj) if source.to_storage is not None else obj
        found.append(wanted.read(dict(stored)))
    return found
