"""Create, update and delete, with the steps and checks of Kubernetes' generic registry.

Each verb takes an object in the client's version and commits at most one change. The code waits
only for the :class:`AdmissionController` and for conversion webhooks. If the object changed during
such a wait, an update or a deletion starts again with the newest state, up to 100 times, and a
creation repeats its checks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.apiserver._managed_fields import entries
from appsdk_operator.apiserver._managed_fields.field_managers import FieldManagers
from appsdk_operator.apiserver._registry import deletion
from appsdk_operator.apiserver._registry.preparation import (
    check_metadata,
    prune_and_default,
    validate,
)
from appsdk_operator.apiserver._registry.write_requests import (
    AdmissionAttributes,
    AdmissionController,
    AdmitAll,
    Change,
    DeleteOptions,
    Origin,
    Target,
    WriteOptions,
    WriteResult,
)
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import Catalog, Strategy
from appsdk_operator.apiserver._storage.storage import Record, Storage
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    already_exists,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from appsdk_operator.runtime import Clock, random_of

__all__ = [
    "DeleteOptions",
    "Target",
    "WriteOptions",
    "WriteResult",
    "Writer",
    "precondition_failed",
]

_canonical: Final = msgspec.json.Encoder(order="sorted").encode
# How often a write starts again because the object changed in the meantime. The real server
# retries until the request times out.
_ATTEMPTS: Final = 100
# How many generated names are tried, as on the real server.
_GENERATED_NAMES: Final = 8
_REQUESTER: Final = ("username", "uid", "groups", "extra")
_ADMIT_ALL: Final = AdmitAll()
_IGNORE_UNKNOWN: Final = WriteOptions(field_validation="Ignore", origin=Origin())


def precondition_failed(target: Target, name: str, wanted: str, found: str) -> StatusError:
    """409: the object has another uid or resource version than the precondition says."""
    resource = target.served.resource
    group = f"{resource.group}/" if resource.strategy.custom else ""
    return conflict(
        resource.plural,
        resource.group,
        target.name,
        "StorageError: invalid object, Code: 4, Key: "
        f"/registry/{group}{resource.plural}/{target.key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {name} in precondition: {wanted}, {name} in "
        f"object meta: {found}",
    )


@final
class Writer:
    """Creates, updates and deletes the objects of a storage."""

    def __init__(self, storage: Storage, catalog: Catalog, clock: Clock) -> None:
        """``clock`` gives the time stamps of objects."""
        self._storage = storage
        self._catalog = catalog
        self.clock = clock
        # A generator of its own: an additional object must not change the retry delays of others.
        self.rng: random.Random = random.Random(random_of(clock).getrandbits(64))
        """Makes uids and names."""
        self.fields: FieldManagers = FieldManagers(catalog, clock)
        """The field managers of every resource version."""
        self.admission: AdmissionController = _ADMIT_ALL
        """Admits writes that come from a client request; at first all of them."""

    def get(self, target: Target) -> Record:
        """The stored object.

        Raises:
            StatusError: 404, there is none.
        """
        resource = target.served.resource
        record = resource.collection.records.get(target.key)
        if record is None:
            raise not_found(resource.plural, resource.group, target.name)
        return record

    # -- create ------------------------------------------------------------------------------

    async def create(
        self,
        target: Target,
        obj: dict[str, Any],
        options: WriteOptions,
    ) -> WriteResult:
        """Store a new object.

        Raises:
            StatusError: it cannot be created.
        """
        resource, strategy = target.served.resource, target.served.resource.strategy
        unknown = check_metadata(target, obj)
        self._check_accepts_creates(target, obj["metadata"].get("name", ""))
        _add_warnings(options, prune_and_default(target, obj, options, unknown))
        if options.manager is not None:
            _metadata.wipe_system_fields(obj["metadata"])
            await self.fields.of(target.served).updated(None, obj, options.manager)
        strategy.admit(obj, None)
        attributes = AdmissionAttributes(
            operation="CREATE",
            target=target,
            obj=obj,
            options=options,
            fill_in=lambda obj: _prune_and_default_again(target, obj),
        )
        admission = self._admission_for(options)
        obj = await self._mutate(admission, attributes)
        metadata = obj["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated_name(target, metadata["generateName"])
        _metadata.prepare_create(
            metadata, self.clock.time(), self.rng, generation=strategy.generation
        )
        warnings = _metadata.warnings(metadata, None, custom=strategy.custom)
        if target.served.has_status and not strategy.status_on_create:
            obj.pop("status", None)
        strategy.prepare_create(obj)
        if strategy.names_requester and options.origin is not None:
            given = {k: v for k, v in obj["spec"].items() if k not in _REQUESTER}
            obj["spec"] = given | options.origin.user.info()
        validate(target, obj, None, warnings)
        _add_warnings(options, warnings)
        strategy.check_admission(obj, None)
        await admission.validate(attrs.evolve(attributes, obj=obj))
        name = metadata["name"]
        target = attrs.evolve(target, name=name)
        stored = await conversion.to_storage_version(obj, target.served)
        obj = _with_default_status(target, obj, stored)
        self._check_accepts_creates(target, name)
        if not options.dry_run and _has_revision(metadata):
            why = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, why, reason="")
        present = resource.collection.records.get(target.key)
        if present is not None:
            raise already_exists(resource.plural, resource.group, name, deleting=present.deleting)
        if not options.dry_run:
            strategy.before_storage(obj, target.key)
        return WriteResult(await self._commit(target, obj, stored, options), 201)

    def _generated_name(self, target: Target, base: str) -> str:
        """A random name that starts with ``base`` and is not taken, if one is found soon."""
        resource, name = target.served.resource, ""
        for _ in range(_GENERATED_NAMES):
            name = _metadata.generated_name(base, self.rng)
            if resource.key(target.namespace, name) not in resource.collection.records:
                break
        return name

    def _check_accepts_creates(self, target: Target, name: str) -> None:
        """Refuse creates while the definition or the namespace is being deleted."""
        resource = target.served.resource
        if self._catalog.resource(resource.group, resource.plural) is not resource:
            raise StatusError(404, "the server could not find the requested resource", details={})
        if resource.namespaced:
            self._check_namespace_accepts_creates(target, name)
        if resource.terminating:
            raise forbidden(
                resource.plural,
                resource.group,
                name,
                "create not allowed while custom resource definition is terminating",
            )

    def _check_namespace_accepts_creates(self, target: Target, name: str) -> None:
        resource = target.served.resource
        namespaces = self._storage.collection("namespaces")
        record = namespaces.records.get(target.namespace)
        if record is None:
            raise not_found("namespaces", "", target.namespace)
        if record.deleting:
            raise forbidden(
                resource.plural,
                resource.group,
                name,
                f"unable to create new content in namespace {target.namespace} because it is "
                "being terminated",
                [
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {target.namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )

    # -- update ------------------------------------------------------------------------------

    async def update(
        self,
        target: Target,
        change: Change,
        options: WriteOptions,
        *,
        subresource: str = "",
        patch: bool = False,
        admission: AdmissionController | None = None,
    ) -> WriteResult:
        """Replace an object by the result of ``change``.

        Args:
            target: the object.
            change: makes the new object from the stored one, both in the client's version. It is
                called again for each retry.
            options: dry run and field validation.
            subresource: ``"status"`` or another one that changes a part of the object only.
            patch: whether the uid in the object is a field to check rather than a precondition,
                and a missing resourceVersion means the stored one.
            admission: default: :attr:`admission`, for writes that have an origin.

        Raises:
            StatusError: it cannot be updated.
        """
        resource, strategy = target.served.resource, target.served.resource.strategy
        admission = admission or self._admission_for(options)
        for _ in range(_ATTEMPTS):
            record = resource.collection.records.get(target.key)
            if record is None:
                if strategy.create_on_update and not patch and not subresource:
                    return await self._create_on_update(target, await change({}), options)
                raise not_found(resource.plural, resource.group, target.name)
            old = await conversion.read_record(target.served, record)
            new = await change(target.served.decode(record))
            attributes = AdmissionAttributes(
                operation="UPDATE",
                target=target,
                subresource=subresource,
                obj=new,
                old=old,
                options=options,
                fill_in=lambda obj: _prune_and_default_again(target, obj),
            )
            result = await self._try_update(attributes, record, options, admission, patch=patch)
            if result is not None:
                return result
        raise _timed_out()

    async def _create_on_update(
        self, target: Target, obj: dict[str, Any], options: WriteOptions
    ) -> WriteResult:
        """Create an object by an update, whose resourceVersion only needs to be a number."""
        check_metadata(target, obj)
        metadata = obj["metadata"]
        _metadata.parse_revision(metadata.get("resourceVersion", ""))
        if not options.dry_run:
            metadata.pop("resourceVersion", None)
        return await self.create(target, obj, options)

    async def _try_update(
        self,
        attributes: AdmissionAttributes,
        record: Record,
        options: WriteOptions,
        admission: AdmissionController,
        *,
        patch: bool,
    ) -> WriteResult | None:
        """Update ``record`` once; None when it was changed in the meantime."""
        target, subresource = attributes.target, attributes.subresource
        resource, strategy = target.served.resource, target.served.resource.strategy
        new, old = attributes.obj, attributes.old
        unknown = check_metadata(target, new)
        _add_warnings(options, prune_and_default(target, new, options, unknown))
        self._check_uid(target, new["metadata"], record, patch=patch)
        if options.manager is not None:
            await self.fields.of(target.served, subresource).updated(old, new, options.manager)
        if not subresource:
            strategy.admit(new, old)
        new = await self._mutate(admission, attributes)
        metadata = new["metadata"]
        self._check_revision(target, metadata, record, patch=patch)
        if subresource:
            new = _merge_subresource(new, old, subresource, strategy)
            metadata = new["metadata"]
        elif target.served.has_status:
            _restore(new, old, "status")
        _metadata.carry_over(metadata, old["metadata"])
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if subresource == "status":
            strategy.prepare_status(new, old)
        elif not subresource:
            strategy.prepare_update(new, old)
        # A binding sets spec.nodeName without raising metadata.generation.
        counts = strategy.generation and subresource not in ("status", "binding")
        if counts and self._counts_as_change(target, new, old):
            metadata["generation"] = metadata.get("generation", 0) + 1
        warnings: list[str] = []
        validate(target, new, old, warnings, subresource)
        _add_warnings(options, warnings)
        strategy.check_admission(new, old)
        await admission.validate(attrs.evolve(attributes, obj=new))
        entries.discard_time_changes(new, old)
        # As on the real server, what is stored decides: an object of a former storage version or
        # without new defaults is written anew, though nothing changed.
        stored = await conversion.to_storage_version(new, target.served)
        if resource.collection.records.get(target.key) is not record:
            return None
        if _identical(stored, record.decode()):
            return WriteResult(old)
        if not options.dry_run:
            strategy.before_storage(new, target.key)
        if not options.dry_run and deletion.is_gone(new, old):
            # As on the real server, the response shows the object without finalizers, which is
            # never stored: the deletion is the next revision.
            await self._remove(target)
            return WriteResult(new, deleted=True)
        return WriteResult(await self._commit(target, new, stored, options))

    @staticmethod
    def _check_uid(
        target: Target, metadata: dict[str, Any], record: Record, *, patch: bool
    ) -> None:
        uid = metadata.get("uid")
        if uid and uid != record.uid and not patch:
            raise precondition_failed(target, "UID", uid, record.uid)

    @staticmethod
    def _check_revision(
        target: Target, metadata: dict[str, Any], record: Record, *, patch: bool
    ) -> None:
        resource = target.served.resource
        wanted = _metadata.parse_revision(metadata.get("resourceVersion", ""))
        if wanted and wanted != record.revision:
            raise conflict(resource.plural, resource.group, target.name)
        if not wanted and not patch and not resource.strategy.unconditional_update:
            raise invalid(
                resource.plural,
                resource.group,
                target.name,
                [
                    FieldError.invalid(
                        "metadata.resourceVersion",
                        0,
                        "must be specified for an update",
                    )
                ],
            )

    @staticmethod
    def _counts_as_change(target: Target, new: dict[str, Any], old: dict[str, Any]) -> bool:
        ignored = {"metadata", "apiVersion", "kind"}
        if target.served.has_status or not target.served.resource.strategy.custom:
            ignored.add("status")
        if target.served.resource.strategy.annotations_count and (
            new["metadata"].get("annotations") != old["metadata"].get("annotations")
        ):
            return True
        return not _identical(
            {key: value for key, value in new.items() if key not in ignored},
            {key: value for key, value in old.items() if key not in ignored},
        )

    # -- delete ------------------------------------------------------------------------------

    async def delete(self, target: Target, options: DeleteOptions) -> WriteResult:
        """Delete an object, or set its deletionTimestamp while it has finalizers.

        Raises:
            StatusError: it cannot be deleted.
        """
        resource = target.served.resource
        admission = self._admission_for(options)
        for _ in range(_ATTEMPTS):
            record = self.get(target)
            if target.name in resource.strategy.protected:
                why = resource.strategy.protection
                raise forbidden(resource.plural, resource.group, target.name, why)
            deletion.check_preconditions(resource, record, options.uid, options.resource_version)
            old = await conversion.read_record(target.served, record)
            if resource.strategy.graceful and deletion.is_pending(old["metadata"], options.grace):
                return WriteResult(old)
            attributes = AdmissionAttributes(
                operation="DELETE", target=target, old=old, options=options
            )
            await admission.mutate(attributes)
            await admission.validate(attributes)
            storage_version = resource.versions[resource.storage_version]
            stored = await conversion.read_record(storage_version, record)
            if resource.collection.records.get(target.key) is record:
                return await self._delete(attributes, record, stored, options)
        raise _timed_out()

    async def _delete(
        self,
        attributes: AdmissionAttributes,
        record: Record,
        new: dict[str, Any],
        options: DeleteOptions,
    ) -> WriteResult:
        """Delete ``record``, which ``new`` is in the storage version."""
        target = attributes.target
        resource = target.served.resource
        metadata = new["metadata"]
        deletion.set_propagation(metadata, options.propagation, resource.strategy.propagation)
        grace = deletion.grace_of(new, options.grace) if resource.strategy.graceful else 0
        delayed = resource.strategy.prepare_delete(new)
        stays = bool(metadata.get("finalizers") or grace or delayed)
        if not stays and not resource.strategy.graceful:
            shown = attributes.old
            if not options.dry_run:
                shown["metadata"]["resourceVersion"] = await self._remove(target)
            return WriteResult(shown, 200, deleted=True)
        # Kinds with a grace period get a deletionTimestamp even when nothing delays the deletion.
        _metadata.mark_deleting(metadata, self.clock.time(), None if delayed else grace)
        if not options.dry_run and not _identical(new, record.decode()):
            self._storage.put(resource.collection, target.key, new)
        if not stays and not options.dry_run:
            new["metadata"]["resourceVersion"] = await self._remove(target)
        shown = await conversion.from_storage_version(new, new["apiVersion"], target.served)
        return WriteResult(shown, 202 if stays and options.cascades else 200, deleted=not stays)

    async def _remove(self, target: Target) -> str:
        """Remove an object from the storage; return the version of its deletion."""
        resource = target.served.resource
        removed = self._storage.remove(resource.collection, target.key)
        companion = self._catalog.find("", "v1", resource.strategy.deletes_too)
        if companion is not None and target.key in companion.resource.collection.records:
            await self.delete(attrs.evolve(target, served=companion), DeleteOptions())
        return str(removed.revision)

    # -- shared steps ------------------------------------------------------------------------

    def _admission_for(self, options: WriteOptions | DeleteOptions) -> AdmissionController:
        return _ADMIT_ALL if options.origin is None else self.admission

    async def _mutate(
        self, admission: AdmissionController, attributes: AdmissionAttributes
    ) -> dict[str, Any]:
        """Run mutating admission, and check the metadata of a changed object."""
        obj = await admission.mutate(attributes)
        if obj is not attributes.obj:
            check_metadata(attributes.target, obj)
            # As on the real server, the other admission controllers see what webhooks changed.
            if not attributes.subresource and obj != attributes.obj:
                strategy = attributes.target.served.resource.strategy
                strategy.admit(obj, attributes.old or None)
        return obj

    async def _commit(
        self,
        target: Target,
        obj: dict[str, Any],
        stored: dict[str, Any],
        options: WriteOptions,
    ) -> dict[str, Any]:
        """Store ``stored``, the storage version of ``obj``; return the object to answer with."""
        resource = target.served.resource
        # With a conversion webhook, the response is converted back from the stored object, as on
        # the real server.
        if options.dry_run:
            if resource.converter is None:
                return obj
            return await conversion.from_storage_version(
                stored, stored["apiVersion"], target.served
            )
        record = self._storage.put(resource.collection, target.key, stored)
        obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        if resource.converter is None:
            return obj
        return await conversion.read_record(target.served, record)


def _with_default_status(
    target: Target, obj: dict[str, Any], stored: dict[str, Any]
) -> dict[str, Any]:
    """Default the status of a new object, as the real server does when it reads it.

    It is dropped from the request before, and validation does not see it.

    Args:
        target: its address.
        obj: the object in the client's version.
        stored: the same in the storage version; its status is defaulted in place.

    Returns:
        The object to answer with.
    """
    resource = target.served.resource
    structure = resource.versions[resource.storage_version].structural_schema
    filled = structure is not None and structure.default_status(stored)
    if not filled or stored is obj or resource.converter is not None:
        return obj
    return target.served.read(msgspec.json.decode(msgspec.json.encode(stored)))


def _has_revision(metadata: Mapping[str, Any]) -> bool:
    """Whether there is a resourceVersion that is a number other than 0; others are overlooked."""
    try:
        return _metadata.parse_revision(metadata.get("resourceVersion", "")) != 0
    except StatusError:
        return False


def _add_warnings(options: WriteOptions, warnings: list[str]) -> None:
    if options.origin is not None:
        options.origin.warn(warnings)


def _prune_and_default_again(target: Target, obj: dict[str, Any]) -> None:
    """Prune and default an object again after a webhook changed it."""
    prune_and_default(target, obj, _IGNORE_UNKNOWN, [])


def _merge_subresource(
    new: dict[str, Any], old: dict[str, Any], subresource: str, strategy: Strategy
) -> dict[str, Any]:
    """The old object with the fields of the subresource taken from the new one."""
    fields = strategy.subresources.get(subresource)
    if fields is not None:
        merged = fields(new, old)
        merged["metadata"] = dict(merged["metadata"])
        _restore(merged["metadata"], new["metadata"], "managedFields")
        return merged
    if subresource == "status":
        merged = {**old, "metadata": old["metadata"] if strategy.custom else new["metadata"]}
        merged["metadata"] = dict(merged["metadata"])
        _restore(merged["metadata"], new["metadata"], "managedFields")
        if "status" in new:
            merged["status"] = new["status"]
        else:
            merged.pop("status", None)
        return merged
    return new


def _restore(new: dict[str, Any], old: dict[str, Any], field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _identical(new: Any, old: Any) -> bool:
    # 1, 1.0 and True are equal in Python and different in JSON. The cheap comparison comes first.
    return bool(new == old) and _canonical(new) == _canonical(old)


def _timed_out() -> StatusError:
    return StatusError(
        504,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
    )
