"""Whose a folder is: another user's is refused, as ssh does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8s.errors import KubeError
from k8s.text.home import require_own_folder
from tests.support.second_account import NOBODY, only_root
from tui.__main__ import FAILED, main


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o1777])
def test_an_own_folder_is_used_and_a_missing_one(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    require_own_folder(tmp_path, "XDG_DATA_HOME")
    require_own_folder(tmp_path / "none", "XDG_DATA_HOME")


def test_a_missing_folder_is_judged_by_the_nearest_above(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KubeError, match="open to other users"):
        require_own_folder(tmp_path / "none" / "gpuconsole", "XDG_STATE_HOME")


def test_a_folder_that_every_user_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KubeError, match="open to other users") as caught:
        require_own_folder(tmp_path, "XDG_DATA_HOME")
    assert caught.value.hint == f"Run chmod o-w {tmp_path}, or set XDG_DATA_HOME."


@only_root
@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"])
@pytest.mark.parametrize("command", [["sandbox", "status"], ["sandbox", "start"]], ids=str)
def test_a_folder_of_another_user_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    command: list[str],
) -> None:
    for each in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(each, str(tmp_path / each))
    folder = tmp_path / variable / "gpuconsole"
    folder.mkdir(parents=True)
    os.chown(folder, NOBODY, NOBODY)
    assert main(command) == FAILED
    said = capsys.readouterr().err
    assert f"{folder} belongs to nobody, and gpuconsole runs as root." in said
    assert f"Set {variable} to a folder of your own" in said
    assert list(folder.iterdir()) == []


@only_root
def test_a_sandbox_is_not_made_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)
    assert main(["sandbox", "start"]) == FAILED
    assert f"{tmp_path} belongs to nobody" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
