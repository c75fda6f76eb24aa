"""Kubeconfig files.

Files are merged as ``kubectl`` does, and the type of each value is checked. The loader of the
``kubernetes`` package checks no types and sends garbled credentials or none, leaves copies of keys
in temporary files until the process ends, and hangs on YAML aliases that multiply. It is used for
auth providers only.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator.client._auth.config_files import check_regular, read_file
from appsdk_operator.client._auth.credentials import (
    Credential,
    Credentials,
    RenewalLog,
    TokenFile,
    basic,
    bearer,
)
from appsdk_operator.client._auth.impersonation import Impersonation
from appsdk_operator.client._auth.kubeconfig_section import KubeconfigSection
from appsdk_operator.client._auth.service_account import ConfigT, proxy_from_environment
from appsdk_operator.client._errors import ConfigError
from appsdk_operator.client._kubernetes_package import package
from appsdk_operator.resource import load_first
from appsdk_operator.runtime import StopSignal, fork_safe, get_logger

_log = get_logger("appsdk_operator.client")

_SECTIONS = ("contexts", "clusters", "users")
_MAX_VALUES = 200_000
"""The limit on values of a file: aliases of aliases would fill any memory."""
_SHORTEST_SECRET = 6
"""Characters: a shorter value is part of ordinary words."""
_QUOTED = re.compile(r"'[^']*'?|\"[^\"]*\"?")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
_USER_KEYS = (
    *_IMPERSONATION,
    *("token", "tokenFile", "username", "password", "exec", "auth-provider"),
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
)


def from_kubeconfig(
    make: Callable[..., ConfigT], path: str | None, context: str | None, exec_timeout: float | None
) -> ConfigT:
    """See :meth:`ClientConfig.from_kubeconfig`."""
    path = path or os.environ.get("KUBECONFIG") or str(home_file())
    found = _Kubeconfig.read(path, context)
    try:
        return make(**found.options(exec_timeout))
    except ConfigError as error:
        raise ConfigError(f"{found}: {error}") from error


def contexts_of(server: str, path: str | None = None) -> list[str]:
    """The contexts of the kubeconfig for an API server, the current one first.

    Args:
        server: the URL of the API server.
        path: the kubeconfig, or several as in ``$KUBECONFIG``; default: that, or that in the home.

    Returns:
        Their names; empty without a kubeconfig.

    Raises:
        ConfigError: a file cannot be used.
    """
    path = path or os.environ.get("KUBECONFIG") or str(home_file())
    contexts: dict[str, str] = {}
    clusters: dict[str, str] = {}
    current = ""
    for file in [Path(part).expanduser() for part in path.split(os.pathsep) if part]:
        if not file.exists():
            continue
        whole = _read_file(file)
        current = current or whole.text("current-context")
        for name, entry in _entries(whole, "contexts"):
            contexts.setdefault(name, entry.section("context").text("cluster"))
        for name, entry in _entries(whole, "clusters"):
            clusters.setdefault(name, entry.section("cluster").text("server"))
    wanted = server.rstrip("/")
    found = [
        name
        for name, cluster in contexts.items()
        if clusters.get(cluster, "").rstrip("/") == wanted
    ]
    return sorted(found, key=lambda name: name != current)


def home_file() -> Path:
    """The kubeconfig of this user."""
    return Path("~/.kube/config").expanduser()


@attrs.frozen(kw_only=True, repr=False)
class _Kubeconfig:
    """One context of the merged kubeconfig files."""

    path: str
    context: str
    cluster: KubeconfigSection
    user_name: str
    user: KubeconfigSection

    def __str__(self) -> str:
        return f"kubeconfig {self.path}, context {self.context!r}"

    @classmethod
    def read(cls, path: str, context: str | None) -> _Kubeconfig:
        """Read and merge the files, and find the context with its cluster and user."""
        files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
        found = [file for file in files if file.exists()]
        if not found:
            raise ConfigError(f"there is no kubeconfig at {path}: check the path or $KUBECONFIG")
        entries: dict[str, dict[str, KubeconfigSection]] = {name: {} for name in _SECTIONS}
        current = context or ""
        for file in found:
            whole = _read_file(file)
            for name in _SECTIONS:
                for entry_name, entry in _entries(whole, name):
                    entries[name].setdefault(entry_name, entry)
            current = current or whole.text("current-context")
        if current not in entries["contexts"]:
            raise ConfigError(
                f"the kubeconfig {path} has no context {current!r}, it has "
                f"{sorted(entries['contexts'])}: give context=…, or run kubectl config use-context"
            )
        chosen = entries["contexts"][current].section("context")
        names = {part: chosen.text(part) for part in ("cluster", "user")}
        for part, name in names.items():
            if name not in entries[f"{part}s"] and (name or part == "cluster"):
                raise ConfigError(
                    f"context {current!r} of the kubeconfig {path} names the {part} "
                    f"{name!r}, which is in none of the files: add it"
                )
        nobody = attrs.evolve(chosen, values={}, path="users")
        return cls(
            path=path,
            context=current,
            cluster=entries["clusters"][names["cluster"]].section("cluster"),
            user_name=names["user"],
            user=entries["users"][names["user"]].section("user") if names["user"] else nobody,
        )

    def options(self, exec_timeout: float | None) -> dict[str, Any]:
        """The context as options of a client configuration."""
        server = self.cluster.text("server")
        if not server:
            raise ConfigError("its cluster has no server")
        options: dict[str, Any] = dict(proxy_from_environment(server))
        if proxy := self.cluster.text("proxy-url"):
            options.update(proxy_url=proxy, no_proxy=())
        options.update(_file_or_data(self.cluster, "certificate-authority", "ca"))
        options.update(_file_or_data(self.user, "client-certificate", "cert"))
        options.update(_file_or_data(self.user, "client-key", "key"))
        _use_data_for_both(options)
        return {
            "server": server,
            "unsafe_skip_tls_verify": self.cluster.flag("insecure-skip-tls-verify"),
            "tls_server_name": self.cluster.text("tls-server-name") or None,
            "impersonate": _impersonation(self.user),
            **self.authentication(exec_timeout),
            **options,
        }

    def authentication(self, exec_timeout: float | None) -> dict[str, Any]:
        """The option for the user's credentials; none with a client certificate alone."""
        user = self.user
        if user.section("auth-provider").values:
            return {"credentials": _PackageCredentials(self)}
        token, file = user.text("token"), user.text("tokenFile")
        if file and token:
            # As in client-go: the token is for as long as the file cannot be read.
            former = bearer(token, user.location("token"))
            return {"credentials": TokenFile(str(user.folder / file), former=former)}
        if file:
            return {"token_file": user.folder / file}
        if not token and user.section("exec").values:
            from appsdk_operator.client._auth.exec import ExecCredentials

            # On the machine's clock: the clients of one configuration share the plugin, and their
            # clocks are not known yet.
            plugin = ExecCredentials(
                user.section("exec"),
                folder=str(user.folder),
                cluster=self.cluster.values,
                timeout=exec_timeout,
            )
            return {"credentials": plugin}
        if any(user.text(key) for key in ("token", "username", "password")):
            return {"credentials": _FileCredentials(self)}
        if user.values and not any(key in user.values for key in _USER_KEYS):
            _log.warning(
                "%s: nothing in %s in %s says who the user is: requests are anonymous",
                self,
                user.path,
                user.file,
            )
        return {}


