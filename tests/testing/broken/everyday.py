"""Mistakes that operators of every day make, in some ten lines each, and their mended twins."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

import attrs

from appsdk_operator import (
    App,
    Live,
    Manager,
    MutableObject,
    StopSignal,
    annotation,
    controller_for,
    field,
    kinds,
    labels,
)
from appsdk_operator.client import ApiError, Conflict, JsonPatch, MergePatch, NotFound
from appsdk_operator.controllers import (
    Request,
    Result,
    TerminalError,
    create_or_update,
    finalizing,
    set_controller_reference,
)
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import Object
from appsdk_operator.testing import Replica, World
from appsdk_operator.watchers import SimpleWatcher
from tests.testing.broken.operators import (
    FINALIZER,
    WIDGET,
    shows_its_size,
    with_widget,
    write_status,
)

CONFIG_MAP: Final = kinds.core.v1.ConfigMap

Make = Callable[[Replica, bool], Any]
"""Makes the operator of a replica: with the mistake, or the mended one."""
MakeApp = Callable[[bool], App]
"""The same as an App."""


@attrs.frozen
class Everyday:
    """A mistake, and what its user asks for."""

    make: Make | MakeApp
    options: dict[str, Any]
    is_app: bool = False

    def operator(self, mended: bool) -> Any:
        """The first argument of ``check_operator``."""
        make: Any = self.make
        return make(mended) if self.is_app else lambda replica: make(replica, mended)


EVERYDAY: Final[list[Everyday]] = []


def everyday(*, is_app: bool = False, **options: Any) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        EVERYDAY.append(Everyday(make, options, is_app))
        return make

    return add


# -- what users ask for -----------------------------------------------------------------------


def has_its_child(world: World) -> None:
    sizes = {made.name: made.get("data", {}).get("size") for made in world.objects(CONFIG_MAP)}
    for widget in world.objects():
        if not widget.is_deleting:
            assert sizes.get(widget.name) == str(widget.spec["size"]), "a child is missing or wrong"


def nothing_is_left(world: World) -> None:
    present = {widget.name for widget in world.objects()}
    left = {made.name.partition(".")[0] for made in world.objects(CONFIG_MAP)} - present
    assert not left, "a child is left behind"


def is_as_outside(world: World) -> None:
    wanted = {
        widget.name: widget.spec["size"] for widget in world.objects() if not widget.is_deleting
    }
    assert world.elsewhere == wanted, "what is outside differs"


def has_one_child(world: World) -> None:
    nothing_is_left(world)
    for widget in world.objects():
        made = [each for each in world.objects(CONFIG_MAP) if each.name.startswith(widget.name)]
        assert widget.is_deleting or len(made) == 1, "it has not one child"


def nothing_is_lost(world: World) -> None:
    known = [(widget.status or {}).get("made") for widget in world.objects()]
    for widget in world.objects():
        for name, uid in world.elsewhere.items():
            assert uid != widget.uid or name in known, f"{name} is outside, and nobody knows"


def shows_its_children(world: World) -> None:
    for widget in world.objects():
        made = [str(widget.spec["size"])]
        status = widget.status or {}
        assert widget.is_deleting or status.get("sizes") == made, "its status is out of date"


# -- parts of operators -----------------------------------------------------------------------


def child(replica: Replica, widget: Object, name: str = "", owner: bool = True) -> None:
    """Make the child of a widget as it should be."""
    draft = MutableObject.new(CONFIG_MAP, name or widget.name, namespace=widget.namespace)

    def shape(made: MutableObject) -> None:
        made["data"] = {"size": str(widget.spec["size"])}
        if owner:
            set_controller_reference(widget, made)

    create_or_update(replica.client, draft, shape)


def remove_child(replica: Replica, name: str) -> None:
    with contextlib.suppress(NotFound):
        replica.client.delete(CONFIG_MAP, name, namespace="default")


def managed(replica: Replica, reconcile: Any, *, owns: bool = True) -> Manager:
    """A manager with one controller."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    builder = controller_for(manager).named("widgets").for_(WIDGET)
    if owns:
        builder.owns(CONFIG_MAP)
    builder.complete(replica.recorded(reconcile))
    return manager


def if_alive(replica: Replica, do: Callable[[Object], object]) -> Any:
    return with_widget(replica, lambda widget: None if widget.is_deleting else do(widget))


# -- children ---------------------------------------------------------------------------------


@everyday(at_rest=has_its_child)
def does_not_watch_its_children(replica: Replica, mended: bool) -> Any:
    return managed(replica, if_alive(replica, lambda one: child(replica, one)), owns=mended)


