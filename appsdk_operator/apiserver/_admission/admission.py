"""Admission: whoever configured a webhook has a say in writes before they take effect.

Mutating webhooks are asked one after another, in the order of their configurations' names, each
about what the ones before made of the object; those that want to be are asked once more when it
was changed after their turn. Validating webhooks are asked all at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.apiserver._admission.hooks import Hook, hooks_of, is_exempt
from appsdk_operator.apiserver._admission.match_conditions import ConditionError
from appsdk_operator.apiserver._admission.reviews import (
    Subject,
    Verdict,
    denial,
    question,
    verdict,
)
from appsdk_operator.apiserver._admission.webhook_patches import apply_webhook_patch
from appsdk_operator.apiserver._registry.write_requests import Attempt
from appsdk_operator.apiserver._storage import conversion
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection, Storage
from appsdk_operator.apiserver._values.status import (
    RefusedError,
    StatusError,
    forbidden,
    internal_error,
    not_found,
)
from appsdk_operator.apiserver._webhooks.calls import Caller, CallError, TrustError
from appsdk_operator.resource import PatchError

__all__ = ["Admission"]

_GROUP: Final = "admissionregistration.k8s.io"


@attrs.frozen
class _Call:
    """A webhook that is to be asked, and the version of the resource that it wants to see."""

    hook: Hook
    version: ServedVersion


@final
class Admission:
    """The gate of a server: the webhooks of all configurations that are stored."""

    def __init__(self, storage: Storage, caller: Caller) -> None:
        """Configurations take effect as soon as they are stored."""
        self._namespaces = storage.collection("namespaces")
        self._mutating = storage.collection(f"mutatingwebhookconfigurations.{_GROUP}")
        self._validating = storage.collection(f"validatingwebhookconfigurations.{_GROUP}")
        self._hooks: dict[Collection, tuple[Hook, ...]] = {}
        self._caller = caller

    def notice(self, collection: Collection) -> None:
        """Take note of a change."""
        if collection is self._mutating or collection is self._validating:
            self._hooks[collection] = tuple(hooks_of(collection))

    async def mutate(self, attempt: Attempt) -> dict[str, Any]:
        """Ask the mutating webhooks; the object they make of the attempt's.

        Raises:
            StatusError: one refuses, or cannot be asked and must be.
        """
        hooks = self._hooks.get(self._mutating)
        if not hooks:
            return attempt.obj
        subject = Subject.of(attempt)
        if is_exempt(subject):
            return attempt.obj
        # The object stays as it was sent for those who want to know whether it was changed.
        obj = msgspec.json.decode(msgspec.json.encode(attempt.obj))
        if obj:
            attempt.prepare(obj)
        mutation = _Mutation(self, subject, attrs.evolve(attempt, obj=obj))
        await mutation.run(hooks)
        return mutation.attempt.obj

    async def validate(self, attempt: Attempt) -> None:
        """Ask the validating webhooks.

        Raises:
            StatusError: one refuses, or cannot be asked and must be.
        """
        hooks = self._hooks.get(self._validating)
        if not hooks:
            return
        subject = Subject.of(attempt)
        if is_exempt(subject):
            return
        calls = [call for hook in hooks if (call := self.wanted(hook, subject, attempt))]
        if not calls:
            return
        # All are heard, so that the same one is told of whoever answers first.
        found = await asyncio.gather(
            *(self._validated(call, subject, attempt) for call in calls), return_exceptions=True
        )
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def _validated(self, call: _Call, subject: Subject, attempt: Attempt) -> None:
        try:
            await self.ask(call, subject, attempt, mutating=False)
        except CallError as error:
            if not call.hook.ignores_failures:
                raise _failure(call.hook, error) from None

    def wanted(self, hook: Hook, subject: Subject, attempt: Attempt) -> _Call | None:
        """The call of a webhook; None when the write is not its business.

        Raises:
            StatusError: 404, it is about a namespace that is gone.
        """
        version = hook.version_for(subject)
        if version is None or not hook.selects(attempt.obj, attempt.old):
            return None
        if not hook.namespaces.empty and not self._in_namespaces(hook, subject, attempt):
            return None
        return _Call(hook, version)

    def _in_namespaces(self, hook: Hook, subject: Subject, attempt: Attempt) -> bool:
        if not subject.namespace:
            return True
        is_namespace = subject.served.resource.qualified_name == "namespaces"
        labels: Mapping[str, str]
        if is_namespace and not subject.subresource and attempt.obj:
            labels = (attempt.obj.get("metadata") or {}).get("labels") or {}
        else:
            record = self._namespaces.records.get(subject.namespace)
            if record is None:
                raise not_found("namespaces", "", subject.namespace)
            labels = record.labels
        return hook.namespaces.matches(labels)

    async def ask(
        self, call: _Call, subject: Subject, attempt: Attempt, *, mutating: bool
    ) -> Verdict | None:
        """What a webhook says; None when its conditions do not hold.

        Raises:
            CallError: it cannot be asked, or its answer breaks the rules.
            StatusError: it refuses.
        """
        hook = call.hook
        objects = await self._objects(call, subject, attempt)
        review = question(subject, call.version, attempt, objects, hook.review_version)
        if hook.conditions.programs and not self._holds(hook, subject, review["request"]):
            return None
        try:
            answer = await self._caller.post(hook.client, review, hook.seconds)
        except TrustError as error:
            raise CallError(f"could not get REST client: {error}") from None
        except CallError as error:
            raise CallError(f"failed to call webhook: {error}") from None
        found = verdict(answer, review, mutating=mutating)
        origin = attempt.options.origin
        if origin is not None:
            origin.warn(text for text in found.warnings if text.isprintable())
        if not found.allowed:
            raise denial(hook.name, found.status)
        return found

    def _holds(self, hook: Hook, subject: Subject, request: Mapping[str, Any]) -> bool:
        record = self._namespaces.records.get(subject.namespace)
        try:
            return hook.conditions.hold(request, record.decode() if record is not None else None)
        except ConditionError as error:
            if hook.ignores_failures:
                return False
            resource = subject.served.resource
            raise forbidden(resource.plural, resource.group, subject.name, str(error)) from None

    @staticmethod
    async def _objects(
        call: _Call, subject: Subject, attempt: Attempt
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        pair = (attempt.obj or None, attempt.old or None)
        if call.version is subject.served or subject.is_shared:
            return pair
        there = [obj for obj in pair if obj is not None]
        converted = await conversion.convert(there, subject.served, call.version)
        found = iter(converted)
        return (next(found) if pair[0] else None, next(found) if pair[1] else None)


@final
class _Mutation:
    """One object on its way through the mutating webhooks."""

    def __init__(self, admission: Admission, subject: Subject, attempt: Attempt) -> None:
        self.attempt = attempt
        self._admission = admission
        self._subject = subject
        # Who had a turn and may get another, and who gets one because of a change after theirs.
        self._had_turn: set[Hook] = set()
        self._again: set[Hook] = set()

    async def run(self, hooks: tuple[Hook, ...]) -> None:
        await self._round(hooks)
        if self._again:
            # Whom the first round passed by is not asked for the first time in the second.
            await self._round(hooks, again=True)

    async def _round(self, hooks: tuple[Hook, ...], *, again: bool = False) -> None:
        for hook in hooks:
            if again and hook not in self._again:
                continue
            call = self._admission.wanted(hook, self._subject, self.attempt)
            if call is None:
                continue
            try:
                changed = await self._call(call)
            except CallError as error:
                if not hook.ignores_failures:
                    raise _failure(hook, error) from None
                changed = False
            if changed is None:
                continue
            if changed:
                self._again |= self._had_turn
                self._had_turn.clear()
            if hook.is_reinvoked:
                self._had_turn.add(hook)

    async def _call(self, call: _Call) -> bool | None:
        """Whether the webhook changed the object; None when it was not asked."""
        attempt, subject = self.attempt, self._subject
        found = await self._admission.ask(call, subject, attempt, mutating=True)
        if found is None:
            return None
        if not found.patch:
            return False
        if not attempt.obj:
            raise internal_error(
                f'admission webhook "{call.hook.name}" attempted to modify the object, which is '
                "not supported for this operation"
            )
        before = attempt.obj
        elsewhere = call.version is not subject.served and not subject.is_shared
        if elsewhere:
            [before] = await conversion.convert([before], subject.served, call.version)
        try:
            after = apply_webhook_patch(before, found.patch)
        except PatchError as error:
            raise internal_error(str(error)) from None
        if not isinstance(after, dict):
            raise internal_error("the patch makes something of the object that is no object")
        changed = bool(after != before)
        if elsewhere:
            [after] = await conversion.convert([after], call.version, subject.served)
        if (after.get("kind"), after.get("apiVersion")) != (
            attempt.obj.get("kind"),
            attempt.obj.get("apiVersion"),
        ):
            raise internal_error(
                f'no kind "{after.get("kind")}" is registered for version '
                f'"{after.get("apiVersion")}" in scheme "pkg/runtime/scheme.go:111"'
            )
        try:
            attempt.fill_in(after)
        except StatusError as error:
            _, _, why = error.message.partition(" cannot be handled as a ")
            raise internal_error(why.partition(": ")[2] or error.message) from None
        self.attempt = attrs.evolve(attempt, obj=after)
        return changed


def _failure(hook: Hook, error: CallError) -> StatusError:
    why = f'failed calling webhook "{hook.name}": {error}'
    details = {"causes": [{"message": why}]}
    return RefusedError(500, f"Internal error occurred: {why}", details=details)
