"""Install webhook configurations and conversions of CRDs, and remove them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from appsdk_operator.client import ClientLike, Conflict, NotFound
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.resource.kinds import apiextensions
from appsdk_operator.runtime import Clock, get_logger, system_clock, validation
from appsdk_operator.webhooks._install.configurations import CONFIGURATION_KINDS
from appsdk_operator.webhooks._install.probe import write_until_obeyed

_log: Final = get_logger("appsdk_operator.webhooks")

FIELD_MANAGER: Final = "appsdk-operator-webhooks"
_CRD: Final = apiextensions.v1.CustomResourceDefinition
_FORMER: Final = "appsdk-operator.io/former-conversion"
_ATTEMPTS: Final = 10
_T = TypeVar("_T")


def install_configurations(
    client: ClientLike,
    configurations: Iterable[MutableObject],
    *,
    field_manager: str = FIELD_MANAGER,
    wait: float = 0.0,
    clock: Clock = system_clock,
) -> list[Object]:
    """Install webhook configurations, or update them, with server-side apply.

    If ``field_manager`` installed a webhook before that a configuration no longer has, the server
    removes it. A ``caBundle`` that somebody else injected stays, if ``configurations`` have none.

    Args:
        client: the client of the cluster; its account needs ``get``, ``create`` and ``patch`` on
            configurations.
        configurations: the configurations that :func:`webhook_configurations` made.
        field_manager: the owner of the fields; it takes over fields of other owners. Default
            ``appsdk-operator-webhooks``.
        wait: the most seconds to wait until the server calls the webhooks, usually about one; 0
            (default): do not wait. For the wait, it adds a webhook for config maps with a special
            label, and creates such config maps in namespace ``default`` as a dry run.
        clock: the clock of the wait.

    Returns:
        The configurations as the server stored them.

    Raises:
        TypeError: ``configurations`` is not a list of configurations.
        ApiError: the server refused one.
        TimeoutError: the server does not call the webhooks after ``wait`` seconds.
    """
    drafts = _checked(configurations)
    validation.checked_seconds("wait", wait)

    def write(draft: MutableObject) -> Object:
        return client.apply(draft, field_manager=field_manager, force=True)

    return write_until_obeyed(client, drafts, write, timeout=wait, clock=clock)


def remove_configurations(client: ClientLike, configurations: Iterable[MutableObject]) -> None:
    """Delete webhook configurations; missing ones are skipped.

    Raises:
        TypeError: ``configurations`` is not a list of configurations.
        ApiError: the server refused the deletion.
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
            raise TypeError(f"{what} is not a webhook configuration: see webhook_configurations(…)")
    return found


def despite_conflicts(write: Callable[[], _T]) -> _T:
    """The result of ``write``, which reads the object anew for each of its ten attempts.

    A server's own controllers write conditions of new definitions, and some inject a ``caBundle``.

    Raises:
        Conflict: of the last attempt.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return write()
        except Conflict:
            continue
    return write()


def conversion_owner(client: ClientLike, kind: Kind) -> str:
    """Who installed a conversion by :func:`install_conversion`; empty: nobody.

    Raises:
        NotFound: there is no such CRD.
    """
    return str(_former(client.get(_CRD, kind.qualified_name)).get("owner") or "")


def install_conversion(
    client: ClientLike, kind: Kind, client_config: Mapping[str, Any], *, owner: str
) -> Object:
    """Have a CRD's versions converted by a webhook, and remember what did it before.

    Args:
        client: where the CRD is; it needs ``get`` and ``update`` of CRDs.
        kind: the kind, in any of its versions.
        client_config: the address of the webhook, see :func:`client_config`.
        owner: who did it, for :func:`conversion_owner`.

    Raises:
        NotFound: there is no such CRD.
        ApiError: the server refused it.
    """

    def change(crd: MutableObject) -> None:
        # What a killed process left is not what was before.
        former = _former(crd).get("conversion") or crd["spec"].get("conversion")
        memory = {"owner": owner, "conversion": former or {"strategy": "None"}}
        crd.annotations[_FORMER] = json.dumps(memory, separators=(",", ":"))
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": dict(client_config), "conversionReviewVersions": ["v1"]},
        }

    return _change(client, kind, change)


def restore_conversion(client: ClientLike, kind: Kind, *, owner: str) -> None:
    """Undo :func:`install_conversion`; does nothing where this owner has nothing to undo.

    Raises:
        ApiError: the server refused it.
    """

    def change(crd: MutableObject) -> None:
        memory = _former(crd)
        if memory.get("owner") == owner:
            del crd.annotations[_FORMER]
            crd["spec"]["conversion"] = memory["conversion"]

    try:
        _change(client, kind, change)
    except NotFound:
        _log.info("the CRD of %s is gone already", kind.qualified_name)


def _former(crd: Any) -> dict[str, Any]:
    try:
        memory = json.loads(crd.annotations.get(_FORMER) or "{}")
    except (ValueError, RecursionError):
        return {}
    return memory if isinstance(memory, dict) else {}


def _change(client: ClientLike, kind: Kind, change: Callable[[MutableObject], None]) -> Object:
    return despite_conflicts(lambda: _try(client, kind, change))


def _try(client: ClientLike, kind: Kind, change: Callable[[MutableObject], None]) -> Object:
    stored = client.get(_CRD, kind.qualified_name)
    draft = stored.mutable_copy()
    change(draft)
    if draft.to_dict() == stored.to_dict():
        return stored
    return client.update(draft, field_manager=FIELD_MANAGER)
