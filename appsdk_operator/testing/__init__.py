"""Test operators without a cluster, down to the order of events.

* :class:`APIServer`: a Kubernetes API server in the process, on a real socket.
* :class:`MemoryServer`: the same server without socket and thread.
* :class:`ControlPlane`: the real etcd and kube-apiserver, with the same interface.
* :class:`FaultProxy`: cuts, stalls and delays the connections to any of them.
* :class:`FaultSchedule` of :class:`FaultRule`: which fault applies to which requests, and how
  often; the embedded server and the proxy take the same rules.
* :class:`Simulation`: an operator on a :class:`MemoryServer`, without threads and sockets: the test
  decides the order of requests and events. With checkers of the kit's promises.
* :func:`check_operator`: a property test of an operator over generated histories, faults and
  crashes; a failure prints a short timeline and the call that replays it.
  :mod:`appsdk_operator.testing.strategies` has Hypothesis strategies for objects.
* :func:`check_conversion`: a property test of the conversions between the versions of a kind; a
  failure shows a small object and what became of it.
* :class:`World`: whole operators with their threads on a manual clock; a seed gives the same run
  each time.
* :func:`running`: runs anything with ``run(stop)`` in a thread for the length of a ``with`` block.
* :func:`install_crds`, :func:`install_webhooks`: install from objects or files, on any server;
  :func:`remove_webhooks`.

The servers need the extra ``testing``: ``pip install 'appsdk-operator[testing]'``.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

from appsdk_operator._lazy import room

_EXTRA: Final = ("aiohttp", "cryptography")
_SERVED: Final = frozenset(
    ("APIServer", "FaultProxy", "MemoryServer", "Simulation", "World", "check_operator")
)
"""What imports the packages of the extra only when a server is made."""

__all__, __dir__, _load = room(__name__)


def __getattr__(name: str) -> Any:
    for package in _EXTRA if name in _SERVED else ():
        if importlib.util.find_spec(package) is None:
            raise _missing(name, package)
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise _missing(name, error.name) from error
        raise


def _missing(name: str, package: str) -> ImportError:
    text = f"{name} needs {package}: pip install 'appsdk-operator[testing]'"
    return ImportError(text, name=package)
