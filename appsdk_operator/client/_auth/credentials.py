"""Credentials: the ``Authorization`` header, with tokens that rotate and reload after a 401."""

from __future__ import annotations

import binascii
import threading
from collections.abc import Callable
from typing import Any, TypeGuard

import msgspec

from appsdk_operator.client._auth.config_files import check_regular, read_file
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.runtime import Clock, StopSignal, fork_safe, get_logger, present_clock
from appsdk_operator.runtime.validation import no_awaitable

_log = get_logger("appsdk_operator.client")

_MAX_TOKEN = 1 << 20  # bytes; servers take headers of a hundredth of that
_CHECK_SECONDS = 60.0  # seconds; kubelet rotates tokens long before they expire


class Credential(msgspec.Struct, frozen=True):
    """Header and certificate of one attempt of a request. Its own text does not show them.

    Raises:
        ConfigError: a value cannot be sent. The text does not show it.
    """

    authorization: str | None = None
    """The ``Authorization`` header, one line of printable ASCII; None: no header."""

    certificate: tuple[bytes, bytes] | None = None
    """Certificate and key in PEM for a new connection; None: from the configuration."""

    def __post_init__(self) -> None:
        value: object = self.authorization
        if value is not None and not (
            isinstance(value, str) and value.isascii() and value.isprintable() and value.strip()
        ):
            given = "that" if isinstance(value, str) else f"a {type(value).__name__}"
            raise ConfigError(
                f"Credential.authorization must be one line of printable ASCII, or None, but not"
                f" {given}"
            )
        pair: object = self.certificate
        if pair is not None and not (
            isinstance(pair, tuple) and len(pair) == 2 and all(type(it) is bytes for it in pair)
        ):
            raise ConfigError(
                "Credential.certificate must be a tuple of two bytes, certificate and key in PEM, "
                "or None"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Credentials:
    """A source of credentials; subclass it to write your own.

    Implementations are thread-safe.
    """

    def obtain(self, stop: StopSignal) -> Credential:  # noqa: ARG002
        """The credential for an attempt of a request, that is sent with nothing else.

        It may take long, as where a program is run for it; return early when stopped: the attempt
        is not made then, whatever is returned.

        Raises:
            ConfigError: there is none; the text says what to change.
        """
        return Credential()

    def refused(self, credential: Credential) -> None:
        """The server has just answered 401 to this credential: drop it where it is cached.

        Attempts that were under way at the same time are refused, too, after another credential
        has been obtained: that one is not to be dropped.
        """


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
        self._credential = Credential(value)

    def obtain(self, stop: StopSignal) -> Credential:  # noqa: ARG002
        """The header."""
        return self._credential


class ProvidedToken(Credentials):
    """A bearer token from ``token_provider``."""

    def __init__(self, provider: Callable[[], str]) -> None:
        self._provider = provider

    def obtain(self, stop: StopSignal) -> Credential:  # noqa: ARG002
        """The token that the function returns now."""
        token = no_awaitable("token_provider", self._provider())
        return Credential(bearer(token, "what token_provider returned"))


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
        self._credential = Credential(former) if former else None
        self._stamp: tuple[int, int, int] | None = None
        self._check_at = float("-inf")
        self._renewal = RenewalLog("credentials")

    def obtain(self, stop: StopSignal) -> Credential:  # noqa: ARG002
        """The token in the file.

        Raises:
            ConfigError: the file cannot be read, is empty or holds no token.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._credential is None or now >= self._check_at:
                self._credential = self._read_if_changed(self._credential)
                self._check_at = now + _CHECK_SECONDS
            return self._credential

    def refused(self, credential: Credential) -> None:
        """Check the file at the next request."""
        with self._lock:
            if credential == self._credential:
                self._check_at = float("-inf")
                self._stamp = None

    def _read_if_changed(self, former: Credential | None) -> Credential:
        try:
            status = check_regular(self._path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if former is not None and stamp == self._stamp:
                return former
            token = read_file(self._path, _MAX_TOKEN).decode()
            made = Credential(bearer(token, f"the file {self._path}"))
            self._stamp = stamp
            self._renewal.succeeded()
            return made
        except (OSError, UnicodeError, ConfigError) as error:
            reason = f"it is not text: {error.reason}" if _is_no_text(error) else str(error)
        # Not as the cause or the context: a UnicodeDecodeError has the whole file.
        problem = ConfigError(
            f"the token file {self._path} cannot be read: {reason}; check that it is mounted "
            "and readable"
        )
        # The file that comes next may have the stamp of the last one that could be read.
        self._stamp = None
        if former is None:
            raise problem
        self._renewal.failed(problem)
        return former


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


def obtained(credentials: Credentials, stop: StopSignal) -> Credential | None:
    """The credential for the next attempt; None when stopped.

    Raises:
        ConfigError: there is none, or the source returned something else.
    """
    value: object = credentials.obtain(stop)
    if stop.is_set():
        return None
    if not isinstance(value, Credential):
        no_awaitable(f"{type(credentials).__name__}.obtain", value)
        raise ConfigError(
            f"{type(credentials).__name__}.obtain() must return a Credential, but not a "
            f"{type(value).__name__}"
        )
    return value
