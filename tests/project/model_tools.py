"""Generated modules, imported; and CRDs with the schemas of their classes."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from appsdk_operator import Kind, custom_resource_definition

_NUMBERS = itertools.count()


def imported(text: str, folder: Path, name: str = "") -> ModuleType:
    """A module from its text; it has a file, which docstrings under attributes are read from."""
    name = name or f"made_{next(_NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where annotations and docstrings are looked up
    spec.loader.exec_module(module)
    return module


def kinds_of(module: ModuleType) -> dict[str, Kind[Any, Any]]:
    """The kinds in a module by name."""
    return {name: one for name, one in vars(module).items() if isinstance(one, Kind)}


def crd(schema: Mapping[str, Any], *, kind: str = "Widget", version: str = "v1") -> dict[str, Any]:
    """A CRD with the schema of a spec."""
    made = custom_resource_definition(Kind(group="example.com", version=version, kind=kind))
    whole = {"type": "object", "properties": {"spec": dict(schema)}}
    plain: dict[str, Any] = made.to_dict()
    plain["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = whole
    return plain


def again(original: Mapping[str, Any], module: ModuleType) -> dict[str, Any]:
    """A CRD with the schemas of the classes that were made of it.

    Fields beside spec and status, which a kind cannot say, stay.
    """
    kinds = {
        (kind.group, kind.kind, kind.version): (name, kind)
        for name, kind in kinds_of(module).items()
    }
    made = copy.deepcopy(dict(original))
    spec = made["spec"]
    for version in spec["versions"]:
        key = (spec["group"], spec["names"]["kind"], version["name"])
        if key not in kinds:  # not served
            continue
        name, kind = kinds[key]
        found = custom_resource_definition(
            kind,
            description=getattr(module, f"{name}_DESCRIPTION", ""),
            rules=getattr(module, f"{name}_RULES", ()),
        )
        new = copy.deepcopy(found.to_dict()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        old = version["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            if part not in old.get("properties", {}) or getattr(kind, part) is None:
                new["properties"].pop(part, None)
        new["properties"] = {**old.get("properties", {}), **new["properties"]}
        required = {*old.get("required", ()), *new.get("required", ())}
        if required:
            new["required"] = sorted(required & new["properties"].keys())
        for name in ("description", "x-kubernetes-validations"):
            old.pop(name, None)
        version["schema"]["openAPIV3Schema"] = {**old, **new}
    return made


def lost(given: Any, found: Any, path: str = "spec") -> list[str]:
    """The paths of what is given and not found again; a null may be an absent field."""
    if isinstance(given, Mapping) and isinstance(found, Mapping):
        return [
            one
            for name, item in given.items()
            if item is not None or name in found
            for one in (
                lost(item, found[name], f"{path}.{name}") if name in found else [f"{path}.{name}"]
            )
        ]
    if isinstance(given, list) and isinstance(found, list) and len(given) == len(found):
        pairs = enumerate(zip(given, found, strict=True))
        return [one for n, (a, b) in pairs for one in lost(a, b, f"{path}[{n}]")]
    return [] if given == found and isinstance(given, bool) == isinstance(found, bool) else [path]
