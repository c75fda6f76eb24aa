"""Install webhook configurations and conversions of CRDs, and remove them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from appsdk_operator.client import ClientLike, Conflict, NotFound
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.resource.kinds import apiextensions
from appsdk_operator.runtime import get_logger
from appsdk_operator.webhooks._install.configurations import CONFIGURATION_KINDS

__all__ = [
    "FIELD_MANAGER",
    "install_configurations",
    "install_conversion",
    "remove_configurations",
    "restore_conversion",
]

_log: Final = get_logger("appsdk_operator.webhooks")

FIELD_MANAGER: Final = "appsdk-operator-webhooks"
_CRD: Final = apiextensions.v1.CustomResourceDefinition
_FORMER: Final = "appsdk-operator.io/former-conversion"
_ATTEMPTS: Final = 10


def install_configurations(
    client: ClientLike,
    configurations: Iterable[MutableObject],
    *,
    field_manager: str = FIELD_MANAGER,
) -> list[Object]:
    """Install webhook configurations, or update them, by server-side apply.

    Webhooks that this manager installed before and that are no longer in a configuration are
    removed from it. A ``caBundle`` that somebody else injected stays, if ``configurations`` have
    none.

    Args:
        client: where to install; it needs ``get``, ``create`` and ``patch`` of configurations.
        configurations: what :func:`webhook_configurations` made.
        field_manager: the owner of the fields; it takes over those of others. Default
            ``appsdk-operator-webhooks``.

    Returns:
        The configurations as the server stored them.

    Raises:
        TypeError: one is no configuration, or it is no list.
        ApiError: the server refused one.
    """
    drafts = _checked(configurations)
    return [client.apply(draft, field_manager=field_manager, force=True) for draft in drafts]


def remove_configurations(client: ClientLike, configurations: Iterable[MutableObject]) -> None:
    """Delete webhook configurations; those that are not there are skipped.

    Raises:
        TypeError: one is no configuration, or it is no list.
        ApiError: the server refused it.
    """
    for draft in _checked(configurations):
        try:
            client.delete(draft.kind, draft.name)
        except NotFound:
            continue


def _checked(configurations: Any) -> list[MutableObject]:
    if isinstance(configurations, (MutableObject, str, bytes)):
        raise TypeError(f"configurations={configurations!r}: give a list")
    found = list(configurations)
    for each in found:
        if not isinstance(each, MutableObject) or each.kind not in CONFIGURATION_KINDS.values():
            what = each.kind if isinstance(each, MutableObject) else type(each).__name__
            raise TypeError(f"{what} is no webhook configuration: see webhook_configurations(…)")
    return found


def install_conversion(client: ClientLike, kind: Kind, client_config: Mapping[str, Any]) -> Object:
    """Have a CRD's versions converted by a webhook, and remember what did it before.

    Args:
        client: where the CRD is; it needs ``get`` and ``update`` of CRDs.
        kind: the kind, in any of its versions.
        client_config: the address of the webhook, see :func:`client_config`.

    Raises:
        NotFound: there is no such CRD.
        ApiError: the server refused it.
    """

    def change(crd: MutableObject) -> None:
        before = crd["spec"].get("conversion") or {"strategy": "None"}
        # What a killed process left is not what was before.
        crd.annotations.setdefault(_FORMER, json.dumps(before, separators=(",", ":")))
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": dict(client_config), "conversionReviewVersions": ["v1"]},
        }

    return _change(client, kind, change)


def restore_conversion(client: ClientLike, kind: Kind) -> None:
    """Undo :func:`install_conversion`; does nothing where there is nothing to undo.

    Raises:
        ApiError: the server refused it.
    """

    def change(crd: MutableObject) -> None:
        former = crd.annotations.pop(_FORMER, None)
        if former is not None:
            crd["spec"]["conversion"] = json.loads(former)

    try:
        _change(client, kind, change)
    except NotFound:
        _log.info("the CRD of %s is gone already", kind.qualified_name)


def _change(client: ClientLike, kind: Kind, change: Callable[[MutableObject], None]) -> Object:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _try(client, kind, change)
        except Conflict:
            continue  # somebody else changed it meanwhile
    return _try(client, kind, change)


def _try(client: ClientLike, kind: Kind, change: Callable[[MutableObject], None]) -> Object:
    stored = client.get(_CRD, kind.qualified_name)
    draft = stored.mutable_copy()
    change(draft)
    if draft.to_dict() == stored.to_dict():
        return stored
    return client.update(draft, field_manager=FIELD_MANAGER)
