"""What is created beside a job, as YAML to read: Secrets masked, what nobody reads as its size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from k8s.job_spec import JobFiles, JobSpec
from k8s.jobs.companions import Companion, companions_of, is_uploaded, with_files
from k8s.jobs.upload import upload_mount
from k8s.kinds import CreatableKind, Manifest
from k8s.text.masked import masked
from k8s.text.yaml_writer import to_yaml
from tui.text.format import memory

LONGEST_CONTENT = 2_000
"""Characters of a ConfigMap's key that are shown."""
_STAND_IN: Mapping[str, bytes] = {"trainer": b""}
"""For the packaged trainers, which take longer to pack than somebody types."""
_OF_THIS_MACHINE = ("sync_source", "config_files")
_WORDS = {"sync_source": "of code", "config_files": "", "trainer": "with the packaged trainers"}
"""What the content of a ConfigMap is, by the field of `JobSpec` that asks for it."""

_EMPTIED = re.compile(r'(  "?([^"\s]+)"?:) null')


def documents_beside(kind: CreatableKind, spec: JobSpec, files: JobFiles, unread: str = "") -> str:
    """Return all that is created beside a job, each behind `---`; nothing where it is the job alone.

    Args:
        kind: Of the job.
        spec: The job.
        files: What was read of this machine.
        unread: Why folder and config files are not among them, as a comment; empty where they are.
    """
    shown = replace(files, trainer=_STAND_IN if spec.trainer else {})
    found = companions_of(kind, with_files(spec, shown), shown)
    documents = [_document(each, unread * (each.field in _OF_THIS_MACHINE)) for each in found]
    if is_uploaded(spec, files) and (mount := upload_mount(spec)) is not None:
        size = memory(len(files.code))
        documents.insert(
            0, f"# {size} of code go into volume claim {mount.claim} before the job is created\n"
        )
    return "".join(f"---\n{each}" for each in documents)


def _document(companion: Companion, unread: str) -> str:
    obj = masked(companion.manifest)
    elided = dict(_elided(obj, companion.field, unread))
    emptied = {
        part: {key: None if key in elided else value for key, value in obj[part].items()}
        for part in ("data", "binaryData")
        if obj["kind"] == "ConfigMap" and part in obj
    }
    lines = to_yaml({**obj, **emptied}).splitlines()
    return "".join(f"{_with_comment(line, elided)}\n" for line in lines)


def _elided(obj: Manifest, field: str, unread: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a ConfigMap that are not shown, and what is said in place of each."""
    if obj["kind"] != "ConfigMap":
        return
    for part, is_encoded in (("data", False), ("binaryData", True)):
        for key, text in (obj.get(part) or {}).items():
            if unread:
                yield key, unread
            elif field == "trainer":
                yield key, f"zipped, {_WORDS[field]}"
            elif is_encoded or len(text) > LONGEST_CONTENT:
                size_bytes = len(text) * 3 // 4 if is_encoded else len(text.encode())
                yield key, f"{memory(size_bytes)} {_WORDS.get(field, '')}".rstrip()


def _with_comment(line: str, elided: Mapping[str, str]) -> str:
    """Write in place of a content that is left out what it is."""
    found = _EMPTIED.fullmatch(line)
    return f"{found[1]}  # {elided[found[2]]}" if found and found[2] in elided else line
