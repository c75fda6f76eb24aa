"""The migration of stored objects to the storage version of their CRD."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from appsdk_operator.client import (
    ApiError,
    ClientLike,
    Conflict,
    DryRunClient,
    Forbidden,
    Gone,
    Hooks,
    InterceptedClient,
    MergePatch,
    NotFound,
)
from appsdk_operator.resource import Kind, MutableObject
from appsdk_operator.runtime import StopSignal
from appsdk_operator.webhooks import MigrationError, MigrationProgress, migrate_stored_versions
from tests.waiting import eventually
from tests.webhooks.conversion_parts import CRD, Lane, Spec, Widgets, widget

NOTE = "appsdk-operator.io/storage-migration"


class JumpingClock:
    """A clock whose waits take no time, but move it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.now += timeout or 0.0


class Stored:
    """Objects that were stored in v1alpha1 before v1 became the storage version."""

    def __init__(self, lane: Lane, count: int) -> None:
        self.lane = lane
        self.widgets = Widgets.make()
        self.patched: list[str] = []
        lane.install(self.widgets, storage=self.widgets.v1alpha1)
        for number in range(count):
            lane.client.create(widget(self.widgets.v1, f"w-{number:02}", Spec(number, note="x")))
        lane.install(self.widgets, storage=self.widgets.v1)
        assert self.versions == ["v1alpha1", "v1"]

    @property
    def versions(self) -> list[str]:
        found: list[str] = self.lane.crd(self.widgets)["status"]["storedVersions"]
        return found

    def client(self, **hooks: Any) -> ClientLike:
        """A client that notes what is patched."""

        def patch(inner: ClientLike, kind: Kind, name: str, patch: Any, **options: Any) -> Any:
            if kind != CRD:
                self.patched.append(name)
            return inner.patch(kind, name, patch, **options)

        return InterceptedClient(self.lane.client, Hooks(**{"patch": patch, **hooks}))

    def migrate(self, client: ClientLike | None = None, **options: Any) -> MigrationProgress:
        # The lane has waited for it.
        options.setdefault("settle", 0.0)
        options.setdefault("per_second", 1e6)
        return migrate_stored_versions(client or self.client(), self.widgets.v1, **options)

    def check_all_are_stored_in(self, kind: Kind) -> None:
        """Take away all other versions, and the webhook; then read."""

        def narrow(crd: MutableObject) -> None:
            crd["spec"]["conversion"] = {"strategy": "None"}
            crd["spec"]["versions"] = [
                version for version in crd["spec"]["versions"] if version["name"] == kind.version
            ]
            crd["status"]["storedVersions"] = [kind.version]

        self.lane.change_crd(self.widgets, narrow)
        stop = StopSignal()
        stop.wait(0.0 if self.lane.name == "embedded" else 2.0)
        found = list(self.lane.client.list(kind, namespace="default"))
        assert {obj["apiVersion"] for obj in found} <= {kind.api_version}
        self.found = {obj.name: obj["spec"] for obj in found}


def test_all_objects_are_rewritten_and_the_former_version_can_go(lane: Lane) -> None:
    stored = Stored(lane, 25)
    seen: list[MigrationProgress] = []
    result = stored.migrate(page_size=10, on_progress=seen.append)
    assert result == MigrationProgress(
        storage_version="v1",
        stored_versions=("v1",),
        visited=25,
        remaining=0,
        is_complete=True,
    )
    assert [one.visited for one in seen] == [10, 20, 25]
    # Kubernetes 1.20 does not count custom resources.
    assert [one.remaining for one in seen] in ([15, 5, 0], [None, None, 0])
    assert stored.versions == ["v1"]
    assert NOTE not in lane.crd(stored.widgets).annotations
    again = stored.migrate()
    assert (again.is_complete, again.visited) == (True, 0)
    assert len(stored.patched) == 25, "nothing is left to do"
    stored.check_all_are_stored_in(stored.widgets.v1)
    assert stored.found == {f"w-{n:02}": {"size": n, "note": "x"} for n in range(25)}


