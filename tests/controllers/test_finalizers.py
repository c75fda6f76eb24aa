"""Finalizers in memory, on the server, in a registry, and around clean-up functions."""

from __future__ import annotations

import pytest

from appsdk_operator.client import Forbidden, NotFound
from appsdk_operator.controllers import (
    FinalizeErrors,
    FinalizerError,
    FinalizeResult,
    FinalizerRegistry,
    Finalizers,
    Finalizing,
    add_finalizer,
    finalizing,
    has_finalizer,
    put_finalizer,
    remove_finalizer,
    take_finalizer_off,
)
from appsdk_operator.resource import Kind, MutableObject, ReadOnlyError
from tests.simulations import Others

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
OURS, THEIRS, MORE = "example.com/ours", "example.org/theirs", "example.com/more"
NOW = "2024-01-01T00:00:00Z"


def widget(*finalizers: str, deleting: bool = False) -> MutableObject:
    draft = MutableObject.new(WIDGET, "a", namespace="default")
    if finalizers:
        draft.metadata["finalizers"] = list(finalizers)
    if deleting:
        draft.metadata["deletionTimestamp"] = NOW
    return draft


# In memory.


def test_adding_says_whether_it_was_missing():
    obj = widget(THEIRS)
    assert add_finalizer(obj, OURS) is True
    assert add_finalizer(obj, OURS) is False
    assert obj.finalizers == [THEIRS, OURS]
    assert has_finalizer(obj, OURS)
    assert has_finalizer(obj.freeze(), THEIRS)


def test_removing_says_whether_it_was_there_and_takes_doubles_too():
    obj = widget(OURS, THEIRS, OURS)
    assert remove_finalizer(obj, OURS) is True
    assert remove_finalizer(obj, OURS) is False
    assert obj.finalizers == [THEIRS]
    assert not has_finalizer(obj, OURS)


def test_asking_adds_nothing():
    obj = MutableObject(WIDGET, {})
    assert not has_finalizer(obj, OURS)
    assert not remove_finalizer(obj, OURS)
    assert obj.data == {}


@pytest.mark.parametrize(
    "name",
    ["", "/x", "two words", "Upper.Case/x", "example.com/" + "x" * 64, "d" * 254 + "/x"],
)
def test_a_name_that_no_server_takes_is_refused_everywhere(name):
    server = Others(WIDGET)
    obj = server.create("a")
    for call in (
        lambda: add_finalizer(widget(), name),
        lambda: put_finalizer(server, obj, name),
        lambda: FinalizerRegistry().register(name, print),
        lambda: finalizing(server, obj, name, apply=print, cleanup=print),
    ):
        with pytest.raises(ValueError, match="finalizer"):
            call()
    assert server.find("a") == obj


@pytest.mark.parametrize("change", [add_finalizer, remove_finalizer])
def test_a_read_only_object_is_refused_with_the_way_out(change):
    with pytest.raises(ReadOnlyError, match=r"mutable_copy\(\)"):
        change(widget(OURS).freeze(), OURS)


# On the server.


def test_a_finalizer_is_put_on_and_taken_off_beside_those_of_others():
    server = Others(WIDGET)
    made = server.create("a", finalizers=[THEIRS])
    put = put_finalizer(server, made, OURS)
    assert put is not None
    assert put.finalizers == (THEIRS, OURS)
    assert put_finalizer(server, put, OURS) is put
    off = take_finalizer_off(server, put, OURS)
    assert off is not None
    assert off.finalizers == (THEIRS,)
    assert take_finalizer_off(server, off, OURS) is off


def test_who_was_quicker_keeps_what_they_wrote():
    server = Others(WIDGET)
    stale = server.create("a")
    server.change("a", finalizers=[THEIRS], spec={"size": 1})
    put = put_finalizer(server, stale, OURS)
    assert put is not None
    assert put.finalizers == (THEIRS, OURS)
    server.change("a", finalizers=[OURS, THEIRS, OURS])
    off = take_finalizer_off(server, put, OURS)
    assert off is not None
    assert off.finalizers == (THEIRS,)


def theirs(present):
    return Finalizers.removals(present, {THEIRS})


def released(server, obj, change=theirs):
    return Finalizers(WIDGET, server).release(obj, change)


