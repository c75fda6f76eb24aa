"""Write what the embedded API server knows of the protobuf form of the built-in kinds.

It needs the machine's Go toolchain: the numbers and types of the fields are read off Kubernetes' Go
types by ``protobuf_messages/main.go``::

    python hack/protobuf_messages.py v0.36.3

The file holds ``kinds``, ``[group, version, kind, message]``, and ``messages``: for each its fields
by number, ``[name in JSON, what it holds, whether JSON leaves a zero out]``.
"""

from __future__ import annotations

import sys

from go_types import DATA, told_by, write

TARGET = DATA / "_builtin/protobuf_messages.json.gz"


def main(release: str) -> None:
    """Write the file for a release of Kubernetes' modules."""
    provenance = (
        f"Go types of Kubernetes {release} (Apache License 2.0); made by hack/protobuf_messages.py"
    )
    data = {"provenance": provenance, **told_by("protobuf_messages", release)}
    write(TARGET, data, sort_keys=True)
    print(f"{TARGET}: {len(data['messages'])} messages")


if __name__ == "__main__":
    main(sys.argv[1])
