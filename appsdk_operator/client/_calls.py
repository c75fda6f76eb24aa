"""Verbs as requests, and answers as objects: what the client and its subresources share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client._options import FieldValidation, write_query
from appsdk_operator.client._request import (
    JSON,
    Request,
    check_namespace,
    query_of,
)
from appsdk_operator.resource import (
    AnyObject,
    Kind,
    MutableObject,
    Object,
    Scope,
    decode_json,
    encode_json,
)
from appsdk_operator.resource._kind import check_kind
from appsdk_operator.resource._names import check_namespace_name, check_path_segment

__all__ = [
    "APPLY",
    "PARTIAL",
    "accepted",
    "answer_of_any_kind",
    "apply_query",
    "check_object",
    "check_patch",
    "encode_object",
    "name_of",
    "object_or_none",
    "request",
]

PARTIAL = "PartialObjectMetadata"

ALL: Any = object()
"""Instead of a name: the whole collection. Not None, which a caller may have got for a name."""

APPLY = "application/apply-patch+yaml"
"""JSON is YAML, and the only media type that every server knows for server-side apply."""


def request(
    kind: Kind,
    method: str,
    verb: str,
    *,
    namespace: str,
    name: str = ALL,
    subresource: str = "",
    query: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    content_type: str = JSON,
    accept: str = JSON,
    repeatable: bool = False,
    retry: bool = True,
) -> Request:
    """The request for a verb on one object (``name``), or on a collection (ALL).

    Raises:
        TypeError: ``kind`` is no Kind.
        ValueError: name or namespace cannot be in a path, or do not fit the kind's scope.
    """
    check_kind(kind)
    check_namespace_name(namespace)
    if name is not ALL:
        check_path_segment("name", name)
    if name is not ALL or method == "POST" or namespace:
        check_namespace(kind, namespace)
    return Request(
        method=method,
        path=kind.path(namespace, "" if name is ALL else name, subresource),
        query=query,
        body=body,
        content_type=content_type,
        accept=accept,
        verb=verb,
        resource=f"{kind.qualified_name}/{subresource}" if subresource else kind.qualified_name,
        namespace=namespace,
        name="" if name is ALL else name,
        repeatable=repeatable,
        retry=retry,
    )


def check_object(obj: object) -> None:
    """Refuse what is no object of the kit, whose kind would not be known.

    Raises:
        TypeError: the text says how to make one.
    """
    if not isinstance(obj, (Object, MutableObject)):
        wrap = "MutableObject(kind, {…}), or " if isinstance(obj, Mapping) else ""
        raise TypeError(
            f"a {type(obj).__name__} is no object: give {wrap}MutableObject.new(kind, name, …)"
        )


def check_patch(patch: object) -> None:
    """Refuse what does not say which kind of patch it is.

    Raises:
        TypeError: the text says how to make one.
    """
    if not hasattr(patch, "content_type"):
        kind = "JsonPatch([…])" if isinstance(patch, Sequence) else "MergePatch({…})"
        raise TypeError(
            f"a {type(patch).__name__} is no patch: servers know several kinds, so give {kind}"
        )


def encode_object(obj: AnyObject, verb: str) -> bytes:
    """An object as the body of a request.

    Raises:
        ValueError: only its metadata is here, so that the rest would be lost.
    """
    if obj.get("kind") == PARTIAL:
        hint = ": read it whole first" if verb == "create" else ", did you mean to patch?"
        raise ValueError(f"{obj.kind.kind} {obj.key}: cannot {verb} using only metadata{hint}")
    if isinstance(obj, MutableObject):
        return obj.freeze().raw
    # What came in a list has neither apiVersion nor kind, but a body needs both.
    return obj.raw if "kind" in obj and "apiVersion" in obj else encode_json(obj.to_dict())


def accepted(kind: str, *, metadata_only: bool) -> str:
    """The ``Accept`` header of a read: ``kind`` of metadata if the server can, else all."""
    return f"{JSON};as={kind};g=meta.k8s.io;v=v1,{JSON}" if metadata_only else JSON


def apply_query(
    field_manager: str, field_validation: FieldValidation | None, *, dry_run: bool, force: bool
) -> list[tuple[str, str]]:
    """The query parameters of a server-side apply.

    Raises:
        ValueError: there is no field manager.
    """
    if not field_manager:
        raise ValueError(
            "apply needs field_manager=…, the server keeps fields by their owner: give it, or use "
            "a FieldOwnerClient"
        )
    return [*write_query(dry_run, field_manager, field_validation), *query_of(force=force)]


def name_of(obj: AnyObject) -> str:
    """The name of an object that has to have one.

    Raises:
        ValueError: it has none.
    """
    if not obj.name:
        raise ValueError(f"{obj!r} has no name: set metadata.name")
    return obj.name


def object_or_none(kind: Kind[SpecT, StatusT], body: bytes) -> Object[SpecT, StatusT] | None:
    """The object in the answer to a delete, None for a Status."""
    answer = decode_json(body) if body else None
    if not isinstance(answer, dict) or answer.get("kind") == "Status":
        return None
    return Object.from_json(kind, body)


def answer_of_any_kind(kind: Kind[SpecT, StatusT], body: bytes) -> Object[SpecT, StatusT]:
    """The object in the answer of a subresource, whose kind may be another than its parent's."""
    answer: Any = decode_json(body)
    name = answer.get("kind", "") if isinstance(answer, dict) else ""
    api_version = answer.get("apiVersion", "") if isinstance(answer, dict) else ""
    if name and api_version and (name, api_version) != (kind.kind, kind.api_version):
        group, _, version = api_version.rpartition("/")
        kind = Kind(group=group, version=version, kind=name, scope=kind.scope)
        if name == "Status":
            kind = Kind(group=group, version=version, kind=name, scope=Scope.CLUSTER)
    return Object.from_json(kind, body)
