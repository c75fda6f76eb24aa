"""Filters of an App's functions: what is declared, and refused."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from appsdk_operator import App, Kind, Object, annotation, field, labels
from appsdk_operator.app import functions_of, timers_of
from appsdk_operator.controllers import Predicate, generation_changed, label_changed
from appsdk_operator.resource import ChangeFilter, Filter


@attrs.frozen
class DiskSpec:
    size: int = 1
    mount_path: str = ""


DISK = Kind(group="example.com", version="v1", kind="Disk", spec=DiskSpec, rename="camel")
PLAIN = Kind(group="example.com", version="v1", kind="Plain")


def seen(disk: Object[Any, Any]) -> None: ...


def changed(old: Object[Any, Any], new: Object[Any, Any]) -> None: ...


def declare(app: App, decorator: str, **filters: Any) -> None:
    if decorator == "every":
        app.every(60, DISK, **filters)(seen)
    elif decorator == "on_update":
        app.on_update(DISK, **filters)(changed)
    else:
        getattr(app, decorator)(DISK, **filters)(seen)


DECORATORS = ["on_add", "on_sync", "on_update", "on_delete", "every"]


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize(
    "where",
    [
        labels("app=web,!old") & ~annotation("example.com/paused"),
        annotation("example.com/paused"),
        field("spec.size") == 3,
        field("spec.mount_path").exists | (field("status.phase") == "Ready"),
        field("metadata.generation").isin([1, 2]),
        lambda disk: disk.spec.size > 3,
    ],
)
def test_each_decorator_takes_a_filter_of_the_object(decorator: str, where: Any) -> None:
    app = App("disks")
    declare(app, decorator, where=where)
    declared = [*functions_of(app), *timers_of(app)]
    assert [type(each.options.where) in (Filter, type(where)) for each in declared] == [True]


@pytest.mark.parametrize(
    "when",
    [
        field("spec.size").changed,
        field("spec.size").became(3) | field("status.phase").left("Ready"),
        labels("app") & (lambda disk: disk.spec.size > 3),
        lambda old, new: old.spec.size < new.spec.size,
        generation_changed | label_changed,
        field("metadata.labels['app']").changed,
    ],
)
def test_an_update_takes_a_filter_of_the_change(when: Any) -> None:
    app = App("disks")
    app.on_update(DISK, when=when)(changed)
    (declared,) = functions_of(app)
    assert isinstance(declared.options.when, ChangeFilter)


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        (field("spec.size").changed, "where: field('spec.size').changed looks at a change, and"),
        (generation_changed, "give it as when="),
        (Predicate(lambda event: True, name="mine"), "where: mine looks at events"),
        (field("spec.size"), "write field('spec.size').exists"),
        (labels, "labels makes a filter: call it"),
        (lambda old, new: True, "give a function of (obj)"),
        (True, "give a function of (obj)"),
    ],
)
def test_what_is_no_filter_of_an_object_is_refused_at_once(
    decorator: str, where: Any, remedy: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(remedy)):
        declare(App("disks"), decorator, where=where)


def test_what_is_no_filter_of_a_change_is_refused_at_once() -> None:
    for wrong in (field("spec.size"), annotation, True, lambda obj: True, "spec.size"):
        with pytest.raises(TypeError, match=r"^when: "):
            App("disks").on_update(DISK, when=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="about objects"):
        App("disks").every(60, where=labels("a"))  # type: ignore[call-overload]


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_misspelt_field_is_refused_with_the_nearest_name(decorator: str) -> None:
    for wrong, problem in (
        (labels("a") & ~(field("spec.sise") == 3), "no field 'sise', did you mean 'size'?"),
        (field("spec.mount_paht").exists, "did you mean 'mountPath'?"),
        (field("metadata.label['a']").exists, "did you mean 'labels'?"),
    ):
        with pytest.raises(ValueError, match=re.escape(problem)):
            declare(App("disks"), decorator, where=wrong)
    wrong_change = field("spec.sise").changed
    with pytest.raises(ValueError, match=r"^when: .*did you mean 'size'"):
        App("disks").on_update(DISK, when=wrong_change)
    with pytest.raises(ValueError, match=r"^predicates: .*did you mean 'size'"):
        App("disks").object_reconciler(DISK, predicates=[wrong_change])(seen)


def test_a_field_is_checked_against_a_schema_that_is_declared_later() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    wrong = field("spec.sise")
    declared: list[Any] = [
        lambda app: app.on_update(PLAIN, when=wrong.changed)(changed),
        lambda app: app.on_delete(PLAIN, where=wrong.exists)(seen),
        lambda app: app.every(60, PLAIN, where=wrong == 3)(seen),
        lambda app: app.object_reconciler(PLAIN, predicates=[wrong.changed])(seen),
    ]
    for each in declared:
        app = App("disks")
        each(app)
        with pytest.raises(ValueError, match="no field 'sise', did you mean 'size'"):
            app.own(PLAIN, schema=schema)
