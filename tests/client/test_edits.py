"""modify and edits: the smallest patches, and what concurrent writes do to them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Cache, CachedClient
from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    Client,
    Conflict,
    DryRunClient,
    Edit,
    FieldOwnerClient,
    Forbidden,
    Hooks,
    InterceptedClient,
    MergePatch,
    NamespacedClient,
    NotFound,
)
from appsdk_operator.controllers import OperationResult, create_or_patch, create_or_update
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, environment
from appsdk_operator.testing import MemoryServer, running
from tests.definitions import widget_definition
from tests.hypothesis_profiles import scaled
from tests.quick_clock import QuickClock

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = kinds.core.v1.ConfigMap


@attrs.frozen
class Progress:
    phase: str


OPEN = {"x-kubernetes-preserve-unknown-fields": True}


class Writes:
    """A client's hooks: it notes the patches, and lets a test act before one of them."""

    def __init__(self, client: Client) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.reads = 0
        self.before: list[Callable[[], object]] = []
        self.client = InterceptedClient(
            client,
            Hooks(get=self._get, patch=self._patch, subresource_patch=self._patch),
        )

    def _get(self, inner: Any, *args: Any, **options: Any) -> Object:
        self.reads += 1
        found: Object = inner.get(*args, **options)
        return found

    def _patch(self, inner: Any, kind: Kind, name: str, patch: Any, **options: Any) -> Object:
        fields = copy.deepcopy(dict(patch.fields))
        version = fields["metadata"].pop("resourceVersion")
        assert version
        if not fields["metadata"]:
            del fields["metadata"]
        self.sent.append((getattr(inner, "name", "body"), fields))
        if self.before:
            self.before.pop(0)()
        written: Object = inner.patch(kind, name, patch, **options)
        return written


@contextlib.contextmanager
def widget_server() -> Iterator[Client]:
    definition = widget_definition({**OPEN, "properties": {"spec": {"type": "object", **OPEN}}})
    with MemoryServer(crds=[definition]) as server, server.client() as made:
        yield made


@pytest.fixture
def client() -> Iterator[Client]:
    with widget_server() as made:
        yield made


@pytest.fixture
def writes(client: Client) -> Writes:
    return Writes(client)


def make(client: Client, **fields: Any) -> Object:
    status = fields.pop("status", None)
    made = client.create(MutableObject.new(WIDGET, "w", namespace="default", **fields))
    if status is not None:
        patch = MergePatch({"status": status})
        made = client.status.patch(WIDGET, "w", patch, namespace="default")
    return made


def present(client: Client) -> Object:
    return client.get(WIDGET, "w", namespace="default")


def modify(client: Any, change: Any) -> Object:
    result: Object = client.modify(WIDGET, "w", change, namespace="default")
    return result


def foreign(client: Client, **fields: Any) -> None:
    client.patch(WIDGET, "w", MergePatch(fields), namespace="default")


def foreign_status(client: Client, **fields: Any) -> None:
    client.status.patch(WIDGET, "w", MergePatch({"status": fields}), namespace="default")


# -- modify ----------------------------------------------------------------------------------


def test_a_change_is_one_patch_of_the_body_and_one_of_the_status(
    client: Client, writes: Writes
) -> None:
    make(client, spec={"size": 1, "keep": {"a": 1}}, status={"old": 1})

    def change(draft: MutableObject) -> None:
        draft["spec"]["size"] = 2
        draft["spec"]["keep"]["b"] = 2
        draft.labels["app"] = "web"
        draft["status"] = {"phase": "Ready"}

    written = modify(writes.client, change)
    assert writes.sent == [
        (
            "body",
            {"spec": {"size": 2, "keep": {"b": 2}}, "metadata": {"labels": {"app": "web"}}},
        ),
        ("status", {"status": {"old": None, "phase": "Ready"}}),
    ]
    assert written.to_dict() == present(client).to_dict()
    assert (written["spec"]["size"], written["status"]) == (2, {"phase": "Ready"})


@pytest.mark.parametrize(
    "change",
    [
        lambda draft: None,
        lambda draft: draft.labels and draft.annotations and draft.finalizers,
        lambda draft: draft["spec"].update(size=1, missing=None),
        lambda draft: draft["spec"].update(size=1.0),
        lambda draft: draft.setdefault("status", {}),
        lambda draft: draft.metadata.pop("resourceVersion"),
    ],
)
def test_without_a_difference_there_is_no_request(
    client: Client, writes: Writes, change: Any
) -> None:
    made = make(client, spec={"size": 1})
    assert modify(writes.client, change).resource_version == made.resource_version
    assert (writes.sent, writes.reads) == ([], 1)


