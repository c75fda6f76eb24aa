"""Discovery: the server's version, and kinds by the names that kubectl accepts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from appsdk_operator.client._errors import (
    ApiError,
    ConnectFailed,
    NotFound,
    RequestStopped,
    TransportError,
    Unauthorized,
)
from appsdk_operator.resource import DecodeError, Kind, Scope, decode_json
from appsdk_operator.runtime import fork_safe
from appsdk_operator.runtime.validation import check_callable, check_text

# Errors that every other group would raise, too.
_SERVER_WIDE_ERRORS = (ConnectFailed, RequestStopped, Unauthorized)


@attrs.frozen(order=True)
class ServerVersion:
    """The version of an API server.

    >>> ServerVersion(1, 29, "v1.29.3+k3s1") >= ServerVersion(1, 28)
    True
    """

    major: int
    minor: int
    git_version: str = attrs.field(default="", eq=False, order=False)
    """The whole version, as the server writes it."""


@attrs.frozen
class APIResource:
    """One resource that the server serves."""

    kind: Kind
    verbs: frozenset[str]
    """The supported verbs, for example ``watch``."""
    singular: str
    short_names: tuple[str, ...]
    subresources: frozenset[str]
    """For example ``status`` and ``scale``."""


class NoSuchKind(LookupError):  # noqa: N818 - named as the API errors are
    """The server serves no kind of this name; the text names the groups that did not answer."""


class Discovery:
    """The groups, versions and kinds that the server serves, fetched on use and cached.

    Thread-safe. If a kind is not found, discovery searches once more with fresh answers, because
    its CRD may be new. Until then, removed kinds stay cached.

    If a group does not answer, for example because its aggregated server is down, discovery
    searches the others.
    """

    def __init__(
        self,
        get: Callable[[str], bytes],
        *,
        get_once: Callable[[str], bytes] | None = None,
    ) -> None:
        """Discovery by requests to the server.

        Args:
            get: returns the answer at a path, and raises :class:`NotFound` for a 404.
            get_once: as ``get``, but without retries, for groups that the search may not need;
                default: ``get``.
        """
        check_callable("get", get, "path")
        check_callable("get_once", get_once, "path")
        if get is None:
            raise TypeError("get=None: give a function of a path")
        self._get = get
        self._get_once = get_once or get
        self._lock = fork_safe(threading.Lock())
        self._groups: dict[str, list[str]] | None = None
        self._resources: dict[str, tuple[APIResource, ...]] = {}
        self._forgotten = 0
        """How often :meth:`forget` was called: an answer from before is not kept."""
        # Versions that did not answer come last, so that not every name waits for their time-out.
        self._failed: set[str] = set()

    def server_version(self) -> ServerVersion:
        """The server's version; each call sends a request."""
        version = decode_json(self._get("/version"))
        text = str(version.get("gitVersion", ""))
        # "v1.29.3+k3s1"; servers built without their build system leave major and minor empty.
        parts = [*text.lstrip("v").split("."), "", ""]
        return ServerVersion(
            _number(version.get("major") or parts[0]),
            _number(version.get("minor") or parts[1]),
            text,
        )

    def api_versions(self) -> list[str]:
        """Every served ``group/version``, each group's preferred version first."""
        return [
            f"{group}/{version}" if group else version
            for group, versions in self._versions().items()
            for version in versions
        ]

    def resources(self, api_version: str) -> tuple[APIResource, ...]:
        """The resources of one ``group/version``, except ones with invalid names.

        Raises:
            NotFound: the server does not serve it.
            DecodeError: the answer is not a list of resources.
        """
        check_text("api_version", api_version, empty=False)
        return self._resources_of(api_version, self._get)

    def _resources_of(
        self, api_version: str, get: Callable[[str], bytes]
    ) -> tuple[APIResource, ...]:
        with self._lock:
            known, forgotten = self._resources.get(api_version), self._forgotten
        if known is None:
            root = "apis" if "/" in api_version else "api"
            answer = decode_json(get(f"/{root}/{api_version}"))
            try:
                known = _resources(api_version, answer)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise DecodeError(
                    f"what the server says of {api_version} is not a list of resources: {error!r}"
                ) from error
            with self._lock:
                if forgotten == self._forgotten:
                    self._resources[api_version] = known
                self._failed.discard(api_version)
        return known

    def kind_for(self, name: str, *, api_version: str = "") -> Kind:
        """The kind with a name, as kubectl resolves it.

        Args:
            name: plural, singular, short name or kind, alone or with its group, or with version
                and group: ``widgets.example.com``, ``Deployment.apps``,
                ``deployments.v1.apps``, ``po``.
            api_version: search this ``group/version`` only; default: all, preferred versions first.

        Raises:
            NoSuchKind: no group that answered has this name, even with fresh answers; the text
                names the groups that did not answer.
            ApiError, TransportError: no group answered.

        A name without group is searched in the core group first, then in the preferred versions of
        all others, then in all other versions.
        """
        _check_name(name)
        check_text("api_version", api_version)
        failures: dict[str, Exception] = {}
        answered = False
        for attempt in range(2):
            if attempt:
                self.forget()
            failures.clear()
            answered = False
            for candidate, version in self._candidates(name, api_version):
                try:
                    resources = self._resources_of(
                        version, self._get if attempt else self._get_once
                    )
                except NotFound:
                    answered = True
                    continue
                except (ApiError, TransportError, DecodeError) as error:
                    if isinstance(error, _SERVER_WIDE_ERRORS):
                        raise
                    failures[version] = error
                    with self._lock:
                        self._failed.add(version)
                    continue
                answered = True
                found = _find(candidate, resources)
                if found is not None:
                    return found
        cause = next(iter(failures.values()), None)
        if cause is not None and not answered:
            raise cause
        where = f" in {api_version}" if api_version else ""
        unknown = "".join(f"; {version} did not answer: {e}" for version, e in failures.items())
        raise NoSuchKind(
            f"the server serves no {name!r}{where}: check the spelling, and that its CRD is "
            f"installed and established{unknown}"
        ) from cause

    def forget(self) -> None:
        """Drop the cached answers."""
        with self._lock:
            self._groups = None
            self._resources.clear()
            self._forgotten += 1

    def _candidates(self, name: str, api_version: str) -> Iterator[tuple[str, str]]:
        """The pairs of name and version to search, in order."""
        if api_version:
            yield name, api_version
            return
        groups = self._versions()
        resource, _, rest = name.partition(".")
        if not rest:
            wanted = [_api_version(group, versions[0]) for group, versions in groups.items()]
            # Some are served only in a version that is not preferred, as CronJobs were for long.
            wanted += [
                _api_version(group, v) for group, versions in groups.items() for v in versions[1:]
            ]
            with self._lock:
                wanted.sort(key=self._failed.__contains__)
            yield from ((resource, version) for version in wanted)
            return
        version, _, group = rest.partition(".")
        if version in groups.get(group, ()):
            yield resource, _api_version(group, version)
        if rest in groups:
            yield from ((resource, _api_version(rest, version)) for version in groups[rest])

    def _versions(self) -> dict[str, list[str]]:
        with self._lock:
            if self._groups is not None:
                return self._groups
            forgotten = self._forgotten
        core = decode_json(self._get("/api"))
        groups = {"": [str(version) for version in core.get("versions") or ["v1"]]}
        for group in decode_json(self._get("/apis")).get("groups") or ():
            versions = [str(version["version"]) for version in group["versions"]]
            if not versions:
                continue
            preferred = str((group.get("preferredVersion") or {}).get("version", versions[0]))
            groups[str(group["name"])] = sorted(versions, key=lambda v: v != preferred)
        with self._lock:
            if forgotten == self._forgotten:
                self._groups = groups
        return groups


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"name={name!r}: name the kind as text, for example 'deployments.apps'")


