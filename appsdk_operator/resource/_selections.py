"""The forms in which users give selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from appsdk_operator.resource._filters import Filter
from appsdk_operator.resource._selectors import FieldSelector, LabelSelector

LabelSelection: TypeAlias = LabelSelector | Mapping[str, str] | str | Filter[Any, Any]
"""The forms in which a label selector is given: ``"app=web,tier in (a,b)"``, ``{"app": "web"}`` for
labels with exactly these values, parsed, or as a filter of :func:`labels` joined by ``&``."""

FieldSelection: TypeAlias = FieldSelector | Mapping[str, str] | str | Filter[Any, Any]
"""The forms in which a field selector is given: ``"metadata.name=web"``,
``{"metadata.name": "web"}``, parsed, or as a filter ``field("metadata.name") == "web"``; with
``!=``, and joined by ``&``."""
