"""CustomResourceDefinitions of known projects: their classes, and the CRDs of these.

``make crds`` fetches them into Go's module cache, and runs these tests, which take minutes.
"""

from __future__ import annotations

import functools
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator import Client, Kind, Object
from appsdk_operator.project import manifests, models, read_crds
from appsdk_operator.resource import MutableObject, kinds, load_yaml
from appsdk_operator.testing import ControlPlane, MemoryServer, install_crds
from appsdk_operator.testing.strategies import values
from tests.hypothesis_profiles import scaled
from tests.project.model_tools import again, imported, kinds_of, lost
from tests.project.operators import full

if not os.environ.get("REAL_CRDS"):
    pytest.skip("they take minutes: `make crds` runs them", allow_module_level=True)

LEAST = 60
ROOT = Path(__file__).parents[2]
FOLDERS = runpy.run_path(str(ROOT / "hack/real_crds.py"))["folders"]()
RULES_SINCE = 36
DEFINITION = kinds.apiextensions.v1.CustomResourceDefinition


@functools.cache
def crds_of(folder: Path) -> list[dict[str, Any]]:
    """The CRDs in a folder; reading them takes longer than the classes of them."""
    return read_crds(folder)


def all_crds() -> dict[str, dict[str, Any]]:
    return {crd["metadata"]["name"]: crd for folder in FOLDERS for crd in crds_of(folder)}


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    texts = (path.read_text("utf-8") for folder in FOLDERS for path in folder.rglob("*.yaml"))
    count = sum(text.count("\nkind: CustomResourceDefinition\n") for text in texts)
    if count < LEAST:
        pytest.skip(f"{count} of at least {LEAST} CRDs are here: `make crds` fetches them")


@pytest.mark.programs
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: "-".join(one.parts[-5:]))
def test_classes_of_real_crds_are_stable(folder: Path, tmp_path: Path) -> None:
    for crd in crds_of(folder):
        text = models([crd])
        found = again(crd, imported(text, tmp_path))
        assert models([found]) == text, crd["metadata"]["name"]


@pytest.mark.programs
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: "-".join(one.parts[-5:]))
@settings(
    max_examples=scaled(3), deadline=None, suppress_health_check=list(HealthCheck), database=None
)
@given(data=st.data())
def test_objects_of_real_crds_are_read_and_written_without_loss(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    crd = data.draw(st.sampled_from(crds_of(folder)))
    module = imported(models([crd]), tmp_path_factory.mktemp("made"))
    for kind in kinds_of(module).values():
        if kind.spec is not None:
            spec = data.draw(values(schema_of(crd, kind)))
            made = Object.from_dict(kind, {"metadata": {"name": "a"}, "spec": spec})
            assert isinstance(made.spec, kind.spec)
            written = made.mutable_copy()
            written.spec = made.spec
            assert lost(spec, written["spec"]) == []
            # A new object has the fields that the classes know, with their defaults.
            fresh = MutableObject.new(kind, "b", spec=made.spec)
            assert fresh.spec == made.spec


def schema_of(crd: dict[str, Any], kind: Kind[Any, Any]) -> dict[str, Any]:
    found = next(one for one in crd["spec"]["versions"] if one["name"] == kind.version)
    spec: dict[str, Any] = found["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


@pytest.mark.programs
@pytest.mark.timeout(600)
def test_type_checkers_accept_the_classes_of_real_crds(tmp_path: Path) -> None:
    for name, crd in all_crds().items():
        path = tmp_path / f"{name.replace('.', '_').replace('-', '_')}.py"
        path.write_text(models([crd]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.real
@pytest.mark.timeout(600)
def test_a_real_server_accepts_the_crds_of_the_classes(tmp_path: Path) -> None:
    with ControlPlane() as server, Client(server.client_config()) as client:
        if int(client.discovery.server_version().minor) < RULES_SINCE:
            pytest.skip(f"the CRDs use what API servers know from 1.{RULES_SINCE} on")
        refused = {}
        for name, crd in all_crds().items():
            made = again(crd, imported(models([crd]), tmp_path))
            made["metadata"] = {
                key: made["metadata"][key]
                for key in ("name", "annotations")
                if key in made["metadata"]
            }
            made.pop("status", None)
            made["spec"].pop("conversion", None)
            try:
                client.create(Object.from_dict(DEFINITION, made), dry_run=True)
            except Exception as error:
                refused[name] = str(error)[:500]
        assert not refused


THEIRS = {"certificates", "issuers", "prometheusrules", "servicemonitors"}


def test_what_manifests_have_of_other_projects_fits_their_definitions() -> None:
    definitions = [
        crd
        for crd in all_crds().values()
        if crd["spec"]["names"]["plural"] in THEIRS
        and crd["spec"]["group"] in ("cert-manager.io", "monitoring.coreos.com")
    ]
    created = set()
    with MemoryServer().client() as client:
        served = install_crds(client, [MutableObject(DEFINITION, crd) for crd in definitions])
        draft = MutableObject.new(kinds.core.v1.Namespace, "bucket-operator")
        client.create(draft)
        by_name = {(kind.api_version, kind.kind): kind for kind in served}
        for path, text in manifests(full()).items():
            for each in load_yaml(text) if path.endswith(".yaml") else ():
                kind = by_name.get((each.get("apiVersion"), each.get("kind")))
                if kind is not None:
                    client.create(MutableObject(kind, each), field_validation="Strict")
                    created.add(kind.plural)
    assert created == THEIRS
