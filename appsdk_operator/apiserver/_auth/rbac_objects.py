"""Writes to roles and bindings: defaults, validation, and the escalation check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._auth.authorization import RequestAttributes, check
from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP
from appsdk_operator.apiserver._auth.rbac import RBACAuthorizer, RoleNotFoundError
from appsdk_operator.apiserver._auth.rbac_rules import EVERYTHING, Rule, rule_text, uncovered
from appsdk_operator.apiserver._storage.resources import NameStyle, Strategy
from appsdk_operator.apiserver._values.status import (
    FieldError,
    forbidden,
    not_found,
)
from appsdk_operator.apiserver._values.users import MASTERS, User

_KINDS: Final = ("ServiceAccount", "User", "Group")
_ROLES: Final = ("roles", "clusterroles")
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")


# -- defaults --------------------------------------------------------------------------------


def _default_role(obj: dict[str, Any]) -> None:
    obj["rules"] = obj.get("rules") or None


def _default_binding(obj: dict[str, Any]) -> None:
    reference = obj.setdefault("roleRef", {})
    if isinstance(reference, dict) and not reference.get("apiGroup"):
        reference["apiGroup"] = RBAC_GROUP
    for subject in obj.get("subjects") or ():
        if isinstance(subject, dict) and not subject.get("apiGroup"):
            if subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = RBAC_GROUP
            else:
                subject.pop("apiGroup", None)
    if not obj.get("subjects"):
        obj.pop("subjects", None)


# -- validation ------------------------------------------------------------------------------


def _validate_role(new: dict[str, Any], _old: dict[str, Any] | None) -> Iterator[FieldError]:
    cluster = new.get("kind") == "ClusterRole"
    yield from _rule_errors(new.get("rules") or (), namespaced=not cluster)
    if cluster and new.get("aggregationRule") is not None:
        yield from _aggregation_errors(new["aggregationRule"])


def _rule_errors(rules: Any, *, namespaced: bool) -> Iterator[FieldError]:
    for index, rule in enumerate(rules):
        field = f"rules[{index}]"
        if not rule.get("verbs"):
            yield FieldError.required(f"{field}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                yield FieldError.invalid(
                    f"{field}.nonResourceURLs",
                    urls,
                    "namespaced rules cannot apply to non-resource URLs",
                )
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                yield FieldError.invalid(
                    f"{field}.nonResourceURLs",
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            continue
        if not rule.get("apiGroups"):
            yield FieldError.required(
                f"{field}.apiGroups", "resource rules must supply at least one api group"
            )
        if not rule.get("resources"):
            yield FieldError.required(
                f"{field}.resources", "resource rules must supply at least one resource"
            )


def _aggregation_errors(rule: Any) -> Iterator[FieldError]:
    selectors = rule.get("clusterRoleSelectors")
    if not selectors:
        yield FieldError.required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        )
    for index, selector in enumerate(selectors or ()):
        field = f"aggregationRule.clusterRoleSelectors[{index}]"
        wrong = False
        for number, term in enumerate(selector.get("matchExpressions") or ()):
            if term.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
                wrong = True
                yield FieldError.invalid(
                    f"{field}.matchExpressions[{number}].operator",
                    term.get("operator", ""),
                    "not a valid selector operator",
                )
        if wrong:
            yield FieldError.invalid(field, None, "invalid label selector.")


def _validate_binding(new: dict[str, Any], old: dict[str, Any] | None) -> Iterator[FieldError]:
    reference = new["roleRef"]
    namespaced = new.get("kind") == "RoleBinding"
    if reference.get("apiGroup") != RBAC_GROUP:
        yield FieldError.not_supported("roleRef.apiGroup", reference["apiGroup"], (RBAC_GROUP,))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if reference.get("kind") not in kinds:
        yield FieldError.not_supported("roleRef.kind", reference.get("kind", ""), kinds)
    if not reference.get("name"):
        yield FieldError.required("roleRef.name")
    for index, subject in enumerate(new.get("subjects") or ()):
        yield from _subject_errors(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and old.get("roleRef") != reference:
        names = ("apiGroup", "kind", "name")
        values = {name[0].upper() + name[1:]: reference.get(name, "") for name in names}
        values = {"APIGroup" if key == "ApiGroup" else key: text for key, text in values.items()}
        yield FieldError.invalid("roleRef", values, "cannot change roleRef")


def _subject_errors(
    subject: dict[str, Any], field: str, *, namespaced: bool
) -> Iterator[FieldError]:
    if not subject.get("name"):
        yield FieldError.required(f"{field}.name")
    kind, group = subject.get("kind", ""), subject.get("apiGroup") or ""
    if kind == "ServiceAccount":
        if group:
            yield FieldError.not_supported(f"{field}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield FieldError.required(f"{field}.namespace")
    elif kind in _KINDS:
        if group != RBAC_GROUP:
            yield FieldError.not_supported(f"{field}.apiGroup", group, (RBAC_GROUP,))
    else:
        yield FieldError.not_supported(f"{field}.kind", kind, _KINDS)


_ROLE_STRATEGY: Final = Strategy(
    name_style=NameStyle.PATH_SEGMENT,
    create_on_update=True,
    prepare_create=_default_role,
    prepare_update=lambda new, _old: _default_role(new),
    validate=_validate_role,
)
_BINDING_STRATEGY: Final = Strategy(
    name_style=NameStyle.PATH_SEGMENT,
    create_on_update=True,
    prepare_create=_default_binding,
    prepare_update=lambda new, _old: _default_binding(new),
    validate=_validate_binding,
)
STRATEGIES: Final = {
    **{f"{plural}.{RBAC_GROUP}": _ROLE_STRATEGY for plural in _ROLES},
    **{f"{plural}.{RBAC_GROUP}": _BINDING_STRATEGY for plural in _BINDINGS},
}
"""The write strategies of roles and bindings."""


# -- escalation check ------------------------------------------------------------------------


@final
class EscalationCheck:
    """Refuses to grant permissions that the user lacks, without ``escalate`` or ``bind``."""

    def __init__(self, rbac: RBACAuthorizer) -> None:
        """``rbac`` knows the permissions of users."""
        self._rbac = rbac

    def check(
        self,
        user: User,
        plural: str,
        namespace: str,
        name: str,
        new: dict[str, Any],
        old: dict[str, Any] | None,
    ) -> None:
        """Refuse a role or a binding that grants more than its writer has.

        Args:
            user: the writer.
            plural: the written RBAC resource.
            namespace: its namespace, ``""`` for cluster-scoped ones.
            name: the name in the path of the request, ``""`` for a create.
            new: the new object.
            old: the stored object; None for a create.

        Raises:
            StatusError: 403, or 404 for a binding to a role that does not exist.
        """
        if MASTERS in user.groups or (old and _same_but_for_collection(new, old)):
            return
        own = str((new.get("metadata") or {}).get("name") or name)
        wish = RequestAttributes(
            user=user, verb="escalate", group=RBAC_GROUP, version="*", resource=plural
        )
        wish = attrs.evolve(wish, namespace=namespace, name=name)
        if plural in _ROLES:
            if check(self._rbac, wish).allowed:
                return
            rules = new.get("rules") or ()
            wanted = tuple(Rule.of(rule) for rule in rules if isinstance(rule, dict))
            self._confirm(user, plural, namespace, own, wanted)
            if any((obj or {}).get("aggregationRule") for obj in (new, old)) and uncovered(
                self._rbac.rules_for(user, namespace)[0], EVERYTHING
            ):
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise forbidden(plural, RBAC_GROUP, own, why)
        elif plural in _BINDINGS:
            self._check_binding(wish, own, new)

    def _check_binding(self, wish: RequestAttributes, own: str, new: dict[str, Any]) -> None:
        reference = new.get("roleRef") or {}
        kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
        resource = {"Role": "roles", "ClusterRole": "clusterroles"}.get(kind, "")
        wish = attrs.evolve(wish, verb="bind", resource=resource, name=name)
        if resource and check(self._rbac, wish).allowed:
            return
        plural = "rolebindings" if wish.namespace else "clusterrolebindings"
        try:
            wanted = self._rbac.role_rules(kind, name, wish.namespace)
        except RoleNotFoundError:
            raise not_found(plural, RBAC_GROUP, name) from None
        self._confirm(wish.user, plural, wish.namespace, own, wanted)

    def _confirm(
        self, user: User, plural: str, namespace: str, name: str, wanted: tuple[Rule, ...]
    ) -> None:
        own_rules, errors = self._rbac.rules_for(user, namespace)
        lacking = uncovered(own_rules, wanted)
        if not lacking:
            return
        groups = " ".join(json.dumps(group, ensure_ascii=False) for group in user.groups)
        listed = "\n".join(sorted(map(rule_text, lacking)))
        why = (
            f"user {json.dumps(user.username, ensure_ascii=False)} (groups=[{groups}]) is "
            f"attempting to grant RBAC permissions not currently held:\n{listed}"
        )
        if errors:
            why += f"; resolution errors: [{' '.join(errors)}]"
        raise forbidden(plural, RBAC_GROUP, name, why)


def _same_but_for_collection(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether only owner references and finalizers change."""

    def rest(obj: dict[str, Any]) -> dict[str, Any]:
        ignored = ("finalizers", "ownerReferences", "managedFields", "resourceVersion")
        metadata = obj.get("metadata") or {}
        kept = {key: value for key, value in metadata.items() if key not in ignored}
        return {**{key: value for key, value in obj.items() if value}, "metadata": kept}

    return rest(new) == rest(old)
