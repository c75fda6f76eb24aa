"""What a controller does for cluster roles that gather the rules of others."""

from __future__ import annotations

from typing import final

from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP
from appsdk_operator.apiserver._auth.rbac import Rbac
from appsdk_operator.apiserver._storage.storage import Collection, Event, Storage

__all__ = ["Aggregator"]


@final
class Aggregator:
    """Writes the gathered rules into the roles that gather them."""

    def __init__(self, storage: Storage, rbac: Rbac) -> None:
        """Begin with what is there."""
        self._storage = storage
        self._rbac = rbac
        self._roles = storage.collection(f"clusterroles.{RBAC_GROUP}")
        self._busy = False
        self._gather()

    def notice(self, collection: Collection, _event: Event) -> None:
        """Take note of a change."""
        if collection is self._roles and not self._busy:
            self._gather()

    def _gather(self) -> None:
        # Writing what is gathered changes nothing of what others gather from it.
        self._busy = True
        try:
            for role in self._rbac.aggregating():
                rules = [rule.as_object() for rule in self._rbac.gathered(role)] or None
                obj = self._roles.records[role.name].decode()
                if (obj.get("rules") or None) != rules and "deletionTimestamp" not in obj[
                    "metadata"
                ]:
                    obj["rules"] = rules
                    self._storage.put(self._roles, role.name, obj)
        finally:
            self._busy = False
