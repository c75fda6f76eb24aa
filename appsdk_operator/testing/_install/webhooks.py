"""Install webhook configurations whose webhooks run in the test."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from appsdk_operator.client import AlreadyExists, Client
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.resource.kinds import admissionregistration
from appsdk_operator.testing._install.manifests import check_webhook_url, manifests, point_to_url

__all__ = ["install_webhooks"]

_KINDS: Final = {
    kind.kind: kind
    for kind in (
        admissionregistration.v1.MutatingWebhookConfiguration,
        admissionregistration.v1.ValidatingWebhookConfiguration,
    )
}


def install_webhooks(
    client: Client,
    webhooks: Iterable[MutableObject | str | Path],
    *,
    webhook_url: str,
    webhook_ca: bytes = b"",
) -> list[Object]:
    """Create or update webhook configurations that call a server of the test, as envtest does.

    A webhook that names a service gets ``webhook_url`` with the service's path, and ``webhook_ca``.
    The embedded server applies a configuration at once, a real one within about a second.

    Args:
        client: where to install.
        webhooks: MutatingWebhookConfigurations and ValidatingWebhookConfigurations: objects, YAML
            files, or folders of YAML files; objects of other kinds in files are ignored.
        webhook_url: where the webhooks are served, without a path: ``https://127.0.0.1:9443``.
        webhook_ca: the PEM certificates of the authority that signed the webhook server's
            certificate; default: the ``caBundle`` of the configurations stays.

    Returns:
        The configurations as the server stored them.

    Raises:
        TypeError: one is neither, or ``webhooks`` is no list.
        ValueError: the URL is not one of HTTPS without a path, a file is not YAML, or there is no
            configuration in it.
        ApiError: the server refused one.
    """
    check_webhook_url(webhook_url)
    if isinstance(webhooks, (MutableObject, str, Path)):
        raise TypeError(f"webhooks={webhooks!r}: give a list, [{webhooks!r}]")
    drafts = [draft for source in webhooks for draft in _load(source)]
    for draft in drafts:
        for webhook in draft.get("webhooks") or []:
            point_to_url(webhook.setdefault("clientConfig", {}), webhook_url, webhook_ca)
    return [_create_or_update(client, draft) for draft in drafts]


def _load(source: Any) -> list[MutableObject]:
    if isinstance(source, MutableObject):
        if source.kind.kind not in _KINDS:
            raise TypeError(f"{source.kind} is no webhook configuration")
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
        present = client.get(draft.kind, draft.name).mutable_copy()
        present["webhooks"] = draft.get("webhooks")
        return client.update(present)
