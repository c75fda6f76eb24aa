"""Fetch CustomResourceDefinitions of known projects, for tests: Go modules with pinned versions.

Go's own client fetches them into the module cache, where the tests read them; nothing is copied::

    make crds
    python hack/real_crds.py --list
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

MODULES = {
    "github.com/argoproj/argo-rollouts@v1.10.2": ("manifests/crds",),
    "github.com/cert-manager/cert-manager@v1.21.2": ("deploy/crds",),
    "github.com/external-secrets/external-secrets@v1.3.2": ("config/crds/bases",),
    "github.com/fluxcd/source-controller@v1.10.1": ("config/crd/bases",),
    "github.com/kedacore/keda/v2@v2.21.0": ("config/crd/bases",),
    "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.7.0": ("config/crd",),
    "github.com/kyverno/kyverno@v1.19.1": (
        "config/crds/kyverno",
        "config/crds/policies.kyverno.io",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd",
    ),
    "knative.dev/serving@v0.51.0": ("config/core/300-resources",),
    "sigs.k8s.io/cluster-api@v1.14.2": (
        "bootstrap/kubeadm/config/crd/bases",
        "controlplane/kubeadm/config/crd/bases",
        "core/config/crd/bases",
    ),
    "sigs.k8s.io/gateway-api@v1.7.0": ("config/crd/standard",),
    "sigs.k8s.io/karpenter@v1.15.0": ("pkg/apis/crds",),
}
"""The modules, and their folders with CRDs."""


def folders() -> list[Path]:
    """The folders with CRDs that are in the module cache."""
    found = [
        _cache() / _escaped(module) / folder
        for module, listed in MODULES.items()
        for folder in listed
    ]
    return [folder for folder in found if folder.is_dir()]


def _cache() -> Path:
    own = os.environ.get("GOMODCACHE")
    path = os.environ.get("GOPATH", "").split(os.pathsep)[0]
    return Path(own) if own else Path(path or Path.home() / "go") / "pkg/mod"


def _escaped(module: str) -> str:
    return re.sub("[A-Z]", lambda found: "!" + found.group().lower(), module)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the folders that are there")
    if not parser.parse_args().list:
        for module in MODULES:
            done = subprocess.run(
                ["go", "mod", "download", "-json", module],
                capture_output=True,
                text=True,
                check=False,
            )
            answer = json.loads(done.stdout or "{}")
            if done.returncode:
                print(f"{module}: {answer.get('Error') or done.stderr}", file=sys.stderr)
                return 1
    print(*folders(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
