"""Where a command puts the files that it makes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from appsdk_operator.cli import _frame, _output

TEXTS = {"b.yaml": "b: 1\n", "a.yaml": "a: 1\n"}


@pytest.fixture
def deliver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """A command that makes two files."""
    monkeypatch.chdir(tmp_path)

    @_frame.command("make", examples=("appsdk-operator make",))
    @click.option("--one", is_flag=True)
    @_output.output_options("made")
    def make(one: bool, output: _output.Output) -> int:
        return output.deliver({"a.yaml": TEXTS["a.yaml"]} if one else TEXTS, "letters")

    return make


def call(command: click.Command, *args: str) -> int | None:
    return command.main(args, standalone_mode=False)  # type: ignore[no-any-return]


def test_files_are_written_and_listed(
    deliver: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(deliver) == 0
    assert capsys.readouterr().out == "created   made/a.yaml\ncreated   made/b.yaml\n"
    assert Path("made/a.yaml").read_text() == "a: 1\n"
    assert call(deliver) == 0
    assert capsys.readouterr().out == "2 files in made, all current\n"


def test_check_writes_nothing_and_fails_until_all_is_current(
    deliver: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(deliver, "--check") == 1
    assert not Path("made").exists()
    assert "2 of 2 files in made not current" in capsys.readouterr().err
    call(deliver)
    assert call(deliver, "--check") == 0
    Path("made/a.yaml").write_text("a: 1 # mine\n")
    assert call(deliver, "--check") == 0


def test_a_dry_run_says_what_would_be_written(
    deliver: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(deliver, "--dry-run") == 0
    assert "created   made/a.yaml" in capsys.readouterr().out
    assert not Path("made").exists()


def test_a_conflict_is_a_failure_that_says_what_to_do(
    deliver: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("made").mkdir()
    Path("made/a.yaml").write_text("mine\n")
    assert call(deliver) == 1
    assert "copy what you want from a.yaml.new" in capsys.readouterr().err


def test_a_dash_prints_the_files_as_one_stream(
    deliver: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(deliver, "-o", "-") == 0
    assert capsys.readouterr().out == "---\n# a.yaml\na: 1\n---\n# b.yaml\nb: 1\n"
    assert call(deliver, "-o", "-", "--one") == 0
    assert capsys.readouterr().out == "a: 1\n"
    with pytest.raises(click.UsageError, match="leave out --check"):
        call(deliver, "-o", "-", "--check")


def test_a_folder_that_cannot_be_written_is_an_error_and_no_traceback(
    deliver: click.Command,
) -> None:
    Path("made").write_text("a file")
    with pytest.raises(click.ClickException, match="the files in made"):
        call(deliver)


@pytest.mark.parametrize("names", [("kinds", "_kinds"), ("of_a", "of-a"), ("Kinds", "kinds")])
def test_a_module_of_models_leaves_those_of_like_names_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        assert _frame.run(["models", "--builtin", "core/v1/Pod", "-o", f"{name}.py"]) == 0
    assert {path.stem for path in tmp_path.glob("*.py")} == set(names)
