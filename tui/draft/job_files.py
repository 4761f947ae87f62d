"""Local files of a job: its folder, config files, the packaged trainers."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from k8s.client.client import Client
from k8s.jobs.create import JobRejected, create_job
from k8s.jobs.owned_objects import with_files
from k8s.jobs.upload import Progress
from k8s.kinds import CreatableKind, JobRef, Manifest
from k8s.kinds.job_spec import NO_FILES, JobFiles, JobSpec
from k8s.text.home import expand_home, read_named_file
from trainer import catalogue
from tui.settings.local_folder import FolderError, pack_folder


def read_job_files(spec: JobSpec) -> JobFiles:
    """Read the local files that a job needs.

    Raises:
        JobRejected: A file is missing or unreadable; `causes` name the field.
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
            contents[each.local_path] = read_named_file(expand_home(each.local_path))
        except OSError as error:
            problems["config_files"] = f"Could not read {each.local_path}: {error.strerror}."
    if problems:
        refused = JobRejected(f"Could not read what job {spec.name} needs.", "\n".join(problems.values()))
        refused.causes = problems
        try:
            raise refused
        finally:
            del refused  # its traceback leads to this frame
    own = Path(catalogue.__file__).with_name("debuggable.py")
    return replace(
        files,
        config_files=contents,
        trainer=trainer_files() if spec.trainer else {},
        debuggable=without_documentation(own.read_text()).encode() if spec.debuggable else b"",
    )


def needs_git_credentials(spec: JobSpec) -> bool:
    """Return True if the job fetches its code from git over https."""
    return spec.sync_mode == "git" and re.match(r"https?://", spec.sync_source) is not None


async def load_job_files(spec: JobSpec) -> JobFiles:
    """Run `read_job_files` in a thread."""
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
    """Create a job with its local files, as `create_job` does.

    Args:
        client: The cluster.
        kind: The kind of the job.
        spec: The job.
        git_login: `username` and `password` of the repository, for a Secret of the job.
        dry_run: Have the server validate every object, and store none.
        edit: Applies the user's edits to the manifest.
        on_upload: Called with the progress while a large folder is sent into a volume.

    Raises:
        JobRejected: A file is missing, or a field is invalid by our rules or the server's.
        KubeError: The job could not be created for another reason.
    """
    files = replace(await load_job_files(spec), git_login=git_login)
    manifest = edit(kind.manifest(with_files(spec, files)))
    return await create_job(
        client, kind, spec, files=files, manifest=manifest, dry_run=dry_run, on_upload=on_upload
    )


@cache
def trainer_files() -> dict[str, bytes]:
    """Return the files of the installed packaged trainers: `trainer/ranks.py` to its content.

    Docstrings and comments are removed, because all files must fit into one object.
    """
    package = Path(catalogue.__file__).parent
    return {
        path.relative_to(package.parent).as_posix(): without_documentation(path.read_text()).encode()
        for path in sorted(package.rglob("*.py"))
    }


def without_documentation(source: str) -> str:
    """Blank out docstrings and comment lines; line numbers stay the same."""
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
    return {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None
        for number in range(node.lineno + 1, node.end_lineno + 1)
    }
