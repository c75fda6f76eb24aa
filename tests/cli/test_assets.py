"""The binaries of a control plane: which are meant, downloaded, kept and deleted."""

from __future__ import annotations

import http.server
import io
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appsdk_operator import cli
from appsdk_operator.cli._assets import AssetsError, Selector, default_folder, this_platform
from tests.cli.mirror import archive, write_mirror

HERE = this_platform()
NAMES = f"{HERE.os}-{HERE.arch}"
VERSIONS = ("1.35.2", "1.36.1", "1.36.0", "1.36.10", "1.36.9")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folders of versions, where setup-envtest has them."""
    for name in ("ENVTEST_INSTALLED_ONLY", "ENVTEST_USE_ENV", "APPSDK_ASSETS_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return default_folder() / "k8s"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Any]:
    """A mirror with some versions: its folder, the URL of its index, and what was asked for."""
    folder, asked = tmp_path / "mirror", []
    write_mirror(folder, VERSIONS, NAMES)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_request(self, *args: Any) -> None:
            asked.append(self.path)

        def log_message(self, *args: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/envtest-releases.yaml"
        try:
            yield SimpleNamespace(folder=folder, url=url, asked=asked)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("text", "meant", "not_meant"),
    [
        ("1.36.1", ["1.36.1"], ["1.36.0", "1.35.1"]),
        ("1.36", ["1.36.0", "1.36.9"], ["1.35.9", "2.36.0"]),
        ("1.36.x", ["1.36.0", "1.36.10"], ["1.37.0"]),
        ("1.36.*", ["1.36.0"], ["1.3.6"]),
        ("~1.36.2", ["1.36.2", "1.36.10"], ["1.36.1", "1.37.0"]),
        ("~1.36", ["1.36.0"], ["1.35.9", "1.37.0"]),
        ("<1.36", ["1.35.9"], ["1.36.0", "1.36.9"]),
        ("<1.36.2", ["1.36.1", "1.9.20"], ["1.36.2"]),
        ("<=1.36", ["1.36.9", "1.35.0"], ["1.37.0"]),
        ("<=1.36.2", ["1.36.2"], ["1.36.3"]),
        ("latest", ["0.1.2"], []),
        ("", ["1.36.0"], []),
    ],
)
def test_a_version_is_written_as_for_setup_envtest(
    text: str, meant: list[str], not_meant: list[str]
) -> None:
    for suffix in ("", "!") if text not in ("", "latest") else ("",):
        selector = Selector.parse(text + suffix)
        assert selector.asks_index == (suffix == "!" or text in ("", "latest"))
        for number in meant + not_meant:
            major, minor, patch = map(int, number.split("."))
            assert selector.matches((major, minor, patch)) == (number in meant), number


@pytest.mark.parametrize("text", ["1", "v1.36", "1.36.1.2", "1.x", ">1.36", "01.2", "1.36-rc1"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(AssetsError, match=r"give 1\.36\.1"):
        Selector.parse(text)


def test_use_downloads_the_newest_that_fits_once(
    mirror: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["assets", "use", "1.36.x", "--index", mirror.url]) == 0
    folder = store / f"1.36.10-{NAMES}"
    said = capsys.readouterr().out
    assert said == f"Version: 1.36.10\nOS/Arch: {HERE}\nPath: {folder}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())} == {0o555}
    printed = subprocess.run([folder / "etcd"], check=True, capture_output=True, text=True).stdout
    assert printed == "etcd 1.36.10\n"
    before = len(mirror.asked)
    assert cli.main(["assets", "path", "1.36.x", "--index", mirror.url]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert len(mirror.asked) == before


def test_an_installed_version_is_used_until_the_latest_is_asked_for(
    mirror: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["assets", "use", "1.36.0", "--index", mirror.url])
    cli.main(["assets", "use", "1.36", "--index", mirror.url])
    assert [path.name for path in store.iterdir()] == [f"1.36.0-{NAMES}"]
    cli.main(["assets", "use", "1.36!", "--index", mirror.url])
    assert (store / f"1.36.10-{NAMES}").is_dir()
    capsys.readouterr()
    asked = len(mirror.asked)
    assert cli.main(["assets", "path", "--index", mirror.url]) == 0
    assert "1.36.10" in capsys.readouterr().out
    assert mirror.asked[asked:] == ["/envtest-releases.yaml"]


def test_offline_there_is_what_is_installed(
    mirror: Any,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("APPSDK_ASSETS_INDEX", mirror.url)
    assert cli.main(["assets", "use", "-i"]) == 1
    assert "give the index of a mirror" in capsys.readouterr().err
    assert mirror.asked == []
    cli.main(["assets", "use", "1.35"])
    asked = len(mirror.asked)
    monkeypatch.setenv("ENVTEST_INSTALLED_ONLY", "true")
    capsys.readouterr()
    assert cli.main(["assets", "use", "latest", "-p", "env"]) == 0
    assert capsys.readouterr().out == f"export KUBEBUILDER_ASSETS={store / f'1.35.2-{NAMES}'}\n"
    assert cli.main(["assets", "list"]) == 0
    assert capsys.readouterr().out == f"(installed)  v1.35.2  {HERE}\n"
    assert len(mirror.asked) == asked


def test_list_has_what_is_installed_and_what_there_is(
    mirror: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["assets", "use", "1.36.0", "--index", mirror.url])
    capsys.readouterr()
    assert cli.main(["assets", "list", "1.36", "--index", mirror.url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"(installed)  v1.36.0  {HERE}",
        f"(available)  v1.36.10  {HERE}",
        f"(available)  v1.36.9  {HERE}",
        f"(available)  v1.36.1  {HERE}",
        f"(available)  v1.36.0  {HERE}",
    ]
    assert cli.main(["assets", "list", "--index", mirror.url, "--os", "plan9"]) == 0
    assert capsys.readouterr().out == ""


def test_an_archive_with_another_checksum_is_not_installed(
    mirror: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mirror.folder / f"envtest-v1.36.10-{NAMES}.tar.gz"
    path.write_bytes(archive("1.36.11"))
    assert cli.main(["assets", "use", "1.36", "--index", mirror.url]) == 1
    assert "but the index says" in capsys.readouterr().err
    assert not store.exists()


def test_a_mirror_may_be_a_folder(mirror: Any, store: Path) -> None:
    index = str(mirror.folder / "envtest-releases.yaml")
    assert cli.main(["assets", "use", "1.35", "--index", index]) == 0
    assert (store / f"1.35.2-{NAMES}").is_dir()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("releases: 7", "not an index of releases"),
        ("a: [", "not an index of releases"),
        (None, "cannot be read"),
    ],
)
def test_an_index_that_cannot_be_read_is_an_error_that_says_so(
    mirror: Any, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mirror.folder / "envtest-releases.yaml"
    path.unlink()
    if content:
        path.write_text(content)
    assert cli.main(["assets", "use", "--index", mirror.url]) == 1
    text = capsys.readouterr().err
    assert said in text
    assert "urlopen" not in text


def test_a_server_that_cannot_be_reached_is_said_without_the_words_of_urllib(
    refusing_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{refusing_port}/index.yaml"
    assert cli.main(["assets", "use", "--index", url]) == 1
    text = capsys.readouterr().err
    assert f"{url} cannot be read: [Errno " in text
    assert "urlopen" not in text


def test_a_version_that_the_index_has_not_is_named(
    mirror: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["assets", "use", "1.20", "--index", mirror.url]) == 1
    assert "has no version 1.20" in capsys.readouterr().err


def test_cleanup_deletes_the_versions_that_are_named(
    mirror: Any, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in VERSIONS:
        cli.main(["assets", "use", version, "--index", mirror.url])
    (store / "not-a-version").mkdir()
    capsys.readouterr()
    assert cli.main(["assets", "cleanup", "<1.36.10"]) == 0
    assert capsys.readouterr().out.count("removed") == 4
    left = {path.name for path in store.iterdir()}
    assert left == {f"1.36.10-{NAMES}", "not-a-version"}
    with pytest.raises(SystemExit):
        cli.main(["assets", "cleanup"])
    assert {path.name for path in store.iterdir()} == left


@pytest.mark.parametrize("newest", ["latest", "latest-on-disk"])
def test_cleanup_of_the_latest_deletes_the_newest_installed_version_alone(
    store: Path, newest: str
) -> None:
    for version in ("1.35.9", "1.36.1"):
        (store / f"{version}-{NAMES}").mkdir(parents=True)
    assert cli.main(["assets", "cleanup", newest]) == 0
    assert [path.name for path in store.iterdir()] == [f"1.35.9-{NAMES}"]


def sideload(monkeypatch: pytest.MonkeyPatch, content: bytes, *args: str) -> int:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    return cli.main(["assets", "sideload", *args])


def test_an_archive_is_installed_from_standard_input(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        sideload(monkeypatch, archive("1.34.0"), "1.34.0", "--os", "linux", "--arch", "mips") == 0
    )
    assert (store / "1.34.0-linux-mips/etcd").is_file()
    assert sideload(monkeypatch, archive("1.34.0", ["etcd"]), "1.34.1") == 1
    assert "lacks kube-apiserver" in capsys.readouterr().err
    assert sideload(monkeypatch, b"nothing", "1.34.1") == 1
    assert "cannot be unpacked" in capsys.readouterr().err
    assert sideload(monkeypatch, archive("1")[:-40], "1.34.1") == 1
    assert sideload(monkeypatch, archive("1")[:-8] + bytes(8), "1.34.1") == 1
    with pytest.raises(SystemExit):
        sideload(monkeypatch, archive("1"), "1.34")
    assert [path.name for path in store.iterdir()] == ["1.34.0-linux-mips"]


def test_binaries_that_the_environment_names_are_taken_if_they_are_there(
    mirror: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(own))
    assert cli.main(["assets", "path", "1.35", "--use-env", "--index", mirror.url]) == 0
    assert "1.35.2" in capsys.readouterr().out
    for name in ("etcd", "kube-apiserver"):
        (own / name).touch()
    assert cli.main(["assets", "path", "1.35", "--use-env", "--index", mirror.url]) == 0
    assert capsys.readouterr().out == f"{own}\n"


def test_a_download_can_be_forced(mirror: Any, store: Path) -> None:
    cli.main(["assets", "use", "1.35", "--index", mirror.url])
    asked = len(mirror.asked)
    folder = store / f"1.35.2-{NAMES}"
    (folder / "etcd").chmod(0o755)
    (folder / "etcd").write_text("broken")
    assert cli.main(["assets", "use", "1.35", "--force", "--index", mirror.url]) == 0
    assert len(mirror.asked) == asked + 2
    assert "1.35.2" in (folder / "etcd").read_text()
    with pytest.raises(SystemExit):
        cli.main(["assets", "use", "--force", "-i"])
