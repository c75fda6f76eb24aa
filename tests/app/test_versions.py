"""A release of an operator whose functions handle another version of the kind."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator import App, Kind, Object
from appsdk_operator.resource import Versions, custom_resource_definition
from appsdk_operator.testing import World
from appsdk_operator.testing._world.apps import maker_of

NEW = Kind(group="example.com", version="v1", kind="Thing")
OLD = Kind(group="example.com", version="v1beta1", kind="Thing")
FINALIZERS = {kind: f"example.com/thing-operator.{kind.version}.Thing" for kind in (NEW, OLD)}


def same(old: Object[Any, Any], new: Any) -> None: ...


VERSIONS = Versions(NEW).older(OLD, up=same, down=same)


def definition() -> dict[str, Any]:
    """The CRD of both versions, whose objects are alike: there is no webhook in a world."""
    found = custom_resource_definition(VERSIONS, url="https://localhost").to_dict()
    del found["spec"]["conversion"]
    return found


class Releases:
    """One release after the other: each has functions for one version."""

    def __init__(
        self,
        *kinds: Kind[Any, Any],
        causes: tuple[str, ...] = ("add", "sync", "delete"),
        **options: Any,
    ) -> None:
        self.calls: list[str] = []
        self.causes = causes
        self.fails = False
        apps = [self.app(kind, **options) for kind in kinds]

        def make(replica: Any) -> Any:
            app = apps[min(replica.process, len(apps)) - 1]
            return maker_of(app, leader_election=False)(replica)

        self.world = World(NEW, make, crds=[definition()])

    def app(self, kind: Kind[Any, Any], **options: Any) -> App:
        app = App("thing-operator", **options)
        app.own(VERSIONS)
        for cause in self.causes:
            getattr(app, f"on_{cause}")(kind)(self.function(cause))
        app.on_update(kind)(lambda old, new: self.calls.append(f"update {new.kind.version}"))
        return app

    def function(self, cause: str) -> Any:
        def call(thing: Object[Any, Any]) -> None:
            if self.fails:
                raise ConnectionError(cause)
            self.calls.append(f"{cause} {thing.kind.version}")

        return call

    def taken(self) -> list[str]:
        """The calls since the last look."""
        found, self.calls[:] = list(self.calls), []
        return found

    def finalizers(self) -> tuple[str, ...]:
        [thing] = self.world.objects()
        return thing.finalizers


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
@pytest.mark.parametrize("remember", [True, False])
def test_an_object_of_the_former_version_is_handled_and_has_one_finalizer(
    before: Kind[Any, Any], after: Kind[Any, Any], remember: bool
) -> None:
    releases = Releases(before, after, remember=remember)
    with releases.world as world:
        world.create("a", {"size": 1})
        world.run(5)
        assert releases.taken() == [f"add {before.version}"]
        assert releases.finalizers() == (FINALIZERS[before],)
        world.restart()
        world.run(60)
        assert releases.taken() == [f"sync {after.version}"]
        assert releases.finalizers() == (FINALIZERS[after],)
        world.replace("a", {"size": 2})
        world.run(60)
        assert releases.taken() == [f"update {after.version}"]
        world.delete("a")
        world.run(60)
        assert releases.taken() == [f"delete {after.version}"]
        assert not world.objects()


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
@pytest.mark.parametrize("remember", [True, False])
def test_a_record_of_the_former_version_is_the_mark_where_nothing_cleans_up(
    before: Kind[Any, Any], after: Kind[Any, Any], remember: bool
) -> None:
    releases = Releases(before, after, causes=("add", "sync"), remember=remember)
    with releases.world as world:
        world.create("a", {"size": 1})
        world.run(5)
        assert releases.taken() == [f"add {before.version}"]
        for _ in range(2):
            world.restart()
            world.run(60)
            assert releases.taken() == [f"sync {after.version}"]
            assert releases.finalizers() == ()
        world.replace("a", {"size": 2})
        world.run(60)
        assert releases.taken() == [f"update {after.version}"]


def test_an_object_that_was_deleted_in_between_is_cleaned_up() -> None:
    releases = Releases(OLD, NEW)
    with releases.world as world:
        world.create("a", {"size": 1})
        world.run(5)
        world.down(20)
        world.delete("a")
        world.run(60)
        assert releases.taken() == ["add v1beta1", "delete v1"]
        assert not world.objects()


def test_an_addition_that_the_former_release_did_not_finish_is_made() -> None:
    releases = Releases(OLD, NEW)
    with releases.world as world:
        releases.fails = True
        world.create("a", {"size": 1})
        world.run(5)
        assert releases.finalizers() == ("example.com/wip.thing-operator.v1beta1.Thing",)
        world.restart()
        releases.fails = False
        world.run(600)
        assert releases.taken() == ["add v1"]
        assert releases.finalizers() == (FINALIZERS[NEW],)


def test_the_finalizers_of_both_versions_are_taken_off_at_the_end() -> None:
    found = Releases(NEW).app(NEW).finalizers()
    assert set(found) == {NEW}
    assert set(FINALIZERS.values()) <= set(found[NEW])
