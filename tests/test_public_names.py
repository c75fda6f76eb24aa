"""The stubs of the packages, from which the public names are read, say what is there."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import appsdk_operator
from appsdk_operator._lazy import names_of

LAZY = [
    "appsdk_operator",
    *(
        f"appsdk_operator.{path.parent.name}"
        for path in sorted(Path(appsdk_operator.__file__ or "").parent.glob("*/__init__.pyi"))
    ),
]


def test_all_packages_but_the_command_line_have_a_stub() -> None:
    packages = {each.name for each in pkgutil.iter_modules(appsdk_operator.__path__) if each.ispkg}
    assert {each.rpartition(".")[2] for each in LAZY[1:]} == packages - {"cli"}


@pytest.mark.parametrize("name", LAZY)
def test_a_package_offers_what_its_stub_lists_first(name: str) -> None:
    package = importlib.import_module(name)
    names = names_of(name)
    assert package.__all__ == [*names.public]
    assert sorted(package.__all__) == dir(package)
    assert not names.public.keys() & names.unlisted.keys()
    for each, home in (names.public | names.unlisted).items():
        module = importlib.import_module(home)
        assert getattr(package, each) is getattr(module, each), each
