"""What ``import appsdk_operator`` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import appsdk_operator
from appsdk_operator import testing


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("name", appsdk_operator.__all__)
def test_each_name_of_the_facade_is_there_and_documented(name: str) -> None:
    value = getattr(appsdk_operator, name)
    if name != "__version__":
        assert value.__doc__


@pytest.mark.parametrize("name", testing.__all__)
def test_each_name_of_the_testing_room_is_there_and_documented(name: str) -> None:
    assert getattr(testing, name).__doc__


@pytest.mark.parametrize("module", [appsdk_operator, testing])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = module.Nonsense  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("kubernetes", "urllib3", "prometheus_client", "aiohttp", "msgspec", "asyncio")
    code = f"import sys, appsdk_operator; print(*(m for m in {heavy!r} if m in sys.modules))"
    assert run(code).strip() == ""


def test_requests_are_counted_without_loading_what_only_a_scrape_needs() -> None:
    code = (
        "import sys\n"
        "from appsdk_operator import Client, ClientConfig, TransportError, kinds\n"
        "with Client(ClientConfig(server='http://127.0.0.1:1', max_retries=0)) as client:\n"
        "    try:\n"
        "        client.get(kinds.core.v1.Node, 'a')\n"
        "    except TransportError:\n"
        "        print('prometheus_client' in sys.modules)"
    )
    assert run(code).strip() == "False"


def test_using_names_loads_nothing_that_only_some_programs_need() -> None:
    heavy = (
        "kubernetes",
        "prometheus_client",
        "aiohttp",
        "tenacity",
        "asyncio",
        "yaml",
        "ssl",
    )
    code = (
        "import sys, appsdk_operator as op\n"
        "[getattr(op, name) for name in op.__all__]\n"
        f"print(*(m for m in {heavy!r} if m in sys.modules))"
    )
    assert run(code).strip() == ""


def test_a_class_is_found_once_it_is_imported_and_a_name_that_is_none_is_a_defect() -> None:
    code = (
        "from appsdk_operator._lazy import if_loaded\n"
        "def found(): return [c.__name__ for c in if_loaded('appsdk_operator.cache', 'Cache')]\n"
        "print(found())\n"
        "import appsdk_operator.cache\n"
        "print(found())\n"
        "from appsdk_operator.cache import Cache\n"
        "print(found())\n"
        "try: if_loaded('appsdk_operator.cache', 'Cash')\n"
        "except KeyError as error: print(error)\n"
    )
    assert run(code).splitlines() == ["[]", "[]", "['Cache']", "'Cash'"]
