"""Files of the user are refused in plain words if hostile: no reader hangs, fills the memory or crashes."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import themes
from k8s.client.auth.cluster_config import load
from k8s.client.auth.kubeconfig import merge
from k8s.kinds.job_spec import ConfigFile, JobSpec
from k8s.text.errors import KubeError
from tests.k8s.client.test_cluster_config import config, write
from tui.draft.job_files import read_job_files
from tui.draft.job_templates import every_template
from tui.draft.manifest_yaml import read_job, read_manifest, read_manifests
from tui.screens import ACTIONS, VIEWS, key_table
from tui.screens.documents import form_files
from tui.settings.config_file import read_config
from tui.settings.keys_file import read_keys
from tui.settings.local_folder import FolderError, pack_folder
from tui.settings.plugins_file import read_plugins


def _placed(path: Path, name: str) -> Path:
    """Return a folder of its own that has the file under a name which the reader expects."""
    folder = path.parent / "placed"
    folder.mkdir()
    path.rename(folder / name)
    return folder / name


def _refusal(read: Callable[[], object]) -> str:
    try:
        read()
    except (OSError, ValueError, KubeError) as error:
        return str(error)
    return ""


def _cluster(path: Path, *, user: str = "", cluster: str = "") -> str:
    users = {user: str(path)} if user else {}
    if user == "client-key":
        users["client-certificate-data"] = base64.b64encode(b"no certificate").decode()
    made = config("https://127.0.0.1:1", users, cluster={cluster: str(path)} if cluster else {})
    kubeconfig = write(path.parent / "kubeconfig", made)

    async def connect() -> None:
        (await load(kubeconfig)).ssl_context()

    return _refusal(lambda: asyncio.run(connect()))


def _theme(path: Path) -> str:
    said: list[str] = []
    themes.load(_placed(path, "mine.toml").parent, said.append)
    return " ".join(said)


def _job_file(path: Path) -> str:
    spec = JobSpec(name="a", config_files=(ConfigFile(str(path), "/etc/a"),))
    return _refusal(lambda: read_job_files(spec))


def _ignore_file(path: Path) -> str:
    folder = _placed(path, ".gitignore").parent
    (folder / "train.py").write_text("")
    try:
        pack_folder(folder)
    except FolderError as error:
        return str(error)
    return "the others are sent"


YAML_READERS: dict[str, Callable[[Path], str]] = {
    "submit -f": lambda path: _refusal(lambda: read_manifests(str(path))),
    "template": lambda path: " ".join(every_template(_placed(path, "mine.yaml").parent)[1]),
    "config.yaml": lambda path: " ".join([*read_config(path).problems, *read_config(path).unknown]),
    "plugins.yaml": lambda path: " ".join(read_plugins(path, ACTIONS, VIEWS, {}).problems),
    "keys.yaml": lambda path: " ".join(read_keys(path, key_table()).problems),
    "theme": _theme,
    "kubeconfig": lambda path: " ".join(merge([path]).problems),
}
TEXT_READERS: dict[str, Callable[[Path], str]] = {
    "edited YAML": lambda path: _refusal(lambda: read_manifest(path.read_text())),
    "f3": lambda path: _refusal(lambda: read_job(path.read_text())),
}
FILE_READERS: dict[str, Callable[[Path], str]] = {
    "--config-file": _job_file,
    "import": lambda path: _refusal(lambda: form_files._read(path)),
    "tokenFile": lambda path: _cluster(path, user="tokenFile"),
    "client-certificate": lambda path: _cluster(path, user="client-certificate"),
    "client-key": lambda path: _cluster(path, user="client-key"),
    "certificate-authority": lambda path: _cluster(path, cluster="certificate-authority"),
    ".gitignore": _ignore_file,
}


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(300 * 2**20)


def _unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    path.write_text("x")
    path.chmod(0)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "FIFO": (os.mkfifo, "regular file"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "regular file"),
    "folder": (Path.mkdir, "directory"),
    "sparse": (_sparse, "too large"),
    "unreadable": (_unreadable, "denied"),
    "not UTF-8": (lambda path: path.write_bytes(b"\xff\xfe\x80"), ""),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("reader", [*YAML_READERS, *FILE_READERS])
def test_an_unreadable_or_oversized_file_is_rejected_by_every_reader(
    tmp_path: Path, reader: str, bad: str
) -> None:
    make, why = BAD[bad]
    path = tmp_path / "named"
    make(path)
    said = {**YAML_READERS, **FILE_READERS}[reader](path)
    assert said or (reader, bad) == ("--config-file", "not UTF-8"), "a config file may hold any bytes"
    if reader not in (".gitignore", "theme"):
        assert why in said.lower()


LINKS = ",".join(["*{0}"] * 10)
TEXTS = {
    "nested": "a: " + "{a: " * 4_000,
    # libyaml overflows the stack of the process.
    "deep": "[" * 90_000,
    "deep block": "- " * 70_000,
    "aliases": "a0: &a0 [x]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [{LINKS.format(f'a{n}')}]\n" for n in range(11)),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{LINKS.format(f'a{n}')}]}}\n" for n in range(9)),
    "no date": "a: !!timestamp x\n",
    "no switch": "a: !!bool x\n",
    "no number": "a: [!!int '', !!float '']\n",
    "twice": "theme: dark\nkind: Job\nkind: Job\ntheme: light\nrow.logs: L\nrow.logs: K\n",
    "tab": "kind: Job\n\tmetadata: 1\n",
}
NO_PROBLEM = {("kubeconfig", "twice"), ("kubeconfig", "aliases")}
"""Texts that kubectl accepts too."""
DEEP = dict.fromkeys(("nested", "deep", "deep block"), "nested too deeply")
WORDS = {
    **DEEP,
    "twice": "is given twice",
    "tab": "tab",
    "aliases": "",
    "merges": "",
    "no date": "",
    "no switch": "",
    "no number": "",
}


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.slow] * (text == "deep")) for text in TEXTS]
)
@pytest.mark.parametrize("reader", [*YAML_READERS, *TEXT_READERS])
def test_hostile_yaml_is_rejected_with_a_readable_message(tmp_path: Path, reader: str, text: str) -> None:
    path = tmp_path / "named"
    path.write_text(TEXTS[text])
    problem = {**YAML_READERS, **TEXT_READERS}[reader](path)
    assert bool(problem) is ((reader, text) not in NO_PROBLEM)
    assert "recursion" not in problem
    if reader != "theme" and (
        reader != "kubeconfig" or text.startswith("deep")
    ):  # TOML is no YAML; libyaml and kubectl have words of their own
        assert WORDS[text] in problem.replace("'\\t'", "tab")
