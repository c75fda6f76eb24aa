"""What errors on demand say: the words of Kubernetes where it has some."""

from __future__ import annotations

from typing import Final

__all__ = ["fault_message"]

_MESSAGES: Final = {
    401: "Unauthorized",
    403: "forbidden by a fault rule",
    409: "the object has been modified; please apply your changes to the latest version and try "
    "again",
    410: "too old resource version",
    429: "the server has received too many requests and has asked us to try again later",
    500: "Internal error occurred: a fault rule said so",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted",
}


def fault_message(status: int) -> str:
    """The message of the ``Status`` that a rule answers with."""
    return _MESSAGES.get(status, f"a fault rule answers {status}")
