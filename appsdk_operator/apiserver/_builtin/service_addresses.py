"""Allocation of cluster IPs and node ports for services."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final, final

from appsdk_operator.apiserver._storage.storage import Collection

__all__ = ["ServiceAddresses"]

_NETWORK: Final = ipaddress.ip_network("10.0.0.0/16")
_FIRST_PORT: Final = 30_000
_LAST_PORT: Final = 32_767
_WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_PORTS: Final = ("NodePort", "LoadBalancer")


@final
class ServiceAddresses:
    """Allocates cluster IPs and node ports, the next free one each time."""

    def __init__(self, collection: Collection) -> None:
        """``collection`` holds the services."""
        self._collection = collection
        self._addresses = iter(_NETWORK.hosts())
        next(self._addresses)  # the first belongs to the service "kubernetes"
        self._port = _FIRST_PORT

    def create(self, obj: dict[str, Any]) -> None:
        """Allocate for a new service."""
        obj["status"] = {"loadBalancer": {}}
        self._allocate(obj["spec"])

    def update(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """Allocate for a changed service; it keeps what it has and does not mention."""
        spec, before = new["spec"], old["spec"]
        if spec.get("type") in _WITH_ADDRESS and before.get("type") in _WITH_ADDRESS:
            if not spec.get("clusterIP") and not spec.get("clusterIPs"):
                for name in ("clusterIP", "clusterIPs"):
                    if name in before:
                        spec[name] = before[name]
            elif spec.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
                # A change of clusterIP alone counts for both fields; validation refuses it.
                spec["clusterIPs"] = [spec["clusterIP"], *(spec.get("clusterIPs") or [])[1:]]
            elif spec.get("clusterIP") == before.get("clusterIP") and "clusterIPs" in before:
                spec.setdefault("clusterIPs", before["clusterIPs"])
            for name in ("ipFamilies", "ipFamilyPolicy"):
                if name in before:
                    spec.setdefault(name, before[name])
        elif spec.get("type") == "ExternalName" and before.get("type") in _WITH_ADDRESS:
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if spec.get(name) == before.get(name):
                    spec.pop(name, None)
            spec.pop("internalTrafficPolicy", None)
        if spec.get("type") not in _WITH_PORTS and before.get("type") in _WITH_PORTS:
            _drop_ports(spec, before)
        elif spec.get("type") in _WITH_PORTS:
            known = {
                (port.get("protocol"), port.get("port")): port.get("nodePort")
                for port in before.get("ports", ())
            }
            for port in spec.get("ports", ()):
                node_port = known.get((port.get("protocol"), port.get("port")))
                if not port.get("nodePort") and node_port:
                    port["nodePort"] = node_port
        self._allocate(spec)

    def _allocate(self, spec: dict[str, Any]) -> None:
        if spec.get("type") in _WITH_ADDRESS:
            if spec.get("clusterIPs") and not spec.get("clusterIP"):
                return  # validation refuses it
            if not spec.get("clusterIP"):
                spec["clusterIP"] = self._address()
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
            headless = spec["clusterIP"] == "None"
            spec.setdefault("ipFamilies", [_family(spec["clusterIP"])])
            spec.setdefault(
                "ipFamilyPolicy",
                "RequireDualStack" if headless and not spec.get("selector") else "SingleStack",
            )
            if headless and not spec.get("selector") and len(spec["ipFamilies"]) == 1:
                spec["ipFamilies"] = ["IPv4", "IPv6"]
        wants = spec.get("type") == "NodePort" or (
            spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        )
        if wants:
            for port in spec.get("ports", ()):
                if not port.get("nodePort"):
                    port["nodePort"] = self._node_port()

    def _address(self) -> str:
        taken = {spec.get("clusterIP") for spec in self._specs()} if self._can_search() else set()
        for address in self._addresses:
            if str(address) not in taken:
                return str(address)
        self._addresses = iter(_NETWORK.hosts())
        return str(next(self._addresses))

    def _can_search(self) -> bool:
        """Whether there are few enough services to look for values that clients chose."""
        return len(self._collection.records) <= 256

    def _node_port(self) -> int:
        taken = {
            port.get("nodePort")
            for spec in (self._specs() if self._can_search() else ())
            for port in spec.get("ports", ())
        }
        while True:
            port = self._port
            self._port = _FIRST_PORT if port == _LAST_PORT else port + 1
            if port not in taken:
                return port

    def _specs(self) -> Iterator[dict[str, Any]]:
        for record in self._collection.records.values():
            yield record.decode()["spec"]


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _drop_ports(spec: dict[str, Any], before: dict[str, Any]) -> None:
    """Remove allocated ports that the new type does not need, unless the client changed them."""
    old = [port.get("nodePort") for port in before.get("ports", ())]
    for port in spec.get("ports", ()):
        if port.get("nodePort") in old:
            port.pop("nodePort", None)
    if spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
        external = spec.get("type") == "ClusterIP" and spec.get("externalIPs")
        if not external:
            spec.pop("externalTrafficPolicy", None)
    if spec.get("allocateLoadBalancerNodePorts") == before.get("allocateLoadBalancerNodePorts"):
        spec.pop("allocateLoadBalancerNodePorts", None)
