"""Generated files that people may edit."""

from __future__ import annotations

import enum
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from appsdk_operator.project._merge import merge_texts

_RECORDS: Final = ".appsdk-operator"
_README: Final = """\
The texts that `appsdk-operator` has generated here. It merges what changes in them into your files
by comparing both with these. Commit this folder, and do not edit it.
"""


class FileOutcome(enum.StrEnum):
    """What becomes of a file when it is generated again."""

    CREATED = "created"
    """It was not there."""
    UNCHANGED = "unchanged"
    """Nothing new was generated; what a person edited stays."""
    UPDATED = "updated"
    """Nobody had edited it, and it has the new text."""
    MERGED = "merged"
    """Somebody had edited it; the generator's changes were added to theirs."""
    CONFLICT = "conflict"
    """Somebody had edited the lines that change: it is left alone, the new text is next to it."""
    REMOVED = "removed"
    """It is not generated any more, and nobody had edited it."""
    KEPT = "kept"
    """It is not generated any more, but somebody had edited it: from now on it is theirs."""
    DELETED = "deleted"
    """Somebody deleted it, and it stays deleted."""


@attrs.frozen
class FileChange:
    """What becomes of one file; a value."""

    path: str
    """Relative to the folder, with slashes."""

    outcome: FileOutcome
    """What happens to it."""

    text: str | None = None
    """The text of the file afterwards; None if there is no file."""

    hint: str = ""
    """What a person has to do about it; empty if nothing."""

    @property
    def is_current(self) -> bool:
        """Whether the file is as the generator wants it, but for what a person edited."""
        return self.outcome in (FileOutcome.UNCHANGED, FileOutcome.DELETED)


class GeneratedFiles:
    """The files in a folder that one generator makes, and people edit.

    Nothing that a person edited is lost. The texts that were generated last are kept in the folder
    ``.appsdk-operator``, which belongs into version control. A file that is still as generated is
    replaced. One that was edited gets what has changed between the last text and the new one, by a
    three-way merge of lines. Where both have changed the same lines, the file is left alone, and
    the new text is written to ``NAME.new`` next to it; the conflict is over when that file is
    deleted or moved. A file that somebody deleted stays so, unless all of the generator's are gone.
    A symbolic link to another file of the folder stays a link; nothing is written through one that
    leads out of the folder.

    Not thread-safe; two generators with names of their own may share a folder.

    Args:
        folder: where the files are; it need not exist.
        generator: the name of what makes them: lower-case letters, digits, dashes.

    Raises:
        ValueError: no such name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = GeneratedFiles(folder, "greetings")
    ...     for change in files.write({"hello.txt": "Hello\\n"}):
    ...         print(change.path, change.outcome)
    hello.txt created
    """

    def __init__(self, folder: str | Path, generator: str) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", generator):
            raise ValueError(
                f"generator={generator!r}: use lower-case letters, digits and dashes, and begin "
                "with a letter"
            )
        self._folder = Path(folder)
        self._records = self._folder / _RECORDS / generator

    def plan(self, texts: Mapping[str, str]) -> tuple[FileChange, ...]:
        """What :meth:`write` would do; nothing is written.

        Args:
            texts: the text of each file, by its path in the folder. All files of the generator:
                those that it made before, and that are not among them, go.

        Returns:
            One for each file, by path.

        Raises:
            ValueError: a path leads out of the folder, by itself or by a symbolic link; or it is
                that of a folder.
            OSError: a file cannot be read.
        """
        return tuple(change for change, _, _ in self._decisions(texts))

    def write(self, texts: Mapping[str, str]) -> tuple[FileChange, ...]:
        """Bring the folder up to date; see :meth:`plan`.

        Each file is replaced at once, never left half written. After an interruption the next call
        completes the work.
        """
        decisions = list(self._decisions(texts))
        readme = self._records.parent / "README.md"
        if decisions and _read(_inside(self._folder, readme)) is None:
            write_below(self._folder, readme, _README)
        for change, before, after in decisions:
            places = self._places(change.path)
            # The file comes first: one that has the new text already needs no base.
            for name in ("file", "proposal", "offered", "deleted", "base"):
                text = getattr(after, name)
                if text != getattr(before, name):
                    self._put(places[name], text)
        return tuple(change for change, _, _ in decisions)

    def _decisions(self, texts: Mapping[str, str]) -> Iterator[tuple[FileChange, _State, _State]]:
        """What becomes of each file, with its state before and afterwards."""
        _check(texts)
        recorded = set(self._recorded())
        # Whoever deletes all that was generated wants it anew. What was missed before does not
        # count: else a file that stays away would be back once nothing else is generated.
        all_gone = not any((self._folder / path).exists() for path in recorded) and any(
            _read(self._places(path)["deleted"]) is None for path in recorded
        )
        for path in sorted(recorded | set(texts)):
            places = self._places(path)
            before = _State(**{name: _read(place) for name, place in places.items()})
            known = _State(file=before.file, proposal=before.proposal) if all_gone else before
            outcome, after = _decide(known, texts.get(path))
            hint = _hint(path, outcome, after)
            yield FileChange(path, outcome, after.file, hint), before, after

    def _recorded(self) -> Iterator[str]:
        """The paths of files that were generated before."""
        for record in self._records.rglob("*"):
            if record.suffix in (".base", ".offered", ".deleted"):
                yield record.relative_to(self._records).with_suffix("").as_posix()

    def _places(self, path: str) -> dict[str, Path]:
        places = {
            "file": self._folder / path,
            "proposal": self._folder / f"{path}.new",
            "base": self._records / f"{path}.base",
            "offered": self._records / f"{path}.offered",
            "deleted": self._records / f"{path}.deleted",
        }
        return {name: _inside(self._folder, place) for name, place in places.items()}

    def _put(self, place: Path, text: str | None) -> None:
        if text is not None:
            write_below(self._folder, place, text)
            return
        place.unlink(missing_ok=True)
        for parent in place.parents:
            if parent == self._folder or parent.is_symlink() or any(parent.iterdir()):
                return
            parent.rmdir()