def test_a_release_leaves_alone_what_goes_and_what_is_not_to_be_released():
    server = Others(WIDGET)
    made = server.create("a", finalizers=[THEIRS, OURS])
    assert released(server, made, lambda present: []) is made
    changed = server.change("a", spec={"size": 1})
    looked_at = []
    off = released(server, made, lambda present: looked_at.append(present) or theirs(present))
    assert off is not None
    assert off.finalizers == (OURS,)
    assert looked_at == [made, changed]
    assert released(server, off) is off
    stale = server.create("b", finalizers=[THEIRS])
    server.delete("b")
    kept = released(server, stale)
    assert kept is not None
    assert kept.is_deleting
    assert kept.finalizers == (THEIRS,)


def test_an_object_that_goes_takes_no_finalizer_and_one_that_is_gone_neither():
    server = Others(WIDGET)
    server.create("a", finalizers=[THEIRS])
    server.delete("a")
    deleting = server.find("a")
    assert deleting is not None
    assert put_finalizer(server, deleting, OURS) is deleting
    stale = server.create("b")
    server.delete("b")
    assert put_finalizer(server, stale, OURS) is None
    other = server.create("b")
    assert put_finalizer(server, stale, OURS) is None
    assert server.find("b") == other


class Cached:
    """A client that reads from a cache which is behind."""

    def __init__(self, server, cached):
        self.live = server
        self._cached = cached

    def get(self, kind, name, *, namespace=""):
        return self._cached

    def patch(self, *args, **options):
        return self.live.patch(*args, **options)


def test_a_cache_that_is_behind_is_no_obstacle():
    server = Others(WIDGET)
    stale = server.create("a")
    server.change("a", finalizers=[THEIRS])
    put = put_finalizer(Cached(server, stale), stale, OURS)
    assert put is not None
    assert put.finalizers == (THEIRS, OURS)


class Refusing(Cached):
    def patch(self, *args, **options):
        raise Forbidden("no", status=403)


def test_a_refusal_is_an_error_with_its_cause():
    server = Others(WIDGET)
    obj = server.create("a")
    with pytest.raises(FinalizerError, match=f"could not put finalizer '{OURS}' on") as raised:
        put_finalizer(Refusing(server, obj), obj, OURS)
    assert isinstance(raised.value.__cause__, Forbidden)


# The registry.


def test_a_name_is_registered_once():
    registry = FinalizerRegistry()
    registry.register(OURS, lambda obj: None)
    with pytest.raises(ValueError, match="registered already"):
        registry.register(OURS, lambda obj: None)
    with pytest.raises(TypeError, match="not a function of"):
        registry.register(MORE, lambda: None)  # type: ignore[misc,arg-type]
    with pytest.raises(TypeError, match="not a function of"):
        registry.register(MORE, None)  # type: ignore[arg-type]


def registry_of(*names, calls, **failures):
    registry = FinalizerRegistry()
    for name in names:

        def clean_up(obj, name=name):
            calls.append(name)
            error = failures.get(name.rpartition("/")[2])
            if isinstance(error, Exception):
                raise error
            return error

        registry.register(name, clean_up)
    return registry


def test_what_is_missing_is_put_on_while_the_object_lives():
    calls: list[str] = []
    registry = registry_of(OURS, MORE, calls=calls)
    obj = widget(THEIRS, MORE)
    assert registry.finalize(obj) == FinalizeResult(updated=True, status_updated=False)
    assert obj.finalizers == [THEIRS, MORE, OURS]
    assert registry.finalize(obj) == FinalizeResult(updated=False, status_updated=False)
    assert calls == []


def test_each_that_is_there_is_cleaned_up_for_and_taken_off():
    calls: list[str] = []
    registry = registry_of(
        OURS, MORE, "example.com/absent", calls=calls, more=FinalizeResult(False, True)
    )
    obj = widget(MORE, THEIRS, OURS, deleting=True)
    assert registry.finalize(obj) == FinalizeResult(updated=True, status_updated=True)
    assert obj.finalizers == [THEIRS]
    assert calls == [OURS, MORE]
    assert registry.finalize(obj) == FinalizeResult(updated=False, status_updated=False)


def test_one_that_fails_stays_on_and_keeps_no_other_from_going():
    calls: list[str] = []
    registry = registry_of(
        OURS, MORE, THEIRS, calls=calls, ours=OSError("disk"), theirs=ValueError("no")
    )
    obj = widget(OURS, MORE, THEIRS, deleting=True)
    with pytest.raises(FinalizeErrors, match="clean-up of") as raised:
        registry.finalize(obj)
    assert [type(e) for e in raised.value.exceptions] == [OSError, ValueError]
    assert OURS in raised.value.exceptions[0].__notes__[0]
    assert raised.value.result == FinalizeResult(updated=True, status_updated=False)
    assert obj.finalizers == [OURS, THEIRS]
    assert calls == [OURS, MORE, THEIRS]


