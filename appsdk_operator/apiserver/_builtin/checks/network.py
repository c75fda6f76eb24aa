"""Validation of services, ingresses, network policies and endpoint slices."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._values.status import FieldError

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_DAY: Final = 86_400
_BALANCED: Final = "may only be used when `type` is 'LoadBalancer'"


def service(new: Object, old: Object | None) -> Errors:
    """A Service."""
    spec = new.get("spec") or {}
    if old is not None:
        yield from _service_update(spec, old.get("spec") or {})
    yield from _service(spec)


def _service_update(spec: Object, before: Object) -> Errors:
    with_address = ("ClusterIP", "NodePort", "LoadBalancer")
    if spec.get("type") not in with_address or before.get("type") not in with_address:
        return
    headless = [part.get("clusterIP") == "None" for part in (spec, before)]
    for name in ("clusterIPs", "ipFamilies"):
        old, new = before.get(name) or [], spec.get(name) or []
        # The families of a headless service may change, and those that a new address brings.
        if old and new[:1] != old[:1] and not (name == "ipFamilies" and any(headless)):
            yield FieldError.invalid(f"spec.{name}[0]", new, "may not change once set")


def _service(spec: Object) -> Errors:
    kind, ports = spec.get("type", ""), spec.get("ports") or ()
    address = spec.get("clusterIP", "")
    if not ports and address != "None" and kind != "ExternalName":
        yield FieldError.required("spec.ports")
    if kind == "ExternalName":
        name = spec.get("externalName", "").removesuffix(".")
        yield from checks.needed(name, "spec.externalName", checks.subdomain)
    elif address == "None" and kind in ("NodePort", "LoadBalancer"):
        detail = f"may not be set to 'None' for {kind} services"
        yield FieldError.invalid("spec.clusterIPs[0]", "None", detail)
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _service_port(port, f"spec.ports[{index}]", names, required=len(ports) > 1)
    yield from checks.labels(spec.get("selector"), "spec.selector")
    yield from _affinity(spec)
    if spec.get("clusterIPs") and not address:
        detail = "must be empty when `clusterIP` is not specified"
        yield FieldError.invalid("spec.clusterIPs", spec["clusterIPs"], detail)
    if address not in ("", "None"):
        yield from checks.address(address, "spec.clusterIPs[0]")
    for index, text in enumerate(spec.get("externalIPs") or ()):
        yield from checks.address(text, f"spec.externalIPs[{index}]", reachable=True)
    kinds = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
    if kind not in kinds:
        yield FieldError.not_supported("spec.type", kind, kinds)
    yield from _distinct_ports(ports)
    yield from _balancing(spec, kind)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        yield from checks.one_of(family, ("IPv4", "IPv6"), f"spec.ipFamilies[{index}]")
    allowed: tuple[str, ...] = ("PreferDualStack", "RequireDualStack", "SingleStack")
    yield from checks.one_of(spec.get("ipFamilyPolicy"), allowed, "spec.ipFamilyPolicy")
    yield from _traffic(spec, kind)


def _service_port(port: Object, at: str, names: set[str], *, required: bool) -> Errors:
    name = port.get("name", "")
    if required and not name:
        yield FieldError.required(f"{at}.name")
    elif name:
        yield from checks.label(name, f"{at}.name")
        if name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        names.add(name)
    yield from checks.port_number(port.get("port", 0), f"{at}.port")
    yield from checks.one_of(port.get("protocol"), _PROTOCOLS, f"{at}.protocol")
    yield from checks.port_or_name(port.get("targetPort"), f"{at}.targetPort")
    if port.get("appProtocol") is not None:
        yield from checks.key(port["appProtocol"], f"{at}.appProtocol")


def _distinct_ports(ports: Any) -> Errors:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        identity = (port.get("protocol", ""), port.get("port", 0))
        if identity in seen:
            shown = checks.internal(
                Name="",
                Protocol=identity[0],
                AppProtocol=None,
                Port=identity[1],
                TargetPort=0,
                NodePort=0,
            )
            yield FieldError.duplicate(f"spec.ports[{index}]", shown)
        seen.add(identity)


def _affinity(spec: Object) -> Errors:
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        path = "spec.sessionAffinity"
        yield FieldError.not_supported(path, affinity, ("ClientIP", "None"))
    config = spec.get("sessionAffinityConfig")
    if affinity == "ClientIP" and config is not None:
        seconds = (config.get("clientIP") or {}).get("timeoutSeconds", 0)
        if not 0 < seconds <= _DAY:
            detail = f"must be greater than 0 and less than {_DAY}"
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            yield FieldError.invalid(path, seconds, detail)


def _balancing(spec: Object, kind: str) -> Errors:
    for index, port in enumerate(spec.get("ports") or ()):
        if port.get("nodePort") and kind in ("ClusterIP", "ExternalName"):
            detail = f"may not be used when `type` is '{kind}'"
            yield FieldError.forbidden(f"spec.ports[{index}].nodePort", detail)
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and kind != "LoadBalancer":
        yield FieldError.forbidden("spec.LoadBalancerSourceRanges", _BALANCED)
    for index, text in enumerate(ranges if kind == "LoadBalancer" else ()):
        yield from checks.network(text.strip(), f"spec.LoadBalancerSourceRanges[{index}]")
    if kind != "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) is not None:
                yield FieldError.forbidden(f"spec.{name}", _BALANCED)
    elif spec.get("loadBalancerClass") is not None:
        yield from checks.key(spec["loadBalancerClass"], "spec.loadBalancerClass")


def _traffic(spec: Object, kind: str) -> Errors:
    policy = spec.get("externalTrafficPolicy")
    external = kind in ("NodePort", "LoadBalancer") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if policy and not external:
        detail = "may only be set for externally-accessible services"
        yield FieldError.invalid("spec.externalTrafficPolicy", policy, detail)
    else:
        yield from checks.one_of(policy, ("Cluster", "Local"), "spec.externalTrafficPolicy")
    health = spec.get("healthCheckNodePort")
    if health and not (kind == "LoadBalancer" and policy == "Local"):
        detail = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        yield FieldError.invalid("spec.healthCheckNodePort", health, detail)
    allowed: tuple[str, ...] = ("Cluster", "Local")
    yield from checks.one_of(
        spec.get("internalTrafficPolicy"), allowed, "spec.internalTrafficPolicy"
    )
    allowed = ("PreferClose", "PreferSameZone", "PreferSameNode")
    yield from checks.one_of(spec.get("trafficDistribution"), allowed, "spec.trafficDistribution")


# -- ingresses -------------------------------------------------------------------------------

_WILDCARD: Final = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def ingress(new: Object, _old: Object | None) -> Errors:
    """An Ingress."""
    spec = new.get("spec") or {}
    rules = spec.get("rules") or ()
    if not rules and "defaultBackend" not in spec:
        detail = "either `defaultBackend` or `rules` must be specified"
        yield FieldError.invalid("spec", None, detail)
    if "defaultBackend" in spec:
        yield from _backend(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(rules):
        at = f"spec.rules[{index}]"
        yield from checks.given(rule.get("host"), f"{at}.host", _host)
        http = rule.get("http")
        if http is not None:
            yield from checks.needed(http.get("paths"), f"{at}.http.paths")
            for number, path in enumerate(http.get("paths") or ()):
                yield from _path(path, f"{at}.http.paths[{number}]")
    for index, tls in enumerate(spec.get("tls") or ()):
        at = f"spec.tls[{index}]"
        for number, host in enumerate(tls.get("hosts") or ()):
            yield from _host(host, f"{at}.hosts[{number}]", addresses=True)
        yield from checks.given(tls.get("secretName"), f"{at}.secretName", checks.subdomain)
    if spec.get("ingressClassName") is not None:
        yield from checks.subdomain(spec["ingressClassName"], "spec.ingressClassName")


def _host(host: str, path: str, *, addresses: bool = False) -> Errors:
    if not addresses and re.fullmatch(r"[\d.]+|[0-9a-f:]+:[0-9a-f:]*", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            yield FieldError.invalid(path, host, "must be a DNS name, not an IP address")
            return
    if "*" not in host:
        yield from checks.subdomain(host, path)
    elif not re.fullmatch(_WILDCARD, host):
        detail = (
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS "
            "subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and "
            "end with an alphanumeric character (e.g. '*.example.com', regex used for validation "
            f"is '{_WILDCARD}')"
        )
        yield FieldError.invalid(path, host, detail)


def _path(path: Object, at: str) -> Errors:
    kind, text = path.get("pathType"), path.get("path", "")
    if kind is None:
        yield FieldError.required(f"{at}.pathType", "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            yield FieldError.invalid(f"{at}.path", text, "must be an absolute path")
        if text:
            for part in ("//", "/./", "/../", "%2f", "%2F"):
                if part in text:
                    yield FieldError.invalid(f"{at}.path", text, f"must not contain '{part}'")
            for part in ("/..", "/."):
                if text.endswith(part):
                    yield FieldError.invalid(f"{at}.path", text, f"cannot end with '{part}'")
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            yield FieldError.invalid(f"{at}.path", text, "must be an absolute path")
    else:
        allowed = ("Exact", "ImplementationSpecific", "Prefix")
        yield FieldError.not_supported(f"{at}.pathType", kind, allowed)
    yield from _backend(path.get("backend") or {}, f"{at}.backend")


def _backend(backend: Object, at: str) -> Errors:
    target, resource = backend.get("service"), backend.get("resource")
    if target is not None and resource is not None:
        yield FieldError.invalid(at, "", "cannot set both resource and service backends")
    elif resource is not None:
        for name in ("kind", "name"):
            yield from checks.needed(resource.get(name), f"{at}.resource.{name}")
    elif target is None:
        yield FieldError.invalid(at, "", "resource or service backend is required")
    else:
        yield from checks.needed(target.get("name"), f"{at}.service.name", checks.label)
        port = target.get("port") or {}
        if port.get("name") and port.get("number"):
            yield FieldError.invalid(at, "", "cannot set both port name & port number")
        elif port.get("name"):
            yield from checks.port_name(port["name"], f"{at}.service.port.name")
        elif port.get("number"):
            yield from checks.port_number(port["number"], f"{at}.service.port.number")
        else:
            yield FieldError.required(at, "port name or number is required")


def ingress_class(new: Object, _old: Object | None) -> Errors:
    """An IngressClass."""
    spec = new.get("spec") or {}
    controller = spec.get("controller", "")
    yield from checks.required(spec, ("controller",), "spec")
    yield from checks.given(controller, "spec.controller", checks.domain_path)
    parameters, at = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return
    if parameters.get("apiGroup") is not None:
        yield from checks.subdomain(parameters["apiGroup"], f"{at}.apiGroup")
    for name in ("kind", "name"):
        if not parameters.get(name):
            yield FieldError.required(f"{at}.{name}", f"{name} is required")
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield FieldError.required(f"{at}.scope")
    yield from checks.one_of(scope, ("Cluster", "Namespace"), f"{at}.scope")
    if scope == "Namespace" and namespace is None:
        detail = "`parameters.scope` is set to 'Namespace'"
        yield FieldError.required(f"{at}.namespace", detail)
    elif scope == "Namespace":
        yield from checks.label(namespace, f"{at}.namespace")
    elif scope == "Cluster" and namespace is not None:
        detail = "`parameters.scope` is set to 'Cluster'"
        yield FieldError.forbidden(f"{at}.namespace", detail)


# -- network policies ------------------------------------------------------------------------


def network_policy(new: Object, _old: Object | None) -> Errors:
    """A NetworkPolicy."""
    spec = new.get("spec") or {}
    yield from checks.selector(spec.get("podSelector"), "spec.podSelector")
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            at = f"spec.{direction}[{index}]"
            for number, port in enumerate(rule.get("ports") or ()):
                yield from _policy_port(port, f"{at}.ports[{number}]")
            for number, peer in enumerate(rule.get(side) or ()):
                yield from _peer(peer, f"{at}.{side}[{number}]")
    types = spec.get("policyTypes") or []
    if len(types) > 2:
        detail = "may not specify more than two policyTypes"
        yield FieldError.invalid("spec.policyTypes", types, detail)
        return
    for index, name in enumerate(types):
        if name not in ("Ingress", "Egress"):
            allowed = ("Ingress", "Egress")
            yield FieldError.not_supported(f"spec.policyTypes[{index}]", name, allowed)


def _policy_port(port: Object, at: str) -> Errors:
    yield from checks.one_of(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{at}.protocol")
    number, end = port.get("port"), port.get("endPort")
    if number is not None:
        yield from checks.port_or_name(number, f"{at}.port")
    if end is None:
        return
    if number is None:
        detail = "may not be specified when `port` is not specified"
        yield FieldError.invalid(f"{at}.endPort", end, detail)
    elif isinstance(number, str):
        detail = "may not be specified when `port` is non-numeric"
        yield FieldError.invalid(f"{at}.endPort", end, detail)
    elif end < number:
        detail = "must be greater than or equal to `port`"
        yield FieldError.invalid(f"{at}.endPort", number, detail)


def _peer(peer: Object, at: str) -> Errors:
    given = [name for name in ("podSelector", "namespaceSelector") if name in peer]
    for name in given:
        yield from checks.selector(peer[name], f"{at}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        cidr = block.get("cidr", "")
        problems: list[FieldError] = [FieldError.required(f"{at}.ipBlock.cidr")]
        if cidr:
            problems = list(checks.network(cidr, f"{at}.ipBlock.cidr"))
        yield from problems
        for index, text in enumerate(() if problems else block.get("except") or ()):
            path = f"{at}.ipBlock.except[{index}]"
            wrong = list(checks.network(text, path))
            yield from wrong
            if not wrong and not _is_within(text, cidr):
                yield FieldError.invalid(path, text, "must be a strict subset of `cidr`")
    if not given and block is None:
        yield FieldError.required(at, "must specify a peer")
    elif given and block is not None:
        yield FieldError.forbidden(at, "may not specify both ipBlock and another peer")


def _is_within(text: str, cidr: str) -> bool:
    inner, outer = (ipaddress.ip_network(part, strict=False) for part in (text, cidr))
    return (
        inner.version == outer.version
        and inner.network_address in outer
        and inner.prefixlen > outer.prefixlen
    )


# -- endpoint slices -------------------------------------------------------------------------


def endpoints(new: Object, old: Object | None) -> Errors:
    """Endpoints; subsets that were stored before may stay."""
    subsets = new.get("subsets") or []
    if old is not None and subsets == (old.get("subsets") or []):
        return
    for index, subset in enumerate(subsets):
        yield from _subset(subset, f"subsets[{index}]")


def _subset(subset: Object, at: str) -> Errors:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield FieldError.required(at, "must specify `addresses` or `notReadyAddresses`")
    for name in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(name) or ()):
            yield from _subset_address(address, f"{at}.{name}[{index}]")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        path = f"{at}.ports[{index}]"
        if port.get("name"):
            yield from checks.label(port["name"], f"{path}.name")
        elif len(ports) > 1:
            yield FieldError.required(f"{path}.name")
        yield from checks.port_number(port.get("port", 0), f"{path}.port")
        yield from checks.one_of(port.get("protocol"), _PROTOCOLS, f"{path}.protocol")
        if port.get("appProtocol") is not None:
            yield from checks.key(port["appProtocol"], f"{path}.appProtocol")


def _subset_address(address: Object, at: str) -> Errors:
    text = address.get("ip", "")
    wrong = list(checks.address(text, f"{at}.ip"))
    yield from wrong
    yield from checks.given(address.get("hostname"), f"{at}.hostname", checks.label)
    if address.get("nodeName") is not None:
        yield from checks.subdomain(address["nodeName"], f"{at}.nodeName")
    if wrong:
        # The real server parses the address twice.
        yield FieldError.invalid(f"{at}.ip", text, "must be a valid IP address")
    else:
        yield from checks.address(text, f"{at}.ip", reachable=True)


def endpoint_slice(new: Object, _old: Object | None) -> Errors:
    """An EndpointSlice."""
    kind = new.get("addressType", "")
    yield from checks.needed(kind, "addressType")
    yield from checks.one_of(kind, ("FQDN", "IPv4", "IPv6"), "addressType")
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        at, addresses = f"endpoints[{index}]", endpoint.get("addresses") or ()
        if not addresses:
            yield FieldError.required(f"{at}.addresses", "must contain at least 1 address")
        for number, text in enumerate(addresses):
            yield from _endpoint_address(text, kind, f"{at}.addresses", number)
        if endpoint.get("nodeName") is not None:
            yield from checks.subdomain(endpoint["nodeName"], f"{at}.nodeName")
        if endpoint.get("hostname") is not None:
            yield from checks.label(endpoint["hostname"], f"{at}.hostname")
    names: set[str] = set()
    for index, port in enumerate(new.get("ports") or ()):
        at, name = f"ports[{index}]", port.get("name", "")
        yield from checks.given(name, f"{at}.name", checks.label)
        if name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        names.add(name)
        yield from checks.one_of(port.get("protocol"), _PROTOCOLS, f"{at}.protocol")
        if port.get("appProtocol") is not None:
            yield from checks.key(port["appProtocol"], f"{at}.appProtocol")


def _endpoint_address(text: str, kind: str, path: str, number: int) -> Errors:
    if kind == "FQDN":
        yield from checks.subdomain(text, f"{path}[{number}]")
        return
    if kind not in ("IPv4", "IPv6"):
        return
    wrong = list(checks.address(text, f"{path}[{number}]"))
    if not wrong and (":" in text) is (kind == "IPv4"):
        article = "an IPv4" if kind == "IPv4" else "an IPv6"
        yield FieldError.invalid(path, text, f"must be {article} address")
    yield from checks.address(text, f"{path}[{number}]", reachable=True)
