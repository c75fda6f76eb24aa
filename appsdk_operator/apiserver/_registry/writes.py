"""Create, update and delete, in the steps and with the checks of Kubernetes' generic registry.

Each verb takes an object of the client's version and commits at most one change, so the state is
consistent between any two of them. The only ones to wait for are those behind the :class:`Gate`.
Whatever has changed meanwhile counts: an update or a deletion begins anew with the newest state,
as often as it takes within reason, and a creation looks again at what it needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.apiserver._managed_fields import entries
from appsdk_operator.apiserver._managed_fields.field_managers import FieldManagers
from appsdk_operator.apiserver._registry import deletion
from appsdk_operator.apiserver._registry.preparation import fit_schema, metadata_of, validate
from appsdk_operator.apiserver._registry.write_requests import (
    Attempt,
    DeleteOptions,
    Gate,
    OpenGate,
    Origin,
    Outcome,
    Target,
    WriteOptions,
)
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import Catalog
from appsdk_operator.apiserver._storage.storage import Record, Storage, TooLargeError
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
    "Outcome",
    "Target",
    "WriteOptions",
    "Writer",
    "precondition_failed",
]

_canonical: Final = msgspec.json.Encoder(order="sorted").encode
# How often a write begins anew because the object was changed meanwhile. The real server tries
# until the request times out.
_ATTEMPTS: Final = 100
_OPEN: Final = OpenGate()
_QUIET: Final = WriteOptions(field_validation="Ignore", origin=Origin())


def precondition_failed(target: Target, name: str, wanted: str, found: str) -> StatusError:
    """409: an object that is not the one, or not as old, as the client meant."""
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
    """Carries out writes on a storage."""

    def __init__(self, storage: Storage, catalog: Catalog, clock: Clock) -> None:
        """A writer whose time stamps come from ``clock``."""
        self._storage = storage
        self._catalog = catalog
        self.clock = clock
        # Of its own, so that an object more does not change the delays of those that retry.
        self._rng = random.Random(random_of(clock).getrandbits(64))
        self.fields: FieldManagers = FieldManagers(catalog, clock)
        """Who owns which fields."""
        self.gate: Gate = _OPEN
        """Who is asked about writes; nobody at first."""

    def get(self, target: Target) -> Record:
        """The stored object.

        Raises:
            StatusError: 404, it is not there.
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
    ) -> Outcome:
        """Store a new object.

        Raises:
            StatusError: it cannot be created.
        """
        resource, strategy = target.served.resource, target.served.resource.strategy
        metadata = metadata_of(target, obj)
        self._check_open(target, metadata.get("name", ""))
        _tell(options, fit_schema(target, obj, options))
        if options.manager is not None:
            _metadata.wipe_system_fields(obj["metadata"])
            self.fields.of(target.served).updated(None, obj, options.manager)

        def prepare(obj: dict[str, Any]) -> None:
            if not strategy.custom:
                strategy.prepare_create(obj)

        def fill_in(obj: dict[str, Any]) -> None:
            _fit_again(target, obj)
            prepare(obj)

        attempt = Attempt(
            operation="CREATE",
            target=target,
            obj=obj,
            options=options,
            prepare=prepare,
            fill_in=fill_in,
        )
        gate = self._gate(options)
        obj = await self._mutated(gate, attempt)
        metadata = obj["metadata"]
        if metadata.get("resourceVersion", "0") not in ("", "0"):
            raise StatusError(
                500, "resourceVersion should not be set on objects to be created", reason=""
            )
        metadata.pop("resourceVersion", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = _metadata.generated_name(metadata["generateName"], self._rng)
        _metadata.prepare_create(
            metadata, self.clock.time(), self._rng, generation=strategy.generation
        )
        told = _metadata.warnings(metadata, None, custom=strategy.custom)
        if target.served.has_status and not strategy.status_on_create:
            obj.pop("status", None)
        strategy.prepare_create(obj)
        validate(target, obj, None, told)
        _tell(options, told)
        await gate.validate(attrs.evolve(attempt, obj=obj))
        name = metadata["name"]
        target = attrs.evolve(target, name=name)
        stored = await conversion.to_storage_version(obj, target.served)
        self._check_open(target, name)
        present = resource.collection.records.get(target.key)
        if present is not None:
            held = present.deleting
            raise already_exists(resource.plural, resource.group, name, deleting=held)
        return Outcome(await self._commit(target, obj, stored, options), 201)

    def _check_open(self, target: Target, name: str) -> None:
        """Refuse to create where nothing can be created any more."""
        resource = target.served.resource
        if self._catalog.resource(resource.group, resource.plural) is not resource:
            raise StatusError(404, "the server could not find the requested resource", details={})
        if resource.namespaced:
            self._check_namespace_open(target, name)
        if resource.terminating:
            raise forbidden(
                resource.plural,
                resource.group,
                name,
                "create not allowed while custom resource definition is terminating",
            )

    def _check_namespace_open(self, target: Target, name: str) -> None:
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
        change: Callable[[dict[str, Any]], dict[str, Any]],
        options: WriteOptions,
        *,
        subresource: str = "",
        patch: bool = False,
        gate: Gate | None = None,
    ) -> Outcome:
        """Replace an object by what ``change`` makes of it.

        Args:
            target: the object.
            change: from the present object, in the client's version, to the wanted one; called
                again for each attempt. What it takes and what it returns are the attempt's own.
            options: dry run and field validation.
            subresource: ``"status"`` and its like change a part of the object only.
            patch: whether the uid in the object is a field to check rather than a precondition,
                and a missing resourceVersion is the present one.
            gate: who is asked; default: :attr:`gate`, about writes that have an origin.

        Raises:
            StatusError: it cannot be updated.
        """
        resource, strategy = target.served.resource, target.served.resource.strategy
        gate = gate or self._gate(options)
        for _ in range(_ATTEMPTS):
            record = resource.collection.records.get(target.key)
            if record is None:
                if strategy.create_on_update and not patch and not subresource:
                    return await self.create(target, change({}), options)
                raise not_found(resource.plural, resource.group, target.name)
            old = await conversion.read_record(target.served, record)
            new = change(target.served.decode(record))
            attempt = Attempt(
                operation="UPDATE",
                target=target,
                subresource=subresource,
                obj=new,
                old=old,
                options=options,
                fill_in=lambda obj: _fit_again(target, obj),
            )
            outcome = await self._try_update(attempt, record, options, gate, patch=patch)
            if outcome is not None:
                return outcome
        raise _timed_out()

    async def _try_update(
        self,
        attempt: Attempt,
        record: Record,
        options: WriteOptions,
        gate: Gate,
        *,
        patch: bool,
    ) -> Outcome | None:
        """What the update of ``record`` leads to; None when it was changed meanwhile."""
        target, subresource = attempt.target, attempt.subresource
        resource, strategy = target.served.resource, target.served.resource.strategy
        new, old = attempt.obj, attempt.old
        metadata = metadata_of(target, new)
        _tell(options, fit_schema(target, new, options))
        self._check_uid(target, metadata, record, patch=patch)
        if options.manager is not None:
            self.fields.of(target.served, subresource).updated(old, new, options.manager)
        new = await self._mutated(gate, attempt)
        metadata = new["metadata"]
        self._check_revision(target, metadata, record, patch=patch)
        if subresource:
            new = _merge_subresource(new, old, subresource, custom=strategy.custom)
            metadata = new["metadata"]
        elif target.served.has_status:
            _restore(new, old, "status")
        _metadata.carry_over(metadata, old["metadata"])
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if subresource == "status":
            strategy.prepare_status(new, old)
        elif not subresource:
            strategy.prepare_update(new, old)
        # Which node a pod is bound to is not its owner's doing.
        counts = strategy.generation and subresource not in ("status", "binding")
        if counts and self._counts_as_change(target, new, old):
            metadata["generation"] = metadata.get("generation", 0) + 1
        told: list[str] = []
        validate(target, new, old, told, subresource)
        _tell(options, told)
        await gate.validate(attrs.evolve(attempt, obj=new))
        entries.discard_time_changes(new, old)
        changed = not _identical(new, old)
        stored = await conversion.to_storage_version(new, target.served) if changed else old
        if resource.collection.records.get(target.key) is not record:
            return None
        if not changed:
            return Outcome(old)
        if not options.dry_run and deletion.is_gone(new, old):
            # As on the real server the state without finalizers is answered and never stored:
            # the deletion is the next revision.
            self._storage.remove(resource.collection, target.key)
            return Outcome(new, deleted=True)
        return Outcome(await self._commit(target, new, stored, options))

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

    async def delete(self, target: Target, options: DeleteOptions) -> Outcome:
        """Delete an object, or mark it when finalizers hold it.

        Raises:
            StatusError: it cannot be deleted.
        """
        resource = target.served.resource
        gate = self._gate(options)
        for _ in range(_ATTEMPTS):
            record = self.get(target)
            if target.name in resource.strategy.protected:
                why = "this namespace may not be deleted"
                raise forbidden(resource.plural, resource.group, target.name, why)
            deletion.check_preconditions(resource, record, options.uid, options.resource_version)
            attempt = Attempt(
                operation="DELETE",
                target=target,
                old=await conversion.read_record(target.served, record),
                options=options,
            )
            await gate.mutate(attempt)
            await gate.validate(attempt)
            if resource.collection.records.get(target.key) is record:
                return await self._delete(attempt, record, options)
        raise _timed_out()

    async def _delete(self, attempt: Attempt, record: Record, options: DeleteOptions) -> Outcome:
        target = attempt.target
        resource = target.served.resource
        old = record.decode()
        new = record.decode()
        metadata = new["metadata"]
        deletion.set_propagation(metadata, options.propagation)
        grace = deletion.grace_of(new, options.grace) if resource.strategy.graceful else 0
        held = resource.strategy.prepare_delete(new)
        stays = bool(metadata.get("finalizers") or grace or held)
        if not stays and not resource.strategy.graceful:
            if not options.dry_run:
                self._storage.remove(resource.collection, target.key)
            return Outcome(attempt.old, 200, deleted=True)
        # Kinds with a grace period are marked even when there is nobody to wait for.
        _metadata.mark_deleting(metadata, self.clock.time(), None if held else grace)
        if not options.dry_run and not _identical(new, old):
            record = self._storage.put(resource.collection, target.key, new)
        if not stays and not options.dry_run:
            self._storage.remove(resource.collection, target.key)
        shown = await conversion.from_storage_version(new, record.api_version, target.served)
        return Outcome(shown, 200, deleted=not stays)

    # -- what they share ---------------------------------------------------------------------

    def _gate(self, options: WriteOptions | DeleteOptions) -> Gate:
        return _OPEN if options.origin is None else self.gate

    async def _mutated(self, gate: Gate, attempt: Attempt) -> dict[str, Any]:
        """The object with what those at the gate changed in it."""
        obj = await gate.mutate(attempt)
        if obj is not attempt.obj:
            metadata_of(attempt.target, obj)
        return obj

    async def _commit(
        self,
        target: Target,
        obj: dict[str, Any],
        stored: dict[str, Any],
        options: WriteOptions,
    ) -> dict[str, Any]:
        """Store ``obj``, which is ``stored`` there; the object as it is from now on."""
        resource = target.served.resource
        # Where a webhook converts, what is answered has been through the storage, as on the real
        # server.
        if options.dry_run:
            if resource.converter is None:
                return obj
            return await conversion.from_storage_version(
                stored, stored["apiVersion"], target.served
            )
        try:
            record = self._storage.put(resource.collection, target.key, stored)
        except TooLargeError:
            raise StatusError(500, "etcdserver: request is too large", reason="") from None
        obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        if resource.converter is None:
            return obj
        return await conversion.read_record(target.served, record)


def _tell(options: WriteOptions, warnings: list[str]) -> None:
    if options.origin is not None:
        options.origin.warn(warnings)


def _fit_again(target: Target, obj: dict[str, Any]) -> None:
    """Make an object fit that was changed on its way."""
    fit_schema(target, obj, _QUIET)


def _merge_subresource(
    new: dict[str, Any], old: dict[str, Any], subresource: str, *, custom: bool
) -> dict[str, Any]:
    """The old object with what the subresource is about taken from the new one."""
    if subresource == "status":
        merged = {**old, "metadata": old["metadata"] if custom else new["metadata"]}
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
    # Equal values of other types (1, 1.0 and True) are a change in JSON. They are rare, so the
    # cheap comparison comes first.
    return bool(new == old) and _canonical(new) == _canonical(old)


def _timed_out() -> StatusError:
    return StatusError(
        504,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
    )