def test_an_async_clean_up_is_awaited():
    async def clean_up(obj):
        return FinalizeResult(updated=False, status_updated=True)

    registry = FinalizerRegistry()
    registry.register(OURS, clean_up)
    assert registry.finalize(widget(OURS, deleting=True)) == (True, True)


def test_the_registry_refuses_read_only_objects():
    with pytest.raises(ReadOnlyError):
        FinalizerRegistry().finalize(widget().freeze())  # type: ignore[arg-type]


# Around functions.


class Hands:
    """The functions of a reconciler."""

    def __init__(self, server):
        self.server = server
        self.calls: list[str] = []

    def apply(self, obj):
        stored = self.server.find(obj.name)
        assert OURS in stored.finalizers or stored.uid != obj.uid
        self.calls.append("apply")
        return "applied it"

    def cleanup(self, obj):
        assert obj.is_deleting
        self.calls.append("cleanup")
        return "cleaned it"

    def reconcile(self, obj):
        return finalizing(self.server, obj, OURS, apply=self.apply, cleanup=self.cleanup)


@pytest.fixture
def hands():
    return Hands(Others(WIDGET))


def test_the_finalizer_is_on_before_the_first_apply_and_off_after_the_clean_up(hands):
    outcome = hands.reconcile(hands.server.create("a"))
    assert (outcome.done, outcome.value) == (Finalizing.APPLIED, "applied it")
    assert outcome.object.finalizers == (OURS,)
    assert hands.reconcile(outcome.object).done is Finalizing.APPLIED
    hands.server.delete("a")
    outcome = hands.reconcile(hands.server.find("a"))
    assert (outcome.done, outcome.value) == (Finalizing.CLEANED_UP, "cleaned it")
    assert hands.server.find("a") is None
    assert hands.calls == ["apply", "apply", "cleanup"]


def test_a_clean_up_that_fails_keeps_the_object(hands):
    made = hands.reconcile(hands.server.create("a")).object

    def fail(obj):
        raise OSError("the bucket is not empty")

    hands.server.delete("a")
    with pytest.raises(OSError, match="bucket"):
        finalizing(hands.server, hands.server.find(made.name), OURS, apply=fail, cleanup=fail)
    assert hands.server.find("a").finalizers == (OURS,)


def test_an_object_that_goes_before_anything_was_done_is_let_go(hands):
    hands.server.create("a", finalizers=[THEIRS])
    hands.server.delete("a")
    outcome = hands.reconcile(hands.server.find("a"))
    assert outcome.done is Finalizing.GONE
    assert outcome.object is not None
    stale = hands.server.create("b")
    hands.server.delete("b")
    assert hands.reconcile(stale) == (Finalizing.GONE, None, None)
    assert hands.calls == []


def test_a_deletion_that_the_cache_does_not_show_yet_is_seen_when_the_finalizer_is_written(hands):
    stale = hands.server.create("a", finalizers=[THEIRS])
    hands.server.delete("a")
    assert hands.reconcile(stale).done is Finalizing.GONE
    # With our finalizer on it from before, the clean-up is due.
    stale = hands.server.create("c", finalizers=[THEIRS])
    hands.server.change("c", finalizers=[THEIRS, OURS])
    hands.server.delete("c")
    assert hands.reconcile(stale).done is Finalizing.CLEANED_UP
    assert hands.server.find("c").finalizers == (THEIRS,)


def test_async_functions_are_awaited(hands):
    async def apply(obj):
        return obj.name

    outcome = finalizing(hands.server, hands.server.create("a"), OURS, apply=apply, cleanup=apply)
    assert outcome.value == "a"


def test_a_failed_write_of_the_finalizer_keeps_apply_from_running(hands):
    obj = hands.server.create("a")
    with pytest.raises(FinalizerError):
        finalizing(Refusing(hands.server, obj), obj, OURS, apply=hands.apply, cleanup=hands.cleanup)
    assert hands.calls == []


def test_a_clean_up_whose_object_goes_by_other_hands_is_done_all_the_same(hands):
    hands.server.create("a", finalizers=[OURS])
    hands.server.delete("a")

    def cleanup(obj):
        hands.server.change("a", finalizers=[])
        with pytest.raises(NotFound):
            hands.server.get(WIDGET, "a", namespace="default")

    outcome = finalizing(
        hands.server, hands.server.find("a"), OURS, apply=hands.apply, cleanup=cleanup
    )
    assert outcome == (Finalizing.CLEANED_UP, None, None)
