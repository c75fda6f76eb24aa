"""Who a request comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import attrs

__all__ = [
    "ADMIN",
    "ANONYMOUS",
    "AUTHENTICATED",
    "MASTERS",
    "UNAUTHENTICATED",
    "User",
    "service_account_groups",
    "service_account_of",
]

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"

_ACCOUNT: Final = "system:serviceaccount:"


@final
@attrs.frozen
class User:
    """Somebody who makes requests, as authentication found out."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> User:
        """The user of ``{"username": …, "uid": …, "groups": […], "extra": {…: […]}}``.

        Raises:
            ValueError: something of it is missing or of another type.
        """
        unknown = set(info) - {"username", "uid", "groups", "extra"}
        name, uid = info.get("username"), info.get("uid") or ""
        groups, extra = info.get("groups") or (), info.get("extra") or {}
        if unknown or not name or not isinstance(name, str) or not isinstance(uid, str):
            raise ValueError(
                f"user {dict(info)!r}: give a username, and if need be uid, groups and extra"
            )
        if isinstance(groups, str) or not isinstance(extra, Mapping):
            raise ValueError(
                f"user {name!r}: groups is a list of names, extra a mapping to lists of values"
            )
        values = {str(key).lower(): tuple(map(str, found)) for key, found in extra.items()}
        return cls(name, uid, tuple(map(str, groups)), values)

    def info(self) -> dict[str, Any]:
        """The ``UserInfo`` of reviews."""
        info: dict[str, Any] = {"username": self.username}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(self.extra[key]) for key in sorted(self.extra)}
        return info

    def in_group(self, group: str) -> User:
        """The same user, who is in ``group`` too."""
        if group in self.groups:
            return self
        return attrs.evolve(self, groups=(*self.groups, group))


ADMIN: Final = User("admin", "admin", (MASTERS, AUTHENTICATED))
"""Who may do everything."""

ANONYMOUS: Final = User("system:anonymous", groups=(UNAUTHENTICATED,))
"""Who shows no credentials."""


def service_account_of(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that is called so."""
    if not username.startswith(_ACCOUNT):
        return None
    namespace, colon, name = username.removeprefix(_ACCOUNT).partition(":")
    return (namespace, name) if colon and namespace and name and ":" not in name else None


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of a namespace's service accounts, besides that of everybody."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