def test_a_conflict_is_read_again_and_the_change_called_again(
    client: Client, writes: Writes
) -> None:
    make(client, spec={"size": 1})
    writes.before = [lambda: foreign(client, spec={"size": 10}) for _ in range(2)]
    writes.before[1] = lambda: foreign(client, spec={"size": 20})

    def change(draft: MutableObject) -> None:
        draft["spec"]["size"] += 1

    assert modify(writes.client, change)["spec"]["size"] == 21
    assert [fields["spec"]["size"] for _, fields in writes.sent] == [2, 11, 21]


def test_a_body_that_was_written_is_not_written_again(client: Client, writes: Writes) -> None:
    make(client, spec={"count": 1}, status={"count": 1})
    writes.before = [lambda: None, lambda: foreign_status(client, count=10)]

    def change(draft: MutableObject) -> None:
        draft["spec"]["count"] += 1
        draft["status"]["count"] += 1

    written = modify(writes.client, change)
    assert (written["spec"]["count"], written["status"]["count"]) == (2, 11)


def test_after_ten_conflicts_it_is_given_up_with_pauses_by_the_clock(client: Client) -> None:
    make(client, spec={})
    tries = []

    def refuse(inner: Any, *args: Any, **options: Any) -> None:
        tries.append(1)
        raise Conflict("somebody was quicker")

    clock = QuickClock()
    with environment(clock=clock), pytest.raises(Conflict, match="somebody"):
        modify(InterceptedClient(client, Hooks(patch=refuse)), lambda d: d.labels.update(a="b"))
    assert len(tries) == 10
    # The first repetition is at once.
    assert len(clock.waits) == 8
    assert all(
        0.5 * most <= wait <= most
        for wait, most in zip(
            clock.waits, [0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5], strict=True
        )
    )


def test_an_object_that_is_gone_is_not_found(client: Client, writes: Writes) -> None:
    with pytest.raises(NotFound):
        modify(client, lambda draft: None)
    make(client, spec={})
    writes.before = [lambda: client.delete(WIDGET, "w", namespace="default")]
    with pytest.raises(NotFound):
        modify(writes.client, lambda draft: draft.labels.update(a="b"))
    assert len(writes.sent) == 1


def test_the_object_that_has_the_name_is_changed(client: Client, writes: Writes) -> None:
    make(client, spec={"size": 1})

    def replace() -> None:
        client.delete(WIDGET, "w", namespace="default")
        make(client, spec={"size": 5})

    writes.before = [replace]
    written = modify(writes.client, lambda draft: draft["spec"].update(new=draft["spec"]["size"]))
    assert written["spec"] == {"size": 5, "new": 5}


INTERFERENCES = st.lists(
    st.sampled_from(["nothing", "foreign body", "foreign status", "another object"]), max_size=6
)


@given(interferences=INTERFERENCES, creates=st.booleans())
@example(interferences=["nothing", "another object"], creates=False)
@example(interferences=["another object"], creates=True)
@settings(max_examples=scaled(60))
def test_when_it_returns_the_object_has_the_whole_change(
    interferences: list[str], creates: bool
) -> None:
    with widget_server() as client:
        numbers = itertools.count()

        def replace() -> None:
            client.delete(WIDGET, "w", namespace="default")
            make(client, spec={"of": "another"})

        act: dict[str, Callable[[], object]] = {
            "nothing": lambda: None,
            "foreign body": lambda: foreign(client, spec={"theirs": next(numbers)}),
            "foreign status": lambda: foreign_status(client, theirs=next(numbers)),
            "another object": replace,
        }
        writes = Writes(client)
        writes.before = [act[each] for each in interferences]

        def change(draft: MutableObject) -> None:
            draft["spec"]["size"] = 7
            draft["status"] = {**draft.get("status", {}), "size": 7}

        with environment(clock=QuickClock()):
            if creates:
                new = MutableObject.new(WIDGET, "w", namespace="default", spec={})
                written = create_or_patch(writes.client, new, change)
                came = interferences[: len(interferences) - len(writes.before)]
                is_ours = "another object" not in came
                assert (written.result == OperationResult.CREATED) is is_ours
            else:
                make(client, spec={})
                modify(writes.client, change)
        now = present(client)
        assert (now["spec"]["size"], now["status"]["size"]) == (7, 7)


