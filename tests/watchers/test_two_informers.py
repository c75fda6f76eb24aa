"""Two informers of one kind with disjoint selectors: objects of a name come and go in both."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    SimpleReconciler,
    SimpleWatcher,
    keep_all_retries,
    opinionated_retry_dequeue_policy,
)
from tests.hypothesis_profiles import scaled
from tests.watchers.conftest import WIDGET, ScriptedInformer, make_widget

TIERS = ("web", "db")


class ByName:
    """A watcher that makes one thing for each name, and fails as planned."""

    def __init__(self, failures: list[bool]) -> None:
        self.things: dict[str, str] = {}
        self.failures = failures

    def put(self, *objects) -> None:
        self.fail()
        self.things[objects[-1].name] = objects[-1].uid

    def remove(self, obj) -> None:
        self.fail()
        self.things.pop(obj.name, None)

    def fail(self) -> None:
        if self.failures and self.failures.pop():
            raise ConnectionError("planned")

    def reconcile(self, request) -> None:
        is_gone = request.action.value == "DELETE"
        (self.remove if is_gone else self.put)(request.object)


steps = st.sampled_from(
    [f"{verb} {name}" for verb in ("web", "db", "delete", "change") for name in "ab"]
    + ["handle", "handle", "time"]
)


@settings(max_examples=scaled(300), deadline=None)
@example(
    steps=["web a", "handle", "delete a", "handle", "db a", "handle"],
    failures=[True, False],
    policy=None,
    is_reconciler=False,
)
@example(
    steps=["web a", "handle", "db a", "handle", "handle"],
    failures=[True, False],
    policy=keep_all_retries,
    is_reconciler=False,
)
@given(
    steps=st.lists(steps, max_size=40),
    failures=st.lists(st.booleans(), max_size=20),
    policy=st.sampled_from([None, keep_all_retries, opinionated_retry_dequeue_policy]),
    is_reconciler=st.booleans(),
)
def test_what_a_watcher_makes_by_name_is_that_of_the_present_object(
    steps, failures, policy, is_reconciler
):
    clock, watcher = ManualClock(), ByName(failures)
    controller = InformerController(
        clock=clock,
        metrics=Metrics(),
        retry_policy=ConstantBackoff(1.0),
        retry_dequeue_policy=policy,
        error_handler=lambda error, call: None,
    )
    informers = {tier: ScriptedInformer() for tier in TIERS}
    for informer in informers.values():
        controller.add_informer(informer, WIDGET)
    if is_reconciler:
        controller.add_reconciler(SimpleReconciler(watcher.reconcile), WIDGET)
    else:
        functions = {"add": watcher.put, "update": watcher.put, "delete": watcher.remove}
        controller.add_watcher(SimpleWatcher(**functions), WIDGET)
    present = {}
    for version, step in enumerate(steps, 1):
        verb, _, name = step.partition(" ")
        tier, old = present.get(name, ("", None))
        if step == "handle":
            controller.process_next()
        elif step == "time":
            clock.advance(1)
        elif verb in TIERS and tier != verb:
            uid = old.uid if old else f"{name}-{version}"
            obj = make_widget(name, version, uid=uid, generation=version)
            if old is not None:
                informers[tier].delete(obj)
            informers[verb].add(obj)
            present[name] = (verb, obj)
        elif verb == "delete" and old is not None:
            informers[tier].delete(present.pop(name)[1])
        elif verb == "change" and old is not None:
            obj = make_widget(name, version, uid=old.uid, generation=version)
            informers[tier].update(old, obj)
            present[name] = (tier, obj)
    for _ in range(30):
        while controller.process_next():
            pass
        clock.advance(1)
    assert watcher.things == {name: obj.uid for name, (_, obj) in present.items()}
    controller.close()