class _FileCredentials(Credentials):
    """A token, or a user with a password; a 401 reloads the files."""

    def __init__(self, kubeconfig: _Kubeconfig) -> None:
        self._kubeconfig = kubeconfig
        self._lock = fork_safe(threading.Lock())
        self._header: str | None = self._header_from(kubeconfig)
        self._last = Credential(self._header)
        self._stale = False
        self._renewal = RenewalLog("credentials")

    def obtain(self, stop: StopSignal) -> Credential:  # noqa: ARG002
        """The header for the token, or the user, in the file."""
        with self._lock:
            if self._stale:
                self._reload_files()
                self._stale = False
            header = self._current()
            if header != self._last.authorization:
                self._last = Credential(header)
            return self._last

    def refused(self, credential: Credential) -> None:
        """Read the files again at the next request."""
        with self._lock:
            if credential == self._last:
                self._stale = True

    def _current(self) -> str | None:
        return self._header

    def _reload_files(self) -> None:
        try:
            kubeconfig = _Kubeconfig.read(self._kubeconfig.path, self._kubeconfig.context)
            self._header = self._header_from(kubeconfig)
            self._kubeconfig = kubeconfig
            self._renewal.succeeded()
        except ConfigError as error:
            self._renewal.failed(error)

    def _header_from(self, kubeconfig: _Kubeconfig) -> str | None:
        user = kubeconfig.user
        if token := user.text("token"):
            return bearer(token, user.location("token"))
        name, password = user.text("username"), user.text("password")
        if not name or not password:
            missing, given = ("password", "username") if name else ("username", "password")
            raise ConfigError(f"{user.location(given)} is given without a {missing}")
        if ":" in name:
            raise ConfigError(f"{user.location('username')} has a ':', which ends a user's name")
        return basic(name, password)


class _PackageCredentials(_FileCredentials):
    """The credentials of an auth provider, loaded and refreshed by the ``kubernetes`` package."""

    def _current(self) -> str | None:
        configuration = self._configuration
        problem = ""
        try:
            if configuration.refresh_api_key_hook is not None:
                configuration.refresh_api_key_hook(configuration)
        except Exception as error:
            problem = _shown_problem(error, self._kubeconfig.user)
        if problem:
            raise ConfigError(
                f"{self._kubeconfig}: the credentials cannot be refreshed: {problem}; log in "
                "again with the provider's own tool"
            )
        return _authorization_from(configuration)

    def _header_from(self, kubeconfig: _Kubeconfig) -> str | None:
        self._configuration = _load_with_package(kubeconfig)
        return None


