"""Shared parts of the form and the manifest editor: dry run, confirmation, create, leave.

An object that failed its dry run is never created.
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

from k8s.kinds import JobRef
from k8s.text.errors import Invalid, KubeError, ServerFailed, Unreachable
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.key_queue import keys_held
from tui.widgets.form.job_fields import CreateBar, Notice

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


class SubmitScreen(Screen[JobRef | None]):
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
