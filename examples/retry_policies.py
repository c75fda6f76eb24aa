"""Decide yourself when a failed call is tried again, and when news makes that pointless.

A watcher copies ConfigMaps to a mirror that is busy at times. The retry policy listens to what the
mirror says; the dequeue policy keeps a retry for as long as the data is what the retry is about.
"""

from __future__ import annotations

import argparse
import contextlib
from queue import SimpleQueue

from appsdk_operator import (
    Client,
    ClientConfig,
    InformerController,
    LabelSelector,
    MergePatch,
    MutableObject,
    Object,
    Operator,
    ResourceAction,
    SimpleWatcher,
    StopSignal,
    kinds,
)
from appsdk_operator.cache import Informer
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import WatcherCall

CONFIG_MAP = kinds.core.v1.ConfigMap
NAMESPACE = "default"
LABELS = {"example": "retry-policies"}
PATIENCE = 20.0


class Busy(Exception):  # noqa: N818 - what the mirror says
    """The mirror wants to be asked again later."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"busy, come back in {retry_after:g} s")
        self.retry_after = retry_after


def mirror_policy(error: Exception, attempt: int, /) -> float | None:
    """A retry policy: what is wrong stays wrong, who is busy says until when."""
    if isinstance(error, ValueError):
        return None
    if isinstance(error, Busy):
        return error.retry_after
    return min(60.0, 0.5 * 2.0**attempt)


def when_data_changed(
    new_action: ResourceAction,
    new_object: Object,
    retry_action: ResourceAction,
    retry_object: Object,
    retry_error: Exception,
    /,
) -> bool:
    """A dequeue policy: drop a retry once its data is out of date."""
    del retry_action, retry_error
    is_outdated = new_action is ResourceAction.DELETE or new_object["data"] != retry_object["data"]
    print(f"  {new_object.name}: the retry is {'dropped' if is_outdated else 'kept'}", flush=True)
    return is_outdated


class Mirror:
    """Takes copies of ConfigMaps, sooner or later."""

    def __init__(self, messages: SimpleQueue[str]) -> None:
        self._messages = messages
        self._busy = {"flaky": [0.1, 0.2], "slow": [3600.0]}

    def copy(self, obj: Object) -> None:
        """Copy one ConfigMap; to raise is to fail."""
        if not obj["data"]["port"].isdigit():
            raise ValueError("the port is not a number")
        if waits := self._busy.get(obj.name):
            raise Busy(waits.pop(0))
        print(f"{obj.name}: copied, port {obj['data']['port']}", flush=True)
        self._messages.put("copied")

    def copy_changed(self, old: Object, new: Object) -> None:
        """Copy it again if there is anything new to copy."""
        if old["data"] != new["data"]:
            self.copy(new)
        else:
            self._messages.put("nothing new")


class Demo:
    """What users do meanwhile."""

    def __init__(
        self,
        client: Client,
        controller: InformerController,
        messages: SimpleQueue[str],
        end: StopSignal,
    ) -> None:
        self._client = client
        self._controller = controller
        self._messages = messages
        self._end = end

    def run(self, _: StopSignal) -> None:
        """Three ConfigMaps: one needs patience, one is hopeless, one is overtaken by news."""
        self._create("flaky", "80")
        self._wait_for("failed", "failed", "copied")
        self._create("hopeless", "eighty")
        self._wait_for("failed")
        self._create("slow", "80")
        self._wait_for("failed")
        self._change("slow", {"metadata": {"labels": {"seen": "yes"}}})
        self._wait_for("nothing new")
        self._change("slow", {"data": {"port": "8080"}})
        self._wait_for("copied")
        for name in ("flaky", "hopeless", "slow"):
            self._client.delete(CONFIG_MAP, name, namespace=NAMESPACE)
        self._end.set()

    def _create(self, name: str, port: str) -> None:
        draft = MutableObject.new(CONFIG_MAP, name, namespace=NAMESPACE, data={"port": port})
        draft.labels.update(LABELS)
        self._client.create(draft)

    def _change(self, name: str, fields: dict[str, dict[str, object]]) -> None:
        self._client.patch(CONFIG_MAP, name, MergePatch(fields), namespace=NAMESPACE)

    def _wait_for(self, *wanted: str) -> None:
        for what in wanted:
            said = self._messages.get(timeout=PATIENCE)
            if said != what:
                raise RuntimeError(f"the watcher {said}, and should have {what}")
        self._controller.wait_idle(PATIENCE)
        print(f"  retries that wait: {self._controller.pending_retries}", flush=True)


def run(client: Client) -> None:
    """Run the operator until the demo ends."""
    messages: SimpleQueue[str] = SimpleQueue()

    def report(error: Exception, call: WatcherCall) -> None:
        print(f"{call.object.name}: attempt {call.attempt} failed: {error}", flush=True)
        messages.put("failed")

    controller = InformerController(
        retry_policy=mirror_policy,
        retry_dequeue_policy=when_data_changed,
        error_handler=report,
    )
    # No KubernetesInformer: its resync would bring back what the policy gives up on.
    selector = LabelSelector.from_mapping(LABELS)
    controller.add_informer(Informer(CONFIG_MAP, client, label_selector=selector), CONFIG_MAP)
    mirror = Mirror(messages)
    watcher = SimpleWatcher(add=mirror.copy, update=mirror.copy_changed)
    controller.add_watcher(watcher, CONFIG_MAP)

    end = StopSignal()
    operator = Operator()
    operator.add_controller(controller)
    operator.add_controller(Demo(client, controller, messages, end))
    operator.run(end)


def main() -> None:
    """Run on the cluster that was asked for, or on an API server in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", help="run on this cluster; default: in the process")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.kubeconfig:
            config = ClientConfig.from_kubeconfig(options.kubeconfig)
        else:
            config = ClientConfig(server=stack.enter_context(APIServer()).url)
        run(stack.enter_context(Client(config)))


if __name__ == "__main__":
    main()
