"""The binaries of a control plane on this machine, in the layout of setup-envtest.

A store has a folder ``k8s/VERSION-OS-ARCH`` with ``etcd``, ``kube-apiserver`` and ``kubectl`` for
each version; setup-envtest and this module can share one. Versions that are not there come from an
index, a file such as controller-tools' ``envtest-releases.yaml``, and are checked by their SHA-512.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import attrs
import yaml

from appsdk_operator.cli._progress import Progress

PROGRAMS: Final = ("etcd", "kube-apiserver")
"""What a folder needs to be of use; kubectl is not needed by tests."""
_VERSION: Final = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
_NAME: Final = re.compile(rf"{_VERSION}-(\w+)-(\w+)")
_ARCHIVE: Final = re.compile(rf"envtest-v{_VERSION}-(\w+)-(\w+)\.tar\.gz")
_SELECTOR: Final = re.compile(r"(<=|<|~)?(0|[1-9]\d*)\.(0|[1-9]\d*)(?:\.(0|[1-9]\d*|x|\*))?(!)?")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT: Final = 60.0
"""Seconds without a byte from a mirror."""
_BLOCK: Final = 1 << 20

Version = tuple[int, int, int]


class AssetsError(Exception):
    """Binaries that cannot be had; the text says what to do."""


@attrs.frozen(order=True)
class Platform:
    """An operating system and an architecture, as Go names them; ``*`` means any."""

    os: str
    arch: str

    def matches(self, other: Platform) -> bool:
        """Whether the other is one of these."""
        return self.os in ("*", other.os) and self.arch in ("*", other.arch)

    def __str__(self) -> str:
        return f"{self.os}/{self.arch}"


@attrs.frozen
class Item:
    """The binaries of a version for a platform."""

    version: Version
    platform: Platform

    @property
    def folder(self) -> str:
        """The name of its folder in a store."""
        return f"{self.number}-{self.platform.os}-{self.platform.arch}"

    @property
    def number(self) -> str:
        """Its version as text."""
        return ".".join(map(str, self.version))

    @classmethod
    def named(cls, name: str, pattern: re.Pattern[str] = _NAME) -> Item | None:
        """The item of a folder's name."""
        match = pattern.fullmatch(name)
        if match is None:
            return None
        major, minor, patch, system, architecture = match.groups()
        return cls((int(major), int(minor), int(patch)), Platform(system, architecture))


@attrs.frozen
class Archive:
    """Binaries that an index has."""

    item: Item
    url: str
    sha512: str


@attrs.frozen
class Selector:
    """Which versions are meant, in setup-envtest's notation.

    ``1.36.1``; ``1.36``, ``1.36.x``, ``1.36.*``: any patch; ``~1.36.2``: that patch or a later one;
    ``<1.36``, ``<=1.36.1``: older ones; ``latest`` or nothing: any. A ``!`` at the end asks the
    index for the latest of them, even if one is installed; so does ``latest``.
    """

    text: str
    matches: Callable[[Version], bool]
    asks_index: bool = False
    exact: Version | None = None

    @classmethod
    def parse(cls, text: str) -> Selector:
        """The versions that a text means.

        Raises:
            AssetsError: it means none.
        """
        if text in ("", "latest"):
            return cls("latest", _any, asks_index=True)
        if text == "latest-on-disk":
            return cls(text, _any)
        match = _SELECTOR.fullmatch(text)
        if match is None:
            raise AssetsError(
                f"{text!r} is not a version: give 1.36.1, 1.36 or 1.36.x, ~1.36.1, <1.36, "
                "<=1.36.1, or latest"
            )
        sign, major, minor, patch, latest = match.groups()
        release = (int(major), int(minor))
        point = int(patch) if patch not in (None, "x", "*") else None
        base = (*release, point or 0)
        if sign == "~":
            return cls(text, lambda v: v[:2] == release and v >= base, bool(latest))
        if sign == "<":
            older = (lambda v: v[:2] < release) if point is None else (lambda v: v < base)
            return cls(text, older, bool(latest))
        if sign == "<=":
            older = (lambda v: v[:2] <= release) if point is None else (lambda v: v <= base)
            return cls(text, older, bool(latest))
        if point is None:
            return cls(text, lambda v: v[:2] == release, bool(latest))
        return cls(text, lambda v: v == base, bool(latest), base)


def _any(_: Version) -> bool:
    return True


def fits(item: Item, selector: Selector, wanted: Platform) -> bool:
    """Whether an item is one of those that are wanted."""
    return selector.matches(item.version) and wanted.matches(item.platform)


def this_platform() -> Platform:
    """The platform of this machine."""
    machine = platform.machine().lower()
    return Platform(sys.platform, _ARCHITECTURES.get(machine, machine))


