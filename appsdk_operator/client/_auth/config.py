"""The configuration of a client: server address, TLS, credentials, time-outs and retries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from appsdk_operator._version import __version__
from appsdk_operator.client._auth.credentials import (
    Credentials,
    FixedCredentials,
    ProvidedToken,
    TokenFile,
    basic,
    bearer,
)
from appsdk_operator.client._auth.option_checks import (
    as_float,
    check_flag_option,
    check_function_option,
    check_header_text,
    check_not_negative,
    check_path,
    check_pem,
    check_positive,
    check_proxy,
    check_secret,
    check_server,
    check_server_name,
    host_names,
    path_text,
    pem_bytes,
)
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.runtime import Clock
from appsdk_operator.runtime.validation import check_instance, check_text, checked_seconds

if TYPE_CHECKING:
    from appsdk_operator.client._auth.impersonation import Impersonation


def _default_user_agent() -> str:
    return f"appsdk-operator/{__version__} (python {sys.version.split()[0]})"


def _check_load_options(path: object, context: object, exec_timeout: float | None) -> None:
    if path is not None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path={path!r}: give the path of a kubeconfig file")
        check_text("path", os.fspath(path), empty=False)
    if context is not None:
        check_text("context", context, empty=False)
    if exec_timeout is not None and not checked_seconds("exec_timeout", exec_timeout):
        raise ValueError("exec_timeout=0: use more than 0 seconds")


@attrs.frozen(kw_only=True)
class ClientConfig:
    """The address, credentials and limits for an API server; :meth:`ClientConfig.load` makes it.

    To change an option use ``attrs.evolve``. Every option is checked on creation. No repr shows a
    secret.

    >>> ClientConfig(server="https://10.0.0.1:6443", token="abc").read_timeout
    30.0
    >>> ClientConfig(server="10.0.0.1:6443")
    Traceback (most recent call last):
    ...
    appsdk_operator.client._errors.ConfigError: server must be 'http://host:port' or ...
    """

    server: str = attrs.field(validator=[attrs.validators.instance_of(str), check_server])
    """The address of the API server, ``https://host:port`` with an optional path before the API."""

    ca_file: str | None = attrs.field(default=None, converter=path_text, validator=check_path)
    """A file of CA certificates in PEM, to verify the server's certificate; default: the system's.

    The client reads it again when it changes."""
    ca_data: bytes | None = attrs.field(
        default=None, converter=pem_bytes, repr=False, validator=check_pem
    )
    """CA certificates as PEM text."""
    unsafe_skip_tls_verify: bool = attrs.field(default=False, validator=check_flag_option)
    """Trust any server. Only for throw-away clusters: a man in the middle can read and use the
    token."""
    tls_server_name: str | None = attrs.field(default=None, validator=check_server_name)
    """The name to send, and to expect in the server's certificate; default: the server's host."""

    cert_file: str | None = attrs.field(default=None, converter=path_text, validator=check_path)
    """A client certificate in PEM; read again when it changes."""
    key_file: str | None = attrs.field(default=None, converter=path_text, validator=check_path)
    """Its key; default: in ``cert_file`` as well."""
    cert_data: bytes | None = attrs.field(
        default=None, converter=pem_bytes, repr=False, validator=check_pem
    )
    """A client certificate as PEM text."""
    key_data: bytes | None = attrs.field(
        default=None, converter=pem_bytes, repr=False, validator=check_pem
    )
    """Its key as PEM text; default: in ``cert_data`` as well."""

    token: str | None = attrs.field(default=None, repr=False, validator=check_secret)
    """A bearer token that never changes."""
    token_file: str | None = attrs.field(default=None, converter=path_text, validator=check_path)
    """A file with a bearer token; the client reads it again when it changes.

    It checks the file at most once in 60 s, and at once after a 401."""
    token_provider: Callable[[], str] | None = attrs.field(
        default=None, repr=False, validator=check_function_option
    )
    """Called for the bearer token of each request, from any thread; it must cache slow tokens."""
    username: str | None = attrs.field(default=None, validator=check_secret)
    """The user for HTTP basic authentication."""
    password: str | None = attrs.field(default=None, repr=False, validator=check_secret)
    """The password for HTTP basic authentication."""
    credentials: Credentials | None = attrs.field(default=None, repr=False)
    """Other credentials, such as those of a kubeconfig, in place of the above."""
    impersonate: Impersonation | None = None
    """Act as another user; default: no impersonation."""

    proxy_url: str | None = attrs.field(default=None, repr=False, validator=check_proxy)
    """``http://`` or ``https://`` address of a proxy, with an optional ``user:password@``.
    Default: none; the loaders take it from the kubeconfig or from the environment."""
    no_proxy: Sequence[str] = attrs.field(default=(), converter=host_names)
    """Hosts to connect to without the proxy.

    Names (with their subdomains), addresses, networks such as ``10.0.0.0/8``, or ``*``. The loaders
    use no proxy of the environment for loopback."""

    connector: Callable[[], Any] | None = attrs.field(
        default=None, repr=False, eq=False, validator=check_function_option
    )
    """Makes connections without sockets; ``server`` is then only a name.

    For tests, see :attr:`~appsdk_operator.testing.MemoryServer.config`."""

    user_agent: str = attrs.field(factory=_default_user_agent, validator=check_header_text)
    """The program's name in the server's audit log; default: the kit and its version."""
    connect_timeout: float = attrs.field(default=10.0, converter=as_float, validator=check_positive)
    """Seconds for a connection, its proxy and its TLS handshake, each; default 10."""
    read_timeout: float = attrs.field(default=30.0, converter=as_float, validator=check_positive)
    """Seconds to wait for the head of an answer, and then for each byte of its body; default 30.

    After that the request fails. Watches have their own limits."""
    request_timeout: float = attrs.field(
        default=300.0, converter=as_float, validator=check_positive
    )
    """Seconds for one attempt of a request, from its first byte to the last one of its answer;
    default 300. The API server itself gives up after 60. Not for the body of a watch."""

    qps: float | None = attrs.field(default=None, validator=check_positive)
    """Requests per second in the long run; default: no limit.

    The server's priority and fairness limits requests, as in controller-runtime."""
    burst: int = attrs.field(default=100, validator=check_positive)
    """Requests at once before ``qps`` applies; default 100."""
    max_retries: int = attrs.field(default=4, validator=check_not_negative)
    """The maximum number of retries after a transient failure; default 4, 0 never."""
    retry_backoff: float = attrs.field(
        default=0.25, converter=as_float, validator=check_not_negative
    )
    """Seconds before the first retry; doubles with each, with up to 100 % of jitter; default
    0.25."""
    retry_max_wait: float = attrs.field(default=30.0, converter=as_float, validator=check_positive)
    """The longest wait before a retry in seconds; default 30.

    Longer waits are spread at random over the upper half of it, so replicas do not retry together.
    If the server requests a longer wait (``Retry-After``), the client does not retry, and the error
    has that time. A shorter or equal wait gets up to a second of jitter."""

    max_response_bytes: int = attrs.field(default=1 << 30, validator=check_positive)
    """The maximum size of an answer; default 1 GiB, for an unpaged list of a very large cluster."""
    compression: bool = attrs.field(default=False, validator=check_flag_option)
    """Request gzip, except for watches, whose events it would hold back; default False.

    On a fast network it costs the server more time than it saves. Use it for a remote cluster."""
    detailed_metrics: bool = attrs.field(default=False, validator=check_flag_option)
    """Also record durations, sizes, retries and rate limit waits of requests."""

    def __attrs_post_init__(self) -> None:
        if self.ca_file and self.ca_data:
            raise ConfigError("give ca_file or ca_data, not both")
        if self.unsafe_skip_tls_verify and (self.ca_file or self.ca_data):
            raise ConfigError(
                "unsafe_skip_tls_verify would make the given CA useless: leave out one of them"
            )
        if (self.cert_file or self.key_file) and (self.cert_data or self.key_data):
            raise ConfigError("give the client certificate as files or as data, not both")
        if (self.key_file and not self.cert_file) or (self.key_data and not self.cert_data):
            raise ConfigError("a client key needs its certificate: give cert_file or cert_data")
        methods = [
            name
            for name in ("token", "token_file", "token_provider", "username", "credentials")
            if getattr(self, name) is not None
        ]
        if len(methods) > 1:
            raise ConfigError(f"{' and '.join(methods)} are given: use one way to authenticate")
        if (self.username is None) != (self.password is None):
            raise ConfigError("basic authentication needs username and password")
        if ":" in (self.username or ""):
            raise ConfigError("username has a ':', which separates it from the password")
        if self.token is not None:
            bearer(self.token, "token")
        if self.credentials is not None:
            example = "a subclass of yours, or those of ClientConfig.load().credentials"
            check_instance("credentials", self.credentials, Credentials, example)
        if self.impersonate is not None:
            from appsdk_operator.client._auth.impersonation import Impersonation

            example = 'Impersonation(user="jane")'
            check_instance("impersonate", self.impersonate, Impersonation, example)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        context: str | None = None,
        exec_timeout: float | None = None,
    ) -> ClientConfig:
        """Find the configuration of this process.

        In this order, as in controller-runtime: ``path`` if given, ``$KUBECONFIG``, the service
        account in a pod, ``~/.kube/config``.

        Args:
            path: a kubeconfig file.
            context: its context; default: the file's current one. With a context and without
                ``path``, only kubeconfig files are searched.
            exec_timeout: as :meth:`from_kubeconfig`.

        Raises:
            ConfigError: there is no configuration, or it is unusable.
        """
        from appsdk_operator.client._auth.finding import load

        _check_load_options(path, context, exec_timeout)
        return load(ClientConfig, path_text(path), context, exec_timeout)

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        context: str | None = None,
        exec_timeout: float | None = None,
    ) -> ClientConfig:
        """The configuration that a kubeconfig file describes.

        Args:
            path: the file, or several joined by the system's path separator; default:
                ``$KUBECONFIG``, else ``~/.kube/config``.
            context: default: the file's current context.
            exec_timeout: the time limit of an exec plugin in seconds; default: 60, or 600 if it may
                ask at a terminal.

        Raises:
            ConfigError: no such file or context, or a part of it cannot be used.
        """
        from appsdk_operator.client._auth.kubeconfig import from_kubeconfig

        _check_load_options(path, context, exec_timeout)
        return from_kubeconfig(ClientConfig, path_text(path), context, exec_timeout)

    @classmethod
    def in_cluster(cls) -> ClientConfig:
        """The configuration of a pod's service account; the client reads a rotated token again.

        Raises:
            ConfigError: the process does not run in a pod, or has no mounted service account.
        """
        from appsdk_operator.client._auth.service_account import in_cluster

        return in_cluster(ClientConfig)


def credentials_of(config: ClientConfig, clock: Clock) -> Credentials:
    """The credentials of a configuration."""
    if config.credentials is not None:
        return config.credentials
    if config.token_file is not None:
        return TokenFile(config.token_file, clock=clock)
    if config.token_provider is not None:
        return ProvidedToken(config.token_provider)
    if config.token is not None:
        return FixedCredentials(bearer(config.token, "token"))
    if config.username is not None:
        return FixedCredentials(basic(config.username, config.password or ""))
    return FixedCredentials(None)
