"""create_or_update and its kin: results, races, and what is refused."""

from __future__ import annotations

import attrs
import hypothesis
import pytest
from hypothesis import strategies as st

from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    Client,
    ClientConfig,
    ClientWrapper,
    Conflict,
    FieldOwnerClient,
    Forbidden,
    Hooks,
    InterceptedClient,
    NotFound,
)
from appsdk_operator.controllers import (
    OperationResult,
    apply,
    create_or_patch,
    create_or_update,
    set_condition,
)
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, environment
from appsdk_operator.testing import APIServer, MemoryServer
from tests.hypothesis_profiles import scaled
from tests.quick_clock import QuickClock

CONFIG_MAP = kinds.core.v1.ConfigMap
POD = kinds.core.v1.Pod
CREATED, UPDATED = OperationResult.CREATED, OperationResult.UPDATED
UNCHANGED = OperationResult.UNCHANGED


@pytest.fixture(scope="module")
def server():
    with APIServer() as running:
        yield running


class Counting(ClientWrapper):
    """Writes down the verbs, and lets a test act before one of them."""

    def __init__(self, inner):
        super().__init__(inner)
        self.verbs = []
        self.before = {}

    def _call(self, verb, *args, **options):
        self.verbs.append(verb)
        self.before.pop(verb, lambda: None)()
        return getattr(self.inner, verb)(*args, **options)

    def get(self, *args, **options):
        return self._call("get", *args, **options)

    def create(self, *args, **options):
        return self._call("create", *args, **options)

    def update(self, *args, **options):
        return self._call("update", *args, **options)

    def patch(self, *args, **options):
        return self._call("patch", *args, **options)


@pytest.fixture
def client(server):
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as made:
        namespace = MutableObject.new(kinds.core.v1.Namespace, "x")
        try:
            made.create(namespace)
        except AlreadyExists:
            made.delete_collection(CONFIG_MAP, namespace="x")
            made.delete_collection(POD, namespace="x", grace_period=0)
        yield made


@pytest.fixture
def counting(client):
    return Counting(client)


def settings(**fields) -> MutableObject:
    return MutableObject.new(CONFIG_MAP, "settings", namespace="x", **fields)


def colour(value: str):
    def mutate(draft: MutableObject) -> None:
        draft.setdefault("data", {})["color"] = value

    return mutate


