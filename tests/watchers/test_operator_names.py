"""An operator's name in its finalizers, what was written with an older one, and twins."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import Manager, Operator
from appsdk_operator.cache import Cache
from appsdk_operator.client import Client, ClientConfig, Forbidden
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, system_clock
from appsdk_operator.testing import Simulation
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    JoinedFinalizer,
    KubernetesInformer,
    OpinionatedReconciler,
    OpinionatedWatcher,
    SimpleReconciler,
    default_finalizer,
)
from tests.hypothesis_profiles import scaled
from tests.simulations import Others, no_client
from tests.waiting import eventually
from tests.watchers.conftest import ScriptedInformer

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap")
OLD, OLD_MARK = "example.com/operator.v1.Widget", "example.com/wip.v1.Widget"
OURS, MARK = "example.com/shop.v1.Widget", "example.com/wip.shop.v1.Widget"
# As grafana-app-sdk spells them, and the kit did once: newer API servers warn of these.
OLDER, OLDER_MARK = "operator.v1.Widget.example.com", "wip.v1.Widget.example.com"
OUR_OLDER, OUR_OLDER_MARK = "shop.v1.Widget.example.com", "wip.shop.v1.Widget.example.com"
FOREIGN = "somebody.else/x"
UNNAMED = {"name": "informer-controller"}  # what a controller is called without a name


def watcher(client=None, **options):
    return OpinionatedWatcher(WIDGET, client or no_client(), **options)


def controller(*watchers, kind=WIDGET, **options):
    made = InformerController(**{"metrics": Metrics(), "clock": ManualClock()} | options)
    for each in watchers:
        made.add_watcher(each, kind)
    return made


# Names


def test_a_controllers_name_stands_in_default_finalizers():
    one = watcher()
    controller(one, name="shop")
    assert (one.finalizer, one.in_progress_finalizer) == (OURS, MARK)


def test_without_a_name_they_are_those_of_an_operator_without_a_name():
    one = watcher()
    controller(one)
    Operator().add_controller(controller(one))
    assert (one.finalizer, one.in_progress_finalizer) == (OLD, OLD_MARK)


@pytest.mark.parametrize(
    "group", ["", "apps", "example.com", "gateway.networking.k8s.io", "a.b.c.example.com"]
)
@pytest.mark.parametrize("supplier", [default_finalizer, JoinedFinalizer(("dns",))])
@pytest.mark.parametrize("name", ["", "shop", "x" * 40])
def test_every_name_that_is_written_has_a_domain(group, supplier, name):
    kind = Kind(group=group, version="v1", kind="Widget")
    one = OpinionatedWatcher(kind, no_client(), finalizer=supplier)
    controller(one, kind=kind, **({"name": name} if name else {}))
    assert "/" in one.finalizer
    assert "/" in one.in_progress_finalizer


def test_the_earlier_spelling_of_a_name_that_was_cut_is_recognised():
    kind = Kind(group="a-rather-long-group.example.com", version="v1", kind="WithALongNameToo")
    one = OpinionatedWatcher(kind, no_client())
    controller(one, kind=kind, name="x" * 40)
    assert {
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.v1.Wi.b8806e768a3b6476",
        "wip.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.v.dd72e5cc4dfdcb68",
    } < one.finalizer_lifecycle.all_names


@pytest.mark.parametrize("name", [OLDER, OLDER_MARK])
def test_two_watchers_do_not_share_the_earlier_spelling_either(name):
    made = controller(watcher())
    with pytest.raises(ValueError, match="would share its finalizer"):
        made.add_watcher(watcher(finalizer=lambda _: name), WIDGET)


def test_a_watcher_that_is_given_the_earlier_spelling_goes_on_with_it_alone():
    one = watcher(finalizer=lambda _: OLDER)
    controller(one, name="shop")
    assert one.finalizer_lifecycle.all_names == {OLDER, OLDER_MARK}


@pytest.mark.parametrize("is_late", [False, True])
def test_an_operators_name_reaches_watchers_that_were_there_and_that_come_later(is_late):
    one = watcher()
    made = controller(*([] if is_late else [one]))
    Operator(name="shop").add_controller(made)
    if is_late:
        made.add_watcher(one, WIDGET)
    assert one.finalizer == OURS


@pytest.mark.parametrize("is_late", [False, True])
def test_a_managers_name_reaches_the_controllers_of_its_operators(is_late):
    one = watcher()
    made, operator = controller(one, clock=system_clock), Operator()
    with Manager(ClientConfig(server="http://127.0.0.1:1"), name="shop", metrics=Metrics()) as mgr:
        if is_late:
            mgr.add(operator)
        operator.add_controller(made)
        if not is_late:
            mgr.add(operator)
    assert one.finalizer == OURS


def test_the_nearest_name_counts():
    near, far = watcher(), watcher()
    operator = Operator(name="middle")
    operator.add_controller(controller(near, name="near", clock=system_clock))
    operator.add_controller(controller(far, clock=system_clock))
    with Manager(ClientConfig(server="http://127.0.0.1:1"), name="far", metrics=Metrics()) as mgr:
        mgr.add(operator)
    assert near.finalizer == "example.com/near.v1.Widget"
    assert far.finalizer == "example.com/middle.v1.Widget"


def test_a_finalizer_of_ones_own_stays_as_it_is():
    one = watcher(finalizer=lambda _: "example.com/mine")
    controller(one, name="shop")
    assert one.finalizer == "example.com/mine"


def test_reconcilers_take_it_too():
    made = controller(name="shop")
    one = OpinionatedReconciler(SimpleReconciler(lambda _: None), WIDGET, no_client())
    made.add_reconciler(one, WIDGET)
    assert (one.finalizer, one.in_progress_finalizer) == (OURS, MARK)


def test_built_in_kinds_get_it_in_their_domain():
    assert default_finalizer(CONFIG_MAP, "shop") == "shop.appsdk/v1.ConfigMap"


def test_long_names_are_cut_and_stay_apart():
    kind = Kind(group="a-rather-long-group.example.com", version="v1", kind="With" + "ALong" * 5)
    names = [default_finalizer(kind, "x" * 39 + end) for end in "ab"]
    assert all(len(name.rpartition("/")[2]) <= 63 for name in names)
    assert names[0] != names[1]
    one = OpinionatedWatcher(kind, no_client())
    made = InformerController(name="x" * 40, metrics=Metrics())
    made.add_watcher(one, kind)
    assert len(one.finalizer.rpartition("/")[2]) <= 63
    assert len(one.in_progress_finalizer.rpartition("/")[2]) <= 63
    assert one.finalizer != one.in_progress_finalizer


@pytest.mark.parametrize(
    "make", [Operator, lambda **given: Manager(ClientConfig(server="http://127.0.0.1:1"), **given)]
)
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"name": "My Shop"},
            ValueError,
            "name='My Shop' cannot stand in a finalizer: use at most",
        ),
        ({"name": "x" * 41}, ValueError, "cannot stand in a finalizer"),
        ({"name": "operator"}, ValueError, "what operators without a name have"),
        ({"name": "wip"}, ValueError, "what operators without a name have"),
        ({"name": 3}, TypeError, "name=3: give the operator's name as a string"),
        ({"previous_names": "shop"}, TypeError, "previous_names='shop': give a series of names"),
        ({"previous_names": ["My"]}, ValueError, "previous_names: name='My' cannot stand"),
        ({"previous_names": [""]}, ValueError, "for what was written without a name give"),
    ],
)
def test_names_that_cannot_be_used_are_refused(make, options, error, text):
    with pytest.raises(error, match=text):
        make(**options)


def test_a_controllers_name_that_no_finalizer_can_have_is_only_a_label(caplog):
    one = watcher()
    made = controller(one, name="My Shop")
    assert one.finalizer == OLD
    run_shortly(made)
    assert "'My Shop', has other than a-z" in caplog.text


def test_one_watcher_cannot_belong_to_two_operators():
    one = watcher()
    controller(one, name="shop")
    with pytest.raises(ValueError, match="belongs to 'shop' already, and cannot belong to 'bar'"):
        controller(one, name="bar")


def test_a_controller_that_runs_takes_no_name(caplog):
    one = watcher()
    made = controller(one)
    run_shortly(made)
    with pytest.raises(RuntimeError, match="runs already, without the operator's name 'shop'"):
        Operator(name="shop").add_controller(made)


def run_shortly(made):
    stop = StopSignal()
    stop.set()
    made.run(stop)


def test_a_run_without_a_name_warns_of_it_once(caplog):
    with caplog.at_level(logging.WARNING):
        run_shortly(controller(watcher(), name="informer-controller"))
    (record,) = [one for one in caplog.records if "without a name" in one.message]
    assert OLD in record.message
    assert "name=" in record.message


@pytest.mark.parametrize(
    "made",
    [
        lambda: controller(watcher(), name="shop"),
        lambda: controller(watcher(finalizer=lambda _: "example.com/mine")),
        controller,
    ],
)
def test_a_run_with_a_name_or_without_default_finalizers_does_not(made, caplog):
    run_shortly(made())
    assert "without a name" not in caplog.text


# What was written with an older name


class World:
    """An operator that gets a name at some time."""

    def __init__(self, kind=WIDGET, **options):
        self.seen = []
        self.failures = []
        """One for each clean-up that is to fail."""
        options = {"retry_policy": ConstantBackoff(1.0), **options}
        self.simulation = Simulation(kind, lambda p: [self._make(kind, p)], resync=0.0, **options)
        self.server = Others(self.simulation)

    def _make(self, kind, process):
        return OpinionatedWatcher(
            kind,
            process.client,
            add=lambda obj: self.seen.append("add"),
            sync=lambda obj: self.seen.append("sync"),
            update=lambda _, obj: self.seen.append("update"),
            delete=self._delete,
        )

    def _delete(self, obj):
        self.seen.append("delete")
        if self.failures:
            self.failures.pop()
            raise ConnectionError("planned")

    def finalizers(self):
        obj = self.server.find("a")
        return None if obj is None else obj.finalizers

    def refuse_write(self, number):
        """Let the process fail at one write, counted from 1."""
        counted = itertools.count(1)

        def write():
            if next(counted) == number:
                raise Forbidden("planned", status=403, reason="Forbidden")

        self.simulation.on_write = lambda _: write()


@pytest.fixture
def make_world():
    made = []

    def make(*args, **options):
        made.append(World(*args, **{"name": "shop", **options}))
        return made[-1]

    yield make
    for world in made:
        world.simulation.close()


def test_a_named_operator_writes_its_own_finalizers(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.poll()
    marks = []
    world.simulation.during_call = lambda call: marks.append(world.finalizers())
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    assert world.seen == ["add"]


def test_what_it_handled_without_a_name_is_recognised_and_gets_the_new_one(make_world):
    world = make_world()
    world.server.create("a", finalizers=[FOREIGN, OLD, "another.one/y"])
    world.simulation.settle()
    assert world.finalizers() == (FOREIGN, OURS, "another.one/y")
    assert world.seen == ["sync"]
    world.server.change("a", spec={"n": 2})
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    assert world.seen == ["sync", "update", "delete"]
    assert world.finalizers() == (FOREIGN, "another.one/y")


@pytest.mark.parametrize("previous", [("operator",), ()])
def test_the_earlier_spelling_is_recognised_and_replaced(make_world, previous):
    world = make_world(previous_names=previous)
    world.server.create("a", finalizers=[FOREIGN, OUR_OLDER, "another.one/y", OUR_OLDER_MARK])
    world.simulation.settle()
    assert world.finalizers() == (FOREIGN, OURS, "another.one/y")
    assert world.seen == ["sync"]


def test_what_grafana_app_sdk_wrote_is_taken_over_without_a_name_too(make_world):
    world = make_world(**UNNAMED)
    world.server.create("a", finalizers=[FOREIGN, OLDER])
    world.server.create("b", finalizers=[OLDER_MARK])
    world.simulation.settle()
    assert world.finalizers() == (FOREIGN, OLD)
    assert world.server.find("b").finalizers == (OLD,)
    assert sorted(world.seen) == ["add", "sync"]


def test_what_grafana_app_sdk_wrote_on_kinds_of_kubernetes_is_taken_over(make_world):
    gateway = Kind(group="gateway.networking.k8s.io", version="v1", kind="Gateway")
    world = make_world(gateway)
    world.server.create("a", finalizers=["operator.v1.Gateway.gateway.networking.k8s.io"])
    world.simulation.settle()
    assert world.finalizers() == ("shop.appsdk/v1.Gateway.gateway.networking.k8s.io",)
    assert world.seen == ["sync"]


@pytest.mark.parametrize(
    "finalizers",
    [[OLDER], [OLDER_MARK], [OLDER, OLDER_MARK], [OLDER, OLD], [OLD_MARK, OLDER_MARK]],
)
@pytest.mark.parametrize("options", [{}, {"name": "shop"}], ids=["unnamed", "named"])
def test_what_is_being_deleted_in_the_earlier_spelling_is_cleaned_up_and_let_go(
    make_world, finalizers, options
):
    world = make_world(**(options or UNNAMED))
    world.failures = [1]
    world.server.create("a", finalizers=finalizers)
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"] * 2


def test_what_an_older_process_writes_beside_this_one_goes_with_the_clean_up(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    world.server.change("a", finalizers=[OURS, OUR_OLDER])
    world.simulation.settle()
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["add", "delete"]


def test_what_an_older_process_has_written_too_is_taken_off_at_the_start(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OURS, OUR_OLDER_MARK, OUR_OLDER])
    world.server.create("b", finalizers=[MARK, OUR_OLDER_MARK])
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    assert world.server.find("b").finalizers == (OURS,)
    assert sorted(world.seen) == ["add", "sync"]


def test_every_spelling_of_an_earlier_name_is_replaced(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLDER, FOREIGN, OLD])
    world.server.create("b", finalizers=[OLDER_MARK, OLD_MARK])
    world.simulation.settle()
    assert world.finalizers() == (OURS, FOREIGN)
    assert world.server.find("b").finalizers == (OURS,)
    assert sorted(world.seen) == ["add", "sync"]


def test_kinds_without_a_generation_show_no_update_for_that(make_world):
    world = make_world(CONFIG_MAP)
    world.server.create("a", finalizers=["operator.appsdk/v1.ConfigMap"])
    world.simulation.settle()
    assert world.finalizers() == ("shop.appsdk/v1.ConfigMap",)
    assert world.seen == ["sync"]


def test_what_it_began_without_a_name_is_begun_again(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLD_MARK, FOREIGN])
    world.simulation.settle()
    assert world.finalizers() == (OURS, FOREIGN)
    assert world.seen == ["add"]


def test_a_mark_that_was_left_over_goes_with_the_old_finalizer(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLD_MARK, OLD])
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    assert world.seen == ["sync"]


@pytest.mark.parametrize("finalizers", [[OLD], [OLD_MARK], [OLD, OLD_MARK]])
def test_what_is_being_deleted_under_the_old_name_is_cleaned_up(make_world, finalizers):
    world = make_world()
    world.server.create("a", finalizers=finalizers)
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"]


@pytest.mark.parametrize("finalizers", [[OLD], [OLD_MARK], [OLD, OLD_MARK]])
def test_a_clean_up_under_the_old_name_may_fail_before_it_succeeds(make_world, finalizers):
    world = make_world()
    world.failures = [1, 2]
    world.server.create("a", finalizers=[FOREIGN, *finalizers])
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() == (FOREIGN,)
    assert world.seen == ["delete"] * 3


@pytest.mark.parametrize("finalizers", [[OLD], [OLD_MARK], [OLD, OLD_MARK]])
def test_a_removal_of_the_old_name_that_fails_is_repeated_without_the_clean_up(
    make_world, finalizers
):
    world = make_world()
    world.server.create("a", finalizers=finalizers)
    world.server.delete("a")
    world.refuse_write(1)
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_mark_that_was_left_over_holds_nothing_up_whichever_write_fails(make_world, number):
    world = make_world()
    world.server.create("a", finalizers=[OLD_MARK, OLD])
    world.refuse_write(number)
    world.simulation.poll()
    while world.simulation.handle():
        pass
    world.server.change("a", labels={"new": "er"})  # the retry gets the newest state
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() is None


def test_an_object_that_is_deleted_before_its_finalizer_was_replaced_is_cleaned_up(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLD])
    world.refuse_write(1)
    world.failures = [1]
    world.simulation.poll()
    while world.simulation.handle():
        pass
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"] * 2


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_object_that_loses_the_old_name_before_it_was_replaced_is_cleaned_up(
    make_world, is_seen
):
    world = make_world()
    world.server.create("a", finalizers=[OLD])
    world.refuse_write(1)
    world.simulation.poll()
    while world.simulation.handle():
        pass
    world.server.change("a", finalizers=[])
    world.server.delete("a")
    if not is_seen:
        world.simulation.compact()
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"]


def test_an_object_that_is_deleted_after_it_was_listed_is_cleaned_up_once(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLD])
    world.simulation.poll()
    world.server.change("a", spec={"n": 2})
    world.server.delete("a")
    world.simulation.poll()
    world.simulation.settle()
    assert world.finalizers() is None
    assert world.seen == ["delete"]


def test_the_old_name_stays_on_a_stripped_object_whose_clean_up_fails_at_first(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    world.server.change("a", finalizers=[OLD])
    world.server.delete("a")
    world.failures = [1]
    world.simulation.settle()
    assert world.finalizers() == (OLD,)
    assert world.seen == ["add", "delete", "delete"]


def test_an_older_name_of_ones_own_is_recognised_when_it_is_given(make_world):
    world = make_world(previous_names=("kiosk",))
    world.server.create("a", finalizers=[OLD, "example.com/kiosk.v1.Widget"])
    world.simulation.settle()
    assert world.finalizers() == (OLD, OURS)
    assert world.seen == ["sync"]


def test_without_previous_names_the_old_one_is_somebody_elses(make_world):
    world = make_world(previous_names=())
    world.server.create("a", finalizers=[OLD])
    world.simulation.settle()
    assert world.finalizers() == (OLD, OURS)
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() == (OLD,)
    assert world.seen == ["add", "delete"]


def test_the_old_name_that_comes_later_is_another_operators(make_world):
    world = make_world()
    world.server.create("a")
    world.simulation.settle()
    world.server.change("a", spec={"n": 2}, finalizers=[OURS, OLD])
    world.simulation.settle()
    assert world.finalizers() == (OURS, OLD)
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() == (OLD,)
    assert world.seen == ["add", "update", "delete"]


def test_a_replacement_that_fails_is_tried_again_and_adds_nothing(make_world):
    world = make_world()
    world.server.create("a", finalizers=[OLD])
    refused = [1]

    def refuse(_):
        if refused:
            refused.pop()
            raise ConnectionError("planned")

    world.simulation.on_write = refuse
    world.simulation.poll()
    while world.simulation.handle():
        pass
    assert world.finalizers() == (OLD,)
    world.server.change("a", spec={"n": 2})
    world.simulation.settle()
    assert world.finalizers() == (OURS,)
    assert "add" not in world.seen


def test_two_operators_with_names_hold_an_object_until_each_has_cleaned_up(make_world):
    world = make_world()
    other = []
    bar = OpinionatedWatcher(
        WIDGET, world.server, add=lambda _: other.append("add"), delete=lambda _: other.append("x")
    )
    controller(bar, name="bar")
    world.server.create("a")
    world.simulation.settle()
    bar.add(world.server.find("a"))
    world.server.delete("a")
    world.simulation.settle()
    assert world.finalizers() == ("example.com/bar.v1.Widget",)
    bar.add(world.server.find("a"))
    assert world.finalizers() is None
    assert other == ["add", "x"]


# Twins


def run_beside(first, second):
    """Run the first one in a thread while the second one starts."""
    informer, stop = ScriptedInformer(), StopSignal()
    first.add_informer(informer, WIDGET)
    thread = threading.Thread(target=first.run, args=(stop,))
    thread.start()
    try:
        assert informer.is_running.wait(10)
        run_shortly(second)
    finally:
        stop.set()
        thread.join(10)


CLIENT = Others(WIDGET)


def following(namespace="", selector=None, client=CLIENT, **options):
    made = controller(watcher(client), **options)
    informer = KubernetesInformer(
        WIDGET, client, namespace=namespace, label_selector=selector, metrics=Metrics()
    )
    made.add_informer(informer, WIDGET)
    return made


def uses(made):
    return made._finalizer_uses()


@pytest.mark.parametrize(
    ("one", "other", "is_twin"),
    [
        ({}, {}, True),
        ({}, {"namespace": "b"}, True),
        ({"namespace": "a"}, {"namespace": "a"}, True),
        ({"namespace": "a"}, {"namespace": "b"}, False),
        ({"selector": "x=1"}, {"selector": "x=2"}, False),
        ({"selector": "x=1"}, {"selector": "x=1"}, True),
        ({"selector": "x=1"}, {}, True),
        ({"name": "shop"}, {"name": "bar"}, False),
        ({"name": "shop"}, {"name": "shop"}, True),
        ({"client": Others(WIDGET)}, {"client": Others(WIDGET)}, False),
    ],
)
def test_who_handles_the_same_objects_with_the_same_finalizer_conflicts(one, other, is_twin):
    (first,), (second,) = uses(following(**one)), uses(following(**other))
    assert first.conflicts_with(second) is is_twin
    assert second.conflicts_with(first) is is_twin


@pytest.mark.parametrize(
    ("servers", "is_twin"),
    [(("http://a:1", "http://a:1"), True), (("http://a:1", "http://b:1"), False)],
)
def test_in_one_operator_the_server_decides(servers, is_twin):
    clients = [Client(ClientConfig(server=server), metrics=Metrics()) for server in servers]
    operator = Operator(name="shop")
    made = [following(client=client) for client in clients]
    for each in made:
        operator.add_controller(each)
    (first,), (second,) = map(uses, made)
    assert first.conflicts_with(second) is is_twin
    for client in clients:
        client.close()


def test_a_twin_is_refused_when_it_starts_and_welcome_when_the_first_one_has_ended():
    first, second = controller(watcher(CLIENT)), controller(watcher(CLIENT))
    with pytest.raises(ValueError, match=r"would share its finalizer .*its own name with name"):
        run_beside(first, second)
    run_shortly(controller(watcher(CLIENT)))
    assert not second.health().is_ready
    assert "would share its finalizer" in second.health().text
    with pytest.raises(RuntimeError, match="has ended"):
        second.add_watcher(watcher(CLIENT), WIDGET)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_finalizer_that_another_watcher_takes_for_its_earlier_one_is_refused(is_first):
    chosen = OpinionatedWatcher(
        WIDGET, CLIENT, finalizer=lambda kind: "example.com/operator.v1.Widget"
    )
    both = (watcher(CLIENT), chosen) if is_first else (chosen, watcher(CLIENT))
    made = InformerController(name="shop", metrics=Metrics())
    made.add_watcher(both[0], WIDGET)
    with pytest.raises(ValueError, match="would share its finalizer"):
        made.add_watcher(both[1], WIDGET)
    made.close()


def test_a_refused_twin_leaves_the_cache_and_gets_no_more_events():
    cache = Cache(CLIENT, metrics=Metrics())
    first, second = controller(watcher(CLIENT)), controller(watcher(CLIENT))
    second.add_cache(cache, WIDGET)
    assert cache.informers(WIDGET)[0]._access.registrations
    with pytest.raises(ValueError, match="would share its finalizer"):
        run_beside(first, second)
    assert not cache.informers(WIDGET)[0]._access.registrations
    assert second.pending_events == 0


class Twins:
    """Controllers that run and end, and the finalizers of their watchers, under two names each."""

    def __init__(self) -> None:
        self.made = [InformerController(metrics=Metrics()) for _ in range(2)]
        self.informers = [[ScriptedInformer() for _ in "ab"] for _ in self.made]
        self.used: list[list[tuple[str, str, OpinionatedWatcher]]] = [[] for _ in self.made]
        self.stops: list[StopSignal | None] = [None for _ in self.made]
        self.threads: dict[int, threading.Thread] = {}
        self.has_run: set[int] = set()
        for made, informers in zip(self.made, self.informers, strict=True):
            for name, informer in zip("ab", informers, strict=True):
                made.add_informer(informer, name)

    def names(self, *, but: int | None = None) -> list[str]:
        """The finalizers of the controllers that run."""
        return [
            name
            for number, used in enumerate(self.used)
            if self.stops[number] is not None and number != but
            for name, _, _ in used
        ]

    def add(self, number: int, name: str, under: str) -> None:
        made = OpinionatedWatcher(WIDGET, CLIENT, finalizer=lambda _: f"example.com/{name}")
        own = [(one, place) for one, place, _ in self.used[number]]
        runs = self.stops[number] is not None
        is_refused = (name, under) in own or (runs and name in self.names())
        if self.stops[number] is None and number in self.has_run:
            return  # it has ended
        if is_refused:
            with pytest.raises(ValueError, match="would share its finalizer"):
                self.made[number].add_watcher(made, under)
        else:
            self.made[number].add_watcher(made, under)
            self.used[number].append((name, under, made))

    def remove(self, number: int) -> None:
        if self.used[number]:
            _, under, made = self.used[number].pop()
            self.made[number].remove_watcher(made, under)

    def run(self, number: int) -> None:
        if number in self.has_run:
            return
        own = [name for name, _, _ in self.used[number]]
        self.has_run.add(number)
        if len(set(own)) < len(own) or set(own) & set(self.names()):
            with pytest.raises(ValueError, match="would share its finalizer"):
                self.made[number].run(StopSignal())
            return
        self.stops[number] = stop = StopSignal()
        thread = threading.Thread(target=self.made[number].run, args=(stop,))
        self.threads[number] = thread
        thread.start()
        for informer in self.informers[number]:
            assert informer.is_running.wait(10)

    def end(self, number: int) -> None:
        stop, self.stops[number] = self.stops[number], None
        if stop is not None:
            stop.set()
            self.threads[number].join(10)


happenings = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 1), st.sampled_from("xy"), st.sampled_from("ab")),
    st.tuples(st.sampled_from(["remove", "run", "end"]), st.integers(0, 1)),
)


@settings(max_examples=scaled(50), deadline=None)
@given(st.lists(happenings, max_size=12))
def test_a_finalizer_has_one_user_at_most_among_controllers_that_run(steps):
    twins = Twins()
    try:
        for verb, *arguments in steps:
            getattr(twins, verb)(*arguments)
            names = twins.names()
            assert len(set(names)) == len(names)
    finally:
        for number in range(2):
            twins.end(number)


@pytest.mark.parametrize("adds", ["an informer", "a cache"])
def test_a_twin_is_refused_before_an_informer_gives_it_the_same_objects(adds, monkeypatch):
    first, second = (
        InformerController(name=name, metrics=Metrics(), clock=ManualClock()) for name in "ab"
    )
    for each in (first, second):
        each.add_watcher(watcher(CLIENT, finalizer=lambda _: FOREIGN), WIDGET)
        each.add_informer(KubernetesInformer(WIDGET, CLIENT, namespace=each.name), WIDGET)
    cache = Cache(CLIENT, metrics=Metrics())
    informer = KubernetesInformer(WIDGET, CLIENT, namespace="a")
    stop = StopSignal()
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in (first, second)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: first._stop is not None and second._stop is not None)
        add, source = second.add_informer, informer
        if adds == "a cache":
            add, source = second.add_cache, cache
        connected = []
        monkeypatch.setattr(source, "add_event_handler", lambda *_, **__: connected.append(source))
        with pytest.raises(ValueError, match="would share its finalizer"):
            add(source, WIDGET)
        assert not connected, "some of its objects might come before the refusal"
        assert len(second._bindings.origins()[str(WIDGET)]) == 1
        # Once the other one follows the namespace no more, nobody shares anything.
        first.add_informer(KubernetesInformer(WIDGET, CLIENT, namespace="c"), WIDGET)
        first.remove_informer(first._bindings.origins()[str(WIDGET)][0])
        second.add_informer(KubernetesInformer(WIDGET, CLIENT, namespace="a"), WIDGET)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_controllers_earlier_names_are_kept_when_its_operator_names_it():
    one = watcher()
    made = controller(one, previous_names=("stall",), clock=system_clock)
    operator = Operator(previous_names=("booth",))
    operator.add_controller(made)
    with Manager(ClientConfig(server="http://127.0.0.1:1"), name="shop", metrics=Metrics()) as mgr:
        mgr.add(operator)
        assert one.finalizer == OURS
        names = one.finalizer_lifecycle.all_names
        assert names >= {f"example.com/{name}.v1.Widget" for name in ("stall", "booth", "operator")}


def test_a_controller_that_was_closed_does_not_run():
    made = controller()
    made.close()
    with pytest.raises(RuntimeError, match="was closed: a controller runs once"):
        made.run(StopSignal())