def test_without_it_the_former_version_is_still_stored(lane: Lane) -> None:
    """The check of these tests finds an object that was not rewritten."""
    stored = Stored(lane, 1)
    crd = lane.crd(stored.widgets).mutable_copy()
    crd["status"] = {**crd["status"], "storedVersions": ["v1"]}
    lane.client.status.update(crd)
    if lane.name == "real":
        text = "request to convert CR from an invalid group/version"
        with pytest.raises(ApiError, match=text):
            eventually(lambda: stored.check_all_are_stored_in(stored.widgets.v1))
        # What the server cannot read it cannot delete, and no next user would find it as new.
        lane.change_crd(stored.widgets, lambda draft: draft.__setitem__("spec", crd["spec"]))
        return
    # Without a conversion the embedded server shows what it has, as if it were of v1.
    stored.check_all_are_stored_in(stored.widgets.v1)
    assert stored.found == {"w-00": {"size": "0"}}


def test_another_call_goes_on_where_one_was_stopped(lane: Lane) -> None:
    stored = Stored(lane, 25)
    stop = StopSignal()
    first = stored.migrate(page_size=10, stop=stop, on_progress=lambda progress: stop.set())
    assert (first.is_complete, first.visited) == (False, 10)
    assert stored.versions == ["v1alpha1", "v1"]
    note = json.loads(lane.crd(stored.widgets).annotations[NOTE])
    assert (note["visited"], bool(note["continue"])) == (10, True)
    second = stored.migrate(page_size=10)
    assert (second.is_complete, second.visited) == (True, 25)
    assert stored.patched == [f"w-{number:02}" for number in range(25)]
    assert NOTE not in lane.crd(stored.widgets).annotations
    stored.check_all_are_stored_in(stored.widgets.v1)


def test_a_token_that_has_expired_is_replaced(lane: Lane) -> None:
    stored = Stored(lane, 25)
    stop = StopSignal()
    stored.migrate(page_size=10, stop=stop, on_progress=lambda progress: stop.set())
    lane.server.compact()
    if lane.name == "real":
        lane.server.restart()
    assert stored.migrate(page_size=10).is_complete
    assert stored.patched == [f"w-{number:02}" for number in range(25)]
    stored.check_all_are_stored_in(stored.widgets.v1)


@pytest.fixture
def stored(embedded_lane: Lane) -> Stored:
    """Five objects on the embedded server."""
    return Stored(embedded_lane, 5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"uid": 5}',
        '{"uid": "UID", "generation": "x"}',
        '{"uid": "UID", "generation": GEN, "continue": "", "visited": Infinity}',
    ],
)
def test_a_note_of_something_else_is_ignored(stored: Stored, text: str) -> None:
    crd = stored.lane.crd(stored.widgets)
    text = text.replace("UID", crd.uid).replace("GEN", str(crd.generation))
    patch = MergePatch({"metadata": {"annotations": {NOTE: text}}})
    stored.lane.client.patch(CRD, crd.name, patch)
    assert stored.migrate().visited == 5
    assert NOTE not in stored.lane.crd(stored.widgets).annotations or not text


def test_a_note_about_an_older_definition_is_ignored(stored: Stored) -> None:
    stop = StopSignal()
    stored.migrate(page_size=2, stop=stop, on_progress=lambda progress: stop.set())
    stored.lane.install(stored.widgets, storage=stored.widgets.v2)
    stored.patched.clear()
    assert stored.migrate(page_size=2).storage_version == "v2"
    assert len(stored.patched) == 5
    assert stored.versions == ["v2"]


def test_a_change_of_the_storage_version_meanwhile_begins_again(stored: Stored) -> None:
    def change(progress: MigrationProgress) -> None:
        if progress.storage_version == "v1" and progress.visited == 4:
            stored.lane.install(stored.widgets, storage=stored.widgets.v2)

    result = stored.migrate(page_size=2, on_progress=change)
    assert (result.storage_version, result.stored_versions) == ("v2", ("v2",))
    assert len(stored.patched) == 10
    stored.check_all_are_stored_in(stored.widgets.v2)
    assert stored.found["w-03"] == {"width": 3, "note": "x"}


