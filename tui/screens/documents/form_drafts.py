"""The draft of an open new-job form: offered, saved when asked, and kept on the disk at every step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from textual.app import App

from k8s.text.sanitize import sanitize
from tui.jobs.new_job import draft
from tui.jobs.new_job.form_state import FormState
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.key_queue import keys_held
from tui.text.format import age
from tui.widgets.form.job_fields import Notice

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
        self._is_closed = False

    async def fill_in(self, app: App[object], notice: Notice, show: Callable[[], None]) -> bool:
        """Fill in the last image and, if the user wants it, the draft that was left; tell whether that was.

        Args:
            app: Where it is asked.
            notice: Says why there is no draft where it cannot be read.
            show: Called when the image is filled in.
        """
        with keys_held(app):  # they are for the question whether to resume the draft
            if image := await asyncio.to_thread(draft.last_image, self._folder):
                self._state.set_default("image", image)
                show()
            try:
                saved = await self._read()
            except draft.DraftError as error:
                notice.show(str(error))
                return False
        return saved is not None and await self._is_resumed(app, saved)

    async def _read(self) -> draft.Draft | None:
        """Return the draft that was left, also by a console that ended badly.

        Raises:
            DraftError: It cannot be read.
        """
        await asyncio.to_thread(draft.recover_draft, self._folder)
        return await asyncio.to_thread(draft.read_draft, self._folder)

    async def _is_resumed(self, app: App[object], saved: draft.Draft) -> bool:
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

    async def save_last_image(self, image: str) -> None:
        """Save it for the next form."""
        await asyncio.to_thread(draft.save_last_image, self._folder, image)

    async def save(self, notice: Notice) -> bool:
        """Save the values as a draft; tell whether they are, else the notice says why not."""
        values = self._state.values
        try:
            await asyncio.to_thread(draft.save_draft, self._folder, values)
        except draft.DraftError as error:
            notice.show(str(error))
            return False
        self._state.mark_saved(values)
        self._is_draft = True
        return True

    async def may_leave(self, app: App[object], notice: Notice) -> bool:
        """Ask whether to save a draft, if there are unsaved changes; tell whether to close the form."""
        if not self._state.is_dirty:
            return True
        answers = (("save", "Save draft"), ("discard", "Discard"), ("stay", "Keep editing"))
        details = "A draft is offered the next time you open this form."
        dialog = ConfirmScreen("Save a draft before leaving?", details, answers=answers, escape=2)
        answer = await app.push_screen_wait(dialog)
        with keys_held(app):
            return answer == "discard" or (answer == "save" and await self.save(notice))

    async def keep(self) -> None:
        """Have the values on the disk soon: what ends the console may not let it save them."""
        await asyncio.sleep(KEEP_AFTER_S)
        with suppress(draft.DraftError):  # the key that saves a draft says why
            await asyncio.to_thread(self._unsaved.keep, self._state.values)

    def close(self) -> None:
        """Remove what was kept on the way: the form was closed as it should be."""
        self._is_closed = True
        self._unsaved.forget()

    def save_at_the_end(self) -> None:
        """Save the values where the console ends under a form that was not closed, if that can be done."""
        with suppress(draft.DraftError):
            if self._state.is_dirty and not self._is_closed:
                draft.save_draft(self._folder, self._state.values)
            self._unsaved.forget()

    async def delete(self) -> None:
        """Delete the draft of which a job was made."""
        if self._is_draft:
            await asyncio.to_thread(draft.delete_draft, self._folder)
