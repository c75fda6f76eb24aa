"""The verbs on subresources: ``status``, ``scale``, ``eviction`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._api import request_builders
from appsdk_operator.client._api.options import FieldValidation, apply_query, write_query
from appsdk_operator.client._request import Request
from appsdk_operator.resource import AnyObject, Kind, Object, Patch, check_path_segment
from appsdk_operator.runtime.validation import check_text

if TYPE_CHECKING:
    from appsdk_operator.client._transport.transport import Transport


@final
class SubresourceClient:
    """One subresource of any kind: ``status``, ``scale``, ``eviction``, ``token``, ``binding``, …

    ``status`` takes and returns the object itself. Others take and return objects of their own
    kinds (a ``Scale``, a ``TokenRequest``), so they need the kind of the ``parent``. Raises the
    errors of :class:`Client`. Thread-safe.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        check_path_segment("subresource", name)
        self._transport = transport
        self._name = name

    @property
    def name(self) -> str:
        """The subresource, for example ``status``."""
        return self._name

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ""
    ) -> Object[SpecT, StatusT]:
        """Read it; ``kind`` is the parent's kind, the answer may have another kind."""
        request = request_builders.build_request(
            kind,
            "GET",
            "get",
            subresource=self._name,
            namespace=namespace,
            name=name,
            repeatable=True,
        )
        return self._send(request, kind)

    def create(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        parent: Kind | None = None,
        name: str = "",
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Post to it: evict or bind a pod, request a token.

        Args:
            obj: the object to post, for example an ``Eviction`` or a ``TokenRequest``.
            parent: the kind whose subresource it is; default: the kind of ``obj``.
            name: the parent's name; default: the name in ``obj``.
            namespace: the parent's namespace; default: the one in ``obj``.
            dry_run, field_manager, field_validation: as :meth:`Client.create`.

        Returns:
            The object in the answer, which may be a ``Status``.
        """
        request_builders.check_object(obj)
        check_text("name", name)
        check_text("namespace", namespace)
        kind = request_builders.parent_kind(obj, parent)
        request = request_builders.build_request(
            kind,
            "POST",
            "create",
            subresource=self._name,
            namespace=namespace or obj.namespace,
            name=name or request_builders.required_name(obj),
            query=write_query(dry_run, field_manager, field_validation),
            body=request_builders.encode_object(obj, "create"),
            secret=obj.kind.secret,
        )
        return self._send(request, kind)

    def update(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        parent: Kind | None = None,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Replace it. ``status`` takes an object and stores only its status.

        Args:
            obj: the object, or for ``scale`` a ``Scale`` of the same name.
            parent: the kind whose subresource it is; default: the kind of ``obj``.
            dry_run, field_manager, field_validation: as :meth:`Client.create`.

        Raises:
            Conflict: the object has changed since it was read.
        """
        request = request_builders.update_request(
            obj,
            parent=parent,
            subresource=self._name,
            query=write_query(dry_run, field_manager, field_validation),
        )
        return self._send(request, request_builders.parent_kind(obj, parent))

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
        """Change parts of it; arguments as :meth:`Client.patch`, ``kind`` is the parent's."""
        request = request_builders.patch_request(
            kind,
            name,
            patch,
            subresource=self._name,
            namespace=namespace,
            query=write_query(dry_run, field_manager, field_validation),
        )
        return self._send(request, kind)

    def apply(
        self,
        obj: AnyObject[SpecT, StatusT],
        *,
        field_manager: str = "",
        parent: Kind | None = None,
        force: bool = False,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object[SpecT, StatusT]:
        """Server-side apply to it; arguments as :meth:`Client.apply`.

        Args:
            obj: the fields that the manager wants to own, and no others.
            field_manager: the owner of the fields; required.
            parent: the kind whose subresource it is; default: the kind of ``obj``.
            force: take over fields of other managers.
            dry_run, field_validation: as :meth:`Client.create`.

        Raises:
            Conflict: another manager owns one of the fields, and ``force`` is not given.
        """
        request_builders.check_object(obj)  # before its options
        request = request_builders.apply_request(
            obj,
            parent=parent,
            subresource=self._name,
            query=apply_query(dry_run, field_manager, field_validation, force),
        )
        return self._send(request, request_builders.parent_kind(obj, parent))

    def _send(self, request: Request, kind: Kind[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        return self._transport.send(
            request,
            decode=lambda body: request_builders.decode_answer_of_any_kind(request, kind, body),
        )
