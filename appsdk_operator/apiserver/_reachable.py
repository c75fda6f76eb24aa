"""How clients reach the embedded server, and as whom."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from appsdk_operator.apiserver._authority import Authority
from appsdk_operator.apiserver._http.access import Access
from appsdk_operator.apiserver._kubeconfig import kubeconfig, write_kubeconfig
from appsdk_operator.apiserver._values.users import account_of
from appsdk_operator.client import ClientConfig

__all__ = ["Reachable"]


class Reachable:
    """The address of a server, and credentials for it."""

    def __init__(self, host: str, port: int, access: Access, authority: Authority | None) -> None:
        """``access`` knows the users; ``authority`` signs certificates, None without TLS."""
        self._host = host
        self._port = port
        self._access = access
        self._authority = authority

    @property
    def url(self) -> str:
        """Where it is served, for example ``http://127.0.0.1:40123``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._authority is None else "https"
        return f"{scheme}://{host}:{self._port}"

    @property
    def ca_data(self) -> bytes:
        """The PEM certificate of the authority to trust; empty without TLS."""
        return b"" if self._authority is None else self._authority.certificate

    def client_config(self, **options: Any) -> ClientConfig:
        """The configuration of a client that acts as ``admin``.

        Args:
            options: any other of :class:`~appsdk_operator.client.ClientConfig`, or others than
                the server's own: ``token=server.token_for("alice")``.
        """
        own = {"server": self.url, "token": self.token, "ca_data": self.ca_data or None}
        return ClientConfig(**{**own, **options})

    def kubeconfig(
        self, username: str | None = None, *, groups: Iterable[str] = ()
    ) -> dict[str, Any]:
        """A kubeconfig that leads to this server.

        Args:
            username: who it is for; default: the administrator. With TLS it holds a client
                certificate of that user, else a token.
            groups: the groups of that user; without any, a service account
                (``system:serviceaccount:<namespace>:<name>``) gets a token and is in its own.
        """
        members = tuple(groups)
        # kubectl asks its user for a name and a password when a kubeconfig holds no credentials.
        if username is None:
            return kubeconfig(self.url, self.ca_data, token=self.token or "not-asked-for")
        if self._authority is None or (account_of(username) is not None and not members):
            token = self.token_for(username, groups=members)
            return kubeconfig(self.url, self.ca_data, username, token=token)
        certificate = self._authority.client(username, members)
        return kubeconfig(self.url, self.ca_data, username, certificate=certificate)

    def write_kubeconfig(
        self,
        path: str | os.PathLike[str],
        username: str | None = None,
        *,
        groups: Iterable[str] = (),
    ) -> None:
        """Write :meth:`kubeconfig` to a file that only its owner can read."""
        write_kubeconfig(path, self.kubeconfig(username, groups=groups))

    # -- who may use it ----------------------------------------------------------------------

    @property
    def token(self) -> str | None:
        """The administrator's bearer token; None while none is asked for.

        Setting it takes the old one out of force.
        """
        return self._access.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._access.token = token

    def set_users(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """From now on know these users by their bearer tokens, in the place of the option's.

        The administrator's token and those of :meth:`token_for` stay.

        Raises:
            ValueError: one is no user, or the server asks nobody for credentials.
        """
        self._access.set_users(users)

    def token_for(
        self,
        username: str,
        *,
        uid: str = "",
        groups: Iterable[str] = (),
        extra: Mapping[str, Iterable[str]] = MappingProxyType({}),
    ) -> str:
        """A new bearer token of any user, for as long as the server is there.

        Args:
            username: the user's name; for a service account, which need not be there,
                ``system:serviceaccount:<namespace>:<name>``.
            uid: the user's id; default none.
            groups: the user's groups, besides ``system:authenticated``; default: none, and those
                of its own for a service account.
            extra: further facts about the user.

        Raises:
            ValueError: the user has no name.
        """
        info = {"username": username, "uid": uid, "groups": tuple(groups), "extra": extra}
        return self._access.token_for(info)
