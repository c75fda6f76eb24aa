"""The permissions that follow from an App's declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from appsdk_operator.app._declarations import (
    Background,
    Declarations,
    Handler,
    Reconciling,
    Timer,
    Use,
    Watched,
)
from appsdk_operator.app._kinds import owned_kinds
from appsdk_operator.app._kopf import Kopf
from appsdk_operator.app._kopf_peers import CLUSTER_PEERINGS, PEERINGS
from appsdk_operator.app._permission import Permission, merged
from appsdk_operator.app._selection import common_selectors
from appsdk_operator.manager import ManagerOptions
from appsdk_operator.resource import Kind, kinds

_POD: Final = ""
"""The namespace of the operator's pods."""
_FOLLOW: Final = ("list", "watch")
_MANAGE: Final = ("get", "create", "update", "patch", "delete")
_LEASES: Final = kinds.coordination.v1.Lease
_EVENTS: Final = kinds.events.v1.Event
_LEGACY_EVENTS: Final = kinds.core.v1.Event


def permissions_of(
    name: str,
    declared: Declarations,
    options: ManagerOptions,
    adopt: Kopf | None,
    *,
    is_remembered: Callable[[Kind[Any, Any]], bool],
) -> tuple[Permission, ...]:
    """The permissions of an app of this name with these options, merged and in order.

    Raises:
        ValueError: the declarations do not fit together.
    """
    found = merged(
        [
            *_of_watchers(declared, is_remembered),
            *_of_reconcilers(declared),
            *_of_timers(declared, adopts=adopt is not None),
            *_of_backgrounds(declared),
            *_of_status(declared),
            *_of_results(declared),
            *_of_indexes(declared),
            *_of_uses(declared),
            *_of_events(name, declared, options),
            *_of_election(name, options),
            *_of_webhooks(declared, options),
            *_of_metrics(options),
            *_of_namespaces(options),
            *_of_adoption(declared, options, adopt),
        ]
    )
    if options.cache is not None and options.cache.namespace_names:
        return found
    return tuple(each for each in found if not any(_covers(other, each) for other in found))


def _covers(wide: Permission, narrow: Permission) -> bool:
    """Whether a permission everywhere makes another one needless."""
    return (
        wide.namespace is None
        and narrow.namespace is not None
        and (wide.groups, wide.resources) == (narrow.groups, narrow.resources)
        and wide.names in ((), narrow.names)
        and set(wide.verbs) >= set(narrow.verbs)
    )


def _of_watchers(
    declared: Declarations, is_remembered: Callable[[Kind[Any, Any]], bool]
) -> Iterator[Permission]:
    marked = {e.kind for e in declared.watching if isinstance(e, Handler) and e.cause != "update"}
    protected = {each.kind for each in declared.backgrounds}
    for each in declared.watching:
        yield _on(each.kind, _FOLLOW, f"watchers get the events of {each.kind.plural}")
        verbs = ("get", "patch")
        if isinstance(each, Handler):
            if each.kind in marked or is_remembered(each.kind):
                reason = f"functions mark the {each.kind.plural} that they handle"
                yield _on(each.kind, verbs, reason)
            elif each.kind not in protected:
                reason = f"a finalizer of an earlier release is taken off {each.kind.plural}"
                yield _on(each.kind, verbs, reason)
        elif _has_finalizer(each):
            yield _on(each.kind, verbs, f"a watcher has a finalizer on {each.kind.plural}")


def _has_finalizer(watched: Watched) -> bool:
    return getattr(watched.target, "finalizer_lifecycle", None) is not None


def _of_reconcilers(declared: Declarations) -> Iterator[Permission]:
    for each in declared.reconciling:
        yield from _of_reconciler(each)


