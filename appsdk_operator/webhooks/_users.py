"""The user of a request, as reviews of admission and of tokens carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self

import attrs

from appsdk_operator.runtime import validation


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return validation.checked_texts("groups", values)


def _extra(values: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType(
        {key: validation.checked_texts(f"extra[{key!r}]", each) for key, each in values.items()}
    )


def _check_text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    validation.check_text(attribute.name, value)


@attrs.frozen
class UserInfo:
    """A user of the API server, ``authentication.k8s.io/v1.UserInfo``.

    >>> UserInfo("jane", groups=["admins"]).to_dict()
    {'username': 'jane', 'groups': ['admins']}
    """

    username: str = attrs.field(default="", validator=_check_text)
    """The name that RBAC and audit logs use."""
    uid: str = attrs.field(default="", validator=_check_text)
    """The identifier that distinguishes this user from earlier users with the same name."""
    groups: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """The groups of the user."""
    extra: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_extra, hash=False)
    """Further data from the authenticator, such as the scopes of a token."""

    @classmethod
    def of(cls, user: Mapping[str, Any] | None) -> Self:
        """The user in a review; missing fields are empty.

        Raises:
            TypeError: a field has another type.
        """
        user = user or {}
        return cls(
            username=user.get("username") or "",
            uid=user.get("uid") or "",
            groups=user.get("groups") or (),
            extra={key: values or () for key, values in (user.get("extra") or {}).items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """The user as JSON values; empty fields are left out, as in Go."""
        found: dict[str, Any] = {}
        if self.username:
            found["username"] = self.username
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra.items()}
        return found
