"""The credential that a source of credentials gives to a request."""

from __future__ import annotations

from appsdk_operator.client import Credential, Credentials
from appsdk_operator.runtime import StopSignal


def obtain(credentials: Credentials) -> Credential:
    """The one for a request that nobody stops."""
    return credentials.obtain(StopSignal())


def authorization_of(credentials: Credentials) -> str | None:
    """The header of a request that nobody stops."""
    return obtain(credentials).authorization


def refuse(credentials: Credentials) -> None:
    """The server refuses the present credential."""
    credentials.refused(obtain(credentials))