@attrs.frozen(kw_only=True)
class _State:
    """One file and what is recorded of it; None where there is no such file."""

    file: str | None = None
    proposal: str | None = None
    """``NAME.new``."""
    base: str | None = None
    """The text that was generated last, and that the file has, but for what a person edited."""
    offered: str | None = None
    """The text that was written to ``NAME.new``."""
    deleted: str | None = None
    """In place of ``base``, of a file that somebody has deleted and that stays away."""


def _decide(before: _State, new: str | None) -> tuple[FileOutcome, _State]:
    """What becomes of a file whose generated text is now ``new``; None: it is not generated."""
    if before.offered is not None and before.proposal is None:
        # Whoever takes the text away that was offered has dealt with it.
        before = attrs.evolve(before, base=before.offered, offered=None)
    last = before.deleted if before.base is None else before.base
    if last is None and before.file is None:
        last = before.offered  # somebody deleted the file instead of taking a side
    outcome, file = _outcome(before.file, last, new)
    # A text that was offered and then edited is a person's.
    is_ours = before.proposal in (None, before.offered, new)
    if outcome is FileOutcome.CONFLICT:
        after = attrs.evolve(before, proposal=new, offered=new) if is_ours else before
    else:
        proposal = None if is_ours else before.proposal
        if outcome is FileOutcome.DELETED:
            after = _State(file=file, deleted=last, proposal=proposal)
        else:
            after = _State(file=file, base=new, proposal=proposal)
    return outcome, after


def _outcome(file: str | None, base: str | None, new: str | None) -> tuple[FileOutcome, str | None]:
    """What happens to a file, and its text afterwards."""
    if new is None:
        if file is None or file == base:
            return FileOutcome.REMOVED, None
        return FileOutcome.KEPT, file
    if file is None:
        deleted = base is not None
        return (FileOutcome.DELETED, None) if deleted else (FileOutcome.CREATED, new)
    if new in (file, base):
        return FileOutcome.UNCHANGED, file
    if file == base:
        return FileOutcome.UPDATED, new
    merged = merge_texts(base or "", file, new)
    if merged is None:
        return FileOutcome.CONFLICT, file
    return (FileOutcome.UNCHANGED if merged == file else FileOutcome.MERGED), merged


def _hint(path: str, outcome: FileOutcome, after: _State) -> str:
    if outcome is FileOutcome.KEPT:
        return (
            "the generator no longer makes it, but it was edited: delete it if you do not need it"
        )
    if outcome is FileOutcome.DELETED:
        return f"to get it back, delete {_RECORDS}/*/{path}.deleted and generate again"
    if outcome is not FileOutcome.CONFLICT:
        return ""
    if after.proposal != after.offered:
        return f"{path}.new was edited: move it away, and generate again"
    return f"copy what you want from {path}.new, then delete that file"


def _check(texts: Mapping[str, str]) -> None:
    """Refuse paths that lead out of the folder, and those of folders.

    Raises:
        ValueError: naming the path.
    """
    for path in texts:
        pure = PurePosixPath(path)
        if (
            pure.is_absolute()
            or ".." in pure.parts
            or not pure.parts
            or str(pure) != path
            or pure.parts[0] == _RECORDS
        ):
            raise ValueError(
                f"{path!r} is not the path of a generated file: give a relative path without '..', "
                f"outside of {_RECORDS}"
            )
    for path in texts:
        for parent in PurePosixPath(path).parents:
            if str(parent) in texts:
                raise ValueError(
                    f"{path!r} needs the folder {str(parent)!r}, but a file has this path"
                )


def _read(path: Path) -> str | None:
    """A file's text, without loss even if it is not UTF-8; None if there is none."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None


def _inside(folder: Path, path: Path) -> Path:
    """A path below a folder, as it is given.

    Raises:
        ValueError: a symbolic link on its way, or at its end, leads out of the folder or in a
            circle.
    """
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be written: {error}; remove the symbolic link") from error
    if not target.is_relative_to(folder.resolve()):
        raise ValueError(
            f"{path} leads by a symbolic link to {target}, which is not below {folder}, so nothing "
            "was written there: remove the link, or replace it by a file or folder"
        )
    return path


def write_below(folder: Path, path: Path, content: str | bytes) -> None:
    """Give a file below a folder its content at once; a link to it stays one.

    Raises:
        ValueError: a symbolic link leads out of the folder.
        OSError: it cannot be written.
    """
    path = _inside(folder, path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    # One of an interrupted run; or a link, which opening it would follow.
    draft.unlink(missing_ok=True)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    with draft.open("xb") as file:
        file.write(content)
    if path.exists():
        shutil.copymode(path, draft)
    draft.replace(path)