def test_a_status_without_its_subresource_is_not_found(client: Client, writes: Writes) -> None:
    client.create(MutableObject.new(CONFIG_MAP, "c", namespace="default"))
    with pytest.raises(NotFound, match="subresource status"):
        writes.client.modify(
            CONFIG_MAP, "c", lambda draft: draft.update(status={"a": 1}), namespace="default"
        )
    assert len(writes.sent) == 1


def test_a_refused_status_says_that_the_rest_was_written(client: Client) -> None:
    def refuse(inner: Any, *args: Any, **options: Any) -> None:
        raise Forbidden("no")

    make(client, spec={})
    broken = InterceptedClient(client, Hooks(subresource_patch=refuse))
    with pytest.raises(Forbidden) as failure:
        modify(broken, lambda draft: draft.update(spec={"a": 1}, status={"b": 1}))
    assert failure.value.__notes__ == ["the other fields of the object were written before"]
    assert present(client)["spec"] == {"a": 1}


def test_what_is_no_change_is_refused(client: Client) -> None:
    make(client, spec={})
    with pytest.raises(TypeError, match="give a function"):
        modify(client, {"spec": {}})
    with pytest.raises(TypeError, match="would not be written"):
        modify(client, lambda draft: draft.freeze())
    with pytest.raises(ValueError, match="must not change name"):
        modify(client, lambda draft: draft.metadata.update(name="other"))

    def generator(draft: MutableObject) -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match="yield"):
        modify(client, generator)


@pytest.mark.parametrize("failure", [AlreadyExists, Conflict, NotFound])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_change_raises_is_no_concurrent_write(
    client: Client, writes: Writes, failure: type[ApiError], is_first: bool
) -> None:
    """Such as the Conflict of another object that it writes."""
    made = make(client, spec={"size": 1})
    writes.before = [lambda: foreign(client, spec={"size": 10})]
    calls = []

    def change(draft: MutableObject) -> None:
        calls.append(draft)
        if is_first or len(calls) == 2:
            raise failure("of something else")
        draft["spec"]["size"] = 2

    with environment(clock=QuickClock()), pytest.raises(failure, match="of something else"):
        modify(writes.client, change)
    assert len(calls) == (1 if is_first else 2)
    client.delete(WIDGET, "w", namespace="default", uid=made.uid)
    calls.clear()
    new = MutableObject.new(WIDGET, "w", namespace="default", spec={}, status={"a": 1})
    with environment(clock=QuickClock()), pytest.raises(failure, match="of something else"):
        create_or_patch(writes.client, new, change)
    assert len(calls) == (1 if is_first else 2)


def test_an_async_change_is_awaited(client: Client) -> None:
    make(client, spec={})

    async def change(draft: MutableObject) -> None:
        await asyncio.sleep(0)
        draft.labels["a"] = "b"

    assert modify(client, change).labels == {"a": "b"}


def test_wrappers_see_the_requests(client: Client) -> None:
    make(client, spec={})
    namespaced = NamespacedClient(FieldOwnerClient(client, "me"), "default")
    written = namespaced.modify(WIDGET, "w", lambda draft: draft.labels.update(a="b"))
    assert "me" in [entry["manager"] for entry in written.metadata["managedFields"]]
    dry = modify(DryRunClient(client), lambda draft: draft.update(spec={"n": 1}))
    assert dry["spec"] == {"n": 1}
    assert present(client)["spec"] == {}


def test_a_dry_run_says_what_would_be_changed_and_changes_nothing(client: Client) -> None:
    dry = DryRunClient(client)

    def to(size: int | None, phase: str | None) -> Any:
        def change(draft: MutableObject) -> None:
            if size is not None:
                draft["spec"] = {"n": size}
            if phase is not None:
                draft["status"] = {"phase": phase}

        return change

    new = MutableObject.new(WIDGET, "w", namespace="default")
    made = create_or_patch(dry, new, to(1, "Up"))
    assert made.result is OperationResult.CREATED
    assert made.object["spec"] == {"n": 1}
    assert create_or_update(dry, new, to(1, None)).result is OperationResult.CREATED
    with pytest.raises(NotFound):
        present(client)
    before = create_or_patch(client, new, to(1, "Up")).object
    for size, phase, expected in (
        (2, "Down", OperationResult.UPDATED_STATUS),
        (2, None, OperationResult.UPDATED),
        (None, "Down", OperationResult.UPDATED_STATUS_ONLY),
        (1, "Up", OperationResult.UNCHANGED),
    ):
        result, found = create_or_patch(dry, new, to(size, phase))
        assert result is expected
        assert found["spec"] == {"n": size or 1}
        assert found["status"] == {"phase": phase or "Up"}
    assert create_or_update(dry, new, to(2, None)).result is OperationResult.UPDATED
    assert create_or_update(dry, new, to(1, None)).result is OperationResult.UNCHANGED
    assert present(client) == before


