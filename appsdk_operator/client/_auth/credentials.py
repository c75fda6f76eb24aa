"""Credentials: the ``Authorization`` header, with tokens that rotate and reload after a 401."""

from __future__ import annotations

import binascii
import threading
from collections.abc import Callable
from typing import TypeGuard

from appsdk_operator.client._auth.config_files import check_regular, read_file
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.runtime import Clock, StopSignal, fork_safe, get_logger, present_clock
from appsdk_operator.runtime.validation import no_awaitable

_log = get_logger("appsdk_operator.client")

_MAX_TOKEN = 1 << 20  # bytes; servers take headers of a hundredth of that
_CHECK_SECONDS = 60.0  # seconds; kubelet rotates tokens long before they expire


class Credentials:
    """A source of credentials; subclass it to write your own.

    Implementations are thread-safe.
    """

    def prepare(self, stop: StopSignal) -> None:
        """Fetch slow credentials; called before each request; return early when stopped."""

    def authorization(self) -> str | None:
        """The ``Authorization`` header for the next request; None: no header.

        Raises:
            ConfigError: the credentials cannot be obtained; the text says what to change.
        """
        return None

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        """Certificate and key in PEM for a new connection; None: from the configuration."""
        return None

    def reload(self) -> None:
        """Drop cached credentials: the server has just refused them."""


class RenewalLog:
    """Warns of a renewal that fails while the former value stays in use, once for each problem."""

    def __init__(self, what: str) -> None:
        """Of ``what``, in the plural."""
        self._what = what
        self._problem = ""

    def failed(self, problem: object) -> None:
        """Warn of a problem, unless it is the last one that was warned of."""
        if (text := str(problem)) != self._problem:
            self._problem = text
            _log.warning(
                "could not renew the %s; the former ones stay in use: %s", self._what, text
            )

    def succeeded(self) -> None:
        """Warn of the next problem, whichever it is."""
        self._problem = ""


class FixedCredentials(Credentials):
    """A header that never changes."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def authorization(self) -> str | None:
        """The header."""
        return self._value


class ProvidedToken(Credentials):
    """A bearer token from ``token_provider``."""

    def __init__(self, provider: Callable[[], str]) -> None:
        self._provider = provider

    def authorization(self) -> str | None:
        """The token that the function returns now."""
        token = no_awaitable("token_provider", self._provider())
        return bearer(token, "what token_provider returned")


class TokenFile(Credentials):
    """A bearer token in a file, read again when the file changes.

    The file is checked at most once in 60 s. While it cannot be read, as during a rotation, the
    former token stays in use.
    """

    def __init__(self, path: str, *, former: str | None = None, clock: Clock | None = None) -> None:
        """The token in the file ``path``; ``former`` is the header until it can be read."""
        self._path = path
        self._clock = present_clock(clock)
        self._lock = fork_safe(threading.Lock())
        self._value = former
        self._stamp: tuple[int, int, int] | None = None
        self._check_at = float("-inf")
        self._renewal = RenewalLog("credentials")

    def authorization(self) -> str | None:
        """The token in the file.

        Raises:
            ConfigError: the file cannot be read, is empty or holds no token.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._value is None or now >= self._check_at:
                self._read_if_changed()
                self._check_at = now + _CHECK_SECONDS
            return self._value

    def reload(self) -> None:
        """Check the file at the next request."""
        with self._lock:
            self._check_at = float("-inf")
            self._stamp = None

    def _read_if_changed(self) -> None:
        try:
            status = check_regular(self._path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            token = read_file(self._path, _MAX_TOKEN).decode()
            self._value = bearer(token, f"the file {self._path}")
            self._stamp = stamp
            self._renewal.succeeded()
            return
        except (OSError, UnicodeError, ConfigError) as error:
            reason = f"it is not text: {error.reason}" if _is_no_text(error) else str(error)
        # Not as the cause or the context: a UnicodeDecodeError has the whole file.
        problem = ConfigError(
            f"the token file {self._path} cannot be read: {reason}; check that it is mounted "
            "and readable"
        )
        # The file that comes next may have the stamp of the last one that could be read.
        self._stamp = None
        if self._value is None:
            raise problem
        self._renewal.failed(problem)


def _is_no_text(error: Exception) -> TypeGuard[UnicodeDecodeError]:
    return isinstance(error, UnicodeDecodeError)


def bearer(token: object, where: str) -> str:
    """The ``Authorization`` header for a bearer token.

    Raises:
        ConfigError: this is not a token. The text does not show it.
    """
    if not isinstance(token, str):
        raise ConfigError(
            f"{where} is not a bearer token: it must be text, but is of type {type(token).__name__}"
        )
    token = token.strip()
    if not token or not token.isascii() or any(c.isspace() or not c.isprintable() for c in token):
        raise ConfigError(f"{where} is not a bearer token: it must be one word of printable ASCII")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    """The ``Authorization`` header for a user and a password."""
    pair = binascii.b2a_base64(f"{username}:{password}".encode(), newline=False)
    return f"Basic {pair.decode()}"


def checked_authorization(credentials: Credentials) -> str | None:
    """The header of the next request, checked.

    Raises:
        ConfigError: the credentials returned something else. The text does not show it.
    """
    value: object = credentials.authorization()
    if value is not None and not (
        isinstance(value, str) and value.isascii() and value.isprintable() and value.strip()
    ):
        given = "that" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ConfigError(
            f"{type(credentials).__name__}.authorization() must return one line of printable ASCII,"
            f" or None, but not {given}"
        )
    return value
