"""What the new-job form and the manifest editor have in common: dry run, question, create, leave.

Nothing is created that the server has refused in a dry run.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from textual import work
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Button
from textual.worker import WorkerCancelled, WorkerFailed

from k8s.errors import Invalid, KubeError, ServerFailed, Unreachable
from k8s.kinds import JobRef
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.key_queue import keys_held
from tui.widgets.form.job_fields import CreateBar, Notice

READING = "Reading…"
DRY_RUN = "Dry run…"
CREATING = "Creating…"
LONGEST_READ_S = 5.0
"""A slow server is waited for so long; then the job is made of what is known, and says what it lacks."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it was when somebody asked to create it; later changes on the screen are no part of it."""

    kind: str
    name: str
    namespace: str
    send: Callable[[bool], Awaitable[JobRef]]
    """Create it, or with True only ask for a dry run. Raises `KubeError`."""
    details: str = ""
    """What to know before it is created."""
    is_doubtful: bool = False
    """Whether it is known to be of no use: this is asked always then, and Cancel has the focus."""


class SubmitScreen(Screen[JobRef | None]):
    """Creates what it shows; returns the job that was created, or None."""

    busy: reactive[str] = reactive("", init=False)
    """The request under way, for the button; empty while there is none."""

    progress: reactive[str] = reactive("", init=False)
    """How far a folder that is sent is; empty while none is."""

    _stops_upload = False

    def reading(self) -> asyncio.Event | None:
        """Return what is set once that was read which a job made now would lack; None if there is nothing."""
        return None

    @abstractmethod
    def make_submission(self) -> Submission | None:
        """Return what to create, or show what is wrong with it and return None."""

    @abstractmethod
    def show_dry_run_passed(self, submission: Submission) -> None:
        """Say that the server would create it."""

    @abstractmethod
    def show_error(self, error: KubeError, hint: str) -> None:
        """Say why it was not created, or not for certain; `hint` says what to do now, if anything."""

    def watch_progress(self, progress: str) -> None:
        """Show how far it is."""
        self.query_one(CreateBar).show(self.busy, 0, progress)

    def show_upload(self, sent_bytes: int, total_bytes: int) -> None:
        """Show how far a folder is on its way into the volume."""
        sent, total = sent_bytes / 2**20, total_bytes / 2**20
        is_sent = sent_bytes == total_bytes
        self.progress = "" if is_sent else f"Uploading {sent:.0f} of {total:.0f} MiB …  esc to stop"

    async def after_create(self, submission: Submission) -> None:
        """Do what remains to be done for a job that was created, before the screen closes."""

    async def confirm_leave(self) -> bool:
        """Ask whether to leave, if something would be lost."""
        return True

    def close(self, ref: JobRef | None) -> None:
        """Close with the job that was created, or None."""
        self.dismiss(ref)

    def action_dry_run(self) -> None:
        """Ask the server for a dry run."""
        self._when_read(partial(self._start, is_dry_run_only=True))

    def action_create(self) -> None:
        """Ask whether to create the job, and create it."""
        self._when_read(self._ask)

    def _when_read(self, go_on: Callable[[Submission], None]) -> None:
        """Make the submission and go on with it, as soon as what goes into it was read."""
        if self.busy:
            return
        if (reading := self.reading()) is not None:
            self.busy = READING
            self._wait_for(reading, go_on)
        elif (submission := self.make_submission()) is not None:
            go_on(submission)

    @work(exclusive=True, group="read")
    async def _wait_for(self, reading: asyncio.Event, go_on: Callable[[Submission], None]) -> None:
        """Wait for what is being read, but not for ever, and go on."""
        with keys_held(self.app):
            with suppress(TimeoutError):
                await asyncio.wait_for(reading.wait(), LONGEST_READ_S)
            if not self.is_running:  # while the screen is closed its parts go one by one
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
            answers = [("cancel", "Cancel"), ("do", "Create all the same")]
        escape = answers.index(("cancel", "Cancel"))
        dialog = ConfirmScreen(question, submission.details, answers=answers, escape=escape)
        self.app.push_screen(dialog, answered)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Create the job: who went to the button and pressed it is asked only about one of no use."""
        event.stop()
        self._when_read(lambda made: self._ask(made) if made.is_doubtful else self._start(made))

    def _start(self, submission: Submission, *, is_dry_run_only: bool = False) -> None:
        # Set here, not in the worker: a second key may come before the worker's first step.
        self.busy = DRY_RUN
        self._stops_upload = False
        self._submit(submission, is_dry_run_only=is_dry_run_only)

    @work(exclusive=True, group="submit")
    async def _submit(self, submission: Submission, *, is_dry_run_only: bool) -> None:
        """Ask for a dry run, and create the job unless that is all that is wanted."""
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
            hint = f"It may have been created all the same: look for {submission.name} before you retry."
            self.show_error(error, hint if may_exist else "")
        self.busy = self.progress = ""

    def action_leave(self) -> None:
        """Leave; asks first when something would be lost."""
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
        """Stop what is being sent, if that was asked for twice; nothing is created then."""
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
    """Return whether the server would create it; False when something there does not support dry runs.

    Raises:
        KubeError: It would not.
    """
    try:
        await submission.send(True)
    except Invalid as error:
        if error.causes or "does not support dry run" not in error.why:
            raise
        return False
    return True
