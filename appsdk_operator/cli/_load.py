"""From ``module:app`` to the App."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import click

from appsdk_operator.runtime import error_text, guarded_call, traceback_of, with_class

if TYPE_CHECKING:
    from appsdk_operator.app import App


_NOT_THE_USERS: Final = (
    str(Path(__file__).parents[1]),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    "<frozen",
)


def target_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument TARGET; the function gets the App as ``app``."""

    @click.argument("target")
    @functools.wraps(function)
    def call(*args: Any, target: str, **options: Any) -> Any:
        return function(*args, app=load_app(target), **options)

    return call


def load_app(target: str) -> App:
    """The App that ``target`` names.

    Modules are looked for in the current folder first, and in its ``src``.

    Args:
        target: ``module:name``, ``package.module:name``, ``folder/file.py:name``; without a name
            the only App of the module.

    Raises:
        click.ClickException: there is no such module or App, or the module cannot be imported; the
            text says what to do.
    """
    place, name = _parts(target)
    module = _file(place) if _is_file(place) else _module(place)
    return _named(module, place, name) if name else _only(module, place)


def check_exists(target: str) -> None:
    """Check that there is the file or module that ``target`` names, and import nothing.

    Of a module within a package only the package is looked for.

    Raises:
        click.ClickException: there is none; the text has the nearest name.
    """
    place, _ = _parts(target)
    if _is_file(place):
        if not Path(place).is_file():
            raise _no_file(place)
        return
    _find_modules_here()
    package = place.partition(".")[0]
    with contextlib.suppress(ValueError):  # a name that no module can have
        if importlib.util.find_spec(package) is None:
            raise _no_module(package)


def _parts(target: str) -> tuple[str, str]:
    place, _, name = target.partition(":")
    if not place:
        raise click.ClickException(f"{target!r} has no module: give module:app, or file.py:app")
    return place, name


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _no_file(place: str) -> click.ClickException:
    path = Path(place)
    found = difflib.get_close_matches(
        path.name, [each.name for each in path.parent.glob("*.py")], 1
    )
    near = f". Did you mean {path.with_name(found[0])}?" if found else ""
    return click.ClickException(f"there is no file {place}{near}")


def _no_module(name: str) -> click.ClickException:
    known = [each.name for each in pkgutil.iter_modules(map(str, _own_folders()))]
    found = difflib.get_close_matches(name, known, 1)
    near = f". Did you mean {found[0]}?" if found else ""
    return click.ClickException(
        f"there is no module {name}: run this command in the folder that holds it, or "
        f"give the path of its file{near}"
    )


def _own_folders() -> list[Path]:
    """Where the user's modules are."""
    return [each for each in (Path("src").absolute(), Path().absolute()) if each.is_dir()]


def _find_modules_here() -> None:
    for folder in _own_folders():
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def _module(name: str) -> ModuleType:
    _find_modules_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise _no_module(missing) from error
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _file(place: str) -> ModuleType:
    path = Path(place).absolute()
    if not path.is_file():
        raise _no_file(place)
    # The module of a package may import its neighbours.
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) > 1 and path.stem == "__init__":
        parts.pop()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is None and len(parts) > 1:
        return _module(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    # A file such as operator.py is not to be taken for a module of the same name.
    if known is not None:
        name = re.sub(r"\W", "_", str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise click.ClickException(f"{place} is not a Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _failed(place, error) from error
    return module


def _failed(name: str, error: Exception) -> click.ClickException:
    """The error of a module that cannot be imported, with the line of the user's code."""
    frames = traceback.extract_tb(traceback_of(error))
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    what = error_text(error)
    known = with_class(error)
    if isinstance(known, SyntaxError):
        where = f"{known.filename}:{known.lineno}: "
        *source, _ = traceback.format_exception_only(known)
        lines = [f"{type(known).__name__}: {known.msg}", *"".join(source[1:]).splitlines()]
        what = "\n".join(lines)
    return click.ClickException(f"{name} cannot be imported: {where}{what}{_suggestion(known)}")


def _suggestion(error: BaseException) -> str:
    """The attribute that was probably meant; in a traceback Python adds it by itself."""
    if not isinstance(error, AttributeError) or error.name is None:
        return ""
    # The name and the object are the user's.
    near = guarded_call("__dir__", _nearest, error.name, error.obj, failed=lambda _: "")
    return f". Did you mean {near!r}?" if near else ""


def _nearest(name: str, obj: object) -> str:
    names = dir(obj)
    # The object has an attribute of that name if it is a slot without a value.
    return "" if name in names else "".join(difflib.get_close_matches(name, names, 1))


def _named(module: ModuleType, place: str, name: str) -> App:
    from appsdk_operator.app import App

    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.ClickException(f"{place} has no {name}; {_offer(module, place)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise click.ClickException(
            f"{place}:{name} is not an App but a {type(found).__name__}; {_offer(module, place)}"
        )
    return found


def _only(module: ModuleType, place: str) -> App:
    apps = _apps(module)
    if len({id(app) for app in apps.values()}) != 1:
        subject = f"{place}{_elsewhere(module)}"
        raise click.ClickException(
            f"{subject} has {'several Apps' if apps else 'no App'}; {_offer(module, place)}"
        )
    return next(iter(apps.values()))


def _elsewhere(module: ModuleType) -> str:
    """Where a module is that is not in the current folder, such as an installed one."""
    path = getattr(module, "__file__", None)
    if path is None or Path(path).is_relative_to(Path().absolute()):
        return ""
    return f", which is {path},"


def _offer(module: ModuleType, place: str) -> str:
    names = [f"{place}:{name}" for name in _apps(module)]
    if not names:
        return "write app = App('my-operator') in it, or give another module"
    return f"give {' or '.join(names)}"


def _apps(module: ModuleType) -> dict[str, App]:
    from appsdk_operator.app import App

    return {name: value for name, value in vars(module).items() if isinstance(value, App)}
