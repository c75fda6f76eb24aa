"""The site's reference: a page for each room, with every public name, made from the docstrings.

`hack/site.py` calls this when it builds; nothing of it is in git.
"""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType

import attrs
from sphinx.pycode import ModuleAnalyzer

from appsdk_operator._lazy import names_of as offered_by

PACKAGE = "appsdk_operator"
ROOMS = (
    "app",
    "watchers",
    "controllers",
    "manager",
    "webhooks",
    "cache",
    "client",
    "resource",
    "runtime",
    "testing",
    "tracing",
    "project",
)
"""The rooms with public names, those first with which most programs begin."""

GROUPS = {
    "class": "Classes",
    "protocol": "Protocols",
    "exception": "Exceptions",
    "function": "Functions",
    "data": "Data",
    "module": "Modules",
}

MAIN = (
    "app.App",
    "client.Client",
    "manager.Manager",
    "watchers.InformerController",
    "watchers.OpinionatedWatcher",
    "controllers.Controller",
    "cache.Cache",
    "cache.Informer",
    "resource.Object",
    "resource.MutableObject",
    "testing.World",
    "testing.APIServer",
)
"""Classes with a page of their own, which begins with a table of the methods."""

FURTHER = {"kinds": "resource.kinds", "strategies": "testing.strategies"}
"""Public modules in rooms, which are pages of their own."""


@attrs.frozen
class Name:
    """A public name of a room."""

    name: str
    room: str
    home: str
    """The module that defines it."""
    group: str
    first_line: str

    @property
    def path(self) -> str:
        """The dotted path by which users know it."""
        return f"{PACKAGE}.{self.room}.{self.name}"


def public_rooms() -> list[str]:
    """The rooms that list public names, for the check that none was forgotten."""
    root = Path(importlib.import_module(PACKAGE).__path__[0])
    modules = (
        importlib.import_module(f"{PACKAGE}.{init.parent.name}")
        for init in root.glob("*/__init__.py")
    )
    return sorted(
        module.__name__.rpartition(".")[2] for module in modules if vars(module).get("__all__")
    )


def names_of(room: str) -> list[Name]:
    """The public names of a room, sorted."""
    module = importlib.import_module(f"{PACKAGE}.{room}")
    homes, _ = offered_by(module.__name__)
    return [_described(name, module, homes) for name in sorted(module.__all__, key=str.lower)]


def facade() -> dict[str, str]:
    """The names of the facade, each with the room that has it."""
    homes, _ = offered_by(PACKAGE)
    rooms = {name: home.removeprefix(f"{PACKAGE}.") for name, home in homes.items()}
    return {name: room for name, room in rooms.items() if room in ROOMS}


def _described(name: str, module: ModuleType, homes: dict[str, str]) -> Name:
    value = getattr(module, name)
    room = module.__name__.rpartition(".")[2]
    home = homes.get(name, module.__name__)
    if inspect.isclass(value) and not typing.get_origin(value):
        if issubclass(value, BaseException):
            group = "exception"
        else:
            group = "protocol" if getattr(value, "_is_protocol", False) else "class"
        text = inspect.getdoc(value) or ""
    elif inspect.ismodule(value):
        group, text = "module", inspect.getdoc(value) or ""
    elif inspect.isroutine(value):
        group, text = "function", inspect.getdoc(value) or ""
    else:
        group, text = "data", "\n".join(data_docstring(home, name))
    return Name(name, room, home, group, _first_line(text))


def data_docstring(home: str, name: str) -> list[str]:
    """The lines of the docstring under an assignment, from the module that makes it."""
    while hasattr(importlib.import_module(home), "__path__"):
        public, unlisted = offered_by(home)
        home = (public | unlisted)[name]
    return ModuleAnalyzer.for_module(home).find_attr_docs().get(("", name), [])


def _first_line(text: str) -> str:
    paragraph = text.strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


def _identity(name: Name) -> str:
    value = getattr(importlib.import_module(f"{PACKAGE}.{name.room}"), name.name)
    return f"{getattr(value, '__module__', '')}:{id(value)}"


@attrs.frozen
class Reference:
    """All pages of the reference, and the further paths by which its names are known."""

    pages: dict[str, str]
    """File name to text."""
    aliases: dict[str, str]
    """A path by which a name is known, too, to the path under which it is documented."""


