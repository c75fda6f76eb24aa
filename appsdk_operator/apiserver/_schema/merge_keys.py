"""The merge keys of built-in kinds for strategic merge patches, read from their schemas."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, final

from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.resource import BUILTIN_MERGE_KEYS, MergeRule, MergeRules


@final
class _KindMergeKeys:
    """The merge rules of one kind, looked up in its schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._known: dict[tuple[str, ...], MergeRule | None] = {}

    def rule(self, path: tuple[str, ...]) -> MergeRule | None:
        """The merge rule of the field at ``path``, which has no list indexes."""
        if path not in self._known:
            self._known[path] = self._look_up(path)
        return self._known[path]

    def _look_up(self, path: tuple[str, ...]) -> MergeRule | None:
        node: Any = self._schema
        for name in path:
            while isinstance(node.get("items"), Mapping):
                node = node["items"]
            node = (node.get("properties") or {}).get(name) or node.get("additionalProperties")
            if not isinstance(node, Mapping):
                return None
        strategies = node.get("x-kubernetes-patch-strategy", "").split(",")
        if "merge" not in strategies:
            return None
        return MergeRule(
            node.get("x-kubernetes-patch-merge-key", ""), retain_keys="retainKeys" in strategies
        )


@functools.cache
def merge_keys(group: str, version: str, kind: str) -> MergeRules:
    """The merge rules of a kind; for kinds without a schema, those that all kinds share."""
    schema = builtin_schemas.schema(group, version, kind)
    return BUILTIN_MERGE_KEYS if schema is None else _KindMergeKeys(schema)
