"""Editor of a manifest to create: of a file, or of a job from which the form cannot be filled in."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.widgets import Label

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs.clone import Clone, copied_owned_objects
from k8s.jobs.create import create_manifest
from k8s.kinds import JobRef, Manifest
from k8s.snapshot import ClusterSnapshot
from k8s.text.sanitize import sanitize
from k8s.text.yaml_writer import to_yaml
from tui.jobs.new_job.manifest_yaml import read_manifest
from tui.keys import NEW_JOB
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.submit import Submission, SubmitScreen
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.job_fields import CreateBar, Notice
from tui.widgets.key_bar import KeyBar
from tui.widgets.status_line import StatusLine

KEYS = tuple(key for key in NEW_JOB if key.action in ("create", "dry_run", "leave"))


class ManifestScreen(SubmitScreen):
    """Editor for the YAML of a job before it is created."""

    CSS_PATH: ClassVar = ["submit.tcss", "manifest.tcss"]
    AUTO_FOCUS: ClassVar[str] = "TextAreaField"
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
    snapshot: reactive[ClusterSnapshot] = reactive(ClusterSnapshot, repaint=False)

    def __init__(self, client: Client, clone: Clone, *, namespace: str, notice: str = "") -> None:
        """Edit the manifest of `clone`, to be created in `namespace` unless it names another.

        Args:
            client: The cluster.
            clone: The job; without a source, it is not copied from the cluster.
            namespace: The default namespace.
            notice: Shown above the YAML; empty for the reason why it is YAML.
        """
        super().__init__()
        self._notice = notice
        self._client = client
        self._clone = clone
        self._namespace = namespace
        self._text = ""

    def compose(self) -> ComposeResult:
        """Lay out the notice, the YAML, and the button."""
        yield StatusLine().data_bind(ManifestScreen.snapshot)
        source = self._clone.source
        yield Label(
            f"New job, clone of {sanitize(source)}" if source else "New job", id="title", markup=False
        )
        yield Notice()
        yield TextAreaField(show_line_numbers=True, id="manifest")
        yield CreateBar()
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        """Explain why this is YAML, and point out where the original's name remains."""
        clone = self._clone
        why = f"{clone.why_yaml} Edit its YAML, then create it. {clone.mentions_text}".strip()
        self.query_one(Notice).show(self._notice or why, is_error=False)
        editor = self.query_one(TextAreaField)
        editor.load_text(to_yaml(clone.manifest))
        self._text = editor.text
        self.watch_busy()

    def watch_busy(self) -> None:
        """Show the pending request on the button."""
        self.query_one(CreateBar).show(self.busy, 0)

    def make_submission(self) -> Submission | None:
        """Return the object to create; an invalid manifest is shown as an error."""
        editor = self.query_one(TextAreaField)
        try:
            manifest = read_manifest(editor.text)
            self._check_kind(manifest)
        except ValueError as error:
            self.query_one(Notice).show(str(error))
            editor.focus()
            return None
        named = manifest["metadata"].get("namespace")
        namespace = named if isinstance(named, str) and named else self._namespace

        async def send(is_dry_run: bool) -> JobRef:
            client, clone = self._client, self._clone
            along = await copied_owned_objects(client, manifest, clone.source, namespace)
            return await create_manifest(
                client, clone.resource, manifest, namespace, owned_objects=along, dry_run=is_dry_run
            )

        name, details = (
            manifest["metadata"]["name"],
            "From the manifest as edited, after a dry run on the server.",
        )
        return Submission(self._clone.resource.kind, name, namespace, send, details)

    def _check_kind(self, manifest: Manifest) -> None:
        """Reject another kind, which has another path on the server.

        Raises:
            ValueError: The manifest is of another kind.
        """
        resource = self._clone.resource
        if (manifest.get("kind"), manifest.get("apiVersion")) != (resource.kind, resource.api_version):
            raise ValueError(f"kind and apiVersion must stay {resource.kind}, {resource.api_version}.")

    def show_dry_run_passed(self, submission: Submission) -> None:
        """Report that the server would create it."""
        self.query_one(Notice).show("Dry run passed: the server would create it.", is_error=False)

    def show_error(self, error: KubeError, hint: str) -> None:
        """Show the error and focus the text."""
        self.query_one(Notice).show("\n".join(filter(None, (str(error), hint))))
        self.query_one(TextAreaField).focus()

    async def confirm_leave(self) -> bool:
        """Ask whether to discard changes, if there are any."""
        if self.query_one(TextAreaField).text == self._text:
            return True
        answers = (("stay", "Keep editing"), ("discard", "Discard"))
        details = "A manifest is not saved as a draft."
        dialog = ConfirmScreen("Discard your changes?", details, answers=answers)
        return await self.app.push_screen_wait(dialog) == "discard"
