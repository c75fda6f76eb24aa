"""Impersonation: the ``Impersonate-…`` headers, and the permission to use them."""

from __future__ import annotations

import json
import re
from typing import Final, final
from urllib.parse import unquote

import attrs
from multidict import CIMultiDict, CIMultiDictProxy

from appsdk_operator.apiserver._auth.authorization import (
    Authorizer,
    Decision,
    RequestAttributes,
    check,
    forbidden_error,
)
from appsdk_operator.apiserver._values.status import StatusError, bad_request
from appsdk_operator.apiserver._values.users import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    service_account_of,
)

_USER: Final = "Impersonate-User"
_UID: Final = "Impersonate-Uid"
_GROUP: Final = "Impersonate-Group"
_EXTRA: Final = "impersonate-extra-"
_NODE: Final = "system:node:"
_AUTHENTICATION: Final = "authentication.k8s.io"
_EXTRA_KEY: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/\S+")


def impersonated_user(headers: CIMultiDictProxy[str]) -> User | None:
    """The user that a request impersonates; None without impersonation.

    Raises:
        StatusError: 400, groups, uid or extra are given without a user.
    """
    given = CIMultiDict(
        # Objects with the names of users are JSON, which is Unicode.
        (name, value.encode(errors="surrogateescape").decode(errors="replace"))
        for name, value in headers.items()
        if name[:12].lower() == "impersonate-"
    )
    if not given:
        return None
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered.startswith(_EXTRA):
            key = unquote(lowered.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    user = User(given.get(_USER, ""), given.get(_UID, ""), tuple(given.getall(_GROUP, ())), extra)
    if user.username:
        return user
    if user.uid or user.groups or user.extra:
        raise bad_request(
            f'requested &user.DefaultInfo{{Name:"", UID:{json.dumps(user.uid)}, '
            f"Groups:{_go_list(user.groups)}, Extra:{_go_map(user)}}} without impersonating a "
            "user name"
        )
    return None


@final
class Impersonation:
    """Checks the permission to impersonate.

    The verb ``impersonate`` allows every request as that user. The constrained verbs of Kubernetes
    1.35 and later, ``impersonate:<mode>`` with ``impersonate-on:<mode>:<verb>``, are tried first,
    except for that of a pod that acts as its own node.
    """

    def __init__(self) -> None:
        """It remembers the mode that last worked for each user."""
        # Like the real server: try the mode that worked last first, and report the first failure.
        self._last: dict[str, str] = {}

    def user(self, other: User, attributes: RequestAttributes, authorizer: Authorizer) -> User:
        """The user that ``attributes.user`` impersonates, if that is allowed.

        Raises:
            StatusError: 403, it is not allowed.
        """
        mine = attributes.user.username
        modes = _modes(other)
        last = self._last.get(mine)
        if last in modes:
            modes.remove(last)
            modes.insert(0, last)
        first: StatusError | None = None
        for mode in modes:
            try:
                user = _check_mode(mode, other, attributes, authorizer)
            except StatusError as error:
                first = first or error
            else:
                self._last[mine] = mode
                return user
        assert first is not None
        raise first


def _modes(other: User) -> list[str]:
    only_name = not (other.uid or other.groups or other.extra)
    if other.username.startswith(_NODE):
        return ["arbitrary-node", ""] if only_name else [""]
    if service_account_of(other.username) is not None:
        return ["serviceaccount", ""] if only_name else [""]
    return ["user-info", ""]


def _check_mode(
    mode: str, other: User, attributes: RequestAttributes, authorizer: Authorizer
) -> User:
    def require(wish: RequestAttributes, why: str = "") -> None:
        decision = Decision(False, why) if why else check(authorizer, wish)
        if not decision.allowed:
            raise forbidden_error(wish, decision)

    mine = attributes.user
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHENTICATION if mode else ""
    if mode:
        require(attrs.evolve(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}"))
    groups = other.groups
    name = RequestAttributes(
        user=mine, verb=verb, group=group, resource="users", name=other.username
    )
    account = service_account_of(other.username)
    if mode == "arbitrary-node":
        name = attrs.evolve(name, resource="nodes", name=other.username.removeprefix(_NODE))
        groups = ("system:nodes",)
    elif account is not None:
        namespace, own = account
        name = attrs.evolve(name, resource="serviceaccounts", namespace=namespace, name=own)
        groups = groups or service_account_groups(namespace)
    require(name)
    if other.uid:
        require(
            RequestAttributes(
                user=mine, verb=verb, group=_AUTHENTICATION, resource="uids", name=other.uid
            )
        )
    for each in other.groups:
        why = f"impersonating the {each} group is not allowed" if each == MASTERS and mode else ""
        require(
            RequestAttributes(user=mine, verb=verb, group=group, resource="groups", name=each), why
        )
    for key, values in other.extra.items():
        wish = RequestAttributes(user=mine, verb=verb, group=_AUTHENTICATION, resource="userextras")
        if mode and not _EXTRA_KEY.fullmatch(key):
            require(wish, f"impersonating an invalid key in extra is not allowed: {key}")
        for value in values:
            require(attrs.evolve(wish, subresource=key, name=value))
    user = attrs.evolve(other, groups=groups)
    if user.username == ANONYMOUS.username:
        return user.in_group(UNAUTHENTICATED)
    return user if UNAUTHENTICATED in groups else user.in_group(AUTHENTICATED)


def _go_list(names: tuple[str, ...]) -> str:
    if not names:
        return "[]string(nil)"
    return f"[]string{{{', '.join(json.dumps(name, ensure_ascii=False) for name in names)}}}"


def _go_map(user: User) -> str:
    if not user.extra:
        return "map[string][]string(nil)"
    listed = (f"{json.dumps(key)}:{_go_list(user.extra[key])}" for key in sorted(user.extra))
    return f"map[string][]string{{{', '.join(listed)}}}"