def test_a_condition_keeps_its_time_while_its_status_stays(client: Client) -> None:
    make(client, spec={})

    def ready(status: str, reason: str) -> Any:
        def change(draft: MutableObject) -> None:
            condition = {"type": "Ready", "status": status, "reason": reason}
            draft["status"] = {"conditions": [condition]}

        return change

    def since(obj: Object) -> str:
        found: str = obj["status"]["conditions"][0]["lastTransitionTime"]
        return found

    clock = QuickClock()
    with environment(clock=clock):
        first = modify(client, ready("True", "Up"))
        assert since(first) == "2023-11-14T22:13:20Z"
        assert modify(client, ready("True", "Up")).resource_version == first.resource_version
    assert since(modify(client, ready("True", "StillUp"))) == "2023-11-14T22:13:20Z"
    assert since(modify(client, ready("False", "Down"))) > "2023-11-14T22:13:20Z"


# -- edit ------------------------------------------------------------------------------------


def test_an_edit_writes_what_its_block_changed(client: Client, writes: Writes) -> None:
    made = make(client, spec={"size": 1}, status={"a": 1})
    edit = Edit(writes.client, made)
    with edit as draft:
        draft["spec"]["size"] = 2
        draft["status"]["b"] = 2
    assert writes.sent == [("body", {"spec": {"size": 2}}), ("status", {"status": {"b": 2}})]
    assert edit.object is not None
    assert edit.object.to_dict() == present(client).to_dict()


def half_done(draft: MutableObject) -> None:
    draft["spec"]["size"] = 2
    raise ZeroDivisionError


def test_an_edit_without_a_difference_or_with_an_error_writes_nothing(
    client: Client, writes: Writes
) -> None:
    made = make(client, spec={"size": 1})
    with Edit(writes.client, made) as draft:
        draft["spec"]["size"] = 1
        assert draft.labels == {}
    with pytest.raises(ZeroDivisionError), Edit(writes.client, made) as draft:
        half_done(draft)
    assert (writes.sent, writes.reads) == ([], 0)


@pytest.mark.parametrize("status", [{}, {"status": None}])
def test_a_field_of_a_status_that_is_not_there_yet_is_set_by_its_key(
    client: Client, writes: Writes, status: dict[str, None]
) -> None:
    made = make(client, spec={"size": 1})
    given = Object.from_dict(WIDGET, {**made.to_dict(), **status})
    with Edit(writes.client, given) as draft:
        assert (draft["status"], draft.status) == ({}, {})
    modify(writes.client, lambda draft: draft["status"].pop("a", None))
    assert writes.sent == []
    with Edit(writes.client, given) as draft:
        draft["status"]["a"] = 1
    assert writes.sent == [("status", {"status": {"a": 1}})]
    modify(writes.client, lambda draft: draft["status"].update(b=2))
    assert writes.sent[1:] == [("status", {"status": {"b": 2}})]
    assert present(client)["status"] == {"a": 1, "b": 2}


def test_what_others_wrote_meanwhile_into_a_missing_status_stays(
    client: Client, writes: Writes
) -> None:
    made = make(client, spec={"size": 1})
    foreign_status(client, theirs=1)
    with Edit(writes.client, made) as draft:
        draft["status"]["ours"] = 2
    assert present(client)["status"] == {"theirs": 1, "ours": 2}


def test_a_status_of_a_class_is_missing_until_it_is_set(client: Client) -> None:
    typed = Kind(group="example.com", version="v1", kind="Widget", status=Progress)
    made = make(client, spec={"size": 1})
    with Edit(client, made.viewed_as(typed)) as draft:
        assert draft.get("status") is None
        draft.status = Progress(phase="Ready")
    assert present(client)["status"] == {"phase": "Ready"}


