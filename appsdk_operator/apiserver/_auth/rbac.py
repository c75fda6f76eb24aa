"""RBAC: an authorizer by the roles and bindings in the storage, and the aggregation of roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, final

import attrs

from appsdk_operator.apiserver._auth.authorization import Decision, RequestAttributes
from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP
from appsdk_operator.apiserver._auth.rbac_rules import Rule
from appsdk_operator.apiserver._storage.storage import Collection, Event, Record, Storage
from appsdk_operator.apiserver._values.users import User, service_account_of
from appsdk_operator.resource import LabelSelector, SelectorError

_T = TypeVar("_T")

_Subject = tuple[str, str]


class RoleNotFoundError(Exception):
    """A binding refers to a role that does not exist."""


@attrs.frozen
class Role:
    """A Role or ClusterRole."""

    name: str
    rules: tuple[Rule, ...]
    labels: dict[str, str]
    aggregates: tuple[LabelSelector, ...] | None
    """The label selectors of its aggregation rule; None without one."""


@attrs.frozen
class _Binding:
    """A RoleBinding or ClusterRoleBinding."""

    name: str
    namespace: str
    role_kind: str
    role_name: str
    subjects: dict[_Subject, str]
    """Their texts in messages, by kind and name."""

    def source(self, subject: str) -> str:
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        own = f"{self.name}/{self.namespace}" if self.namespace else self.name
        return f'{kind} "{own}" of {self.role_kind} "{self.role_name}" to {subject}'


@final
class _ParsedObjects(Generic[_T]):
    """The parsed objects of a collection, cached by revision."""

    def __init__(self, collection: Collection, read: Callable[[dict[str, Any]], _T]) -> None:
        self._collection = collection
        self._read = read
        self._seen = -1
        self._found: dict[str, tuple[Record, _T]] = {}
        self.items: dict[str, _T] = {}

    def refresh(self) -> bool:
        """Parse changed objects; return whether there were any."""
        collection = self._collection
        last = collection.events[-1].revision if collection.events else collection.floor
        if last == self._seen:
            return False
        before, self._found = self._found, {}
        for key in collection.keys:
            record = collection.records[key]
            known = before.get(key)
            if known is None or known[0] is not record:
                known = (record, self._read(record.decode()))
            self._found[key] = known
        self.items = {key: item for key, (_, item) in self._found.items()}
        self._seen = last
        return True


@final
class RBACAuthorizer:
    """Allows what roles and bindings allow."""

    def __init__(self, storage: Storage) -> None:
        """Uses the roles and bindings in ``storage``."""

        def parsed(plural: str, read: Callable[[dict[str, Any]], _T]) -> _ParsedObjects[_T]:
            return _ParsedObjects(storage.collection(f"{plural}.{RBAC_GROUP}"), read)

        self._roles = parsed("roles", _role)
        self._cluster_roles = parsed("clusterroles", _role)
        self._bindings = parsed("rolebindings", _binding)
        self._cluster_bindings = parsed("clusterrolebindings", _binding)
        # Bindings by namespace ("" for cluster role bindings) and subject, ordered by name.
        self._index: dict[str, dict[_Subject, list[_Binding]]] = {}

    def decide(self, attributes: RequestAttributes) -> Decision:
        """Whether a rule of a role that is bound to the user allows the request."""
        errors: list[str] = []
        for source, rule in self._rules(attributes.user, attributes.namespace, errors):
            if rule.allows(attributes):
                return Decision(True, f"RBAC: allowed by {source}")
        if not errors:
            return Decision(False)
        text = errors[0] if len(errors) == 1 else f"[{', '.join(dict.fromkeys(errors))}]"
        return Decision(False, f"RBAC: {text}")

    def rules_for(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """All rules of a user in a namespace, and the errors of resolving them."""
        errors: list[str] = []
        return [rule for _, rule in self._rules(user, namespace, errors)], errors

    def _rules(self, user: User, namespace: str, errors: list[str]) -> Iterator[tuple[str, Rule]]:
        self._refresh()
        subjects: list[_Subject] = [("User", user.username)]
        subjects += [("Group", group) for group in user.groups]
        account = service_account_of(user.username)
        if account is not None:
            subjects.append(("ServiceAccount", "/".join(account)))
        for place in dict.fromkeys(("", namespace)):
            index = self._index.get(place)
            if index is None:
                continue
            # A binding counts once, for the first of its subjects that matches the user.
            found = {
                binding.name: binding for subject in subjects for binding in index.get(subject, ())
            }
            for name in sorted(found):
                binding = found[name]
                text = next(text for key, text in binding.subjects.items() if key in subjects)
                try:
                    rules = self.role_rules(binding.role_kind, binding.role_name, place)
                except RoleNotFoundError as error:
                    errors.append(str(error))
                    continue
                for rule in rules:
                    yield binding.source(text), rule

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[Rule, ...]:
        """The rules of a role that a binding in ``namespace`` refers to.

        Raises:
            RoleNotFoundError: it does not exist.
        """
        self._refresh()
        if kind == "Role":
            role = self._roles.items.get(f"{namespace}/{name}")
        elif kind == "ClusterRole":
            role = self._cluster_roles.items.get(name)
        else:
            raise RoleNotFoundError(f'unsupported role reference kind: "{kind}"')
        if role is None:
            raise RoleNotFoundError(f'{kind.lower()}.{RBAC_GROUP} "{name}" not found')
        return role.rules if role.aggregates is None else self.aggregated_rules(role)

    def aggregated_rules(self, role: Role) -> tuple[Rule, ...]:
        """The rules of all cluster roles that an aggregating role selects, each once."""
        found: dict[Rule, None] = {}
        self._aggregate(role, found, {role.name})
        return tuple(found)

    def _aggregate(self, role: Role, found: dict[Rule, None], seen: set[str]) -> None:
        for selector in role.aggregates or ():
            for name, other in self._cluster_roles.items.items():
                if name in seen or not selector.matches(other.labels):
                    continue
                seen.add(name)
                if other.aggregates is None:
                    found.update(dict.fromkeys(other.rules))
                else:
                    self._aggregate(other, found, seen)

    def aggregating_roles(self) -> list[Role]:
        """The cluster roles with an aggregation rule."""
        self._refresh()
        return [role for role in self._cluster_roles.items.values() if role.aggregates is not None]

    def _refresh(self) -> None:
        self._roles.refresh()
        self._cluster_roles.refresh()
        changed = [self._bindings.refresh(), self._cluster_bindings.refresh()]
        if not any(changed):
            return
        self._index = {}
        for bindings in (self._cluster_bindings, self._bindings):
            for binding in bindings.items.values():
                place = self._index.setdefault(binding.namespace, {})
                for subject in binding.subjects:
                    place.setdefault(subject, []).append(binding)


def _role(obj: dict[str, Any]) -> Role:
    metadata = obj["metadata"]
    rules = tuple(Rule.of(rule) for rule in obj.get("rules") or () if isinstance(rule, dict))
    return Role(metadata["name"], rules, metadata.get("labels") or {}, _aggregation_of(obj))


def _aggregation_of(obj: dict[str, Any]) -> tuple[LabelSelector, ...] | None:
    found = (obj.get("aggregationRule") or {}).get("clusterRoleSelectors")
    if not found:
        return None
    selectors: list[LabelSelector] = []
    for selector in found:
        try:
            selectors.append(LabelSelector.from_object(selector))
        except SelectorError:
            continue
    return tuple(selectors)


def _binding(obj: dict[str, Any]) -> _Binding:
    metadata, reference = obj["metadata"], obj.get("roleRef") or {}
    namespace = metadata.get("namespace") or ""
    subjects: dict[_Subject, str] = {}
    for subject in obj.get("subjects") or ():
        kind, name = str(subject.get("kind")), str(subject.get("name"))
        text = f'{kind} "{name}"'
        if kind == "ServiceAccount":
            place = subject.get("namespace") or namespace
            text = f'{kind} "{name}/{place}"'
            name = f"{place}/{name}"
        subjects.setdefault((kind, name), text)
    return _Binding(
        metadata["name"],
        namespace,
        str(reference.get("kind")),
        str(reference.get("name")),
        subjects,
    )


@final
class RoleAggregator:
    """Writes the aggregated rules into the cluster roles that aggregate them."""

    def __init__(self, storage: Storage, rbac: RBACAuthorizer) -> None:
        """Nothing is aggregated before :meth:`aggregate` or a change."""
        self._storage = storage
        self._rbac = rbac
        self._roles = storage.collection(f"clusterroles.{RBAC_GROUP}")
        self._busy = False

    def on_event(self, collection: Collection, _event: Event) -> None:
        """Aggregate again when a cluster role has changed."""
        if collection is self._roles and not self._busy:
            self.aggregate()

    def aggregate(self) -> None:
        """Aggregate the rules of the stored roles."""
        # These writes change no labels, so they trigger no further aggregation.
        self._busy = True
        try:
            for role in self._rbac.aggregating_roles():
                rules = [rule.as_object() for rule in self._rbac.aggregated_rules(role)] or None
                obj = self._roles.records[role.name].decode()
                if (obj.get("rules") or None) != rules and "deletionTimestamp" not in obj[
                    "metadata"
                ]:
                    obj["rules"] = rules
                    self._storage.put(self._roles, role.name, obj)
        finally:
            self._busy = False
