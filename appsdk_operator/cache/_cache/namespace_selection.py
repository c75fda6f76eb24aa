"""The forms in which users choose namespaces."""

from __future__ import annotations

from typing import Any, TypeAlias

from appsdk_operator.cache._cache.options import Namespaces
from appsdk_operator.resource import Filter, LabelSelector, NamespaceSelector

NamespaceSelection: TypeAlias = Namespaces | LabelSelector | NamespaceSelector | Filter[Any, Any]
"""Namespaces; or what selects them as they come and go: names and patterns of names, such as
``["team-*", "!team-x"]``, or a selector of their labels, such as ``labels("team=a")``."""
