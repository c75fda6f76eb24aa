"""What ``import appsdk_operator.manager`` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from appsdk_operator import manager

# What a program may use without a server, TLS or the metrics of Prometheus.
HEAVY = ("ssl", "http", "prometheus_client", "kubernetes", "urllib3", "asyncio", "msgspec")


def _loaded(code: str, names: tuple[str, ...] = HEAVY) -> str:
    code = f"import sys\n{code}\nprint(*(m for m in {names!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", manager.__all__)
def test_each_name_of_the_room_is_there_and_documented(name: str) -> None:
    value = getattr(manager, name)
    assert not isinstance(value, ModuleType)
    # What a function takes and returns has its words in the module.
    assert value.__doc__ or name in ("HTTPFilter", "HTTPHandler", "HealthCheck")
    assert name in dir(manager)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = manager.Nonsense  # type: ignore[attr-defined]


def test_importing_the_room_loads_nothing_heavy() -> None:
    assert not _loaded("import appsdk_operator.manager")


def test_an_operator_loads_no_client_and_no_server() -> None:
    rooms = tuple(f"appsdk_operator.{room}" for room in ("client", "cache", "controllers"))
    # The event loop of the runtime room brings ssl along.
    heavy = ("http", "prometheus_client", "kubernetes", "urllib3", *rooms)
    assert not _loaded("from appsdk_operator import Operator; Operator()", heavy)


def test_a_manager_without_a_port_loads_no_prometheus() -> None:
    code = "from appsdk_operator.manager import Manager, ManagerOptions"
    assert not _loaded(code, ("prometheus_client", "kubernetes", "aiohttp", "cryptography"))
