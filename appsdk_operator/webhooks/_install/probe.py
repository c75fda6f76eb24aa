"""A probe: whether an API server obeys a webhook configuration yet, which takes some moments."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

from appsdk_operator.client import ApiError, ClientError, ClientLike
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.resource.kinds import core
from appsdk_operator.runtime import Clock, StopSignal

_LABEL: Final = "appsdk-operator.io/probe"
_NAME: Final = "probe.appsdk-operator.io"
_NAMESPACE: Final = "default"
_INTERVAL: Final = 0.05


@final
class Probe:
    """A webhook that is added to configurations, and is for objects with a label of its own only.

    Nothing answers it: so a dry-run creation of such an object fails, with the webhook's name in
    the error, from the moment on in which the server obeys the configuration.
    """

    def __init__(self) -> None:
        """A probe with a label of its own."""
        self._token = secrets.token_hex(8)

    def added_to(self, configurations: Iterable[MutableObject]) -> list[MutableObject]:
        """Copies of the configurations, with the probe as the first webhook of each."""
        found = []
        for each in configurations:
            copy = MutableObject(each.kind, each.to_dict())
            others = [one for one in copy.get("webhooks") or [] if not _is_probe(one)]
            copy["webhooks"] = [self._webhook(each), *others]
            found.append(copy)
        return found

    def wait(
        self,
        client: ClientLike,
        configurations: Iterable[MutableObject],
        *,
        present: bool,
        timeout: float,
        clock: Clock,
        stop: StopSignal | None = None,
    ) -> bool:
        """Wait until the server obeys all of the configurations, or none of them any more.

        Returns:
            False when stopped.

        Raises:
            TimeoutError: after ``timeout`` seconds.
            ApiError: the server refuses the probe, such as for want of permissions.
        """
        deadline = clock.monotonic() + timeout
        stop = stop or StopSignal(clock=clock)
        for each in configurations:
            while self._is_asked(client, each) != present:
                left = deadline - clock.monotonic()
                if left <= 0:
                    state = "does not obey" if present else "still obeys"
                    raise TimeoutError(
                        f"the API server {state} {each.kind.kind} {each.name} after {timeout:g} s"
                    )
                if stop.wait(min(_INTERVAL, left)):
                    return False
        return True

    def _is_asked(self, client: ClientLike, configuration: MutableObject) -> bool:
        draft = MutableObject.new(core.v1.ConfigMap, f"probe-{self._token}", namespace=_NAMESPACE)
        draft.labels[_LABEL] = self._value(configuration)
        try:
            client.create(draft, dry_run=True)
        except ApiError as error:
            # Webhooks of the user may be for config maps as well.
            names = [str(each.get("name")) for each in configuration.get("webhooks") or []]
            if any(f'"{name}"' in error.message for name in [self._name(configuration), *names]):
                return True
            raise
        return False

    def _value(self, configuration: MutableObject) -> str:
        return f"{self._token}-{configuration.kind.kind[:8].lower()}"

    @staticmethod
    def _name(configuration: MutableObject) -> str:
        return f"{configuration.kind.kind[:8].lower()}.{_NAME}"

    def _webhook(self, configuration: MutableObject) -> dict[str, Any]:
        return {
            "name": self._name(configuration),
            # No program listens on port 1.
            "clientConfig": {"url": "https://127.0.0.1:1/probe"},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["configmaps"],
                    "scope": "Namespaced",
                }
            ],
            "objectSelector": {"matchLabels": {_LABEL: self._value(configuration)}},
            "failurePolicy": "Fail",
            "matchPolicy": "Exact",
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"],
        }


def write_until_obeyed(
    client: ClientLike,
    configurations: Sequence[MutableObject],
    write: Callable[[MutableObject], Object],
    *,
    timeout: float,
    clock: Clock,
) -> list[Object]:
    """Write configurations with a probe, and once the server obeys them without it.

    After a failure those that have the probe are written without it as well. With a timeout of 0
    they are just written.

    Raises:
        TimeoutError, ApiError: as :meth:`Probe.wait` and ``write``.
    """
    if timeout:
        probe = Probe()
        probed: list[MutableObject] = []
        try:
            for draft, with_probe in zip(
                configurations, probe.added_to(configurations), strict=True
            ):
                write(with_probe)
                probed.append(draft)
            probe.wait(client, configurations, present=True, timeout=timeout, clock=clock)
        except BaseException:
            for draft in probed:
                with contextlib.suppress(ClientError):  # the first failure is what is reported
                    write(draft)
            raise
    return [write(draft) for draft in configurations]


def _is_probe(webhook: Any) -> bool:
    return isinstance(webhook, dict) and str(webhook.get("name", "")).endswith(f".{_NAME}")
