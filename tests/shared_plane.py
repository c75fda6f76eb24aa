"""One real control plane for several modules, each of which finds it as a new one.

A start takes as much of a processor as some hundred tests. What one user left is deleted before the
next one comes; where that does not lead to what a new control plane has, the next one gets another.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import final

from appsdk_operator import ApiError, Client, Kind, MergePatch, Object, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import ControlPlane

_NAMESPACE = kinds.core.v1.Namespace
_CRD = kinds.apiextensions.v1.CustomResourceDefinition
_WEBHOOKS = (
    kinds.admissionregistration.v1.MutatingWebhookConfiguration,
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
)
_CHANGED_BY_THE_SERVER = frozenset(
    {"apiservices", "endpoints", "endpointslices", "flowschemas", "leases"}
    | {"prioritylevelconfigurations"}
)
"""Resources of which the server itself writes those that a new control plane has."""
_NOT_STORED = frozenset({"componentstatuses"})
_MADE_BY_THE_SERVER = {
    ("namespaces", "", "default"),
    ("namespaces", "", "kube-node-lease"),
    ("namespaces", "", "kube-public"),
    ("namespaces", "", "kube-system"),
    ("services", "default", "kubernetes"),
    ("configmaps", "kube-system", "extension-apiserver-authentication"),
}
"""What it makes last, a moment after it is ready."""
_ATTEMPTS = 400
_PAUSE = 0.02

Contents = dict[tuple[str, str, str], str]
"""What is stored, by resource, namespace and name, and its state."""


@final
class SharedPlane:
    """A control plane that has one user after the other."""

    contents: Contents
    """What it has as a new one."""

    def __init__(self) -> None:
        """Start it."""
        self._is_lent = False
        self._start()

    def _start(self) -> None:
        self._plane = ControlPlane().start()
        with Client(self._plane.client_config(), metrics=Metrics()) as client:
            self.contents = contents_of_new(client)

    @contextlib.contextmanager
    def lent(self) -> Iterator[ControlPlane]:
        """The control plane, for one user at a time; it has what a new one has."""
        assert not self._is_lent, "its user's clean-up would delete what another one needs"
        if not is_cleared(self._plane, self.contents):
            self.stop()
            self._start()
        self._is_lent = True
        try:
            yield self._plane
        finally:
            self._is_lent = False

    def stop(self) -> None:
        """Stop it, for good."""
        self._plane.stop()


def contents_of_new(client: Client) -> Contents:
    """What a control plane has that has just started, once the server has made all of it."""
    pause, found = StopSignal(), Contents()
    for _ in range(_ATTEMPTS):
        before, found = found, {_key(obj): _state(obj) for obj in _objects(client)}
        if found == before and found.keys() >= _MADE_BY_THE_SERVER:
            return found
        pause.wait(_PAUSE * 5)
    raise AssertionError(f"a new control plane does not come to rest: {found}")


def is_cleared(plane: ControlPlane, new: Contents) -> bool:
    """Delete what a new control plane does not have; whether the rest is as it was."""
    pause = StopSignal()
    with Client(plane.client_config(max_retries=0), metrics=Metrics()) as client:
        for _ in range(_ATTEMPTS):
            found = list(_objects(client))
            if {_key(obj): _state(obj) for obj in found} == new:
                return True
            left = [obj for obj in found if _key(obj) not in new]
            if not left and {_key(obj) for obj in found} == new.keys():
                return False
            for obj in left:
                _delete(client, obj)
            client.discovery.forget()
            pause.wait(_PAUSE)
    return False


def _objects(client: Client) -> Iterator[Object]:
    """All that is stored, first what may keep other objects from being deleted."""
    found: dict[str, Kind] = {}
    for version in client.discovery.api_versions():
        if version.startswith("extensions/"):
            continue  # the ingresses of networking.k8s.io, with a warning
        with contextlib.suppress(ApiError):  # it goes with its last definition
            for each in client.discovery.resources(version):
                if {"list", "delete"} <= each.verbs and each.kind.plural not in _NOT_STORED:
                    # Each once, in the version that the server prefers.
                    found.setdefault(each.kind.qualified_name, each.kind)
    first = [found.pop(kind.qualified_name) for kind in _WEBHOOKS]
    last = [found.pop(kind.qualified_name) for kind in (_NAMESPACE, _CRD)]
    for kind in (*first, *found.values(), *last):
        # One whose webhook does not convert, until its definition is changed.
        with contextlib.suppress(ApiError):
            yield from list(client.list(kind))


def _key(obj: Object) -> tuple[str, str, str]:
    return obj.kind.qualified_name, obj.namespace, obj.name


def _state(obj: Object) -> str:
    """What differs once somebody has changed the object."""
    is_own = obj.kind.plural in _CHANGED_BY_THE_SERVER
    return "" if is_own else f"{obj.uid} {obj.resource_version}"


def _delete(client: Client, obj: Object) -> None:
    """One step towards an object's end; what fails now is tried again."""
    kind, name = obj.kind.qualified_name, obj.name
    with contextlib.suppress(ApiError):
        if kind == _CRD.qualified_name:
            # A webhook that is gone would keep its objects from being read.
            conversion = {"strategy": "None", "webhook": None}
            client.patch(_CRD, name, MergePatch({"spec": {"conversion": conversion}}))
        elif obj.finalizers:
            none = MergePatch({"metadata": {"finalizers": None}})
            client.patch(obj.kind, name, none, namespace=obj.namespace)
    with contextlib.suppress(ApiError):
        if not obj.is_deleting:
            client.delete(obj.kind, name, namespace=obj.namespace, grace_period=0)
        if kind == _NAMESPACE.qualified_name:
            # No controller does it.
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            body = json.dumps(namespace | {"spec": {"finalizers": []}}).encode()
            client.request("PUT", f"/api/v1/namespaces/{name}/finalize", body=body)
