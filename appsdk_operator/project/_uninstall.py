"""Takes an operator out of a cluster, in an order that leaves nothing stuck."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from appsdk_operator.app import App
from appsdk_operator.client import (
    ApiError,
    ClientLike,
    MergePatch,
    NotFound,
)
from appsdk_operator.controllers import take_finalizer_off, until, wait_for
from appsdk_operator.project._manifests.inventory import Placed, inventory
from appsdk_operator.project._manifests.options import ManifestOptions
from appsdk_operator.project._manifests.values import Deployed
from appsdk_operator.resource import Kind, Object, Versions, kinds
from appsdk_operator.runtime import Clock, counted, system_clock

_CRD: Final = kinds.apiextensions.v1.CustomResourceDefinition
_POD: Final = kinds.core.v1.Pod
_DEPLOYMENT: Final = kinds.apps.v1.Deployment
_HOOKS: Final = (
    kinds.admissionregistration.v1.MutatingWebhookConfiguration,
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
)
_SECRET: Final = kinds.core.v1.Secret
_NAME_LABEL: Final = "app.kubernetes.io/name"
_OF_CERT_MANAGER: Final = "cert-manager.io/certificate-name"
_OF_THE_OPERATOR: Final = "ca.key"
"""The key of the Secret that only an operator with certificates of its own has."""


class UninstallAction(enum.StrEnum):
    """What is done with an object."""

    DELETE = "delete"
    """It is deleted, and gone when the step is over."""
    RELEASE = "release"
    """The operator's finalizers are taken off."""
    CONVERT = "convert"
    """A CRD no longer asks the operator's conversion webhook, so that objects can be read."""
    KEEP = "keep"
    """It stays, because the operator's manifests did not make it."""


