"""What goes from the new-job form to a file, and from a file into the form: each after its question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.app import App

from k8s.jobs.clone import NotCloned, clone
from k8s.text.home import expand_home
from tui.jobs.new_job.form_state import FormState
from tui.jobs.new_job.job_templates import TemplateError, save_template
from tui.jobs.new_job.manifest_yaml import read_job
from tui.screens.dialogs.ask_text import AskTextScreen
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal.key_queue import keys_held
from tui.widgets.form.job_fields import Notice

LARGEST_BYTES = 3 * 2**20
"""What an API server takes at most."""


class FileProblem(Exception):
    """A file could not be read or written; the message is for the user."""


async def is_done(doing: Callable[[], Awaitable[str]], notice: Notice) -> bool:
    """Do something with a file and say in the notice what was done; tell whether anything was."""
    try:
        said = await doing()
    except FileProblem as error:
        notice.show(str(error))
        return False
    if said:
        notice.show(said, is_error=False)
    return bool(said)


async def save_as_template(app: App[object], folder: Path, state: FormState) -> str:
    """Ask for a name and save the form under it; return what was done, or nothing where it was left.

    Raises:
        FileProblem: It could not be saved.
    """
    details = "All that the form says but for name and namespace. The form's first field offers it."
    name = await app.push_screen_wait(AskTextScreen("Save as which template?", details))
    if not name:
        return ""
    if (folder / f"{name}.yaml").exists():
        dialog = ConfirmScreen(f"Replace template {name}?", "There is one of this name.", "Replace")
        if await app.push_screen_wait(dialog) != "do":
            return ""
    with keys_held(app):
        try:
            path = await asyncio.to_thread(save_template, folder, name, state.result, state.values)
        except TemplateError as error:
            raise FileProblem(str(error)) from error
    return f"Saved to {path}."


async def import_job(app: App[object], state: FormState) -> str:
    """Ask for a file and fill in the form like the job in it; return what the form leaves out of it.

    Raises:
        FileProblem: It cannot be read, or holds no job that the form can say.
    """
    details = "A YAML file with a job of any kind that the form can make. It replaces what is filled in."
    name = await app.push_screen_wait(AskTextScreen("Import which file?", details, verb="import"))
    if not name:
        return ""
    with keys_held(app):
        try:
            text = await asyncio.to_thread(_read, expand_home(name))
            obj = read_job(text)
            found = clone(obj, name=str(obj["metadata"]["name"]), user=state.user)
        except OSError as error:
            raise FileProblem(f"Could not read {name}: {error.strerror}.") from error
        except NotCloned as error:
            raise FileProblem(str(error)) from error
        except ValueError as error:
            raise FileProblem(f"{name}: {error}") from error
    if found.spec is None:
        raise FileProblem(f"{name}: the form cannot make a {found.resource.kind}; use submit -f.")
    lost = state.fill_in(found)
    return f"Imported {found.like} from {name}. {lost}".strip()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(LARGEST_BYTES + 1)
    if len(raw) > LARGEST_BYTES:
        raise ValueError("It is larger than 3 MiB, the most that a cluster takes.")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"It is not UTF-8 at byte {error.start}.") from error