@everyday(at_rest=has_its_child)
def does_not_look_again(replica: Replica, mended: bool) -> Any:
    reconcile = if_alive(replica, lambda one: child(replica, one))

    def again(request: Request) -> Result:
        reconcile(request)
        return Result(requeue_after=300.0 if mended else None)

    return again


@everyday(at_rest=has_its_child)
def takes_a_child_that_exists_for_right(replica: Replica, mended: bool) -> Any:
    def make(widget: Object) -> None:
        try:
            replica.client.get(CONFIG_MAP, widget.name, namespace=widget.namespace)
            exists = True
        except NotFound:
            exists = False
        if mended or not exists:
            child(replica, widget)

    return managed(replica, if_alive(replica, make))


@everyday(at_rest=has_its_child)
def compares_with_what_it_said_itself(replica: Replica, mended: bool) -> Any:
    def make(widget: Object) -> None:
        if (widget.status or {}).get("size") == widget.spec["size"] and not mended:
            return
        child(replica, widget)
        write_status(replica, widget, size=widget.spec["size"])

    return managed(replica, if_alive(replica, make))


@everyday(at_rest=has_its_child)
def says_done_before_it_is(replica: Replica, mended: bool) -> Any:
    def make(widget: Object) -> None:
        if widget.annotations.get("done") == str(widget.generation) and not mended:
            return
        note = MergePatch({"metadata": {"annotations": {"done": str(widget.generation)}}})
        replica.client.patch(WIDGET, widget.name, note, namespace=widget.namespace)
        child(replica, widget)

    return managed(replica, if_alive(replica, make))


@everyday(at_rest=nothing_is_left)
def deletes_children_when_announced_a_deletion(replica: Replica, mended: bool) -> Any:
    def make(request: Request) -> None:
        try:
            widget = replica.client.get(WIDGET, request.name, namespace=request.namespace)
        except NotFound:
            remove_child(replica, request.name)
        else:
            if not widget.is_deleting:
                child(replica, widget, owner=mended)

    return managed(replica, make)


@everyday(at_rest=has_one_child)
def forgets_the_child_of_the_former_size(replica: Replica, mended: bool) -> Any:
    def make(widget: Object) -> None:
        name = f"{widget.name}.{widget.spec['size']}"
        child(replica, widget, name)
        for each in replica.client.list(CONFIG_MAP, namespace=widget.namespace):
            if each.name.startswith(f"{widget.name}.") and each.name != name and mended:
                remove_child(replica, each.name)

    return managed(replica, if_alive(replica, make))


@everyday(at_rest=has_one_child)
def makes_a_child_before_it_notes_it(replica: Replica, mended: bool) -> Any:
    def make(widget: Object) -> None:
        name = (widget.status or {}).get("child")
        if name is None:
            name = f"{widget.name}.{'child' if mended else replica.clock.rng.getrandbits(32)}"
            child(replica, widget, name)
            write_status(replica, widget, child=name)
        else:
            child(replica, widget, name)

    return managed(replica, if_alive(replica, make))


@everyday(at_rest=has_its_child)
def takes_a_failed_list_for_an_empty_one(replica: Replica, mended: bool) -> Any:
    def make(request: Request) -> None:
        try:
            widgets = list(replica.client.list(WIDGET, namespace=request.namespace))
        except ApiError:
            if mended:
                raise
            widgets = []
        for widget in widgets:
            if not widget.is_deleting:
                child(replica, widget)

    return managed(replica, make)


# -- what is outside of the cluster -----------------------------------------------------------


def kept(replica: Replica, widget: Object) -> Object | None:
    """Keeps what is outside, with a finalizer; returns the object's state since, None if gone."""
    outside = replica.world.elsewhere
    return finalizing(
        replica.client,
        widget,
        FINALIZER,
        apply=lambda one: outside.update({one.name: one.spec["size"]}),
        cleanup=lambda one: outside.pop(one.name, None),
    ).object


@everyday(at_rest=is_as_outside)
def takes_a_failed_read_for_a_deletion(replica: Replica, mended: bool) -> Any:
    def reconcile(request: Request) -> None:
        try:
            widget = replica.client.get(WIDGET, request.name, namespace=request.namespace)
        except ApiError as error:
            if mended and not isinstance(error, NotFound):
                raise
            replica.world.elsewhere.pop(request.name, None)
        else:
            kept(replica, widget)

    return reconcile


@everyday(at_rest=is_as_outside)
def cleans_up_without_a_finalizer(replica: Replica, mended: bool) -> Any:
    if mended:
        return with_widget(replica, lambda one: kept(replica, one))
    outside = replica.world.elsewhere

    def put(widget: Object) -> None:
        outside[widget.name] = widget.spec["size"]

    return SimpleWatcher(
        add=put,
        update=lambda _, one: put(one),
        delete=lambda one: outside.pop(one.name, None),
    )


