"""Handlers of the resource verbs: from a parsed request to the body of its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, final

import attrs
import msgspec

from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._http import stale_reads
from appsdk_operator.apiserver._http.access_control import AccessControl
from appsdk_operator.apiserver._http.resource_request import ResourceRequest, ResourceResponse
from appsdk_operator.apiserver._http.routing_errors import PageNotFoundError, unsupported_verb
from appsdk_operator.apiserver._registry import (
    apply,
    bodies,
    patching,
    subresource_bodies,
    subresources,
)
from appsdk_operator.apiserver._registry.apply import APPLY_PATCH
from appsdk_operator.apiserver._registry.pod_connections import (
    CONNECTIONS,
    check_connection,
    connection_options,
)
from appsdk_operator.apiserver._registry.request_options import (
    delete_options,
    wants_state,
    write_origin,
)
from appsdk_operator.apiserver._registry.scale import ScaleAdmission, ScaleOwners
from appsdk_operator.apiserver._registry.subresource_bodies import (
    SCALE,
    TOKEN_REQUEST,
    BodyKind,
)
from appsdk_operator.apiserver._registry.write_requests import AdmissionAttributes, Change, Origin
from appsdk_operator.apiserver._registry.writes import (
    DeleteOptions,
    WriteOptions,
    WriteResult,
    precondition_failed,
)
from appsdk_operator.apiserver._storage import conversion, lists
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import HistoryGoneError, Record
from appsdk_operator.apiserver._storage.watch import Watch, Wire, error_event
from appsdk_operator.apiserver._values.status import (
    StatusError,
    bad_request,
    method_not_allowed,
    name_missing,
    not_found,
    unsupported_media_type,
)

_REVIEWS: Final = ("authentication.k8s.io", "authorization.k8s.io")
# Reviews that are answered without managedFields.
_UNOWNED: Final = ("SelfSubjectReview", "SelfSubjectRulesReview")


@final
class ResourceHandler:
    """Handles requests for resources."""

    def __init__(
        self,
        core: Core,
        *,
        streaming_lists: bool,
        access: AccessControl | None = None,
    ) -> None:
        """Requests work on ``core``; ``streaming_lists`` enables the watch-list feature.

        Without ``access`` everything is allowed.
        """
        self._core = core
        self._access = access or AccessControl(core)
        self._streaming_lists = streaming_lists

    async def answer(self, request: ResourceRequest) -> ResourceResponse:
        """Carry out any verb but watch; this waits only for webhooks.

        Raises:
            StatusError: the request fails.
        """
        route = request.route
        if route.subresource:
            return await self._subresource(request)
        match request.verb:
            case "get":
                version = lists.parse_version(request.query.get("resourceVersion") or "0")
                lists.check_not_ahead(self._core.storage, version)
                record = stale_reads.stale_record(request) or self._core.writer.get(request.target)
                await conversion.reconvert_record(request.served, record)
                return ResourceResponse(200, request.representation.stored(request.served, record))
            case "list":
                return await self._list(request)
            case "create":
                return await self._create(request)
            case "update":
                return await self._update(request)
            case "patch":
                return await self._patch(request)
            case "delete":
                return await self._delete(request)
            case "deletecollection":
                return await self._delete_collection(request)
            case _:
                raise method_not_allowed()

    # -- reads -------------------------------------------------------------------------------

    async def _list(self, request: ResourceRequest) -> ResourceResponse:
        query = stale_reads.stale_query(request.query, request.cache_revision)
        selection = bodies.selection(query, request.served, request.route.namespace)
        options = _list_options(query)
        page = await lists.list_page(self._core.storage, request.served, selection, options)
        await conversion.convert_records(request.served, page.records)
        return ResourceResponse(
            200, request.representation.list(request.served, page.records, _list_metadata(page))
        )

    def watch(self, request: ResourceRequest, wire: Wire) -> Watch | bytes:
        """The watch to run, or the single ERROR event of a watch that ends at once.

        Raises:
            StatusError: 400, 422 or 504, before anything is sent.
        """
        query, storage = request.query, self._core.storage
        streaming = wants_state(query, streaming_lists=self._streaming_lists)
        selection = bodies.selection(query, request.served, request.route.namespace)
        version = query.get("resourceVersion", "")
        hub = self._core.hub
        if hub is None:
            raise StatusError(503, "the server is shutting down")
        position = lists.parse_version(version) if version else 0
        if streaming:
            lists.check_not_ahead(storage, position)
        collection = request.served.resource.collection
        initial: list[Record] | None = None
        # The initial state is the present one, which is at least as new as the requested version.
        if streaming or (not position and "sendInitialEvents" not in query):
            at = storage.revision
            # A streaming list without a version asks for the newest state.
            if request.cache_revision is not None and (version or not streaming):
                at = max(request.cache_revision, position)
            past = at if at < storage.revision else None
            initial = list(collection.scan(selection.prefix, at=past))
            position = at
        elif not position:
            position = storage.revision
        try:
            collection.since(position)
        except HistoryGoneError:
            message = f"too old resource version: {position} ({storage.revision})"
            return error_event(StatusError(410, message))
        return Watch(
            hub=hub,
            served=request.served,
            selection=selection,
            representation=request.representation,
            wire=wire,
            position=position,
            bookmarks=bodies.flag(query, "allowWatchBookmarks"),
            initial=initial,
            ends_initial=streaming and bodies.flag(query, "allowWatchBookmarks"),
        )

    # -- writes ------------------------------------------------------------------------------

    async def _create(self, request: ResourceRequest) -> ResourceResponse:
        body = bodies.as_json(request.body, request.content_type)
        # The real server accepts the name of a custom resource in the path of a create.
        if request.route.name and not request.served.resource.strategy.custom:
            raise method_not_allowed()
        if request.served.resource.namespaced and not request.route.namespace:
            raise _no_such_method(request.served)
        served = request.served
        obj, options = _written(request, body, "CreateOptions")
        if served.resource.group in _REVIEWS:
            obj = await self._admit(request, obj)
            if options.manager and served.resource.kind not in _UNOWNED:
                obj.setdefault("metadata", {})
                await self._core.writer.fields.of(served).updated(None, obj, options.manager)
            reviewed = self._access.reviews.answer(obj, request.user, request.route.namespace)
            return self._write_response(request, reviewed)
        self._access.check_grant(request.user, request.target, obj)
        options = attrs.evolve(options, origin=_origin(request))
        result = await self._core.writer.create(request.target, obj, options)
        self._access.note_creation(request.user, request.target, result.obj["metadata"]["name"])
        return self._write_response(request, result)

    async def _update(self, request: ResourceRequest) -> ResourceResponse:
        _check_named(request)
        body = bodies.as_json(request.body, request.content_type)
        obj, options = _written(request, body, "UpdateOptions")
        _check_name_given(obj, request.route.name)
        options = attrs.evolve(options, origin=_origin(request))
        wanted = msgspec.json.encode(obj)

        async def change(_old: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = msgspec.json.decode(wanted)
            return found

        result = await self._core.writer.update(
            request.target,
            self._guarded(request, change),
            options,
            subresource=request.route.subresource,
        )
        return self._write_response(request, result)

    async def _patch(self, request: ResourceRequest) -> ResourceResponse:
        _check_named(request)
        _check_patch_type(request)
        if request.content_type == APPLY_PATCH:
            return await self._apply(request)
        options = bodies.write_options(request.query, "PatchOptions", request.user_agent)
        options = attrs.evolve(options, origin=_origin(request))
        served = request.served

        async def change(old: dict[str, Any]) -> dict[str, Any]:
            new = patching.apply(request.content_type, request.body, old, served)
            validation = options.field_validation
            new, warnings = patching.decode_patched(
                request.content_type, request.body, new, served, validation
            )
            request.warnings.extend(warnings)
            _check_name_given(new, request.route.name)
            return new

        result = await self._core.writer.update(
            request.target,
            self._guarded(request, change),
            options,
            subresource=request.route.subresource,
            patch=True,
        )
        return self._write_response(request, result)

    async def _apply(self, request: ResourceRequest) -> ResourceResponse:
        def check_new(obj: dict[str, Any]) -> None:
            self._access.check_create(request.user, request.target)
            self._access.check_grant(request.user, request.target, obj)

        options = bodies.write_options(
            request.query, "PatchOptions", request.user_agent, applies=True
        )
        result = await apply.apply(
            self._core.writer,
            request.target,
            request.body,
            attrs.evolve(options, origin=_origin(request)),
            force=bodies.flag(request.query, "force"),
            subresource=request.route.subresource,
            guarded=lambda change: self._guarded(request, change),
            check_new=check_new,
        )
        return self._write_response(request, result)

    def _guarded(self, request: ResourceRequest, change: Change) -> Change:
        part = request.route.subresource
        return self._access.guarded(request.user, request.target, change, part)

    def _write_response(self, request: ResourceRequest, result: WriteResult) -> ResourceResponse:
        return ResourceResponse(
            result.status, request.representation.one(request.served, result.obj)
        )

    async def _delete(self, request: ResourceRequest) -> ResourceResponse:
        options = self._delete_options(request)
        result = await self._core.writer.delete(request.target, options)
        resource = request.served.resource
        if not result.deleted or resource.strategy.returns_deleted:
            return self._write_response(request, result)
        return ResourceResponse(200, subresources.deletion_status(resource, result.obj))

    async def _delete_collection(self, request: ResourceRequest) -> ResourceResponse:
        resource = request.served.resource
        if resource.namespaced and not request.route.namespace:
            raise _no_such_method(request.served)
        options = attrs.evolve(self._delete_options(request), one_of_many=True)
        selection = bodies.selection(request.query, request.served, request.route.namespace)
        page = await lists.list_page(
            self._core.storage, request.served, selection, _list_options(request.query)
        )
        await conversion.convert_records(request.served, page.records)
        for record in page.records:
            target = attrs.evolve(request.target, name=record.name)
            try:
                await self._core.writer.delete(target, options)
            except StatusError as error:
                if error.code != 404:
                    raise
        return ResourceResponse(
            200, request.representation.list(request.served, page.records, _list_metadata(page))
        )

    @staticmethod
    def _delete_options(request: ResourceRequest) -> DeleteOptions:
        return delete_options(request.user, request.query, request.body, request.warnings)

    async def _admit(
        self, request: ResourceRequest, obj: dict[str, Any], operation: str = "CREATE"
    ) -> dict[str, Any]:
        """Run admission for an object that is sent and not stored."""
        attributes = AdmissionAttributes(
            operation=operation,
            target=request.target,
            subresource=request.route.subresource,
            obj=obj,
            options=WriteOptions(
                dry_run=bodies.flag(request.query, "dryRun"),
                origin=_origin(request),
            ),
        )
        admission = self._core.writer.admission
        obj = await admission.mutate(attributes)
        await admission.validate(attrs.evolve(attributes, obj=obj))
        return obj

    # -- subresources ------------------------------------------------------------------------

    async def _subresource(self, request: ResourceRequest) -> ResourceResponse:
        name = request.route.subresource
        resource = request.served.resource
        if name not in request.served.subresources:
            if resource.strategy.custom:
                raise not_found(resource.plural, resource.group, request.route.name)
            raise StatusError(404, "the server could not find the requested resource", details={})
        if name == "scale":
            return await self._scale(request)
        if name in CONNECTIONS:
            await self._connect(request)
        if name == "token" and request.verb == "create":
            return await self._token(request)
        if name in ("status", "finalize", "approval", "ephemeralcontainers", "resize"):
            match request.verb:
                case "get":
                    record = self._core.writer.get(request.target)
                    await conversion.reconvert_record(request.served, record)
                    return ResourceResponse(
                        200, request.representation.stored(request.served, record)
                    )
                case "update":
                    return await self._update(request)
                case "patch":
                    return await self._patch(request)
                case _:
                    raise unsupported_verb(resource, request.verb)
        if request.verb != "create" or name not in subresources.ACTIONS:
            raise method_not_allowed()
        options = bodies.write_options(request.query, "CreateOptions", request.user_agent)
        obj = _decode_body(request, subresources.ACTIONS[name], options)
        obj = subresources.with_namespace(obj, request.target)
        obj = await self._admit(request, obj)
        budgets = self._core.catalog.find("policy", "v1", "poddisruptionbudgets")
        done = await subresources.action(
            self._core.writer, request.target, name, obj, options, budgets
        )
        return ResourceResponse(201, done)

    async def _connect(self, request: ResourceRequest) -> NoReturn:
        if request.verb not in ("create", "get"):
            raise method_not_allowed()
        options = connection_options(request.route.subresource, request.query)
        options = await self._admit(request, options, "CONNECT")
        if request.verb == "get":
            # A WebSocket begins with a GET, and does what a POST does.
            self._access.check_create(request.user, request.target, request.route.subresource)
        pod = self._core.writer.get(request.target).decode()
        check_connection(pod, options, self._core.storage.collection("nodes"))

    async def _token(self, request: ResourceRequest) -> ResourceResponse:
        options = bodies.write_options(request.query, "CreateOptions", request.user_agent)
        review = await self._admit(request, _decode_body(request, TOKEN_REQUEST, options))
        route = request.route
        made = self._core.service_account_tokens.request(route.namespace, route.name, review)
        return ResourceResponse(201, request.representation.one(request.served, made))

    async def _scale(self, request: ResourceRequest) -> ResourceResponse:
        writer = self._core.writer
        paths = subresources.scale_paths(request.served)
        if request.verb == "get":
            obj = await conversion.read_record(request.served, writer.get(request.target))
            return ResourceResponse(
                200, request.representation.one(request.served, subresources.scale_of(obj, paths))
            )
        if request.verb not in ("update", "patch"):
            raise method_not_allowed()
        if request.verb == "patch":
            _check_patch_type(request)
        applies = request.verb == "patch" and request.content_type == APPLY_PATCH
        kind = "PatchOptions" if request.verb == "patch" else "UpdateOptions"
        options = bodies.write_options(request.query, kind, request.user_agent, applies=applies)
        manager = options.manager or ""

        sent: dict[str, Any] = {}
        if request.verb == "update":
            try:
                sent = _decode_body(request, SCALE, options)
            except StatusError as error:
                if request.served.resource.strategy.custom and error.code == 400:
                    # The real server fails to encode its own error here.
                    why = 'no kind is registered for the type v1.Scale in scheme "'
                    raise bad_request(f'{why}pkg/runtime/scheme.go:111"') from None
                raise

        async def change(old: dict[str, Any]) -> dict[str, Any]:
            before = subresources.scale_of(old, paths, strict=False)
            owners = ScaleOwners(writer.fields, request.served, old)
            if applies:
                config, _ = apply.configuration(request.body)
                force = bodies.flag(request.query, "force")
                scale = await owners.applied(before, config, manager, force=force)
            else:
                wanted: Any
                if request.verb == "patch":
                    wanted = patching.apply(
                        request.content_type, request.body, before, request.served
                    )
                else:
                    wanted = sent
                    uid, found = wanted.get("metadata", {}).get("uid"), old["metadata"]["uid"]
                    if uid and uid != found:
                        raise precondition_failed(request.target, "UID", uid, found)
                scale = await owners.updated(before, wanted, manager)
            new = subresources.apply_scale(
                old, scale, paths, request.served.resource, request.route.name
            )
            owners.write_managed_fields(new, scale)
            return new

        options = attrs.evolve(options, origin=_origin(request), manager=None)
        admission = ScaleAdmission(writer.admission, paths)
        result = await writer.update(
            request.target, change, options, patch=True, admission=admission
        )
        scale = subresources.scale_of(result.obj, paths)
        return ResourceResponse(200, request.representation.one(request.served, scale))


def _decode_body(
    request: ResourceRequest, wanted: BodyKind, options: WriteOptions
) -> dict[str, Any]:
    """Decode the body of a request to a subresource."""
    body = bodies.as_json(request.body, request.content_type)
    obj, warnings = subresource_bodies.read(body, wanted, options.field_validation)
    request.warnings.extend(warnings)
    return obj


def _written(
    request: ResourceRequest, body: bytes, kind: str
) -> tuple[dict[str, Any], WriteOptions]:
    """The object of a create or update, and its options of that kind."""
    options = bodies.write_options(request.query, kind, request.user_agent)
    served = request.served
    obj, warnings = bodies.decode_object(
        body,
        served,
        expected=(served.api_version, served.resource.kind),
        validation=options.field_validation,
    )
    request.warnings.extend(warnings)
    return obj, options


def _origin(request: ResourceRequest) -> Origin:
    return write_origin(request.user, request.query, request.warnings)


def _list_options(query: Mapping[str, str]) -> lists.ListOptions:
    return lists.ListOptions(
        limit=max(0, bodies.number(query, "limit")),
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        is_stream="sendInitialEvents" in query,
    )


def _list_metadata(page: lists.Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def _check_named(request: ResourceRequest) -> None:
    if not request.route.name:
        if request.served.resource.strategy.custom and request.route.namespace:
            raise bad_request("name must be provided")
        raise _no_such_method(request.served)


def _check_name_given(obj: dict[str, Any], name: str) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise name_missing(name)


def _no_such_method(served: ServedVersion) -> Exception:
    """The error for a verb that a path does not support."""
    return PageNotFoundError() if served.resource.strategy.custom else method_not_allowed()


def _check_patch_type(request: ResourceRequest) -> None:
    accepted = [patching.JSON_PATCH, patching.MERGE_PATCH, APPLY_PATCH]
    if not request.served.resource.strategy.custom:
        accepted.insert(2, patching.STRATEGIC_PATCH)
    if request.content_type not in accepted:
        raise unsupported_media_type(accepted)
