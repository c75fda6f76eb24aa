"""The Service ``kubernetes``, by which pods reach the API server, and its endpoints."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, Final, final

from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection, Event
from appsdk_operator.apiserver._values.status import StatusError

_NAME: Final = "kubernetes"
_NAMESPACE: Final = "default"
_KEY: Final = f"{_NAMESPACE}/{_NAME}"
# Seconds between the looks that the real server has at the Service.
_INTERVAL: Final = 10.0
# The port that a kube-apiserver listens on, for a server without a socket.
_PORT: Final = 6443

_Object = dict[str, Any]
_Kind = tuple[str, str, str]
_SERVICE: Final[_Kind] = ("", "v1", "services")
_ENDPOINTS: Final[_Kind] = ("", "v1", "endpoints")
_SLICE: Final[_Kind] = ("discovery.k8s.io", "v1", "endpointslices")


@final
class KubernetesService:
    """Creates the Service and its endpoints, and again some seconds after they were deleted.

    As on the real server, a Service that is there stays as it is, and a server that listens on a
    loopback address has no endpoints, since endpoints cannot have such addresses.
    """

    def __init__(
        self,
        create: Callable[[str, str, str, _Object, str], None],
        served: Callable[[str, str, str], ServedVersion],
    ) -> None:
        """Nothing is created before :meth:`create_missing`.

        Args:
            create: creates an object, given its group, version and plural, and its namespace.
            served: the version of a resource, given its group, version and plural.
        """
        self._create = create
        self._collections = {
            kind: served(*kind).resource.collection for kind in (_SERVICE, _ENDPOINTS, _SLICE)
        }
        self._wanted: dict[_Kind, _Object] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def resume(self, host: str, port: int, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare for a server that listens on ``host`` and ``port``; 0: on none."""
        self._wanted = {_SERVICE: _service(port or _PORT), **_endpoints(host, port or _PORT)}
        self._loop = loop

    def pause(self) -> None:
        """Create nothing more, until :meth:`resume`."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_event(self, collection: Collection, event: Event) -> None:
        """Look again in a while if one of the objects was deleted."""
        deleted = event.type == "DELETED" and event.record.key == _KEY
        if deleted and collection in self._collections.values():
            self._look_later()

    def _look_later(self) -> None:
        if self._loop is not None and self._timer is None:
            self._timer = self._loop.call_later(_INTERVAL, self.create_missing)

    def create_missing(self) -> None:
        """Create what is missing, or try again in a while."""
        self._timer = None
        for kind, obj in self._wanted.items():
            if _KEY not in self._collections[kind].records:
                try:
                    self._create(*kind, obj, _NAMESPACE)
                except StatusError:  # somebody has its address
                    self._look_later()


def _service(port: int) -> _Object:
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]
    return {
        "metadata": {"name": _NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.0.0.1",
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": ports,
        },
    }


def _endpoints(host: str, port: int) -> dict[_Kind, _Object]:
    """The endpoints of a server that others can reach; none for one that they cannot."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return {}
    if address.is_loopback or address.is_unspecified or address.is_link_local:
        return {}
    ports = [{"name": "https", "protocol": "TCP", "port": port}]
    return {
        _ENDPOINTS: {
            "metadata": {
                "name": _NAME,
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{"addresses": [{"ip": str(address)}], "ports": ports}],
        },
        _SLICE: {
            "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": f"IPv{address.version}",
            "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
            "ports": ports,
        },
    }
