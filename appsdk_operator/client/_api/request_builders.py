"""Builders of requests and decoders of answers, for the client and its subresources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._request import JSON, Request
from appsdk_operator.client._transport.response_errors import check_status, wrong_answer
from appsdk_operator.resource import (
    PARTIAL_METADATA_KIND,
    AnyObject,
    Kind,
    ListPage,
    MutableObject,
    Object,
    Patch,
    Scope,
    check_kind,
    check_namespace_name,
    check_path_segment,
    decode_json,
    decode_list,
    encode_json,
)
from appsdk_operator.runtime.validation import check_flag

COLLECTION: Any = object()
"""In place of a name: the collection. Not None, which a caller may pass as a name by mistake."""

APPLY_CONTENT_TYPE = "application/apply-patch+yaml"
"""The one media type for server-side apply that every server knows. JSON is YAML."""


def build_request(
    kind: Kind,
    method: str,
    verb: str,
    *,
    namespace: str,
    name: str = COLLECTION,
    subresource: str = "",
    query: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    content_type: str = JSON,
    accept: str = JSON,
    answer_name: str = "",
    answer_uid: str = "",
    repeatable: bool = False,
    secret: bool = False,
    retry: bool = True,
    sent: AnyObject | None = None,
) -> Request:
    """The request for a verb on one object, or on a collection.

    Args:
        secret: whether the body is, if the kind is not.
        sent: the object that names the place, where no ``namespace=`` of the caller does.

    Raises:
        TypeError: ``kind`` is not a Kind.
        ValueError: name or namespace cannot be in a path, or do not fit the kind's scope.
    """
    check_kind(kind)
    check_namespace_name(namespace)
    if name is not COLLECTION:
        check_path_segment("name", name)
    if name is not COLLECTION or method != "GET" or namespace:
        _check_scope(kind, namespace, sent)
    return Request(
        method=method,
        path=kind.path(namespace, "" if name is COLLECTION else name, subresource),
        query=query,
        body=body,
        content_type=content_type,
        accept=accept,
        verb=verb,
        resource=f"{kind.qualified_name}/{subresource}" if subresource else kind.qualified_name,
        namespace=namespace,
        name="" if name is COLLECTION else name,
        answer_name=answer_name if name is COLLECTION else name,
        answer_uid=answer_uid,
        repeatable=repeatable,
        secret=body is not None and (secret or kind.secret),
        retry=retry,
    )


def _check_scope(kind: Kind, namespace: str, sent: AnyObject | None) -> None:
    """Refuse a namespace that does not fit the scope of its kind.

    Args:
        kind: the kind.
        namespace: what the caller gave, or what is in the object.
        sent: the object that the namespace is from; None: the caller has an option for it.

    Raises:
        ValueError: the namespace is missing, or the kind has none.
    """
    if kind.is_namespaced and not namespace:
        remedy = (
            "give namespace=…"
            if sent is None
            else f"set metadata.namespace of {sent.name or 'the object'}"
        )
        raise ValueError(
            f"{kind.qualified_name} live in namespaces: {remedy}, or use a NamespacedClient"
        )
    if namespace and not kind.is_namespaced:
        place = (
            f"namespace {namespace!r} was given"
            if sent is None
            else f"{sent.name or 'the object'} has metadata.namespace {namespace!r}"
        )
        raise ValueError(
            f"{kind.qualified_name} are cluster-scoped, but {place}: leave it out, or declare the "
            "kind with scope=Scope.NAMESPACED"
        )


def check_object(obj: object) -> None:
    """Refuse anything but objects of the kit: others have no kind.

    Raises:
        TypeError: it is not one; the text says how to make one.
    """
    if not isinstance(obj, (Object, MutableObject)):
        wrap = "MutableObject(kind, {…}), or " if isinstance(obj, Mapping) else ""
        raise TypeError(
            f"a {type(obj).__name__} is not an object: give {wrap}MutableObject.new(kind, name, …)"
        )


def check_patch(patch: object) -> None:
    """Refuse patches without a media type.

    Raises:
        TypeError: it is not one; the text says how to make one.
    """
    if not hasattr(patch, "content_type"):
        kind = "JsonPatch([…])" if isinstance(patch, Sequence) else "MergePatch({…})"
        raise TypeError(
            f"a {type(patch).__name__} is not a patch: servers know several kinds, so give {kind}"
        )


def encode_object(obj: AnyObject, verb: str) -> bytes:
    """An object as the body of a request.

    Raises:
        ValueError: it holds metadata only, so that the server would drop the rest.
    """
    if obj.get("kind") == PARTIAL_METADATA_KIND:
        hint = ": read it whole first" if verb == "create" else ", did you mean to patch?"
        raise ValueError(f"{obj}: cannot {verb} using only metadata{hint}")
    if isinstance(obj, MutableObject):
        return obj.freeze().raw
    # Items of a list have neither apiVersion nor kind, but a body needs both.
    return obj.raw if "kind" in obj and "apiVersion" in obj else encode_json(obj.to_dict())


def accept_header(kind: str, *, metadata_only: bool) -> str:
    """The ``Accept`` header of a read, which may ask for the metadata form ``kind``."""
    check_flag("metadata_only", metadata_only)
    return f"{JSON};as={kind};g=meta.k8s.io;v=v1,{JSON}" if metadata_only else JSON


def create_request(
    obj: AnyObject,
    *,
    query: Sequence[tuple[str, str]],
) -> Request:
    """The request that creates an object."""
    check_object(obj)
    return build_request(
        obj.kind,
        "POST",
        "create",
        namespace=obj.namespace,
        sent=obj,
        query=query,
        body=encode_object(obj, "create"),
        answer_name=obj.name,
    )


def update_request(
    obj: AnyObject,
    *,
    parent: Kind | None = None,
    subresource: str = "",
    query: Sequence[tuple[str, str]],
) -> Request:
    """The request that replaces an object, or a subresource of it."""
    check_object(obj)
    return build_request(
        parent_kind(obj, parent),
        "PUT",
        "update",
        subresource=subresource,
        namespace=obj.namespace,
        sent=obj,
        name=required_name(obj),
        query=query,
        body=encode_object(obj, "update"),
        answer_uid=uid_of(obj),
        secret=obj.kind.secret,
        # With a resource version the server refuses the second of two equal updates.
        repeatable=bool(obj.resource_version),
    )


def _renamed_body(patch: Patch, kind: Kind) -> bytes:
    # Imported here: not on the way of each patch, as most kinds rename nothing.
    from appsdk_operator.resource import patch_body

    return patch_body(patch, kind)


def patch_request(
    kind: Kind,
    name: str,
    patch: Patch,
    *,
    subresource: str = "",
    namespace: str,
    query: Sequence[tuple[str, str]],
) -> Request:
    """The request that patches an object, or a subresource of it."""
    check_patch(patch)
    check_kind(kind)
    return build_request(
        kind,
        "PATCH",
        "patch",
        subresource=subresource,
        namespace=namespace,
        name=name,
        query=query,
        body=patch.body() if kind.rename is None else _renamed_body(patch, kind),
        content_type=patch.content_type,
        repeatable=patch.is_guarded,
    )


def apply_request(
    obj: AnyObject,
    *,
    parent: Kind | None = None,
    subresource: str = "",
    query: Sequence[tuple[str, str]],
) -> Request:
    """The request for a server-side apply of an object, or to a subresource of it."""
    return build_request(
        parent_kind(obj, parent),
        "PATCH",
        "patch",
        subresource=subresource,
        namespace=obj.namespace,
        sent=obj,
        name=required_name(obj),
        query=query,
        body=encode_object(obj, "apply"),
        answer_uid=uid_of(obj),
        secret=obj.kind.secret,
        content_type=APPLY_CONTENT_TYPE,
        repeatable=True,
    )


def parent_kind(obj: AnyObject, parent: Kind | None) -> Kind:
    """The kind in the request's path: ``parent``, else the kind of the object."""
    return obj.kind if parent is None else check_kind(parent, "parent")


