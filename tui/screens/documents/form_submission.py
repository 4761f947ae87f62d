"""What the new-job form asks the server for: the job that its fields say, or its YAML as edited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from k8s.client.client import Client
from k8s.jobs.companions import companions_of
from k8s.jobs.create import create_manifest
from k8s.kinds import CreatableKind, JobRef, Manifest
from tui.jobs.new_job.form_spec import FormResult
from tui.jobs.new_job.job_files import create_with_files, load_job_files
from tui.jobs.new_job.manifest_edits import ManifestEdits
from tui.jobs.new_job.preflight import PreflightLine
from tui.screens.documents.submit import Submission
from tui.text.format import plural

Done = Callable[[bool], Awaitable[None]]
"""Called when the server has said yes; with True to a dry run."""


@dataclass(frozen=True, slots=True)
class PassedDryRun:
    """A dry run to which the server said yes."""

    values: Mapping[str, str]
    """What stood in the form then."""
    at: str
    """When, as a clock shows it."""

    def line(self, values: Mapping[str, str]) -> PreflightLine:
        """Return what is to be said of it now that the form has these values."""
        if self.values == values:
            return PreflightLine("ok", f"dry run passed at {self.at}")
        return PreflightLine("info", "changed since the dry run")


def form_submission(
    client: Client, result: FormResult, edits: ManifestEdits, lines: Iterable[PreflightLine], done: Done
) -> Submission:
    """Return what to create.

    Raises:
        ValueError: The edited YAML is no manifest of the form's kind; the message says where.
    """
    kind, spec = result.kind, result.spec
    said = tuple(lines)
    details = "\n".join(line.marked for line in said)
    is_doubtful = any(line.severity == "error" for line in said)
    edited = _checked(kind, edits.manifest) if edits.is_edited else None

    async def send(is_dry_run: bool) -> JobRef:
        if edited is None:
            ref = await create_with_files(client, kind, spec, dry_run=is_dry_run)
        else:
            ref = await create_manifest(
                client,
                kind.resource,
                edited,
                _namespace(edited, spec.namespace),
                companions=companions_of(kind, spec, await load_job_files(spec)),
                dry_run=is_dry_run,
            )
        await done(is_dry_run)
        return ref

    if edited is None:
        return Submission(kind.title, spec.name, spec.namespace, send, details, is_doubtful)
    details = "\n".join(filter(None, (details, f"! {_edited_words(edits)}")))
    name = str(edited["metadata"]["name"])
    return Submission(kind.title, name, _namespace(edited, spec.namespace), send, details, is_doubtful)


def _edited_words(edits: ManifestEdits) -> str:
    marked = len(edits.conflicts)
    if not marked:
        return "from the YAML as edited"
    return f"from the YAML as edited; in {plural(marked, 'line')} the form says otherwise"


def _namespace(manifest: Manifest, otherwise: str) -> str:
    return str(manifest["metadata"].get("namespace") or otherwise)


def _checked(kind: CreatableKind, manifest: Manifest) -> Manifest:
    """Refuse another kind, which has another path on the server.

    Raises:
        ValueError: It is another.
    """
    resource = kind.resource
    if (manifest.get("kind"), manifest.get("apiVersion")) != (resource.kind, resource.api_version):
        words = f"{resource.kind}, {resource.api_version}; choose another in the form."
        raise ValueError(f"kind and apiVersion must stay {words}")
    return manifest
