"""The standard list of conditions: when it changes, when it must not, and what nobody may send."""

from __future__ import annotations

import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.client import (
    ApiError,
    Client,
    ClientConfig,
    Conflict,
    Hooks,
    InterceptedClient,
    Invalid,
)
from appsdk_operator.controllers import (
    Condition,
    get_condition,
    is_condition_false,
    is_condition_true,
    patch_conditions,
    remove_condition,
    set_condition,
)
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    ReadOnlyError,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing import APIServer, install_crds

POD = kinds.core.v1.Pod
WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CLOCK = ManualClock(epoch=1_700_000_000.0)
FIRST = "2023-11-14T22:13:20Z"


def widget(**fields) -> MutableObject:
    return MutableObject(WIDGET, {"metadata": {"name": "a", "namespace": "x"}, **fields})


def test_a_new_condition_gets_everything_and_comes_at_the_end():
    obj = widget(metadata={"name": "a", "generation": 7}, status={"phase": "Up"})
    assert set_condition(obj, "Ready", "False", "Waiting", "soon", clock=CLOCK) is True
    assert set_condition(obj, "Synced", "True", "Done", clock=CLOCK) is True
    assert obj["status"] == {
        "phase": "Up",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Waiting",
                "message": "soon",
                "observedGeneration": 7,
                "lastTransitionTime": FIRST,
            },
            {
                "type": "Synced",
                "status": "True",
                "reason": "Done",
                "message": "",
                "observedGeneration": 7,
                "lastTransitionTime": FIRST,
            },
        ],
    }
    assert is_condition_false(obj, "Ready")
    assert is_condition_true(obj.freeze(), "Synced")
    assert not is_condition_true(obj, "Other")
    assert not is_condition_false(obj, "Other")
    # Of doubles the first counts, for all who ask.
    obj["status"]["conditions"] += [{"type": "Ready", "status": "True"}]
    assert is_condition_false(obj, "Ready")
    assert not is_condition_true(obj, "Ready")


def test_the_time_changes_with_the_status_and_with_nothing_else():
    clock = ManualClock(epoch=1_700_000_000.0)
    obj = widget()
    set_condition(obj, "Ready", "False", "Waiting", clock=clock)
    clock.advance(60)
    assert set_condition(obj, "Ready", "False", "Waiting", clock=clock) is False
    assert set_condition(obj, "Ready", "False", "Waiting", "why", clock=clock) is True
    assert set_condition(obj, "Ready", "False", "Broken", "why", clock=clock) is True
    changed = {"observed_generation": 3, "clock": clock}
    assert set_condition(obj, "Ready", "False", "Broken", "why", **changed) is True
    found = get_condition(obj, "Ready")
    assert found is not None
    assert (found.last_transition_time, found.observed_generation) == (FIRST, 3)
    assert set_condition(obj, "Ready", "True", "Up", **changed) is True
    found = get_condition(obj, "Ready")
    assert found is not None
    assert found.last_transition_time == "2023-11-14T22:14:20Z"


def test_the_order_and_what_others_wrote_stay():
    entries = [{"type": t, "status": "Unknown", "extra": t} for t in ("A", "Ready", "B")]
    obj = widget(status={"conditions": entries})
    set_condition(obj, "Ready", "True", "Up", clock=CLOCK)
    after = obj["status"]["conditions"]
    assert [(e["type"], e["extra"]) for e in after] == [("A", "A"), ("Ready", "Ready"), ("B", "B")]
    assert after[0] == {"type": "A", "status": "Unknown", "extra": "A"}


def test_a_missing_time_is_mended():
    obj = widget(status={"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]})
    assert set_condition(obj, "Ready", "True", "Up", clock=CLOCK) is True
    assert obj["status"]["conditions"][0]["lastTransitionTime"] == FIRST


def test_removing_says_whether_it_was_there():
    obj = widget()
    assert remove_condition(obj, "Ready") is False
    assert "status" not in obj
    set_condition(obj, "Ready", "True", "Up", clock=CLOCK)
    assert remove_condition(obj, "Ready") is True
    assert get_condition(obj, "Ready") is None
    assert obj["status"]["conditions"] == []


def test_conditions_of_built_in_kinds_need_no_reason_to_be_read():
    pod = MutableObject.new(POD, "a", namespace="x")
    pod["status"] = {"conditions": [{"type": "Ready", "status": "True"}, "nonsense", None]}
    found = get_condition(pod.freeze(), "Ready")
    assert found is not None
    assert (found.status, found.reason, found.observed_generation) == ("True", "", None)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (("", "True", "Up"), "condition type"),
        (("not a name", "True", "Up"), "condition type"),
        (("A" * 317, "True", "Up"), "at most 316"),
        (("Ready", True, "Up"), "as text"),
        (("Ready", "true", "Up"), "'True', 'False' or 'Unknown'"),
        (("Ready", "True", ""), "one word for machines"),
        (("Ready", "True", "two words"), "into the message"),
        (("Ready", "True", "U" * 1025), "1 to 1024"),
        (("Ready", "True", "Up", "m" * 32769), "the most is 32768"),
    ],
)
def test_what_the_api_would_refuse_is_refused_at_once(fields, text):
    with pytest.raises(ValueError, match=text):
        Condition(*fields)
    obj = widget()
    with pytest.raises(ValueError, match=text):
        set_condition(obj, *fields)
    assert "status" not in obj


