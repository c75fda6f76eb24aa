"""The file of what tests needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from appsdk_operator.app import Permission, merged
from appsdk_operator.resource import dump_yaml, load_yaml

RECORD_FILE: Final = "rbac-record.yaml"
"""The name of the file, unless another one is given."""

_HEAD: Final = """\
# What the operator asked the API server for in tests: written by pytest --kube-rbac-record, not to
# be edited. `appsdk-operator rbac` makes roles of it, and `rbac check` compares roles with it.
"""
_FIELDS: Final = {
    "apiGroups": "groups",
    "resources": "resources",
    "nonResourceURLs": "paths",
    "verbs": "verbs",
    "resourceNames": "names",
    "tests": "reasons",
}
_MOST_TESTS: Final = 3


def dump_permissions(permissions: Iterable[Permission]) -> str:
    """The text of a file with permissions: a rule of a role each, with namespace and tests.

    ``clusterWide`` has what was asked for in all namespaces, or for objects without one.

    Of many tests only the first ones are named, so that the file changes when permissions do.

    >>> print(dump_permissions([Permission(groups=[""], resources=["pods"], verbs=["get"])])[-66:])
    rules:
    - apiGroups:
      - ''
      resources:
      - pods
      verbs:
      - get
    <BLANKLINE>
    """
    rules: list[dict[str, Any]] = []
    for each in merged(permissions):
        rule = each.rule
        if each.namespace is not None:
            rule["namespace"] = each.namespace
        if each.is_cluster_wide:
            rule["clusterWide"] = True
        if each.reasons:
            rule["tests"] = sorted(each.reasons)[:_MOST_TESTS]
        rules.append(rule)
    return _HEAD + dump_yaml({"rules": rules})


def load_permissions(path: str | Path) -> tuple[Permission, ...]:
    """The permissions in a file that ``pytest --kube-rbac-record`` has written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not such a file; the text says how to make one.
    """
    try:
        documents = load_yaml(Path(path).read_text(encoding="utf-8"))
        (document,) = documents
        return merged(map(_permission, document["rules"]))
    except (KeyError, TypeError, ValueError) as error:
        why = re.sub(r"\s+", " ", str(error)) if isinstance(error, ValueError) else "other content"
        raise ValueError(
            f"{path} is not a record of permissions ({why}): write it with appsdk-operator rbac "
            "record -- pytest"
        ) from error


def _permission(rule: dict[str, Any]) -> Permission:
    unknown = set(rule) - set(_FIELDS) - {"namespace", "clusterWide"}
    if unknown:
        raise ValueError(f"a rule has unknown fields: {', '.join(sorted(unknown))}")
    fields: dict[str, Any] = {}
    for key, field in _FIELDS.items():
        values = rule.get(key, [])
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise ValueError(f"{key} of a rule is not a list of strings")
        fields[field] = values
    namespace = rule.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise ValueError("namespace of a rule is not a string")
    is_cluster_wide = rule.get("clusterWide", False)
    if not isinstance(is_cluster_wide, bool):
        raise ValueError("clusterWide of a rule is neither true nor false")
    return Permission(namespace=namespace, is_cluster_wide=is_cluster_wide, **fields)