@everyday(at_rest=is_as_outside)
def remembers_in_memory_what_it_did(replica: Replica, mended: bool) -> Any:
    done: set[str] = set()

    def keep(widget: Object) -> None:
        if mended or widget.is_deleting or widget.name not in done:
            kept(replica, widget)
        done.add(widget.name)

    return with_widget(replica, keep)


@everyday(at_rest=is_as_outside)
def gives_up_after_a_failure(replica: Replica, mended: bool) -> Any:
    def keep(widget: Object) -> None:
        try:
            kept(replica, widget)
        except Exception:
            if mended:
                raise

    return with_widget(replica, keep)


@everyday(at_rest=is_as_outside)
def takes_its_finalizer_off_first(replica: Replica, mended: bool) -> Any:
    outside = replica.world.elsewhere

    def keep(widget: Object) -> None:
        if mended or not widget.is_deleting:
            kept(replica, widget)
        elif FINALIZER in widget.finalizers:
            draft = widget.mutable_copy()
            draft.finalizers.remove(FINALIZER)
            replica.client.update(draft)
            outside.pop(widget.name, None)

    return with_widget(replica, keep)


@everyday(at_rest=shows_its_size)
def leaves_a_lock_behind(replica: Replica, mended: bool) -> Any:
    locks = replica.world.elsewhere

    def show(widget: Object) -> None:
        if locks.setdefault(widget.name, replica.process) != replica.process and not mended:
            raise RuntimeError("locked")
        try:
            if (widget.status or {}).get("size") != widget.spec["size"]:
                write_status(replica, widget, size=widget.spec["size"])
        finally:
            locks.pop(widget.name, None)

    return with_widget(replica, show)


@everyday(at_rest=nothing_is_lost)
def makes_it_before_it_notes_it(replica: Replica, mended: bool) -> Any:
    outside = replica.world.elsewhere

    def make(widget: Object) -> None:
        name = (widget.status or {}).get("made")
        if name is None:
            name = widget.uid if mended else f"{widget.uid}.{len(outside)}"
            outside[name] = widget.uid
            write_status(replica, widget, made=name)

    return with_widget(replica, make)


# -- states -----------------------------------------------------------------------------------


@everyday(at_rest=shows_its_children)
def counts_in_a_cache_that_is_late(replica: Replica, mended: bool) -> Any:
    cached = CacheSetup(kinds=[CONFIG_MAP])
    manager = Manager(replica.config, cache=cached, clock=replica.clock, metrics=replica.metrics)

    def show(widget: Object) -> None:
        child(replica, widget)
        found = manager.client.list(CONFIG_MAP, namespace=widget.namespace)
        sizes = [made["data"].get("size") for made in found if made.name == widget.name]
        if (widget.status or {}).get("sizes") != sizes:
            write_status(replica, widget, sizes=sizes)

    builder = controller_for(manager).named("widgets").for_(WIDGET)
    if mended:
        builder.owns(CONFIG_MAP)
    builder.complete(replica.recorded(if_alive(replica, show)))
    return manager


@everyday(at_rest=shows_its_size)
def takes_a_conflict_for_done(replica: Replica, mended: bool) -> Any:
    def show(widget: Object) -> None:
        try:
            if (widget.status or {}).get("size") != widget.spec["size"]:
                write_status(replica, widget, size=widget.spec["size"])
        except Conflict:
            if mended:
                raise

    return with_widget(replica, show)


@everyday(at_rest=shows_its_size, replicas=2)
def leads_for_ever(replica: Replica, mended: bool) -> Any:
    me = replica.name if mended else f"{replica.name}-{replica.process}"
    leader = replica.world.elsewhere.setdefault("leader", me)

    def show(widget: Object) -> None:
        if leader == me and (widget.status or {}).get("size") != widget.spec["size"]:
            write_status(replica, widget, size=widget.spec["size"])

    return with_widget(replica, show)


@everyday(at_rest=shows_its_size)
def skips_what_was_there_at_its_start(replica: Replica, mended: bool) -> Any:
    old = set() if mended else {one.uid for one in replica.world.objects()}

    def show(widget: Object) -> None:
        if widget.uid not in old and (widget.status or {}).get("size") != widget.spec["size"]:
            write_status(replica, widget, size=widget.spec["size"])

    return with_widget(replica, show)