def test_the_longest_of_everything_is_taken():
    domain = ".".join(["d" * 63] * 3) + "." + "d" * 61
    Condition(f"{domain}/{'A' * 62}", "Unknown", "R" * 1024, "m" * 32768)


def test_read_only_objects_are_refused_with_the_way_out():
    with pytest.raises(ReadOnlyError, match="mutable_copy"):
        set_condition(widget().freeze(), "Ready", "True", "Up")  # type: ignore[arg-type]
    with pytest.raises(ReadOnlyError, match="mutable_copy"):
        remove_condition(widget().freeze(), "Ready")  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["A", "B"]),
            st.sampled_from(["True", "False", "Unknown"]),
            st.sampled_from(["X", "Y"]),
            st.integers(0, 3),
        ),
        max_size=20,
    )
)
def test_the_time_is_always_that_of_the_last_change_of_status(steps):
    clock = ManualClock(epoch=1_700_000_000.0)
    obj = widget()
    model: dict[str, tuple[str, int]] = {}
    for type_, status, reason, seconds in steps:
        clock.advance(seconds)
        before = obj.to_dict()
        changed = set_condition(obj, type_, status, reason, clock=clock)
        assert changed == (obj.to_dict() != before)
        if type_ not in model or model[type_][0] != status:
            model[type_] = (status, int(clock.monotonic()))
        found = get_condition(obj, type_)
        assert found is not None
        assert found.status == status
        minute, second = divmod(13 * 60 + 20 + model[type_][1], 60)
        assert found.last_transition_time == f"2023-11-14T22:{minute:02}:{second:02}Z"
    assert [e["type"] for e in (obj.get("status") or {}).get("conditions", [])] == list(model)


# On a server.


@pytest.fixture(scope="module")
def server():
    with APIServer() as running:
        yield running


@pytest.fixture
def client(server):
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as made:
        yield made


