"""Install webhook configurations whose webhooks run in the test, and remove them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from appsdk_operator.client import AlreadyExists, Client, NotFound
from appsdk_operator.resource import AnyObject, Kind, MutableObject, Object
from appsdk_operator.runtime import Clock, get_logger, system_clock, validation
from appsdk_operator.testing._install.manifests import check_webhook_url, manifests, point_to_url
from appsdk_operator.webhooks import (
    CONFIGURATION_KINDS,
    DevelopmentServer,
    Probe,
    WebhookHost,
    WebhookServer,
    despite_conflicts,
    remove_configurations,
    webhook_configurations,
    write_until_obeyed,
)

_log: Final = get_logger("appsdk_operator.testing")

_KINDS: Final = {kind.kind: kind for kind in CONFIGURATION_KINDS.values()}
_NAME: Final = "test-webhooks"
_LABEL: Final = "appsdk-operator.io/test-webhooks"
"""On configurations that were made of rules here: its value is their name."""


def install_webhooks(
    client: Client,
    webhooks: Iterable[MutableObject | str | Path] | WebhookHost,
    *,
    server: WebhookServer | DevelopmentServer | None = None,
    webhook_url: str = "",
    webhook_ca: bytes = b"",
    name: str = _NAME,
    timeout: float = 10.0,
    clock: Clock = system_clock,
) -> list[Object]:
    """Create or update webhook configurations that call a server of the test, as envtest does.

    Returns when the API server obeys the configurations. A real server does so only some moments
    later. To notice that, the kit adds a webhook to the configurations for a while, and creates
    config maps with a label of their own by dry run.

    The webhook server need not run yet; a log line says what that means.

    Configurations made from rules replace the ones that an earlier call made under the same name,
    even a type that has no rules any more. If a test has two servers, give the second one another
    ``name``, so that it does not replace the webhooks of the first.

    Args:
        client: where to install.
        webhooks: MutatingWebhookConfigurations and ValidatingWebhookConfigurations: objects, YAML
            files, or folders of YAML files; objects of other kinds in files are ignored. Or a
            WebhookServer, or a Manager with one: the kit makes the configurations from the rules of
            its webhooks.
        server: the webhook server of the test, whose address and certificate the configurations
            get; default: the server in ``webhooks``, or as the next two arguments say.
        webhook_url: the address of the webhook server, without a path: ``https://127.0.0.1:9443``.
            If a webhook names a service, it gets this address with the service's path; a webhook
            with a URL keeps its URL.
        webhook_ca: the PEM certificates of the authority that signed the webhook server's
            certificate; default: the ``caBundle`` of the configurations stays.
        name: the name of configurations made from rules; default ``test-webhooks``.
        timeout: seconds to wait until the server obeys; default 10, as in envtest. 0: do not wait.
        clock: the clock that measures the wait.

    Returns:
        The configurations as the server stored them, for :func:`remove_webhooks`.

    Raises:
        TypeError: one is neither, or ``webhooks`` is not a list.
        ValueError: the URL is not one of HTTPS without a path, a file is not YAML, or there is no
            configuration in it.
        ApiError: the server refused one.
        TimeoutError: the server does not obey them in time.
    """
    validation.checked_seconds("timeout", timeout)
    if isinstance(webhooks, (MutableObject, str, Path)):
        raise TypeError(f"webhooks={webhooks!r}: give a list, [{webhooks!r}]")
    if not isinstance(webhooks, Iterable):
        server = server or _server_of(webhooks, webhook_url)
    if server is not None:
        webhook_url = webhook_url or server.url
        webhook_ca = webhook_ca or _authority_of(server)
        _warn_if_it_does_not_run(server)
    check_webhook_url(webhook_url)
    drafts: list[MutableObject] = []
    if isinstance(webhooks, Iterable):
        drafts += [draft for source in webhooks for draft in _load(source)]
        made = ""
    else:
        labels, made = {_LABEL: name}, name
        drafts += webhook_configurations(
            webhooks, name=name, url=webhook_url, ca=webhook_ca, labels=labels
        )
    for draft in drafts:
        for webhook in draft.get("webhooks") or []:
            point_to_url(webhook.setdefault("clientConfig", {}), webhook_url, webhook_ca)

    def write(draft: MutableObject) -> Object:
        return _create_or_update(client, draft)

    installed = write_until_obeyed(client, drafts, write, timeout=timeout, clock=clock)
    stale = _made_before(client, made, drafts) if made else []
    if stale:
        remove_webhooks(client, stale, timeout=timeout, clock=clock)
    return installed


def remove_webhooks(
    client: Client,
    installed: Iterable[AnyObject],
    *,
    timeout: float = 10.0,
    clock: Clock = system_clock,
) -> None:
    """Delete webhook configurations, and wait until the API server no longer calls them.

    Args:
        client: where they are installed.
        installed: what :func:`install_webhooks` returned; what is gone already is skipped.
        timeout: seconds to wait until the server has noticed; default 10. 0: do not wait.
        clock: the clock that measures the wait.

    Raises:
        ApiError: the server refused it.
        TimeoutError: the server still obeys them.
    """
    validation.checked_seconds("timeout", timeout)
    present = [MutableObject.new(each.kind, each.name) for each in installed]
    if timeout:
        # Once it obeys what has the probe alone, it obeys nothing of what was there before.
        probe = Probe()
        emptied = [draft for draft in probe.added_to(present) if _update(client, draft) is not None]
        probe.wait(client, emptied, present=True, timeout=timeout, clock=clock)
    remove_configurations(client, present)


def _made_before(client: Client, name: str, drafts: Iterable[MutableObject]) -> list[Object]:
    """The configurations that were made of rules under this name, and are not among ``drafts``."""
    present = {draft.kind for draft in drafts}
    found = []
    for kind in _KINDS.values():
        if kind not in present:
            with contextlib.suppress(NotFound):
                found.append(client.get(kind, name))
    return [each for each in found if each.labels.get(_LABEL) == name]


def _warn_if_it_does_not_run(server: WebhookServer | DevelopmentServer) -> None:
    health = server.health()
    if not health.is_ready:
        _log.warning(
            "webhooks are installed, and %s: until it runs, writes that they are asked about wait "
            "for timeoutSeconds and fail; start it before, with running(…)",
            health.text,
        )


def _server_of(host: Any, url: str) -> WebhookServer | DevelopmentServer | None:
    """The server of a host, which may be one itself; None where an address is given instead."""
    server = host if hasattr(host, "url") else getattr(host, "webhook_server", None)
    if server is None and not url:
        raise TypeError(
            f"{host!r} has no server: give it with server=, or its address with webhook_url="
        )
    return server


def _authority_of(server: Any) -> bytes:
    """The PEM certificates that verify a server; empty where it does not say."""
    source = getattr(server, "certificates", server)
    pem = getattr(source, "pem", None)
    if pem is None:
        bundle = getattr(source, "ca_bundle", None)
        pem = bundle() if callable(bundle) else None
    return pem if isinstance(pem, bytes) else b""


def _load(source: Any) -> list[MutableObject]:
    if isinstance(source, MutableObject):
        if source.kind.kind not in _KINDS:
            raise TypeError(f"{source.kind} is not a webhook configuration")
        return [MutableObject(source.kind, copy.deepcopy(source.to_dict()))]
    if not isinstance(source, (str, Path)):
        raise TypeError(f"{source!r}: give an object, a file or a folder")
    found = []
    for _, document in manifests(source):
        kind = _KINDS.get(document.get("kind", "")) if isinstance(document, dict) else None
        if kind is not None:
            found.append(MutableObject(kind, document))
    if not found:
        raise ValueError(f"{source}: holds none of {', '.join(_KINDS)}")
    return found


def _create_or_update(client: Client, draft: MutableObject) -> Object:
    try:
        return client.create(draft)
    except AlreadyExists:
        updated = _update(client, draft)
        return client.create(draft) if updated is None else updated


def _update(client: Client, draft: MutableObject) -> Object | None:
    """Replace the webhooks of a configuration; None if there is none."""
    return despite_conflicts(lambda: _try_to_update(client, draft))


def _try_to_update(client: Client, draft: MutableObject) -> Object | None:
    kind: Kind = draft.kind
    try:
        present = client.get(kind, draft.name).mutable_copy()
        present["webhooks"] = draft.get("webhooks")
        if labels := draft["metadata"].get("labels"):
            present.labels.update(labels)
        return client.update(present)
    except NotFound:
        return None
