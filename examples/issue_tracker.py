"""An operator for an issue tracker, and a tour of what it may rely on.

Run ``python examples/issue_tracker.py``: it starts an API server in the process, installs the
Issue kind, and runs an operator twice. While it runs it prints what each watcher was called for, in
order, and at the end it says whether everything came as promised. With ``--kubeconfig FILE`` it
does the same on that cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from appsdk_operator import (
    Client,
    ClientConfig,
    ConstantBackoff,
    InformerController,
    Kind,
    KubernetesInformer,
    MergePatch,
    MutableObject,
    Object,
    Operator,
    OpinionatedWatcher,
    SimpleWatcher,
    StopSignal,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.testing import APIServer, install_crds

NAMESPACE = "default"
PATIENCE = 20.0


@attrs.frozen
class IssueSpec:
    """What a reporter writes."""

    title: str
    closed: bool = False


@attrs.frozen
class IssueStatus:
    """What the operator makes of it."""

    phase: str = ""


ISSUE = Kind(
    group="tracker.example.com", version="v1", kind="Issue", spec=IssueSpec, status=IssueStatus
)


class Row(NamedTuple):
    """One call of a watcher."""

    operator: int
    watcher: str
    call: str
    issue: str
    outcome: str


class Journal:
    """The calls of the watchers, printed as they happen and kept for the check at the end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.operator = 0
        self._condition = threading.Condition()
        print(f"{'operator':<9} {'watcher':<8} {'call':<7} {'issue':<13} outcome")

    def add(self, watcher: str, call: str, obj: Object, outcome: str) -> None:
        """Note one call."""
        with self._condition:
            row = Row(self.operator, watcher, call, obj.name, outcome)
            self.rows.append(row)
            print(f"#{row.operator:<8} {watcher:<8} {call:<7} {obj.name:<13} {outcome}", flush=True)
            self._condition.notify_all()

    def wait_for(self, watcher: str, call: str, issue: str, outcome: str = "ok") -> None:
        """Wait until the present operator has had this call."""
        wanted = (self.operator, watcher, call, issue, outcome)
        with self._condition:
            if not self._condition.wait_for(lambda: wanted in self.rows, PATIENCE):
                raise TimeoutError(
                    f"{watcher} was not called for {call} {issue} in {PATIENCE:.0f} s"
                )

    def calls(self, operator: int, watcher: str, issue: str) -> list[str]:
        """The calls that a watcher had for an issue, in order."""
        return [
            row.call if row.outcome == "ok" else f"{row.call}!"
            for row in self.rows
            if (row.operator, row.watcher, row.issue) == (operator, watcher, issue)
        ]


