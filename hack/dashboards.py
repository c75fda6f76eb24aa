"""Writes dashboards/: the alerts as a rule file of Prometheus, and the dashboards for Grafana.

Run ``python hack/dashboards.py`` after a change of either; a test compares what is committed.
"""

from __future__ import annotations

from pathlib import Path

from appsdk_operator.project._manifests.alerts import alert_rules
from appsdk_operator.project._manifests.tree import Commented, document

FOLDER = Path(__file__).parents[1] / "dashboards"


def texts() -> dict[str, str]:
    """The text of each file, by its name."""
    note = (
        "Alerts for all operators of the kit that this Prometheus scrapes.",
        "Written by hack/dashboards.py; docs/runbooks.md says what to do.",
    )
    groups = [{"name": "appsdk-operator", "rules": alert_rules()}]
    return {"alerts.yaml": document({"groups": Commented(groups, note)})}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"dashboards/{name}")


if __name__ == "__main__":
    main()
