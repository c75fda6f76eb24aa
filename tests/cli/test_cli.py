"""The command line."""

from __future__ import annotations

import sys

import pytest

from appsdk_operator import __version__, cli


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_unknown_command_is_refused_with_the_list_of_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["serve"])
    assert exit_.value.code == 2
    assert "apiserver" in capsys.readouterr().err


def test_arguments_that_no_command_knows_are_refused() -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["version", "--nonsense"])
    assert exit_.value.code == 2


def test_the_api_server_command_explains_its_own_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["apiserver", "--help"])
    assert exit_.value.code == 0
    assert "--kubeconfig" in capsys.readouterr().out


def test_without_its_extra_the_api_server_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "appsdk_operator.apiserver.command", raising=False)
    monkeypatch.setitem(sys.modules, "appsdk_operator.apiserver._server", None)
    assert cli.main(["apiserver"]) == 1
    assert "install the extra 'testing'" in capsys.readouterr().err