class Triage:
    """Sets the status of issues; stumbles twice over the one that is called flaky."""

    def __init__(self, client: Client, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._stumbles = 2

    def add(self, issue: Object) -> None:
        """A new issue is open."""
        if issue.name == "flaky" and self._stumbles:
            self._stumbles -= 1
            self._journal.add("triage", "add", issue, "fails, will be retried")
            raise ConnectionError("the ticket service does not answer")
        self._set_phase(issue, "Closed" if issue.spec.closed else "Open")
        self._journal.add("triage", "add", issue, "ok")

    def sync(self, issue: Object) -> None:
        """An issue that an earlier operator has handled."""
        self._journal.add("triage", "sync", issue, "ok")

    def update(self, old: Object, new: Object) -> None:
        """The spec changed."""
        del old
        self._set_phase(new, "Closed" if new.spec.closed else "Open")
        self._journal.add("triage", "update", new, "ok")

    def delete(self, issue: Object) -> None:
        """The issue is about to go: nothing of it may stay behind elsewhere."""
        self._journal.add("triage", "delete", issue, "ok")

    def _set_phase(self, issue: Object, phase: str) -> None:
        self._client.status.patch(
            ISSUE, issue.name, MergePatch({"status": {"phase": phase}}), namespace=NAMESPACE
        )


def audit(journal: Journal) -> SimpleWatcher:
    """A watcher made from functions, which only takes notes."""

    def update(old: Object, new: Object) -> None:
        if old.generation != new.generation:  # not our own finalizers and status
            journal.add("audit", "update", new, "ok")

    return SimpleWatcher(
        add=lambda issue: journal.add("audit", "add", issue, "ok"),
        update=update,
        delete=lambda issue: journal.add("audit", "delete", issue, "ok"),
    )


@contextlib.contextmanager
def running_operator(client: Client, journal: Journal) -> Iterator[None]:
    """Run an operator in a thread until the block ends, as one process would."""
    journal.operator += 1
    triage = Triage(client, journal)
    controller = InformerController(
        retry_policy=ConstantBackoff(0.3), error_handler=lambda *_: None
    )
    controller.add_informer(KubernetesInformer(ISSUE, client, namespace=NAMESPACE), ISSUE)
    controller.add_watcher(audit(journal), ISSUE)
    controller.add_watcher(
        OpinionatedWatcher(
            ISSUE,
            client,
            add=triage.add,
            sync=triage.sync,
            update=triage.update,
            delete=triage.delete,
        ),
        ISSUE,
    )
    # Its name stands in the finalizers, so that no other operator takes them for its own.
    operator = Operator(name="issue-tracker")
    operator.add_controller(controller)
    stop = StopSignal()
    thread = threading.Thread(target=operator.run, args=(stop,), name="operator")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def tour(client: Client, journal: Journal) -> None:
    """The life of four issues."""
    with running_operator(client, journal):
        for name in ("login-broken", "slow-search", "flaky"):
            spec = IssueSpec(title=name.replace("-", " "))
            client.create(MutableObject.new(ISSUE, name, namespace=NAMESPACE, spec=spec))
        for name in ("login-broken", "slow-search", "flaky"):
            journal.wait_for("triage", "add", name)
        close(client, "slow-search")
        journal.wait_for("triage", "update", "slow-search")
        client.delete(ISSUE, "login-broken", namespace=NAMESPACE)
        journal.wait_for("audit", "delete", "login-broken")

    print("-- the operator is down: slow-search is deleted, while-away is created")
    client.delete(ISSUE, "slow-search", namespace=NAMESPACE)
    spec = IssueSpec(title="while away")
    client.create(MutableObject.new(ISSUE, "while-away", namespace=NAMESPACE, spec=spec))

    with running_operator(client, journal):
        journal.wait_for("triage", "sync", "flaky")
        journal.wait_for("audit", "delete", "slow-search")
        journal.wait_for("triage", "add", "while-away")
        for name in ("flaky", "while-away"):
            client.delete(ISSUE, name, namespace=NAMESPACE)
        for name in ("flaky", "while-away"):
            journal.wait_for("audit", "delete", name)


def close(client: Client, name: str) -> None:
    """Change the spec, as a user would."""
    issue = client.get(ISSUE, name, namespace=NAMESPACE).mutable_copy()
    issue.spec = attrs.evolve(issue.spec, closed=True)
    client.update(issue)


def check(client: Client, journal: Journal) -> list[str]:
    """What did not come as promised."""
    expected = {
        (1, "triage", "login-broken"): ["add", "delete"],
        (1, "triage", "slow-search"): ["add", "update"],
        (1, "triage", "flaky"): ["add!", "add!", "add"],
        (2, "triage", "slow-search"): ["delete"],
        (2, "triage", "flaky"): ["sync", "delete"],
        (2, "triage", "while-away"): ["add", "delete"],
        (1, "audit", "flaky"): ["add"],
        (2, "audit", "while-away"): ["add", "update", "delete"],
    }
    # The server counts a deletion that waits for finalizers as a change of the object.
    expected[1, "audit", "login-broken"] = ["add", "update", "delete"]
    expected[1, "audit", "slow-search"] = ["add", "update"]
    expected[2, "audit", "slow-search"] = ["add", "delete"]
    expected[2, "audit", "flaky"] = ["add", "update", "delete"]
    wrong = [
        f"operator #{who[0]}: {who[1]} saw {journal.calls(*who)} of {who[2]}, not {calls}"
        for who, calls in expected.items()
        if journal.calls(*who) != calls
    ]
    left = [issue.name for issue in client.list(ISSUE, namespace=NAMESPACE)]
    return wrong + [f"{name} is still there" for name in left]


@contextlib.contextmanager
def cluster(kubeconfig: str | None) -> Iterator[Client]:
    """A client of the cluster that was asked for, or of an API server in this process."""
    if kubeconfig:
        with Client(ClientConfig.from_kubeconfig(kubeconfig)) as client:
            yield client
    else:
        with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
            yield client


def main(arguments: list[str] | None = None) -> int:
    """Run the tour; 0 only if everything came as promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", help="run on this cluster; default: in the process")
    options = parser.parse_args(arguments)
    with cluster(options.kubeconfig) as client:
        crd = custom_resource_definition(ISSUE, short_names=["iss"])
        install_crds(client, [crd])
        journal = Journal()
        try:
            tour(client, journal)
            wrong = check(client, journal)
        finally:
            client.delete(kinds.apiextensions.v1.CustomResourceDefinition, crd.name)
    for problem in wrong:
        print(problem, file=sys.stderr)
    print(
        f"{len(journal.rows)} calls: "
        + ("everything came as promised" if not wrong else f"{len(wrong)} broken promises")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
