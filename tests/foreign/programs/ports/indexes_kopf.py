from typing import Any

import kopf


@kopf.index("pods")
def is_running(name: str, status: kopf.Status, **_: Any) -> dict[str, bool]:
    return {name: status.get("phase") == "Running"}


@kopf.index("pods")
def by_label(name: str, labels: kopf.Labels, **_: Any) -> dict[str, str]:
    return {f"{label}={value}": name for label, value in labels.items()}


@kopf.on.probe()
def pods(is_running: Any = None, **_: Any) -> int:
    return len(is_running)


@kopf.timer("widgets", interval=0.1)
def report(patch: kopf.Patch, is_running: Any = None, by_label: Any = None, **_: Any) -> None:
    patch.status["running"] = sorted(name for name, values in is_running.items() if True in values)
    patch.status["web"] = sorted(by_label.get("app=web", []))
