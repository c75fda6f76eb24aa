"""Authentication by client certificate or bearer token, else as ``system:anonymous``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._auth.service_account_tokens import (
    AUDIENCES,
    ServiceAccountTokens,
    TokenError,
)
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.apiserver._values.users import (
    ADMIN,
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
)

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


@final
class Authenticator:
    """Finds the user of a request."""

    def __init__(self, accounts: ServiceAccountTokens, *, is_open: bool) -> None:
        """``accounts`` verifies service account tokens; ``is_open``: no credentials mean admin."""
        self._accounts = accounts
        self._is_open = is_open
        self.users: Mapping[str, User] = {}
        """Users by bearer token; replace the mapping to change it from another thread."""

    def authenticate(self, authorization: str) -> User:
        """The user of an ``Authorization`` header.

        Raises:
            StatusError: 401, the token is not valid.
        """
        if not authorization:
            return ADMIN if self._is_open else ANONYMOUS
        parts = authorization.strip().split(" ")
        if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
            return ADMIN if self._is_open else ANONYMOUS
        try:
            return self._user_of_token(parts[1], AUDIENCES)[0]
        except TokenError:
            if self._is_open and parts[1] not in self.users:
                return ADMIN
            raise StatusError(401, "Unauthorized") from None

    def review(self, token: str, audiences: tuple[str, ...]) -> dict[str, Any]:
        """The status of a TokenReview."""
        try:
            # On an open server, too, a review accepts only known tokens.
            user, meant = self._user_of_token(token, audiences or AUDIENCES)
        except TokenError as error:
            message = f"[invalid bearer token, {error}]" if str(error) else "invalid bearer token"
            return {"user": {}, "error": message}
        return {"authenticated": True, "user": user.info(), "audiences": meant}

    def _user_of_token(self, token: str, audiences: tuple[str, ...]) -> tuple[User, list[str]]:
        user = self.users.get(token)
        meant = [audience for audience in audiences if audience in AUDIENCES]
        if user is not None and meant:
            return user, meant
        return self._accounts.user(token, audiences)


def users_by_token(tokens: Mapping[str, Mapping[str, Any]]) -> dict[str, User]:
    """Users by token, each in the group ``system:authenticated``.

    Raises:
        ValueError: a token does not fit into a header, or a user is not valid.
    """
    found: dict[str, User] = {}
    for token, info in tokens.items():
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise ValueError("a bearer token is one word of printable ASCII characters")
        found[token] = User.of(info).in_group(AUTHENTICATED)
    return found


def certificate_user(certificate: Mapping[str, Any], data: bytes) -> User | None:
    """The user of a verified client certificate: its common name, and groups from organizations.

    Args:
        certificate: as :meth:`ssl.SSLSocket.getpeercert` returns it.
        data: the certificate in DER.
    """
    names = [pair for relative in certificate.get("subject", ()) for pair in relative]
    common = [value for kind, value in names if kind == "commonName"]
    if not common:
        return None
    groups = tuple(value for kind, value in names if kind == "organizationName")
    digest = hashlib.sha256(data).hexdigest()
    user = User(common[0], groups=groups, extra={_CREDENTIAL: (f"X509SHA256={digest}",)})
    if UNAUTHENTICATED in groups:
        return user
    return user.in_group(AUTHENTICATED)
