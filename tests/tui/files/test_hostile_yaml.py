"""YAML that a user gives, however malformed, is refused in plain words: no traceback, no hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from k8s.client.auth.kubeconfig import merge
from themes.files import BrokenPalette, read_file
from tui.commands.submission.manifests import BadManifest, read_manifests
from tui.files.config_file import read_config
from tui.files.keys_file import read_keys
from tui.jobs.new_job.job_templates import own_templates
from tui.jobs.new_job.manifest_yaml import read_job, read_manifest
from tui.screens import key_table

LINKS = ",".join(["*{0}"] * 10)
TEXTS = {
    "nested": "a: " + "{a: " * 20_000,
    "aliases": "a0: &a0 [x]\n"
    + "".join(f"a{n + 1}: &a{n + 1} [{LINKS.format(f'a{n}')}]\n" for n in range(11)),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{LINKS.format(f'a{n}')}]}}\n" for n in range(9)),
    "twice": "theme: dark\nkind: Job\nkind: Job\ntheme: light\njobs.logs: L\njobs.logs: K\n",
    "tab": "kind: Job\n\tmetadata: 1\n",
}


def problem_of(reads: Callable[[], object], *errors: type[Exception]) -> str:
    """Return the words of the error that reading ends with; empty for none."""
    try:
        reads()
    except errors as error:
        return str(error)
    return ""


READERS: dict[str, Callable[[Path], str]] = {
    "config.yaml": lambda path: "\n".join([*read_config(path).problems, *read_config(path).unknown]),
    "keys.yaml": lambda path: "\n".join(read_keys(path, key_table()).problems),
    "theme": lambda path: problem_of(lambda: read_file(path), BrokenPalette),
    "template": lambda path: "\n".join(own_templates(path.parent)[1]),
    "edited YAML": lambda path: problem_of(lambda: read_manifest(path.read_text()), ValueError),
    "f3": lambda path: problem_of(lambda: read_job(path.read_text()), ValueError),
    "submit -f": lambda path: problem_of(lambda: read_manifests(str(path)), BadManifest),
    "kubeconfig": lambda path: str(merge([path]).problems or ""),
}
NO_PROBLEM = {("kubeconfig", "twice"), ("kubeconfig", "aliases")}
"""What kubectl accepts too."""
WORDS = {"nested": "nested too deeply", "twice": "is given twice", "tab": "tab", "aliases": "", "merges": ""}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_is_refused_in_plain_words(tmp_path: Path, reader: str, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(TEXTS[text])
    problem = READERS[reader](path)
    assert bool(problem) is ((reader, text) not in NO_PROBLEM)
    assert "recursion" not in problem
    if reader not in ("theme", "kubeconfig"):  # TOML is no YAML; libyaml and kubectl have words of their own
        assert WORDS[text] in problem.replace("'\\t'", "tab")
