"""Edit of a live job in the user's editor: a private file, a checked change, a merge patch."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from k8s.client.client import Client
from k8s.errors import Conflict, Invalid, KubeError
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef, Manifest
from k8s.text.redact import Redactor
from k8s.text.sanitize import file_name, sanitize
from k8s.text.yaml_writer import to_yaml
from tui.files.private_file import write_private_file
from tui.jobs.new_job.manifest_edits import merge_changes
from tui.jobs.new_job.manifest_yaml import read_manifest
from tui.text.format import plural

# kubectl's own variable comes first, as people have it set for `kubectl edit`.
_EDITORS = ("KUBE_EDITOR", "VISUAL", "EDITOR")
_FIXED = ("apiVersion", "kind", "status")
_FIXED_META = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"),
)
_MOST_LINES = 1_000
_ABSENT = object()

RunEditor = Callable[[Path], Awaitable[str]]
"""Lets the user edit a file; returns why it failed, empty if it did not."""
Ask = Callable[[str, str, Sequence[tuple[str, str]]], Awaitable[str]]
"""Asks a question with details; returns the id of an answer. The first of ids and labels is the safe one."""


class EditEnd(NamedTuple):
    """The end of an edit."""

    words: str
    is_ok: bool = True
    """False if a change was not applied; `words` name the file that has it."""


class EditedText(NamedTuple):
    """Job as the user edited it."""

    manifest: Manifest
    patch: Manifest
    """JSON merge patch; empty if nothing was changed."""
    diff: tuple[str, ...]
    """Changed lines with their surroundings, secrets redacted."""


def editor_argv(env: Mapping[str, str]) -> list[str]:
    """Return the user's editor with its arguments; vi if no variable names one.

    Raises:
        KubeError: It is not installed, or its variable cannot be read.
    """
    name = next((each for each in _EDITORS if env.get(each, "").strip()), "")
    what, hint = "Could not open an editor.", "Set VISUAL to one that is installed: export VISUAL=nano"
    try:
        argv = shlex.split(env[name]) if name else ["vi"]
    except ValueError as error:
        raise KubeError(what, f"${name} is {sanitize(env[name])}: {error}.", hint) from error
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        named = f"${name} names" if name else "VISUAL and EDITOR are not set, and the usual"
        raise KubeError(what, f"{named} {sanitize(argv[0])}, which is not found.", hint)
    return argv


def editable_text(obj: Manifest, notes: Iterable[str] = ()) -> str:
    """Return a live object as YAML to edit: without managedFields, below a comment."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    notes = (
        f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']} as it is now. Save and leave the editor:",
        "the change is checked by the server and shown before it is applied. Leave it unchanged to cancel.",
        f"Not to be edited: {', '.join(_FIXED)}, metadata.uid and the like.",
        *notes,
    )
    return "".join(f"# {sanitize(note)}\n" for note in notes) + to_yaml({**obj, "metadata": meta})


def read_edit(obj: Manifest, text: str) -> EditedText:
    """Compare an edited text with the object.

    Raises:
        ValueError: It is invalid YAML, or changes what an edit cannot change.
    """
    base, edited = read_manifest(editable_text(obj)), read_manifest(text)
    before, after = base["metadata"], edited["metadata"]
    fixed = [name for name in _FIXED if base.get(name, _ABSENT) != edited.get(name, _ABSENT)]
    fixed += [f"metadata.{name}" for name in _FIXED_META if before.get(name) != after.get(name)]
    if fixed:
        raise ValueError(f"{', '.join(fixed)} cannot be changed by an edit: restore what was there.")
    redactor = Redactor()
    for each in (base, edited):
        redactor.object(each)  # remembers the secrets
    old, new = (to_yaml(each).splitlines() for each in (base, edited))
    changed = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]
    diff = redactor.text("\n".join(changed)).splitlines()
    if len(diff) > _MOST_LINES:
        diff[_MOST_LINES:] = [f"… and {plural(len(diff) - _MOST_LINES, 'more line')}"]
    return EditedText(edited, merge_patch(base, edited), tuple(diff))


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Manifest:
    """Return the JSON merge patch that turns one object into another.

    Source: RFC 7396.
    """
    patch: Manifest = dict.fromkeys(name for name in before if name not in after)
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(old, value):
                patch[name] = inner
        # As JSON: to Python, 1 and true are equal.
        elif json.dumps(value, sort_keys=True) != json.dumps(old, sort_keys=True):
            patch[name] = value
    return patch


