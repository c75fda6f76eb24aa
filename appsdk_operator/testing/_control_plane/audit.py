"""The audit log of a real API server, in the form of the embedded server's request log."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit

from appsdk_operator.apiserver import LoggedRequest

_METHODS: Final = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}


@final
class AuditLog:
    """A file of audit events, one per line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """The current end of the log."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(self, mark: int = 0) -> list[LoggedRequest]:
        """The requests after a mark, oldest first."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(mark)
            found = []
            for line in file:
                try:
                    event = json.loads(line)
                except ValueError:  # not completely written yet
                    continue
                request = _request(event)
                if request is not None:
                    found.append(request)
        return found


def _request(event: dict[str, Any]) -> LoggedRequest | None:
    verb = str(event.get("verb", ""))
    # One event per request: of a watch the one at its start, else the one at its end.
    if event.get("stage") == "ResponseComplete" and verb == "watch":
        return None
    if event.get("stage") == "ResponseStarted" and verb != "watch":
        return None
    parts = urlsplit(str(event.get("requestURI", "")))
    began = event.get("requestReceivedTimestamp", "")
    user = event.get("impersonatedUser") or event.get("user", {})
    return LoggedRequest(
        _METHODS.get(verb, "GET"),
        parts.path,
        parts.query,
        str(event.get("userAgent", "")),
        int(event.get("responseStatus", {}).get("code", 0)),
        verb=verb,
        namespace=str(event.get("objectRef", {}).get("namespace", "")),
        user=str(user.get("username", "")),
        duration=max(0.0, _seconds(event.get("stageTimestamp", "")) - _seconds(began)),
    )


def _seconds(text: str) -> float:
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
