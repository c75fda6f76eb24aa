"""Several informers, one a namespace, that share their watchers.

An informer follows one namespace or all. To follow some, add one informer for each under the same
kind: each of them triggers all watchers of the kind. Informers come and go while the operator runs.
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
    MutableObject,
    Object,
    Operator,
    SimpleWatcher,
    StopSignal,
    kinds,
)
from appsdk_operator.cache import Informer
from appsdk_operator.testing import APIServer

CONFIG_MAP, NAMESPACE = kinds.core.v1.ConfigMap, kinds.core.v1.Namespace
LABELS = {"example": "namespaces"}
TEAMS = ("team-red", "team-green", "team-blue")
PATIENCE = 20.0


class Demo:
    """Three teams, of which the operator serves one, then two, then one again."""

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
        """Play the demo and end the operator."""
        red, green, blue = TEAMS
        for team in TEAMS:
            self._client.create(MutableObject.new(NAMESPACE, team))
            self._create(team, "first")
        first = self._serve(red)
        self._wait_for(f"{red}/first")
        self._serve(green)
        self._wait_for(f"{green}/first")
        print(f"-- {red} is served no more", flush=True)
        self._controller.remove_informer(first)
        for team in (red, blue, green):
            self._create(team, "second")
        self._wait_for(f"{green}/second")
        for team in TEAMS:
            self._client.delete(NAMESPACE, team)
        self._end.set()

    def _serve(self, team: str) -> Informer:
        print(f"-- {team} is served", flush=True)
        selector = LabelSelector.from_mapping(LABELS)
        informer = Informer(CONFIG_MAP, self._client, namespace=team, label_selector=selector)
        self._controller.add_informer(informer, CONFIG_MAP)
        return informer

    def _create(self, team: str, name: str) -> None:
        draft = MutableObject.new(CONFIG_MAP, name, namespace=team)
        draft.labels.update(LABELS)
        self._client.create(draft)

    def _wait_for(self, key: str) -> None:
        said = self._messages.get(timeout=PATIENCE)
        if said != key:
            raise RuntimeError(f"the watchers were called for {said}, not for {key}")


def run(client: Client) -> None:
    """Run the operator until the demo ends."""
    counts: dict[str, int] = {}
    messages: SimpleQueue[str] = SimpleQueue()

    def count(obj: Object) -> None:
        counts[obj.namespace] = counts.get(obj.namespace, 0) + 1

    def announce(obj: Object) -> None:
        print(f"{obj.key} is number {counts[obj.namespace]} of its team", flush=True)
        messages.put(str(obj.key))

    controller = InformerController()
    controller.add_watcher(SimpleWatcher(add=count), CONFIG_MAP)
    controller.add_watcher(SimpleWatcher(add=announce), CONFIG_MAP)

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
