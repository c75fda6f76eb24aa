"""Clusters on the developer's own machine: which ones they are, and how they reach this machine."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

LOCAL_CONTEXTS: Final = ("kind-*", "k3d-*", "minikube", "docker-desktop", "rancher-desktop")
"""The contexts of clusters on your own machine, as patterns with ``*`` and ``?``."""

_DOCKER_SECONDS: Final = 10.0
_LOOPBACK: Final = "127.0.0.1:0"
_ALL: Final = ":0"
_KIND_NETWORK: Final = "KIND_EXPERIMENTAL_DOCKER_NETWORK"
_GIVE_HOST: Final = "give host=, the name or address by which the cluster reaches this machine"


@attrs.frozen
class Reach:
    """How an API server reaches this machine."""

    host: str
    """The name or address that it has to call."""
    address: str
    """Where a server here has to listen for that, with port 0."""


def allowed_context(contexts: Sequence[str], patterns: Sequence[str], server: str) -> str:
    """The context of a cluster that may be changed at will.

    Args:
        contexts: the contexts of the kubeconfig for this server.
        patterns: those that are allowed, with ``*`` and ``?``.
        server: the URL of the API server, for the error text.

    Raises:
        PermissionError: none of them is allowed.
    """
    for context in contexts:
        if any(fnmatchcase(context, pattern) for pattern in patterns):
            return context
    known = f"its context is {', '.join(contexts)}" if contexts else "no kubeconfig has it"
    raise PermissionError(
        f"{server} does not look like a cluster for development: {known}, and the allowed contexts "
        f"are {', '.join(patterns) or 'none'}. If webhooks of this machine may be installed there, "
        f"give {'contexts=' + repr(list(contexts[:1])) if contexts else 'unsafe_any_cluster=True'}"
    )


def reach_of(
    context: str, *, gateway: Callable[[str], str] | None = None, platform: str = sys.platform
) -> Reach:
    """How the cluster of a context reaches this machine, by the name that its tool gives it.

    Args:
        context: the name of the context, such as ``kind-kind``.
        gateway: the address of this machine in a network of Docker; default: ask docker.
        platform: ``sys.platform``.

    Raises:
        LookupError: it is not known; the text says what to give.
    """
    if context.startswith("kind-"):
        if platform != "linux":
            return Reach("host.docker.internal", _LOOPBACK)  # Docker Desktop forwards to loopback
        network = os.environ.get(_KIND_NETWORK) or "kind"
        address = (gateway or docker_gateway)(network)
        return Reach(address, f"{address}:0")
    if context.startswith("k3d-"):
        return Reach("host.k3d.internal", _ALL)
    if context == "minikube":
        return Reach("host.minikube.internal", _ALL)
    if context == "docker-desktop":
        return Reach("host.docker.internal", _LOOPBACK)
    if context == "rancher-desktop":
        return Reach("host.rancher-desktop.internal", _ALL)
    raise LookupError(
        f"it is not known how the cluster of context {context!r} reaches this machine: {_GIVE_HOST}"
    )


def reach_by(host: str) -> Reach:
    """How a cluster that reaches this machine by ``host`` does so."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return Reach(host, _LOOPBACK if is_loopback else _ALL)


def docker_gateway(network: str, *, program: str = "docker") -> str:
    """The IPv4 address of this machine in a network of Docker.

    Raises:
        LookupError: there is no docker, or no such network; the text says what to give.
    """
    path = shutil.which(program)
    if path is None:
        raise LookupError(
            f"there is no program {program} to ask for the network of kind: {_GIVE_HOST}"
        )
    try:
        done = subprocess.run(  # noqa: S603 - the user's own docker
            [path, "network", "inspect", network],
            capture_output=True,
            timeout=_DOCKER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LookupError(f"docker network inspect {network}: {error}: {_GIVE_HOST}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[:300]
        raise LookupError(f"docker network inspect {network}: {said}: {_GIVE_HOST}")
    address = _first_gateway(done.stdout)
    if address is None:
        raise LookupError(f"docker's network {network} has no IPv4 gateway: {_GIVE_HOST}")
    return address


def _first_gateway(output: bytes) -> str | None:
    try:
        networks: Any = json.loads(output)
        gateways = [
            str(part.get("Gateway") or "")
            for network in networks
            for part in network["IPAM"]["Config"] or ()
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    for gateway in gateways:
        try:
            if ipaddress.ip_address(gateway).version == 4:
                return gateway
        except ValueError:
            continue
    return None