def _find(name: str, resources: Iterable[APIResource]) -> Kind | None:
    wanted = name.lower()
    for names in (
        lambda r: (r.kind.plural,),
        lambda r: (r.kind.kind.lower(), r.singular),
        lambda r: r.short_names,
    ):
        for resource in resources:
            if wanted in names(resource):
                return resource.kind
    return None


def _api_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _number(text: object) -> int:
    # Some vendors write the minor version as "29+".
    digits = "".join(c for c in str(text) if c.isdigit())
    return int(digits) if digits else 0


def _resources(api_version: str, answer: dict[str, Any]) -> tuple[APIResource, ...]:
    group, _, version = api_version.rpartition("/")
    subresources: dict[str, set[str]] = {}
    for entry in answer.get("resources") or ():
        parent, _, part = entry["name"].partition("/")
        if part:
            subresources.setdefault(parent, set()).add(part)
    found: list[APIResource] = []
    for entry in answer.get("resources") or ():
        if "/" in entry["name"]:
            continue
        try:
            kind = Kind(
                group=entry.get("group") or group,
                version=entry.get("version") or version,
                kind=entry["kind"],
                plural=entry["name"],
                scope=Scope.NAMESPACED if entry["namespaced"] else Scope.CLUSTER,
            )
        except ValueError:  # metrics adapters list the names of their metrics
            continue
        found.append(
            APIResource(
                kind=kind,
                verbs=frozenset(entry.get("verbs") or ()),
                singular=entry.get("singularName") or "",
                short_names=tuple(entry.get("shortNames") or ()),
                subresources=frozenset(subresources.get(entry["name"], ())),
            )
        )
    return tuple(found)
