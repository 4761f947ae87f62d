"""Drafts, files and git credentials of the new-job form, each with its dialog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace
from textual.app import App

from k8s.jobs.clone import Clone, NotCloned, clone
from k8s.kinds.pod_code import git_secret_name, strip_credentials
from k8s.text.home import expand_home, read_named_file
from k8s.text.sanitize import sanitize
from tui.draft import draft
from tui.draft.form_model import FormModel
from tui.draft.job_files import needs_git_credentials
from tui.draft.manifest_yaml import LARGEST_BYTES, read_job
from tui.screens.dialogs.confirm import ConfirmScreen, LoginScreen, TextPromptScreen
from tui.terminal.key_queue import keys_held
from tui.text.format import age
from tui.widgets.form.job_fields import Notice

AUTOSAVE_DELAY_S = 0.4


class FileProblem(Exception):
    """A file could not be read or written; the message is for the user."""


class FormDrafts:
    """Draft of one open form: offered when it opens, saved on request, autosaved against a crash."""

    def __init__(self, folder: Path, model: FormModel) -> None:
        """Save the values of `model` in the folder of a context."""
        self._folder = folder
        self._model = model
        self._form = draft.OpenForm(folder)
        self._declined: draft.Draft | None = None
        self._is_closed = False

    async def fill_in(self, app: App[object], notice: Notice, show: Callable[[], None]) -> bool:
        """Fill in the last image and, if the user agrees, the draft; return True if it was resumed.

        Args:
            app: Shows the prompt.
            notice: Shows why a draft cannot be read.
            show: Called once the image is filled in.
        """
        with keys_held(app):  # they are for the question whether to resume the draft
            if image := await asyncio.to_thread(draft.last_image, self._folder):
                self._model.set_default("image", image)
                show()
            try:
                # A console that was killed left its draft under another name.
                await asyncio.to_thread(draft.recover_draft, self._folder)
                saved = await asyncio.to_thread(draft.read_draft, self._folder)
            except draft.DraftError as error:
                notice.show(str(error))
                return False
        return saved is not None and await self._is_resumed(app, saved)

    async def _is_resumed(self, app: App[object], saved: draft.Draft) -> bool:
        name = sanitize(saved.values.get("name", "")) or "A job without a name"
        details = (
            f"{name}, saved {age(time.time() - saved.saved_s)} ago. It is kept until you save another draft."
        )
        answers = (("resume", "Resume"), ("start-over", "Start over"))
        dialog = ConfirmScreen("Resume your draft?", details, answers=answers, escape=1)
        if await app.push_screen_wait(dialog) != "resume":
            self._declined = saved
            return False
        await asyncio.to_thread(self._form.resume, saved)
        self._model.load_draft(saved.values)
        return True

    async def save_last_image(self, image: str) -> None:
        """Save the image for the next form."""
        await asyncio.to_thread(draft.save_last_image, self._folder, image)

    async def save(self, notice: Notice) -> bool:
        """Save the values as a draft and return True; if that fails, the notice says why."""
        values = self._model.values
        try:
            await asyncio.to_thread(self._form.save, values)
        except draft.DraftError as error:
            notice.show(str(error))
            return False
        self._model.mark_saved(values)
        if self._declined is not None:
            await asyncio.to_thread(draft.discard_draft, self._declined)
            self._declined = None
        return True

    async def may_leave(self, app: App[object], notice: Notice) -> bool:
        """Ask about unsaved changes, if there are any; return True if the form may close."""
        if not self._model.is_dirty:
            return True
        answers = (("save", "Save draft"), ("discard", "Discard"), ("stay", "Keep editing"))
        details = "A draft is offered the next time you open this form."
        dialog = ConfirmScreen("Save a draft before leaving?", details, answers=answers, escape=2)
        answer = await app.push_screen_wait(dialog)
        with keys_held(app):
            return answer == "discard" or (answer == "save" and await self.save(notice))

    async def autosave(self) -> None:
        """Write the values to disk shortly, in case the console is killed."""
        await asyncio.sleep(AUTOSAVE_DELAY_S)
        with suppress(draft.DraftError):  # the key that saves a draft says why
            await asyncio.to_thread(self._form.keep, self._model.values)

    def close(self) -> None:
        """Keep the saved draft only; the form was closed by the user."""
        self._is_closed = True
        self._form.close()

    def save_at_the_end(self) -> None:
        """Try to save the values of a form that is still open when the console ends."""
        with suppress(draft.DraftError):
            if self._model.is_dirty and not self._is_closed:
                self._form.save(self._model.values)
        self._form.close()

    async def delete(self) -> None:
        """Delete the draft; a job was created from it."""
        await asyncio.to_thread(self._form.delete_draft)


async def ask_for_manifest(app: App[object], user: str) -> tuple[Clone, str] | None:
    """Ask for a file; return its job and a message about it, or None if the user cancelled."""
    details = "A YAML file with a job, which is shown as YAML to be edited and created."
    opened: list[tuple[Clone, str]] = []

    async def find_problem(name: str) -> str:
        try:
            opened[:] = [await asyncio.to_thread(_read_job, name, user)]
        except FileProblem as error:
            return str(error)
        return ""

    dialog = TextPromptScreen("Open which file?", details, verb="open", find_problem=find_problem)
    return opened[0] if await app.push_screen_wait(dialog) else None


def _read_job(name: str, user: str) -> tuple[Clone, str]:
    """Return the job of a file, and a message that names its other objects.

    Raises:
        FileProblem: The file cannot be read, or has no job.
    """
    try:
        obj, others = read_job(_read(expand_home(name)))
        found = clone(obj, name=str(obj["metadata"]["name"]), user=user)
    except OSError as error:
        raise FileProblem(f"Could not read {name}: {error.strerror}.") from error
    except NotCloned as error:
        raise FileProblem(str(error)) from error
    except ValueError as error:
        raise FileProblem(f"{name}: {error}") from error
    message = f"{found.source} from {name}."
    if others:
        message += f" Left out: {', '.join(others)}; gpuconsole submit -f creates every object of a file."
    return replace(found, source=""), message


def _read(path: Path) -> str:
    try:
        return read_named_file(path, LARGEST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}.") from error


async def prompt_git_credentials(app: App[object], model: FormModel) -> str:
    """Ask for the credentials of the repository; return a message, empty if the user cancelled.

    Raises:
        FileProblem: The job does not fetch code from git over https.
    """
    spec = model.result.spec
    if spec.sync_mode == "git" and not spec.sync_source:
        raise FileProblem("Fill in Source first: the https URL of the repository.")
    if not needs_git_credentials(spec):
        raise FileProblem("Only git over https uses a user and a password: set Code to git.")
    if spec.git_secret:
        raise FileProblem(f"Secret {spec.git_secret} is used; clear Git secret to enter credentials here.")
    details = (
        f"For {strip_credentials(spec.sync_source)}. Stored in Secret {git_secret_name(spec.name)}, which is "
        "deleted with the job; drafts never contain them. Leave both empty to forget them."
    )
    login = await app.push_screen_wait(LoginScreen("User and password for git?", details, model.git_user))
    if login is None:
        return ""
    model.set_git_credentials(login.user, login.password)
    if not login.password:
        return "User and password forgotten."
    return f"User and password become Secret {git_secret_name(spec.name)} when the job is created."