def reference() -> Reference:
    """The pages of the reference."""
    documented = {room: names_of(room) for room in ROOMS}
    aliases = {f"{PACKAGE}.{name}": f"{PACKAGE}.{room}.{name}" for name, room in facade().items()}
    pages = {f"{room}.rst": _page(room, documented[room]) for room in ROOMS}
    homes = {_identity(name): name for names in documented.values() for name in names}
    for names in documented.values():
        for name in names:
            if _is_main(name):
                pages[f"classes/{name.name}.rst"] = _class_page(name, homes)
    pages["kinds.rst"] = _kinds_page()
    pages["strategies.rst"] = _strategies_page()
    pages["index.rst"] = _index(aliases)
    return Reference(pages, aliases)


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n\n"


def _index(aliases: dict[str, str]) -> str:
    parts = [
        _heading("Reference", "="),
        "Every public name of the kit, from its docstring. What is not here is private.\n\n",
        _heading("Packages", "-"),
        ".. list-table::\n   :widths: 30 70\n\n",
    ]
    for page, module in ({room: room for room in ROOMS} | FURTHER).items():
        line = _first_line(importlib.import_module(f"{PACKAGE}.{module}").__doc__ or "")
        parts.append(f"   * - :doc:`{PACKAGE}.{module} <{page}>`\n     - {line}\n")
    parts.append("\n")
    parts.append(_heading(f"Names of {PACKAGE}", "-"))
    parts.append(
        "What a program usually needs is offered by the package itself, "
        "and imported when it is first used.\n\n"
    )
    listed = {n.path: n for room in ROOMS for n in names_of(room)}
    rows = sorted((a, p) for a, p in aliases.items() if a.count(".") == 1 and p in listed)
    parts.append(_table([(a.rpartition(".")[2], listed[p]) for a, p in rows]))
    parts.append(".. toctree::\n   :hidden:\n\n")
    parts += [f"   {room}\n" for room in (*ROOMS, *FURTHER)]
    return "".join(parts)


def _table(rows: list[tuple[str, Name]]) -> str:
    if not rows:
        return ""
    parts = [".. list-table::\n   :widths: 30 70\n   :class: names\n\n"]
    for shown, name in rows:
        parts.append(f"   * - :py:obj:`{shown} <{name.path}>`\n     - {name.first_line}\n")
    return "".join([*parts, "\n"])


def _page(room: str, names: list[Name]) -> str:
    module = f"{PACKAGE}.{room}"
    parts = [_heading(module, "="), f".. automodule:: {module}\n   :no-members:\n\n"]
    parts += [_heading("Names", "-"), _table([(name.name, name) for name in names])]
    parts.append(f".. currentmodule:: {module}\n\n")
    for group, title in GROUPS.items():
        members = [name for name in names if name.group == group and not _is_main(name)]
        if members:
            parts.append(_heading(title, "-"))
            parts += [_entry(name) for name in members]
    main = [name.name for name in names if _is_main(name)]
    if main:
        parts.append(".. toctree::\n   :hidden:\n\n")
        parts += [f"   classes/{name}\n" for name in main]
    return "".join(parts)


def _is_main(name: Name) -> bool:
    return f"{name.room}.{name.name}" in MAIN


def _class_page(name: Name, homes: dict[str, Name]) -> str:
    """The page of a class: what its methods and properties do, then each with its docstring."""
    module = f"{PACKAGE}.{name.room}"
    source = PACKAGE if facade().get(name.name) == name.room else module
    parts = [
        _heading(f"class {name.name}", "="),
        f"{name.first_line}\n\n.. code-block:: python\n\n   from {source} import {name.name}\n\n",
        f".. currentmodule:: {module}\n\n",
    ]
    value = getattr(importlib.import_module(module), name.name)
    methods, properties = _members(value, name, homes)
    for title, rows in (("Methods", methods), ("Properties", properties)):
        if rows:
            parts.append(_heading(title, "-"))
            parts.append(".. list-table::\n   :widths: 30 70\n   :class: names\n\n")
            parts += [f"   * - :py:obj:`{a} <{path}>`\n     - {line}\n" for a, path, line in rows]
            parts.append("\n")
    return "".join([*parts, _heading("Details", "-"), _entry(name)])


