"""Generated files that people edit: nothing of theirs is lost, and what is generated arrives."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appsdk_operator.project import FileOutcome, GeneratedFiles
from tests.hypothesis_profiles import scaled

BASE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def files(tmp_path: Path) -> GeneratedFiles:
    return GeneratedFiles(tmp_path, "letters")


def outcomes(files: GeneratedFiles, texts: dict[str, str]) -> dict[str, str]:
    """What a plan says, which is what is done then."""
    planned = files.plan(texts)
    assert files.write(texts) == planned
    return {change.path: str(change.outcome) for change in planned}


def tree(folder: Path) -> dict[str, bytes]:
    """The bytes of each file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_file_that_nobody_edited_follows_its_generator(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    assert outcomes(files, {"a/b.yaml": BASE}) == {"a/b.yaml": "created"}
    assert outcomes(files, {"a/b.yaml": BASE}) == {"a/b.yaml": "unchanged"}
    assert outcomes(files, {"a/b.yaml": "other\n"}) == {"a/b.yaml": "updated"}
    assert (tmp_path / "a/b.yaml").read_text() == "other\n"
    assert outcomes(files, {}) == {"a/b.yaml": "removed"}
    assert not (tmp_path / "a").exists()
    assert outcomes(files, {}) == {}


def test_an_edited_file_gets_the_changes_of_its_generator(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text(BASE.replace("one", "ONE # mine"))
    assert outcomes(files, {"x": BASE}) == {"x": "unchanged"}
    assert outcomes(files, {"x": BASE.replace("four", "FOUR")}) == {"x": "merged"}
    assert (tmp_path / "x").read_text() == "ONE # mine\ntwo\nthree\nFOUR\nfive\n"


def test_an_edit_that_the_generator_takes_over_is_no_conflict(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text(BASE.replace("two", "TWO"))
    assert outcomes(files, {"x": BASE.replace("two", "TWO")}) == {"x": "unchanged"}
    assert outcomes(files, {"x": BASE.replace("two", "2")}) == {"x": "updated"}


def test_a_conflict_leaves_the_file_alone_and_the_new_text_beside_it(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    mine, theirs = BASE.replace("two", "mine"), BASE.replace("two", "theirs")
    (tmp_path / "x").write_text(mine)
    change = files.plan({"x": theirs})[0]
    assert "x.new" in change.hint
    assert not change.is_current
    assert outcomes(files, {"x": theirs}) == {"x": "conflict"}
    assert outcomes(files, {"x": theirs}) == {"x": "conflict"}
    assert (tmp_path / "x").read_text() == mine
    assert (tmp_path / "x.new").read_text() == theirs
    newer = theirs.replace("theirs", "newer")
    assert outcomes(files, {"x": newer}) == {"x": "conflict"}
    assert (tmp_path / "x.new").read_text() == newer


def test_a_conflict_is_over_when_the_new_text_is_deleted(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text(BASE.replace("two", "mine"))
    theirs = BASE.replace("two", "theirs")
    files.write({"x": theirs})
    (tmp_path / "x.new").unlink()
    assert outcomes(files, {"x": theirs}) == {"x": "unchanged"}
    assert outcomes(files, {"x": theirs.replace("five", "5")}) == {"x": "merged"}
    assert (tmp_path / "x").read_text() == "one\nmine\nthree\nfour\n5\n"


def test_a_conflict_is_over_when_the_new_text_is_moved_over_the_file(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text("mine\n")
    files.write({"x": "theirs\n"})
    (tmp_path / "x.new").rename(tmp_path / "x")
    assert outcomes(files, {"x": "theirs\n"}) == {"x": "unchanged"}
    assert outcomes(files, {"x": "newer\n"}) == {"x": "updated"}


def test_a_conflict_is_over_when_the_generator_returns(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text("mine\n")
    files.write({"x": "theirs\n"})
    assert outcomes(files, {"x": BASE}) == {"x": "unchanged"}
    assert not (tmp_path / "x.new").exists()


def test_a_new_text_that_was_edited_is_not_replaced(files: GeneratedFiles, tmp_path: Path) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_text("mine\n")
    files.write({"x": "theirs\n"})
    (tmp_path / "x.new").write_text("mine, too\n")
    change = files.write({"x": "newer\n"})[0]
    assert change.outcome is FileOutcome.CONFLICT
    assert "x.new was edited: move it away" in change.hint
    assert (tmp_path / "x.new").read_text() == "mine, too\n"


def test_a_file_that_was_there_before_is_a_persons(files: GeneratedFiles, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine\n")
    assert outcomes(files, {"x": "theirs\n"}) == {"x": "conflict"}
    assert (tmp_path / "x").read_text() == "mine\n"


def test_a_file_that_is_no_text_is_left_as_it_is(files: GeneratedFiles, tmp_path: Path) -> None:
    files.write({"x": BASE})
    (tmp_path / "x").write_bytes(b"\xff\xfe\n" + BASE.encode())
    assert outcomes(files, {"x": BASE.replace("five", "5")}) == {"x": "merged"}
    assert (tmp_path / "x").read_bytes() == b"\xff\xfe\n" + BASE.replace("five", "5").encode()


def test_an_edited_file_that_is_not_generated_any_more_becomes_a_persons(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE, "y": BASE})
    (tmp_path / "x").write_text("mine\n")
    assert outcomes(files, {"y": BASE}) == {"x": "kept", "y": "unchanged"}
    assert outcomes(files, {"y": BASE}) == {"y": "unchanged"}
    assert (tmp_path / "x").read_text() == "mine\n"


def test_a_file_that_somebody_deleted_stays_deleted(files: GeneratedFiles, tmp_path: Path) -> None:
    files.write({"x": BASE, "y": BASE})
    (tmp_path / "x").unlink()
    assert outcomes(files, {"x": "new\n", "y": BASE}) == {"x": "deleted", "y": "unchanged"}
    assert not (tmp_path / "x").exists()
    (tmp_path / ".appsdk-operator/letters/x.deleted").unlink()
    assert outcomes(files, {"x": "new\n", "y": BASE}) == {"x": "created", "y": "unchanged"}


def test_who_deletes_a_file_of_their_own_in_a_conflict_gets_none_in_its_place(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("mine\n")
    assert outcomes(files, {"x": "generated\n", "y": BASE})["x"] == "conflict"
    (tmp_path / "x").unlink()
    for text in ("other\n", "generated\n"):
        assert outcomes(files, {"x": text, "y": BASE}) == {"x": "deleted", "y": "unchanged"}
        assert not (tmp_path / "x").exists()
        assert not (tmp_path / "x.new").exists()


def test_whoever_deletes_all_of_them_gets_all_of_them_anew(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE, "y": BASE})
    (tmp_path / "x").unlink()
    (tmp_path / "y").unlink()
    assert outcomes(files, {"x": BASE, "y": BASE}) == {"x": "created", "y": "created"}


def test_a_deleted_file_stays_away_also_as_the_only_one_that_is_generated(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": BASE, "y": BASE})
    (tmp_path / "y").unlink()
    for _ in range(3):
        assert outcomes(files, {"y": BASE})["y"] == "deleted"
    assert outcomes(files, {"x": BASE, "y": BASE}) == {"x": "created", "y": "deleted"}
    (tmp_path / "x").unlink()
    assert outcomes(files, {"x": BASE, "y": BASE}) == {"x": "created", "y": "created"}


def test_a_deleted_file_that_comes_back_is_merged_as_before(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"x": "1\n2\n3\n", "y": ""})
    (tmp_path / "x").unlink()
    files.write({"x": "1\n2\n3\n", "y": ""})
    (tmp_path / "x").write_text("mine\n2\n3\n")
    files.write({"x": "1\n2\nnew\n", "y": ""})
    assert (tmp_path / "x").read_text() == "mine\n2\nnew\n"


def test_generators_in_one_folder_leave_each_others_files_alone(tmp_path: Path) -> None:
    GeneratedFiles(tmp_path, "one").write({"x": BASE})
    GeneratedFiles(tmp_path, "two").write({"y": BASE})
    assert [str(c.outcome) for c in GeneratedFiles(tmp_path, "two").write({})] == ["removed"]
    assert (tmp_path / "x").read_text() == BASE


def test_a_plan_writes_nothing(files: GeneratedFiles, tmp_path: Path) -> None:
    files.plan({"x": BASE})
    assert tree(tmp_path) == {}


def test_a_replaced_file_keeps_its_mode_and_a_link_stays_one(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    files.write({"run.sh": "a\n"})
    (tmp_path / "run.sh").rename(tmp_path / "real.sh")
    (tmp_path / "real.sh").chmod(0o755)
    (tmp_path / "run.sh").symlink_to("real.sh")
    files.write({"run.sh": "b\n"})
    assert (tmp_path / "run.sh").is_symlink()
    assert (tmp_path / "real.sh").read_text() == "b\n"
    assert (tmp_path / "real.sh").stat().st_mode & 0o777 == 0o755


LINKS = [
    "x",  # the file itself
    "a",  # the folder that it is in
    "x.new",
    ".appsdk-operator",
    ".appsdk-operator/README.md",
    ".appsdk-operator/letters",
    ".appsdk-operator/letters/x.base",
]


@pytest.mark.parametrize("exists", [False, True], ids=["dangling", "existing"])
@pytest.mark.parametrize("link", LINKS)
def test_nothing_is_read_written_or_deleted_through_a_link_out_of_the_folder(
    link: str, exists: bool, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    files = GeneratedFiles(inside, "letters")
    place, target = inside / link, outside / "target"
    place.parent.mkdir(parents=True)
    outside.mkdir()
    if exists:
        is_folder = "." not in link.rpartition("/")[2].lstrip(".") and link != "x"
        if is_folder:
            target.mkdir()
            (target / "y").write_text(BASE)
        else:
            target.write_text("theirs\n")
    place.symlink_to(target)
    before = tree(outside)
    for texts in ({"x": BASE, "a/y": BASE}, {"x": "other\n", "a/y": "other\n"}):
        for act in (files.plan, files.write):
            if link == ".appsdk-operator/README.md" and act == files.plan:
                continue  # which it does not touch
            with pytest.raises(ValueError, match=r"remove the (symbolic )?link"):
                act(texts)
    assert tree(outside) == before
    assert target.exists() == exists
    place.unlink()
    assert outcomes(files, {"x": BASE, "a/y": BASE}) == {"x": "created", "a/y": "created"}


def test_links_in_a_circle_are_refused(files: GeneratedFiles, tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises((ValueError, OSError), match="x"):
        files.write({"x": BASE})


def test_what_an_interruption_left_is_replaced_even_if_it_is_a_link(
    files: GeneratedFiles, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / ".x.draft").symlink_to("mine")
    assert outcomes(files, {"x": BASE}) == {"x": "created"}
    assert (tmp_path / "mine").read_text() == "mine\n"
    assert not (tmp_path / "x").is_symlink()
    assert not (tmp_path / ".x.draft").exists()


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = GeneratedFiles(tmp_path / "link", "letters")
    assert outcomes(files, {"a/x": BASE}) == {"a/x": "created"}
    assert (tmp_path / "real/a/x").read_text() == BASE


def test_a_link_to_a_folder_stays_when_its_last_file_goes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = GeneratedFiles(tmp_path, "letters")
    files.write({"link/x": BASE, "y": BASE})
    assert outcomes(files, {"y": BASE}) == {"link/x": "removed", "y": "unchanged"}
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../x", "", ".", "a//b", "./a", ".appsdk-operator/x"]
)
def test_a_path_out_of_the_folder_is_refused(files: GeneratedFiles, path: str) -> None:
    with pytest.raises(ValueError, match="give a relative path"):
        files.write({"x": BASE, path: BASE})


def test_a_file_where_a_folder_is_needed_is_refused(files: GeneratedFiles) -> None:
    with pytest.raises(ValueError, match="needs the folder 'a', but a file has this path"):
        files.plan({"a": BASE, "a/b": BASE})


def test_a_name_that_is_no_name_of_a_generator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use lower-case letters"):
        GeneratedFiles(tmp_path, "../x")


PATHS = ("a", "b/c")
GENERATED = st.dictionaries(
    st.sampled_from(PATHS), st.lists(st.integers(0, 7), unique=True, max_size=8).map(sorted)
)


class Editing(RuleBasedStateMachine):
    """A person and a generator at work on the same files.

    Each line of a person is unique, and each line of the generator has its place in an order, so
    that it can be said of each line whether it has to be there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)
        self.files = GeneratedFiles(self.root, "g")
        self.generated: dict[str, list[str]] = {}
        # What the person wants in and out of each file, NAME.new among them.
        self.added: dict[str, set[str]] = {}
        self.cut: dict[str, set[str]] = {}
        self.deleted: set[str] = set()
        self.noticed: set[str] = set()
        """Those that were missing when the generator ran."""
        self.count = 0

    def teardown(self) -> None:
        self._folder.cleanup()

    def lines(self, path: str) -> list[str]:
        return (self.root / path).read_text().splitlines(keepends=True)

    @rule(texts=GENERATED)
    def generate(self, texts: dict[str, list[int]]) -> None:
        before = self.generated
        lines = {path: [f"line {n}\n" for n in numbers] for path, numbers in texts.items()}
        self.generated = lines
        # Whoever deletes everything at once wants it anew.
        all_gone = not any((self.root / path).exists() for path in before)
        all_gone = all_gone and not set(before) <= self.noticed
        changes = self.files.write({path: "".join(text) for path, text in lines.items()})
        for change in changes:
            path = change.path
            if path in self.deleted:
                if not all_gone and path in before and path in lines:
                    assert change.outcome is FileOutcome.DELETED
                else:
                    self.deleted.discard(path)
            # A line that was not generated for a while may come again.
            self.cut[path] = {
                line for line in self.cut.get(path, ()) if line in lines.get(path, ())
            }
            if change.outcome in (FileOutcome.CREATED, FileOutcome.UPDATED):
                self.cut[path] = set()
                assert self.lines(path) == lines[path]
        self.noticed = {c.path for c in changes if c.outcome is FileOutcome.DELETED}
        settled = tree(self.root)
        again = self.files.write({path: "".join(text) for path, text in lines.items()})
        assert tree(self.root) == settled
        for change in again:
            assert change.is_current or change.outcome is FileOutcome.CONFLICT

    @rule(path=st.sampled_from([*PATHS, "a.new", "b/c.new"]), at=st.integers(0, 8))
    def add(self, path: str, at: int) -> None:
        place = self.root / path
        if place.exists():
            self.count += 1
            line = f"mine {self.count}\n"
            lines = self.lines(path)
            lines.insert(at, line)
            place.write_text("".join(lines))
            self.added.setdefault(path, set()).add(line)

    @rule(path=st.sampled_from(PATHS), at=st.integers(0, 8))
    def cut_out(self, path: str, at: int) -> None:
        if (self.root / path).exists():
            lines = self.lines(path)
            if at < len(lines):
                line = lines.pop(at)
                (self.root / path).write_text("".join(lines))
                self.added.get(path, set()).discard(line)
                self.cut.setdefault(path, set()).add(line)

    @rule(path=st.sampled_from([*PATHS, "a.new", "b/c.new"]))
    def delete(self, path: str) -> None:
        if (self.root / path).exists():
            (self.root / path).unlink()
            self.added.pop(path, None)
            self.cut.pop(path, None)
            if path in self.generated:
                self.deleted.add(path)

    @invariant()
    def what_the_person_added_is_there(self) -> None:
        for path, lines in self.added.items():
            if lines:
                assert lines <= set(self.lines(path))

    @invariant()
    def what_the_person_cut_out_is_not(self) -> None:
        for path, lines in self.cut.items():
            if (self.root / path).exists():
                assert not lines & set(self.lines(path))

    @invariant()
    def what_the_person_deleted_is_not_there(self) -> None:
        for path in self.deleted:
            assert not (self.root / path).exists()


TestEditing = Editing.TestCase
TestEditing.settings = settings(max_examples=scaled(25), stateful_step_count=12, deadline=None)


TEXT = st.lists(st.integers(0, 7), max_size=8).map(lambda ns: "".join(f"{n}\n" for n in ns))
TEXTS = st.dictionaries(st.sampled_from(["a", "b", "c/d"]), TEXT)


@given(first=TEXTS, edits=TEXTS, second=TEXTS)
@settings(max_examples=scaled(20))
def test_the_same_history_gives_the_same_folder(
    first: dict[str, str], edits: dict[str, str], second: dict[str, str]
) -> None:
    def play(order: int) -> Any:
        with tempfile.TemporaryDirectory() as name:
            files = GeneratedFiles(name, "g")
            files.write(dict([*first.items()][::order]))
            for path in edits.keys() & first.keys():
                (Path(name) / path).write_text(edits[path])
            return files.write(dict([*second.items()][::order])), tree(Path(name))

    assert play(1) == play(-1)


@given(first=TEXTS, edits=TEXTS, second=TEXTS, writes=st.integers(0, 6))
@example(first={"a": "1\n"}, edits={"a": "2\n"}, second={"a": "3\n"}, writes=1)
@settings(max_examples=scaled(30))
def test_an_interrupted_write_is_completed_by_the_next(
    first: dict[str, str], edits: dict[str, str], second: dict[str, str], writes: int
) -> None:
    def play(interrupted: bool) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            files = GeneratedFiles(name, "g")
            files.write(first)
            for path in edits.keys() & first.keys():
                (Path(name) / path).write_text(edits[path])
            if interrupted:
                put, left = GeneratedFiles._put, iter(range(writes))

                def some(self: GeneratedFiles, place: Path, text: str | None) -> None:
                    next(left)
                    put(self, place, text)

                patch.setattr(GeneratedFiles, "_put", some)
                with pytest.raises(StopIteration) if writes < wanted(files) else nullcontext():
                    files.write(second)
                patch.setattr(GeneratedFiles, "_put", put)
            files.write(second)
            return tree(Path(name))

    def wanted(files: GeneratedFiles) -> int:
        return sum(
            getattr(before, name) != getattr(after, name)
            for _, before, after in files._decisions(second)
            for name in ("file", "proposal", "offered", "base")
        )

    assert play(interrupted=True) == play(interrupted=False)
