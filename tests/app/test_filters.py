"""Filters of an App's functions: what is declared, and refused."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from appsdk_operator import App, Kind, Object, annotation, field, labels
from appsdk_operator.app import Filtered, functions_of, timers_of
from appsdk_operator.cache import CacheOptions
from appsdk_operator.client import ClientConfig
from appsdk_operator.controllers import Predicate, generation_changed, label_changed
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import ChangeFilter, Filter
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import World
from appsdk_operator.watchers import SimpleWatcher


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


def options_of(app: App) -> Any:
    handlers, timers = functions_of(app), timers_of(app)
    return (handlers[0] if handlers else timers[0]).options


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
    app, plain = App("disks"), App("disks")
    declare(app, decorator, where=where)
    declare(plain, decorator)
    one, other = options_of(app), options_of(plain)
    assert type(one.where) is Filter
    # Options are values, and can be compared.
    assert one != other
    assert len({one, other}) == 2


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
        (field("spec.size").changed, "where: field('spec.size').changed looks at a change, but"),
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


# What becomes the selector of a cache.

WEB = labels("app=web")


def tick(app: App, where: Any = None, *, name: str = "tick") -> None:
    app.every(60, PLAIN, where=where, name=name)(seen)


def selector_of(*declare_it: Any, **options: Any) -> str:
    app = App("disks", **options)
    for each in declare_it:
        each(app)
    config = ClientConfig(server="http://localhost")
    manager = app.manager(config, metrics=Metrics(), health_server=None, metrics_server=None)
    try:
        informer = manager.cache.informer_of(PLAIN, "")
        assert informer is not None
        return str(informer.label_selector or "")
    finally:
        manager.close()


@pytest.mark.parametrize(
    ("declare_it", "selector"),
    [
        ([lambda app: tick(app, WEB)], "app=web"),
        ([lambda app: tick(app, WEB & labels("!old") & annotation("a"))], "app=web,!old"),
        ([lambda app: tick(app, WEB | labels("old"))], ""),
        ([lambda app: tick(app, ~WEB)], ""),
        ([tick], ""),
        ([lambda app: tick(app, WEB), lambda app: tick(app, name="other")], ""),
        (
            [
                lambda app: tick(app, WEB & labels("tier")),
                lambda app: tick(app, labels("tier,app=web") & annotation("a"), name="other"),
            ],
            "app=web,tier",
        ),
        # What may have a finalizer, or an older state, is seen after it has left the filter.
        ([lambda app: tick(app, WEB), lambda app: app.on_add(PLAIN, where=WEB)(seen)], ""),
        ([lambda app: tick(app, WEB), lambda app: app.on_delete(PLAIN, where=WEB)(seen)], ""),
        ([lambda app: tick(app, WEB), lambda app: app.on_update(PLAIN, where=WEB)(changed)], ""),
        ([lambda app: tick(app, WEB), lambda app: app.watch(PLAIN, SimpleWatcher(add=seen))], ""),
        ([lambda app: tick(app, WEB), lambda app: app.object_reconciler(PLAIN)(seen)], ""),
        (
            [
                lambda app: tick(app, WEB),
                lambda app: app.object_reconciler(DISK, owns=[PLAIN])(seen),
            ],
            "",
        ),
        # A reconciler reads what it made, and sees it after it has left the filter.
        (
            [
                lambda app: tick(app, WEB),
                lambda app: app.object_reconciler(DISK, owns=[Filtered(PLAIN, where=WEB)])(seen),
            ],
            "",
        ),
        (
            [
                lambda app: tick(app, WEB),
                lambda app: app.reconciler(
                    DISK, watches={Filtered(PLAIN, where=WEB): lambda plain: []}
                )(lambda request: None),
            ],
            "",
        ),
        ([lambda app: tick(app, WEB), lambda app: app.uses(PLAIN)], ""),
        ([lambda app: tick(app, WEB), lambda app: app.index(PLAIN, "spec.a")], ""),
    ],
)
def test_labels_that_all_timers_of_a_kind_ask_for_are_its_selector(
    declare_it: list[Any], selector: str
) -> None:
    assert selector_of(*declare_it) == selector


def test_a_selector_that_was_given_stays() -> None:
    given = CacheSetup(label_selector="tier=a")
    assert selector_of(lambda app: tick(app, WEB), cache=given) == "tier=a"
    by_kind = CacheSetup(by_kind={PLAIN: CacheOptions(label_selector="")})
    assert selector_of(lambda app: tick(app, WEB), cache=by_kind) == ""


def test_a_client_reads_objects_that_the_cache_leaves_out() -> None:
    app, names = App("disks"), list[str]()

    @app.every(60, PLAIN, where=WEB)
    def look(plain: Object[Any, Any]) -> None:
        names.append(plain.name)
        names.extend(sorted(each.name for each in app.client.list(PLAIN, namespace="default")))

    with World(PLAIN, app) as world:
        world.create("a", {}, labels={"app": "web"})
        world.create("b", {})
        world.run(10)
    assert names == ["a", "a", "b"]
    rules = [each for each in app.permissions() if "plains" in each.resources]
    assert {verb for rule in rules for verb in rule.verbs} >= {"get", "list", "watch"}