def _of_reconciler(declared: Reconciling) -> Iterator[Permission]:
    kind, name = declared.kind, declared.name
    yield _on(kind, _FOLLOW, f"reconciler {name} gets the events of {kind.plural}")
    for other in declared.watches:
        yield _on(other, _FOLLOW, f"reconciler {name} gets the events of {other.plural}")
    for owned in declared.owns:
        yield _on(owned, _FOLLOW, f"reconciler {name} gets the events of {owned.plural}")
        yield _on(owned, _MANAGE, f"reconciler {name} makes {owned.plural}")
    if declared.owns:
        # What OwnerReferencesPermissionEnforcement asks for, for blockOwnerDeletion.
        reason = f"what reconciler {name} makes refers to its owner"
        yield _on(kind, ("update",), reason, subresource="finalizers")


def _of_timers(declared: Declarations, *, adopts: bool) -> Iterator[Permission]:
    selected = common_selectors(declared, adopts=adopts)
    for each in declared.timers:
        if each.kind is not None:
            reason = f"timer {each.name} is called for each of the {each.kind.plural}"
            yield _on(each.kind, _FOLLOW, reason)
            if each.kind in selected:
                reason = f"the cache has some {each.kind.plural} only, and app.client reads all"
                yield _on(each.kind, ("get",), reason)


def _of_backgrounds(declared: Declarations) -> Iterator[Permission]:
    for each in declared.backgrounds:
        reason = f"{each.name} runs for each of the {each.kind.plural}"
        yield _on(each.kind, _FOLLOW, reason)
        reason = f"a finalizer on {each.kind.plural} is there until {each.name} has ended"
        yield _on(each.kind, ("get", "patch"), reason)


def _of_status(declared: Declarations) -> Iterator[Permission]:
    """For the app's own kinds, whose status nobody else writes."""
    own = {each.hub.qualified_name for each in owned_kinds(declared)}
    handled: list[Handler | Watched | Reconciling | Timer | Background] = [
        *declared.watching,
        *declared.reconciling,
        *declared.timers,
        *declared.backgrounds,
    ]
    for each in handled:
        kind = each.kind
        if kind is not None and kind.qualified_name in own:
            reason = f"its functions write the status of {kind.plural}"
            yield _on(kind, ("get", "update", "patch"), reason, subresource="status")


def _of_indexes(declared: Declarations) -> Iterator[Permission]:
    for each in declared.indexes:
        yield _on(each.kind, _FOLLOW, f"an index of {each.kind.plural} by {each.path}")


def _of_results(declared: Declarations) -> Iterator[Permission]:
    for each in (*declared.watching, *declared.timers):
        path = None if isinstance(each, Watched) else each.result
        if path is not None and each.kind is not None:
            reason = f"what functions return is written to {path} of {each.kind.plural}"
            yield _on(each.kind, ("patch",), reason, subresource="status")
            reason = f"{path} is written to the current state of {each.kind.plural}"
            yield _on(each.kind, ("get",), reason)


def _of_uses(declared: Declarations) -> Iterator[Permission]:
    for use in declared.uses:
        if use.verbs:
            yield _of_use(use)


def _of_use(use: Use) -> Permission:
    plural = use.kind.plural
    return Permission(
        groups=[use.kind.group],
        resources=[plural, *(f"{plural}/{each}" for each in use.subresources)],
        verbs=use.verbs,
        names=use.names,
        namespace=use.namespace,
        is_cluster_wide=not use.kind.is_namespaced,
        reasons=[use.reason] if use.reason else [],
    )


def _of_events(name: str, declared: Declarations, options: ManagerOptions) -> Iterator[Permission]:
    legacy = options.events is not None and options.events.legacy
    kind = _LEGACY_EVENTS if legacy else _EVENTS
    verbs = ("create", "patch")
    yield _on(kind, verbs, f"Events of {name} about what it handles")
    if any(not each.is_namespaced for each in declared.handled):
        # Where the API wants those about objects without a namespace.
        place = "default" if legacy else "kube-system"
        yield _on(kind, verbs, f"Events of {name} about objects of no namespace", namespace=place)
    election = options.leader_election
    if election is not None:
        place = _POD if election.namespace is None else election.namespace
        yield _on(kind, verbs, f"Events about who leads {name}", namespace=place)


