"""The cases as they are written down: read, checked and counted. README.md tells the format."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import yaml

HERE = Path(__file__).parent
CASES = HERE / "cases"
_AREA_KEYS = {"area", "since", "because", "cases"}
_CASE_KEYS = {"name", "since", "because", "differs", "crds", "setup", "steps"}
_STEP_KEYS = {
    "do", "read", "close", "events", "open", "headers", "accept", "body", "raw", "onto", "patch",
    "save", "each", "wait", "only", "ignore", "differs",
}  # fmt: skip


class ScriptError(ValueError):
    """A case that cannot be run as it is written."""


def version_of(text: str) -> tuple[int, int]:
    """``"1.27"`` or ``"v1.36.3"`` as numbers that can be compared."""
    major, minor, *_ = text.removeprefix("v").split(".")
    return int(major), int(minor)


@attrs.frozen
class Difference:
    """A documented difference: these paths are not compared."""

    reason: str
    paths: tuple[str, ...] = ()

    @classmethod
    def read(cls, value: dict[str, Any]) -> Difference:
        """From YAML: a reason, and the path or paths."""
        paths = value.get("paths", value.get("path", ()))
        if not value.get("reason") or not paths or set(value) - {"reason", "path", "paths"}:
            raise ScriptError(f"differs: {value}: give a reason and paths")
        return cls(value["reason"], (paths,) if isinstance(paths, str) else tuple(paths))


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A conversation with a server, in a namespace of its own."""

    area: str
    name: str
    steps: tuple[dict[str, Any], ...]
    setup: tuple[dict[str, Any], ...] = ()
    crds: tuple[dict[str, Any], ...] = ()
    since: tuple[int, int] = (0, 0)
    because: str = ""
    differs: tuple[Difference, ...] = ()

    @property
    def id(self) -> str:
        """What tests and reports call it."""
        return f"{self.area}: {self.name}"

    @property
    def text(self) -> str:
        """All that is sent, for questions such as whether a value came from the case itself."""
        return json.dumps([self.crds, self.setup, self.steps], ensure_ascii=False, sort_keys=True)

    @property
    def digest(self) -> str:
        """Changes with what is sent, so that recorded answers can be told from outdated ones."""
        shared = json.dumps(shared_definitions(), sort_keys=True)
        return hashlib.sha256(f"{shared}\n{self.text}".encode()).hexdigest()[:12]


@attrs.frozen
class Area:
    """A file of cases."""

    key: str
    title: str
    cases: tuple[Case, ...]


@attrs.frozen(kw_only=True)
class KnownDifference:
    """A rule of known.yaml: what is not compared in any case."""

    reason: str
    until: tuple[int, int] | None = None
    paths: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()

    def applies(self, version: tuple[int, int]) -> bool:
        """Whether servers of that version differ so."""
        return self.until is None or version < self.until


@cache
def shared_definitions() -> list[dict[str, Any]]:
    """The custom resources that every case may use."""
    return list(yaml.safe_load_all((HERE / "shared.yaml").read_text(encoding="utf-8")))


@cache
def known_differences() -> tuple[KnownDifference, ...]:
    """The rules for all cases."""
    rules = yaml.safe_load((HERE / "known.yaml").read_text(encoding="utf-8")) or ()
    return tuple(
        KnownDifference(
            reason=rule["reason"],
            until=version_of(rule["until"]) if "until" in rule else None,
            paths=tuple(rule.get("paths", ())),
            replace=tuple((pattern, text) for pattern, text in rule.get("replace", ())),
        )
        for rule in rules
    )


@attrs.frozen(kw_only=True)
class OlderDifferences:
    """The cases that older servers answer otherwise."""

    until: tuple[int, int]
    reason: str
    cases: frozenset[str]


@cache
def older_differences() -> OlderDifferences:
    """What older.yaml tells."""
    content = yaml.safe_load((HERE / "older.yaml").read_text(encoding="utf-8"))
    return OlderDifferences(
        until=version_of(content["until"]),
        reason=content["reason"],
        cases=frozenset(
            f"{area}: {name}" for area, names in content["cases"].items() for name in names
        ),
    )


@cache
def areas() -> tuple[Area, ...]:
    """All cases, by the file that they stand in."""
    return tuple(_area(path) for path in sorted(CASES.glob("*.yaml")))


def all_cases() -> list[Case]:
    """All cases in their order."""
    return [case for area in areas() for case in area.cases]


def _area(path: Path) -> Area:
    # Without a known loader for times and the like: what looks like text is text.
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    _only(content, _AREA_KEYS, path.name)
    cases = tuple(_case(path.stem, content, each) for each in content["cases"])
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ScriptError(f"{path.name}: two cases have one name: {sorted(twice)}")
    return Area(path.stem, content["area"], cases)


def _case(area: str, content: dict[str, Any], case: dict[str, Any]) -> Case:
    where = f"{area}: {case.get('name')}"
    _only(case, _CASE_KEYS, where)
    steps, setup = case["steps"], case.get("setup", ())
    for step in (*steps, *setup):
        _only(step, _STEP_KEYS, where)
        if len(step.keys() & {"do", "read", "close"}) != 1:
            raise ScriptError(f"{where}: each step is one of do, read and close: {step}")
    since = case.get("since", content.get("since"))
    because = case.get("because", content.get("because", ""))
    if since is not None and not because:
        raise ScriptError(f"{where}: say since when, and because of what")
    return Case(
        area=area,
        name=case["name"],
        steps=tuple(steps),
        setup=tuple(setup),
        crds=tuple(case.get("crds", ())),
        since=version_of(since) if since else (0, 0),
        because=because,
        differs=tuple(Difference.read(each) for each in case.get("differs", ())),
    )


def _only(value: dict[str, Any], keys: set[str], where: str) -> None:
    if unknown := value.keys() - keys:
        raise ScriptError(f"{where}: nobody reads {sorted(unknown)}: use {sorted(keys)}")


# The parser in C is ten times as fast, and each process that tests reads all cases.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which times and dates stay text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if "timestamp" not in tag]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