def test_a_storage_version_that_came_and_went_meanwhile_is_not_forgotten(stored: Stored) -> None:
    """v1alpha1 was the storage version for a moment, in which an object was stored."""
    widgets, lane = stored.widgets, stored.lane
    changes: list[int] = []

    def change(progress: MigrationProgress) -> None:
        if not changes:
            changes.append(progress.visited)
            lane.install(widgets, storage=widgets.v1alpha1)
            lane.client.create(widget(widgets.v1, "a-first", Spec(9, note="x")))
            lane.install(widgets, storage=widgets.v1)

    assert stored.migrate(page_size=2, on_progress=change).is_complete
    assert "a-first" in stored.patched
    stored.check_all_are_stored_in(widgets.v1)


def test_objects_that_change_or_vanish_meanwhile_are_no_failure(stored: Stored) -> None:
    widgets, lane = stored.widgets, stored.lane

    def list_page(inner: ClientLike, *args: Any, **options: Any) -> Any:
        page = inner.list_page(*args, **options)
        lane.client.delete(widgets.v1, "w-00", namespace="default")
        lane.client.delete(widgets.v1, "w-01", namespace="default")
        lane.client.create(widget(widgets.v1, "w-01", Spec(101)))
        draft = lane.client.get(widgets.v1, "w-02", namespace="default").mutable_copy()
        draft.spec = Spec(102)
        lane.client.update(draft)
        return page

    assert stored.migrate(stored.client(list_page=list_page)).visited == 5
    stored.check_all_are_stored_in(widgets.v1)
    sizes = {name: spec["size"] for name, spec in stored.found.items()}
    assert sizes == {"w-01": 101, "w-02": 102, "w-03": 3, "w-04": 4}


@pytest.mark.parametrize(
    ("broken", "problem", "remedy"),
    [
        ({"w-01", "w-03"}, "2 objects of widgets.", "fix or delete them"),
        ({"w-01"}, "1 object of widgets.", "fix or delete it and"),
    ],
)
def test_an_object_that_cannot_be_rewritten_is_named_and_nothing_is_trimmed(
    stored: Stored, broken: set[str], problem: str, remedy: str
) -> None:

    def patch(inner: ClientLike, kind: Kind, name: str, *args: Any, **options: Any) -> Any:
        if name in broken:
            raise Forbidden("no such luck", status=403)
        stored.patched.append(name)
        return inner.patch(kind, name, *args, **options)

    client = stored.client(patch=patch)
    with pytest.raises(MigrationError) as caught:
        stored.migrate(client, page_size=1)
    text = str(caught.value)
    assert text.startswith(f"{problem}{stored.widgets.group} could not be rewritten")
    assert remedy in text
    assert "default/w-01: 403 Forbidden: no such luck" in text
    assert "v1alpha1, v1 stay in status.storedVersions" in text
    assert caught.value.progress.visited == 5 - len(broken)
    assert len(caught.value.progress.failed) == len(broken)
    assert stored.versions == ["v1alpha1", "v1"]
    broken.clear()
    assert stored.migrate(client, page_size=1).is_complete, "from before the first that failed"
    stored.check_all_are_stored_in(stored.widgets.v1)


@pytest.mark.parametrize("error", [Conflict, NotFound, Forbidden, Gone])
def test_a_refusal_is_a_failure_whatever_its_code(stored: Stored, error: type[ApiError]) -> None:
    """A webhook may refuse a write with the code of a conflict, or of an object that is gone."""
    refused = {"w-01", "w-03"}

    def patch(inner: ClientLike, kind: Kind, name: str, *args: Any, **options: Any) -> Any:
        if name in refused:
            raise error("a webhook denied the request", status=409)
        return inner.patch(kind, name, *args, **options)

    client = stored.client(patch=patch)
    with pytest.raises(MigrationError, match=r"2 objects .* could not be rewritten"):
        stored.migrate(client)
    assert stored.versions == ["v1alpha1", "v1"]
    refused.clear()
    assert stored.migrate(client).is_complete
    stored.check_all_are_stored_in(stored.widgets.v1)


