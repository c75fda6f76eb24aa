"""Configurations that others wrote: kubeconfig files and a pod's service account.

Merging files and every way to authenticate is left to the ``kubernetes`` package. Certificates are
read here, because the package leaves copies of keys in temporary files until the process ends; so
are the options it does not know (impersonation, a token file that rotates).
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from appsdk_operator.client._config import ClientConfig, Impersonation
from appsdk_operator.client._credentials import Credentials
from appsdk_operator.client._package import package
from appsdk_operator.client._transport_errors import ConfigError
from appsdk_operator.resource._yaml import load_first

__all__ = ["from_kubeconfig", "in_cluster", "load"]

_log = logging.getLogger("appsdk_operator.client")

_SECTIONS = ("contexts", "clusters", "users")
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def load(path: str | None, context: str | None) -> ClientConfig:
    """See :meth:`ClientConfig.load`."""
    if path is not None or os.environ.get("KUBECONFIG"):
        return from_kubeconfig(path, context)
    if context is None and _in_pod():
        return in_cluster()
    if _home_file().is_file():
        return from_kubeconfig(None, context)
    raise ConfigError(
        "there is no configuration of an API server: give a path, set $KUBECONFIG, run in a pod "
        f"with a service account, or put a kubeconfig at {_home_file()}"
    )


def in_cluster() -> ClientConfig:
    """See :meth:`ClientConfig.in_cluster`."""
    if not _in_pod():
        raise ConfigError(
            "this process does not run in a pod ($KUBERNETES_SERVICE_HOST and "
            "$KUBERNETES_SERVICE_PORT are not set): use a kubeconfig"
        )
    folder = Path(_SERVICE_ACCOUNT)
    for name in ("token", "ca.crt"):
        if not (folder / name).is_file():
            raise ConfigError(
                f"the pod has no {folder / name}: mount its service account "
                "(automountServiceAccountToken), or use a kubeconfig"
            )
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    server = f"https://{host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    return ClientConfig(
        server=server,
        ca_file=folder / "ca.crt",
        token_file=folder / "token",
        **_proxy_from_environment(server),
    )


def from_kubeconfig(path: str | None, context: str | None) -> ClientConfig:
    """See :meth:`ClientConfig.from_kubeconfig`."""
    path = path or os.environ.get("KUBECONFIG") or str(_home_file())
    found = _Kubeconfig.read(path, context)
    try:
        return found.to_config()
    except ConfigError as error:
        raise ConfigError(f"{found}: {error}") from error


def _in_pod() -> bool:
    return bool(
        os.environ.get("KUBERNETES_SERVICE_HOST") and os.environ.get("KUBERNETES_SERVICE_PORT")
    )


def _home_file() -> Path:
    return Path("~/.kube/config").expanduser()


def _proxy_from_environment(server: str) -> dict[str, Any]:
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(urlsplit(server).scheme) or proxies.get("all")
    if not proxy:
        return {}
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    return {"proxy_url": proxy, "no_proxy": proxies.get("no", "").split(",")}


@attrs.frozen(kw_only=True, repr=False)
class _Kubeconfig:
    """One context of the merged files, with the folders that its relative paths are meant from."""

    path: str
    context: str
    cluster: Mapping[str, Any]
    cluster_folder: Path
    user: Mapping[str, Any]
    user_folder: Path
    save: Any

    def __str__(self) -> str:
        return f"kubeconfig {self.path}, context {self.context!r}"

    @classmethod
    def read(cls, path: str, context: str | None) -> _Kubeconfig:
        """Read and merge the files, and find the context with its cluster and user."""
        files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
        if not any(file.is_file() for file in files):
            if folders := [file for file in files if file.is_dir()]:
                raise ConfigError(
                    f"{folders[0]} is a directory: give the kubeconfig in it, for example "
                    f"{folders[0] / 'config'}"
                )
            raise ConfigError(f"there is no kubeconfig at {path}: check the path or $KUBECONFIG")
        try:
            merger = package("config.kube_config").KubeConfigMerger(path)
            sections = {
                name: {entry["name"]: entry for entry in merger.config.value.get(name) or ()}
                for name in _SECTIONS
            }
            current = context or merger.config.value.get("current-context") or ""
        # The package raises whatever its YAML parser, the file system and missing keys raise.
        except Exception as error:
            what = _wrong_form(files) or error
            raise ConfigError(f"the kubeconfig {path} cannot be read: {what}") from error
        if current not in sections["contexts"]:
            raise ConfigError(
                f"the kubeconfig {path} has no context {current!r}, it has "
                f"{sorted(sections['contexts'])}: give context=…, or run kubectl config use-context"
            )
        chosen = _dict(sections["contexts"][current].value.get("context"))
        cluster = sections["clusters"].get(chosen.get("cluster"))
        user = sections["users"].get(chosen.get("user"))
        if cluster is None or (user is None and chosen.get("user")):
            missing = "cluster" if cluster is None else "user"
            raise ConfigError(
                f"context {current!r} of the kubeconfig {path} names the {missing} "
                f"{chosen.get(missing)!r}, which is in none of the files: add it"
            )
        return cls(
            path=path,
            context=current,
            cluster=_dict(cluster.value.get("cluster")),
            cluster_folder=_folder(cluster.path),
            user=_dict(user.value.get("user")) if user is not None else {},
            user_folder=_folder(user.path if user is not None else None),
            save=merger.save_changes,
        )

    def to_config(self) -> ClientConfig:
        """The configuration that the context describes."""
        server = self.cluster.get("server")
        if not isinstance(server, str):
            raise ConfigError("its cluster has no server")
        options: dict[str, Any] = dict(_proxy_from_environment(server))
        if proxy := self.cluster.get("proxy-url"):
            options.update(proxy_url=proxy, no_proxy=())
        options.update(_file_or_data(self.cluster, "certificate-authority", "ca", self))
        options.update(_file_or_data(self.user, "client-certificate", "cert", self))
        options.update(_file_or_data(self.user, "client-key", "key", self))
        _same_form(options)
        return ClientConfig(
            server=server,
            unsafe_skip_tls_verify=bool(self.cluster.get("insecure-skip-tls-verify")),
            tls_server_name=self.cluster.get("tls-server-name") or None,
            impersonate=_impersonation(self.user),
            **self.authentication(),
            **options,
        )

    def authentication(self) -> dict[str, Any]:
        """The option that says who the user is; none when certificates say it, or nothing does."""
        user = self.user
        if user.get("tokenFile") and not user.get("token") and "auth-provider" not in user:
            return {"token_file": self.user_folder / str(user["tokenFile"])}
        if "exec" in user and not user.get("token") and "auth-provider" not in user:
            from appsdk_operator.client._exec import ExecCredentials

            # On the machine's clock: clients of one configuration share the plugin, and the clock
            # of none of them is known yet.
            plugin = ExecCredentials(
                _dict(user["exec"]), folder=str(self.user_folder), cluster=self.cluster
            )
            return {"credentials": plugin}
        if any(user.get(key) for key in ("token", "auth-provider", "username")):
            return {"credentials": _PackageCredentials(self)}
        return {}


class _PackageCredentials(Credentials):
    """What the package's own loader makes of a user: tokens, passwords, auth providers.

    Its refresh hook is run for each request; after a 401 the files are read anew.
    """

    def __init__(self, kubeconfig: _Kubeconfig) -> None:
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._configuration = _load_with_package(kubeconfig)
        self._stale = False

    def authorization(self) -> str | None:
        """The header that the package would send now."""
        with self._lock:
            if self._stale:
                self._read_anew()
                self._stale = False
            configuration = self._configuration
            try:
                if configuration.refresh_api_key_hook is not None:
                    configuration.refresh_api_key_hook(configuration)
            except Exception as error:
                raise ConfigError(
                    f"{self._kubeconfig}: the credentials cannot be refreshed: {error}; log in "
                    "again with the provider's own tool"
                ) from error
            return _authorization_in(configuration)

    def reload(self) -> None:
        """Read the files anew for the next request."""
        self._stale = True

    def _read_anew(self) -> None:
        try:
            kubeconfig = _Kubeconfig.read(self._kubeconfig.path, self._kubeconfig.context)
            self._configuration = _load_with_package(kubeconfig)
            self._kubeconfig = kubeconfig
        except ConfigError as error:
            _log.warning("keeping the former credentials: %s", error)


def _load_with_package(kubeconfig: _Kubeconfig) -> Any:
    kept = ("token", "tokenFile", "auth-provider", "username", "password")
    # A file with nothing but the way to authenticate, so that no certificate is written anywhere.
    # The auth provider's dict is the merged files' own: a refreshed token is saved to them.
    loader = package("config.kube_config").KubeConfigLoader(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": kubeconfig.cluster["server"]}}],
            "users": [
                {"name": "it", "user": {k: v for k, v in kubeconfig.user.items() if k in kept}}
            ],
        },
        config_base_path=str(kubeconfig.user_folder),
        config_persister=kubeconfig.save,
    )
    configuration = package("client").Configuration()
    try:
        loader.load_and_set(configuration)
    except Exception as error:
        raise ConfigError(
            f"{kubeconfig}: the kubernetes package cannot load the credentials: {error!r}; log in "
            "again with the provider's own tool, or use an exec plugin"
        ) from error
    if _authorization_in(configuration) is None:
        provider = _dict(kubeconfig.user.get("auth-provider")).get("name")
        what = f"the auth-provider {provider!r}" if provider else "its user"
        raise ConfigError(
            f"{kubeconfig}: {what} gives no credentials: log in again, or use an exec plugin"
        )
    return configuration


def _authorization_in(configuration: Any) -> str | None:
    # The key's name changed between releases of the package.
    keys = configuration.api_key
    value = keys.get("BearerToken") or keys.get("authorization")
    if value is not None and not str(value).isprintable():
        raise ConfigError("the token in the kubeconfig must be one line of printable text")
    return None if value is None else str(value)


def _file_or_data(
    section: Mapping[str, Any], key: str, option: str, kubeconfig: _Kubeconfig
) -> dict[str, Any]:
    if data := section.get(f"{key}-data"):
        try:
            return {f"{option}_data": base64.b64decode(data, validate=True)}
        except (binascii.Error, TypeError, ValueError) as error:
            raise ConfigError(f"its {key}-data is not base64: {error}") from None
    if file := section.get(key):
        folder = (
            kubeconfig.cluster_folder if section is kubeconfig.cluster else kubeconfig.user_folder
        )
        return {f"{option}_file": folder / str(file)}
    return {}


def _same_form(options: dict[str, Any]) -> None:
    """Certificate and key may come one as file and one as data: then read the file."""
    for one, other in (("cert", "key"), ("key", "cert")):
        if f"{one}_file" in options and f"{other}_data" in options:
            path = Path(options.pop(f"{one}_file"))
            try:
                options[f"{one}_data"] = path.read_bytes()
            except OSError as error:
                raise ConfigError(f"{path} cannot be read: {error}") from error


def _impersonation(user: Mapping[str, Any]) -> Impersonation | None:
    if not user.get("as"):
        return None
    return Impersonation(
        user=str(user["as"]),
        groups=[str(group) for group in user.get("as-groups") or ()],
        uid=str(user.get("as-uid") or ""),
        extra={
            str(key): [str(value) for value in values]
            for key, values in _dict(user.get("as-user-extra")).items()
        },
    )


def _wrong_form(files: Sequence[Path]) -> str:
    """What the package's error would not say; empty if it is something else."""
    for file in files:
        try:
            data: Any = load_first(file.read_text())[0]
        except (OSError, ValueError):
            continue
        if not isinstance(data, dict):
            return (
                f"{file} is no YAML map with clusters, contexts and users: is it a kubeconfig, as "
                "kubectl config view --raw writes it?"
            )
        for name in _SECTIONS:
            entries: Any = data.get(name) or []
            is_list = isinstance(entries, list)
            if not is_list or not all(isinstance(e, dict) and "name" in e for e in entries):
                return f"{name} in {file} is no list of entries that each have a name"
    return ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _folder(path: str | None) -> Path:
    return Path(path).expanduser().absolute().parent if path else Path.cwd()
