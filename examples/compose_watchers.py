"""Compose watchers from functions, on ConfigMaps.

Three small watchers share one informer. For each event they run one after another, in the order in
which they were added, so the last one can rely on what the first one wrote down.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
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
    SimpleWatcher,
    StopSignal,
    kinds,
)
from appsdk_operator.cache import Informer
from appsdk_operator.testing import APIServer

CONFIG_MAP = kinds.core.v1.ConfigMap
NAMESPACE, NAME = "default", "colors"
LABELS = {"example": "compose-watchers"}
PATIENCE = 20.0


def ledger(book: dict[str, dict[str, str]]) -> SimpleWatcher:
    """Keeps the data of every ConfigMap in ``book``."""

    def write(obj: Object) -> None:
        book[obj.name] = dict(obj["data"])

    return SimpleWatcher(
        add=write,
        update=lambda old, new: write(new),  # noqa: ARG005 - watchers get both
        delete=lambda obj: book.pop(obj.name),
    )


def on_change(callback: Callable[[str, str, str], None]) -> SimpleWatcher:
    """Calls ``callback(name, before, after)`` when the favourite changes, and for nothing else."""

    def update(old: Object, new: Object) -> None:
        before, after = old["data"]["favourite"], new["data"]["favourite"]
        if before != after:
            callback(new.name, before, after)

    return SimpleWatcher(update=update)


def announcer(book: dict[str, dict[str, str]], messages: SimpleQueue[str]) -> SimpleWatcher:
    """Says what happened; the ledger ran before, so the book is up to date."""

    def say(what: str, obj: Object) -> None:
        print(f"{what:<7} {obj.name}: the ledger says {book.get(obj.name)}", flush=True)
        messages.put(what)

    return SimpleWatcher(
        add=lambda obj: say("added", obj),
        update=lambda _, new: say("updated", new),
        delete=lambda obj: say("deleted", obj),
    )


class Demo:
    """What a user does meanwhile: an Operator runs anything that has ``run(stop)``."""

    def __init__(self, client: Client, messages: SimpleQueue[str], end: StopSignal) -> None:
        self._client = client
        self._messages = messages
        self._end = end

    def run(self, _: StopSignal) -> None:
        """Create, change, label and delete one ConfigMap, then end the operator."""
        client, messages = self._client, self._messages
        draft = MutableObject.new(CONFIG_MAP, NAME, namespace=NAMESPACE, data={"favourite": "blue"})
        draft.labels.update(LABELS)
        client.create(draft)
        messages.get(timeout=PATIENCE)
        for change in ({"data": {"favourite": "red"}}, {"metadata": {"labels": {"seen": "yes"}}}):
            client.patch(CONFIG_MAP, NAME, MergePatch(change), namespace=NAMESPACE)
            messages.get(timeout=PATIENCE)
        client.delete(CONFIG_MAP, NAME, namespace=NAMESPACE)
        messages.get(timeout=PATIENCE)
        self._end.set()


def run(client: Client) -> None:
    """Run the operator until the demo ends."""
    book: dict[str, dict[str, str]] = {}
    messages: SimpleQueue[str] = SimpleQueue()

    controller = InformerController()
    selector = LabelSelector.from_mapping(LABELS)
    controller.add_informer(Informer(CONFIG_MAP, client, label_selector=selector), CONFIG_MAP)
    controller.add_watcher(ledger(book), CONFIG_MAP)
    controller.add_watcher(
        on_change(lambda name, before, after: print(f"        {name}: {before} -> {after}")),
        CONFIG_MAP,
    )
    controller.add_watcher(announcer(book, messages), CONFIG_MAP)

    end = StopSignal()
    operator = Operator()
    operator.add_controller(controller)
    operator.add_controller(Demo(client, messages, end))
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
