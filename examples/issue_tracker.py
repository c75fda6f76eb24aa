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
    App,
    Client,
    ClientConfig,
    ConstantBackoff,
    Kind,
    MutableObject,
    Object,
    SimpleWatcher,
    kinds,
)
from appsdk_operator.testing import APIServer, install_crds, running

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


# Its name stands in the finalizers, so that no other operator takes them for its own.
app = App("issue-tracker", retry_policy=ConstantBackoff(0.3), error_handler=lambda *_: None)
Issue = app.own(
    Kind(
        group="tracker.example.com", version="v1", kind="Issue", spec=IssueSpec, status=IssueStatus
    ),
    short_names=["iss"],
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
        self.stumbles = 2
        self._condition = threading.Condition()

    def begin(self) -> None:
        """Print the head of the table."""
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


journal = Journal()


def note(issue: Object, watcher: str, call: str, outcome: str = "ok") -> None:
    """Note one call."""
    journal.add(watcher, call, issue, outcome)


def note_changes(old: Object, new: Object) -> None:
    """Note an update of the spec, and none of our own finalizers and status."""
    if old.generation != new.generation:
        note(new, "audit", "update")


app.watch(
    Issue,
    SimpleWatcher(
        add=lambda issue: note(issue, "audit", "add"),
        update=note_changes,
        delete=lambda issue: note(issue, "audit", "delete"),
    ),
)


@app.on_add(Issue, result="status.phase")
def begin(issue: Object[IssueSpec]) -> str:
    """A new issue is open. The one that is called flaky fails twice."""
    if issue.name == "flaky" and journal.stumbles:
        journal.stumbles -= 1
        note(issue, "triage", "add", "fails, will be retried")
        raise ConnectionError("the ticket service does not answer")
    note(issue, "triage", "add")
    return "Closed" if issue.spec.closed else "Open"


@app.on_sync(Issue)
def meet_again(issue: Object[IssueSpec]) -> None:
    """An issue that an earlier operator has handled."""
    note(issue, "triage", "sync")


@app.on_update(Issue, result="status.phase")
def change(_: Object[IssueSpec], issue: Object[IssueSpec]) -> str:
    """The spec changed."""
    note(issue, "triage", "update")
    return "Closed" if issue.spec.closed else "Open"


@app.on_delete(Issue)
def end(issue: Object[IssueSpec]) -> None:
    """The issue is about to go: nothing of it may stay behind elsewhere."""
    note(issue, "triage", "delete")


@contextlib.contextmanager
def running_operator(client: Client) -> Iterator[None]:
    """Run the operator in a thread until the block ends, as one process would."""
    journal.operator += 1
    with running(app.manager(client, namespaces=[NAMESPACE])):
        yield


def tour(client: Client) -> None:
    """The life of four issues."""
    with running_operator(client):
        for name in ("login-broken", "slow-search", "flaky"):
            spec = IssueSpec(title=name.replace("-", " "))
            client.create(MutableObject.new(Issue, name, namespace=NAMESPACE, spec=spec))
        for name in ("login-broken", "slow-search", "flaky"):
            journal.wait_for("triage", "add", name)
        client.modify(Issue, "slow-search", close, namespace=NAMESPACE)
        journal.wait_for("triage", "update", "slow-search")
        client.delete(Issue, "login-broken", namespace=NAMESPACE)
        journal.wait_for("audit", "delete", "login-broken")

    print("-- the operator is down: slow-search is deleted, while-away is created")
    client.delete(Issue, "slow-search", namespace=NAMESPACE)
    spec = IssueSpec(title="while away")
    client.create(MutableObject.new(Issue, "while-away", namespace=NAMESPACE, spec=spec))

    with running_operator(client):
        journal.wait_for("triage", "sync", "flaky")
        journal.wait_for("audit", "delete", "slow-search")
        journal.wait_for("triage", "add", "while-away")
        for name in ("flaky", "while-away"):
            client.delete(Issue, name, namespace=NAMESPACE)
        for name in ("flaky", "while-away"):
            journal.wait_for("audit", "delete", name)


def close(draft: MutableObject[IssueSpec]) -> None:
    """Change the spec, as a user would."""
    draft.spec = attrs.evolve(draft.spec, closed=True)


def check(client: Client) -> list[str]:
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
    left = [issue.name for issue in client.list(Issue, namespace=NAMESPACE)]
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
        (crd,) = app.crds()
        install_crds(client, [crd])
        journal.begin()
        try:
            tour(client)
            wrong = check(client)
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