def default_folder() -> Path:
    """The store of setup-envtest."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library/Application Support/io.kubebuilder.envtest"
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else home / ".local/share") / "kubebuilder-envtest"


class Store:
    """The binaries that are installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "k8s"

    def items(self, selector: Selector, wanted: Platform) -> list[Item]:
        """Those that are installed, newest first."""
        names = [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []
        found = [item for item in map(Item.named, names) if item and fits(item, selector, wanted)]
        return sorted(found, key=_newest_first)

    def path(self, item: Item) -> Path:
        """The folder of an item."""
        return (self._folder / item.folder).absolute()

    def add(self, item: Item, archive: IO[bytes]) -> None:
        """Unpack an archive; what was there of the item is replaced.

        The item appears at once, so that another process never sees a part of it.

        Raises:
            AssetsError: it is not an archive of such binaries.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{item.folder}-", dir=self._folder))
        try:
            _unpack(archive, draft)
            missing = [name for name in PROGRAMS if not (draft / name).is_file()]
            if missing:
                raise AssetsError(f"the archive lacks {' and '.join(missing)}")
            draft.chmod(0o755)
            self.remove(item)
            try:
                draft.rename(self.path(item))
            except OSError:
                # Another process was first, with the same binaries.
                if not self.path(item).is_dir():
                    raise
            # Binaries do not change; as setup-envtest leaves them.
            self.path(item).chmod(0o555)
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise AssetsError(f"the archive cannot be unpacked: {error}") from error
        finally:
            _remove(draft)

    def remove(self, item: Item) -> None:
        """Delete an item, if it is installed."""
        _remove(self.path(item))


def read_index(index: str) -> list[Archive]:
    """The archives of an index, newest first.

    Args:
        index: an ``http``, ``https`` or ``file`` URL, or a path. A ``selfLink`` in it may be
            relative to it.

    Raises:
        AssetsError: it cannot be read.
    """
    url = index if urllib.parse.urlsplit(index).scheme else Path(index).absolute().as_uri()
    try:
        with _opened(url) as answer:
            content: Any = yaml.safe_load(answer.read())
        found = [
            Archive(item, urllib.parse.urljoin(url, archive["selfLink"]), archive["hash"])
            for release in content["releases"].values()
            for name, archive in release.items()
            if (item := Item.named(name, _ARCHIVE))
        ]
    except (AttributeError, KeyError, TypeError, yaml.YAMLError) as error:
        raise AssetsError(
            f"{index} is not an index of releases like envtest-releases.yaml: {error!r}"
        ) from error
    return sorted(found, key=lambda archive: _newest_first(archive.item))


def download(archive: Archive, store: Store) -> None:
    """Install what an index has.

    Raises:
        AssetsError: it cannot be read, or its checksum is not that of the index.
    """
    digest = hashlib.sha512()
    what = f"downloading the binaries of {archive.item.number} for {archive.item.platform}"
    with tempfile.TemporaryFile() as file:
        with _opened(archive.url) as answer, Progress(what) as progress:
            length = str(answer.headers.get("Content-Length") or "")
            total = f" of {int(length) / 1e6:,.0f}" if length.isdecimal() else ""
            while block := answer.read(_BLOCK):
                digest.update(block)
                file.write(block)
                progress.detail = f"{file.tell() / 1e6:,.0f}{total} MB"
        if digest.hexdigest() != archive.sha512.lower():
            raise AssetsError(
                f"the checksum of {archive.url} is {digest.hexdigest()}, but the index says "
                f"{archive.sha512}: try again; if that does not help, use another mirror"
            )
        file.seek(0)
        with Progress(f"unpacking the binaries of {archive.item.number}"):
            store.add(archive.item, file)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Any]:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
        raise AssetsError(f"{url} is not an http, https or file URL")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:  # noqa: S310 - see above
            yield answer
    except (OSError, http.client.HTTPException) as error:
        # urllib puts its own words around what went wrong.
        reason = str(error.reason if type(error) is urllib.error.URLError else error)
        raise AssetsError(
            f"{url} cannot be read: {reason}; check the index, or use an installed version with "
            "--installed"
        ) from error


def _newest_first(item: Item) -> tuple[tuple[int, ...], Platform]:
    return tuple(-number for number in item.version), item.platform


def _unpack(archive: IO[bytes], folder: Path) -> None:
    """The files of an archive, whatever folders they are in there."""
    with gzip.open(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as packed:
            for member in packed:
                content = packed.extractfile(member) if member.isreg() else None
                name = Path(member.name).name
                if content is None or not name:
                    continue
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
                (folder / name).chmod(member.mode & 0o555 | 0o400)
        # To the end, where the checksum of what was unpacked is.
        while stream.read(_BLOCK):
            pass


def _remove(folder: Path) -> None:
    if folder.is_dir():
        folder.chmod(0o755)
        shutil.rmtree(folder)