@pytest.fixture
def made(client, request):
    name = f"p{abs(hash(request.node.name))}"
    draft = MutableObject.new(POD, name, namespace="default")
    draft["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    return client.create(draft)


UP = Condition("Ready", "True", "Up")
SYNCED = Condition("Synced", "False", "Waiting", "for a friend")


def test_conditions_are_written_to_the_status_only_when_they_changed(client, made):
    after = patch_conditions(client, made, UP, SYNCED)
    assert after is not None
    assert is_condition_true(after, "Ready")
    assert is_condition_false(after, "Synced")
    assert patch_conditions(client, after, UP, SYNCED) is after
    again = patch_conditions(client, after, remove=["Synced", "Never"])
    assert again is not None
    assert get_condition(again, "Synced") is None
    assert is_condition_true(again, "Ready")
    assert again.spec == made.spec


def test_somebody_elses_condition_that_came_meanwhile_stays(client, made):
    first = patch_conditions(client, made, UP)
    assert first is not None
    for stale in (made, first):
        patch_conditions(client, first, Condition("Theirs", "True", "Now"))
        patch_conditions(client, stale, SYNCED)
    now = client.get(POD, made.name, namespace="default")
    assert [e["type"] for e in now.status["conditions"]] == ["Ready", "Theirs", "Synced"]


def test_an_object_that_is_gone_takes_no_conditions(client, made):
    client.delete(POD, made.name, namespace="default", grace_period=0)
    assert patch_conditions(client, made, UP) is None
    draft = MutableObject.new(POD, made.name, namespace="default")
    draft["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    other = client.create(draft)
    assert patch_conditions(client, made, UP) is None
    assert client.get(POD, made.name, namespace="default").uid == other.uid
    assert not is_condition_true(client.get(POD, made.name, namespace="default"), "Ready")


def test_who_never_wins_gets_the_conflict(client, made):
    calls = []

    def conflict(inner, *args, **options):
        calls.append(args)
        raise Conflict("somebody was quicker", status=409)

    busy = InterceptedClient(client, Hooks(subresource_patch=conflict))
    with pytest.raises(Conflict):
        patch_conditions(busy, made, UP)
    assert len(calls) == 10


def test_a_refusal_is_passed_on(client):
    draft = MutableObject.new(kinds.core.v1.ConfigMap, "no-status", namespace="default")
    made = client.create(draft)
    with pytest.raises(ValueError, match=r"enable subresources\.status"):
        patch_conditions(client, made, UP)

    def refuse(inner, *args, **options):
        raise ApiError("no", status=403)

    with pytest.raises(ApiError, match="403"):
        patch_conditions(InterceptedClient(client, Hooks(subresource_patch=refuse)), made, UP)


def test_a_type_is_named_once(client, made):
    with pytest.raises(ValueError, match="name each type once"):
        patch_conditions(client, made, UP, remove=["Ready"])


def test_controllers_that_write_at_the_same_time_all_get_theirs(client, made):
    threads = [
        threading.Thread(
            target=patch_conditions, args=(client, made, Condition(f"C{i}", "True", "Up"))
        )
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = client.get(POD, made.name, namespace="default")
    assert {e["type"] for e in now.status["conditions"]} == {"C0", "C1", "C2", "C3"}


# As a part of a status class


@attrs.frozen
class GadgetStatus:
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


GADGET = Kind(group="example.com", version="v1", kind="Gadget", status=GadgetStatus)


def test_its_schema_has_the_names_of_the_api():
    crd = custom_resource_definition(GADGET)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    item = schema["properties"]["status"]["properties"]["conditions"]["items"]
    assert set(item["properties"]) == {
        "type",
        "status",
        "reason",
        "message",
        "observedGeneration",
        "lastTransitionTime",
    }
    assert item["required"] == ["type", "status", "reason"]
    fields = {
        name: {k: v for k, v in field.items() if k != "description"}
        for name, field in item["properties"].items()
    }
    assert fields["lastTransitionTime"] == {"type": "string", "format": "date-time"}
    assert fields["observedGeneration"] == {"type": "integer", "format": "int64", "minimum": 0}
    assert fields["reason"]["maxLength"] == 1024
    assert fields["type"]["pattern"].startswith("^(")
    conditions = schema["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert crd == custom_resource_definition(GADGET, strict=True), "it is all that is validated"


def test_conditions_of_a_typed_status_are_written_once_and_read_whole(client):
    install_crds(client, [custom_resource_definition(GADGET)])
    made = client.create(MutableObject.new(GADGET, "g", namespace="default", spec={}))
    after = patch_conditions(client, made, UP, clock=CLOCK)
    read = client.get(GADGET, "g", namespace="default")
    (condition,) = read.status.conditions
    assert condition == attrs.evolve(UP, observed_generation=made.generation)
    assert condition.last_transition_time == FIRST
    again = patch_conditions(client, read, UP, clock=CLOCK)
    assert again is read, "there is nothing to write"
    assert after == read


def test_conditions_beside_renamed_fields_are_written_once(client):
    @attrs.frozen
    class Status:
        phase_now: str = ""
        conditions: tuple[Condition, ...] = ()

    kind = Kind(group="example.com", version="v1", kind="Gizmo", status=Status, rename="camel")
    install_crds(client, [custom_resource_definition(kind)])
    made = client.create(MutableObject.new(kind, "g", namespace="default", spec={}))
    draft = patch_conditions(client, made, UP, SYNCED, clock=CLOCK).mutable_copy()
    draft.status = attrs.evolve(draft.status, phase_now="Up")
    written = client.status.update(draft)
    assert written["status"]["phaseNow"] == "Up"
    assert [entry["type"] for entry in written["status"]["conditions"]] == ["Ready", "Synced"]
    assert patch_conditions(client, written, UP, SYNCED, clock=CLOCK) is written
    again = written.mutable_copy()
    again.status = written.status
    assert client.status.update(again).resource_version == written.resource_version
    again["status"]["conditions"].append(again["status"]["conditions"][0])
    with pytest.raises(Invalid, match="Duplicate value"):
        client.status.update(again)


def test_a_typed_status_is_written_with_the_names_of_the_api(client):
    install_crds(client, [custom_resource_definition(GADGET)])
    made = client.create(MutableObject.new(GADGET, "h", namespace="default", spec={}))
    draft = patch_conditions(client, made, UP, SYNCED, clock=CLOCK).mutable_copy()
    down = [
        attrs.evolve(one, status="False", observed_generation=9) if one.type == "Ready" else one
        for one in draft.status.conditions
    ]
    draft.status = attrs.evolve(draft.status, phase="Down", conditions=tuple(down))
    entry = client.status.update(draft)["status"]["conditions"][0]
    assert entry == {
        "type": "Ready",
        "status": "False",
        "reason": "Up",
        "message": "",
        "observedGeneration": 9,
        "lastTransitionTime": FIRST,
    }


def test_what_is_not_known_is_left_out():
    obj = MutableObject(GADGET, {"metadata": {"name": "a"}})
    obj.status = GadgetStatus(conditions=(UP,))
    (entry,) = obj["status"]["conditions"]
    assert set(entry) == {"type", "status", "reason", "message"}
    assert UP.last_transition_time == ""
    assert UP.observed_generation is None


def test_a_condition_of_generation_0_is_set_once() -> None:
    draft = MutableObject.new(kinds.core.v1.Pod, "a", namespace="default")
    assert set_condition(draft, "Ready", "True", "Up", observed_generation=0)
    assert not set_condition(draft, "Ready", "True", "Up", observed_generation=0)
    del draft["status"]["conditions"][0]["observedGeneration"]
    assert not set_condition(draft, "Ready", "True", "Up", observed_generation=0)
    assert set_condition(draft, "Ready", "True", "Up", observed_generation=1)
