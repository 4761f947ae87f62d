"""The console in one file, unpacked once by any number of starts; and as a plugin that krew installs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

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


def test_the_zipapp_unpacks_once_despite_concurrent_starts(zipapp: Path) -> None:
    running = [start(zipapp, "list", "-A") for _ in range(4)]
    for each in running:
        out, err = each.communicate()
        assert (each.returncode, out) == (3, "started list -A\n"), err
    again = start(zipapp)
    assert again.communicate() == ("started\n", "")
    (home,) = (zipapp.parent / "cache" / "gpuconsole").iterdir()
    assert home.name.startswith("app-")


def test_a_changed_zipapp_unpacks_into_a_folder_of_its_own(zipapp: Path) -> None:
    assert start(zipapp).communicate()[0] == "started\n"
    main = zipapp.parent.parent / "source" / "tui" / "__main__.py"
    main.write_text(MAIN.replace("started", "newer"))
    subprocess.run([sys.executable, ROOT / ".ci" / "zipapp.py", main.parents[1], zipapp], check=True)
    assert start(zipapp).communicate()[0] == "newer\n"


def test_the_krew_archive_matches_its_manifest(zipapp: Path, tmp_path: Path) -> None:
    words = [str(zipapp), str(ROOT / "LICENSE"), "0.3.0", "https://example.com/v0.3.0/"]
    subprocess.run([sys.executable, ROOT / ".ci" / "krew.py", *words], check=True)
    manifest = yaml.safe_load((zipapp.parent / "gpuconsole.yaml").read_text())
    assert (manifest["kind"], manifest["metadata"]) == ("Plugin", {"name": "gpuconsole"})
    assert re.fullmatch(r"v\d+\.\d+\.\d+", manifest["spec"]["version"])
    assert len(manifest["spec"]["shortDescription"]) <= 50, "krew's limit"
    (release,) = manifest["spec"]["platforms"]
    archive = zipapp.parent / release["uri"].rpartition("/")[2]
    assert release["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    # As krew does: extract the files, and link the program under the plugin's name.
    with tarfile.open(archive) as packed:
        assert packed.getnames() == [each["from"] for each in release["files"]]
        packed.extractall(tmp_path / "store", filter="data")
    plugin = tmp_path / "kubectl-gpuconsole"
    plugin.symlink_to(tmp_path / "store" / release["bin"])
    assert os.access(plugin, os.X_OK)
    assert start(plugin, "list").communicate() == ("started list\n", "Unpacking gpuconsole, once.\n")
