"""The command line: how commands are found, explained, refused and completed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from appsdk_operator import __version__, cli
from appsdk_operator.apiserver import command as apiserver
from appsdk_operator.app import ExitStatus
from appsdk_operator.cli import _frame


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def commands() -> Iterator[dict[str, click.Command]]:
    """The commands by name."""
    with click.Context(_frame.program) as context:
        found = {
            name: _frame.program.get_command(context, name)
            for name in _frame.program.list_commands(context)
        }
        yield {name: command for name, command in found.items() if command is not None}


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_the_option_version_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_unknown_command_is_refused_with_the_list_of_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["serve"])
    assert exit_.value.code == 2
    assert "apiserver" in capsys.readouterr().err


def test_no_command_at_all_is_refused_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([])
    assert exit_.value.code == 2
    assert "Serve a Kubernetes API from memory" in capsys.readouterr().err


def test_arguments_that_no_command_knows_are_refused() -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["version", "--nonsense"])
    assert exit_.value.code == 2


def test_the_list_of_commands_says_what_each_is_for(
    commands: dict[str, click.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    listed = shown.partition("Start:")[2].partition("Examples:")[0].splitlines()
    lines = dict(line.split(maxsplit=1) for line in listed if line[:2] == "  " and line[2] != " ")
    assert set(lines) == set(commands)
    assert all(text[0].isupper() for text in lines.values())
    grouped = [name for names in _frame.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(commands), "each command is in one group"
    assert "appsdk-operator run --dev hello.py" in shown


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [("rnu", "did you mean run?"), ("xyzzy", "the commands are add, apiserver, ")],
)
def test_a_command_that_there_is_not_leads_to_those_that_there_are(
    typed: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([typed])
    assert exit_.value.code == 2
    assert f"no such command '{typed}'; {remedy}" in capsys.readouterr().err


def test_each_command_explains_itself_and_its_options(
    commands: dict[str, click.Command], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, command in commands.items():
        assert isinstance(command, _frame.Command)
        assert command.name == name
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{name} {parameter.opts}: without help"
                assert parameter.help.endswith("."), f"{name} {parameter.opts}: no sentence"
        with pytest.raises(SystemExit) as exit_:
            cli.main([name, "--help"])
        assert exit_.value.code == 0
        help_ = capsys.readouterr().out
        assert all(example in help_ for example in command.examples)
        assert all(example.startswith(f"appsdk-operator {name}") for example in command.examples)


def test_a_command_without_an_example_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an example"):
        _frame.command("shy", examples=())


def test_the_api_server_command_explains_its_own_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["apiserver", "--help"])
    assert exit_.value.code == 0
    assert "--kubeconfig" in capsys.readouterr().out


def test_the_module_of_the_api_server_has_the_options_of_the_command(
    commands: dict[str, click.Command],
) -> None:
    parsed = vars(apiserver._parser().parse_args([]))
    assert set(parsed) == {parameter.name for parameter in commands["apiserver"].params}


def test_a_wrong_option_of_the_api_server_ends_it_with_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["apiserver", "--crd", str(tmp_path / "missing.yaml")]) == 1
    assert "the API server was not started" in capsys.readouterr().err


def test_without_its_extra_the_api_server_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "appsdk_operator.apiserver.command", raising=False)
    monkeypatch.setitem(sys.modules, "appsdk_operator.apiserver._server", None)
    assert cli.main(["apiserver"]) == 1
    assert "install the extra 'testing'" in capsys.readouterr().err


def test_without_its_extra_the_command_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['click'] = None\n"
        "from appsdk_operator import cli\n"
        "sys.stderr = sys.stdout\n"
        "print(cli.main(['version']))"
    )
    printed = python(code)
    assert "pip install 'appsdk-operator[cli]'" in printed
    assert printed.endswith("\n1")


@pytest.mark.parametrize(("missing", "extra"), [("jinja2", "cli"), ("aiohttp", "testing")])
def test_a_command_that_lacks_a_package_names_its_extra(
    missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> None:
        raise ModuleNotFoundError(name=missing)

    command = click.Command("version", callback=lacking)
    monkeypatch.setattr("appsdk_operator.cli._commands.version.command", command)
    assert cli.main(["version"]) == 1
    assert f"pip install 'appsdk-operator[{extra}]'" in capsys.readouterr().err


def test_a_module_that_is_missing_for_another_reason_is_not_blamed_on_an_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking() -> None:
        raise ModuleNotFoundError(name="yours")

    command = click.Command("version", callback=lacking)
    monkeypatch.setattr("appsdk_operator.cli._commands.version.command", command)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["version"])


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (click.ClickException("what is wrong"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
    ],
)
def test_the_exit_status_says_how_a_command_ended(
    raised: BaseException, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise raised

    command = click.Command("version", callback=fail)
    monkeypatch.setattr("appsdk_operator.cli._commands.version.command", command)
    assert cli.main(["version"]) == status


def test_a_status_that_a_command_returns_is_that_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = click.Command("version", callback=lambda: 3)
    monkeypatch.setattr("appsdk_operator.cli._commands.version.command", command)
    assert cli.main(["version"]) == 3


def test_output_that_nobody_reads_to_its_end_is_no_traceback() -> None:
    line = f"{sys.executable} -m appsdk_operator completion bash | true"
    done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_package_and_a_command_import_no_more_than_they_need() -> None:
    heavy = ("click", "jinja2", "watchfiles", "appsdk_operator.cli", "appsdk_operator.project")
    code = "import sys, {}; print(*(m for m in {!r} if m in sys.modules))"
    assert python(code.format("appsdk_operator", heavy)) == ""
    assert python(code.format("appsdk_operator.cli", heavy)) == "appsdk_operator.cli"
    listing = (
        "from appsdk_operator import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
    )
    loaded = "import sys; print('LOADED', *(m for m in sys.modules if '_commands.' in m))"
    assert python(listing + loaded).endswith("LOADED")
    others = ("jinja2", "watchfiles", "aiohttp", "yaml", "kubernetes", "appsdk_operator.client")
    ran = "from appsdk_operator import cli; cli.main(['version']); "
    shown = "import sys; print(*(m for m in {!r} if m in sys.modules))"
    assert python(ran + shown.format(others)) == __version__


def test_an_operator_in_a_container_runs_without_the_packages_for_developers(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.py").write_text("from appsdk_operator import App\napp = App('small')\n")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('jinja2', 'textual', 'watchfiles')));"
        "from appsdk_operator import cli;"
        "sys.exit(cli.main(['run', 'small:app', '--kubeconfig', 'nowhere']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitStatus.NOT_STARTED, done.stderr
    assert "small was not started" in done.stderr
    assert "nowhere" in done.stderr


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "appsdk_operator", "version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == __version__


def test_a_shell_is_offered_the_commands_without_importing_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(_frame.COMPLETION_VARIABLE, "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "appsdk-operator ver")
    monkeypatch.setenv("COMP_CWORD", "ver")
    monkeypatch.setitem(sys.modules, "appsdk_operator.cli._commands.version", None)
    assert cli.main([]) == 0
    offered = capsys.readouterr().out
    assert "version" in offered
    assert "apiserver" not in offered


def test_a_shell_is_offered_the_options_of_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(_frame.COMPLETION_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "appsdk-operator apiserver --to")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert cli.main([]) == 0
    assert capsys.readouterr().out.split() == ["plain,--token-file"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_one_that_its_shell_can_read(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{_frame.COMPLETION_VARIABLE}={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_ctrl_c_while_the_command_line_is_imported_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "click":
                raise KeyboardInterrupt

    for name in [each for each in sys.modules if each.split(".")[0] == "click"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "appsdk_operator.cli._frame")
    monkeypatch.delattr(cli, "_frame")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert cli.main(["version"]) == 130
    assert capsys.readouterr().err == ""
