"""Dry run, confirmation and create, as the form has them too; and the editor of a manifest to create.

An object that failed its dry run is never created.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.widgets import Button, Label
from textual.worker import WorkerCancelled, WorkerFailed

from k8s.client.client import Client
from k8s.jobs.clone import Clone, copied_owned_objects
from k8s.jobs.create import create_manifest
from k8s.kinds import JobRef, Manifest
from k8s.reasons.cause import ERROR, Cause
from k8s.reasons.cluster_checks import check_objects
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import Invalid, KubeError, ServerFailed, Unreachable
from k8s.text.sanitize import sanitize
from k8s.text.yaml_writer import to_yaml
from tui.draft.manifest_yaml import check_kind, read_manifest
from tui.draft.preflight import check_manifest, line_text
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.settings.keys import NEW_JOB
from tui.terminal.driver import PacedScreen
from tui.terminal.key_queue import keys_held
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.job_fields import CreateBar, Notice
from tui.widgets.status_line import KeyBar, StatusLine

READING = "Reading…"
DRY_RUN = "Dry run…"
CREATING = "Creating…"
# On a slow server the job is then created from what is known, with a notice of what is missing.
LONGEST_READ_S = 5.0


@dataclass(frozen=True, slots=True)
class Submission:
    """A job at the time of the create request; later edits are not part of it."""

    kind: str
    name: str
    namespace: str
    send: Callable[[bool], Awaitable[JobRef]]
    """Creates the job, or with True requests a dry run. Raises `KubeError`."""
    details: str = ""
    is_doubtful: bool = False
    is_refused: bool = False
    """The server is expected to refuse it: always ask for confirmation, with the focus on Cancel."""


class SubmitScreen(PacedScreen[JobRef | None]):
    """Creates the job on screen; returns its reference, or None."""

    busy: reactive[str] = reactive("", init=False)
    """The pending request, for the button; empty for none."""

    progress: reactive[str] = reactive("", init=False)
    """Progress of an upload; empty for none."""

    _stops_upload = False

    def reading(self) -> asyncio.Event | None:
        """Return an event set once all data that a new job needs has been read; None if there is no wait."""
        return None

    @abstractmethod
    def make_submission(self) -> Submission | None:
        """Return the job to create; show its problems and return None if there are any."""

    @abstractmethod
    def show_dry_run_passed(self, submission: Submission) -> None:
        """Report that the server would create it."""

    @abstractmethod
    def show_error(self, error: KubeError, hint: str) -> None:
        """Show why it was not created, or may not have been; `hint` names the next step."""

    def watch_progress(self, progress: str) -> None:
        """Show the progress."""
        self.query_one(CreateBar).show(self.busy, 0, progress)

    def show_upload(self, sent_bytes: int, total_bytes: int) -> None:
        """Show the progress of a folder's upload."""
        sent, total = sent_bytes / 2**20, total_bytes / 2**20
        is_sent = sent_bytes == total_bytes
        self.progress = "" if is_sent else f"Uploading {sent:.0f} of {total:.0f} MiB …  esc to stop"

    async def after_create(self, submission: Submission) -> None:
        """Finish the work for a created job before the screen closes."""

    async def confirm_leave(self) -> bool:
        """Ask for confirmation if leaving would lose something."""
        return True

    def close(self, ref: JobRef | None) -> None:
        """Close with the created job, or None."""
        self.dismiss(ref)

    @property
    def is_closing(self) -> bool:
        """True from the start of its removal, during which its widgets go one by one."""
        return not self.display

    def action_dry_run(self) -> None:
        """Request a dry run."""
        self._when_read(partial(self._start, is_dry_run_only=True))

    def action_create(self) -> None:
        """Create the job after confirmation."""
        self._when_read(self._ask)

    def _when_read(self, go_on: Callable[[Submission], None]) -> None:
        if self.busy:
            return
        if (reading := self.reading()) is not None:
            self.busy = READING
            self._wait_for(reading, go_on)
        elif (submission := self.make_submission()) is not None:
            go_on(submission)

    @work(exclusive=True, group="read")
    async def _wait_for(self, reading: asyncio.Event, go_on: Callable[[Submission], None]) -> None:
        with keys_held(self.app):
            with suppress(TimeoutError):
                await asyncio.wait_for(reading.wait(), LONGEST_READ_S)
            if self.is_closing:
                return
            self.busy = ""
            if (submission := self.make_submission()) is not None:
                go_on(submission)

    def _ask(self, submission: Submission) -> None:
        def answered(answer: str | None) -> None:
            if answer == "do":
                self._start(submission)

        question = f"Create {submission.kind} {submission.name} in {submission.namespace}?"
        # Who asked for it mostly wants it, and what is created can be deleted: Create has the focus.
        answers = [("do", "Create"), ("cancel", "Cancel")]
        if submission.is_doubtful:
            answers = [
                ("cancel", "Cancel"),
                ("do", "Ask the server" if submission.is_refused else "Create anyway"),
            ]
        escape = answers.index(("cancel", "Cancel"))
        dialog = ConfirmScreen(question, submission.details, answers=answers, escape=escape)
        self.app.push_screen(dialog, answered)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Create the job; only one that cannot start needs confirmation."""
        event.stop()
        self._when_read(lambda made: self._ask(made) if made.is_doubtful else self._start(made))

    def _start(self, submission: Submission, *, is_dry_run_only: bool = False) -> None:
        # Set here, not in the worker: a second key may come before the worker's first step.
        self.busy = DRY_RUN
        self._stops_upload = False
        self._submit(submission, is_dry_run_only=is_dry_run_only)

    @work(exclusive=True, group="submit")
    async def _submit(self, submission: Submission, *, is_dry_run_only: bool) -> None:
        with keys_held(self.app):  # they are for what comes then: the job's logs, or the field with an error
            await self._send(submission, is_dry_run_only=is_dry_run_only)

    async def _send(self, submission: Submission, *, is_dry_run_only: bool) -> None:
        try:
            if await _dry_run(submission):
                self.show_dry_run_passed(submission)
            elif is_dry_run_only:
                text = "The server cannot dry-run this: one of its admission webhooks does not support it."
                self.query_one(Notice).show(text, is_error=False)
            if not is_dry_run_only:
                self.busy = CREATING
                ref = await submission.send(False)
                await self.after_create(submission)
                self.close(ref)
                return
        except KubeError as error:
            may_exist = self.busy == CREATING and isinstance(error, Unreachable | ServerFailed)
            hint = f"It may have been created anyway: look for {submission.name} before you retry."
            self.show_error(error, hint if may_exist else "")
        except Exception:
            self.busy = self.progress = ""
            raise
        self.busy = self.progress = ""

    def action_leave(self) -> None:
        """Leave, after confirmation if something would be lost."""
        self._leave()

    @work(exclusive=True, group="leave")
    async def _leave(self) -> None:
        if self.progress:
            await self._stop_upload()
        elif self.busy:
            text = "Waiting for the server, half a minute at most."
            self.query_one(Notice).show(text, is_error=False)
        elif await self.confirm_leave():
            self.close(None)

    async def _stop_upload(self) -> None:
        if not self._stops_upload:
            self._stops_upload = True
            text = "Press esc again to stop the upload; the job is not created then."
            self.query_one(Notice).show(text, is_error=False)
            return
        for submitting in self.workers.cancel_group(self, "submit"):
            with suppress(WorkerCancelled, WorkerFailed):
                await submitting.wait()
        self.busy = self.progress = ""
        self.query_one(Notice).show("Upload stopped. Nothing was created.", is_error=False)


async def _dry_run(submission: Submission) -> bool:
    """Return False if something there does not support dry runs.

    Raises:
        KubeError: The server rejected the object.
    """
    try:
        await submission.send(True)
    except Invalid as error:
        if not error.is_about_dry_run:
            raise
        return False
    return True


KEYS = tuple(key for key in NEW_JOB if key.action in ("create", "dry_run", "leave"))


class ManifestScreen(SubmitScreen):
    """Editor for the YAML of a job before it is created."""

    CSS_PATH: ClassVar = "submit.tcss"
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
        manifest = read_manifest(self.query_one(TextAreaField).text)
        check_kind(manifest, self._clone.resource)
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