def _load_with_package(kubeconfig: _Kubeconfig) -> Any:
    provider = kubeconfig.user.section("auth-provider").text("name")
    problem = ""
    what = f"the auth-provider {provider!r}"
    try:
        config = package("config.kube_config", what)
        client = package("client", what)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error}, or use an exec plugin") from error
    try:
        # The dict of the merged files themselves, so that a refreshed token is saved to them.
        merger = config.KubeConfigMerger(kubeconfig.path)
        (user,) = (
            entry["user"].value
            for entry in merger.config.value["users"]
            if entry["name"] == kubeconfig.user_name
        )
        # A kubeconfig with the auth provider alone, so that no certificate is written to disk.
        loader = config.KubeConfigLoader(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [
                    {"name": "it", "cluster": {"server": kubeconfig.cluster.text("server")}}
                ],
                "users": [{"name": "it", "user": {"auth-provider": user["auth-provider"]}}],
            },
            config_base_path=str(kubeconfig.user.folder),
            config_persister=merger.save_changes,
        )
        configuration = client.Configuration()
        loader.load_and_set(configuration)
    # Providers, the file system and missing keys raise errors of any class.
    except Exception as error:
        configuration, problem = None, _shown_problem(error, kubeconfig.user)
    if problem:
        raise ConfigError(
            f"{kubeconfig}: the kubernetes package cannot load the credentials: {problem}; log in "
            "again with the provider's own tool, or use an exec plugin"
        )
    if _authorization_from(configuration) is None:
        raise ConfigError(
            f"{kubeconfig}: the auth-provider {provider!r} gives no credentials: log in again, or "
            "use an exec plugin"
        )
    return configuration


def _shown_problem(error: Exception, user: KubeconfigSection) -> str:
    """An error of the package as text, without the values that the file has for the user.

    The error itself is not a cause of another: decoders' errors have the text that they refused.
    """
    text = repr(error)
    pending: list[Any] = [user.values]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "…").replace(repr(value)[1:-1], "…")
    return text


def _authorization_from(configuration: Any) -> str | None:
    # The key's name changed between releases of the package.
    keys = configuration.api_key
    value = keys.get("BearerToken") or keys.get("authorization")
    if value is None:
        return None
    return bearer(str(value).removeprefix("Bearer "), "the token of the auth-provider")


def _file_or_data(section: KubeconfigSection, key: str, option: str) -> dict[str, Any]:
    if data := section.text(f"{key}-data"):
        try:
            return {f"{option}_data": base64.b64decode("".join(data.split()), validate=True)}
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{section.location(f'{key}-data')} is not base64: {error}") from None
    if file := section.text(key):
        return {f"{option}_file": section.folder / file}
    return {}


def _use_data_for_both(options: dict[str, Any]) -> None:
    """Read the file if one of certificate and key is a file and the other is data."""
    for one, other in (("cert", "key"), ("key", "cert")):
        if f"{one}_file" in options and f"{other}_data" in options:
            path = options.pop(f"{one}_file")
            try:
                options[f"{one}_data"] = read_file(path)
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error}") from error


def _impersonation(user: KubeconfigSection) -> Impersonation | None:
    if not any(user.values.get(key) for key in _IMPERSONATION):
        return None
    extra = user.section("as-user-extra")
    return Impersonation(
        user=user.text("as"),
        groups=user.texts("as-groups"),
        uid=user.text("as-uid"),
        extra={key: extra.texts(key) for key in extra.values},
    )


def _read_file(file: Path) -> KubeconfigSection:
    """Read the map in a kubeconfig file.

    Raises:
        ConfigError: it cannot be read, or is not a map; the text names the file.
    """
    data, problem = None, ""
    try:
        if file.is_dir():
            raise ConfigError(
                f"{file} is a directory: give the kubeconfig in it, for example {file / 'config'}"
            )
        check_regular(file)
        data, _ = load_first(read_file(file).decode(), most_values=_MAX_VALUES)
    except UnicodeDecodeError as error:
        problem = (
            f"it is not text: {error.reason} at byte {error.start}; is it another file, or one in "
            "UTF-16?"
        )
    except ConfigError:
        raise
    except OSError as error:
        problem = str(error)
    except ValueError as error:
        # What it quotes, such as an unknown alias, may be a part of a token.
        problem = _QUOTED.sub("…", str(error))
    # Neither cause nor context: the errors of decoders and parsers have lines of the file.
    if problem:
        raise ConfigError(f"the kubeconfig {file} cannot be read: {problem}")
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{file} is not a YAML map with clusters, contexts and users: is it a kubeconfig, as "
            "kubectl config view --raw writes it?"
        )
    folder = file.absolute().parent
    return KubeconfigSection(values=data, path="", file=str(file), folder=folder)


def _entries(whole: KubeconfigSection, name: str) -> Iterator[tuple[str, KubeconfigSection]]:
    """The named entries of one of the lists."""
    given: Any = whole.values.get(name) or []
    if not isinstance(given, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in given
    ):
        raise ConfigError(f"{name} in {whole.file} is not a list of entries that each have a name")
    for entry in given:
        yield entry["name"], attrs.evolve(whole, values=entry, path=f"{name}[{entry['name']}]")