def test_an_edit_of_an_older_state_keeps_what_others_changed(
    client: Client, writes: Writes
) -> None:
    made = make(client, spec={"size": 1, "color": "red"}, status={})
    foreign(client, spec={"color": "blue"}, metadata={"labels": {"x": "y"}})
    foreign_status(client, theirs=1)
    with Edit(writes.client, made) as draft:
        draft["spec"]["size"] = 2
        draft["status"] = {"ours": 1}
    now = present(client)
    assert now["spec"] == {"size": 2, "color": "blue"}
    assert (now.labels, now["status"]) == ({"x": "y"}, {"theirs": 1, "ours": 1})
    assert writes.reads == 1


def test_an_edit_that_others_have_made_too_needs_no_write(client: Client, writes: Writes) -> None:
    made = make(client, spec={"size": 1})
    foreign(client, spec={"size": 2})
    with Edit(writes.client, made) as draft:
        draft["spec"]["size"] = 2
    assert len(writes.sent) == 1


def test_a_field_that_others_changed_too_is_a_conflict_that_names_it(
    client: Client, writes: Writes
) -> None:
    made = make(client, spec={"size": 1, "color": "red"})
    foreign(client, spec={"size": 5})
    with (
        pytest.raises(Conflict, match=r"others have changed spec\.size"),
        Edit(writes.client, made) as draft,
    ):
        draft["spec"].update(size=2, color="blue")
    assert present(client)["spec"] == {"size": 5, "color": "red"}
    assert len(writes.sent) == 1


def test_a_status_that_comes_late_is_merged_and_the_body_not_written_again(
    client: Client, writes: Writes
) -> None:
    made = make(client, spec={"size": 1}, status={"a": 1})

    def interfere() -> None:
        foreign(client, spec={"size": 7})
        foreign_status(client, b=1)

    writes.before = [lambda: None, interfere]
    with Edit(writes.client, made) as draft:
        draft["spec"]["size"] = 2
        draft["status"]["a"] = 2
    now = present(client)
    # Our size was written, and then changed by somebody who knew it.
    assert (now["spec"], now["status"]) == ({"size": 7}, {"a": 2, "b": 1})
    assert [place for place, _ in writes.sent] == ["body", "status", "status"]


def test_an_edit_of_an_object_that_is_gone_is_dropped(client: Client, writes: Writes) -> None:
    made = make(client, spec={})
    edit = Edit(writes.client, made)
    with edit as draft:
        draft.labels["a"] = "b"
        client.delete(WIDGET, "w", namespace="default")
    assert edit.object is None
    make(client, spec={"of": "another"})
    with edit as draft:
        draft.labels["a"] = "b"
    assert edit.object is None
    assert present(client).labels == {}


def test_an_edit_cannot_rename(client: Client) -> None:
    made = make(client, spec={})
    with pytest.raises(ValueError, match="must not change name"), Edit(client, made) as draft:
        draft.metadata["name"] = "other"
    with pytest.raises(ValueError, match="no resource version"):
        Edit(client, MutableObject.new(WIDGET, "new").freeze())
    with pytest.raises(TypeError, match="obj"):
        Edit(client, made.mutable_copy())  # type: ignore[arg-type]


def test_conditions_of_two_writers_are_merged(client: Client) -> None:
    made = make(client, spec={})
    for name in ("Ready", "Synced"):
        with Edit(client, made) as draft:
            draft["status"] = {"conditions": [{"type": name, "status": "True", "reason": "Up"}]}
    now = present(client)
    assert [each["type"] for each in now["status"]["conditions"]] == ["Ready", "Synced"]
    assert all(each["lastTransitionTime"] for each in now["status"]["conditions"])


def test_an_edit_in_a_coroutine(client: Client, writes: Writes) -> None:
    made = make(client, spec={"size": 1})
    foreign(client, metadata={"labels": {"x": "y"}})

    async def edit() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Edit(writes.client, made) as draft:
                half_done(draft)
        assert present(client)["spec"] == {"size": 1}
        async with Edit(writes.client, made) as draft:
            draft["spec"]["size"] = 2

    asyncio.run(edit())
    now = present(client)
    assert (now["spec"], now.labels) == ({"size": 2}, {"x": "y"})


