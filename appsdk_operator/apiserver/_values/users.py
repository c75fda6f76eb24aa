"""The users that requests come from, as authentication finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"

_ACCOUNT: Final = "system:serviceaccount:"


@final
@attrs.frozen
class User:
    """An authenticated user: name, UID, groups and extra values."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> User:
        """A user from ``{"username": …, "uid": …, "groups": […], "extra": {…: […]}}``.

        Raises:
            ValueError: a part is missing or has the wrong type.
        """
        unknown = set(info) - {"username", "uid", "groups", "extra"}
        name, uid = info.get("username"), info.get("uid") or ""
        groups, extra = info.get("groups") or (), info.get("extra") or {}
        if unknown or not name or not isinstance(name, str) or not isinstance(uid, str):
            raise ValueError(
                f"user {dict(info)!r}: give username, and optionally uid, groups and extra"
            )
        if isinstance(groups, str) or not isinstance(extra, Mapping):
            raise ValueError(
                f"user {name!r}: groups must be a list of names, and extra a mapping to lists of "
                "values"
            )
        values = {str(key).lower(): tuple(map(str, found)) for key, found in extra.items()}
        return cls(name, uid, tuple(map(str, groups)), values)

    def info(self) -> dict[str, Any]:
        """The user as ``UserInfo``, the form that reviews have."""
        info: dict[str, Any] = {"username": self.username}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(self.extra[key]) for key in sorted(self.extra)}
        return info

    def in_group(self, group: str) -> User:
        """The same user with ``group`` added."""
        if group in self.groups:
            return self
        return attrs.evolve(self, groups=(*self.groups, group))


ADMIN: Final = User("admin", "admin", (MASTERS, AUTHENTICATED))
"""The user who may do everything."""

ANONYMOUS: Final = User("system:anonymous", groups=(UNAUTHENTICATED,))
"""The user of requests without credentials."""


def service_account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account with this username; None for other users."""
    if not username.startswith(_ACCOUNT):
        return None
    namespace, colon, name = username.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if colon and namespace and name and ":" not in name else None


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of a namespace's service accounts, without ``system:authenticated``."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
