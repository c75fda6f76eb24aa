"""Admission by webhooks: calls the configured webhooks that match a write.

Mutating webhooks are called one after another, ordered by the names of their configurations, each
with the object as the previous ones left it. Those with ``reinvocationPolicy: IfNeeded`` are called
once more when a later webhook changed the object. Validating webhooks are called concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.apiserver._admission.match_conditions import ConditionError
from appsdk_operator.apiserver._admission.reviews import (
    ReviewedResource,
    ReviewResponse,
    denied_error,
    new_review,
    read_response,
)
from appsdk_operator.apiserver._admission.webhooks import Webhook, is_exempt, webhooks_of
from appsdk_operator.apiserver._registry.json_patches import apply_as_go
from appsdk_operator.apiserver._registry.write_requests import AdmissionAttributes
from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection, Storage
from appsdk_operator.apiserver._values.go_text import is_control
from appsdk_operator.apiserver._values.status import (
    RefusedError,
    StatusError,
    forbidden,
    internal_error,
    not_found,
)
from appsdk_operator.apiserver._webhooks.webhook_client import CallError, TrustError, WebhookClient
from appsdk_operator.resource import PatchError

_GROUP: Final = "admissionregistration.k8s.io"


@attrs.frozen
class _Invocation:
    """A webhook that matches a write, and the resource version it matches in."""

    webhook: Webhook
    version: ServedVersion


@final
class WebhookAdmission:
    """Calls the webhooks of all stored configurations."""

    def __init__(self, storage: Storage, webhook_client: WebhookClient) -> None:
        """Configurations take effect as soon as they are stored; ``webhook_client`` calls them."""
        self._namespaces = storage.collection("namespaces")
        self._mutating = storage.collection(f"mutatingwebhookconfigurations.{_GROUP}")
        self._validating = storage.collection(f"validatingwebhookconfigurations.{_GROUP}")
        self._webhooks: dict[Collection, tuple[Webhook, ...]] = {}
        self._webhook_client = webhook_client

    def on_event(self, collection: Collection) -> None:
        """Read the configurations again when one has changed."""
        if collection is self._mutating or collection is self._validating:
            self._webhooks[collection] = tuple(webhooks_of(collection))

    async def mutate(self, attributes: AdmissionAttributes) -> dict[str, Any]:
        """Call the mutating webhooks; return the object as they left it.

        Raises:
            StatusError: one denies the write, or fails and its failure policy is ``Fail``.
        """
        webhooks = self._webhooks.get(self._mutating)
        if not webhooks:
            return attributes.obj
        reviewed = ReviewedResource.of(attributes)
        if is_exempt(reviewed):
            return attributes.obj
        # A copy: the caller compares the result with the object that it sent.
        obj = msgspec.json.decode(msgspec.json.encode(attributes.obj))
        mutation = _Mutation(self, reviewed, attrs.evolve(attributes, obj=obj))
        await mutation.run(webhooks)
        return mutation.attributes.obj

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Call the validating webhooks.

        Raises:
            StatusError: one denies the write, or fails and its failure policy is ``Fail``.
        """
        webhooks = self._webhooks.get(self._validating)
        if not webhooks:
            return
        reviewed = ReviewedResource.of(attributes)
        if is_exempt(reviewed):
            return
        invocations = [
            invocation
            for webhook in webhooks
            if (invocation := self.invocation_of(webhook, reviewed, attributes))
        ]
        if not invocations:
            return
        # Wait for all, so that the error does not depend on which one answers first.
        found = await asyncio.gather(
            *(self._validate_one(invocation, reviewed, attributes) for invocation in invocations),
            return_exceptions=True,
        )
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def _validate_one(
        self, invocation: _Invocation, reviewed: ReviewedResource, attributes: AdmissionAttributes
    ) -> None:
        try:
            await self.invoke(invocation, reviewed, attributes, mutating=False)
        except CallError as error:
            if not invocation.webhook.ignores_failures:
                raise _failure(invocation.webhook, error) from None

    def invocation_of(
        self, webhook: Webhook, reviewed: ReviewedResource, attributes: AdmissionAttributes
    ) -> _Invocation | None:
        """The invocation of a webhook for a write; None when the webhook does not match.

        Raises:
            StatusError: 404, the namespace of the write is gone.
        """
        version = webhook.version_for(reviewed)
        # The options of a connection have no labels, and what is absent matches no selector.
        objects = () if attributes.operation == "CONNECT" else (attributes.obj, attributes.old)
        if version is None or not webhook.selects(*objects):
            return None
        if not webhook.namespaces.empty and not self._in_namespaces(webhook, reviewed, attributes):
            return None
        return _Invocation(webhook, version)

    def _in_namespaces(
        self, webhook: Webhook, reviewed: ReviewedResource, attributes: AdmissionAttributes
    ) -> bool:
        is_namespace = reviewed.served.resource.qualified_name == "namespaces"
        if not reviewed.namespace and not is_namespace:
            return True
        labels: Mapping[str, str]
        if is_namespace and not reviewed.subresource and attributes.obj:
            labels = (attributes.obj.get("metadata") or {}).get("labels") or {}
        else:
            record = self._namespaces.records.get(reviewed.namespace)
            if record is None:
                raise not_found("namespaces", "", reviewed.namespace)
            labels = record.labels
        return webhook.namespaces.matches(labels)

    async def invoke(
        self,
        invocation: _Invocation,
        reviewed: ReviewedResource,
        attributes: AdmissionAttributes,
        *,
        mutating: bool,
    ) -> ReviewResponse | None:
        """Call a webhook; return its response, or None when its match conditions do not hold.

        Raises:
            CallError: the call fails, or the response is not valid.
            StatusError: the webhook denies the write.
        """
        webhook = invocation.webhook
        objects = await self._objects(invocation, reviewed, attributes)
        review = new_review(
            reviewed, invocation.version, attributes, objects, webhook.review_version
        )
        if webhook.conditions.programs and not self._conditions_hold(
            webhook, reviewed, review["request"]
        ):
            return None
        try:
            answer = await self._webhook_client.post(webhook.client, review, webhook.seconds)
        except TrustError as error:
            raise CallError(f"could not get REST client: {error}") from None
        except CallError as error:
            raise CallError(f"failed to call webhook: {error}") from None
        found = read_response(answer, review, mutating=mutating)
        origin = attributes.options.origin
        if origin is not None:
            origin.warn(text for text in found.warnings if not any(map(is_control, text)))
        if not found.allowed:
            raise denied_error(webhook.name, found.status)
        return found

    def _conditions_hold(
        self, webhook: Webhook, reviewed: ReviewedResource, request: Mapping[str, Any]
    ) -> bool:
        record = self._namespaces.records.get(reviewed.namespace)
        try:
            return webhook.conditions.hold(request, record.decode() if record is not None else None)
        except ConditionError as error:
            if webhook.ignores_failures:
                return False
            resource = reviewed.served.resource
            raise forbidden(resource.plural, resource.group, reviewed.name, str(error)) from None

    @staticmethod
    async def _objects(
        invocation: _Invocation, reviewed: ReviewedResource, attributes: AdmissionAttributes
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        pair = (attributes.obj or None, attributes.old or None)
        if invocation.version is reviewed.served or reviewed.is_shared:
            return pair
        there = [obj for obj in pair if obj is not None]
        try:
            converted = await conversion.convert(there, reviewed.served, invocation.version)
        except StatusError as error:
            raise internal_error(error.message) from None
        found = iter(converted)
        return (next(found) if pair[0] else None, next(found) if pair[1] else None)


@final
class _Mutation:
    """Takes one object through the mutating webhooks."""

    def __init__(
        self,
        admission: WebhookAdmission,
        reviewed: ReviewedResource,
        attributes: AdmissionAttributes,
    ) -> None:
        self.attributes = attributes
        self._admission = admission
        self._reviewed = reviewed
        # Webhooks that may be reinvoked, and those that will be, since the object changed later.
        self._invoked: set[Webhook] = set()
        self._to_reinvoke: set[Webhook] = set()

    async def run(self, webhooks: tuple[Webhook, ...]) -> None:
        await self._round(webhooks)
        if self._to_reinvoke:
            # The second round calls no webhook that did not match in the first.
            await self._round(webhooks, reinvoking=True)

    async def _round(self, webhooks: tuple[Webhook, ...], *, reinvoking: bool = False) -> None:
        for webhook in webhooks:
            if reinvoking and webhook not in self._to_reinvoke:
                continue
            invocation = self._admission.invocation_of(webhook, self._reviewed, self.attributes)
            if invocation is None:
                continue
            try:
                changed = await self._invoke(invocation)
            except CallError as error:
                if not webhook.ignores_failures:
                    raise _failure(webhook, error) from None
                changed = False
            if changed is None:
                continue
            if changed:
                self._to_reinvoke |= self._invoked
                self._invoked.clear()
            if webhook.is_reinvoked:
                self._invoked.add(webhook)

    async def _invoke(self, invocation: _Invocation) -> bool | None:
        """Whether the webhook changed the object; None when it was not called."""
        attributes, reviewed = self.attributes, self._reviewed
        found = await self._admission.invoke(invocation, reviewed, attributes, mutating=True)
        if found is None:
            return None
        if not found.patch:
            return False
        if not attributes.obj:
            raise internal_error(
                f'admission webhook "{invocation.webhook.name}" attempted to modify the object, '
                "which is not supported for this operation"
            )
        before = attributes.obj
        elsewhere = invocation.version is not reviewed.served and not reviewed.is_shared
        if elsewhere:
            [before] = await conversion.convert([before], reviewed.served, invocation.version)
        try:
            after = apply_as_go(before, found.patch)
        except PatchError as error:
            raise internal_error(str(error)) from None
        if not isinstance(after, dict):
            raise internal_error("the patch replaces the object by something that is not an object")
        changed = bool(after != before)
        if elsewhere:
            [after] = await conversion.convert([after], invocation.version, reviewed.served)
        if (after.get("kind"), after.get("apiVersion")) != (
            attributes.obj.get("kind"),
            attributes.obj.get("apiVersion"),
        ):
            raise internal_error(
                f'no kind "{after.get("kind")}" is registered for version '
                f'"{after.get("apiVersion")}" in scheme "pkg/runtime/scheme.go:111"'
            )
        try:
            attributes.fill_in(after)
        except StatusError as error:
            _, _, why = error.message.partition(" cannot be handled as a ")
            raise internal_error(why.partition(": ")[2] or error.message) from None
        self.attributes = attrs.evolve(attributes, obj=after)
        return changed


def _failure(webhook: Webhook, error: CallError) -> StatusError:
    why = f'failed calling webhook "{webhook.name}": {error}'
    details = {"causes": [{"message": why}]}
    return RefusedError(500, f"Internal error occurred: {why}", details=details)
