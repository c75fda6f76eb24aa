"""Permissions in the words of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appsdk_operator.app import Permission


def in_words(permission: Permission) -> str:
    """A permission in words: ``get and list on pods named a in namespace n``."""
    groups = [group for group in permission.groups if group]
    what = permission.paths or [".".join([resource, *groups]) for resource in permission.resources]
    text = f"{' and '.join(permission.verbs)} on {', '.join(what)}"
    if permission.names:
        text += f" named {', '.join(permission.names)}"
    if permission.namespace is not None:
        place = permission.namespace
        text += f" in namespace {place}" if place else " in its own namespace"
    return text
