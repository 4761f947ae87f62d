"""What the new-job form asks the server for: the job that its fields say, or its YAML as edited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from k8s.client.client import Client
from k8s.jobs.upload import Progress
from k8s.kinds import CreatableKind, JobRef, Manifest
from tui.jobs.new_job.form_spec import FormResult
from tui.jobs.new_job.job_files import create_with_files
from tui.jobs.new_job.manifest_edits import ManifestEdits
from tui.jobs.new_job.preflight import PreflightLine
from tui.screens.documents.form_companions import FormCompanions
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
    client: Client,
    result: FormResult,
    edits: ManifestEdits,
    lines: Sequence[PreflightLine],
    along: FormCompanions,
    done: Done,
    on_upload: Progress,
) -> Submission:
    """Return what to create.

    Args:
        client: The cluster.
        result: The parsed form, without problems.
        edits: Its YAML.
        lines: What is known for and against it.
        along: What comes along with it.
        done: Called when the server has said yes.
        on_upload: Told how far it is where a large folder is sent into a volume.

    Raises:
        ValueError: The edited YAML is no manifest of the form's kind; the message says where.
    """
    kind, spec = result.kind, result.spec
    edit, login = edits.merger(), along.login(spec)
    manifest = _checked(kind, edits.manifest)
    name, namespace = str(manifest["metadata"]["name"]), _namespace(manifest, spec.namespace)
    marked = [line.marked for line in lines]
    if edits.is_edited:
        marked.append(f"! {_edited_words(edits)}")

    async def send(is_dry_run: bool) -> JobRef:
        ref = await create_with_files(
            client,
            kind,
            replace(spec, namespace=namespace),
            dry_run=is_dry_run,
            git_login=login,
            edit=edit,
            on_upload=on_upload,
        )
        await done(is_dry_run)
        return ref

    is_doubtful = any(line.severity == "error" for line in lines)
    return Submission(kind.title, name, namespace, send, "\n".join(marked), is_doubtful)


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