def required_name(obj: AnyObject) -> str:
    """The name of an object.

    Raises:
        ValueError: it has none.
    """
    if not obj.name:
        raise ValueError(f"{obj!r} has no name: set metadata.name")
    return obj.name


def uid_of(obj: AnyObject) -> str:
    """The uid in an object's metadata; empty if absent."""
    if isinstance(obj, Object):
        return obj.uid
    metadata = obj.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) else ""


def decode_answer(
    request: Request, kind: Kind[SpecT, StatusT], body: bytes
) -> Object[SpecT, StatusT]:
    """The object in an answer.

    Raises:
        DecodeError: the answer is not an object of this kind.
        WrongAnswer: it is another object than the requested one.
    """
    return _checked_identity(request, Object.from_json(kind, body))


def decode_delete_answer(
    request: Request, kind: Kind[SpecT, StatusT], body: bytes
) -> Object[SpecT, StatusT] | None:
    """The object in the answer to a delete; None for a Status."""
    answer = decode_json(body) if body else None
    if not isinstance(answer, dict) or answer.get("kind") == "Status":
        if isinstance(answer, dict):
            check_status(request, answer)
        return None
    return decode_answer(request, kind, body)


def decode_page(
    request: Request, kind: Kind[SpecT, StatusT], body: bytes
) -> ListPage[SpecT, StatusT]:
    """The page in the answer to a list.

    Raises:
        DecodeError: the answer is not a list of this kind.
        WrongAnswer: its objects are in another namespace.
    """
    page = decode_list(kind, body)
    if request.namespace and page.items:
        # The first object shows the namespace of the page.
        _checked_identity(request, page.items[0])
    return page


def decode_answer_of_any_kind(
    request: Request, kind: Kind[SpecT, StatusT], body: bytes
) -> Object[SpecT, StatusT]:
    """The object in a subresource's answer, which may have another kind than the parent."""
    answer: Any = decode_json(body)
    name = answer.get("kind", "") if isinstance(answer, dict) else ""
    api_version = answer.get("apiVersion", "") if isinstance(answer, dict) else ""
    if name and api_version and (name, api_version) != (kind.kind, kind.api_version):
        group, _, version = api_version.rpartition("/")
        kind = Kind(group=group, version=version, kind=name, scope=kind.scope)
        if name == "Status":
            kind = Kind(group=group, version=version, kind=name, scope=Scope.CLUSTER)
        # The uid in the request is that of the parent, or of the posted object.
        request = msgspec.structs.replace(request, answer_uid="")
    return decode_answer(request, kind, body)


def _checked_identity(request: Request, obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
    """The object, checked by name, uid and namespace as far as it has them."""
    for asked, found in ((request.answer_name, obj.name), (request.answer_uid, obj.uid)):
        if asked and found and asked != found:
            raise wrong_answer(request, _identity_text(obj))
    if obj.namespace and obj.namespace != request.namespace:
        raise wrong_answer(request, _identity_text(obj))
    return obj


def _identity_text(obj: Object[Any, Any]) -> str:
    where = f" in namespace {obj.namespace!r}" if obj.namespace else ""
    return f"{obj.name!r}{where} (uid {obj.uid or 'not given'})"