def pod() -> MutableObject:
    draft = MutableObject.new(POD, "p", namespace="x")
    draft["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    return draft


def test_an_object_is_created_changed_and_left_alone(counting):
    draft = settings(data={"size": "1"})
    result, made = create_or_update(counting, draft, colour("blue"))
    assert (result, made["data"]) == (CREATED, {"size": "1", "color": "blue"})
    assert draft["data"] == {"size": "1"}
    result, same = create_or_update(counting, draft, colour("blue"))
    assert (result, same.resource_version) == (UNCHANGED, made.resource_version)
    result, changed = create_or_update(counting, made, colour("red"))
    assert (result, changed["data"]["color"]) == (UPDATED, "red")
    assert counting.verbs == ["get", "create", "get", "get", "update"]


def test_an_async_change_is_awaited(client):
    async def mutate(draft):
        colour("blue")(draft)

    assert create_or_update(client, settings(), mutate).object["data"] == {"color": "blue"}


def test_an_object_that_was_deleted_meanwhile_is_created_anew_from_the_one_at_hand(client):
    made = client.create(settings(data={"size": "1"}))
    client.delete(CONFIG_MAP, "settings", namespace="x")
    result, anew = create_or_update(client, made, colour("blue"))
    assert result is CREATED
    assert anew.uid != made.uid
    assert anew["data"] == {"size": "1", "color": "blue"}


def test_true_and_one_are_not_the_same(client):
    def mutate(draft):
        draft["immutable"] = False

    client.create(settings(data={"size": "1"}))
    assert create_or_update(client, settings(), mutate).result is UPDATED


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("exists", [True, False])
def test_another_name_or_namespace_is_refused_and_nothing_written(
    counting, function, field, exists
):
    if exists:
        counting.inner.create(settings())

    def mutate(draft):
        draft.metadata[field] = "other"

    with pytest.raises(ValueError, match="must not change name and namespace"):
        function(counting, settings(), mutate)
    assert counting.verbs == ["get"]


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
def test_an_object_without_a_name_is_refused(counting, function):
    with pytest.raises(ValueError, match="give it a name"):
        function(counting, MutableObject.new(CONFIG_MAP, namespace="x"), colour("blue"))
    with pytest.raises(ValueError, match="give it a name"):
        apply(counting, MutableObject.new(CONFIG_MAP, namespace="x"), field_manager="me")
    assert counting.verbs == []


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
def test_a_read_that_fails_ends_it(client, function):
    def refuse(inner, *args, **options):
        raise Forbidden("no", status=403)

    calls = []
    broken = InterceptedClient(client, Hooks(get=refuse))
    with pytest.raises(Forbidden):
        function(broken, settings(), calls.append)
    assert calls == []


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
def test_what_the_change_raises_comes_through(counting, function):
    def mutate(draft):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        function(counting, settings(), mutate)
    assert counting.verbs == ["get"]


def test_who_creates_too_late_changes_what_is_there(counting):
    counting.before["create"] = lambda: counting.inner.create(settings(data={"size": "9"}))
    result, obj = create_or_update(counting, settings(), colour("blue"))
    assert (result, obj["data"]) == (UPDATED, {"size": "9", "color": "blue"})
    assert counting.verbs == ["get", "create", "get", "update"]


@pytest.mark.parametrize(
    ("function", "verb"), [(create_or_update, "update"), (create_or_patch, "patch")]
)
def test_a_change_in_between_is_kept_and_ours_made_anew(counting, function, verb):
    def theirs():
        draft = counting.inner.get(CONFIG_MAP, "settings", namespace="x").mutable_copy()
        draft.labels["theirs"] = "yes"
        counting.inner.update(draft)

    counting.inner.create(settings(data={"size": "1"}))
    counting.before[verb] = theirs
    result, obj = function(counting, settings(), colour("blue"))
    assert (result, obj["data"]["color"]) == (UPDATED, "blue")
    assert obj.labels == {"theirs": "yes"}
    assert counting.verbs == ["get", verb, "get", verb]


@pytest.mark.parametrize(
    ("function", "verb"), [(create_or_update, "update"), (create_or_patch, "patch")]
)
def test_a_deletion_in_between_leads_to_a_new_object(counting, function, verb):
    counting.inner.create(settings())
    counting.before[verb] = lambda: counting.inner.delete(CONFIG_MAP, "settings", namespace="x")
    assert function(counting, settings(), colour("blue")).result is CREATED
    assert counting.verbs == ["get", verb, "get", "create"]


def test_a_version_that_the_change_takes_away_guards_all_the_same(counting):
    def theirs():
        create_or_update(counting.inner, settings(), colour("red"))

    def mutate(draft):
        seen.append(draft["data"]["color"])
        draft["data"]["mine"] = "yes"
        draft.metadata.pop("resourceVersion")

    seen: list[str] = []
    counting.inner.create(settings(data={"color": "blue"}))
    counting.before["update"] = theirs
    obj = create_or_update(counting, settings(), mutate).object
    assert seen == ["blue", "red"]
    assert obj["data"] == {"color": "red", "mine": "yes"}


@pytest.mark.parametrize(
    ("function", "hook"), [(create_or_update, "update"), (create_or_patch, "patch")]
)
def test_who_is_too_late_each_time_gets_the_conflict_after_ten(client, function, hook):
    calls = []

    def conflict(inner, *args, **options):
        calls.append(args)
        raise Conflict("somebody was quicker", status=409)

    client.create(settings())
    with pytest.raises(Conflict), environment(clock=QuickClock()):
        function(InterceptedClient(client, Hooks(**{hook: conflict})), settings(), colour("red"))
    assert len(calls) == 10


def test_a_namespace_that_is_missing_is_said_at_once(counting):
    draft = MutableObject.new(CONFIG_MAP, "a", namespace="nowhere")
    with pytest.raises(NotFound, match="nowhere"):
        create_or_update(counting, draft, colour("blue"))
    assert counting.verbs == ["get", "create"]


class Stale(Counting):
    """Reads from a cache that is behind; what it has is for the test to say."""

    def __init__(self, inner, cached: Object | None):
        super().__init__(inner)
        self.live = inner
        self._cached = cached

    def get(self, kind, name, *, namespace=""):
        self.verbs.append("cached get")
        if self._cached is None:
            raise NotFound("not in the cache", status=404)
        return self._cached


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
@pytest.mark.parametrize("wrap", [lambda c: c, lambda c: FieldOwnerClient(c, "me")])
def test_a_cache_that_is_behind_is_read_once_only(client, function, wrap):
    old = client.create(settings(data={"size": "1"}))
    create_or_update(client, settings(), colour("red"))
    behind = Stale(client, old)
    assert function(wrap(behind), settings(), colour("blue")).result is UPDATED
    assert behind.verbs.count("cached get") == 1
    empty = Stale(client, None)
    assert function(wrap(empty), settings(), colour("green")).result is UPDATED
    assert empty.verbs[:2] == ["cached get", "create"]
    client.delete(CONFIG_MAP, "settings", namespace="x")
    assert function(wrap(Stale(client, old)), settings(), colour("red")).result is CREATED


def test_a_difference_that_the_server_does_not_store_is_none(client):
    client.create(pod())

    def mutate(draft):
        draft["status"] = {"message": "for the subresource only"}

    assert create_or_update(client, pod(), mutate).result is UNCHANGED


# create_or_patch


def report(draft: MutableObject) -> None:
    set_condition(draft, "Ready", "True", "Up")


def label_and_report(draft: MutableObject) -> None:
    draft.labels["app"] = "web"
    report(draft)


def test_the_status_alone_and_both_are_told_apart(client):
    client.create(pod())
    result, obj = create_or_patch(client, pod(), report)
    assert result is OperationResult.UPDATED_STATUS_ONLY
    assert obj.status["conditions"][0]["type"] == "Ready"
    assert create_or_patch(client, pod(), report).result is UNCHANGED

    def both(draft):
        draft.labels["app"] = "web"
        set_condition(draft, "Ready", "False", "Down")

    result, obj = create_or_patch(client, pod(), both)
    assert result is OperationResult.UPDATED_STATUS
    assert (obj.labels, obj.status["conditions"][0]["status"]) == ({"app": "web"}, "False")

    def only_label(draft):
        draft.labels["app"] = "db"

    assert create_or_patch(client, pod(), only_label).result is UPDATED


def test_the_status_of_a_new_object_is_written_too(client):
    result, obj = create_or_patch(client, pod(), label_and_report)
    assert result is CREATED
    assert obj.status["conditions"][0]["type"] == "Ready"
    assert obj.labels == {"app": "web"}


def test_a_status_that_is_taken_away_is_written(client):
    create_or_patch(client, pod(), report)
    result, obj = create_or_patch(client, pod(), lambda draft: draft.data.pop("status"))
    assert result is OperationResult.UPDATED_STATUS_ONLY
    # The server fills this in by itself.
    assert obj.get("status", {}).keys() <= {"qosClass"}


def test_a_status_that_comes_too_late_is_written_anew_and_the_result_is_for_all_of_it(client):
    client.create(pod())
    late = [lambda: create_or_update(client, pod(), lambda d: d.labels.update(theirs="yes"))]

    def patch(inner, *args, **options):
        if late:
            late.pop()()
        return inner.patch(*args, **options)

    slow = InterceptedClient(client, Hooks(subresource_patch=patch))
    result, obj = create_or_patch(slow, pod(), label_and_report)
    assert result is OperationResult.UPDATED_STATUS
    assert obj.labels == {"app": "web", "theirs": "yes"}
    assert obj.status["conditions"][0]["type"] == "Ready"


def test_a_status_that_has_no_subresource_is_an_error(client):
    client.create(settings())
    with pytest.raises(ApiError, match="404"):
        create_or_patch(client, settings(), lambda draft: draft.update(status={"phase": "Up"}))


# apply: the embedded server has none, so a server of four lines.


class Applying(ClientWrapper):
    def __init__(self, *states: Object | None):
        self.states = list(states)
        self.options = {}

    def get(self, kind, name, *, namespace=""):
        state = self.states.pop(0)
        if state is None:
            raise NotFound("none", status=404)
        return state

    def apply(self, obj, **options):
        self.options = options
        return self.states.pop(0)


def stored(version: str, uid: str = "u") -> Object:
    draft = settings()
    draft.metadata.update(resourceVersion=version, uid=uid)
    return draft.freeze()


@pytest.mark.parametrize(
    ("before", "after", "result"),
    [
        (None, stored("1"), CREATED),
        (stored("1"), stored("2"), UPDATED),
        (stored("1"), stored("1"), UNCHANGED),
        (stored("1"), stored("2", "another"), CREATED),
    ],
)
def test_apply_tells_what_became_of_the_object(before, after, result):
    client = Applying(before, after)
    assert apply(client, settings(), field_manager="me", force=True) == (result, after)
    assert client.options == {"field_manager": "me", "force": True}


def test_the_results_have_the_names_of_controller_runtime():
    assert [r.value for r in OperationResult] == [
        "unchanged",
        "created",
        "updated",
        "updatedStatus",
        "updatedStatusOnly",
    ]


@attrs.frozen
class Spec:
    n: int = 1


@pytest.mark.parametrize("mutate", [None, {"data": {}}, 5])
@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
def test_what_changes_nothing_is_refused_before_the_first_request(counting, function, mutate):
    with pytest.raises(TypeError, match=r"mutate=.*: give a function that changes its argument"):
        function(counting, settings(), mutate)
    assert counting.verbs == []


@pytest.mark.parametrize("obj", [None, {"metadata": {"name": "a"}}, "a"])
def test_what_is_no_object_is_refused_before_the_first_request(counting, obj):
    for call in (
        lambda: create_or_update(counting, obj, print),
        lambda: create_or_patch(counting, obj, print),
        lambda: apply(counting, obj, field_manager="me"),
    ):
        with pytest.raises(TypeError, match="is not an object"):
            call()
    assert counting.verbs == []


def test_what_is_no_client_is_refused():
    for function in (create_or_update, create_or_patch):
        with pytest.raises(TypeError, match="client=None is not a client"):
            function(None, settings(), print)
    with pytest.raises(TypeError, match=r"client=.* is not a client"):
        apply(Client, settings(), field_manager="me")


def test_who_changes_a_frozen_spec_is_told_how(client):
    kind = kinds.core.v1.ConfigMap.typed(spec=Spec)
    draft = MutableObject.new(kind, "frozen", namespace="x", spec=Spec())

    def change(draft):
        draft.spec.n = 5

    with pytest.raises(AttributeError) as caught:
        create_or_update(client, draft, change)
    assert "attrs.evolve(draft.spec, n=…)" in caught.value.__notes__[0]


ACTIONS = ["change", "delete", "create", "replace", "delete and create"]


class Racing(ClientWrapper):
    """Another client acts before each write, or around it, as long as the script goes on."""

    def __init__(self, inner, script):
        super().__init__(inner)
        self.script = list(script)

    def _raced(self, verb, *args, **options):
        action = self.script.pop(0) if self.script else "nothing"
        exists = any(obj.name == "a" for obj in self.inner.list(CONFIG_MAP))
        if exists and action in ("delete", "replace", "delete and create"):
            self.inner.delete(CONFIG_MAP, "a", namespace="default")
        if action == "replace" or (action == "create" and not exists):
            self.inner.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        if exists and action == "change":
            found = self.inner.get(CONFIG_MAP, "a", namespace="default").mutable_copy()
            found.annotations["n"] = str(len(self.script))
            self.inner.update(found)
        try:
            return getattr(self.inner, verb)(*args, **options)
        finally:
            if exists and action == "delete and create":
                self.inner.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))

    def create(self, *args, **options):
        return self._raced("create", *args, **options)

    def update(self, *args, **options):
        return self._raced("update", *args, **options)

    def patch(self, *args, **options):
        return self._raced("patch", *args, **options)


@hypothesis.given(
    st.sampled_from([create_or_update, create_or_patch]),
    st.lists(st.sampled_from(ACTIONS), max_size=9),
)
@hypothesis.settings(max_examples=scaled(200))
def test_up_to_nine_concurrent_writes_of_any_sort_do_not_keep_it_from_being_written(write, script):
    quick = environment(clock=QuickClock())
    with MemoryServer() as server, server.client() as client, quick:
        client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        racing = Racing(client, script)
        obj = MutableObject.new(CONFIG_MAP, "a", namespace="default")
        written = write(racing, obj, lambda draft: draft.labels.update(set="yes"))
        assert written.object.labels["set"] == "yes"
        found = client.get(CONFIG_MAP, "a", namespace="default")
        assert found.uid == written.object.uid
        assert found.labels["set"] == "yes"
