"""Editor of a manifest to create: of a file, or of a job from which the form cannot be filled in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.widgets import Label

from k8s.client.client import Client
from k8s.jobs.clone import Clone, copied_owned_objects
from k8s.jobs.create import create_manifest
from k8s.kinds import JobRef, Manifest
from k8s.reasons.cause import ERROR, Cause
from k8s.reasons.cluster_checks import check_objects
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from k8s.text.yaml_writer import to_yaml
from tui.draft.manifest_yaml import read_manifest
from tui.draft.preflight import check_manifest, line_text
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.submit import Submission, SubmitScreen
from tui.settings.keys import NEW_JOB
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.job_fields import CreateBar, Notice
from tui.widgets.status_line import KeyBar, StatusLine

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
        self._checked: Manifest = {}
        self._causes: Sequence[Cause] = ()

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

    def reading(self) -> asyncio.Event | None:
        """Return the event that is set once the manifest was checked; None if it was, or is not valid."""
        try:
            manifest = self._manifest()
        except ValueError:
            return None
        if manifest == self._checked:
            return None
        self._checked, self._causes = manifest, ()
        done = asyncio.Event()
        self._check(manifest, done)
        return done

    @work(exclusive=True, group="checks")
    async def _check(self, manifest: Manifest, done: asyncio.Event) -> None:
        async def nodes() -> ClusterSnapshot:
            return self.snapshot

        client, resource, namespace = self._client, self._clone.resource, self._namespace_of(manifest)
        try:
            along = await copied_owned_objects(client, manifest, self._clone.source, namespace)
            beside = [(each.resource, each.manifest) for each in along]
            causes = await check_manifest(client, resource, manifest, namespace, nodes, beside)
            self._causes = (
                await check_objects(client, [(resource, manifest)], namespace) if causes is None else causes
            )
        except KubeError:
            self._causes = ()  # the dry run says why
        finally:
            done.set()

    def _manifest(self) -> Manifest:
        """Return the manifest as edited.

        Raises:
            ValueError: It is not one, or of another kind, which has another path on the server.
        """
        manifest, resource = read_manifest(self.query_one(TextAreaField).text), self._clone.resource
        if (manifest.get("kind"), manifest.get("apiVersion")) != (resource.kind, resource.api_version):
            raise ValueError(f"kind and apiVersion must stay {resource.kind}, {resource.api_version}.")
        return manifest

    def _namespace_of(self, manifest: Manifest) -> str:
        named = manifest["metadata"].get("namespace")
        return named if isinstance(named, str) and named else self._namespace

    def make_submission(self) -> Submission | None:
        """Return the object to create; an invalid manifest is shown as an error."""
        try:
            manifest = self._manifest()
        except ValueError as error:
            self.query_one(Notice).show(str(error))
            self.query_one(TextAreaField).focus()
            return None
        namespace = self._namespace_of(manifest)

        async def send(is_dry_run: bool) -> JobRef:
            client, clone = self._client, self._clone
            along = await copied_owned_objects(client, manifest, clone.source, namespace)
            return await create_manifest(
                client, clone.resource, manifest, namespace, owned_objects=along, dry_run=is_dry_run
            )

        lines = [line_text(cause, is_marked=True) for cause in self._causes]
        details = "\n".join([*lines, "From the manifest as edited, after a dry run on the server."])
        is_doubtful = any(cause.severity == ERROR for cause in self._causes)
        is_refused = any(cause.is_refusal for cause in self._causes)
        name = manifest["metadata"]["name"]
        return Submission(self._clone.resource.kind, name, namespace, send, details, is_doubtful, is_refused)

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