def _of_election(name: str, options: ManagerOptions) -> Iterator[Permission]:
    election = options.leader_election
    if election is None:
        return
    place = _POD if election.namespace is None else election.namespace
    reason = f"the leader election of {name}"
    yield _on(_LEASES, ("get", "update"), reason, names=[election.id], namespace=place)
    # The name of what is created is not known to RBAC.
    yield _on(_LEASES, ("create",), reason, namespace=place)


def _of_webhooks(declared: Declarations, options: ManagerOptions) -> Iterator[Permission]:
    is_served = declared.defaulters or declared.validators or declared.webhooks
    has_conversions = any(len(each.kinds) > 1 for each in owned_kinds(declared))
    certificates = getattr(options.webhook_server, "certificates", None)
    if not (is_served or has_conversions) or certificates is None:
        return
    from appsdk_operator.webhooks import ManagedCertificates

    if not isinstance(certificates, ManagedCertificates):
        return
    for rule in certificates.role_rules():
        reason = "its Secret has the certificates of the webhooks"
        yield _of_rule(rule, reason, namespace=certificates.namespace)
    for rule in certificates.cluster_role_rules():
        reason = "it gives them the authority of the webhooks' certificates"
        yield _of_rule(rule, reason, is_cluster_wide=True)


def _of_rule(rule: Mapping[str, Any], reason: str, **where: Any) -> Permission:
    return Permission(
        groups=rule["apiGroups"],
        resources=rule["resources"],
        verbs=rule["verbs"],
        names=rule.get("resourceNames", ()),
        reasons=[reason],
        **where,
    )


def _of_metrics(options: ManagerOptions) -> Iterator[Permission]:
    if options.metrics_server is None or options.metrics_server.filter_provider is None:
        return
    for kind in (
        kinds.authentication.v1.TokenReview,
        kinds.authorization.v1.SubjectAccessReview,
    ):
        yield _on(kind, ("create",), "it asks who may read the metrics")


def _of_namespaces(options: ManagerOptions) -> Iterator[Permission]:
    selector = None if options.cache is None else options.cache.namespace_selector
    if selector is not None:
        reason = (
            f"it works in the namespaces {selector}, and follows which there are; what it does in "
            "them is allowed in all, because a role cannot tell which will match"
        )
        yield _on(kinds.core.v1.Namespace, _FOLLOW, reason)


def _of_adoption(
    declared: Declarations, options: ManagerOptions, adopt: Kopf | None
) -> Iterator[Permission]:
    if adopt is None:
        return
    for each in (*declared.watching, *declared.timers, *declared.backgrounds):
        if each.kind is not None and not isinstance(each, Watched):
            reason = f"it takes off what kopf has left on {each.kind.plural}"
            yield _on(each.kind, ("get", "patch"), reason)
    if adopt.peering is None:
        return
    reason = "it does not start while an operator with kopf runs"
    names = [adopt.peering]
    for kind in CLUSTER_PEERINGS:
        yield _on(kind, ("get",), reason, names=names)
    for kind in PEERINGS:
        if options.cache is not None and options.cache.namespace_names:
            yield _on(kind, ("get",), reason, names=names)
        else:
            yield _on(kind, ("list",), reason)


def _on(
    kind: Kind[Any, Any],
    verbs: Iterable[str],
    reason: str,
    *,
    subresource: str = "",
    names: Iterable[str] = (),
    namespace: str | None = None,
) -> Permission:
    return Permission(
        groups=[kind.group],
        resources=[f"{kind.plural}/{subresource}" if subresource else kind.plural],
        verbs=verbs,
        names=names,
        namespace=namespace,
        is_cluster_wide=not kind.is_namespaced,
        reasons=[reason],
    )
