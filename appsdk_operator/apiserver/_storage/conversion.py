"""Conversion of objects between the storage version and the version that a client asks for.

Built-in conversions run in place. Where a webhook converts, lists and watches use its cached answer
for a revision, as the real server uses its watch cache; a read of one object calls it each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Record


async def convert(
    objects: list[dict[str, Any]], source: ServedVersion, wanted: ServedVersion
) -> list[dict[str, Any]]:
    """Convert ``objects`` from version ``source`` to version ``wanted``.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    converter = wanted.resource.converter
    if source is wanted:
        return objects
    if converter is not None:
        found = await converter.convert(objects, source.api_version, wanted.api_version)
        for before, obj in zip(objects, found, strict=True):
            _prune(obj, wanted)
            _keep_revision(before, obj)
        return found
    found = []
    for obj in objects:
        converted = source.to_storage(obj) if source.to_storage is not None else obj
        converted = wanted.read(msgspec.json.decode(msgspec.json.encode(converted)))
        if wanted.resource.strategy.custom:
            _prune(converted, wanted)
        found.append(converted)
    return found


async def ask_webhook(
    obj: dict[str, Any], source: ServedVersion, wanted: ServedVersion
) -> dict[str, Any]:
    """``obj`` as the webhook converts it, with fields that the schema does not have.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    converter = wanted.resource.converter
    if source is wanted or converter is None:
        return obj
    if obj.keys() == {"apiVersion", "kind"}:
        # The real server asks nobody about an empty object.
        return {**obj, "apiVersion": wanted.api_version}
    [found] = await converter.convert([obj], source.api_version, wanted.api_version)
    _keep_revision(obj, found)
    return found


def _keep_revision(before: dict[str, Any], obj: dict[str, Any]) -> None:
    if "resourceVersion" in before["metadata"]:
        obj["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]


async def to_storage_version(obj: dict[str, Any], source: ServedVersion) -> dict[str, Any]:
    """Convert ``obj`` from version ``source`` to the storage version.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    resource = source.resource
    storage = resource.versions[resource.storage_version]
    if resource.converter is not None:
        [obj] = await convert([obj], source, storage)
        return obj
    if source.to_storage is not None:
        return source.to_storage(obj)
    return obj if storage is source else {**obj, "apiVersion": storage.api_version}


async def convert_records(served: ServedVersion, records: Iterable[Record]) -> None:
    """Convert records and cache the results, so that ``served`` can read them.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    records = list(records)
    # Again if the definition changed meanwhile.
    while some := [record for record in records if served.needs_conversion(record)]:
        await _convert_batch(served, some)


async def reconvert_record(served: ServedVersion, record: Record) -> None:
    """Convert a record again, even if a result is cached.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    if served.resource.converter is not None and record.api_version != served.api_version:
        await _convert_batch(served, [record])


async def read_record(served: ServedVersion, record: Record) -> dict[str, Any]:
    """A copy of a stored object in version ``served``, converted if need be.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    await convert_records(served, [record])
    return served.decode(record)


async def from_storage_version(
    obj: dict[str, Any], api_version: str, wanted: ServedVersion
) -> dict[str, Any]:
    """Convert ``obj`` from the storage version ``api_version`` to version ``wanted``.

    Raises:
        StatusError: 500, the conversion webhook failed.
    """
    converter = wanted.resource.converter
    if converter is None:
        return wanted.read(obj)
    revision = obj["metadata"].get("resourceVersion")
    [found] = await converter.convert([obj], api_version, wanted.api_version)
    if found is not obj:
        _prune(found, wanted)
        if revision:
            found["metadata"]["resourceVersion"] = revision
    return found


async def _convert_batch(served: ServedVersion, records: list[Record]) -> None:
    converter = served.resource.converter
    if converter is None:
        return
    by_version: dict[str, list[Record]] = {}
    for record in records:
        by_version.setdefault(record.api_version, []).append(record)
    for version, some in by_version.items():
        objects = [served.resource.stored(record) for record in some]
        found = await converter.convert(objects, version, served.api_version)
        for record, obj in zip(some, found, strict=True):
            _prune(obj, served)
            served.keep_converted(record, obj)


def _prune(obj: dict[str, Any], served: ServedVersion) -> None:
    if served.structural_schema is not None:
        served.structural_schema.prune(obj)
