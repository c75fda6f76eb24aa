"""Who makes a request: client certificates, bearer tokens, or nobody in particular."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._auth.accounts import AUDIENCES, AccountTokens, TokenError
from appsdk_operator.apiserver._values.status import StatusError
from appsdk_operator.apiserver._values.users import (
    ADMIN,
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
)

__all__ = ["Authenticator", "certificate_user", "users_by_token"]

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


@final
class Authenticator:
    """Knows users by what they show."""

    def __init__(self, accounts: AccountTokens, *, is_open: bool) -> None:
        """Knows service accounts; an open server takes whoever shows nothing for its admin."""
        self._accounts = accounts
        self._is_open = is_open
        self.users: Mapping[str, User] = {}
        """Users by their bearer tokens; replace it as a whole to change it from any thread."""

    def authenticate(self, authorization: str) -> User:
        """Whose request carries that ``Authorization`` header.

        Raises:
            StatusError: 401, nobody's.
        """
        if not authorization:
            return ADMIN if self._is_open else ANONYMOUS
        parts = authorization.strip().split(" ")
        if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
            return ADMIN if self._is_open else ANONYMOUS
        try:
            return self._known(parts[1], AUDIENCES)[0]
        except TokenError:
            if self._is_open and parts[1] not in self.users:
                return ADMIN
            raise StatusError(401, "Unauthorized") from None

    def review(self, token: str, audiences: tuple[str, ...]) -> dict[str, Any]:
        """The status of a TokenReview."""
        try:
            # What an open server lets in is not thereby somebody's token.
            user, meant = self._known(token, audiences or AUDIENCES)
        except TokenError as error:
            told = f"[invalid bearer token, {error}]" if str(error) else "invalid bearer token"
            return {"user": {}, "error": told}
        return {"authenticated": True, "user": user.info(), "audiences": meant}

    def _known(self, token: str, audiences: tuple[str, ...]) -> tuple[User, list[str]]:
        user = self.users.get(token)
        meant = [audience for audience in audiences if audience in AUDIENCES]
        if user is not None and meant:
            return user, meant
        return self._accounts.user(token, audiences)


def users_by_token(tokens: Mapping[str, Mapping[str, Any]]) -> dict[str, User]:
    """Users by their tokens, each in the group of those that are users_by_token.

    Raises:
        ValueError: a token that no header can carry, or something that is no user.
    """
    found: dict[str, User] = {}
    for token, info in tokens.items():
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise ValueError("a bearer token is one word of printable ASCII characters")
        found[token] = User.of(info).in_group(AUTHENTICATED)
    return found


def certificate_user(certificate: Mapping[str, Any], data: bytes) -> User | None:
    """The user of a client certificate that was verified: its common name and organisations.

    Args:
        certificate: as :meth:`ssl.SSLSocket.getpeercert` gives it.
        data: the same in DER.
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