@everyday(at_rest=shows_its_size)
def gives_up_for_good_on_an_error(replica: Replica, mended: bool) -> Any:
    def show(widget: Object) -> None:
        try:
            if (widget.status or {}).get("size") != widget.spec["size"]:
                write_status(replica, widget, size=widget.spec["size"])
        except ApiError as error:
            if mended:
                raise
            raise TerminalError("the size cannot be shown") from error

    return with_widget(replica, show)


@everyday(at_rest=is_as_outside)
def shares_a_memo_between_objects(replica: Replica, mended: bool) -> Any:
    memo: dict[str, Any] = {}

    def keep(widget: Object) -> None:
        one = widget.uid if mended else "last"
        wanted = {"size": widget.spec["size"], "is_deleting": widget.is_deleting}
        if memo.get(one) != wanted:
            kept(replica, widget)
            memo[one] = wanted

    return with_widget(replica, keep)


# -- deletions --------------------------------------------------------------------------------


@everyday(at_rest=is_as_outside)
def goes_on_after_its_clean_up(replica: Replica, mended: bool) -> Any:
    def keep(widget: Object) -> None:
        present = kept(replica, widget)
        if not (mended and (present is None or present.is_deleting)):
            replica.world.elsewhere[widget.name] = widget.spec["size"]

    return with_widget(replica, keep)


@everyday(at_rest=is_as_outside)
def takes_the_first_finalizer_off(replica: Replica, mended: bool) -> Any:
    def keep(widget: Object) -> None:
        if mended or not widget.is_deleting:
            kept(replica, widget)
        elif FINALIZER in widget.finalizers:
            replica.world.elsewhere.pop(widget.name, None)
            first = JsonPatch([{"op": "remove", "path": "/metadata/finalizers/0"}])
            replica.client.patch(WIDGET, widget.name, first, namespace=widget.namespace)

    return with_widget(replica, keep)


# -- times ------------------------------------------------------------------------------------


@everyday(at_rest=is_as_outside)
def has_a_timer_that_overlaps_with_its_calls(replica: Replica, mended: bool) -> Any:
    reconcile = with_widget(replica, lambda one: kept(replica, one))

    def again(request: Request) -> Result:
        reconcile(request)
        return Result(requeue_after=60.0)

    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)

    def tick(stop: StopSignal) -> None:
        while not stop.wait(60.0):
            for widget in replica.client.list(WIDGET, namespace="default"):
                if FINALIZER in widget.finalizers and not widget.is_deleting:
                    stop.wait(20.0)  # it looks how the thing outside is
                    replica.world.elsewhere[widget.name] = widget.spec["size"]

    if not mended:
        manager.add(tick)
    builder = controller_for(manager).named("widgets").for_(WIDGET)
    builder.complete(replica.recorded(again if mended else reconcile))
    return manager


@everyday(is_app=True)
def has_a_background_function_that_never_ends(mended: bool) -> App:
    app = App("widget-operator")

    @app.background(WIDGET)
    def follow(live: Live, stop: StopSignal) -> None:
        while not (stop.is_set() and mended):
            threading.Event().wait(10.0)

    return app


# -- of filters --------------------------------------------------------------------------------

WEB: Final = labels("app=web")
RESTART: Final = annotation("example.com/restart")
WORLD: list[World] = []


def connect(world: World) -> None:
    WORLD[:] = [world]


def web_alone_is_outside(world: World) -> None:
    there = [widget for widget in world.objects() if WEB(widget) and not widget.is_deleting]
    assert world.elsewhere == {widget.name: widget.spec["size"] for widget in there}


def put(widget: Object) -> None:
    WORLD[-1].elsewhere[widget.name] = widget.spec["size"]


def take(widget: Object) -> None:
    WORLD[-1].elsewhere.pop(widget.name, None)


@everyday(is_app=True, always=connect, at_rest=web_alone_is_outside)
def leaves_what_its_filter_matches_no_more(mended: bool) -> App:
    app, where = App("widget-operator"), None if mended else WEB
    changed = field("spec").changed | field("metadata.labels").changed

    def follow(widget: Object) -> None:
        (put if WEB(widget) else take)(widget)

    app.on_add(WIDGET, where=where)(follow)
    app.on_update(WIDGET, where=where, when=changed)(lambda old, new: follow(new))
    app.on_delete(WIDGET)(take)
    return app


@everyday(is_app=True, always=connect)
def reads_an_annotation_that_may_be_gone(mended: bool) -> App:
    app = App("widget-operator")

    @app.on_update(WIDGET, when=RESTART.changed)
    def restart(_: Object, widget: Object) -> None:
        if not mended:
            WORLD[-1].elsewhere[widget.uid] = widget.annotations["example.com/restart"]
        elif (reason := widget.annotations.get("example.com/restart")) is not None:
            WORLD[-1].elsewhere[widget.uid] = reason

    return app
