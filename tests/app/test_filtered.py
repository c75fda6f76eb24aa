"""Filters of what a reconciler's own kind, and the kinds that it owns and watches, tell it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self

import attrs
import pytest

from appsdk_operator import (
    App,
    Kind,
    MergePatch,
    MutableObject,
    Object,
    Request,
    annotation,
    field,
    kinds,
    labels,
    set_controller_reference,
)
from appsdk_operator.app import Filtered
from appsdk_operator.controllers import Predicate, generation_changed
from appsdk_operator.testing import World


@attrs.frozen
class DiskSpec:
    size: int = 1


DISK = Kind(group="example.com", version="v1", kind="Disk", spec=DiskSpec)
PART = Kind(group="example.com", version="v1", kind="Part", spec=DiskSpec)
CONFIG_MAP = kinds.core.v1.ConfigMap


make_filtered: Any = Filtered


def new_app() -> Any:
    """An App that takes whatever, for the type checker."""
    return App("disks")


def seen(disk: Object[Any, Any]) -> None: ...


class Calls:
    """A World with a disk whose reconciles are counted."""

    def __init__(self, declare: Callable[[App, Any], object], **crds: Any) -> None:
        app, self.count = App("disks"), 0
        declare(app, self.reconcile)
        self.world = World(DISK, app, **crds)

    def reconcile(self, disk: Any) -> None:
        del disk
        self.count += 1

    def __enter__(self) -> Self:
        self.world.__enter__()
        self.disk = self.world.create("a", {"size": 1})
        self.world.settle()
        self.count = 0
        return self

    def __exit__(self, *error: object) -> None:
        self.world.__exit__(*error)  # type: ignore[arg-type]

    def after(self, *changes: Callable[[], object]) -> list[int]:
        """The reconciles after each change."""
        found = []
        for change in changes:
            change()
            self.world.settle()
            found.append(self.count)
            self.count = 0
        return found

    def child(self, **labelled: str) -> None:
        child = MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"size": "1"})
        child.labels.update(labelled)
        set_controller_reference(self.disk, child)
        self.world.client.create(child)

    def patched(self, patch: dict[str, Any]) -> Callable[[], object]:
        return lambda: self.world.client.patch(
            CONFIG_MAP, "a", MergePatch(patch), namespace="default"
        )

    def deleted(self) -> None:
        self.world.client.delete(CONFIG_MAP, "a", namespace="default")


OTHER_DATA = {"data": {"size": "2"}}
OTHER_METADATA = {"metadata": {"annotations": {"note": "b"}}}
NO_LABEL = {"metadata": {"labels": {"role": None}}}


def disks_of(config_map: Object[Any, Any]) -> list[Request]:
    return [Request("default", config_map.name)]


FILTERS: list[dict[str, Any]] = [
    {"where": labels("role=size")},
    {"where": lambda child: child.labels.get("role") == "size"},
    {"when": field("data").changed},
    {"when": lambda old, new: old["data"] != new["data"]},
    {"where": labels("role=size"), "when": field("data").changed},
]


def is_reconciled(filters: dict[str, Any]) -> list[bool]:
    """Of a creation, three changes and a deletion, as below."""
    by_where = "where" in filters
    by_when = "when" in filters
    return [True, True, not by_when, not by_when, not by_where]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("option", ["owns", "watches"])
def test_events_of_other_kinds_are_filtered(option: str, filters: dict[str, Any]) -> None:
    followed = Filtered(CONFIG_MAP, **filters)
    given: Any = [followed] if option == "owns" else {followed: disks_of}

    def declare(app: App, reconcile: Any) -> None:
        app.object_reconciler(DISK, **{option: given})(reconcile)

    with Calls(declare) as calls:
        found = calls.after(
            lambda: calls.child(role="size"),
            calls.patched(OTHER_DATA),
            calls.patched(OTHER_METADATA),
            calls.patched(NO_LABEL),  # it leaves the filter, which is an event of it
            calls.deleted,
        )
    assert [count > 0 for count in found] == is_reconciled(filters)


def test_a_child_that_does_not_match_reconciles_nothing_and_is_in_the_cache() -> None:
    found = list[str]()

    def declare(app: App, reconcile: Any) -> None:
        @app.object_reconciler(DISK, owns=[Filtered(CONFIG_MAP, where=labels("role=size"))])
        def count(disk: Object[Any, Any]) -> None:
            found[:] = [each.name for each in app.client.list(CONFIG_MAP)]
            reconcile(disk)

    with Calls(declare) as calls:
        assert calls.after(
            lambda: calls.child(role="other"), calls.patched(OTHER_DATA), calls.deleted
        ) == [0, 0, 0]
        calls.child(role="other")
        calls.after(lambda: calls.world.patch("a", {"spec": {"size": 2}}))
    assert found == ["a"]


def test_a_kind_may_be_watched_with_several_filters() -> None:
    watches: Any = {
        Filtered(CONFIG_MAP, where=labels("role=size")): disks_of,
        Filtered(CONFIG_MAP, when=field("data").changed): lambda _: [Request("default", "b")],
    }
    requests = list[str]()
    app = App("disks")
    app.reconciler(DISK, watches=watches)(lambda request: requests.append(request.name))
    with World(DISK, app) as world:
        child = MutableObject.new(CONFIG_MAP, "a", namespace="default", data={})
        child.labels["role"] = "size"
        world.client.create(child)
        world.settle()
        assert sorted(requests) == ["a", "b"]
        requests.clear()
        world.client.patch(CONFIG_MAP, "a", MergePatch(OTHER_METADATA), namespace="default")
        world.settle()
        assert requests == ["a"]


@pytest.mark.parametrize("decorator", ["object_reconciler", "reconciler"])
def test_events_of_the_own_kind_are_filtered(decorator: str) -> None:
    def declare(app: App, reconcile: Any) -> None:
        where, when = annotation("pause") != "yes", field("spec.size").changed
        getattr(app, decorator)(DISK, where=where, when=when)(reconcile)

    with Calls(declare) as calls:
        patch = calls.world.patch
        assert calls.after(
            lambda: patch("a", {"spec": {"size": 2}}),
            lambda: patch("a", {"metadata": {"labels": {"a": "b"}}}),
            # The old state matched.
            lambda: patch(
                "a", {"metadata": {"annotations": {"pause": "yes"}}, "spec": {"size": 3}}
            ),
            lambda: patch("a", {"spec": {"size": 4}}),
        ) == [1, 0, 1, 0]


def test_predicates_are_further_conditions() -> None:
    def declare(app: App, reconcile: Any) -> None:
        small: Predicate[Any, Any] = Predicate(lambda event: event.object.spec.size < 3)
        app.object_reconciler(DISK, when=generation_changed, predicates=[small])(reconcile)

    with Calls(declare) as calls:
        patch = calls.world.patch
        assert calls.after(
            lambda: patch("a", {"spec": {"size": 2}}),
            lambda: patch("a", {"spec": {"size": 3}}),
            lambda: patch("a", {"metadata": {"labels": {"a": "b"}}}),
        ) == [1, 0, 0]


def test_a_filter_that_raises_lets_the_event_pass(caplog: pytest.LogCaptureFixture) -> None:
    def broken(child: Object[Any, Any]) -> bool:
        raise LookupError(child.name)

    def declare(app: App, reconcile: Any) -> None:
        app.object_reconciler(DISK, owns=[Filtered(CONFIG_MAP, where=broken)])(reconcile)

    with Calls(declare) as calls:
        assert calls.after(calls.child, calls.patched(OTHER_DATA)) == [1, 1]
    found = [each for each in caplog.records if "broken" in each.getMessage()]
    assert {record.levelname for record in found} == {"ERROR"}
    assert "so the event passes" in found[0].getMessage()


def test_filters_of_other_kinds_leave_the_permissions() -> None:
    plain, filtered = App("disks"), App("disks")
    plain.object_reconciler(DISK, owns=[CONFIG_MAP], watches={PART: disks_of})(seen)
    where: Any = labels("role=size")
    of_parts: Any = {Filtered(PART, where=where): disks_of, Filtered(PART, when=where): disks_of}
    filtered.object_reconciler(DISK, owns=[Filtered(CONFIG_MAP, where=where)], watches=of_parts)(
        seen
    )
    assert filtered.permissions() == plain.permissions()


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"owns": [Filtered(PART, where=field("spec.sise") == 1)]}, "^where: .*mean 'size'"),
        ({"owns": [Filtered(PART, when=field("spec.sise").changed)]}, "^when: .*mean 'size'"),
        ({"watches": {Filtered(PART, where=field("spec.sise") == 1): disks_of}}, "mean 'size'"),
        ({"where": field("spec.sise") == 1}, "^where: .*mean 'size'"),
        ({"when": field("spec.sise").changed}, "^when: .*mean 'size'"),
        ({"predicates": [field("spec.sise").changed]}, "^predicates: .*mean 'size'"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_nearest_name(given: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        App("disks").object_reconciler(DISK, **given)(seen)


def test_a_misspelt_field_of_another_kind_is_refused_with_a_later_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    plain = Kind(group="example.com", version="v1", kind="Plain")
    app = App("disks")
    app.object_reconciler(DISK, owns=[Filtered(plain, when=field("spec.sise").changed)])(seen)
    with pytest.raises(ValueError, match="did you mean 'size'"):
        app.own(plain, schema=schema)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: make_filtered(DISK, where=field("spec.size").changed), "give it as when="),
        (lambda: make_filtered(DISK, where=lambda old, new: True), "give a function of (obj)"),
        (lambda: make_filtered(DISK, when=lambda obj: True), "when: "),
        (lambda: make_filtered(DISK, when=Predicate(lambda event: True)), "looks at events"),
        (lambda: make_filtered("disks"), "Kind"),
        (lambda: new_app().object_reconciler(DISK, where=labels), "labels makes a filter"),
        (lambda: new_app().reconciler(DISK, when=True), "when: "),
        (lambda: new_app().object_reconciler(DISK, owns=["disks"])(seen), "owns"),
        (
            lambda: new_app().object_reconciler(DISK, owns=Filtered(PART))(seen),
            "owns takes a list",
        ),
        (
            lambda: new_app().object_reconciler(DISK, watches=Filtered(PART))(seen),
            "watches functions by kind",
        ),
    ],
)
def test_what_is_no_filter_or_kind_is_refused_at_once(
    make: Callable[[], object], remedy: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(remedy)):
        make()


def test_its_text_has_the_filters() -> None:
    filtered = Filtered(DISK, where=labels("a"), when=field("spec.size").changed)
    assert repr(filtered) == (
        "Filtered(disks.v1.example.com, where=labels('a'), when=field('spec.size').changed)"
    )
