"""Write what the embedded API server knows of the protobuf form of the built-in kinds.

It needs the machine's Go toolchain: the numbers and types of the fields are read off Kubernetes' Go
types by ``protobuf_messages/main.go``::

    python hack/protobuf_messages.py v0.36.3

The file holds ``kinds``, ``[group, version, kind, message]``, and ``messages``: for each its fields
by number, ``[name in JSON, what it holds, whether JSON leaves a zero out]``.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "appsdk_operator/testing/_server/_protobuf_messages.json.gz"
MODULES = ("client-go", "apiextensions-apiserver", "kube-aggregator", "api", "apimachinery")


def main(release: str) -> None:
    """Write the file for a release of Kubernetes' modules."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder)
        (program / "main.go").write_bytes((HERE / "protobuf_messages/main.go").read_bytes())
        needed = "".join(f"\tk8s.io/{name} {release}\n" for name in MODULES)
        (program / "go.mod").write_text(f"module messages\n\ngo 1.24\n\nrequire (\n{needed})\n")
        for command in (["go", "mod", "tidy"], ["go", "build", "-o", "messages", "."]):
            subprocess.run(command, cwd=folder, check=True)
        printed = subprocess.run([program / "messages"], check=True, stdout=subprocess.PIPE).stdout
    data = {
        "provenance": (
            f"Go types of Kubernetes {release} (Apache License 2.0); "
            "made by hack/protobuf_messages.py"
        ),
        **json.loads(printed),
    }
    packed = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    # The same input gives the same bytes: no time stamp, no name.
    TARGET.write_bytes(gzip.compress(packed, mtime=0))
    sys.stdout.write(f"{TARGET}: {len(data['messages'])} messages\n")


if __name__ == "__main__":
    main(sys.argv[1])
