"""Where a new project gets the kit from."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import appsdk_operator
from appsdk_operator import cli
from appsdk_operator.cli._scaffold.kit import chosen_kit, index_advice, installed_kit

WHEEL = f"appsdk_operator-{importlib.metadata.version('appsdk-operator')}-py3-none-any.whl"
INIT = ["init", "bucket-operator", "--group", "storage.example.com", "--kind", "Bucket"]
GIT = "git+https://example.com/team/kit.git@0123abc"


class Installed:
    """The kit as it would be installed from elsewhere."""

    def __init__(self, **direct_url: Any) -> None:
        self._text = json.dumps(direct_url) if direct_url else None
        self._real = importlib.metadata.distribution("appsdk-operator")
        self.version = self._real.version

    def read_text(self, name: str) -> str | None:
        return self._text if name == "direct_url.json" else self._real.read_text(name)


def source_of(**direct_url: Any) -> str:
    return installed_kit(Installed(**direct_url)).source  # type: ignore[arg-type]


def test_the_default_is_where_the_kit_was_installed_from() -> None:
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": "0123abc"}
    repository = "https://example.com/team/kit.git"
    archive = "https://example.com/appsdk_operator-1-py3-none-any.whl"
    assert source_of() == "index"
    assert source_of(url=repository, vcs_info=vcs) == f"git+{repository}@0123abc"
    assert (
        source_of(url=repository, vcs_info=vcs, subdirectory="kits/python")
        == f"git+{repository}@0123abc#subdirectory=kits/python"
    )
    assert source_of(url=archive, archive_info={}) == archive
    # What is on this machine alone is taken along.
    for url, more in [
        ("file:///home/me/kit", {"dir_info": {"editable": True}}),
        ("file:///home/me/kit", {"dir_info": {}}),
        ("file:///home/me/appsdk_operator-1-py3-none-any.whl", {"archive_info": {}}),
        ("file:///home/me/kit.git", {"vcs_info": vcs}),
    ]:
        kit = installed_kit(Installed(url=url, **more))  # type: ignore[arg-type]
        assert kit.source == f"wheels/{WHEEL}"
        assert kit.wheel


@pytest.mark.parametrize(
    ("direct_url", "source", "remedy"),
    [
        ({}, "", ""),
        (
            {
                "url": "https://example.com/kit.git",
                "vcs_info": {"vcs": "git", "commit_id": "0123abc"},
                "subdirectory": "python",
            },
            "git+https://example.com/kit.git@0123abc#subdirectory=python",
            "give --kit 'git+https://example.com/kit.git@0123abc#subdirectory=python'",
        ),
        (
            {"url": "file:///home/me/a%20kit", "dir_info": {"editable": True}},
            "/home/me/a kit",
            f"--wheel-dir wheels '/home/me/a kit', and give --kit wheels/{WHEEL}",
        ),
        (
            {"url": "file:///me/kit.git", "vcs_info": {"vcs": "git", "commit_id": "0123abc"}},
            "git+file:///me/kit.git@0123abc",
            "pip wheel --no-deps --wheel-dir wheels git+file:///me/kit.git@0123abc, and give",
        ),
        ({"url": "https://me:hunter2@example.com/kit.whl"}, "", "the URL has a password"),
    ],
    ids=["index", "repository", "folder", "repository here", "password"],
)
def test_manifests_say_what_to_do_where_the_image_would_not_find_the_kit_that_runs(
    direct_url: Any,
    source: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed = Installed(**direct_url)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.chdir(tmp_path)
    Path("hello.py").write_text("from appsdk_operator import App\napp = App('hello')\n")

    def said(*words: str) -> str:
        assert cli.main(["manifests", "hello.py:app", *words]) == 0
        return capsys.readouterr().err

    advice = said()
    assert advice.strip() == index_advice()
    assert source in advice
    assert remedy in advice
    assert bool(advice) is bool(direct_url)
    assert "hunter2" not in advice
    for words in (["--check"], ["--helm"], ["--kit", "index"], ["--kit", f"wheels/{WHEEL}"]):
        assert said(*words) == "", words


def test_the_wheel_of_what_is_installed_is_whole_and_each_time_the_same(tmp_path: Path) -> None:
    kits = [installed_kit(Installed(url="file:///x", dir_info={})) for _ in range(2)]  # type: ignore[arg-type]
    assert kits[0].wheel is not None
    assert kits[0].wheel == kits[1].wheel
    path = tmp_path / WHEEL
    path.write_bytes(kits[0].wheel)
    root = Path(appsdk_operator.__file__).parent
    own = {
        f"appsdk_operator/{each.relative_to(root).as_posix()}"
        for each in root.rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
    assert own <= names
    assert {name.rpartition("/")[2] for name in names - own} >= {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt"),
    }


@pytest.mark.programs
def test_pip_installs_the_wheel_and_it_runs(tmp_path: Path) -> None:
    kit = installed_kit(Installed(url="file:///x", dir_info={}))  # type: ignore[arg-type]
    assert kit.wheel is not None
    (tmp_path / WHEEL).write_bytes(kit.wheel)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    for words in (
        [*pip, "--quiet", "--no-deps", "--no-compile", "--target", "there", f"./{WHEEL}[run]"],
        [sys.executable, "-c", "import appsdk_operator as kit; print(kit.__file__)"],
    ):
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "there"), "PATH": "/usr/bin:/bin"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert str(tmp_path / "there") in done.stdout


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("nowhere", "is neither a wheel nor a folder: give index, a wheel"),
        ("other-1.0-py3-none-any.whl", "is not a wheel of appsdk-operator"),
        ("git+https://example.com/kit.git", "has no revision"),
        ("git+https://me:hunter2@example.com/kit.git@v1", "has a password"),
        ("git+https://hunter2@example.com/kit.git@v1", "has a password or a user"),
        ("git+https://example.com/kit.git@v1'$(x)", "has a character that is not allowed"),
        ("https://example.com/kit.git", "is not a package that can be installed"),
        ("http://example.com/appsdk_operator-1-py3-none-any.whl", "is not a package"),
        ("appsdk_operator-1-py3-none-any.whl", "No such file"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_before_anything_is_written(
    given: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*INIT, "--no-deploy", "--kit", given]) == 1
    said = capsys.readouterr().err
    assert text in said
    assert "hunter2" not in said
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "direct_url",
    [
        {
            "url": "https://me:hunter2@example.com/kit.git",
            "vcs_info": {"vcs": "git", "commit_id": "a"},
        },
        {"url": "https://example.com/kit.exe", "archive_info": {}},
        {"url": ""},
    ],
    ids=["password", "file", "empty"],
)
def test_an_installed_source_that_others_cannot_use_is_refused(direct_url: Any) -> None:
    with pytest.raises(ValueError, match="kit") as raised:
        source_of(**direct_url)
    assert "hunter2" not in str(raised.value)


def made(folder: Path, *words: str) -> dict[str, str]:
    """The texts of a project."""
    assert cli.main([*INIT, "-o", str(folder), *words]) == 0
    return texts(folder)


def texts(folder: Path) -> dict[str, str]:
    names = ("pyproject.toml", "Makefile", "README.md", "deploy/Dockerfile")
    return {name: (folder / name).read_text() for name in names if (folder / name).exists()}


def requirements(folder: Path) -> list[str]:
    content = tomllib.loads((folder / "pyproject.toml").read_text())
    listed = [*content["project"]["dependencies"], *content["dependency-groups"]["dev"]]
    return [one for one in listed if one.startswith("appsdk-operator")]


@pytest.mark.programs
def test_everything_in_a_project_has_the_kit_from_one_source(tmp_path: Path) -> None:
    version = importlib.metadata.version("appsdk-operator")
    of_index = made(tmp_path / "index", "--kit", "index")
    assert all(one.endswith(f">={version}") for one in requirements(tmp_path / "index"))
    assert " -r requirements.txt 'appsdk-operator[run]'\n" in of_index["deploy/Dockerfile"]

    of_url = made(tmp_path / "url", "--kit", GIT)
    assert all(one.endswith(f" @ {GIT}") for one in requirements(tmp_path / "url"))
    assert "allow-direct-references = true" in of_url["pyproject.toml"]
    assert f" -r requirements.txt 'appsdk-operator[run] @ {GIT}'\n" in of_url["deploy/Dockerfile"]
    assert "--no-install-recommends git\n" in of_url["deploy/Dockerfile"]

    wheel = tmp_path / WHEEL
    wheel.write_bytes(b"a wheel")
    of_wheel = made(tmp_path / "wheel", "--kit", str(wheel))
    assert (tmp_path / "wheel/wheels" / WHEEL).read_bytes() == b"a wheel"
    assert all(one.endswith(f"=={version}") for one in requirements(tmp_path / "wheel"))
    assert f"install --quiet -e . ./wheels/{WHEEL} --group dev\n" in of_wheel["Makefile"]
    assert f"$ pip install -e . ./wheels/{WHEEL} --group dev\n" in of_wheel["README.md"]
    assert (
        f" -r requirements.txt './wheels/{WHEEL}' './wheels/{WHEEL}[run]'\n"
        in of_wheel["deploy/Dockerfile"]
    )
    for each in (of_index, of_url):
        assert "wheels/" not in "".join(each.values())


def test_the_kit_of_a_project_stays_until_another_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (f"appsdk_operator-{version}-py3-none-any.whl" for version in ("0.0.1", "0.0.2"))
    for name in (old, new):
        (tmp_path / name).write_bytes(name.encode())
    project = tmp_path / "project"
    made(project, "--no-deploy", "--kit", str(tmp_path / old))
    assert f"created   {project}/wheels/{old}\n" in capsys.readouterr().out
    monkeypatch.chdir(project)
    assert cli.main(["add", "kind", "Volume"]) == 0
    assert cli.main(["update", "--check"]) == 0
    assert {one.rpartition("==")[2] for one in requirements(project)} == {"0.0.1"}
    with pytest.raises(SystemExit, match="2"):
        cli.main(["update", "--kit", "index", "--check"])
    assert "leave out --check" in capsys.readouterr().err
    assert cli.main(["update", "--kit", str(tmp_path / new)]) == 0
    assert [path.name for path in (project / "wheels").iterdir()] == [new]
    assert {one.rpartition("==")[2] for one in requirements(project)} == {"0.0.2"}
    assert cli.main(["update", "--kit", "index"]) == 0
    assert not any((project / "wheels").iterdir())
    assert all(">=" in one for one in requirements(project))


def test_a_wheel_that_scaffold_json_names_elsewhere_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    made(project, "--no-deploy", "--kit", "index")
    path = project / ".appsdk-operator/scaffold.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kit": "../mine.whl"}))
    (tmp_path / "mine.whl").write_text("mine")
    monkeypatch.chdir(project)
    assert cli.main(["update", "--kit", "index"]) == 1
    assert "give index, a URL, or the path of a wheel" in capsys.readouterr().err
    assert (tmp_path / "mine.whl").exists()


@pytest.mark.programs
def test_a_folder_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pip could not build a wheel"):
        chosen_kit(str(tmp_path))
