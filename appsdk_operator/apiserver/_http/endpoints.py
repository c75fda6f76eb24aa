"""The verbs: from a request that is understood to the bytes of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.apiserver._builtin import protobuf
from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._http import stale
from appsdk_operator.apiserver._http.access import Access
from appsdk_operator.apiserver._http.requests import Answer, Call
from appsdk_operator.apiserver._http.routing_errors import NoPageError
from appsdk_operator.apiserver._registry import (
    apply,
    bodies,
    origins,
    patching,
    subresource_bodies,
    subresources,
)
from appsdk_operator.apiserver._registry.apply import APPLY_PATCH
from appsdk_operator.apiserver._registry.delete_options import delete_options
from appsdk_operator.apiserver._registry.scale_gate import ScaleGate
from appsdk_operator.apiserver._registry.scale_owners import ScaleOwners
from appsdk_operator.apiserver._registry.subresource_bodies import (
    SCALE,
    TOKEN_REQUEST,
    BodyKind,
)
from appsdk_operator.apiserver._registry.watch_options import wants_state
from appsdk_operator.apiserver._registry.write_requests import Attempt, Origin
from appsdk_operator.apiserver._registry.writes import (
    DeleteOptions,
    Outcome,
    WriteOptions,
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
    not_found,
    unsupported_media_type,
)

__all__ = ["Answer", "Call", "Endpoints"]

_REVIEWS: Final = ("authentication.k8s.io", "authorization.k8s.io")
# Reviews whose answers do not tell who owns their fields.
_UNOWNED: Final = ("SelfSubjectReview", "SelfSubjectRulesReview")


@final
class Endpoints:
    """Answers the calls for resources."""

    def __init__(
        self,
        core: Core,
        *,
        streaming_lists: bool,
        access: Access | None = None,
    ) -> None:
        """Calls work on ``core``; without ``streaming_lists`` as servers that lack them.

        Without ``access`` nobody is asked who it is.
        """
        self._core = core
        self._access = access or Access(core)
        self._streaming_lists = streaming_lists

    async def answer(self, call: Call) -> Answer:
        """Carry out any verb but watch; this waits for nobody but webhooks.

        Raises:
            StatusError: it cannot be done.
        """
        route = call.route
        if route.subresource:
            return await self._subresource(call)
        match call.verb:
            case "get":
                lists.parse_version(call.query.get("resourceVersion") or "0")
                record = stale.stale_record(call) or self._core.writer.get(call.target)
                await conversion.reconvert_record(call.served, record)
                return Answer(200, call.form.stored(call.served, record))
            case "list":
                return await self._list(call)
            case "create":
                return await self._create(call)
            case "update":
                return await self._update(call)
            case "patch":
                return await self._patch(call)
            case "delete":
                return await self._delete(call)
            case "deletecollection":
                return await self._delete_collection(call)
            case _:
                raise method_not_allowed()

    # -- reads -------------------------------------------------------------------------------

    async def _list(self, call: Call) -> Answer:
        query = stale.stale_query(call.query, call.at)
        selection = bodies.selection(query, call.served, call.route.namespace)
        options = _list_options(query)
        page = lists.list_page(self._core.storage, call.served, selection, options)
        try:
            await conversion.convert_records(call.served, page.records)
        except StatusError as error:
            # The real server lists from a cache, which cannot be filled.
            what = f"{call.served.api_version}, Kind={call.served.resource.kind}"
            why = f"storage is (re)initializing: failed to list {what}: {error.message}"
            raise StatusError(429, why, retry_after=1) from None
        return Answer(200, call.form.list(call.served, page.records, _list_metadata(page)))

    def watch(self, call: Call, wire: Wire) -> Watch | bytes:
        """The watch to run, or the bytes of the one event that ends it at once.

        Raises:
            StatusError: 400, 422 or 504, before anything is sent.
        """
        query, storage = call.query, self._core.storage
        streaming = wants_state(query, streaming_lists=self._streaming_lists)
        selection = bodies.selection(query, call.served, call.route.namespace)
        version = query.get("resourceVersion", "")
        hub = self._core.hub
        if hub is None:
            raise StatusError(503, "the server is shutting down")
        position = lists.parse_version(version) if version else 0
        if streaming:
            lists.check_not_ahead(storage, position)
        collection = call.served.resource.collection
        initial: list[Record] | None = None
        # A stream of the initial state begins now, which is not older than any version asked for.
        if streaming or (not position and "sendInitialEvents" not in query):
            wanted = selection.filter()
            at = storage.revision
            # Who streams the state without a version asks for the newest.
            if call.at is not None and (version or not streaming):
                at = max(call.at, position)
            past = at if at < storage.revision else None
            records = collection.scan(selection.prefix, at=past)
            initial = list(records if wanted is None else filter(wanted, records))
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
            served=call.served,
            selection=selection,
            form=call.form,
            wire=wire,
            position=position,
            bookmarks=bodies.flag(query, "allowWatchBookmarks"),
            initial=initial,
            ends_initial=streaming and bodies.flag(query, "allowWatchBookmarks"),
        )

    # -- writes ------------------------------------------------------------------------------

    async def _create(self, call: Call) -> Answer:
        body = bodies.as_json(call.body, call.content_type)
        # The real server takes the name of a custom resource in the path, if only there.
        if call.route.name and not call.served.resource.strategy.custom:
            raise method_not_allowed()
        if call.served.resource.namespaced and not call.route.namespace:
            raise _no_such_method(call.served)
        options = bodies.write_options(call.query, "CreateOptions", call.user_agent)
        served = call.served
        obj, told = bodies.decode_object(
            body,
            served,
            expected=(served.api_version, served.resource.kind),
            validation=options.field_validation,
        )
        call.warnings.extend(told)
        if served.resource.group in _REVIEWS:
            obj = await self._admitted(call, obj)
            if options.manager and served.resource.kind not in _UNOWNED:
                obj.setdefault("metadata", {})
                self._core.writer.fields.of(served).updated(None, obj, options.manager)
            reviewed = self._access.reviews.answer(obj, call.user, call.route.namespace)
            return self._made(call, reviewed)
        self._access.check_grant(call.user, call.target, obj)
        options = attrs.evolve(options, origin=_origin(call))
        outcome = await self._core.writer.create(call.target, obj, options)
        return self._made(call, outcome)

    async def _update(self, call: Call) -> Answer:
        _check_named(call)
        body = bodies.as_json(call.body, call.content_type)
        options = bodies.write_options(call.query, "UpdateOptions", call.user_agent)
        served = call.served
        obj, told = bodies.decode_object(
            body,
            served,
            expected=(served.api_version, served.resource.kind),
            validation=options.field_validation,
        )
        call.warnings.extend(told)
        _check_name_given(obj, call.route.name)
        options = attrs.evolve(options, origin=_origin(call))
        wanted = msgspec.json.encode(obj)
        outcome = await self._core.writer.update(
            call.target,
            self._access.guarded(call.user, call.target, lambda _old: msgspec.json.decode(wanted)),
            options,
            subresource=call.route.subresource,
        )
        return self._made(call, outcome)

    async def _patch(self, call: Call) -> Answer:
        _check_named(call)
        _check_patch_type(call)
        if call.content_type == APPLY_PATCH:
            return await self._apply(call)
        options = bodies.write_options(call.query, "PatchOptions", call.user_agent)
        options = attrs.evolve(options, origin=_origin(call))
        served = call.served

        def change(old: dict[str, Any]) -> dict[str, Any]:
            new = patching.apply(call.content_type, call.body, old, served)
            validation = options.field_validation
            new, told = patching.fitted(call.content_type, call.body, new, served, validation)
            call.warnings.extend(told)
            _check_name_given(new, call.route.name)
            return new

        outcome = await self._core.writer.update(
            call.target,
            self._access.guarded(call.user, call.target, change),
            options,
            subresource=call.route.subresource,
            patch=True,
        )
        return self._made(call, outcome)

    async def _apply(self, call: Call) -> Answer:
        def check_new(obj: dict[str, Any]) -> None:
            self._access.check_create(call.user, call.target)
            self._access.check_grant(call.user, call.target, obj)

        options = bodies.write_options(call.query, "PatchOptions", call.user_agent, applies=True)
        outcome = await apply.apply(
            self._core.writer,
            call.target,
            call.body,
            attrs.evolve(options, origin=_origin(call)),
            force=bodies.flag(call.query, "force"),
            subresource=call.route.subresource,
            guarded=lambda change: self._access.guarded(call.user, call.target, change),
            check_new=check_new,
        )
        return self._made(call, outcome)

    def _made(self, call: Call, outcome: Outcome) -> Answer:
        return Answer(outcome.status, call.form.one(call.served, outcome.obj))

    async def _delete(self, call: Call) -> Answer:
        options = self._delete_options(call)
        outcome = await self._core.writer.delete(call.target, options)
        resource = call.served.resource
        if not outcome.deleted or resource.strategy.returns_deleted:
            return self._made(call, outcome)
        return Answer(200, subresources.success(resource, outcome.obj))

    async def _delete_collection(self, call: Call) -> Answer:
        resource = call.served.resource
        if (resource.namespaced and not call.route.namespace) or (
            # Namespaces go one by one.
            resource.qualified_name == "namespaces"
        ):
            raise _no_such_method(call.served)
        options = attrs.evolve(self._delete_options(call), one_of_many=True)
        selection = bodies.selection(call.query, call.served, call.route.namespace)
        page = lists.list_page(
            self._core.storage, call.served, selection, _list_options(call.query)
        )
        for record in page.records:
            target = attrs.evolve(call.target, name=record.name)
            try:
                await self._core.writer.delete(target, options)
            except StatusError as error:
                if error.code != 404:
                    raise
        await conversion.convert_records(call.served, page.records)
        return Answer(200, call.form.list(call.served, page.records, _list_metadata(page)))

    @staticmethod
    def _delete_options(call: Call) -> DeleteOptions:
        body = call.body
        if protobuf.is_encoded(body):
            body = bodies.as_json(body, protobuf.MEDIA_TYPE)
        options = delete_options(call.query, body)
        origin = origins.deleting(call.user, call.query, body, call.warnings)
        return attrs.evolve(options, origin=origin)

    async def _admitted(self, call: Call, obj: dict[str, Any]) -> dict[str, Any]:
        """What is posted and not stored, as those at the gate let it pass."""
        attempt = Attempt(
            operation="CREATE",
            target=call.target,
            subresource=call.route.subresource,
            obj=obj,
            options=WriteOptions(
                dry_run=bodies.flag(call.query, "dryRun"),
                origin=_origin(call),
            ),
        )
        gate = self._core.writer.gate
        obj = await gate.mutate(attempt)
        await gate.validate(attrs.evolve(attempt, obj=obj))
        return obj

    # -- subresources ------------------------------------------------------------------------

    async def _subresource(self, call: Call) -> Answer:
        name = call.route.subresource
        resource = call.served.resource
        if name not in call.served.subresources:
            if resource.strategy.custom:
                raise not_found(resource.plural, resource.group, call.route.name)
            raise StatusError(404, "the server could not find the requested resource", details={})
        if name == "scale":
            return await self._scale(call)
        if name == "token" and call.verb == "create":
            return self._token(call)
        if name in ("status", "finalize", "approval", "ephemeralcontainers", "resize"):
            match call.verb:
                case "get":
                    record = self._core.writer.get(call.target)
                    await conversion.reconvert_record(call.served, record)
                    return Answer(200, call.form.stored(call.served, record))
                case "update":
                    return await self._update(call)
                case "patch":
                    return await self._patch(call)
                case _:
                    raise _no_such_verb(call)
        if call.verb != "create" or name not in subresources.ACTIONS:
            raise method_not_allowed()
        options = bodies.write_options(call.query, "CreateOptions", call.user_agent)
        obj = _sent(call, subresources.ACTIONS[name], options)
        obj = subresources.completed(obj, call.target)
        obj = await self._admitted(call, obj)
        done = await subresources.action(self._core.writer, call.target, name, obj, options)
        return Answer(201, done)

    def _token(self, call: Call) -> Answer:
        options = bodies.write_options(call.query, "CreateOptions", call.user_agent)
        review = _sent(call, TOKEN_REQUEST, options)
        route = call.route
        made = self._core.accounts.request(route.namespace, route.name, review)
        return Answer(201, call.form.one(call.served, made))

    async def _scale(self, call: Call) -> Answer:
        writer = self._core.writer
        paths = subresources.scale_paths(call.served)
        if call.verb == "get":
            obj = await conversion.read_record(call.served, writer.get(call.target))
            return Answer(200, call.form.one(call.served, subresources.scale_of(obj, paths)))
        if call.verb not in ("update", "patch"):
            raise method_not_allowed()
        if call.verb == "patch":
            _check_patch_type(call)
        applies = call.verb == "patch" and call.content_type == APPLY_PATCH
        kind = "PatchOptions" if call.verb == "patch" else "UpdateOptions"
        options = bodies.write_options(call.query, kind, call.user_agent, applies=applies)
        manager = options.manager or ""

        sent: dict[str, Any] = {}
        if call.verb == "update":
            try:
                sent = _sent(call, SCALE, options)
            except StatusError as error:
                if call.served.resource.strategy.custom and error.code == 400:
                    # The real server's error fails, too.
                    why = 'no kind is registered for the type v1.Scale in scheme "'
                    raise bad_request(f'{why}pkg/runtime/scheme.go:111"') from None
                raise

        def change(old: dict[str, Any]) -> dict[str, Any]:
            before = subresources.scale_of(old, paths, strict=False)
            owners = ScaleOwners(writer.fields, call.served, old)
            if applies:
                config, _ = apply.configuration(call.body)
                force = bodies.flag(call.query, "force")
                scale = owners.applied(before, config, manager, force=force)
            else:
                wanted: Any
                if call.verb == "patch":
                    wanted = patching.apply(call.content_type, call.body, before, call.served)
                else:
                    wanted = sent
                    uid, found = wanted.get("metadata", {}).get("uid"), old["metadata"]["uid"]
                    if uid and uid != found:
                        raise precondition_failed(call.target, "UID", uid, found)
                scale = owners.updated(before, wanted, manager)
            new = subresources.scaled(old, scale, paths, call.served.resource, call.route.name)
            owners.tell(new, scale)
            return new

        options = attrs.evolve(options, origin=_origin(call), manager=None)
        gate = ScaleGate(writer.gate, paths)
        outcome = await writer.update(call.target, change, options, patch=True, gate=gate)
        scale = subresources.scale_of(outcome.obj, paths)
        return Answer(200, call.form.one(call.served, scale))


def _sent(call: Call, wanted: BodyKind, options: WriteOptions) -> dict[str, Any]:
    """What was sent to a subresource."""
    body = bodies.as_json(call.body, call.content_type)
    obj, told = subresource_bodies.read(body, wanted, options.field_validation)
    call.warnings.extend(told)
    return obj


def _origin(call: Call) -> Origin:
    return origins.writing(call.user, call.query, call.warnings)


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


def _check_named(call: Call) -> None:
    if not call.route.name:
        if call.served.resource.strategy.custom and call.route.namespace:
            raise bad_request("name must be provided")
        raise _no_such_method(call.served)


def _check_name_given(obj: dict[str, Any], name: str) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be "
            "provided"
        )


def _no_such_verb(call: Call) -> StatusError:
    """405: a subresource does not have that verb."""
    resource = call.served.resource
    if not resource.strategy.custom:
        return method_not_allowed()
    return method_not_allowed(
        f'{call.verb} is not supported on resources of kind "{resource.qualified_name}"',
        {"group": resource.group, "kind": resource.plural},
    )


def _no_such_method(served: ServedVersion) -> Exception:
    """What is wrong with a verb on a path that has others."""
    return NoPageError() if served.resource.strategy.custom else method_not_allowed()


def _check_patch_type(call: Call) -> None:
    accepted = [patching.JSON_PATCH, patching.MERGE_PATCH, APPLY_PATCH]
    if not call.served.resource.strategy.custom:
        accepted.insert(2, patching.STRATEGIC_PATCH)
    if call.content_type not in accepted:
        raise unsupported_media_type(accepted)
