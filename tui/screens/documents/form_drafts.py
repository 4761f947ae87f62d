"""The draft of an open new-job form: offered, saved when asked, and kept on the disk at every step."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from textual.app import App

from k8s.text.sanitize import sanitize
from tui.jobs.new_job import draft
from tui.jobs.new_job.form_state import FormState
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.text.format import age

KEEP_AFTER_S = 0.4
"""Between the last key in a field and the values on the disk."""


class FormDrafts:
    """What becomes of the values of one form while it is open, and when it is not any more."""

    def __init__(self, folder: Path, state: FormState) -> None:
        """Keep the values of `state` in the folder of a context."""
        self._folder = folder
        self._state = state
        self._unsaved = draft.UnsavedValues(folder)
        self._is_draft = False

    async def read(self) -> draft.Draft | None:
        """Return the draft that was left, also by a console that ended badly.

        Raises:
            DraftError: It cannot be read.
        """
        await asyncio.to_thread(draft.recover_draft, self._folder)
        return await asyncio.to_thread(draft.read_draft, self._folder)

    async def is_resumed(self, app: App[object], saved: draft.Draft) -> bool:
        """Ask whether to resume a draft, and fill it in."""
        name = sanitize(saved.values.get("name", "")) or "A job without a name"
        details = (
            f"{name}, saved {age(time.time() - saved.saved_s)} ago. It is kept until you save another draft."
        )
        answers = (("resume", "Resume"), ("start-over", "Start over"))
        dialog = ConfirmScreen("Resume your draft?", details, answers=answers, escape=1)
        if await app.push_screen_wait(dialog) != "resume":
            return False
        self._is_draft = True
        self._state.load_draft(saved.values)
        return True

    async def last_image(self) -> str:
        """Return the image of the last job; empty where none is known."""
        return await asyncio.to_thread(draft.last_image, self._folder)

    async def save_last_image(self, image: str) -> None:
        """Save it for the next form."""
        await asyncio.to_thread(draft.save_last_image, self._folder, image)

    async def save(self) -> None:
        """Save the values as a draft.

        Raises:
            DraftError: The folder cannot be written to.
        """
        values = self._state.values
        await asyncio.to_thread(draft.save_draft, self._folder, values)
        self._state.mark_saved(values)
        self._is_draft = True

    async def keep(self) -> None:
        """Have the values on the disk soon: what ends the console may not let it save them.

        Raises:
            DraftError: The folder cannot be written to.
        """
        await asyncio.sleep(KEEP_AFTER_S)
        await asyncio.to_thread(self._unsaved.keep, self._state.values)

    def forget_unsaved(self) -> None:
        """Remove what was kept on the way: the form was closed as it should be."""
        self._unsaved.forget()

    def save_at_the_end(self, *, is_closed: bool) -> None:
        """Save the values where the console ends under a form that was not closed.

        Raises:
            DraftError: The folder cannot be written to.
        """
        if self._state.is_dirty and not is_closed:
            draft.save_draft(self._folder, self._state.values)
        self._unsaved.forget()

    async def delete(self) -> None:
        """Delete the draft of which a job was made."""
        if self._is_draft:
            await asyncio.to_thread(draft.delete_draft, self._folder)
