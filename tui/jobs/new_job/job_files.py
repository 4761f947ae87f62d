"""Reads what of this machine comes along with a job: its folder, config files, the packaged trainers."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from k8s.client.client import Client
from k8s.job_spec import NO_FILES, ConfigFile, JobFiles, JobSpec
from k8s.jobs.companions import with_files
from k8s.jobs.create import JobRejected, create_job
from k8s.jobs.upload import Progress
from k8s.kinds import CreatableKind, JobRef, Manifest
from k8s.text.home import expand_home
from trainer import catalogue
from tui.files.local_folder import FolderError, pack_folder


def read_job_files(spec: JobSpec) -> JobFiles:
    """Read what a job needs of this machine; whatever it does not need is not looked at.

    Raises:
        JobRejected: Something is not there or cannot be read; `causes` name the field.
    """
    files = NO_FILES
    problems = {}
    if spec.sync_mode == "folder" and spec.sync_source:
        try:
            packed = pack_folder(spec.sync_source)
            files = replace(files, code=packed.archive, left_out=packed.left_out)
        except FolderError as error:
            problems["sync_source"] = str(error)
    contents = {}
    for each in spec.config_files:
        try:
            contents[each.local_path] = _read_config(each)
        except OSError as error:
            problems["config_files"] = f"Could not read {each.local_path}: {error.strerror}."
    if problems:
        refused = JobRejected(f"Could not read what job {spec.name} needs.", "\n".join(problems.values()))
        refused.causes = problems
        raise refused
    return replace(files, config_files=contents, trainer=trainer_files() if spec.trainer else {})


def takes_git_login(spec: JobSpec) -> bool:
    """Tell whether a job fetches its code in a way that a user and a password are for."""
    return spec.sync_mode == "git" and re.match(r"https?://", spec.sync_source) is not None


async def load_job_files(spec: JobSpec) -> JobFiles:
    """Read them beside the work of the console, as `read_job_files` does."""
    return await asyncio.to_thread(read_job_files, spec)


async def create_with_files(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    *,
    git_login: Mapping[str, str] = NO_FILES.git_login,
    dry_run: bool = False,
    edit: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    on_upload: Progress = lambda sent, total: None,
) -> JobRef:
    """Create a job with all that it needs of this machine, as `create_job` does.

    Args:
        client: The cluster.
        kind: What the job becomes.
        spec: The job.
        git_login: `username` and `password` for the job's repository, which become a Secret of the job.
        dry_run: Have the server check every object, and store none.
        edit: Makes of the manifest the one that is created.
        on_upload: Told how far it is where a large folder is sent into a volume.

    Raises:
        JobRejected: Something is not there, or wrong by our rules or the server's.
        KubeError: It could not be created for another reason.
    """
    files = replace(await load_job_files(spec), git_login=git_login)
    manifest = edit(kind.manifest(with_files(spec, files)))
    return await create_job(
        client, kind, spec, files=files, manifest=manifest, dry_run=dry_run, on_upload=on_upload
    )


@cache
def trainer_files() -> dict[str, bytes]:
    """Return the files of the packaged trainers of this installation: `trainer/ranks.py` to its content.

    They travel without their docstrings and comments: all of them must fit into one object.
    """
    package = Path(catalogue.__file__).parent
    return {
        path.relative_to(package.parent).as_posix(): without_documentation(path.read_text()).encode()
        for path in sorted(package.rglob("*.py"))
    }


def without_documentation(source: str) -> str:
    """Empty the docstrings and the lines of comments of a module; every line keeps its number."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str) and node.end_lineno is not None:
            emptied = [" " * node.col_offset + '""', *[""] * (node.end_lineno - node.lineno)]
            lines[node.lineno - 1 : node.end_lineno] = emptied
    in_text = _lines_inside_strings("\n".join(lines))
    kept = (
        "" if line.lstrip().startswith("#") and number not in in_text else line
        for number, line in enumerate(lines, 1)
    )
    return "".join(f"{line}\n" for line in kept)


def _lines_inside_strings(source: str) -> set[int]:
    """Return the numbers of the lines that go on with a string of a line before."""
    return {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None
        for number in range(node.lineno + 1, node.end_lineno + 1)
    }


def _read_config(file: ConfigFile) -> bytes:
    return expand_home(file.local_path).read_bytes()
