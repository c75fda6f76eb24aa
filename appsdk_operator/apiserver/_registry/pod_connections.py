"""Connections into pods: ``exec``, ``attach`` and ``portforward``.

They end where the real server would call the kubelet of the pod's node: there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from multidict import MultiMapping

from appsdk_operator.apiserver._storage.storage import Collection
from appsdk_operator.apiserver._values.go_text import go_quote, parse_integer
from appsdk_operator.apiserver._values.status import StatusError, bad_request, not_found

CONNECTIONS: Final = {
    "attach": "PodAttachOptions",
    "exec": "PodExecOptions",
    "portforward": "PodPortForwardOptions",
}
"""The kinds of the options, which admission sees as the object, by subresource."""

_FLAGS: Final = ("stdin", "stdout", "stderr", "tty")
_PORTS: Final = range(2**16)


def connection_options(subresource: str, query: MultiMapping[str]) -> dict[str, Any]:
    """The options in the query of a request to connect.

    Raises:
        StatusError: 400, a port is not a number, or a dry run is asked for.
    """
    if query.get("dryRun"):
        raise bad_request("dryRun is not supported")
    options: dict[str, Any] = {"kind": CONNECTIONS[subresource], "apiVersion": "v1"}
    if subresource == "portforward":
        texts = [text for value in query.getall("ports", []) for text in value.split(",")]
        ports = [_port(text) for text in texts]
        return {**options, "ports": ports} if ports else options
    for name in _FLAGS:
        if name in query and query[name] != "0" and query[name].lower() != "false":
            options[name] = True
    if query.get("container"):
        options["container"] = query["container"]
    if subresource == "exec":
        options["command"] = query.getall("command", None)
    return options


def _port(text: str) -> int:
    number = parse_integer(text) if text[:1].isdigit() else None
    if number is not None and number in _PORTS:
        return number
    why = "invalid syntax" if number is None else "value out of range"
    raise bad_request(
        f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(text)}: {why}"
    )


def check_connection(
    pod: Mapping[str, Any], options: Mapping[str, Any], nodes: Collection
) -> NoReturn:
    """Raise the error that a request to connect to a pod ends with.

    Args:
        pod: the pod.
        options: the options, as admission has left them.
        nodes: the nodes of the cluster.

    Raises:
        StatusError: 400 for a pod without a node or with another container, 404 or 500.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    if options["kind"] != CONNECTIONS["portforward"]:
        _check_container(name, spec, options.get("container") or "")
    node = spec.get("nodeName")
    if not node:
        raise bad_request(f"pod {name} does not have a host assigned")
    record = nodes.records.get(node)
    if record is None:
        # The real server gives the name of the node, and the resource of the request.
        raise not_found("pods", "", node)
    addresses = (record.decode().get("status") or {}).get("addresses") or []
    if not addresses:
        raise StatusError(500, "no preferred addresses found; known addresses: []", reason="")
    raise StatusError(
        500,
        f"error dialing backend: node {go_quote(node)} has no kubelet: the embedded API server "
        "runs no containers",
        reason="",
    )


def _check_container(pod: str, spec: Mapping[str, Any], wanted: str) -> None:
    containers = [each["name"] for each in spec.get("containers") or ()]
    others = [
        each["name"]
        for field in ("initContainers", "ephemeralContainers")
        for each in spec.get(field) or ()
    ]
    if wanted:
        if wanted not in (*containers, *others):
            raise bad_request(f"container {wanted} is not valid for pod {pod}")
    elif len(containers) != 1:
        inits = [each["name"] for each in spec.get("initContainers") or ()]
        shown = " ".join([*inits, *containers, *others[len(inits) :]])
        raise bad_request(
            f"a container name must be specified for pod {pod}, choose one of: [{shown}]"
        )
