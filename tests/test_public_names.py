"""The stubs of the packages, from which the public names are read, say what is there."""

from __future__ import annotations

import importlib
import pkgutil
import sys
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


CLAUSES = {"How", "That", "What", "Whatever", "Where", "Which", "Who", "Whoever", "Whom"}
"""Words that begin a clause where a noun is needed."""


def test_all_packages_but_the_command_line_have_a_stub() -> None:
    packages = {each.name for each in pkgutil.iter_modules(appsdk_operator.__path__) if each.ispkg}
    assert {each.rpartition(".")[2] for each in LAZY[1:]} == packages - {"cli"}


@pytest.mark.parametrize("name", LAZY)
def test_a_package_offers_what_its_stub_lists_first(name: str) -> None:
    package = importlib.import_module(name)
    public, unlisted = names_of(name)
    assert package.__all__ == [*public]
    assert sorted(package.__all__) == dir(package)
    assert not public.keys() & unlisted.keys()
    for each, home in (public | unlisted).items():
        module = importlib.import_module(home)
        assert getattr(package, each) is getattr(module, each), each


@pytest.mark.parametrize("name", LAZY)
def test_the_docstring_of_a_public_name_begins_with_a_noun_or_a_verb(name: str) -> None:
    package = importlib.import_module(name)
    public = [getattr(package, each) for each in package.__all__]
    documented = [one for one in public if callable(one) and one.__doc__]
    begins = {one.__doc__.split()[0]: one for one in documented}
    assert not [f"{word} … of {one}" for word, one in begins.items() if word in CLAUSES]
    assert package.__doc__
    assert package.__doc__.split()[0] not in CLAUSES


def test_a_public_name_has_one_package() -> None:
    homes: dict[str, list[str]] = {}
    for package in LAZY[1:]:
        for name in names_of(package)[0]:
            homes.setdefault(name, []).append(package)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_a_file_of_a_private_folder_has_no_underscore() -> None:
    package = Path(appsdk_operator.__file__ or "").parent
    files = (path.relative_to(package) for path in package.rglob("_*.py"))
    within = [path for path in files if any(part[0] == "_" for part in path.parts[:-1])]
    assert [str(path) for path in within if path.name != "__init__.py"] == []


def test_a_name_may_be_a_module_that_nobody_has_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "lazypackage/inner"
    inner.mkdir(parents=True)
    own = "from appsdk_operator._lazy import room\n__all__, __dir__, __getattr__ = room(__name__)\n"
    (inner.parent / "__init__.py").write_text(own)
    (inner.parent / "__init__.pyi").write_text(
        "from lazypackage import beside as beside\n"
        "from lazypackage.inner import (\n    below as below,\n)\n"
        '"""For others."""\n'
        "from lazypackage.inner import unlisted as unlisted\n"
    )
    for module in (inner / "__init__.py", inner / "below.py", inner / "unlisted.py"):
        module.touch()
    (inner.parent / "beside.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    try:
        package = importlib.import_module("lazypackage")
        assert package.__all__ == ["beside", "below"]
        assert package.below.__name__ == "lazypackage.inner.below"
        assert package.beside.__name__ == "lazypackage.beside"
        assert package.unlisted.__name__ == "lazypackage.inner.unlisted"
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = package.nothing
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "lazypackage"]:
            del sys.modules[name]
