"""What a project was made with: its name, its group, and what was added."""

from __future__ import annotations

import importlib.metadata
import json
import keyword
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, Self

import attrs

from appsdk_operator.cli._scaffold.kit import INDEX, is_source
from appsdk_operator.project import write_below
from appsdk_operator.resource import Kind, kinds
from appsdk_operator.runtime import check_operator_name

Part = Literal["kind", "webhook", "controller"]
PARTS: Final[tuple[Part, ...]] = ("kind", "webhook", "controller")
_FILE: Final = ".appsdk-operator/scaffold.json"
_VERSION: Final = 1


def _parts(given: Iterable[str]) -> tuple[Part, ...]:
    """Parts in their usual order.

    Raises:
        ValueError: there is no such part.
    """
    wanted = set(given)
    if not wanted <= set(PARTS):
        raise ValueError(f"parts={sorted(wanted)}: use {', '.join(PARTS)}")
    return tuple(each for each in PARTS if each in wanted)


@attrs.frozen
class Resource:
    """A kind of which the project has something."""

    kind: str
    """Such as ``Bucket``."""
    version: str
    """Such as ``v1alpha1``."""
    parts: tuple[Part, ...] = attrs.field(converter=_parts)
    """What the project has of it."""
    builtin: str = ""
    """Where a kind of Kubernetes is in :mod:`appsdk_operator.kinds`: ``apps.v1.Deployment``."""
    is_cluster_scoped: bool = False
    """Whether objects of a new kind are in no namespace."""

    def has(self, part: Part) -> bool:
        """Whether the project has this of it."""
        return part in self.parts

    @property
    def module(self) -> str:
        """The name of its module: ``ephemeral_volume_claim``."""
        return _snake(self.kind)

    @property
    def constant(self) -> str:
        """The name of its Kind: ``EPHEMERAL_VOLUME_CLAIM``."""
        return self.module.upper()


@attrs.frozen
class Answers:
    """What a project was made with; written into it, so that it can be made again.

    Raises:
        ValueError: a name cannot be used; the text says which do.
    """

    name: str
    group: str
    resources: tuple[Resource, ...] = ()
    kit: str = INDEX
    """Where the kit is from: ``index``, a URL, or a wheel in the project."""

    def __attrs_post_init__(self) -> None:
        """Check each name."""
        check_operator_name(self.name)
        package = self.package
        if (
            not package.isidentifier()
            or keyword.iskeyword(package)
            or package in (*sys.stdlib_module_names, "appsdk_operator", "tests", "docs", "deploy")
        ):
            raise ValueError(
                f"{self.name!r}: the package would be {package!r}, which cannot be imported or "
                "hides another module; give another name, such as bucket-operator"
            )
        Kind(group=self.group, version="v1", kind="Any")
        if "." not in self.group:
            raise ValueError(
                f"group={self.group!r}: give a DNS name with a dot, such as storage.example.com"
            )
        if not is_source(self.kit):
            raise ValueError(
                f"kit={self.kit!r}: give index, a URL, or the path of a wheel in the folder wheels"
            )
        for resource in self.resources:
            _check_kind(resource, package)

    @classmethod
    def new(cls, name: str, group: str) -> Self:
        """Those of a new project.

        Raises:
            ValueError: as the class; or its package would hide one that is installed.
        """
        found = cls(name, group)
        others = importlib.metadata.packages_distributions().get(found.package)
        if others:
            raise ValueError(
                f"{name!r}: the package would be {found.package!r}, which {others[0]} has "
                "installed; give another name, such as bucket-operator"
            )
        return found

    @property
    def package(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_")

    def resource(self, kind: str) -> Resource | None:
        """What the project has of a kind."""
        return next((each for each in self.resources if each.kind == kind), None)

    def added(
        self,
        kind: str,
        part: Part,
        version: str = "v1alpha1",
        *,
        is_cluster_scoped: bool = False,
    ) -> Self:
        """The answers of the same project with one part more.

        Raises:
            ValueError: the project has it already, or has not what it needs.
        """
        if is_cluster_scoped and part != "kind":
            raise ValueError(f"a {part} has the scope of its kind: leave out --cluster-scoped")
        present = self.resource(kind)
        if present is not None and present.has(part):
            raise ValueError(f"the project already has a {part} of {kind}")
        if part == "kind":
            if present is not None:
                raise ValueError(f"{kind} is a kind of Kubernetes: give another name")
            new = Resource(kind, version, (part,), is_cluster_scoped=is_cluster_scoped)
            return attrs.evolve(self, resources=(*self.resources, new))
        if present is None and part == "controller":
            builtin = _builtin(kind)
            present = Resource(kind, builtin.split(".")[1], (), builtin)
        if present is None or (part == "webhook" and not present.has("kind")):
            raise ValueError(
                f"the project has no kind {kind}: add it first, with "
                f"appsdk-operator add kind {kind}"
            )
        others = {each.kind: each for each in self.resources}
        others[kind] = attrs.evolve(present, parts=(*present.parts, part))
        return attrs.evolve(self, resources=tuple(others.values()))

    def save(self, folder: Path) -> None:
        """Write them into the project.

        Raises:
            ValueError: a symbolic link leads out of the project.
            OSError: the file cannot be written.
        """
        content = {"format": _VERSION, **attrs.asdict(self)}
        write_below(folder, folder / _FILE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Those of a project; None if there is none.

        Raises:
            ValueError: the file cannot be used.
        """
        path = folder / _FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _VERSION:
                raise ValueError(
                    "another version of appsdk-operator has written it: upgrade appsdk-operator"
                )
            resources = tuple(Resource(**each) for each in content["resources"])
            kit = content.get("kit", INDEX)
            return cls(content["name"], content["group"], resources, kit)
        except FileNotFoundError:
            return None
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error


def _check_kind(resource: Resource, package: str) -> None:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,40}", resource.kind):
        raise ValueError(
            f"kind={resource.kind!r}: give a name in CamelCase of at most 41 letters and digits, "
            "such as Bucket"
        )
    if not re.fullmatch(r"v[1-9]\d*((alpha|beta)[1-9]\d*)?", resource.version):
        raise ValueError(
            f"version={resource.version!r}: give a version such as v1alpha1, v1beta1 or v1"
        )
    # The last is a constant of the modules of controllers.
    if resource.module in ("app", package, "seen") or keyword.iskeyword(resource.module):
        raise ValueError(
            f"kind={resource.kind!r}: its module would be {resource.module!r}, which is a reserved "
            "name; give another name"
        )


def _builtin(kind: str) -> str:
    """Where a kind of Kubernetes is.

    Raises:
        ValueError: there is no such kind, or it cannot be watched.
    """
    found = {
        (each.kind.group, each.kind.version): each.kind
        for each in kinds.builtin_kinds()
        if each.kind.kind == kind and "watch" in each.verbs
    }
    stable = [place for place in found if re.fullmatch(r"v\d+", place[1])] or list(found)
    # Events are in two groups; the older one is a copy.
    stable.sort(key=lambda place: (place[0] == "", place))
    if not stable:
        raise ValueError(
            f"neither the project nor Kubernetes has a kind {kind}: add it first, with "
            f"appsdk-operator add kind {kind}"
        )
    group, version = stable[0]
    return f"{(group or 'core').partition('.')[0]}.{version}.{kind}"


def _snake(name: str) -> str:
    """``HTTPRoute`` → ``http_route``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
