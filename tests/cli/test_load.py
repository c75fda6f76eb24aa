"""From module:app to the App, and the errors on the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from appsdk_operator import cli
from appsdk_operator.cli import _dev
from appsdk_operator.cli._load import check_exists, load_app
from tests.hostile_errors import HOSTILE_ERRORS

APP = "from appsdk_operator.app import App\napp = App('first-operator')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what was imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def error(target: str) -> str:
    with pytest.raises(click.ClickException) as caught:
        load_app(target)
    return caught.value.message


@pytest.mark.parametrize("target", ["one:app", "one", "one.py:app", "one.py", "./one.py"])
def test_an_app_is_found_by_module_and_by_file(target: str) -> None:
    write("one.py", APP)
    assert load_app(target).name == "first-operator"


@pytest.mark.parametrize("target", ["two.main:app", "two/main.py", "two", "two/__init__.py"])
def test_a_module_of_a_package_may_import_its_neighbours(target: str) -> None:
    write("two/__init__.py", "from two.main import app\n")
    write("two/other.py", APP)
    write("two/main.py", "from .other import app\n")
    assert load_app(target).name == "first-operator"


def test_a_package_in_src_is_found() -> None:
    write("src/three/__init__.py", APP)
    assert load_app("three:app").name == "first-operator"


def test_a_file_with_the_name_of_a_known_module_is_the_file() -> None:
    write("operator.py", APP)
    assert load_app("operator.py").name == "first-operator"
    assert sys.modules["operator"].__file__ != str(Path("operator.py").absolute())


def test_a_file_may_import_its_neighbours() -> None:
    write("sub/four_kinds.py", APP)
    write("sub/four.py", "from four_kinds import app\n")
    assert load_app("sub/four.py:app").name == "first-operator"


def test_an_attribute_of_an_attribute_is_found() -> None:
    write("five.py", APP + "class Apps: inner = app\n")
    assert load_app("five:Apps.inner").name == "first-operator"


def test_a_module_that_is_not_there_is_named() -> None:
    assert "there is no module nowhere" in error("nowhere:app")
    assert "there is no file nowhere.py" in error("nowhere.py")
    assert "give module:app" in error(":app")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("bukets.py", "there is no file bukets.py. Did you mean buckets.py?"),
        ("./buckets", "there is no file ./buckets. Did you mean buckets.py?"),
        ("sub/bucket.py:app", "there is no file sub/bucket.py. Did you mean sub/buckets.py?"),
        ("none/buckets.py", "there is no file none/buckets.py"),
        ("bukets:app", "give the path of its file. Did you mean buckets?"),
        ("shopp.main:app", "give the path of its file. Did you mean shop?"),
        (
            "xyzzy",
            "there is no module xyzzy: run this command in the folder that holds it, or give ",
        ),
    ],
)
def test_a_misspelt_file_or_module_is_an_error_with_the_nearest_one(target: str, said: str) -> None:
    for path in ("buckets.py", "sub/buckets.py", "src/shop/__init__.py"):
        write(path, "raise AssertionError('nobody imports it')")
    assert said in error(target)
    with pytest.raises(click.ClickException) as caught:
        check_exists(target)
    assert caught.value.message == error(target)


@pytest.mark.parametrize(
    "target", ["buckets.py", "buckets:app", "shop.main:app", "yaml", "__main__"]
)
def test_a_file_or_module_that_exists_is_found_without_an_import(target: str) -> None:
    for path in ("buckets.py", "src/shop/__init__.py"):
        write(path, "raise AssertionError('nobody imports it')")
    check_exists(target)


@pytest.mark.parametrize("target", ["bukets.py", "bukets:app", ":app"])
def test_development_of_what_is_not_there_ends_at_once(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dev, "develop", lambda *_: pytest.fail("it waits for the file"))
    write("buckets.py", APP)
    assert cli.main(["run", target, "--dev"]) == 2
    assert error(target) in capsys.readouterr().err


def test_a_module_that_lacks_another_says_which_and_where() -> None:
    write("lacking.py", "import sys\nimport missing_package\n")
    assert "lacking.py:2: ModuleNotFoundError: No module named 'missing_package'" in error(
        "lacking"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nx.y\n", "seven.py:2: AttributeError"),
        ("x =\n", "seven.py:1: SyntaxError"),
        ("from appsdk_operator.app import App\nApp('Not A Name')\n", "seven.py:2: ValueError"),
    ],
)
@pytest.mark.parametrize("target", ["seven", "seven.py"])
def test_a_module_that_fails_says_in_which_line(text: str, said: str, target: str) -> None:
    write("seven.py", text)
    assert said in error(target)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("app.on_delet", "an App has no 'on_delet'. Did you mean 'on_delete'?"),
        ("app.xyzzy", "AttributeError: an App has no 'xyzzy'"),
        ("raise AttributeError('no name')", "AttributeError: no name"),
    ],
)
def test_a_misspelt_attribute_is_an_error_with_the_nearest_one(line: str, said: str) -> None:
    write("one.py", APP + line)
    assert error("one").endswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def __dir__(self): raise SystemExit('no names')", "has no attribute 'size'"),
        ("def __dir__(self): return [1, 2]", "has no attribute 'size'"),
        ("__slots__ = ('size', 'sizes')", "has no attribute 'size'"),
        ("def __getattr__(self, _): raise AttributeError('none', name=3)", "AttributeError: none"),
    ],
)
def test_an_attribute_error_of_an_object_that_lists_no_names_is_told(text: str, said: str) -> None:
    write("one.py", f"class Thing:\n    {text}\nThing().size\n")
    assert error("one").endswith(said)


def test_a_module_without_an_app_says_how_to_make_one() -> None:
    write("eight.py", "app = 'no app'\n")
    assert "eight has no App; write app = App(" in error("eight")
    assert "eight:app is not an App but a str" in error("eight:app")
    assert "eight has no other" in error("eight:other")


def test_a_module_that_is_installed_is_not_taken_for_one_of_this_folder() -> None:
    assert "yaml, which is " in error("yaml")
    assert "has no App" in error("yaml")


def test_a_module_with_several_apps_names_them() -> None:
    write("nine.py", APP + "other = App('second-operator')\nagain = app\n")
    assert error("nine") == "nine has several Apps; give nine:app or nine:other or nine:again"
    assert "give nine:app" in error("nine:nothing")
    write("ten.py", APP + "again = app\n")
    assert load_app("ten").name == "first-operator"


@pytest.mark.parametrize(
    "which", [name for name, make in HOSTILE_ERRORS.items() if issubclass(type(make()), Exception)]
)
def test_an_error_is_named_whatever_its_class_makes_of_its_text(which: str) -> None:
    made = HOSTILE_ERRORS[which]()
    lines = "from tests.hostile_errors import HOSTILE_ERRORS", f"raise HOSTILE_ERRORS[{which!r}]()"
    write("ten.py", "\n".join(lines))
    text = error("ten")
    assert text.startswith(f"ten cannot be imported: {Path('ten.py').absolute()}:2: "), text
    assert type(made).__name__ in text
