"""Allocation of cluster IPs and node ports for services."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar, final

from appsdk_operator.apiserver._storage.storage import Collection, Event
from appsdk_operator.apiserver._values.status import FieldError, internal_error, invalid

_NETWORK: Final = ipaddress.IPv4Network("10.0.0.0/16")
_ADDRESSES: Final = range(int(_NETWORK[1]), int(_NETWORK[-1]))
_FIRST_PORT: Final = 30_000
_LAST_PORT: Final = 32_767
_WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_PORTS: Final = ("NodePort", "LoadBalancer")

_Object = dict[str, Any]
_Value = TypeVar("_Value")


@final
class ServiceAddresses:
    """Allocates cluster IPs and node ports, the next free one each time.

    What is taken follows from the stored services. :meth:`check` refuses what a client chose, or
    what another service took since the allocation. A dry run allocates, and is not checked.
    """

    def __init__(self) -> None:
        """Nothing is taken."""
        self._addresses = _Pool(_ADDRESSES, lambda number: str(ipaddress.IPv4Address(number)))
        self._ports = _Pool(range(_FIRST_PORT, _LAST_PORT + 1), int)

    def on_event(self, collection: Collection, event: Event) -> None:
        """Note what a service takes and releases."""
        if collection.name != "services":
            return
        record, previous = event.record, event.previous
        gone = event.type == "DELETED"
        now: _Object = {} if gone else record.decode()["spec"]
        before: _Object = previous.decode()["spec"] if previous is not None else {}
        self._addresses.move(record.key, _addresses_of(before), _addresses_of(now))
        self._ports.move(record.key, _ports_of(before), _ports_of(now))

    def create(self, obj: _Object) -> None:
        """Allocate for a new service.

        Raises:
            StatusError: 500, nothing is left.
        """
        self._allocate(obj["spec"], {})

    def update(self, new: _Object, old: _Object) -> None:
        """Allocate for a changed service; it keeps what it has and does not mention.

        Raises:
            StatusError: 500, nothing is left.
        """
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
        if _needs_health_check(spec) and before.get("healthCheckNodePort"):
            spec.setdefault("healthCheckNodePort", before["healthCheckNodePort"])
        self._allocate(spec, before)

    def check(self, obj: _Object, key: str) -> None:
        """Refuse a service that is about to be stored if it cannot have its values.

        Raises:
            StatusError: 422, a value is out of its range, or another service has it.
        """
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        for address in sorted(_addresses_of(spec)):
            why = _outside(address)
            if not why and self._addresses.owner(address) not in (None, key):
                why = "provided IP is already allocated"
            if why:
                detail = f"failed to allocate IP {address}: {why}"
                problem = FieldError.invalid("spec.clusterIPs", spec["clusterIPs"], detail)
                raise invalid("Service", "", name, [problem])
        node_ports = {port.get("nodePort") for port in spec.get("ports") or ()}
        for path, port in _fields_with_ports(spec):
            # Several of its ports may share one, those of several protocols.
            is_own = path == _HEALTH_CHECK and port in node_ports
            why = ""
            if not _FIRST_PORT <= port <= _LAST_PORT:
                why = (
                    "provided port is not in the valid range. The range of valid ports is "
                    f"{_FIRST_PORT}-{_LAST_PORT}"
                )
            elif is_own or self._ports.owner(port) not in (None, key):
                why = "provided port is already allocated"
            if why:
                problem = FieldError.invalid(path, port, why)
                raise invalid("Service", "", name, [problem])

    def _allocate(self, spec: _Object, before: _Object) -> None:
        if spec.get("type") in _WITH_ADDRESS:
            if spec.get("clusterIPs") and not spec.get("clusterIP"):
                return  # validation refuses it
            if not spec.get("clusterIP"):
                spec["clusterIP"] = self._addresses.next("serviceIP", ())
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
            headless = spec["clusterIP"] == "None"
            spec.setdefault("ipFamilies", [_family(spec["clusterIP"])])
            spec.setdefault(
                "ipFamilyPolicy",
                "RequireDualStack" if headless and not spec.get("selector") else "SingleStack",
            )
            if headless and not spec.get("selector") and len(spec["ipFamilies"]) == 1:
                spec["ipFamilies"] = ["IPv4", "IPv6"]
        self._allocate_ports(spec, before)

    def _allocate_ports(self, spec: _Object, before: _Object) -> None:
        allocates = spec.get("type") == "NodePort" or (
            spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        )
        ports = spec.get("ports") or ()
        given = _ports_of(spec)
        # The protocols of a port share its node port.
        shared = {port.get("port"): port["nodePort"] for port in ports if port.get("nodePort")}
        for port in ports if allocates else ():
            if not port.get("nodePort"):
                found = shared.get(port.get("port")) or self._ports.next("nodePort", given)
                port["nodePort"] = shared[port.get("port")] = found
                given.add(found)
        if _needs_health_check(spec):
            if not spec.get("healthCheckNodePort"):
                spec["healthCheckNodePort"] = self._ports.next("nodePort", given)
        elif spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
            spec.pop("healthCheckNodePort", None)


_HEALTH_CHECK = "spec.healthCheckNodePort"


@final
class _Pool(Generic[_Value]):
    """The values of a range, and the key of the service that has each."""

    def __init__(self, values: range, value_of: Callable[[int], _Value]) -> None:
        self._taken: dict[_Value, str] = {}
        self._range = values
        self._value_of = value_of
        self._next = 0

    def owner(self, value: _Value) -> str | None:
        """The key of the service that has a value."""
        return self._taken.get(value)

    def move(self, key: str, before: Iterable[_Value], now: Iterable[_Value]) -> None:
        """Replace the values of a service."""
        for value in before:
            if self._taken.get(value) == key:
                del self._taken[value]
        for value in now:
            self._taken.setdefault(value, key)

    def next(self, what: str, besides: Iterable[_Value]) -> _Value:
        """The next free value that is not in ``besides``.

        Raises:
            StatusError: 500, there is none.
        """
        avoided = set(besides)
        for _ in self._range:
            value = self._value_of(self._range[self._next])
            self._next = (self._next + 1) % len(self._range)
            if value not in self._taken and value not in avoided:
                return value
        raise internal_error(f"failed to allocate a {what}: range is full")


def _outside(address: str) -> str:
    """Why an address is not one that services may have; ``""`` if it is."""
    parsed = ipaddress.ip_address(address)
    if parsed.version != _NETWORK.version:
        return ""  # those of the other family are not allocated here
    if parsed in _NETWORK and parsed not in (_NETWORK[0], _NETWORK[-1]):
        return ""
    return (
        f"the provided IP ({address}) is not in the valid range. The range of valid IPs is "
        f"{_NETWORK}"
    )


def _addresses_of(spec: _Object) -> set[str]:
    found = {spec.get("clusterIP"), *(spec.get("clusterIPs") or ())}
    return {address for address in found if address and address != "None"}


def _ports_of(spec: _Object) -> set[int]:
    return {port for _, port in _fields_with_ports(spec)}


def _fields_with_ports(spec: _Object) -> Iterator[tuple[str, int]]:
    """Each field with a port of the nodes, and the port."""
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort"):
            yield f"spec.ports[{index}].nodePort", port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield _HEALTH_CHECK, spec["healthCheckNodePort"]


def _needs_health_check(spec: _Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


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
