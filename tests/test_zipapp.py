"""The console in one file: unpacked once, by any number of starts, for one version of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

MAIN = "import sys\n\n\ndef main():\n    print('started', *sys.argv[1:])\n    return 3\n"


@pytest.fixture
def zipapp(tmp_path: Path) -> Path:
    """Pack a program of two modules, one of which is a stand-in for the console."""
    source = tmp_path / "source" / "tui"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source / "__main__.py").write_text(MAIN)
    target = tmp_path / "dist" / "gpuconsole.pyz"
    words = [sys.executable, str(ROOT / ".ci" / "zipapp.py"), str(source.parent), str(target)]
    subprocess.run(words, check=True)
    return target


def start(zipapp: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(zipapp.parent / "cache")}
    return subprocess.Popen(
        [sys.executable, "-I", str(zipapp), *words],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_unpacks_itself_once_however_often_it_starts_at_once(zipapp: Path) -> None:
    running = [start(zipapp, "list", "-A") for _ in range(4)]
    for each in running:
        out, err = each.communicate()
        assert (each.returncode, out) == (3, "started list -A\n"), err
    again = start(zipapp)
    assert again.communicate() == ("started\n", "")
    (home,) = (zipapp.parent / "cache" / "gpuconsole").iterdir()
    assert home.name.startswith("app-")


def test_a_changed_program_has_a_folder_of_its_own(zipapp: Path) -> None:
    assert start(zipapp).communicate()[0] == "started\n"
    main = zipapp.parent.parent / "source" / "tui" / "__main__.py"
    main.write_text(MAIN.replace("started", "newer"))
    subprocess.run([sys.executable, ROOT / ".ci" / "zipapp.py", main.parents[1], zipapp], check=True)
    assert start(zipapp).communicate()[0] == "newer\n"