@attrs.frozen
class UninstallStep:
    """One step; a value."""

    action: UninstallAction
    kind: Kind[Any, Any]
    name: str
    namespace: str = ""
    detail: str = ""
    """The finalizers, or why."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.action:8} {self.kind.kind} {place}{self.detail and f' ({self.detail})'}"


class UninstallError(Exception):
    """A step failed; the text says what to do, and all steps may be repeated."""


@attrs.frozen(kw_only=True)
class _Uninstall:
    client: ClientLike
    app: App
    deployed: Deployed
    dry_run: bool
    keep_crds: bool
    more_finalizers: tuple[str, ...]
    timeout: float
    clock: Clock

    def steps(self) -> Iterator[UninstallStep]:
        yield from self._stop()
        yield from self._without_webhooks()
        yield from self._release()
        if not self.keep_crds:
            yield from self._without_crds()
        yield from self._without_the_rest()

    # The operator would put its finalizers back while it runs.

    def _stop(self) -> Iterator[UninstallStep]:
        namespace = self.deployed.namespace
        yield from self._deleted(Placed(_DEPLOYMENT, self.deployed.name, namespace))
        if self.dry_run:
            return
        # The pods end after the Deployment, within their grace period.
        labels = self.deployed.labels
        while pods := list(self.client.list(_POD, namespace=namespace, label_selector=labels)):
            for pod in pods:
                self._wait_for_end(
                    pod,
                    "still runs and would set its finalizers again: find out why it does not end",
                )

    # Without the operator its webhooks would refuse every write, also those below.

    def _without_webhooks(self) -> Iterator[UninstallStep]:
        for kind in _HOOKS:
            yield from self._deleted(Placed(kind, self.deployed.name))
        if self.keep_crds:
            return
        for name in self._crd_names():
            crd = self._find(Placed(_CRD, name))
            if crd is None or crd["spec"].get("conversion", {}).get("strategy") != "Webhook":
                continue
            if not self.dry_run:
                none = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
                self.client.patch(_CRD, name, MergePatch(none))
            yield UninstallStep(UninstallAction.CONVERT, _CRD, name, detail="no webhook")

    def _crd_names(self) -> list[str]:
        return [
            (each.hub if isinstance(each, Versions) else each).qualified_name
            for each in self.app.kinds
        ]

    # Finalizers.

    def _release(self) -> Iterator[UninstallStep]:
        for kind, names in self._finalizers().items():
            try:
                for obj in self.client.list(kind):
                    ours = [name for name in obj.finalizers if name in names]
                    if not ours:
                        continue
                    if not self.dry_run:
                        self._take_off(obj, ours)
                    yield UninstallStep(
                        UninstallAction.RELEASE, kind, obj.name, obj.namespace, ", ".join(ours)
                    )
            except NotFound:
                continue  # its CRD is gone, and with it all objects
            except ApiError as error:
                raise UninstallError(
                    f"{kind.plural} cannot be listed or written: {error}. If they need a "
                    "conversion, migrate them to the stored version while the operator runs, or "
                    "leave out --keep-crds"
                ) from error

    def _finalizers(self) -> Mapping[Kind[Any, Any], tuple[str, ...]]:
        own = [each.hub if isinstance(each, Versions) else each for each in self.app.kinds]
        found = self.app.finalizers()
        named = {kind: (*found.get(kind, ()), *self.more_finalizers) for kind in (*found, *own)}
        return {kind: names for kind, names in named.items() if names}

    def _take_off(self, obj: Object[Any, Any], names: Sequence[str]) -> None:
        current: Object[Any, Any] | None = obj
        for name in names:
            if current is not None:
                current = take_finalizer_off(self.client, current, name)

    # CRDs, with all objects of their kinds.

    def _without_crds(self) -> Iterator[UninstallStep]:
        for name in self._crd_names():
            count = self._count(name)
            detail = f"with {counted(count, 'object')}" if count else ""
            yield from self._deleted(Placed(_CRD, name, is_labelled=False), detail)

    def _count(self, name: str) -> int:
        kind = self._kind_of(name)
        try:
            return sum(not obj.is_deleting for obj in self.client.list(kind))
        except ApiError:
            return 0

    def _kind_of(self, name: str) -> Kind[Any, Any]:
        for each in self.app.kinds:
            hub: Kind[Any, Any] = each.hub if isinstance(each, Versions) else each
            if hub.qualified_name == name:
                return hub
        raise LookupError(name)

    # Everything else that the manifests made.

    def _without_the_rest(self) -> Iterator[UninstallStep]:
        for placed in inventory(self.deployed):
            yield from self._deleted(placed)

    # One object.

    def _deleted(self, placed: Placed, detail: str = "") -> Iterator[UninstallStep]:
        found = self._find(placed)
        if found is None:
            return
        step = UninstallStep(
            UninstallAction.DELETE, placed.kind, placed.name, placed.namespace, detail
        )
        if why := self._why_it_is_kept(placed, found):
            yield attrs.evolve(step, action=UninstallAction.KEEP, detail=why)
            return
        if not self.dry_run:
            try:
                self.client.delete(
                    placed.kind, placed.name, namespace=placed.namespace, uid=found.uid
                )
            except NotFound:
                pass
            else:
                self._wait_for_end(found, self._why_it_stays(placed))
        yield step

    def _why_it_is_kept(self, placed: Placed, found: Object[Any, Any]) -> str:
        if placed.is_labelled and found.labels.get(_NAME_LABEL) != self.deployed.name:
            return f"it has no label {_NAME_LABEL}={self.deployed.name}"
        is_generated = _OF_CERT_MANAGER in found.annotations or _OF_THE_OPERATOR in (
            found.get("data") or {}
        )
        if placed.kind == _SECRET and not is_generated:
            return "its certificate is neither of cert-manager nor of the operator"
        return ""

    def _why_it_stays(self, placed: Placed) -> str:
        if placed.kind != _CRD:
            return "still exists: find out what blocks its deletion"
        return (
            "still exists: look for finalizers of other programs on its "
            f"{placed.name.partition('.')[0]}"
        )

    def _find(self, placed: Placed) -> Object[Any, Any] | None:
        try:
            return self.client.get(placed.kind, placed.name, namespace=placed.namespace)
        except NotFound:
            return None

    def _wait_for_end(self, obj: Object[Any, Any], problem: str) -> None:
        try:
            wait_for(
                self.client,
                obj.kind,
                obj.name,
                until.deleted(obj),
                namespace=obj.namespace,
                timeout=self.timeout,
                clock=self.clock,
            )
        except TimeoutError as error:
            raise UninstallError(
                f"after {self.timeout:g} seconds {obj.kind.kind} {obj.name} {problem}; then "
                "uninstall again"
            ) from error


def uninstall(
    client: ClientLike,
    app: App,
    options: ManifestOptions | None = None,
    *,
    dry_run: bool = False,
    keep_crds: bool = False,
    finalizers: Sequence[str] = (),
    timeout: float = 60.0,
    clock: Clock = system_clock,
) -> Iterator[UninstallStep]:
    """Remove an operator and its finalizers from a cluster, so that no deleted object stays.

    In this order: its Deployment, and its pods have ended; the webhook configurations; conversion
    webhooks; its finalizers, on all objects; its CRDs, **with all objects of its kinds**; Services,
    roles and the rest of what :func:`manifests` makes. The namespace stays. What is not there is
    skipped, so that all of it may be repeated.

    The operator's clean-ups are not called. To have them called, delete the objects before, while
    it runs.

    Args:
        client: the account may delete all of these, and patch the operator's kinds.
        app: the App.
        options: those that its manifests were made with; the namespace matters.
        dry_run: only find out what the steps are.
        keep_crds: leave the CRDs and their objects; finalizers are taken off all the same.
        finalizers: further finalizers to take off, from objects of all kinds that the App owns or
            handles: of reconcilers, and of watchers that set one of their own.
        timeout: seconds for one object to end; default 60.
        clock: the clock of the time-out.

    Yields:
        Each step when it is done. Nothing happens before the first is asked for.

    Raises:
        UninstallError: something does not end.
        FinalizerError: the server refuses to take a finalizer off.
        ClientError: a request failed.
    """
    return _Uninstall(
        client=client,
        app=app,
        deployed=Deployed(app=app, options=options or ManifestOptions()),
        dry_run=dry_run,
        keep_crds=keep_crds,
        more_finalizers=tuple(finalizers),
        timeout=timeout,
        clock=clock,
    ).steps()