def test_a_refused_object_that_cannot_be_read_is_a_failure(stored: Stored) -> None:
    def patch(inner: ClientLike, kind: Kind, name: str, *args: Any, **options: Any) -> Any:
        if kind == CRD:
            return inner.patch(kind, name, *args, **options)
        raise Conflict("written meanwhile", status=409)

    def get(inner: ClientLike, kind: Kind, *args: Any, **options: Any) -> Any:
        if kind == CRD:
            return inner.get(kind, *args, **options)
        raise Forbidden("not to be read", status=403)

    with pytest.raises(MigrationError, match=r"5 objects .* could not be rewritten"):
        stored.migrate(stored.client(patch=patch, get=get))


def test_writes_keep_their_pace(stored: Stored) -> None:
    clock = JumpingClock()
    client = stored.client()
    stored.migrate(client, per_second=2.0, settle=30.0, clock=clock)
    assert 30.0 + 4 / 2.0 <= clock.now <= 30.0 + 5 / 2.0


def test_a_stop_ends_it_at_once(stored: Stored) -> None:
    stop = StopSignal()
    stop.set()
    assert not stored.migrate(stop=stop).is_complete
    assert not stored.patched


def test_a_stop_while_a_page_is_read_is_no_error(stored: Stored) -> None:
    stop = StopSignal()

    def list_page(inner: ClientLike, kind: Kind, **options: Any) -> Any:
        stop.set()
        return inner.list_page(kind, **options)

    assert not stored.migrate(stored.client(list_page=list_page), stop=stop).is_complete
    assert not stored.patched


def test_a_client_that_does_not_write_ends_in_an_error(stored: Stored) -> None:
    with pytest.raises(MigrationError, match="is still v1alpha1, v1 after it was set"):
        stored.migrate(DryRunClient(stored.lane.client))


def test_versions_are_as_good_as_a_kind_and_mistakes_are_refused(stored: Stored) -> None:
    client = stored.lane.client
    done = migrate_stored_versions(client, stored.widgets.versions, settle=0, per_second=1e6)
    assert done.is_complete
    other = Kind(group="example.com", version="v1", kind="Nothing")
    with pytest.raises(NotFound):
        migrate_stored_versions(client, other, settle=0)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"page_size": 0}, "page_size=0"),
        ({"per_second": 0}, "per_second=0: use more than 0"),
        ({"settle": -1}, "settle=-1"),
        ({"on_progress": print_nothing}, "on_progress="),
        ({"stop": 1}, "stop=1 is not of type StopSignal"),
    ]
    for options, text in bad:
        with pytest.raises((TypeError, ValueError), match=text):
            migrate_stored_versions(client, other, **options)
    with pytest.raises(TypeError, match="is not a Kind"):
        migrate_stored_versions(client, "widgets")  # type: ignore[arg-type]


def print_nothing() -> None:
    """Take no argument."""


def test_a_place_that_the_server_does_not_understand_begins_again(lane: Lane) -> None:
    stored = Stored(lane, 5)
    crd = lane.crd(stored.widgets)["metadata"]
    place = {
        "uid": crd["uid"],
        "generation": crd["generation"],
        "continue": "of-another-server",
        "visited": 3,
    }
    patch = MergePatch({"metadata": {"annotations": {NOTE: json.dumps(place)}}})
    lane.client.patch(CRD, crd["name"], patch)
    result = stored.migrate(page_size=2)
    assert (result.is_complete, result.visited) == (True, 5)
    stored.check_all_are_stored_in(stored.widgets.v1)
