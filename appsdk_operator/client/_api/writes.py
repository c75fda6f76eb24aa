"""The verbs that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api import request_builders
from appsdk_operator.client._api.dropped_status import warn_of_dropped_status
from appsdk_operator.client._api.options import (
    FieldValidation,
    Propagation,
    delete_body,
    write_query,
)
from appsdk_operator.client._api.patches import MergePatch, Patch
from appsdk_operator.client._request import check_namespace, selectors_of
from appsdk_operator.resource import (
    AnyObject,
    FieldSelection,
    Kind,
    LabelSelection,
    Object,
    check_kind,
)

if TYPE_CHECKING:
    from appsdk_operator.client._transport.transport import Transport

__all__ = ["Writes"]


class Writes:
    """The half of :class:`Client` that changes objects."""

    _transport: Transport
    _status_warned: set[Kind]

    def create(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Make an object, and return what the server made of it.

        Where the status is a subresource a status is dropped, with a warning in the log, once for
        each kind: ``client.status.update`` writes it afterwards.

        Args:
            obj: the object; without a name it needs ``metadata.generateName``.
            dry_run: have the server do everything but store it.
            field_manager: who is written down as owner of the fields; default: the user agent's
                first word.
            field_validation: what the server does about unknown and doubled fields, ``"Ignore"``,
                ``"Warn"`` or ``"Strict"``; default: the server's, ``"Warn"``.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the server does not take it as it is.
        """
        request_builders.check_object(obj)
        answer = self._object(
            obj.kind,
            "POST",
            "create",
            namespace=obj.namespace,
            query=write_query(dry_run, field_manager, field_validation),
            body=request_builders.encode_object(obj, "create"),
            answer_name=obj.name,
        )
        warn_of_dropped_status(self._status_warned, "create", obj.get("status"), answer)
        return answer

    def update(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Replace an object, and return what the server made of it.

        With a resource version in it, the server refuses when the object has changed since; without
        one, custom resources are refused and most other kinds overwritten. Where the status is a
        subresource a changed status is dropped, with a warning in the log: ``client.status.update``
        writes it.

        Args: as :meth:`create`.

        Raises:
            Conflict: it was changed since it was read.
            NotFound: there is none of this name.
            Invalid: the server does not take it as it is.
        """
        request_builders.check_object(obj)
        answer = self._object(
            obj.kind,
            "PUT",
            "update",
            namespace=obj.namespace,
            name=request_builders.name_of(obj),
            query=write_query(dry_run, field_manager, field_validation),
            body=request_builders.encode_object(obj, "update"),
            answer_uid=request_builders.uid_of(obj),
            repeatable=bool(obj.resource_version),
        )
        if obj.resource_version:  # else another status need not be a changed one
            warn_of_dropped_status(self._status_warned, "update", obj.get("status"), answer)
        return answer

    def patch(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Change parts of an object, and return what became of it.

        Args:
            kind: what it is.
            name: its name.
            patch: a :class:`JsonPatch`, :class:`MergePatch` or :class:`StrategicMergePatch`.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            dry_run, field_manager, field_validation: as :meth:`create`.

        Raises:
            NotFound: there is none of this name.
            Conflict: the patch names a resource version, and the object has changed since.
            Invalid: the result is not taken.
        """
        request_builders.check_patch(patch)
        answer = self._object(
            kind,
            "PATCH",
            "patch",
            namespace=namespace,
            name=name,
            query=write_query(dry_run, field_manager, field_validation),
            body=patch.body(),
            content_type=patch.content_type,
            repeatable=patch.is_guarded,
        )
        if isinstance(patch, MergePatch):
            warn_of_dropped_status(self._status_warned, "patch", patch.fields.get("status"), answer)
        return answer

    def apply(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Have the fields in ``obj`` be as they are there, and make it if needed (server-side
        apply).

        Fields that this manager applied before and that are no longer in ``obj`` are removed.

        Args:
            obj: only the fields that the manager wants to own; without ``managedFields``.
            field_manager: who owns the fields; must be given.
            force: take fields from other managers.
            dry_run, field_validation: as :meth:`create`.

        Raises:
            Conflict: another manager owns one of the fields, and ``force`` is not given.
        """
        request_builders.check_object(obj)
        return self._object(
            obj.kind,
            "PATCH",
            "patch",
            namespace=obj.namespace,
            name=request_builders.name_of(obj),
            query=request_builders.apply_query(
                field_manager, field_validation, dry_run=dry_run, force=force
            ),
            body=request_builders.encode_object(obj, "apply"),
            answer_uid=request_builders.uid_of(obj),
            content_type=request_builders.APPLY,
            repeatable=True,
        )

    def delete(
        self,
        kind: Kind[SpecT, StatusT],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> Object[SpecT, StatusT] | None:
        """Delete an object.

        Args:
            kind: what it is.
            name: its name.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            uid: delete only the object with this uid, not another of the same name.
            resource_version: delete only if it has not changed since.
            propagation: what becomes of the objects it owns: ``"Background"``, ``"Foreground"`` or
                ``"Orphan"``; default: the kind's, mostly in the background.
            grace_period: seconds a pod has to end; 0 deletes at once; default: the object's own.
            dry_run: have the server do everything but delete it.

        Returns:
            The object when it waits for its finalizers or its grace period; None when the server
            only says that it is done.

        Raises:
            NotFound: there is none of this name.
            Conflict: ``uid`` or ``resource_version`` are not those of the object.
        """
        request = request_builders.request(
            kind,
            "DELETE",
            "delete",
            namespace=namespace,
            name=name,
            body=delete_body(
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_period=grace_period,
                dry_run=dry_run,
            ),
            answer_uid=uid,
            repeatable=bool(uid or resource_version),
        )
        return self._transport.send(
            request, decode=lambda body: request_builders.deleted(request, kind, body)
        )

    def delete_collection(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: LabelSelection | None = None,
        field_selector: FieldSelection | None = None,
        propagation: Propagation | None = None,
        grace_period: float | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete all objects of a kind in one namespace, or those that the selectors choose.

        Args:
            kind: what to delete.
            namespace: where; must be given for kinds that live in namespaces.
            label_selector: as text, as a mapping of labels to values, or as a LabelSelector.
            field_selector: the same for fields.
            propagation, grace_period, dry_run: as :meth:`delete`.
        """
        check_kind(kind)
        check_namespace(kind, namespace)
        request = request_builders.request(
            kind,
            "DELETE",
            "deletecollection",
            namespace=namespace,
            query=selectors_of(label_selector, field_selector),
            body=delete_body(propagation=propagation, grace_period=grace_period, dry_run=dry_run),
        )
        self._transport.send(request)

    def _object(
        self, kind: Kind[SpecT, StatusT], method: str, verb: str, **parts: Any
    ) -> Object[SpecT, StatusT]:
        request = request_builders.request(kind, method, verb, **parts)
        return self._transport.send(
            request, decode=lambda body: request_builders.answered(request, kind, body)
        )
