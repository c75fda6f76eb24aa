"""What the room promises as a whole."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import appsdk_operator.client as room

MODULES = sorted(m.name for m in pkgutil.iter_modules(room.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_hold(name):
    module = importlib.import_module(f"appsdk_operator.client.{name}")
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert not failed


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, appsdk_operator.client\n"
        "heavy = {'kubernetes', 'urllib3', 'prometheus_client', 'http.client', 'pydantic'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_class_is_documented():
    for name in room.__all__:
        value = getattr(room, name)
        assert not isinstance(value, type) or value.__doc__, name
