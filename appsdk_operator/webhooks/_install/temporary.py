"""An installation that ends with its process: configurations, and conversions of CRDs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

from appsdk_operator.client import ApiError, ClientError, ClientLike, NotFound, TransportError
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Clock, StopSignal, get_logger
from appsdk_operator.webhooks._install.configurations import (
    CONFIGURATION_KINDS,
    client_config,
    webhook_configurations,
)
from appsdk_operator.webhooks._install.install import (
    conversion_owner,
    install_conversion,
    restore_conversion,
)
from appsdk_operator.webhooks._install.owners import Owner
from appsdk_operator.webhooks._install.probe import Probe
from appsdk_operator.webhooks._install.storage import await_storage
from appsdk_operator.webhooks._rules import WebhookRule

_log: Final = get_logger("appsdk_operator.webhooks")

_LABEL: Final = "appsdk-operator.io/temporary-webhooks"
_OWNER: Final = "appsdk-operator.io/owner"
_FIELD_MANAGER: Final = "appsdk-operator-temporary-webhooks"


@final
class TemporaryInstallation:
    """Webhooks of this process in a cluster, for as long as it runs.

    What a process of the same name left when it was killed is replaced; what another one that still
    runs has installed is not. Not thread-safe.

    Args:
        client: where they are installed.
        name: what configurations of such processes have in common, a label's value.
        url: the address of the webhook server.
        ca: the PEM certificates of its authority.
        take_over: replace also what a process has installed that may still run.
        patience: seconds to wait until the server obeys; 0: do not wait.
        clock: the clock of that wait.
    """

    def __init__(
        self,
        client: ClientLike,
        name: str,
        *,
        url: str,
        ca: bytes,
        take_over: bool,
        patience: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._name = name
        self._url = url
        self._ca = ca
        self._take_over = take_over
        self._patience = patience
        self._clock = clock
        self._owner = Owner.current()
        self._installed: list[MutableObject] = []
        self._removed: list[MutableObject] = []
        self._probe: Probe | None = None
        self._kinds: list[Kind] = []

    def install(
        self,
        rules: Sequence[WebhookRule],
        conversions: Iterable[tuple[str, Any]],
        stop: StopSignal | None = None,
    ) -> None:
        """Install these webhooks, and remove others of this name.

        Raises:
            RuntimeError: another process has webhooks of this name there.
            LookupError: the CRD of a conversion is not installed.
            ApiError: the server refused something.
            TimeoutError: the server does not obey in time.
        """
        leftovers = self._leftovers()
        drafts = self._drafts(rules)
        probe = self._probe = Probe()
        self._installed = probe.added_to(drafts) if self._patience else drafts
        for draft in self._installed:
            self._client.apply(draft, field_manager=_FIELD_MANAGER, force=True)
        kept = {(draft.kind, draft.name) for draft in drafts}
        for each in leftovers:
            if (each.kind, each.name) not in kept:
                self._delete(each.kind, each.name)
        converted: list[Kind] = []
        for path, versions in conversions:
            self._convert(path, versions.hub)
            converted += versions.kinds
        self._await(self._installed, present=True, stop=stop)
        self._await_storage(converted, stop)

    def remove(self, client: ClientLike | None = None) -> None:
        """Remove what was installed, as far as it is still this process'.

        Args:
            client: what to remove it with; default: what it was installed with.

        Raises:
            ApiError: the server refused something; the rest was tried.
            TransportError: the server is not reachable; no more was tried.
        """
        self._client = client or self._client
        steps: list[Callable[[], None]] = [
            *(lambda draft=each: self._remove(draft) for each in self._installed),
            *(lambda kind=each: self._restore(kind) for each in self._kinds),
        ]
        failures: list[ClientError] = []
        for step in steps:
            try:
                step()
            except TransportError as error:
                failures.append(error)
                break
            except ClientError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def await_end(self) -> None:
        """After :meth:`remove`: wait until the server obeys the configurations no more.

        Raises:
            TimeoutError: it still does.
        """
        self._await(self._removed, present=False)

    @property
    def texts(self) -> list[str]:
        """What is installed, as arguments of ``kubectl delete``."""
        return [f"{each.kind.plural}/{each.name}" for each in self._installed]

    # -- configurations --------------------------------------------------------------------------

    def _drafts(self, rules: Sequence[WebhookRule]) -> list[MutableObject]:
        if not rules:
            return []
        return webhook_configurations(
            rules,
            name=self._name,
            url=self._url,
            ca=self._ca,
            labels={_LABEL: self._name},
            annotations={_OWNER: str(self._owner)},
        )

    def _leftovers(self) -> list[Object]:
        found: list[Object] = []
        for kind in CONFIGURATION_KINDS.values():
            found += self._client.list_page(kind, label_selector={_LABEL: self._name}).items
        for each in found:
            self._check(each.annotations.get(_OWNER, ""), f"{each.kind.kind} {each.name}")
        return found

    def _check(self, text: str, what: str) -> None:
        """Check that an owner is this process, or gone.

        Raises:
            RuntimeError: it is another one, which may still run.
        """
        owner = Owner.parse(text)
        if self._take_over or owner is None or owner == self._owner or owner.is_gone:
            return
        raise RuntimeError(
            f"{what} belongs to process {owner.pid} on {owner.host}, which may still run: end that "
            "process, choose another name, or give take_over=True"
        )

    def _remove(self, draft: MutableObject) -> None:
        try:
            stored = self._client.get(draft.kind, draft.name)
        except NotFound:
            return
        if Owner.parse(stored.annotations.get(_OWNER, "")) != self._owner:
            _log.info("another process has taken over %s %s", draft.kind.kind, draft.name)
            return
        self._delete(draft.kind, draft.name, uid=stored.uid)
        self._removed.append(draft)

    def _delete(self, kind: Kind, name: str, uid: str = "") -> None:
        with contextlib.suppress(NotFound):
            self._client.delete(kind, name, uid=uid)

    # -- conversions -----------------------------------------------------------------------------

    def _convert(self, path: str, kind: Kind) -> None:
        crd = f"CustomResourceDefinition {kind.qualified_name}"
        try:
            self._check(conversion_owner(self._client, kind), f"the conversion of {crd}")
            config = client_config(path, url=self._url, ca=self._ca)
            if kind not in self._kinds:
                self._kinds.append(kind)
            install_conversion(self._client, kind, config, owner=str(self._owner))
        except NotFound as error:
            raise LookupError(
                f"there is no {crd}, whose versions this process converts: install it first"
            ) from error

    def _restore(self, kind: Kind) -> None:
        restore_conversion(self._client, kind, owner=str(self._owner))

    # -- the wait --------------------------------------------------------------------------------

    def _await(
        self, drafts: Sequence[MutableObject], *, present: bool, stop: StopSignal | None = None
    ) -> None:
        if self._probe is None or not self._patience:
            return
        try:
            self._probe.wait(
                self._client,
                drafts,
                present=present,
                timeout=self._patience,
                clock=self._clock,
                stop=stop,
            )
        except ApiError as error:
            _log.warning("could not check whether the API server calls the webhooks: %s", error)

    def _await_storage(self, kinds: Sequence[Kind], stop: StopSignal | None) -> None:
        if not kinds or not self._patience:
            return
        try:
            await_storage(self._client, kinds, timeout=self._patience, clock=self._clock, stop=stop)
        except TimeoutError as error:
            # A stored object that cannot be converted is to be found out by its error, too.
            _log.warning("%s", error)
