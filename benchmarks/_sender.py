"""Sends one request again and again, the next one when the answer has come.

The first line of standard input says, as JSON, which request, to which port of this machine, and
what each answer contains; each line after it how often. A line of output confirms each of these.
"""

from __future__ import annotations

import json
import socket
import sys


def main() -> None:
    """Send until standard input ends."""
    asked = json.loads(sys.stdin.readline())
    request, wanted = asked["request"].encode(), asked["wanted"].encode()
    with socket.create_connection(("127.0.0.1", asked["port"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sys.stdin:
            for _ in range(int(line)):
                connection.sendall(request)
                answer = connection.recv(65536)
                if wanted not in answer:
                    raise RuntimeError(f"it was answered {answer!r}")
            print("sent", flush=True)


if __name__ == "__main__":
    main()
