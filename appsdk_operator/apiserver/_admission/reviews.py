"""Admission reviews: the request that a webhook gets, and the check of its response."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from typing import Any, Final

import attrs

from appsdk_operator.apiserver._registry.write_requests import AdmissionAttributes, DeleteOptions
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import RefusedError, StatusError
from appsdk_operator.apiserver._webhooks.webhook_client import CallError

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "admission.k8s.io"


@attrs.frozen(kw_only=True)
class ReviewedResource:
    """Kind, namespace, name and operation of a write, as admission reviews tell them."""

    operation: str
    served: ServedVersion
    group: str
    version: str
    kind: str
    subresource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, attributes: AdmissionAttributes) -> ReviewedResource:
        """The kind, namespace, name and operation of a write."""
        target = attributes.target
        obj = attributes.obj or attributes.old
        group, _, version = obj.get("apiVersion", "").rpartition("/")
        name = target.name or (obj.get("metadata") or {}).get("name") or ""
        namespace = target.namespace
        if target.served.resource.qualified_name == "namespaces":
            # A namespaceSelector also matches the namespace object itself.
            namespace = name
        if isinstance(attributes.options, DeleteOptions) and attributes.options.one_of_many:
            name = ""
        return cls(
            operation=attributes.operation,
            served=target.served,
            group=group,
            version=version,
            kind=obj.get("kind", ""),
            subresource=attributes.subresource,
            namespace=namespace,
            name=name,
        )

    @property
    def is_shared(self) -> bool:
        """Whether the subresource has a kind of its own, the same in all versions."""
        resource = self.served.resource
        return (self.group, self.kind) != (resource.group, resource.kind)

    def gvk(self, served: ServedVersion) -> dict[str, str]:
        """The kind in another version of the resource."""
        version = self.version if self.is_shared else served.version
        group = self.group if self.is_shared else served.resource.group
        return {"group": group, "version": version, "kind": self.kind}


def _gvr(served: ServedVersion) -> dict[str, str]:
    resource = served.resource
    return {
        "group": resource.group,
        "version": served.version,
        "resource": resource.plural,
    }


def new_review(
    reviewed: ReviewedResource,
    asked: ServedVersion,
    attributes: AdmissionAttributes,
    objects: tuple[dict[str, Any] | None, dict[str, Any] | None],
    version: str,
) -> dict[str, Any]:
    """The ``AdmissionReview`` to send.

    Args:
        reviewed: kind, namespace and name of the write.
        asked: the resource version that the webhook matches.
        attributes: the write.
        objects: the new and the old object in that version.
        version: the version of the review.
    """
    origin = attributes.options.origin
    request: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "kind": reviewed.gvk(asked),
        "resource": _gvr(asked),
    }
    if reviewed.subresource:
        request["subResource"] = reviewed.subresource
    request["requestKind"] = reviewed.gvk(reviewed.served)
    request["requestResource"] = _gvr(reviewed.served)
    if reviewed.subresource:
        request["requestSubResource"] = reviewed.subresource
    if reviewed.name:
        request["name"] = reviewed.name
    if reviewed.namespace:
        request["namespace"] = reviewed.namespace
    request |= {
        "operation": reviewed.operation,
        "userInfo": origin.user.info() if origin is not None else {},
        "object": objects[0],
        "oldObject": objects[1],
        "dryRun": attributes.options.dry_run,
        "options": None,
    }
    # A connection's options are its object.
    if reviewed.operation != "CONNECT":
        request["options"] = {
            "kind": f"{reviewed.operation.capitalize()}Options",
            "apiVersion": "meta.k8s.io/v1",
            **(origin.options if origin is not None else {}),
        }
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request}


@attrs.frozen
class ReviewResponse:
    """The response of a webhook."""

    allowed: bool
    status: Mapping[str, Any] | None
    patch: list[Any]
    warnings: list[str]


def read_response(
    answer: Mapping[str, Any], review: Mapping[str, Any], *, mutating: bool
) -> ReviewResponse:
    """The response in a webhook's answer to ``review``.

    Raises:
        CallError: the answer is not a valid response.
    """
    response = answer.get("response")
    kind, version = answer.get("kind") or "", answer.get("apiVersion") or ""
    invocation_of = review["apiVersion"]
    if kind and version and (kind, version) != ("AdmissionReview", invocation_of):
        raise CallError(_wrong_kind(kind, version, invocation_of))
    if response is None:
        raise _invalid_response("webhook response was absent")
    _check_types(response, invocation_of.rpartition("/")[2])
    patch = _patch_of(response)
    if invocation_of == f"{_GROUP}/v1":
        uid, given = review["request"]["uid"], response.get("uid") or ""
        if given != uid:
            raise _invalid_response(f'expected response.uid="{uid}", got "{given}"')
        if (kind, version) != ("AdmissionReview", invocation_of):
            group, _, short = version.rpartition("/")
            raise _invalid_response(
                f"expected webhook response of {invocation_of}, Kind=AdmissionReview, got "
                f"{group}/{short}, Kind={kind}"
            )
        _check_patch(response, mutating=mutating)
    operations: Any = []
    if patch and mutating:
        operations = _operations(patch, response.get("patchType") or "JSONPatch")
    status = response.get("status")
    warnings = response.get("warnings")
    return ReviewResponse(
        allowed=response.get("allowed", False),
        status=status if isinstance(status, dict) else None,
        patch=operations,
        warnings=[str(text) for text in warnings] if isinstance(warnings, list) else [],
    )


def _check_types(response: Any, version: str) -> None:
    place, wanted, found = "AdmissionReview.response", f"{version}.AdmissionResponse", response
    if isinstance(response, dict):
        place, wanted, found = "AdmissionResponse.response.allowed", "bool", response.get("allowed")
        if found is None or isinstance(found, bool):
            place, wanted, found = (
                "AdmissionResponse.response.uid",
                "types.UID",
                response.get("uid"),
            )
            if found is None or isinstance(found, str):
                return
    why = go_json.mismatch(found, f"struct field {place}", wanted)
    raise CallError(f"failed to call webhook: {why}")


def _check_patch(response: Mapping[str, Any], *, mutating: bool) -> None:
    patch, kind = response.get("patch"), response.get("patchType")
    if mutating:
        if patch and kind is None:
            raise _invalid_response("webhook returned response.patch but not response.patchType")
        if kind is not None and not patch:
            raise _invalid_response("webhook returned response.patchType but not response.patch")
        return
    if patch:
        raise _invalid_response("validating webhook may not return response.patch")
    if kind is not None:
        raise _invalid_response("validating webhook may not return response.patchType")


def _patch_of(response: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(response.get("patch") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        text = str(response["patch"])
        alphabet = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
        at = next((i for i, c in enumerate(text.encode()) if c not in alphabet), len(text))
        raise CallError(f"failed to call webhook: illegal base64 data at input byte {at}") from None


def _operations(patch: bytes, kind: str) -> list[Any]:
    found: Any
    try:
        found = go_json.decode(patch)
    except ValueError as error:
        raise CallError(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(found, list):
        what = "object" if isinstance(found, dict) else "value"
        raise CallError(
            f"received undecodable patch in webhook response: json: cannot unmarshal {what} into "
            "Go value of type jsonpatch.Patch"
        )
    if found and kind != "JSONPatch":
        raise CallError(f'unsupported patch type "{kind}"')
    return found


def _wrong_kind(kind: str, version: str, invocation_of: str) -> str:
    if kind == "AdmissionReview" and version.startswith(f"{_GROUP}/"):
        given, expected = version.rpartition("/")[2], invocation_of.rpartition("/")[2]
        why = f"converting ({given}.AdmissionReview) to ({expected}.AdmissionReview): unknown "
        return f"failed to call webhook: {why}conversion"
    return (
        f'failed to call webhook: no kind "{kind}" is registered for version "{version}" in scheme '
        '"pkg/runtime/scheme.go:111"'
    )


def _invalid_response(why: str) -> CallError:
    return CallError(f"received invalid webhook response: {why}")


def denied_error(name: str, status: Mapping[str, Any] | None) -> StatusError:
    """The error when the webhook ``name`` denies a write with the given ``status``."""
    said = status or {}
    code, text, reason = said.get("code"), said.get("message"), said.get("reason")
    if not isinstance(code, int) or code < 400:
        code = 400
    words = f'admission webhook "{name}" denied the request'
    words += f": {text or reason}" if text or reason else " without explanation"
    details = said.get("details")
    return RefusedError(
        code,
        words,
        reason=str(reason or ""),
        details=details if isinstance(details, dict) else None,
        metadata=said["metadata"] if isinstance(said.get("metadata"), dict) else None,
    )
