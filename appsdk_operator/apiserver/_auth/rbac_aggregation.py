"""The controller of aggregated cluster roles."""

from __future__ import annotations

from typing import final

from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP
from appsdk_operator.apiserver._auth.rbac import RBACAuthorizer
from appsdk_operator.apiserver._storage.storage import Collection, Event, Storage

__all__ = ["RoleAggregator"]


@final
class RoleAggregator:
    """Writes the aggregated rules into the cluster roles that aggregate them."""

    def __init__(self, storage: Storage, rbac: RBACAuthorizer) -> None:
        """Aggregate the rules of the stored roles."""
        self._storage = storage
        self._rbac = rbac
        self._roles = storage.collection(f"clusterroles.{RBAC_GROUP}")
        self._busy = False
        self._aggregate()

    def on_event(self, collection: Collection, _event: Event) -> None:
        """Aggregate again when a cluster role has changed."""
        if collection is self._roles and not self._busy:
            self._aggregate()

    def _aggregate(self) -> None:
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
