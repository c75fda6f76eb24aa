"""YAML as Kubernetes reads it: safe, and without YAML's own dates."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["dump_yaml", "load_yaml"]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a time stamp stays the text that JSON would carry."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: str | bytes) -> list[Any]:
    """The documents of a YAML text as plain JSON values; empty documents are left out.

    Raises:
        ValueError: the text is not YAML; the message names line and column.
    """
    try:
        return [doc for doc in yaml.load_all(text, _Loader) if doc is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error


def dump_yaml(data: dict[str, Any]) -> str:
    """YAML of plain JSON values, keys in their own order."""
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text
