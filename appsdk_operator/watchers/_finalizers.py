"""Put finalizers on objects and take them off, without touching anybody else's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, final

from appsdk_operator.client import Conflict, Invalid, JsonPatch, NotFound, Patch
from appsdk_operator.resource import Kind, Object

__all__ = [
    "FinalizerError",
    "FinalizerSupplier",
    "Finalizers",
    "PatchClient",
    "default_finalizer",
    "in_progress_finalizer",
]

FinalizerSupplier: TypeAlias = Callable[[Kind], str]
"""Gives the name of the finalizer for a kind."""

_MAX_NAME = 63
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ATTEMPTS = 10


class PatchClient(Protocol):
    """What finalizers need of a client."""

    def get(self, kind: Kind, name: str, *, namespace: str = ...) -> Object:
        """The object as it is on the server now."""
        ...

    def patch(self, kind: Kind, name: str, patch: Patch, *, namespace: str = ...) -> Object:
        """Change the object; returns what became of it."""
        ...


class FinalizerError(Exception):
    """A finalizer could not be put on or taken off; the cause says why."""


def default_finalizer(kind: Kind) -> str:
    """``operator.{version}.{kind}.{group}``, as in grafana-app-sdk.

    Built-in kinds take only finalizers with a domain in front, so theirs are
    ``operator.appsdk/{version}.{kind}.{group}``.

    >>> default_finalizer(Kind(group="example.com", version="v1", kind="Widget"))
    'operator.v1.Widget.example.com'
    >>> default_finalizer(Kind(group="", version="v1", kind="ConfigMap"))
    'operator.appsdk/v1.ConfigMap'
    """
    return _finalizer("operator", kind)


def in_progress_finalizer(kind: Kind) -> str:
    """``wip.{version}.{kind}.{group}``: on objects whose add callback has not succeeded yet.

    It belongs to :func:`default_finalizer`; a watcher with another one gets ``wip.`` in front of
    that, because one watcher must not end what another has begun.
    """
    return _finalizer("wip", kind)


def in_progress_name(kind: Kind, finalizer: str) -> str:
    """The finalizer for objects in progress that belongs to ``finalizer``."""
    if finalizer == default_finalizer(kind):
        return in_progress_finalizer(kind)
    prefix, slash, rest = finalizer.rpartition("/")
    name = f"wip.{rest}"
    if len(name) > _MAX_NAME:
        # Still one for each: the digest stands for what is cut off.
        digest = hashlib.sha256(rest.encode()).hexdigest()[:16]
        name = f"{name[: _MAX_NAME - 17]}.{digest}"
    return f"{prefix}{slash}{name}"


def _finalizer(prefix: str, kind: Kind) -> str:
    if kind.group and "." in kind.group and not kind.group.endswith(".k8s.io"):
        return f"{prefix}.{kind.version}.{kind.kind}.{kind.group}"
    return f"{prefix}.appsdk/{kind.version}.{kind.kind}" + (f".{kind.group}" if kind.group else "")


def check_finalizer(name: str) -> str:
    """``name`` itself.

    Raises:
        ValueError: no API server would accept it.
    """
    prefix, slash, rest = name.rpartition("/")
    if not _NAME.fullmatch(rest) or (slash and not _PREFIX.fullmatch(prefix)):
        raise ValueError(
            f"finalizer {name!r} is not a qualified name: use for example 'example.com/cleanup'"
        )
    if len(rest) > _MAX_NAME:
        raise ValueError(
            f"finalizer {name!r} is longer than {_MAX_NAME} characters: give a finalizer= function "
            "that returns a shorter name"
        )
    return name


@final
class Finalizers:
    """Writes finalizers of one kind, each write guarded by what was read before. Thread-safe."""

    def __init__(self, kind: Kind, client: PatchClient) -> None:
        self._kind = kind
        self._client = client

    def put(self, obj: Object, name: str, *, instead_of: str | None = None) -> Object | None:
        """Put ``name`` on, in the place of ``instead_of`` if that is there.

        Returns:
            The object as it is now; None when it is gone. An object that is being deleted takes no
            new finalizers and is returned as it is.

        Raises:
            FinalizerError: the server refused, or somebody else kept writing.
        """

        def change(present: Object) -> list[dict[str, Any]]:
            finalizers = present.finalizers
            if present.is_deleting:
                return []
            if name in finalizers:
                return _removals(finalizers, [instead_of])
            if instead_of in finalizers:
                index = finalizers.index(instead_of)
                return [{"op": "replace", "path": f"/metadata/finalizers/{index}", "value": name}]
            if finalizers:
                return [{"op": "add", "path": "/metadata/finalizers/-", "value": name}]
            return [{"op": "add", "path": "/metadata/finalizers", "value": [name]}]

        return self._change(obj, change, f"put finalizer {name!r} on")

    def remove(self, obj: Object, *names: str) -> Object | None:
        """Take ``names`` off, wherever they stand.

        Returns:
            The object as it is now; None when it is gone.

        Raises:
            FinalizerError: the server refused, or somebody else kept writing.
        """

        def change(present: Object) -> list[dict[str, Any]]:
            return _removals(present.finalizers, names)

        return self._change(obj, change, f"take finalizers {', '.join(names)} off")

    def is_gone(self, obj: Object) -> bool:
        """Whether the object is not on the server any more; another one of its name does not count.

        Raises:
            FinalizerError: the server does not say.
        """
        present = self._read(obj, "find out what became of")
        return present is None or present.uid != obj.uid

    def _change(
        self, obj: Object, change: Callable[[Object], list[dict[str, Any]]], what: str
    ) -> Object | None:
        present: Object | None = obj
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            if present is None or present.uid != obj.uid:
                return None
            operations = change(present)
            if not operations:
                return present
            try:
                return self._client.patch(
                    self._kind,
                    obj.name,
                    JsonPatch([*_guards(present), *operations]),
                    namespace=obj.namespace,
                )
            except NotFound:
                return None
            except (Conflict, Invalid) as error:
                # Written by somebody else since it was read, or deleted, or a real refusal: the
                # object as it is now tells which.
                failure = error
            except Exception as error:
                raise FinalizerError(f"could not {what} {obj!r}: {error}") from error
            before = present
            present = self._read(obj, what)
            if isinstance(failure, Invalid) and present is not None and _same(before, present):
                break
        raise FinalizerError(f"could not {what} {obj!r}: {failure}") from failure

    def _read(self, obj: Object, what: str) -> Object | None:
        try:
            return self._client.get(self._kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return None
        except Exception as error:
            raise FinalizerError(f"could not {what} {obj!r}: {error}") from error


def _guards(present: Object) -> list[dict[str, Any]]:
    guards: list[dict[str, Any]] = []
    if present.uid:
        guards.append({"op": "test", "path": "/metadata/uid", "value": present.uid})
    if present.finalizers:
        # Only the finalizers matter: a write to the status must not make this one fail.
        guards.append(
            {"op": "test", "path": "/metadata/finalizers", "value": list(present.finalizers)}
        )
    elif present.resource_version:
        guards.append(
            {"op": "test", "path": "/metadata/resourceVersion", "value": present.resource_version}
        )
    return guards


def _removals(finalizers: Sequence[str], names: Sequence[str | None]) -> list[dict[str, Any]]:
    # From the end, so that an index still means the same after those behind it are gone.
    return [
        {"op": "remove", "path": f"/metadata/finalizers/{index}"}
        for index in range(len(finalizers) - 1, -1, -1)
        if finalizers[index] in names
    ]


def _same(before: Object, now: Object) -> bool:
    return before.resource_version == now.resource_version
