"""Where a project gets the kit from: an index, a repository, or a wheel in the project itself."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs

import appsdk_operator
from appsdk_operator.cli._progress import Progress

INDEX: Final = "index"
"""The kit is in the index that pip uses."""
_NAME: Final = "appsdk-operator"
_FOLDER: Final = "wheels"
_WHEEL: Final = re.compile(r"appsdk_operator-([A-Za-z0-9.!+_]+)-[A-Za-z0-9._-]+\.whl")
_VCS: Final = re.compile(r"(git|hg|bzr|svn)\+")
_ARCHIVES: Final = (".whl", ".tar.gz", ".zip")
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_CHOICES: Final = (
    "give index, a wheel, a folder with the kit's source, a repository as in "
    "git+https://example.com/kit.git@v1.2, or the https:// address of a wheel"
)


@attrs.frozen
class Kit:
    """A source of the kit, and what has to be taken along for it."""

    source: str
    """``index``, a URL as pip takes it, or the path of a wheel in the project."""
    wheel: bytes | None = attrs.field(default=None, repr=False)
    """The content of that wheel."""


def is_source(source: object) -> bool:
    """Whether a text is a source as :class:`Kit` has it."""
    if not isinstance(source, str):
        return False
    folder, _, name = source.rpartition("/")
    is_wheel = folder == _FOLDER and _WHEEL.fullmatch(name) is not None
    return source == INDEX or is_wheel or "://" in source


def chosen_kit(given: str | None) -> Kit:
    """The source that a user names, or without one that of the kit that runs.

    Raises:
        ValueError: it cannot be used; the text says what can.
        OSError: a file cannot be read.
    """
    if given is None:
        return installed_kit()
    if given == INDEX:
        return Kit(INDEX)
    if _VCS.match(given) or "://" in given:
        return Kit(_checked_url(given))
    path = Path(given)
    if path.is_dir():
        return _built(path)
    if path.suffix != ".whl":
        raise ValueError(f"kit={given!r} is neither a wheel nor a folder: {_CHOICES}")
    if not _WHEEL.fullmatch(path.name):
        raise ValueError(f"kit={given!r} is not a wheel of {_NAME}: {_CHOICES}")
    return Kit(f"{_FOLDER}/{path.name}", path.read_bytes())


def installed_kit(distribution: importlib.metadata.Distribution | None = None) -> Kit:
    """The source that this kit was installed from, as PEP 610 records it.

    What others cannot reach, a path or a repository on this machine, becomes a wheel of what is
    installed.

    Args:
        distribution: the installed kit; default: the one that runs.

    Raises:
        ValueError: it is unknown, or others cannot use it; the text says what to give.
        OSError: a file of it cannot be read.
    """
    installed, found = _record_of(distribution)
    if found is None:
        return Kit(INDEX)
    if _is_local(found):
        return _packed(installed)
    return Kit(_checked_url(_url_of(found)))


def index_advice(distribution: importlib.metadata.Distribution | None = None) -> str:
    """What to do about an image that asks an index for the kit; empty if this kit is from one.

    Args:
        distribution: as for :func:`installed_kit`.
    """
    try:
        installed, found = _record_of(distribution)
        if found is None:
            return ""
        url = _url_of(found)
        if _is_local(found):
            source = url if found.get("vcs_info") else unquote(urlsplit(url).path)
            wheel = f"{_FOLDER}/appsdk_operator-{installed.version}-py3-none-any.whl"
            remedy = (
                f"take a wheel along: pip wheel --no-deps --wheel-dir {_FOLDER} "
                f"{shlex.quote(source)}, and give --kit {wheel}"
            )
        else:
            source = _checked_url(url)
            remedy = f"give --kit {shlex.quote(source)}"
    except ValueError as error:
        return f"the image gets the kit from an index: {error}"
    return (
        "the image gets the kit from an index, unless your pyproject.toml names another source, "
        f"and the one that runs here is from {source}. If no index has it, {remedy}"
    )


def _record_of(
    distribution: importlib.metadata.Distribution | None,
) -> tuple[importlib.metadata.Distribution, dict[str, Any] | None]:
    """The installed kit, and what PEP 610 records of its source; None: it is from an index.

    Raises:
        ValueError: it is unknown; the text says what to give.
    """
    try:
        installed = distribution or importlib.metadata.distribution(_NAME)
        text = installed.read_text("direct_url.json")
        return installed, None if text is None else json.loads(text)
    except (importlib.metadata.PackageNotFoundError, ValueError) as error:
        raise ValueError(
            f"it is unknown where this kit was installed from ({error}): {_CHOICES}"
        ) from error


def _is_local(record: dict[str, Any]) -> bool:
    return urlsplit(str(record.get("url", ""))).scheme == "file"


def _url_of(record: dict[str, Any]) -> str:
    """The URL of a record, as pip takes it."""
    url, vcs = str(record.get("url", "")), record.get("vcs_info") or {}
    if vcs:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if record.get("subdirectory"):
        url += f"#subdirectory={record['subdirectory']}"
    return url


def _checked_url(url: str) -> str:
    """A URL that pip can install from, anywhere, and that names one state of the kit.

    Raises:
        ValueError: the text says what to give.
    """
    from appsdk_operator.project import has_credentials

    if has_credentials(url):  # which would be in files that are committed, and in this text
        raise ValueError(
            "kit: the URL has a password or a user, which would be written into the project's "
            "files: leave it out, and give it to git's credential helper"
        )
    if re.search(r"[\s'\"\\;`$<>|]", url):
        raise ValueError(
            f"kit={url!r} has a character that is not allowed here, such as a space or a quotation "
            f"mark: {_CHOICES}"
        )
    parts = urlsplit(url)
    is_repository = _VCS.match(url) is not None
    if is_repository and "@" not in parts.path:
        raise ValueError(
            f"kit={url!r} has no revision, so two builds may differ: append @ and a tag or a "
            f"commit, {url}@v1.2"
        )
    if not is_repository and not (parts.scheme == "https" and parts.path.endswith(_ARCHIVES)):
        raise ValueError(f"kit={url!r} is not a package that can be installed: {_CHOICES}")
    return url


def _built(folder: Path) -> Kit:
    """A wheel of the source in a folder."""
    with tempfile.TemporaryDirectory() as place:
        words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", place, str(folder.absolute())]
        with Progress("building a wheel of the kit, with pip"):
            done = subprocess.run(  # noqa: S603 - pip of this very environment
                [sys.executable, "-m", "pip", *words], check=False, capture_output=True, text=True
            )
        if done.returncode:
            raise ValueError(
                f"kit={str(folder)!r}: pip could not build a wheel from it: "
                f"{done.stderr.strip()[-1000:]}"
            )
        (wheel,) = Path(place).glob("*.whl")
        return chosen_kit(str(wheel))


def _packed(installed: importlib.metadata.Distribution) -> Kit:
    """A wheel of the installed kit: the same files give the same bytes."""
    version = installed.version
    info = f"appsdk_operator-{version}.dist-info"
    root = Path(appsdk_operator.__file__).parent
    files = {
        f"appsdk_operator/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        text = installed.read_text(name)
        if text is not None:
            files[f"{info}/{name}"] = text.encode()
    head = "Wheel-Version: 1.0\nGenerator: appsdk-operator\nRoot-Is-Purelib: true\n"
    files[f"{info}/WHEEL"] = f"{head}Tag: py3-none-any\n".encode()
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return Kit(f"{_FOLDER}/appsdk_operator-{version}-py3-none-any.whl", packed.getvalue())


def _digest(data: bytes) -> str:
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={found.rstrip(b'=').decode()}"
