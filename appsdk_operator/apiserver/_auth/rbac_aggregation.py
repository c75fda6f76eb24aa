"""What a controller does for cluster roles that gather the rules of others."""

from __future__ import annotations

from typing import final

from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP
from appsdk_operator.apiserver._auth.rbac import RBACAuthorizer
from appsdk_operator.apiserver._storage.storage import Collection, Event, Storage

__all__ = ["RoleAggregator"]


@final
class RoleAggregator:
    """Writes the aggregated_rules rules into the roles that gather them."""

    def __init__(self, storage: Storage, rbac: RBACAuthorizer) -> None:
        """Begin with what is there."""
        self._storage = storage
        self._rbac = rbac
        self._roles = storage.collection(f"clusterroles.{RBAC_GROUP}")
        self._busy = False
        self._aggregate()

    def notice(self, collection: Collection, _event: Event) -> None:
        """Take note of a change."""
        if collection is self._roles and not self._busy:
            self._aggregate()

    def _aggregate(self) -> None:
        # Writing what is aggregated_rules changes nothing of what others gather from it.
        self._busy = True
        try:
            for role in self._rbac.aggregating():
                rules = [rule.as_object() for rule in self._rbac.aggregated_rules(role)] or None
                obj = self._roles.records[role.name].decode()
                if (obj.get("rules") or None) != rules and "deletionTimestamp" not in obj[
                    "metadata"
                ]:
                    obj["rules"] = rules
                    self._storage.put(self._roles, role.name, obj)
        finally:
            self._busy = False
