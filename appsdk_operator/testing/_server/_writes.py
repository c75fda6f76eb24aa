"""Create, update and delete, in the steps and with the checks of Kubernetes' generic registry.

Each verb takes an object of the client's version and commits at most one change, so the state is
consistent between any two of them; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.runtime import Clock
from appsdk_operator.testing._server import _metadata, _schema
from appsdk_operator.testing._server._resources import Catalog, ServedVersion
from appsdk_operator.testing._server._status import (
    FieldError,
    StatusError,
    Verbatim,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    method_not_allowed,
    not_found,
)
from appsdk_operator.testing._server._storage import Record, Storage

__all__ = ["DeleteOptions", "Outcome", "Target", "WriteOptions", "Writer"]

_canonical: Final = msgspec.json.Encoder(order="sorted").encode

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"


@attrs.frozen
class Target:
    """What a request is about: a served version of a resource, a namespace, maybe an object."""

    served: ServedVersion
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """Where the object is stored."""
        return self.served.resource.key(self.namespace, self.name)


@attrs.frozen(kw_only=True)
class WriteOptions:
    """What goes for creates, updates and patches."""

    dry_run: bool = False
    field_validation: str = "Warn"


@attrs.frozen(kw_only=True)
class DeleteOptions:
    """What goes for deletes."""

    dry_run: bool = False
    propagation: str | None = None
    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None


@attrs.define
class Outcome:
    """What a write leads to: the object in the client's version, and warnings to tell."""

    obj: dict[str, Any]
    status: int = 200
    warnings: list[str] = attrs.field(factory=list)
    deleted: bool = False


