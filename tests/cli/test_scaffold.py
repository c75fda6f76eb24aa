"""The project that init makes: what is in it, what add and update do to it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from appsdk_operator import cli

INIT = [
    *("init", "bucket-operator", "--group", "storage.example.com", "--kind", "Bucket"),
    *("--no-deploy", "--kit", "index"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one kind; the current folder."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(INIT) == 0
    project = tmp_path / "bucket-operator"
    monkeypatch.chdir(project)
    return project


def files(folder: Path) -> set[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if path.parts[0] != ".appsdk-operator"}


def test_init_makes_a_whole_project(folder: Path) -> None:
    assert files(folder) == {
        ".github/workflows/ci.yaml",
        ".gitignore",
        "Makefile",
        "README.md",
        "bucket_operator/__init__.py",
        "bucket_operator/__main__.py",
        "bucket_operator/app.py",
        "bucket_operator/bucket.py",
        "docs/index.md",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/test_app.py",
        "tests/test_bucket.py",
    }
    for name in files(folder):
        text = (folder / name).read_text()
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        assert "{{" not in text.replace("${{", "")


def test_a_project_is_made_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*INIT, "-o", "."]) == 1
    assert "use 'appsdk-operator add'" in capsys.readouterr().err


def test_the_same_words_make_the_same_project(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*INIT, "-o", "again"]) == 0
    assert files(folder) == files(tmp_path / "again")
    for name in files(folder):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_what_was_in_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("mine\n")
    assert cli.main([*INIT, "-o", "."]) == 1
    assert (tmp_path / "README.md").read_text() == "mine\n"
    assert "# bucket-operator" in (tmp_path / "README.md.new").read_text()


@pytest.mark.parametrize(
    "link",
    ["README.md", "tests", "README.md.new", ".appsdk-operator", ".appsdk-operator/scaffold.json"],
)
def test_a_link_that_leads_out_of_the_folder_is_refused_before_anything_is_written(
    link: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / link).parent.mkdir(parents=True)
    outside.mkdir()
    (project / link).symlink_to(outside / "target")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*INIT, "-o", "project"]) == 1
    assert "remove the link" in capsys.readouterr().err
    assert not any(outside.iterdir())
    assert files(project) == set()
    (project / link).unlink()
    assert cli.main([*INIT, "-o", "project"]) == 0


def test_a_file_where_the_folder_should_be_is_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert cli.main([*INIT, "-o", "file"]) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_a_scope_without_a_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["init", "b", "--group", "a.example.com", "--cluster-scoped"]
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "needs a kind: give --kind" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Bucket"], "lower-case"),
        (["secrets"], "cannot be imported"),
        (["class"], "cannot be imported"),
        (["1st-operator"], "cannot be imported"),
        (["yaml"], "which PyYAML has"),
        (["pytest"], "which pytest has"),
        (["b", "--group", "example"], "with a dot"),
        (["b", "--group", "a..example.com"], "DNS"),
        (["b", "--group", "a-.example.com"], "DNS"),
        (["b", "--kind", "bucket"], "CamelCase"),
        (["b", "--kind", "Seen"], "'seen', which is a reserved name"),
        (["b", "--kind", "App"], "'app', which is a reserved name"),
        (["b", "--kind", "Bucket", "--version", "one"], "version"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_one_that_can(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    group = [] if "--group" in words else ["--group", "a.example.com"]
    assert cli.main(["init", *words, *group, "--no-deploy"]) == 1
    assert said in capsys.readouterr().err
    assert files(tmp_path) == set()


def test_add_leaves_edits_and_adds_its_lines(folder: Path) -> None:
    package = folder / "bucket_operator"
    mine = '"""The operator bucket-operator; it is mine."""\n'
    text = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(mine + text.partition("\n")[2])
    (package / "bucket.py").write_text("# all mine\n")
    assert cli.main(["add", "kind", "Volume", "--version", "v1"]) == 0
    merged = (package / "__init__.py").read_text()
    assert merged.startswith(mine)
    assert "from bucket_operator import volume as volume\n" in merged
    assert (package / "bucket.py").read_text() == "# all mine\n"
    assert 'version="v1",' in (package / "volume.py").read_text()
    assert (folder / "tests/test_volume.py").exists()


def test_add_has_a_webhook_and_a_controller_too(folder: Path) -> None:
    for words in (["webhook", "Bucket"], ["controller", "Bucket"], ["controller", "Deployment"]):
        assert cli.main(["add", *words]) == 0
    made = {path for path in files(folder) if "webhooks" in path or "controller" in path}
    assert made == {
        "bucket_operator/bucket_controller.py",
        "bucket_operator/bucket_webhooks.py",
        "bucket_operator/deployment_controller.py",
        "tests/test_bucket_controller.py",
        "tests/test_bucket_webhooks.py",
        "tests/test_deployment_controller.py",
    }
    assert (
        "kinds.apps.v1.Deployment"
        in (folder / "bucket_operator/deployment_controller.py").read_text()
    )


def test_a_kind_may_be_in_no_namespace(folder: Path) -> None:
    assert cli.main(["add", "kind", "Region", "--cluster-scoped"]) == 0
    for part in ("webhook", "controller"):
        assert cli.main(["add", part, "Region"]) == 0
    made = [path for path in files(folder) if "region" in path]
    assert len(made) == 6
    assert "scope=Scope.CLUSTER," in (folder / "bucket_operator/region.py").read_text()
    assert not [path for path in made if "namespace=" in (folder / path).read_text()]
    assert "Scope" not in (folder / "bucket_operator/bucket.py").read_text()


def test_the_order_of_additions_makes_no_difference(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [["kind", "Volume"], ["webhook", "Bucket"], ["controller", "Bucket"]]
    made = []
    for number, order in enumerate(itertools.permutations(parts)):
        monkeypatch.chdir(tmp_path)
        assert cli.main([*INIT, "-o", f"project-{number}"]) == 0
        project = tmp_path / f"project-{number}"
        monkeypatch.chdir(project)
        for words in order:
            assert cli.main(["add", *words]) == 0
        made.append({name: (project / name).read_text() for name in files(project)})
    assert all(each == made[0] for each in made)
    assert len(made[0]) == len(files(folder)) + 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kind", "Bucket"], "already has a kind of Bucket"),
        (["webhook", "Volume"], "add kind Volume"),
        (["controller", "Volume"], "neither the project nor Kubernetes has a kind Volume"),
        (["webhook", "Bucket", "--cluster-scoped"], "has the scope of its kind"),
        (["controller", "TokenReview"], "neither the project nor Kubernetes"),
    ],
)
def test_add_refuses_what_it_cannot_do(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(folder)
    assert cli.main(["add", *words]) == 1
    assert said in capsys.readouterr().err
    assert files(folder) == before


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ([["controller", "Bucket"]], ["kind", "BucketController"]),
        ([["webhook", "Bucket"]], ["kind", "BucketWebhooks"]),
        ([["kind", "BucketController"]], ["controller", "Bucket"]),
        ([["kind", "BucketWebhooks"]], ["webhook", "Bucket"]),
        ([["kind", "HTTPRoute"]], ["kind", "HttpRoute"]),
        ([["kind", "HTTPRoute"], ["controller", "HTTPRoute"]], ["kind", "HTTPRouteController"]),
    ],
)
def test_no_two_parts_have_one_file(
    folder: Path,
    before: list[list[str]],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in before:
        assert cli.main(["add", *each]) == 0
    present = {name: (folder / name).read_bytes() for name in files(folder)}
    assert cli.main(["add", *words]) == 1
    assert "give another name" in capsys.readouterr().err
    assert {name: (folder / name).read_bytes() for name in files(folder)} == present
    assert cli.main(["update"]) == 0, "what was refused is not written down either"


@pytest.mark.parametrize("words", [["add", "kind", "Volume"], ["update"]])
def test_a_folder_without_a_project_is_refused(
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 1
    assert "is not a project of appsdk-operator" in capsys.readouterr().err


def test_update_merges_what_changed_in_a_template_into_an_edited_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, base = folder / ".gitignore", folder / ".appsdk-operator/scaffold/.gitignore.base"
    current = file.read_text()
    older = current.replace("dist/\n", "")
    base.write_text(older)
    file.write_text(older.replace(".venv/", ".venv*/"))
    assert cli.main(["update", "--check"]) == 1
    assert cli.main(["update", "--dry-run"]) == 0
    assert "merged    .gitignore" in capsys.readouterr().out
    assert cli.main(["update"]) == 0
    assert file.read_text() == current.replace(".venv/", ".venv*/")
    assert cli.main(["update", "--check"]) == 0


def test_a_project_of_a_later_kit_is_not_touched(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / ".appsdk-operator/scaffold.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format": 2}))
    assert cli.main(["update"]) == 1
    assert "upgrade appsdk-operator" in capsys.readouterr().err
    path.write_text("{")
    assert cli.main(["update"]) == 1
    assert "scaffold.json" in capsys.readouterr().err