def test_an_edit_reads_live_what_the_cache_lacks(client: Client) -> None:
    def transform(obj: Object) -> MutableObject:
        draft = obj.mutable_copy()
        draft["spec"]["items"].pop()
        draft.data.pop("status", None)
        return draft

    made = make(client, spec={"items": [1, 2], "size": 1}, status={"a": 1})
    cache = Cache(client, transform=transform, metrics=Metrics())
    cached = CachedClient(client, cache)
    # Not in the cache at all.
    with Edit(cached, made, live=client) as draft:
        draft["spec"]["size"] = 2
    # The second one knows of the first, although it is given the older state.
    with Edit(cached, made, live=client) as draft:
        draft["spec"]["size"] += 1
    assert present(client)["spec"]["size"] == 3
    cache.add(WIDGET)
    with running(cache):
        known = cached.get(WIDGET, "w", namespace="default")
        assert (known["spec"]["items"], known.is_transformed) == ([1], True)
        with Edit(cached, known, live=client) as draft:
            draft["spec"]["items"].append(3)
        modified = cached.modify(
            WIDGET, "w", lambda draft: draft["spec"]["items"].append(4), namespace="default"
        )
    now = present(client)
    assert now["spec"] == modified["spec"] == {"items": [1, 2, 3, 4], "size": 3}
    assert now["status"] == {"a": 1}


# -- the promise -----------------------------------------------------------------------------

NAMES = ("a", "b")
CHANGES = st.dictionaries(
    st.tuples(st.sampled_from(["spec", "status", "labels", "conditions"]), st.sampled_from(NAMES)),
    st.sampled_from(["1", "2", None]),
    max_size=4,
)
"""Values of fields by place and name; None removes one."""


def apply(fields: dict[tuple[str, str], str | None], data: Any) -> None:
    for (place, name), value in fields.items():
        if place == "conditions":
            listed = data.setdefault("status", {}).setdefault("conditions", [])
            listed[:] = [each for each in listed if each["type"] != name]
            if value is not None:
                listed.append({"type": name, "status": value})
            continue
        part = data.setdefault("metadata", {}) if place == "labels" else data
        part = part.setdefault(place, {})
        part.pop(name, None)
        if value is not None:
            part[name] = value


def fields_of(obj: Any) -> dict[tuple[str, str], str]:
    found = {}
    for place in ("spec", "status"):
        for name, value in (obj.get(place) or {}).items():
            if name != "conditions":
                found[place, name] = value
    for each in (obj.get("status") or {}).get("conditions") or ():
        found["conditions", each["type"]] = each["status"]
    return found | {("labels", n): v for n, v in (obj["metadata"].get("labels") or {}).items()}


def write(client: Client, fields: dict[tuple[str, str], str | None]) -> None:
    """A foreign write: the body, then the status."""
    if not fields:
        return
    draft = present(client).mutable_copy()
    apply(fields, draft.data)
    written = client.update(draft)
    draft.metadata["resourceVersion"] = written.resource_version
    client.status.update(draft)


@given(
    base=CHANGES,
    stale=CHANGES,
    block=CHANGES,
    late=st.lists(CHANGES, max_size=4),
    in_coroutine=st.booleans(),
)
@settings(max_examples=scaled(150))
def test_no_change_is_lost_and_the_block_is_written_or_a_conflict(
    base: Any, stale: Any, block: Any, late: Any, in_coroutine: bool
) -> None:
    with widget_server() as client:
        make(client, spec={})
        write(client, base)
        known = present(client)
        write(client, stale)
        writes = Writes(client)
        writes.before = [functools.partial(write, client, each) for each in late]
        edit, is_clash = Edit(writes.client, known), False
        with environment(clock=QuickClock()):
            try:
                if in_coroutine:
                    asyncio.run(edit_in_coroutine(edit, block))
                else:
                    with edit as draft:
                        apply(block, draft.data)
            except Conflict as error:
                is_clash = "others have changed" in str(error)
                assert is_clash
        came = late[: len(late) - len(writes.before)]
        foreign: dict[Any, Any] = {}
        for each in (stale, *came):
            foreign |= each
        before, now = fields_of(known), fields_of(present(client))
        ours = {key: value for key, value in block.items() if before.get(key) != value}
        theirs = foreign
        if is_clash:
            assert ours.keys() & theirs.keys()
        for key, value in theirs.items():
            if key not in ours:
                assert now.get(key) == value, key
        if not is_clash:
            for key, value in ours.items():
                assert now.get(key) in {value, theirs.get(key, value)}, key
        for key in before.keys() - ours.keys() - theirs.keys():
            assert now.get(key) == before[key], key


async def edit_in_coroutine(edit: Edit, block: Any) -> None:
    async with edit as draft:
        apply(block, draft.data)