async def edit_job(client: Client, ref: JobRef, run_editor: RunEditor, ask: Ask) -> EditEnd:
    """Let the user edit a live job, and apply the change after a dry run and a question.

    A problem is shown with the choice to edit on; a text that was not applied stays in its file.

    Raises:
        KubeError: The job cannot be read.
        OSError: The file cannot be written.
    """
    what = f"{ref.kind} {ref.name}"
    place = (resource_of(ref), ref.name)
    obj = await client.get(*place, ref.namespace)
    # A folder of mode 0700, so that an editor's backups are private too.
    folder = Path(tempfile.mkdtemp(prefix="gpuconsole-edit-"))
    path = folder / f"{file_name(ref.name)}.yaml"
    cancel, again = ("cancel", "Cancel"), ("again", "Edit again")
    unedited = editable_text(obj)
    write_private_file(path, unedited)
    answer = again[0]
    while answer == again[0]:
        try:
            failure = await run_editor(path)
            text = path.read_text(encoding="utf-8")
            if failure and text != unedited:
                raise ValueError(failure)
            edit = None if failure else read_edit(obj, text)
            if edit is None or not edit.patch:
                shutil.rmtree(folder)
                return EditEnd(f"{what} was not changed. {failure}".strip(), not failure)
            same = {name: obj["metadata"].get(name) for name in ("uid", "resourceVersion")}
            patch = {**edit.patch, "metadata": {**(edit.patch.get("metadata") or {}), **same}}
            await _dry_run(client, ref, patch)
            diff = "\n".join(edit.diff)
            answer = await ask(f"Apply this change to {what}?", diff, (cancel, again, ("do", "Apply")))
            if answer == "do":
                await client.patch(*place, patch, ref.namespace)
                shutil.rmtree(folder)
                return EditEnd(f"{what} is changed.")
        except Conflict as error:
            details = f"{error.why}\nEdit again opens its newest state with your changes in it."
            answer = await ask(f"{what} was changed meanwhile.", details, (cancel, again))
            if answer == again[0]:
                try:
                    newest = await client.get(*place, ref.namespace)
                except KubeError as lost:
                    return EditEnd(f"{lost}\n{_kept(path)}", is_ok=False)
                if newest["metadata"].get("uid") != obj["metadata"].get("uid"):
                    return EditEnd(f"Another job is called {ref.name} now. {_kept(path)}", is_ok=False)
                mine = path.with_suffix(f".{obj['metadata'].get('resourceVersion')}.yaml")
                os.replace(path, mine)
                write_private_file(path, _rebased(obj, read_manifest(text), newest, mine))
                obj = newest
        except (KubeError, OSError, ValueError) as error:
            answer = await ask(f"{what} was not changed.", str(error), (cancel, again))
    return EditEnd(f"{what} was not changed. {_kept(path)}", is_ok=False)


async def _dry_run(client: Client, ref: JobRef, patch: Manifest) -> None:
    try:
        await client.patch(resource_of(ref), ref.name, patch, ref.namespace, dry_run=True)
    except Invalid as error:
        if not error.is_about_dry_run:
            raise


def _kept(path: Path) -> str:
    return f"Your text is in {path}."


def _rebased(obj: Manifest, edited: Manifest, newest: Manifest, mine: Path) -> str:
    """Return the newest object with the user's changes, and comments where both changed the same place."""
    base, theirs = (read_manifest(editable_text(each)) for each in (obj, newest))
    conflicts: dict[tuple[str | int, ...], object] = {}
    both = merge_changes(base, edited, theirs, (), conflicts)
    notes = [f"It was changed meanwhile: this is its newest state with your changes; your text is in {mine}."]
    notes += [
        f"Changed by both, yours is below: {'.'.join(map(str, path))}; the cluster has {_short(value)}."
        for path, value in conflicts.items()
    ]
    return editable_text(both if isinstance(both, dict) else theirs, notes)


def _short(value: object) -> str:
    return sanitize(json.dumps(value, default=lambda _: "nothing"))[:80]