_MEMBER = re.compile(r":(meth|attr):`(\w+)`")
_Rows = list[tuple[str, str, str]]


def _members(value: type, name: Name, homes: dict[str, Name]) -> tuple[_Rows, _Rows]:
    """Methods and properties in their order: what is shown, its path and the first line."""
    methods: _Rows = []
    properties: _Rows = []
    seen: set[str] = set()
    for owner in value.__mro__:
        home = homes.get(f"{owner.__module__}:{id(owner)}", name)
        if not owner.__module__.startswith(PACKAGE):
            continue
        for attribute, member in vars(owner).items():
            if attribute.startswith("_") or attribute in seen:
                continue
            seen.add(attribute)
            text = inspect.getdoc(getattr(member, "__func__", member))
            if not text:
                continue
            # Its own class is known where a docstring is, and not in a table.
            line = _MEMBER.sub(rf":py:\1:`\2 <{home.path}.\2>`", _first_line(text))
            row = attribute, f"{home.path}.{attribute}", line
            if isinstance(member, property):
                properties.append(row)
            elif isinstance(member, FunctionType | classmethod | staticmethod):
                methods.append((f"{attribute}()", *row[1:]))
    return methods, properties


def _entry(name: Name) -> str:
    value = getattr(importlib.import_module(f"{PACKAGE}.{name.room}"), name.name)
    if name.group == "data":
        lines = data_docstring(name.home, name.name)
        text = "\n".join(f"   {line}".rstrip() for line in lines)
        return f".. py:data:: {name.name}\n\n{text}\n\n"
    if name.group == "module":
        return f".. automodule:: {name.path}\n   :members:\n\n"
    if name.group == "function":
        return f".. autofunction:: {name.path}\n\n"
    directive = "autoexception" if name.group == "exception" else "autoclass"
    options = "   :members:\n   :show-inheritance:\n"
    stop = _public_or_foreign_bases(value)
    if stop is not None:
        options += f"   :inherited-members: {', '.join(stop)}\n"
    return f".. {directive}:: {name.path}\n{options}\n"


def _public_or_foreign_bases(value: type) -> list[str] | None:
    """The bases whose members are shown elsewhere; None where all bases are."""
    offered = {
        id(getattr(module, name))
        for room in ROOMS
        for module in [importlib.import_module(f"{PACKAGE}.{room}")]
        for name in module.__all__
    }
    bases = value.__mro__[1:]
    private = [b for b in bases if b.__module__.startswith(PACKAGE) and id(b) not in offered]
    if not private:
        return None
    return [base.__name__ for base in bases if base not in private]


def _strategies_page() -> str:
    module = f"{PACKAGE}.{FURTHER['strategies']}"
    return _heading(module, "=") + f".. automodule:: {module}\n   :members:\n"


def _kinds_page() -> str:
    module = f"{PACKAGE}.{FURTHER['kinds']}"
    kinds = importlib.import_module(module)
    parts = [
        _heading(f"{PACKAGE}.kinds", "="),
        f".. automodule:: {module}\n   :no-members:\n\n",
        f".. autofunction:: {module}.builtin_kinds\n\n",
        f".. autoclass:: {module}.BuiltinKind\n   :members:\n\n",
        f".. autoclass:: {module}.Group\n   :members:\n\n",
        f".. autoclass:: {module}.Version\n   :members:\n\n",
        _heading("The kinds", "-"),
        ".. list-table::\n   :header-rows: 1\n\n",
        "   * - attribute\n     - API version\n     - plural\n     - namespaced\n",
    ]
    for builtin in kinds.builtin_kinds():
        kind = builtin.kind
        group = kind.group.removesuffix(".k8s.io").partition(".")[0] or "core"
        path = f"{group}.{kind.version}.{kind.kind}"
        assert attrgetter(path)(kinds) == kind, path
        scope = "yes" if kind.is_namespaced else "no"
        parts.append(f"   * - ``kinds.{path}``\n     - ``{kind.api_version}``\n")
        parts.append(f"     - ``{kind.plural}``\n     - {scope}\n")
    return "".join(parts)