@final
class Writer:
    """Carries out writes on a storage."""

    def __init__(self, storage: Storage, catalog: Catalog, clock: Clock) -> None:
        """A writer whose time stamps come from ``clock``."""
        self._storage = storage
        self._catalog = catalog
        self._clock = clock

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

    def create(self, target: Target, obj: dict[str, Any], options: WriteOptions) -> Outcome:
        """Store a new object."""
        resource, rules = target.served.resource, target.served.resource.rules
        metadata = self._metadata_of(target, obj)
        self._check_namespace_open(target, metadata.get("name", ""))
        if resource.terminating:
            raise method_not_allowed(
                "create not allowed while custom resource definition is terminating",
                {"group": resource.group, "kind": resource.plural},
            )
        if metadata.get("resourceVersion", "0") not in ("", "0"):
            raise StatusError(
                500, "resourceVersion should not be set on objects to be created", reason=""
            )
        metadata.pop("resourceVersion", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = _metadata.generated_name(metadata["generateName"])
        _metadata.prepare_create(metadata, self._clock.time(), generation=rules.generation)
        if target.served.has_status:
            obj.pop("status", None)
        warnings = self._fit_schema(target, obj, options)
        rules.prepare_create(obj)
        self._validate(target, obj, None)
        name = metadata["name"]
        target = attrs.evolve(target, name=name)
        if target.key in resource.collection.records:
            raise already_exists(resource.plural, resource.group, name)
        if not options.dry_run:
            self._commit(target, obj)
        return Outcome(obj, 201, warnings)

    def _check_namespace_open(self, target: Target, name: str) -> None:
        resource = target.served.resource
        if not resource.namespaced:
            return
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

    def update(
        self,
        target: Target,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        options: WriteOptions,
        *,
        subresource: str = "",
        patch: bool = False,
    ) -> Outcome:
        """Replace an object by what ``change`` makes of it.

        Args:
            target: the object.
            change: from the present object, in the client's version, to the wanted one. The
                argument is a copy of its own.
            options: dry run and field validation.
            subresource: ``"status"`` and its like change a part of the object only.
            patch: whether the uid in the object is a field to check rather than a precondition,
                and a missing resourceVersion is the present one.
        """
        resource, rules = target.served.resource, target.served.resource.rules
        record = resource.collection.records.get(target.key)
        if record is None:
            if rules.create_on_update and not patch and not subresource:
                return self.create(target, change({}), options)
            raise not_found(resource.plural, resource.group, target.name)
        old = target.served.read(record.decode())
        new = change(target.served.read(record.decode()))
        metadata = self._metadata_of(target, new)
        self._check_revision(target, metadata, record, patch=patch)
        warnings = self._fit_schema(target, new, options)
        if subresource:
            new = _merge_subresource(new, old, subresource, custom=rules.custom)
            metadata = new["metadata"]
        elif target.served.has_status:
            _restore(new, old, "status")
        _metadata.carry_over(metadata, old["metadata"])
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if subresource == "status":
            rules.prepare_status(new, old)
        elif not subresource:
            rules.prepare_update(new, old)
        if rules.generation and self._counts_as_change(target, new, old):
            metadata["generation"] = metadata.get("generation", 0) + 1
        self._validate(target, new, old)
        if _identical(new, old):
            return Outcome(old, 200, warnings)
        if options.dry_run:
            return Outcome(new, 200, warnings)
        if self._is_gone(new, old):
            # As on the real server the state without finalizers is answered and never stored:
            # the deletion is the next revision.
            self._storage.remove(resource.collection, target.key)
            return Outcome(new, 200, warnings, deleted=True)
        self._commit(target, new)
        return Outcome(new, 200, warnings)

    @staticmethod
    def _is_gone(new: dict[str, Any], old: dict[str, Any]) -> bool:
        metadata = new["metadata"]
        return (
            "deletionTimestamp" in old["metadata"]
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
            and not (new.get("kind") == "Namespace" and new.get("spec", {}).get("finalizers"))
        )

    def _check_revision(
        self, target: Target, metadata: dict[str, Any], record: Record, *, patch: bool
    ) -> None:
        resource = target.served.resource
        wanted = _metadata.parse_revision(metadata.get("resourceVersion", ""))
        uid = metadata.get("uid")
        if uid and uid != record.uid and not patch:
            raise conflict(
                resource.plural,
                resource.group,
                target.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                f"{record.uid}",
            )
        if wanted and wanted != record.revision:
            raise conflict(resource.plural, resource.group, target.name)
        if not wanted and not patch and not resource.rules.unconditional_update:
            raise invalid(
                resource.plural,
                resource.group,
                target.name,
                [
                    FieldError.invalid(
                        "metadata.resourceVersion",
                        Verbatim("0x0"),
                        "must be specified for an update",
                    )
                ],
            )

    @staticmethod
    def _counts_as_change(target: Target, new: dict[str, Any], old: dict[str, Any]) -> bool:
        ignored = {"metadata", "apiVersion", "kind"}
        if target.served.has_status or not target.served.resource.rules.custom:
            ignored.add("status")
        return not _identical(
            {key: value for key, value in new.items() if key not in ignored},
            {key: value for key, value in old.items() if key not in ignored},
        )

    # -- delete ------------------------------------------------------------------------------

    def delete(self, target: Target, options: DeleteOptions) -> Outcome:
        """Delete an object, or mark it when finalizers hold it."""
        resource = target.served.resource
        record = self.get(target)
        if target.name in resource.rules.protected:
            raise forbidden(
                resource.plural, resource.group, target.name, "this namespace may not be deleted"
            )
        self._check_preconditions(target, record, options)
        old = record.decode()
        new = record.decode()
        metadata = new["metadata"]
        self._set_propagation(metadata, options.propagation)
        grace = _grace(new, options) if resource.rules.graceful else 0
        held = resource.rules.prepare_delete(new)
        stays = bool(metadata.get("finalizers") or grace or held)
        if not stays and not resource.rules.graceful:
            if not options.dry_run:
                self._storage.remove(resource.collection, target.key)
            return Outcome(target.served.read(old), 200, deleted=True)
        # Kinds with a grace period are marked even when there is nobody to wait for.
        _metadata.mark_deleting(metadata, self._clock.time(), None if held else grace)
        if not options.dry_run and not _identical(new, old):
            self._storage.put(resource.collection, target.key, new)
        if not stays and not options.dry_run:
            self._storage.remove(resource.collection, target.key)
        return Outcome(target.served.read(new), 200, deleted=not stays)

    @staticmethod
    def _set_propagation(metadata: dict[str, Any], propagation: str | None) -> None:
        finalizers = list(metadata.get("finalizers", ()))
        if propagation is None:
            return
        kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
        if propagation == "Orphan":
            kept.append(ORPHAN)
        elif propagation == "Foreground":
            kept.append(FOREGROUND)
        if kept != finalizers:
            metadata["finalizers"] = kept

    @staticmethod
    def _check_preconditions(target: Target, record: Record, options: DeleteOptions) -> None:
        resource = target.served.resource
        if options.uid is not None and options.uid != record.uid:
            why = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({record.uid}). The object might have been deleted and then recreated"
            )
        elif options.resource_version not in (None, str(record.revision)):
            why = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not "
                f"match the ResourceVersion in record ({record.revision}). The object might have "
                "been modified"
            )
        else:
            return
        raise conflict(resource.kind, resource.group, target.name, why)

    # -- what they share ---------------------------------------------------------------------

    @staticmethod
    def _metadata_of(target: Target, obj: dict[str, Any]) -> dict[str, Any]:
        resource = target.served.resource
        metadata = _metadata.check_shape(obj, resource.kind, target.served.version)
        if target.name and metadata.get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({target.name})"
            )
        if resource.namespaced:
            namespace = metadata.get("namespace") or target.namespace
            if namespace != target.namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        return metadata

    @staticmethod
    def _fit_schema(target: Target, obj: dict[str, Any], options: WriteOptions) -> list[str]:
        """Drop unknown fields and fill in defaults; the warnings to tell."""
        schema = target.served.schema
        if schema is None:
            return []
        dropped = _schema.prune(obj, schema)
        _schema.apply_defaults(obj, schema)
        stored = target.served.resource.versions[target.served.resource.storage_version]
        if stored is not target.served and stored.schema is not None:
            # What the stored version has no field for is not kept, whoever sent it.
            _schema.prune(obj, stored.schema)
            _schema.apply_defaults(obj, stored.schema)
        complaints = [f'unknown field "{path}"' for path in dropped]
        if not complaints or options.field_validation == "Ignore":
            return []
        if options.field_validation == "Strict":
            raise bad_request(f"strict decoding error: {', '.join(complaints)}")
        return complaints

    @staticmethod
    def _validate(target: Target, new: dict[str, Any], old: dict[str, Any] | None) -> None:
        resource = target.served.resource
        errors = list(_metadata.validate(new["metadata"], resource.rules.name_style))
        if old is not None:
            errors += _metadata.validate_update(new["metadata"], old["metadata"])
        if target.served.schema is not None:
            errors += _schema.validate(new, target.served.schema)
        elif resource.group not in ("apiextensions.k8s.io", "apiregistration.k8s.io"):
            errors += _metadata.validate_finalizers(new["metadata"])
        errors += resource.rules.validate(new, old)
        if errors:
            name = new["metadata"].get("name", "")
            raise invalid(resource.kind, resource.group, name, errors)

    def _commit(self, target: Target, obj: dict[str, Any]) -> None:
        resource, served = target.served.resource, target.served
        if served.to_storage is not None:
            stored = served.to_storage(obj)
        elif resource.storage_version != served.version:
            storage = resource.versions[resource.storage_version]
            stored = {**obj, "apiVersion": storage.api_version}
        else:
            stored = obj
        self._storage.put(resource.collection, target.key, stored)
        obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]


def _merge_subresource(
    new: dict[str, Any], old: dict[str, Any], subresource: str, *, custom: bool
) -> dict[str, Any]:
    """The old object with what the subresource is about taken from the new one."""
    if subresource == "status":
        merged = {**old, "metadata": old["metadata"] if custom else new["metadata"]}
        merged["metadata"] = dict(merged["metadata"])
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


def _grace(obj: dict[str, Any], options: DeleteOptions) -> int:
    """Seconds a pod that runs somewhere is given."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return max(0, options.grace)
    return int(spec.get("terminationGracePeriodSeconds", 30))
